"""Timers, alarms and reminders: what is due, kept over restarts, and tools to set them."""
