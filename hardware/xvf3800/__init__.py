"""The XVF3800 microphone array: what its USB control interface reads and sets."""
