"""Tuned constants of waking, each with its unit and reason; ``python -m benchmarks.wake`` measures
them."""

from __future__ import annotations

from pipeline.audio import LISTEN_RATE

# --- what is looked at ----------------------------------------------------------------------------

FIRST_WORDS = 2 * LISTEN_RATE
"""So much of an utterance goes through the recogniser, in samples; a call is said in less."""
SILENCE_MS = 320
"""Asleep, so much silence ends an utterance: what follows may begin with a call."""
MOST_UTTERANCES = 4
"""Utterances that may wait for a slow recogniser; older ones were no call."""
LONGEST_CALL = 3 * LISTEN_RATE // 2
"""From the first sample of a call to the one at which a wake word model notices it."""

# --- how alike ------------------------------------------------------------------------------------

CALL_DIFFERENCE, NAME_DIFFERENCE = 0.25, 0.3
"""Wrong consonants, as a share of the call's, and of its last word's, up to which words may be it.
Of 150 other utterances, as Moonshine Tiny hears them, one is as much like "Hey Robot", none like
"Hey Reachy"; without the second, "here we go" is."""
WORDS_BEFORE_CALL = 2
"""Words that may come before it: "uh, hey Reachy"."""
MOST_FAREWELL_WORDS = 20
"""With the call and all that is said around it."""
LEAST_SOUNDS, LEAST_LETTERS = 4, 2
"""Of a call, in Latin script and in others; shorter ones are too much like other words."""

# --- whose words they are -------------------------------------------------------------------------

SAME_PLACE_DEG = 90.0
"""Width of the sector, about where the caller spoke last, in which the caller still is. An XVF3800
tells people apart who are 30 degrees or more from each other, and people walk between two turns."""

# --- how long it stays awake ----------------------------------------------------------------------

CLIENT_CALL_S = 30.0
"""For a function that the client calls before it asks for the rest of an answer."""
