"""WebRTC: the connection and the sound of a call. ``app.server.calls`` adds the session."""
