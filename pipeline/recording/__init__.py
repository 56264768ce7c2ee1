"""What happened in sessions, written to a file and played again from it.

``tape`` writes the file, ``recorded`` taps a session, ``reading`` reads the file, and ``replay``
runs a session again over the engine results that the file holds.
"""
