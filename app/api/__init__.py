"""OpenAI's plain HTTP routes. They share the engines with conversations, which always go first."""
