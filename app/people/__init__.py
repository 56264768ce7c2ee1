"""Who lives here: people whose voices are known."""
