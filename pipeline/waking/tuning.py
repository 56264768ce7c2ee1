"""Tuned constants of waking, each with its unit and reason; ``python -m benchmarks.wake`` measures
them."""

from __future__ import annotations

from pipeline.audio import LISTEN_RATE

# --- what is looked at ----------------------------------------------------------------------------

FIRST_WORDS_SAMPLES = 2 * LISTEN_RATE
"""How much of an utterance is transcribed; a call takes less."""
SILENCE_MS = 320
"""Silence that ends an utterance heard asleep: what follows may begin with a call."""
MOST_UTTERANCES = 4
"""Most utterances that wait for a slow recogniser; older ones are dropped."""
LONGEST_CALL_SAMPLES = 3 * LISTEN_RATE // 2
"""From the first sample of a call to the one at which a wake word model notices it."""
CALL_FADES_SAMPLES = LISTEN_RATE // 4
"""From the sample at which a model notices a call to the end of its sound, at most. What ends
sooner is the call alone, however the recogniser spells it."""

# --- how alike ------------------------------------------------------------------------------------

CALL_DIFFERENCE, NAME_DIFFERENCE = 0.25, 0.3
"""Largest share of wrong consonants in a call, and in its last word. Of 150 other utterances, as
Moonshine Tiny hears them, one passes for "Hey Robot", none for "Hey Reachy"; without the second
limit, "here we go" does."""
WORDS_BEFORE_CALL = 2
"""Words that may come before it: "uh, hey Reachy"."""
MOST_FAREWELL_WORDS = 20
"""Longest farewell, with the call and all that is said around it."""
LEAST_SOUNDS, LEAST_LETTERS = 4, 2
"""Shortest call, in Latin script and in others; other words resemble shorter ones."""

# --- whose words they are -------------------------------------------------------------------------

SAME_PLACE_DEG = 90.0
"""Width of the sector around the caller's last direction in which speech counts as the caller's. An
XVF3800 tells people apart from 30 degrees on, and people walk between two turns."""

# --- how long it stays awake ----------------------------------------------------------------------

CLIENT_CALL_S = 30.0
"""Time for a client that runs a function before it asks for the rest of an answer."""
