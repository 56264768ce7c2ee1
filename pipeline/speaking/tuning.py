"""The numbers of speaking that were tuned, each with its unit, its reason and what set it.

python -m benchmarks.voices.faults                  when a clause has gone wrong (clause_watch)
python -m benchmarks.latency scripted               how long a clause may be (chunker, ramp)
python -m benchmarks.interruptions.heard_history    what was heard of a cut answer
"""

from __future__ import annotations

# --- how long a clause may be (chunker) ----------------------------------------------------------

EARLY_LETTERS = 30
"""A piece that may be no longer than this ends as soon as it can."""

# --- the time that a voice needs (ramp) ----------------------------------------------------------

RAMP_MOST_S = 12.0
"""Longest piece: more would be wasted at an interruption."""
RAMP_CAUTION = 1.3
"""Factor on the time that a piece is expected to take."""
RAMP_MARGIN_S = 0.06
"""Added to that, in seconds. A step of the event loop and of the engine's host is a few ms on an
idle machine; on a busy one, what is learned shows it."""
RAMP_SHORTEST_WAIT_S = 0.005
RAMP_PACES = 0.01, 0.5
"""Seconds of speech that a letter can be; English is at 0.065."""
RAMP_KEPT = 12
RAMP_FORGETTING = 0.85
"""Weight of each observation against the one after it."""
RAMP_TRUST_S = 0.1, 0.3
"""What a piece takes however short it is, and how much that guess weighs against one piece that
was seen: pieces of one length do not tell what is for each and what is for its length."""

# --- when a clause has gone wrong (clause_watch) -------------------------------------------------

WATCH_QUIET_DB = -50.0
"""A frame below this, in dBFS, is silent (``JOINT_QUIET``)."""
WATCH_BANDS = 14
WATCH_LOWEST_HZ, WATCH_HIGHEST_HZ = 120.0, 7000.0
WATCH_FLOOR_DB = -60.0
"""Of one band: what lies below sounds like silence."""
WATCH_LIMIT_S = 0.9
WATCH_LIMIT_FACTOR = 1.3
"""The longest clause: this factor times the usual length of such a text, plus these seconds."""
WATCH_LIMIT_FACTOR_UNKNOWN = 4.5
"""Before the voice has said anything: it may be set to a quarter of the usual pace."""
WATCH_PAUSE_S = 0.8
"""Longest silence, at the start and in the middle, at the usual pace."""
WATCH_USUAL_S_PER_LETTER = 0.065
WATCH_SAME_FRAMES = 40
"""Frames of sound that must be like those a period before."""
WATCH_PERIODS = 22, 104
"""Shortest and longest, in frames."""
WATCH_SAME = 0.92
"""Correlation of two stretches that are taken as the same sound."""
WATCH_OWN_FACTOR = 1.7
"""Factor on the usual length of what the text itself repeats."""
WATCH_CHECKED_EVERY = 5
WATCH_STEADY_FRAMES = 40
WATCH_STEADY_DB = 2.1
"""Over so many audible frames, the shape of the spectrum of speech changes by more than this."""
WATCH_SMOOTHED = 5
WATCH_NOISY = 0.3
WATCH_NOISY_FRAMES = 22
"""Spectral flatness of a frame that is noise, and how many of those audible frames are too many."""

# --- repeating a clause (clause_speech) ----------------------------------------------------------

CLAUSE_TAKES = 2
CLAUSE_MOST_LEFT_OUT = 3
"""Clauses in a row that cannot be said, from which on the voice counts as broken."""
CLAUSE_SLOWER = 10.0
"""Factor on the usual time of a clause, after which the voice is late: a machine may be busy."""
CLAUSE_LEAST_PATIENCE_S = 5.0
"""And never less than this. A voice that is used for the first time is loaded then."""
CLAUSE_SOUNDS_AHEAD = 64
"""A clause is begun when no more sounds wait to be sent. It is then made as fast as the voice can:
a fault is found, and the clause said again, before any of it is heard."""
CLAUSE_WHOLE = 0.93
"""Share of a clause from which all of it counts as heard: its length is a guess."""
CLAUSE_NEAR = 0.05
"""A mark that is so near, as a share of the text, is rather where the voice was."""

# --- between clauses (clause_speech) -------------------------------------------------------------

JOINT_QUIET = 10 ** (-50 / 20) * 32768
"""Samples below this (-50 dBFS) are silence. Piper's is at -90; the softest onsets of its words
pass -50 within 5 ms of passing -60."""
JOINT_KEPT_BEFORE_MS = 10
"""Silence that stays in front of the first sound, so that no soft onset is cut."""
JOINT_MOST_BEFORE_MS = 400
"""No more is taken away in front: a voice that begins with a breath may mean it."""

# --- the apology ---------------------------------------------------------------------------------

APOLOGY_MOST_S = 4.0
"""The longest that a session waits for it."""
APOLOGY_KEPT_AFTER_S = 2.0
"""After this time without audio, what was kept is taken."""

# --- how far ahead audio is sent (playback; benchmarks.turns.score: overlap that is heard) --------

FIRST_S, FIRST_LEAD_S = 2.0, 0.08
"""In the first seconds of an answer no more than this is sent ahead, beside the network's jitter. A
user who goes on after a pause hears the answer for 23 ms less a turn than with 250 ms."""

# --- reply ---------------------------------------------------------------------------------------

NEARLY_HEARD_S = 0.5
"""Who speaks over the last half second of an answer takes the next turn."""
