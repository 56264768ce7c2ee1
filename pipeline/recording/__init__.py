"""Records sessions to a folder, and replays them through the current program.

``writing`` keeps a session's commands, events and audio, ``reading`` reads them, and ``replay``
sends the recorded commands to a new session at their times.
"""
