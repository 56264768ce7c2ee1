"""Conversations with labelled pauses, and how well the turn is taken in them (README.md)."""
