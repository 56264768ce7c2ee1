"""What only ``script/test`` sets up and runs. Standard library only."""
