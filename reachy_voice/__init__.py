"""The names that other people's code may rely on. Everything else may move.

- ``reachy_voice.engines``: what an engine of one's own is asked, and gives back.
- ``reachy_voice.testing``: scripted engines, and scenes in virtual time.
- ``reachy_voice.client``: a small client of the Realtime API.
"""
