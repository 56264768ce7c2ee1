"""Tuned constants of turn taking, each with its unit and reason.

Fitted on the tuning part of the corpus of ``benchmarks/turns``, checked on its frozen part:

    python -m benchmarks.turns.score DIR/frozen --baselines     when a turn is over
    python -m benchmarks.interruptions DIR                      what speech over an answer means
    python -m benchmarks.latency scripted                       engine time wasted on speculation
"""

from __future__ import annotations

from dataclasses import dataclass

# --- when a turn is over (``endpointing``; benchmarks.turns.score) --------------------------------


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each source counts, in log odds."""

    bias: float
    sound: float
    """Factor on the turn detector's own log odds."""
    words: float
    """Factor on the log odds of the language model's opinion (``engines.word_scale``)."""
    clue: float
    """Factor on ``ending_words.LAST_WORDS``."""


READ = Weights(bias=-0.2, sound=0.15, words=0.6, clue=1.0)
"""After the language model has read the words. Logistic regression on the tuning part and on people
together, cross-validated by speaker: the corpus alone gives sound 0.09 and words 0.62, people alone
0.28 and 0.42."""
UNREAD = Weights(bias=0.15, sound=0.3, words=0.0, clue=1.5)
"""Before it has read them, or with a model that cannot judge words. Fitted in the same way, but
``sound`` is above the fit's 0.18 to 0.23, because people need more."""
OPEN, PLAINLY_OPEN = -0.5, -2.5
"""If the language model's log odds that the words are complete are below these, the recogniser's
mark does not count: the first after words that may lean, the second after any. Of the turn ends of
the tuning part and of people, 6 of 633 are below."""
LENGTH = 0.7
"""Factor on the logarithm of a turn's length over ``SHORT_TURN_MS``, if its words are a whole
sentence: another rarely follows a long one. Fitted together with ``READ``. In the corpus, short
turns are rarely over; that is not used, because people give robots short commands."""
SHORT_TURN_MS = 2000
"""Turns up to this length gain nothing from it."""
TELLING_LENGTH = 0.25
"""Log odds from which the length is listed among the reasons."""
SUREST = 0.98
"""The turn detector's probability is limited to this, and to 1 minus this."""
OWN_PAUSES = 20
"""How many of the speaker's latest pauses are remembered."""
PRIOR_PAUSES = 6
"""How many pauses of this speaker weigh as much as ``endpointing.mean_pause_ms``."""
LIKELY = 0.5
"""Probability from which a turn is likely over, so that a reply begins even on a tight budget."""
PATIENCE = 2
"""A language model that judges words gets this many times the wait of a likely end: no answer could
come earlier, but its reply runs after confirmed ones."""

# --- speech over an answer (``barge_in``; benchmarks.interruptions) -------------------------------


@dataclass(frozen=True, slots=True)
class OverlapWeights:
    """Log odds that speech over an answer is meant for the robot."""

    bias: float
    certainty: float
    """Times the VAD's mean score."""
    early: float
    """For speech shorter than ``EARLY_MS``."""
    agrees: float
    """The words only agree. This and the next three are for the words at this look and, averaged,
    at the earlier ones."""
    command: float
    opener: float
    """For ``command`` and ``opener``: the words begin with such a word."""
    several: float
    """The words are ``SEVERAL_WORDS`` or more."""


MEANT = OverlapWeights(
    bias=-10.5, certainty=13.0, early=-2.0, agrees=-4.1, command=1.3, opener=1.2, several=1.0
)
"""Logistic regression on the looks at 300 to 560 ms of the tuning part's scenes, people's
backchannels counted three times, and of 48 commands of people. ``early`` is not from the fit, and
the fit's bias is -10.1: with these, P95 of the verdict is 500 ms with the fewest backchannels."""
EARLY_MS = 384
"""Until then recognisers misread most first words, and there is time for another look."""
SEVERAL_WORDS = 3
"""A recogniser seldom makes up this many different words from one that it heard."""
MOST_AGREEING_WORDS = 12
"""Longer speech does not only agree, whatever its words."""
SHORT_WORDS, SHORT_MS = 2, 900
"""Speech that ended, is at most this many words and shorter than this, and does not begin like a
command or question was misheard or not meant: people's "Okay" is read as "Paul K."."""
MISHEARD, MISHEARD_LETTERS = 0.75, 4
"""Similarity (0 to 1, ``difflib``) from which a word of at least this many letters counts as a
misheard command or backchannel: "Step." counts as "Stop."."""
ECHOED = 0.6
"""Share of letters in words that the answer has just spoken, from which speech is its echo."""
MAYBE_ECHOED = 0.5
"""The same share, from which speech may be an echo whose other words were misread."""
ALIKE = 0.8
"""Similarity from which a word heard counts as one that was spoken."""
FEWEST_ECHOED = 2
"""A single word does not count as an echo."""
READ_WITHIN_MS = 800
"""If transcribing the words takes longer than this, the length of the speech decides."""
LOOKS_IN_A_ROW = 3
"""After this many looks without a verdict, looks become rarer: each costs a recogniser pass."""

# --- speculation (``speculation``; benchmarks.latency scripted) -----------------------------------

OUTCOMES, FEWEST_OUTCOMES = 24, 6
"""Pauses over which waste is measured, and the fewest from which it counts."""
PASSES = 64
"""Recognition passes that a new one is compared with."""
SLOW = 1.5
"""Slowness of recognition from which no reply begins on partial transcripts."""
VERY_SLOW = 3.0
"""Slowness of recognition from which a reply begins only if the turn is likely over."""
