"""Conversations with labelled pauses, and how well turn-taking works in them (README.md)."""
