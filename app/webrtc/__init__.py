"""WebRTC: the connection and the sound of a call. ``app.server.calls`` makes sessions of them."""
