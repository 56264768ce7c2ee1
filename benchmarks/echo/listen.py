"""Plays echo scenes to the echo path with its VADs and a rule, and counts what comes of it."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.echo.scenes import Clip, EchoScene
from benchmarks.harness.acoustics import Signal, to_pcm
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.detector import near_end
from pipeline.echo.kalman import BLOCK
from pipeline.engines.onnx import model_file, open_session

WINDOW = 512
COLD_S = 3.0
REFRACTORY_S = 2.0
WARM_UP_S = 12.0
_BETWEEN_S = 4.0
_LEAD_S = 0.1
"""Of the scene alone before somebody speaks into it."""
IN_TIME_S = 0.25
LATEST_S = 1.0
_FLOOR_SAMPLES = 2 * LISTEN_RATE
_HEARD = int(1.7 * LISTEN_RATE)
"""Samples of a clip of which only the beginning counts."""
SER_DB = (6, 0, -6)
ERLE_SPANS_S = ((0.3, 1.3), (1.3, 3), (3, 5), (5, 10), (10, 1e9))
WINDOWS = 2
"""Of 32 ms, in a row: that is an interruption."""


class PlainSilero:
    """Silero without the second hearing for noise; copies share the network."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._samples = np.zeros((1, 64 + WINDOW), np.float32)
        self._state = np.zeros((2, 1, 128), np.float32)
        self._rate = np.array(LISTEN_RATE, np.int64)

    @classmethod
    def load(cls, weights: Path) -> PlainSilero:
        return cls(open_session(model_file(weights, "silero_vad.onnx")))

    def score(self, pcm: Pcm) -> float:
        self._samples[0, :64] = self._samples[0, -64:]
        self._samples[0, 64:] = to_float(pcm)
        given = {"input": self._samples, "state": self._state, "sr": self._rate}
        probability, self._state = self._session.run(None, given)
        return float(probability[0, 0])

    def new(self) -> PlainSilero:
        return PlainSilero(self._session)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlainSilero:
        other = PlainSilero(self._session)
        other._samples, other._state = self._samples.copy(), self._state.copy()
        return other


class Window(NamedTuple):
    """``end``: sample behind it. ``fired``: whether somebody speaks with it."""

    end: int
    residual_score: float
    post_filtered_score: float
    llr: float
    fired: bool


class Ear:
    """Canceller, two VADs, the detector; block by block. ``deepcopy`` gives another that goes on
    from the same moment."""

    def __init__(self, vad: PlainSilero) -> None:
        self.canceller = EchoCanceller()
        self._vads = vad.new(), vad.new()
        self._in_a_row = 0
        self._held = [EMPTY, EMPTY]
        self._end = 0
        self.residual: list[Pcm] = []
        self.keeps = True

    def hear(self, microphone: Pcm, reference: Pcm) -> Window | None:
        """The next block; the window of the VADs that it completes, if it does."""
        found = self.canceller.process(microphone, reference)
        if self.keeps:
            self.residual.append(found.residual)
        self._held[0] = np.concatenate((self._held[0], found.residual))
        self._held[1] = np.concatenate((self._held[1], found.post_filtered))
        if len(self._held[0]) < WINDOW:
            return None
        scores = [vad.score(pcm[:WINDOW]) for vad, pcm in zip(self._vads, self._held, strict=True)]
        self._held = [pcm[WINDOW:] for pcm in self._held]
        self._end += WINDOW
        holds = near_end(scores[0], scores[1], found.llr)
        self._in_a_row = self._in_a_row + 1 if holds else 0
        fired = self._in_a_row >= WINDOWS
        return Window(self._end, scores[0], scores[1], found.llr, fired)

    def branch(self) -> Ear:
        """Another one, from here on."""
        kept, self.residual = self.residual, []
        other = copy.deepcopy(self)
        self.residual = kept
        return other


def blocks(*streams: Pcm) -> Iterator[tuple[Pcm, ...]]:
    for start in range(0, min(len(stream) for stream in streams) - BLOCK + 1, BLOCK):
        yield tuple(stream[start : start + BLOCK] for stream in streams)


# --- the robot alone ---------------------------------------------------------------------------


@dataclass
class Alone:
    """One scene without anybody else. Times in seconds."""

    seed: int
    voice: str
    ppm: float
    rt60_s: float
    loudspeaker: str
    robot_s: float
    fired_s: list[float]
    """Starts of triggers, 2 s apart at least, from 3 s on."""
    cold: int
    """Triggers before that."""
    erle_db: dict[str, float]
    ppm_errors: dict[str, float]
    events_s: list[float]
    slips: int
    windows: list[Window] = field(default_factory=list)


def alone(scene: EchoScene, vad: PlainSilero, keep_windows: bool = False) -> Alone:
    """Play a scene from cold."""
    ear = Ear(vad)
    microphone = scene.microphone
    windows, errors = [], {}
    for number, (heard, played) in enumerate(blocks(microphone, scene.reference)):
        if (window := ear.hear(heard, played)) is not None:
            windows.append(window)
        if number + 1 in (300, 1000, len(microphone) // BLOCK):
            errors[f"{(number + 1) / 100:g}"] = round(ear.canceller.ppm - scene.ppm, 2)
    starts = triggers([window.end for window in windows if window.fired])
    left = to_float(np.concatenate(ear.residual)) - scene.noise[: len(microphone)]
    return Alone(
        scene.seed, scene.voice, scene.ppm, scene.room.rt60_s, scene.loudspeaker, scene.robot_s,
        [at for at in starts if at >= COLD_S], sum(at < COLD_S for at in starts),
        _erle(scene.echo, left), errors, [at / LISTEN_RATE for at in scene.events],
        ear.canceller.slips, windows if keep_windows else [],
    )  # fmt: skip


def triggers(ends: Sequence[int]) -> list[float]:
    """Seconds, at least 2 s apart."""
    found: list[float] = []
    for end in ends:
        at = end / LISTEN_RATE
        if not found or at - found[-1] >= REFRACTORY_S:
            found.append(at)
    return found


def _erle(echo: Signal, left: Signal) -> dict[str, float]:
    found = {}
    for begin_s, end_s in ERLE_SPANS_S:
        part = slice(int(begin_s * LISTEN_RATE), int(min(end_s, 1e5) * LISTEN_RATE))
        powers = [float(np.square(sound[part], dtype=np.float64).sum()) for sound in (echo, left)]
        if powers[0] > 0:
            found[f"{begin_s:g}-{end_s:g}" if end_s < 1e9 else f">{begin_s:g}"] = round(
                10 * float(np.log10(powers[0] / (powers[1] + 1e-12))), 2
            )
    return found


# --- somebody interrupts -----------------------------------------------------------------------


@dataclass
class Spoken:
    """One interruption at one level. ``late_s``: from onset to the end of the window that fires,
    None if none does within a second; ``clean_late_s``: the same words without any echo, by the
    same rule; ``vad_late_s``: without any echo, by the VAD alone (over .5 in two windows)."""

    seed: int
    clip: str
    ser_db: int
    late_s: float | None
    clean_late_s: float | None
    vad_late_s: float | None
    fired_before: bool
    errors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Wrong words and words: of the residual and of the clean sound."""


Read = Callable[[str, Pcm], tuple[int, int]]
"""Wrong words and words of a text and its sound."""


def interrupted(
    scene: EchoScene,
    ser_db: int,
    clips: Sequence[Clip],
    vad: PlainSilero,
    read: Read | None = None,
) -> list[Spoken]:
    """A clip each 4 s from 12 s on, each from the state that the echo alone left."""
    rng = np.random.default_rng([scene.seed, 78])
    ear = Ear(vad)
    ear.keeps = False
    quiet = Ear(vad)
    quiet.keeps = False
    microphone, silence = scene.microphone, np.zeros(BLOCK, np.int16)
    floor = to_pcm(scene.noise)
    found: list[Spoken] = []
    next_at = WARM_UP_S * LISTEN_RATE
    for number, (heard, played, still) in enumerate(blocks(microphone, scene.reference, floor)):
        at = number * BLOCK
        if at >= next_at:
            clip = clips[int(rng.integers(len(clips)))]
            lead = int((_LEAD_S + rng.uniform(0, 0.032)) * LISTEN_RATE)
            if at + lead + len(clip.signal) + 8000 > len(microphone):
                break
            next_at = at + _BETWEEN_S * LISTEN_RATE
            found.append(_spoken(scene, ser_db, clip, (at, lead), (ear, quiet), read))
        ear.hear(heard, played)
        quiet.hear(still, silence)
    return found


def _spoken(
    scene: EchoScene,
    ser_db: int,
    clip: Clip,
    when: tuple[int, int],
    ears: tuple[Ear, Ear],
    read: Read | None,
) -> Spoken:
    """``when``: sample at which the branch begins, and how much later the clip does."""
    at, lead = when
    reads = read is not None and clip.text_by == "source"
    said = np.concatenate((np.zeros(lead, np.float32), scene.heard(clip, ser_db)))
    length = min(len(said) if reads else _HEARD, len(said), len(scene.echo) - at)
    span = slice(at, at + length)
    sounds = {
        "residual": to_pcm(scene.echo[span] + scene.noise[span] + said[:length]),
        "clean": to_pcm(scene.noise[span] + said[:length]),
    }
    begin = at + lead + clip.onset + _arrival(scene.near)
    windows: dict[str, list[Window]] = {}
    errors = {}
    for (name, sound), ear in zip(sounds.items(), ears, strict=True):
        branch = ear.branch()
        branch.keeps = True
        played = scene.reference[span] if name == "residual" else np.zeros_like(sound)
        heard = (branch.hear(*pair) for pair in blocks(sound, played))
        windows[name] = [window for window in heard if window is not None]
        if read is not None and reads:
            errors[name] = read(clip.text, np.concatenate(branch.residual))
    fired = {name: [each.end for each in found if each.fired] for name, found in windows.items()}
    return Spoken(
        scene.seed, clip.name, ser_db, _late_s(fired["residual"], begin),
        _late_s(fired["clean"], begin), _late_s(_by_vad(windows["clean"]), begin),
        any(end <= begin for end in fired["residual"]), errors,
    )  # fmt: skip


def clean_late_s(vad: PlainSilero, floor: Signal, said: Signal, onset: int) -> float | None:
    """What ``Spoken.clean_late_s`` is, of one clip after 2 s of ``floor``, which goes on."""
    ear = Ear(vad)
    ear.keeps = False
    begin = _FLOOR_SAMPLES + onset
    sound = floor[: begin + int((LATEST_S + _LEAD_S) * LISTEN_RATE)].copy()
    heard_of_it = said[: len(sound) - _FLOOR_SAMPLES]
    sound[_FLOOR_SAMPLES : _FLOOR_SAMPLES + len(heard_of_it)] += heard_of_it
    windows = (ear.hear(heard, np.zeros_like(heard)) for (heard,) in blocks(to_pcm(sound)))
    fired = [window.end for window in windows if window is not None and window.fired]
    return _late_s(fired, begin)


def _by_vad(windows: Sequence[Window]) -> list[int]:
    """Ends of windows that are the second in a row that the VAD takes for speech."""
    return [
        second.end
        for first, second in itertools.pairwise(windows)
        if min(first.residual_score, second.residual_score) > 0.5
    ]


def _late_s(ends: Sequence[int], begin: int) -> float | None:
    first = next((end for end in ends if end > begin), None)
    late_s = None if first is None else (first - begin) / LISTEN_RATE
    return late_s if late_s is not None and late_s <= LATEST_S else None


def _arrival(near: Signal) -> int:
    """Samples until the direct sound arrives."""
    return int(np.abs(near).argmax())


# --- cost --------------------------------------------------------------------------------------


def cost_ms(scene: EchoScene, vad: PlainSilero, seconds: float = 20.0) -> dict[str, float]:
    """CPU of one thread per 10 ms: medians over blocks, and means; after 5 s."""
    canceller = EchoCanceller()
    microphone = scene.microphone[: int(seconds * LISTEN_RATE)]
    spent: list[float] = []
    for heard, played in blocks(microphone, scene.reference):
        begin = time.thread_time()
        canceller.process(heard, played)
        spent.append(time.thread_time() - begin)
    idle: list[float] = []
    silence = np.zeros(BLOCK, np.int16)
    for (heard,) in blocks(microphone):
        begin = time.thread_time()
        canceller.process(heard, silence)
        idle.append(time.thread_time() - begin)
    scored: list[float] = []
    for start in range(0, len(microphone) - WINDOW, WINDOW):
        begin = time.thread_time()
        vad.score(microphone[start : start + WINDOW])
        scored.append(time.thread_time() - begin)
    return {
        "playing_median": _ms(np.median(spent[500:])),
        "playing_mean": _ms(np.mean(spent[500:])),
        "idle_median": _ms(np.median(idle[100:])),
        "one_silero_median": _ms(np.median(scored)) * BLOCK / WINDOW,
    }


def _ms(seconds: np.floating[Any] | float) -> float:
    return round(float(seconds) * 1000, 4)
