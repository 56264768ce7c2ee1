"""Software echo cancellation: ``canceller`` removes the echo of the robot's own voice, ``gate``
finds speech over it, ``delay`` measures a remote client's delay. Pure; numpy; 16 kHz mono."""
