"""When is a turn over? Decides from the evidence how long a pause must last.

The odds that the speaker is done depend on the turn detector, the words so far, the length of the
turn and the speaker's earlier pauses. If pauses inside a turn last ``mean_pause_ms`` on average
(exponentially distributed), every further ``mean_pause_ms`` of silence makes the odds e times
better. So the silence after which we are confident enough is

    wait = mean_pause_ms * (log_odds(confidence) - log_odds(probability))

between the shortest and the longest wait: short for a clear end, long for a hesitation, and never a
fixed time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.settings import Endpointing, Lexicon
from pipeline.turn_taking import tuning
from pipeline.turn_taking.ending_words import LAST_WORDS, Clue, ending

_SHORT: frozenset[Clue] = frozenset({"short answer", "one word"})
"""Unless plainly open, these never wait longer than a likely end: the models can hardly judge so
few words."""
_WHOLE: frozenset[Clue] = frozenset({"statement", "question"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about a pause. It grows while the pause lasts; ``None`` is what is not known
    yet."""

    audio: float | None = None
    """The turn detector's probability."""
    text: str | None = None
    """The words before the pause."""
    words: float | None = None
    """The language model's log odds that the words are complete."""
    question: str = ""
    """What the assistant said last."""
    own_pauses_ms: tuple[int, ...] = ()
    """This speaker's pauses within turns, oldest first."""
    turn_ms: int | None = None
    """From the beginning of the turn to the pause."""
    mistake: bool = False
    """The turn should not have interrupted the answer, and the user waits for the answer to go
    on."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How likely the turn is over, the silence that ends it, and the evidence that counted."""

    probability: float
    wait_ms: int
    reasons: tuple[str, ...]


def decide(evidence: Evidence, settings: Endpointing, lexicon: Lexicon) -> Decision:
    """How long a silence ends the turn, on the evidence so far."""
    reasons: list[str] = []
    weights = tuning.UNREAD if evidence.words is None else tuning.READ
    log_odds = weights.bias
    if evidence.audio is not None:
        log_odds += weights.sound * _log_odds(
            min(max(evidence.audio, 1 - tuning.SUREST), tuning.SUREST)
        )
        reasons.append("sound")
    if evidence.words is not None:
        log_odds += weights.words * evidence.words
        reasons.append("words")
    clue = None
    if evidence.text is not None:
        clue = ending(evidence.text, lexicon, evidence.question, evidence.words)
        log_odds += weights.clue * LAST_WORDS[clue]
    if evidence.turn_ms is not None and clue in _WHOLE:
        length = tuning.LENGTH * math.log(
            max(evidence.turn_ms, tuning.SHORT_TURN_MS) / tuning.SHORT_TURN_MS
        )
        log_odds += length
        if length >= tuning.TELLING_LENGTH:
            reasons.append("length")
    if clue is not None:
        reasons.append(clue)
    probability = 1 / (1 + math.exp(-log_odds))
    wait_ms = _wait_ms(log_odds, clue, evidence, settings)
    if evidence.mistake:
        reasons.append("false interruption")
        wait_ms = settings.clear_wait_ms
    return Decision(probability, wait_ms, tuple(reasons))


def _wait_ms(log_odds: float, clue: Clue | None, evidence: Evidence, settings: Endpointing) -> int:
    pause_ms = _mean_pause_ms(evidence.own_pauses_ms, settings.mean_pause_ms)
    wait_ms = round(pause_ms * (_log_odds(settings.confidence) - log_odds))
    plainly_open = evidence.words is not None and evidence.words < tuning.PLAINLY_OPEN
    short = clue == "one-word answer" or (clue in _SHORT and not plainly_open)
    likely = log_odds >= 0 or short
    longest = settings.likely_wait_ms if likely else settings.unsure_wait_ms
    return max(settings.clear_wait_ms, min(wait_ms, longest))


def _mean_pause_ms(own_ms: tuple[int, ...], usual_ms: float) -> float:
    """Give speakers with long pauses more time. The fewer pauses are known, the less they count."""
    return (tuning.PRIOR_PAUSES * usual_ms + sum(own_ms)) / (tuning.PRIOR_PAUSES + len(own_ms))


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))
