"""Timers, alarms and reminders, kept over restarts, and the tools to set them."""
