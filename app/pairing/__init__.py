"""``reachy-voice pair``: points the conversation app of a Reachy Mini at this server.

``flow`` runs and undoes the steps; ``way_back`` judges whether the app connected (pure).
"""
