"""``reachy-voice talk``: a microphone, a loudspeaker and a terminal, no client between."""
