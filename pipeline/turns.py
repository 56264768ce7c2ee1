"""Turn taking: speech scores in, turn signals out. Pure; time is the sample index.

A turn opens when speech has lasted ``onset_ms``. The first silent frames make it *paused*: it may
be over, and the session starts a reply behind a shut gate. How long the pause must last before
the turn has *ended* depends on how likely it is over (``judge``); it is never a fixed hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.audio import LISTEN_RATE, AudioFrame

Policy = Literal["adaptive", "strict"]
Eagerness = Literal["low", "medium", "high"]

_PACE: dict[Eagerness, tuple[float, float, float, int]] = {
    "low": (2.0, 2.0, 4.0, 8000),
    "medium": (1.0, 1.0, 1.0, 4000),
    "high": (0.75, 0.6, 0.5, 2000),
}
"""Per eagerness: factors on the waits for clear, likely and unsure ends, and the longest wait in ms
(the API's limits for semantic turn detection)."""


class Endpointing(BaseModel):
    """When a turn begins, pauses and ends: a clear end waits little, a hesitation long.

    The waits are a compromise measured offline on 143 ends and 175 inner pauses of one speaker:
    clear ends answered after about 250 ms, about one inner pause in seven taken for an end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Policy = "adaptive"
    speech_threshold: float = Field(0.5, gt=0, lt=1)
    silence_threshold: float = Field(0.35, gt=0, lt=1)
    onset_ms: int = Field(64, ge=0, le=1000)
    prefix_padding_ms: int = Field(300, ge=0, le=5000)
    pause_ms: int = Field(32, ge=1, le=1000)
    clear_wait_ms: int = Field(224, ge=0, le=10_000)
    likely_wait_ms: int = Field(512, ge=0, le=10_000)
    unsure_wait_ms: int = Field(992, ge=0, le=10_000)
    clear_probability: float = Field(0.9, ge=0, le=1)
    likely_probability: float = Field(0.5, ge=0, le=1)
    max_utterance_s: float = Field(120.0, gt=0, le=3600)
    stall_ms: int = Field(300, ge=50, le=10_000)

    def paced(self, eagerness: Eagerness) -> Self:
        """The same with shorter or longer waits."""
        *factors, longest = _PACE[eagerness]
        waits = ("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms")
        changes = {
            name: min(longest, round(getattr(self, name) * factor))
            for name, factor in zip(waits, factors, strict=True)
        }
        return self.model_copy(update=changes)

    def wait_ms(self, probability: float) -> int:
        """Silence that ends a turn which is over with this probability."""
        if probability >= self.clear_probability:
            return self.clear_wait_ms
        if probability >= self.likely_probability:
            return self.likely_wait_ms
        return self.unsure_wait_ms


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began at sample ``start``."""

    start: int


@dataclass(frozen=True, slots=True)
class Paused:
    """Speech ended at sample ``speech_end``, for now; silence was heard up to ``end``."""

    speech_end: int
    end: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pause was none: speech goes on at sample ``start``."""

    start: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over; its last speech sample is before ``speech_end``."""

    speech_end: int


Signal = Started | Paused | Resumed | Ended


class _State(Enum):
    QUIET = auto()
    SPEAKING = auto()
    PAUSED = auto()


class TurnTaker:
    """Follows one stream of scored frames."""

    def __init__(self, settings: Endpointing, rate: int = LISTEN_RATE) -> None:
        self._settings = settings
        self._rate = rate
        self._state = _State.QUIET
        self._onset: int | None = None
        self._start = 0
        self._speech_end = 0
        self._heard_end = 0
        self._wait_ms = settings.unsure_wait_ms

    def feed(self, score: float, frame: AudioFrame) -> list[Signal]:
        """Take the next frame and its probability of speech."""
        self._heard_end = frame.end
        match self._state:
            case _State.QUIET:
                return self._quiet(score, frame)
            case _State.SPEAKING:
                return self._speaking(score, frame)
            case _State.PAUSED:
                return self._paused(score, frame)

    def judge(self, probability: float) -> list[Signal]:
        """Say how likely the reported pause is the end. Ignored when the pause is over."""
        if self._state is not _State.PAUSED:
            return []
        self._wait_ms = self._settings.wait_ms(probability)
        return self._end_if_due()

    def configure(self, settings: Endpointing) -> None:
        """Go on by other settings; an open turn stays open."""
        self._settings = settings

    def reset(self) -> None:
        """Forget an open turn, as after a manual commit."""
        self._state = _State.QUIET
        self._onset = None

    def _quiet(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score < self._settings.speech_threshold:
            self._onset = None
            return []
        if self._onset is None:
            self._onset = frame.index
        if frame.end - self._onset < self._samples(self._settings.onset_ms):
            return []
        self._state = _State.SPEAKING
        self._start, self._onset = self._onset, None
        self._speech_end = frame.end
        return [Started(self._start)]

    def _speaking(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.silence_threshold:
            self._speech_end = frame.end
        if frame.end - self._start >= self._settings.max_utterance_s * self._rate:
            self._state = _State.QUIET
            return [Paused(self._speech_end, frame.end), Ended(self._speech_end)]
        if frame.end - self._speech_end < self._samples(self._settings.pause_ms):
            return []
        self._state = _State.PAUSED
        self._wait_ms = self._settings.unsure_wait_ms
        return [Paused(self._speech_end, frame.end)]

    def _paused(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.speech_threshold:
            self._state = _State.SPEAKING
            self._speech_end = frame.end
            return [Resumed(frame.index)]
        return self._end_if_due()

    def _end_if_due(self) -> list[Signal]:
        if self._heard_end - self._speech_end < self._samples(self._wait_ms):
            return []
        self._state = _State.QUIET
        return [Ended(self._speech_end)]

    def _samples(self, ms: int) -> int:
        return ms * self._rate // 1000
