"""When is a turn over? From what is known about a pause to how long it must last.

Odds that the speaker is done come from what the turn detector hears, from the words so far, from
how long the turn has lasted, and from how this speaker pauses. A pause that is none ends sooner or
later: if such pauses last ``mean_pause_ms`` on average (exponentially distributed), every further
``mean_pause_ms`` of silence makes the odds e times better. So the silence after which we are
confident enough is

    wait = mean_pause_ms * (log_odds(confidence) - log_odds(probability))

between the least and the longest wait: short for an end that is plain, long for a hesitation, and
never a fixed hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.settings import Endpointing
from pipeline.turn_taking.ending_words import LAST_WORDS, Clue, ending

OWN_PAUSES = 20
"""How many of a speaker's latest pauses are remembered."""
_PRIOR_PAUSES = 6
"""How many pauses of this speaker weigh as much as ``mean_pause_ms``."""
_SUREST = 0.98
"""No single source is believed further than this."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """How much each source counts, in log odds. ``sound``: factor on the turn detector's own log
    odds; ``words``: on the logarithm of the language model's probability, above ``_EVEN_WORDS``;
    ``clue``: on ``LAST_WORDS``."""

    bias: float
    sound: float
    words: float
    clue: float


_READ = _Weights(bias=-1.0, sound=0.1, words=0.75, clue=1.0)
"""Where the language model has read the words. Fitted to the tuning part of the corpus in
``benchmarks/turns``; there the model's probability parts ends from inner pauses with an area under
the ROC curve of 0.85 (clean audio), and Smart Turn with 0.60."""
_UNREAD = _Weights(bias=0.2, sound=0.5, words=0.0, clue=1.5)
"""Where it has not, or cannot. The turn detector counts for more than the corpus says, because it
does better on published recordings of conversations."""
_LENGTH = 0.7
"""Factor on the logarithm of a turn's length over ``_SHORT_TURN_MS``, where its words are a whole
sentence: few sentences are followed by another one if they were long. Fitted with ``_READ``. That
short turns are rarely over, as the corpus says, too, is not used: robots are given short commands.
"""
_SHORT_TURN_MS = 2000
_TELLING_LENGTH = 0.25
"""From these log odds on, the length is named among the reasons."""
_SHORT: frozenset[Clue] = frozenset({"one-word answer", "short answer", "few words"})
"""These never wait longer than a likely end, whatever the models make of so little."""
_WHOLE: frozenset[Clue] = frozenset({"statement", "question"})
_EVEN_WORDS = 0.02
"""The language model's probability that says nothing either way (SmolLM2-135M)."""
_UNLIKELIEST = 1e-4


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a pause. It grows while the pause lasts; ``None``: not known yet.

    ``audio``: the turn detector's probability. ``text``: the words before the pause. ``words``: the
    language model's probability that they are complete. ``asked``: what the assistant said last.
    ``own_pauses_ms``: this speaker's pauses that were none, oldest first. ``turn_ms``: from the
    beginning of the turn to the pause.
    """

    audio: float | None = None
    text: str | None = None
    words: float | None = None
    asked: str = ""
    own_pauses_ms: tuple[int, ...] = ()
    turn_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How likely the turn is over, the silence that ends it, and what spoke for that."""

    probability: float
    wait_ms: int
    reasons: tuple[str, ...]


def decide(evidence: Evidence, settings: Endpointing) -> Decision:
    """The silence after which the turn has ended, as far as the evidence goes."""
    reasons: list[str] = []
    weights = _UNREAD if evidence.words is None else _READ
    log_odds = weights.bias
    if evidence.audio is not None:
        log_odds += weights.sound * _log_odds(min(max(evidence.audio, 1 - _SUREST), _SUREST))
        reasons.append("sound")
    if evidence.words is not None:
        log_odds += weights.words * math.log(max(evidence.words, _UNLIKELIEST) / _EVEN_WORDS)
        reasons.append("words")
    clue = None
    if evidence.text is not None:
        clue = ending(evidence.text, evidence.asked)
        log_odds += weights.clue * LAST_WORDS[clue]
    if evidence.turn_ms is not None and clue in _WHOLE:
        length = _LENGTH * math.log(max(evidence.turn_ms, _SHORT_TURN_MS) / _SHORT_TURN_MS)
        log_odds += length
        if length >= _TELLING_LENGTH:
            reasons.append("length")
    if clue is not None:
        reasons.append(clue)
    probability = 1 / (1 + math.exp(-log_odds))
    return Decision(probability, _wait_ms(log_odds, clue, evidence, settings), tuple(reasons))


def _wait_ms(log_odds: float, clue: Clue | None, evidence: Evidence, settings: Endpointing) -> int:
    pause_ms = _mean_pause_ms(evidence.own_pauses_ms, settings.mean_pause_ms)
    wait_ms = round(pause_ms * (_log_odds(settings.confidence) - log_odds))
    likely = log_odds >= 0 or clue in _SHORT
    longest = settings.likely_wait_ms if likely else settings.unsure_wait_ms
    return max(settings.clear_wait_ms, min(wait_ms, longest))


def _mean_pause_ms(own_ms: tuple[int, ...], usual_ms: float) -> float:
    """A speaker who thinks long is given longer; one who has hardly paused counts as usual."""
    return (_PRIOR_PAUSES * usual_ms + sum(own_ms)) / (_PRIOR_PAUSES + len(own_ms))


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))
