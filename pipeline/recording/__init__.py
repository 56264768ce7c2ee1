"""Sessions written to a folder, and played again through today's program.

``writing`` keeps a session's commands, events and audio, ``reading`` reads them, and ``replay``
gives the recorded commands to a new session at their times.
"""
