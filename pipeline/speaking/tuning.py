"""Tuned constants of speaking, each with its unit and reason. Tuned with:

python -m benchmarks.latency scripted               how long a clause may be (chunker, ramp)
python -m benchmarks.interruptions.heard_history    what was heard of a cut answer
"""

from __future__ import annotations

from pipeline.spoken.borders import Border

# --- how long a clause may be (chunker) ----------------------------------------------------------

EARLY_LETTERS = 30
"""If no longer piece is allowed, the piece ends at the first good place."""

# --- the time that a voice needs (ramp) ----------------------------------------------------------

RAMP_MOST_S = 12.0
"""Longest piece; an interruption would waste more."""
RAMP_CAUTION = 1.3
"""Factor on the time that a piece is expected to take."""
RAMP_MARGIN_S = 0.06
"""Added to that. A step of the event loop and of the engine's host takes a few ms on an idle
machine; on a busy machine, the learned times include it."""
RAMP_SLOW, RAMP_KEEPS_UP = 0.8, 0.95
"""Seconds of work for a second of speech. Above the first, the owner is warned, because a busy
machine is slower; above the second, pieces are not played as they are made. Guesses."""
RAMP_CHUNK_S = 0.08
"""Held back in addition, to be heard while the last chunk is made: a frame of Qwen3-TTS."""
RAMP_SHORTEST_WAIT_S = 0.005
"""Shorter waits are not worth a step of the event loop."""
RAMP_PACES = 0.01, 0.5
"""Least and most seconds of speech per letter; English has 0.065."""
RAMP_KEPT = 12
"""Observations kept; with the forgetting below, older ones hardly count."""
RAMP_FORGETTING = 0.85
"""Weight of each observation relative to the next."""
RAMP_TRUST_S = 0.1, 0.3
"""Guessed fixed cost of a piece, and the guess's weight against one observation: pieces of equal
length do not show which part of their cost is fixed."""

# --- when a clause has gone wrong (clause_watch) -------------------------------------------------

WATCH_QUIET_DB = -50.0
"""A frame below this, in dBFS, is silent (``JOINT_QUIET``)."""
WATCH_BANDS = 14
WATCH_LOWEST_HZ, WATCH_HIGHEST_HZ = 120.0, 7000.0
"""Mel bands that the spectrum is reduced to, and their range."""
WATCH_FLOOR_DB = -60.0
"""Level of a band, in dBFS, below which it sounds silent."""
WATCH_LIMIT_S = 0.9
WATCH_LIMIT_FACTOR = 1.3
"""Longest clause: the text's usual length times the factor, plus the seconds."""
WATCH_LIMIT_FACTOR_UNKNOWN = 4.5
"""The same factor before the voice has spoken: it may be set to a quarter of the usual pace."""
WATCH_PAUSE_S = 0.8
"""Longest silence, at the start and in the middle, at the usual pace."""
WATCH_SAME_FRAMES = 40
"""Frames of 20 ms that must match those one period earlier."""
WATCH_PERIODS = 22, 104
"""Shortest and longest period of a repetition, in frames."""
WATCH_SAME = 0.92
"""Correlation from which two stretches count as the same sound."""
WATCH_OWN_FACTOR = 1.7
"""Factor on the usual length of repetitions in the text itself: these are allowed."""
WATCH_CHECKED_EVERY = 5
"""Frames (100 ms) between two checks for noise and repetition, to save CPU."""
WATCH_STEADY_FRAMES = 40
WATCH_STEADY_DB = 2.1
"""Over this many audible frames, the spectral shape of speech varies by more than this."""
WATCH_SMOOTHED = 5
"""Frames over which the shape is averaged for that."""
WATCH_NOISY = 0.3
WATCH_NOISY_FRAMES = 22
"""Spectral flatness of a noisy frame, and how many noisy frames are too many among the steady ones.
"""

# --- repeating a clause (clause_speech) ----------------------------------------------------------

CLAUSE_TAKES = 2
"""Times that a clause is tried; a third try would leave the listener waiting."""
CLAUSE_MOST_LEFT_OUT = 3
"""Number of failed clauses in a row after which the voice counts as broken."""
CLAUSE_SLOWER = 10.0
"""The voice is late after this many times a clause's usual time: the machine may be busy."""
CLAUSE_LEAST_PATIENCE_S = 5.0
"""Least time before a voice is late: at its first use it may still have to load."""
CLAUSE_SOUNDS_AHEAD = 64
"""A clause is begun when at most this many sounds wait to be sent. The voice then works at full
speed, so that a fault is found, and the clause said again, before any of it is heard."""
CLAUSE_WHOLE = 0.93
"""Share from which a clause counts as heard completely: its length is a guess."""
CLAUSE_NEAR = 0.05
"""If a punctuation mark is this near, as a share of the text, the voice is assumed to be there."""

# --- between clauses (clause_speech) -------------------------------------------------------------

JOINT_QUIET = 10 ** (-50 / 20) * 32768
"""Samples below this (-50 dBFS) are silence. Piper's silence is at -90; its softest word onsets
pass -50 within 5 ms of passing -60."""
JOINT_KEPT_BEFORE_MS = 10
"""Silence kept before the first sound, so that no soft onset is cut."""
JOINT_MOST_BEFORE_MS = 400
"""Most silence that is trimmed at the start: a breath there may be intended."""
JOINT_MOST_BEHIND_MS = {
    Border.TORN: 20,
    Border.WORD: 20,
    Border.PHRASE: 40,
    Border.PART: 60,
    Border.CLAUSE: 200,
}
"""Longest silence kept after a piece with this border. After a sentence, all of it is kept."""

# --- the apology ---------------------------------------------------------------------------------

APOLOGY_MOST_S = 4.0
"""How long a session waits for the apology's audio."""
APOLOGY_KEPT_AFTER_S = 2.0
"""After this time without audio, the stored recording is played instead."""

# --- how far ahead audio is sent (playback; benchmarks.turns.score: overlap that is heard) --------

FIRST_S, FIRST_LEAD_S, FIRST_CHUNK_MS = 2.0, 0.04, 20
"""In the first 2 s of an answer, audio is sent at most 40 ms (plus the network's jitter) ahead, in
messages of at most 20 ms. In 8 % of the turns of the tuning part, users hear more than 150 ms of an
answer while they speak; with 80 ms in messages of 40 ms, in 18 %."""

# --- reply ---------------------------------------------------------------------------------------

BARELY_HEARD_S = 1.0
"""Up to here an answer has hardly begun: any speech interrupts it, unless an echo is being removed.
"""
NEARLY_HEARD_S = 0.5
"""Speech over the last half second of an answer is the next turn, not an interruption."""
ANTICIPATED_LETTERS = 16
"""A question is answered ("yes") before its last 16 letters, some 1.2 s, are heard. A guess,
not fitted: neither the corpus nor the recordings of people have such answers."""

# --- a long wait (reply) -------------------------------------------------------------------------

LONG_WAIT_S = 5.0
"""After this long without a first word, a server by URL is most likely loading its model: the user
is told to wait, in a response of its own. The slowest profile begins 95 % of answers in 1.6 s."""
