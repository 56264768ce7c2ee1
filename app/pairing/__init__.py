"""``reachy-voice pair``: points the conversation app of a Reachy Mini at this server.

``flow`` is the order of things and their undoing, ``way_back`` judges what was seen (pure).
"""
