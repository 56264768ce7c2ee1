"""Tells whose voice it is by comparing embeddings. Pure.

The numbers are for the engine ``resemblyzer``, from ``benchmarks.speakers`` and
``benchmarks.speakers.household``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Embedding
from pipeline.errors import ReachyVoiceError

LEAST_S = 0.6
"""Less speech is not enough to tell whose it is."""
MOST_S = 4.0
"""How much of a turn's end counts. In homes with a television, which may be what the turn begins
with, 91 % of people's turns are known by their last 4 s, and 88 % by their last 8 s."""
ENROLMENT_S = 20.0
"""How much speech a person's voice is learned from."""
PIECE_S = 2.0
"""It is learned in pieces of this length, to check that all are one person's."""
LIKENESS = ((1.0, 0.69), (2.0, 0.73), (4.0, 0.77))
"""Seconds of speech, and the lowest cosine at which they count as a person's."""
FAR = 0.65
"""A voice with a lower cosine is surely a stranger's, and is remembered."""
NEARER = 0.04
"""By how much the cosine with the person must exceed that with anybody else."""
AS_LOUD = 0.04
"""By how much less a turn must be like a person if it is as loud as people's newest turns, while
strangers' are softer, as a television's often are. It is then not said whose it is."""
SOFTER_DB, FARTHER_DB = 4.0, 6.0
"""How much softer than people's turns it may be, and how much softer strangers' must be."""
LEVELS = 8
"""How many of the newest turns count for that."""
SAME_STRANGER = 0.8
"""Voices with a higher cosine count as one stranger's."""
MOST_STRANGERS = 24
"""Beyond this, the oldest are forgotten."""
TWO_VOICES = 0.76
"""If the two most different halves of an enrolment have a lower cosine, two people spoke. Of 160
mixtures of two people, 81 % are below it; of 224 recordings of one person, none is below 0.78."""

_FRAME = LISTEN_RATE // 50
_NEAR_DB = 10.0
"""Sound this far below the loud parts is a pause, or somebody farther away. In 43 homes of
``benchmarks.speakers.household`` with a television at -12 dB, before ``AS_LOUD``, 502 of 590 turns
were answered, and 12 of the television's; with 8 dB 495 of 585, and 15."""
_AROUND = 5
"""How many frames on either side of a loud one are kept, as words fade."""


class EnrolmentError(ReachyVoiceError):
    """A person's voice cannot be learned from this recording."""

    exit_code = 2


@dataclass(frozen=True, slots=True, eq=False)
class Person:
    name: str
    voice: Embedding


def speech_in(pcm: Pcm) -> Pcm:
    """``pcm`` (16 kHz) without its pauses and without sound far softer than the rest."""
    db = _frames_db(pcm)
    if not len(db):
        return pcm[:0]
    loud = db > np.percentile(db, 95) - _NEAR_DB
    kept = np.convolve(loud, np.ones(2 * _AROUND + 1), "same")[: len(loud)] > 0
    return pcm[: len(db) * _FRAME][np.repeat(kept, _FRAME)]


def _frames_db(pcm: Pcm) -> NDArray[np.floating]:
    frames = pcm[: len(pcm) // _FRAME * _FRAME].reshape(-1, _FRAME).astype(np.float32)
    return np.asarray(10 * np.log10((frames**2).mean(axis=1) + 1.0))


class Strangers:
    """Tells whose voice it is. Remembers strangers' voices in memory for the length of the session,
    or until the people change, so that a voice from a television is matched to itself rather than
    to a person."""

    def __init__(self) -> None:
        self._people: Sequence[Person] = ()
        self._sums: list[Embedding] = []
        """For each stranger, the sum of the embeddings."""
        self._known_db: deque[float] = deque(maxlen=LEVELS)
        self._strange_db: deque[float] = deque(maxlen=LEVELS)
        """How loud people's turns were, and strangers'."""
        self._turn: object = None
        self._sure: tuple[Embedding | None, float] | None = None
        """What is remembered of that turn when the next begins, if it is sure whose it is: a
        stranger's voice, or ``None`` for a person's, and how loud it is."""

    def name(
        self, people: Sequence[Person], embedding: Embedding, speech: Pcm, turn: object
    ) -> str | None:
        """The name of the person whose voice it is; empty: a stranger's; ``None``: that of a person
        who cannot be told from another. ``speech``: what ``embedding`` was made of, 16 kHz.
        ``turn``: identifies the turn; a turn's own voice is not compared with itself."""
        if people is not self._people:  # a stranger may have been enrolled
            self._people, self._sums, self._sure = people, [], None
        if turn is not self._turn:
            self._remember()
        self._turn, self._sure = turn, None
        seconds, cosines = zip(*LIKENESS, strict=True)
        least = np.interp(len(speech) / LISTEN_RATE, seconds, cosines)
        speech_db = float(np.percentile(_frames_db(speech), 80))
        likenesses = sorted((float(each.voice @ embedding), each.name) for each in people)
        likeness, name = likenesses[-1]
        strangest = max((float(unit(each) @ embedding) for each in self._sums), default=-1.0)
        if likeness < max(least - AS_LOUD, strangest + NEARER):
            if likeness < FAR:
                self._sure = embedding, speech_db
            return ""
        if likeness < least:
            return None if self._as_loud_as_people(speech_db) else ""
        self._sure = None, speech_db
        is_clear = all(other <= likeness - NEARER for other, _ in likenesses[:-1])
        return name if is_clear else None

    def _as_loud_as_people(self, speech_db: float) -> bool:
        """As loud as people's newest turns, while strangers' were softer."""
        if not self._known_db:
            return False
        people_db = median(self._known_db)
        strange_db = median(self._strange_db or [people_db - FARTHER_DB])
        return speech_db >= people_db - SOFTER_DB and strange_db <= people_db - FARTHER_DB

    def _remember(self) -> None:
        if self._sure is None:
            return
        voice, speech_db = self._sure
        (self._known_db if voice is None else self._strange_db).append(speech_db)
        if voice is None:
            return
        for number, each in enumerate(self._sums):
            if unit(each) @ voice >= SAME_STRANGER:
                self._sums[number] = each + voice
                return
        self._sums = [*self._sums, voice][-MOST_STRANGERS:]


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """One or more ``vectors``, scaled to length 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)


def mean_of(embeddings: Sequence[Embedding]) -> Embedding:
    """The mean direction, of length 1."""
    return unit(np.mean(np.stack(embeddings), axis=0, dtype=np.float32))


def learned(pieces: Sequence[Embedding]) -> Embedding:
    """The voice in all ``pieces`` of a recording. Raises ``EnrolmentError`` if they hold two."""
    whole = np.stack(pieces)
    odd = whole[int(np.argmin(whole @ mean_of(pieces)))]
    other = whole[int(np.argmin(whole @ odd))]
    nearer = whole @ odd > whole @ other
    halves = [list(whole[nearer]), list(whole[~nearer])]
    if min(map(len, halves)) > 1 and mean_of(halves[0]) @ mean_of(halves[1]) < TWO_VOICES:
        raise EnrolmentError(
            "This recording has two voices in it",
            why="its parts sound like different people",
            fix="Record again with one person alone, and no television or radio beside them",
        )
    return mean_of(pieces)
