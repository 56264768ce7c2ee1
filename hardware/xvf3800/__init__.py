"""The XVF3800 microphone array and its USB control interface."""
