"""``reachy-voice pair``: points the conversation app of a Reachy Mini at this server.

``steps`` are the results, ``way_back`` judges what was seen (both pure), ``flow`` is the order of
things and their undoing; the rest are its edges: the robot's daemon, its app, this server.
"""
