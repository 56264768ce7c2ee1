"""The engines for Home Assistant."""
