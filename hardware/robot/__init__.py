"""The robot's body, through the daemon that owns it."""
