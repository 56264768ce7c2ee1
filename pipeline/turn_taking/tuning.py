"""The numbers of turn taking that were tuned, each with its unit, its reason and what set it.

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
    """How much each source counts, in log odds. ``sound``: factor on the turn detector's own log
    odds; ``words``: on those of the language model's opinion (``engines.word_scale``);
    ``clue``: on ``ending_words.LAST_WORDS``."""

    bias: float
    sound: float
    words: float
    clue: float


READ = Weights(bias=-1.41, sound=0.25, words=0.77, clue=1.0)
"""After the language model has read the words. A compromise between kinds of speech: the corpus,
whose pauses are cut in, is told apart best by the words (0.1 and 0.95), dialogues between people by
the sound (0.25 and 0.5)."""
UNREAD = Weights(bias=0.0, sound=0.5, words=0.0, clue=1.5)
"""Before that, or with a model that cannot tell. The turn detector counts for more than the corpus
says, because it does better on published recordings of conversations."""
LENGTH = 0.7
"""Factor on the logarithm of a turn's length over ``SHORT_TURN_MS``, where its words are a whole
sentence: a long sentence is rarely followed by another. Fitted together with ``READ``. The corpus
also says that short turns are rarely over; that is not used, because robots are given short
commands."""
SHORT_TURN_MS = 2000
TELLING_LENGTH = 0.25
"""Log odds from which the length is named among the reasons."""
SUREST = 0.98
"""The turn detector is believed no further than this."""
OWN_PAUSES = 20
"""How many of the speaker's latest pauses are remembered."""
PRIOR_PAUSES = 6
"""How many pauses of this speaker weigh as much as ``endpointing.mean_pause_ms``."""
LIKELY = 0.5
"""Probability from which a turn counts as likely over: then a reply begins even on a tight
budget."""

# --- speech over an answer (``barge_in``; benchmarks.interruptions) -------------------------------

LONGEST_BACKCHANNEL_WORDS = 4
SEVERAL_WORDS, SEVERAL_WORDS_MS = 3, 480
"""This many words in this much speech interrupt, unless all are backchannels. In less speech the
recogniser makes words up: with 350 ms, 17 % of 54 listeners stop the answer, not 13 %."""
SHORT_WORDS, SHORT_MS = 2, 480
"""At its end, speech of so few words in less time than this was misheard."""
MISHEARD, MISHEARD_LETTERS = 0.75, 4
"""Likeness (0 to 1, ``difflib``) of a word of at least so many letters to the one that it is taken
for: "Step." is taken for "Stop."."""
ECHOED = 0.6
"""Share of the letters of the words that the answer has just said too: then it is its echo."""
ALIKE = 0.8
"""Likeness of two words that count as the same, said once and heard again."""
FEWEST_ECHOED = 2
"""A single word does not count as an echo."""
READ_WITHIN_MS = 800
"""If the words take longer than this to read, the length of the speech decides."""
LOOKS_IN_A_ROW = 3
"""After this many looks without a verdict the next ones are further apart: each costs a pass of the
recogniser."""

# --- speculation (``speculation``; benchmarks.latency scripted) -----------------------------------

OUTCOMES, FEWEST_OUTCOMES = 24, 6
"""Pauses over which waste is measured; with fewer it says nothing yet."""
PASSES = 64
"""Recognition passes that a new one is compared with."""
SLOW = 1.5
"""Time of a pass over its usual time, from which no reply begins on partial transcripts."""
VERY_SLOW = 3.0
"""The same, from which a reply begins only when its turn is likely over."""
