"""The public API: names that other code may rely on. Everything else may move.

- ``reachy_voice.engines``: the protocols of your own engines, and the types they take and return.
- ``reachy_voice.testing``: scripted engines, and scenes in virtual time.
- ``reachy_voice.hosting``: the engines of the settings, in a program of yours.
- ``reachy_voice.client``: a small client for the Realtime API.
"""
