"""Microphones and loudspeakers of this machine."""
