"""Records sessions to a folder: ``writing`` keeps commands, events and audio, ``excerpt`` cuts out
the sound of a turn."""
