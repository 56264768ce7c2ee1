"""The echo canceller alone: false triggers per hour, and interruptions noticed in time.

    python -m benchmarks.echo.canceller [--hours 4] [--seed 1000] [--corpus DIR/frozen] [--jobs 2]
        [--out FILE]

Scenes are simulated (``scenes``, ``harness.rooms``), not recorded from a real loudspeaker. Tune on
seeds below 100; report on seeds of 1000 and above, where the robot says other sentences. The first
3 s of each scene have a cold filter and are counted separately.

``residual`` is the canceller's output, ``clean`` the same sound without any echo. Both are judged
by the same rule (``pipeline.echo.gate``, in two windows in a row).
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.echo.scenes import (
    EchoScene,
    EchoSceneMaker,
    InterruptionClip,
    RobotVoices,
    clips_of_people,
    say_all,
)
from benchmarks.harness.acoustics import Signal, to_pcm
from benchmarks.harness.program import arguments, finish, load, weights
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.gate import near_end
from pipeline.echo.kalman import BLOCK
from pipeline.engines.onnx import model_file, open_session

ALONE_S = 120.0
WINDOW = 512
WINDOWS = 2
"""Windows in a row that make an interruption."""
COLD_S = 3.0
REFRACTORY_S = 2.0
WARM_UP_S = 12.0
BETWEEN_S = 4.0
LEAD_S = 0.1
"""How long the branch hears only the scene before the clip begins."""
LATEST_S = 1.0
HEARD = int(1.7 * LISTEN_RATE)
"""Samples at the start of a clip that count."""
SER_DB = (6, 0, -6)
ERLE_SPANS_S = ((0.3, 1.3), (1.3, 3), (3, 5), (5, 10), (10, inf))


class PlainSilero:
    """Silero without the second check for noise; copies share the network."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._samples = np.zeros((1, 64 + WINDOW), np.float32)
        self._state = np.zeros((2, 1, 128), np.float32)

    def score(self, pcm: Pcm) -> float:
        self._samples[0, :64] = self._samples[0, -64:]
        self._samples[0, 64:] = to_float(pcm)
        rate = np.array(LISTEN_RATE, np.int64)
        inputs = {"input": self._samples, "state": self._state, "sr": rate}
        probability, self._state = self._session.run(None, inputs)
        return float(probability[0, 0])

    def __deepcopy__(self, memo: dict[int, Any]) -> PlainSilero:
        other = PlainSilero(self._session)
        other._samples, other._state = self._samples.copy(), self._state.copy()
        return other


class Ear:
    """Canceller, two VADs and the detector, block by block. ``residual`` is the canceller's output,
    ``triggers`` the end sample of each window that counts as an interruption."""

    def __init__(self) -> None:
        self.canceller = EchoCanceller()
        self.residual: list[Pcm] = []
        self.triggers: list[int] = []
        self._vads = PlainSilero(_silero()), PlainSilero(_silero())
        self._in_a_row = 0
        self._pcm = [EMPTY, EMPTY]
        self._end = 0

    def hear(self, microphone: Pcm, reference: Pcm) -> None:
        """Process the next block."""
        output = self.canceller.process(microphone, reference)
        self.residual.append(output.residual)
        self._pcm[0] = np.concatenate((self._pcm[0], output.residual))
        self._pcm[1] = np.concatenate((self._pcm[1], output.post_filtered))
        if len(self._pcm[0]) < WINDOW:
            return
        scores = [vad.score(pcm[:WINDOW]) for vad, pcm in zip(self._vads, self._pcm, strict=True)]
        self._pcm = [pcm[WINDOW:] for pcm in self._pcm]
        self._end += WINDOW
        holds = near_end(scores[0], scores[1], output.llr)
        self._in_a_row = self._in_a_row + 1 if holds else 0
        if self._in_a_row >= WINDOWS:
            self.triggers.append(self._end)

    def branch(self) -> Ear:
        """A copy that continues from here; its samples count from here."""
        self.residual, self.triggers = [], []
        other = copy.deepcopy(self)
        other._end = -len(self._pcm[0])
        return other


def blocks(*streams: Pcm) -> Iterator[tuple[Pcm, ...]]:
    for start in range(0, min(len(stream) for stream in streams) - BLOCK + 1, BLOCK):
        yield tuple(stream[start : start + BLOCK] for stream in streams)


@cache
def _silero() -> Any:
    return open_session(model_file(weights("silero-vad"), "silero_vad.onnx"))


@cache
def _maker(voices: Path) -> EchoSceneMaker:
    return EchoSceneMaker(RobotVoices.load(voices))


# --- the robot alone ---------------------------------------------------------------------------


@dataclass
class RobotAlone:
    """One scene with the robot alone."""

    seed: int
    voice: str
    robot_s: float
    fired_s: list[float]
    """Triggers from 3 s on, at least 2 s apart."""
    cold: int
    """The number before that."""
    erle_db: dict[str, float]


def play_alone(voices: Path, seed: int, seconds: float) -> RobotAlone:
    """Play a scene from cold."""
    scene, ear = _maker(voices).make(seed, seconds), Ear()
    microphone = scene.microphone
    for pair in blocks(microphone, scene.reference):
        ear.hear(*pair)
    starts = triggers(ear.triggers)
    rest = to_float(np.concatenate(ear.residual)) - scene.noise[: len(microphone)]
    late = [at for at in starts if at >= COLD_S]
    cold = len(starts) - len(late)
    return RobotAlone(seed, scene.voice, scene.robot_s, late, cold, _erle(scene.echo, rest))


def triggers(ends: Sequence[int]) -> list[float]:
    """The times of the triggers in seconds, at least 2 s apart."""
    times_s: list[float] = []
    for end in ends:
        at = end / LISTEN_RATE
        if not times_s or at - times_s[-1] >= REFRACTORY_S:
            times_s.append(at)
    return times_s


def _erle(echo: Signal, rest: Signal) -> dict[str, float]:
    spans = {}
    for begin_s, end_s in ERLE_SPANS_S:
        part = slice(int(begin_s * LISTEN_RATE), int(min(end_s, 1e5) * LISTEN_RATE))
        powers = [float(np.square(sound[part], dtype=np.float64).sum()) for sound in (echo, rest)]
        if powers[0] > 0:
            erle_db = 10 * float(np.log10(powers[0] / (powers[1] + 1e-12)))
            spans[f"{begin_s:g}-{end_s:g} s"] = round(erle_db, 2)
    return spans


# --- interruptions ----------------------------------------------------------------------------


@dataclass
class LevelResult:
    """One interruption at one level. ``late_s``, by kind of sound: from the onset to the end of the
    window that triggers; ``None``: none does within a second."""

    seed: int
    clip: str
    ser_db: int
    late_s: dict[str, float | None]
    fired_before: bool


def play_interrupted(
    voices: Path, seed: int, seconds: float, ser_db: int, corpora: tuple[Path, ...]
) -> list[LevelResult]:
    """Interrupt every 4 s from 12 s on, each time from the state that the echo alone has left."""
    scene, clips = _maker(voices).make(seed, seconds, ser_db), clips_of_people(corpora)
    rng = np.random.default_rng([scene.seed, 78])
    ears = {"residual": Ear(), "clean": Ear()}
    microphone, floor = scene.microphone, to_pcm(scene.noise)
    silence = np.zeros(BLOCK, np.int16)
    results: list[LevelResult] = []
    next_at = WARM_UP_S * LISTEN_RATE
    for number, (mic, reference, quiet) in enumerate(blocks(microphone, scene.reference, floor)):
        at = number * BLOCK
        if at >= next_at:
            clip = clips[int(rng.integers(len(clips)))]
            lead = int((LEAD_S + rng.uniform(0, 0.032)) * LISTEN_RATE)
            if at + lead + len(clip.signal) + 8000 > len(microphone):
                break
            next_at = at + BETWEEN_S * LISTEN_RATE
            results.append(_interrupt(scene, ser_db, clip, at, lead, ears))
        ears["residual"].hear(mic, reference)
        ears["clean"].hear(quiet, silence)
    return results


def _interrupt(
    scene: EchoScene, ser_db: int, clip: InterruptionClip, at: int, lead: int, ears: dict[str, Ear]
) -> LevelResult:
    """The branch begins at sample ``at``, and the clip ``lead`` later."""
    speech = np.concatenate((np.zeros(lead, np.float32), scene.interruption(clip, ser_db)))
    length = min(HEARD, len(speech), len(scene.echo) - at)
    span = slice(at, at + length)
    clean = scene.noise[span] + speech[:length]
    sounds = {"residual": to_pcm(scene.echo[span] + clean), "clean": to_pcm(clean)}
    references = {"residual": scene.reference[span], "clean": np.zeros(length, np.int16)}
    begin = lead + clip.onset + int(np.abs(scene.near).argmax())
    late_s, before = {}, False
    for name, sound in sounds.items():
        ear = ears[name].branch()
        for pair in blocks(sound, references[name]):
            ear.hear(*pair)
        late_s[name] = _late_s(ear.triggers, begin)
        before |= name == "residual" and any(end <= begin for end in ear.triggers)
    return LevelResult(scene.seed, clip.name, ser_db, late_s, before)


def _late_s(ends: Sequence[int], begin: int) -> float | None:
    first = next((end for end in ends if end > begin), None)
    late_s = None if first is None else (first - begin) / LISTEN_RATE
    return late_s if late_s is not None and late_s <= LATEST_S else None


# --- figures -----------------------------------------------------------------------------------


def of_alone(scenes: Sequence[RobotAlone]) -> dict[str, Any]:
    """``false_per_hour_at_most``: upper bound with 95 % confidence, one-sided."""
    hours = sum(each.robot_s for each in scenes) / 3600
    false = sum(len(each.fired_s) for each in scenes)
    spans = {span: [each.erle_db.get(span) for each in scenes] for span in scenes[0].erle_db}
    return {
        "scenes": len(scenes),
        "robot_hours": round(hours, 3),
        "false_triggers": false,
        "false_per_hour": round(false / hours, 2),
        "false_per_hour_at_most": round(_poisson_most(false) / hours, 2),
        "triggers_in_the_first_3_s": sum(each.cold for each in scenes),
        "erle_db_median": {
            span: round(float(np.median([db for db in values if db is not None])), 1)
            for span, values in spans.items()
        },
        "fired": [vars(each) for each in scenes if each.fired_s],
    }


def of_interruptions(results: Sequence[LevelResult]) -> dict[str, Any]:
    report: dict[str, Any] = {"triggers_before": sum(each.fired_before for each in results)}
    for ser_db in SER_DB:
        some = [each for each in results if each.ser_db == ser_db and not each.fired_before]
        report[f"{ser_db:+d} dB"] = {"n": len(some)} | {
            name: _latencies([each.late_s[name] for each in some]) for name in ("residual", "clean")
        }
    return report


def _latencies(late_s: Sequence[float | None]) -> dict[str, Any]:
    # A miss counts as later than every hit.
    ms = sorted(inf if each is None else 1000 * each for each in late_s)
    median = ms[len(ms) // 2] if ms else inf
    within = {f"within_{limit}_ms": limit for limit in (250, 400, 1000)}
    shares = {
        name: _share(sum(at <= limit for at in ms), len(ms)) for name, limit in within.items()
    }
    return {**shares, "median_ms": round(median) if median < inf else None}


def _share(hits: int, count: int) -> float | None:
    return round(hits / count, 4) if count else None


def _poisson_most(count: int) -> float:
    """Upper end of the exact 95 % one-sided interval of a Poisson count."""
    low: float = count
    high: float = count + 10 * (count + 1) ** 0.5
    for _ in range(60):
        middle = (low + high) / 2
        terms = np.cumsum([0.0, *np.log(middle / np.arange(1, count + 1))])
        below = float(np.exp(terms - middle).sum())
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return high


# --- the script --------------------------------------------------------------------------------


def measure(args: argparse.Namespace) -> dict[str, Any]:
    voices = Path(tempfile.gettempdir()) / "reachy-voice-echo-voices.npz"
    say_all(weights("piper-joe"), voices)
    corpora = tuple(args.corpus)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
        count = max(1, round(args.hours * 3600 / ALONE_S))
        alone = [
            pool.submit(play_alone, voices, seed, min(ALONE_S, args.hours * 3600))
            for seed in range(args.seed, args.seed + count)
        ]
        interruptions = [
            pool.submit(play_interrupted, voices, seed, args.seconds, ser_db, corpora)
            for seed in range(args.seed, args.seed + (args.interrupted if corpora else 0))
            for ser_db in SER_DB
        ]
        return {
            "first_seed": args.seed,
            "corpora": [corpus.name for corpus in corpora],
            "echo_only": of_alone([each.result() for each in alone]),
            "interruptions": of_interruptions([s for each in interruptions for s in each.result()]),
        }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.echo.canceller")
    parser.add_argument("--hours", type=float, default=0.5, help="of the robot speaking alone")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first scene of each kind")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="who interrupts")
    parser.add_argument("--interrupted", type=int, default=10, help="scenes with interruptions")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each such scene")
    args = parser.parse_args()
    before = load()
    finish(measure(args), args.out, before)


if __name__ == "__main__":
    main()
