"""The features of each pause in a scene, for baselines.

A pause is what the session takes for one: silence according to the VAD and the real ``TurnTaker``,
in a turn that has not ended yet. It is matched with the label that it overlaps most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.settings.model import Settings
from benchmarks.harness.ears import Ears
from benchmarks.harness.scene import RecordedTurn, ScenePause
from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm
from pipeline.engines.vad.silero import WINDOW_SAMPLES
from pipeline.hearing.turn_taker import TurnPause, TurnResume, TurnStart, TurnTaker
from pipeline.settings import Endpointing

AFTER_S = 4.0
"""Seconds played after the last speech sample, enough for the longest wait and an answer."""
_TAIL_S = 1.0
"""How much of the room tone at a scene's end is played back and forth to fill ``AFTER_S``."""
_NEVER_MS = 3_600_000

Label = Literal["end", "inner", "sentence", "unlabelled"]


@dataclass(frozen=True, slots=True)
class VadPause:
    """A pause as the VAD sees it."""

    turn_start: int
    start: int
    """Index after the last speech sample."""
    noticed: int
    """Index after its first silent frames."""
    resumed: int | None
    """First sample of the window in which speech resumes; ``None``: it does not."""

    def lasts(self, silence_ms: int) -> bool:
        """Whether this much silence is heard before speech resumes."""
        return self.resumed is None or self.resumed - self.start >= samples(silence_ms)


@dataclass(frozen=True, slots=True)
class Site:
    """One pause with its features. Times in ms; silence counts from the VAD's end of speech."""

    scene: str
    label: Label
    pause_ms: float | None
    """Labelled length, ``None`` at an end."""
    heard_end: int
    """The VAD's end of speech, a sample index of the scene."""
    lag_ms: float | None
    """From the labelled end of speech to ``heard_end``."""
    resumed_ms: float | None
    """Silence until the VAD hears speech resume."""
    audio: dict[int, float]
    """The turn detector's probability, by the ms of silence that it heard."""
    text: str
    """The transcript at the first silent frames."""


def samples(ms: float) -> int:
    return round(ms * LISTEN_RATE / 1000)


def milliseconds(count: int) -> float:
    return count * 1000 / LISTEN_RATE


def group_of(scene: RecordedTurn) -> str:
    """Key of the same words in the same voice; scenes that share it are not independent."""
    return f"{scene.source}/{scene.speaker}/{scene.text}"


def with_tail(scene: RecordedTurn) -> Pcm:
    """The scene with ``AFTER_S`` of its own room tone after the speech; int16 mono, 16 kHz."""
    missing = scene.end + round(AFTER_S * LISTEN_RATE) - len(scene.pcm)
    tail = scene.pcm[max(scene.end, len(scene.pcm) - round(_TAIL_S * LISTEN_RATE)) :]
    if missing <= 0:
        return scene.pcm
    there_and_back = np.concatenate((tail[::-1], tail))
    return np.concatenate((scene.pcm, np.resize(there_and_back, missing)))


def frames(pcm: Pcm) -> Iterator[AudioFrame]:
    for at in range(0, len(pcm) - WINDOW_SAMPLES + 1, WINDOW_SAMPLES):
        yield AudioFrame(pcm[at : at + WINDOW_SAMPLES], LISTEN_RATE, at)


def silences(
    pcm: Pcm, scores: NDArray[np.float64], settings: Endpointing, until: int
) -> list[VadPause]:
    """All pauses in order, for a turn that does not end before sample ``until``.

    A turn that the VAD opens after ``until`` is noise; its pauses are left out.
    """
    taker = TurnTaker(settings)
    pauses: list[VadPause] = []
    turn_start, pause = 0, None
    for frame, score in zip(frames(pcm), scores, strict=True):
        for signal in (*taker.feed(float(score), frame), *taker.judge(_NEVER_MS)):
            match signal:
                case TurnStart(start):
                    if start >= until:
                        return pauses
                    turn_start = max(0, start - samples(settings.prefix_padding_ms))
                case TurnPause(speech_end, noticed):
                    pause = VadPause(turn_start, speech_end, noticed, None)
                case TurnResume(start) if pause:
                    pauses.append(VadPause(turn_start, pause.start, pause.noticed, start))
                    pause = None
                    if start >= until:
                        # The VAD heard a sound in the room after the speech; the end stands.
                        last = pauses.pop()
                        pauses.append(VadPause(turn_start, last.start, last.noticed, None))
                        return pauses
    return [*pauses, pause] if pause else pauses


def label_of(scene: RecordedTurn, silence: VadPause) -> ScenePause | Literal["end"] | None:
    """The labelled pause, or the end, that a silence overlaps most; ``None``: neither."""
    if silence.resumed is None:
        return "end"
    overlaps = [
        (min(silence.resumed, pause.end) - max(silence.start, pause.start), pause)
        for pause in scene.pauses
    ]
    most, pause = max(overlaps, key=lambda each: each[0], default=(0, None))
    return pause if most > 0 else None


def sites(
    scene: RecordedTurn, ears: Ears, settings: Settings, silences_ms: Sequence[int]
) -> Iterator[Site]:
    """Every pause of ``scene``, in order."""
    pcm = with_tail(scene)
    scores = ears.speech_scores(pcm)
    for silence in silences(pcm, scores, settings.endpointing, scene.end):
        label, pause_ms, spoken_to = _label(scene, silence)
        resumed = silence.resumed
        yield Site(
            scene.id,
            label,
            pause_ms,
            silence.start,
            None if spoken_to is None else milliseconds(silence.start - spoken_to),
            None if resumed is None else milliseconds(resumed - silence.start),
            _audio(pcm, silence, ears, silences_ms),
            ears.transcribe(pcm[silence.turn_start : silence.noticed]),
        )


def _label(scene: RecordedTurn, silence: VadPause) -> tuple[Label, float | None, int | None]:
    """The label of a silence, the labelled length in ms, and the labelled end of speech."""
    match = label_of(scene, silence)
    if match == "end":
        return "end", None, scene.end
    if match is None:
        return "unlabelled", None, None
    label: Label = "sentence" if match.kind == "sentence" else "inner"
    return label, match.seconds * 1000, match.start


def _audio(pcm: Pcm, silence: VadPause, ears: Ears, silences_ms: Sequence[int]) -> dict[int, float]:
    """The turn detector's probability after each silence that the pause lasts for."""
    return {
        ms: ears.turn_over(pcm[silence.turn_start : silence.start + samples(ms)])
        for ms in silences_ms
        if silence.lasts(ms)
    }
