"""OpenAI's plain routes, over the same engines as the conversations, which always go first."""
