"""Asleep and awake: a gate between what is heard and what is taken for a turn."""
