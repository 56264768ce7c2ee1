"""Is anything lost when somebody begins to speak? And how often does nobody, and a turn begins?

    python -m benchmarks.onsets [-n 1000] [--seed N] [--corpus DIR]... [--before FILE] [--out FILE]

Each scene (``benchmarks.onset_scenes``) goes through a real session in virtual time, in 20 ms
pieces, with the real VAD; the other engines are scripted. The recogniser is an oracle: it finds
words in an utterance exactly if some of the speech is in it, so an utterance of noise is rejected
as with a real one. A scene is *covered* if a committed range holds its first speech sample.

Then Moonshine reads the committed range of scenes that are clean or at 20 dB, and beside it the
same range from 200 ms before the true onset: lost or invented first words show in the difference.
Last, hours of sound without speech go through the listener, and the turns that open are counted.

Ends with 1 if fewer than 999 in 1,000 onsets are covered. ``--before``: an earlier ``--out`` whose
summary is printed beside this one.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onset_play import SAMPLES_PER_MS, InlineVadStream, Outcome, outcome, play
from benchmarks.onset_scenes import NOISES, OnsetScene, SceneMaker, noise_of
from benchmarks.turns.acoustics import Signal, gained, room_tone, to_pcm
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.endpointing import Endpointing
from pipeline.engines import Stt
from pipeline.listening import Listener
from pipeline.turns import Started
from pipeline.vad.silero import SileroOptions, SileroVad
from pipeline.vad.silero import build as build_vad

sys.path.append(str(Path(__file__).parents[1] / "tests"))

BAR = 0.999
IDEAL_PADDING_MS = 200
FALSE_START_MINUTES = 20
NOISE_LEVELS_DBFS = (-50, -38, -26)


# --- first words -------------------------------------------------------------------------------


@dataclass
class FirstWords:
    """How often the first word is read, over the committed range and over an ideal one."""

    n: int = 0
    committed: int = 0
    ideal: int = 0
    lost: list[str] = field(default_factory=list)
    """What was read instead, where the ideal range had it."""

    def take(self, stt: Stt, scene: OnsetScene, committed: tuple[int, int]) -> None:
        said = words(scene.words)[0]
        start, end = committed
        ideal_start = max(0, scene.onset - IDEAL_PADDING_MS * SAMPLES_PER_MS)
        read = _read(stt, scene.pcm[start:end])
        ideal = _read(stt, scene.pcm[ideal_start:end])
        self.n += 1
        self.committed += read[:1] == [said]
        self.ideal += ideal[:1] == [said]
        if ideal[:1] == [said] and read[:1] != [said]:
            early_ms = (scene.onset - start) // SAMPLES_PER_MS
            self.lost.append(f"{scene.number}: {scene.words} -> {' '.join(read)} ({early_ms} ms)")


def _read(stt: Stt, pcm: Pcm) -> list[str]:
    if not len(pcm):
        return []
    utterance = stt.open("en", False)
    utterance.feed(pcm)
    return words(utterance.finish(importlib.import_module("recordings").Uncancelled()).text)


# --- nobody speaks -----------------------------------------------------------------------------


async def false_starts(vad: SileroVad, endpointing: Endpointing, seed: int) -> dict[str, Any]:
    """Turns that open in an hour of each kind of sound."""
    rng = np.random.default_rng(seed)
    count = FALSE_START_MINUTES * 60 * LISTEN_RATE

    def noisy(kind: Any, level_dbfs: int) -> Signal:
        return gained(noise_of(kind, count, rng), level_dbfs)

    sounds: dict[str, Callable[[], Signal]] = {"room tone": lambda: room_tone(count, rng)}
    for kind, level_dbfs in itertools.product(NOISES, NOISE_LEVELS_DBFS):
        sounds[f"{kind} {level_dbfs} dBFS"] = partial(noisy, kind, level_dbfs)
    found = {}
    for name, make in sounds.items():
        starts = await _turns_in(to_pcm(make()), vad, endpointing)
        found[name] = round(starts * 60 / FALSE_START_MINUTES, 1)
    return {"minutes_each": FALSE_START_MINUTES, "per_hour": found}


async def _turns_in(pcm: Pcm, vad: SileroVad, endpointing: Endpointing) -> int:
    listener = Listener(InlineVadStream(vad), vad.window_samples, 8.0, endpointing)
    starts = 0
    async for signals in listener.hear(pcm):
        starts += sum(isinstance(signal, Started) for signal in signals)
    return starts


# --- the summary -------------------------------------------------------------------------------

Played = tuple[OnsetScene, Outcome]


def summary(played: Sequence[Played]) -> dict[str, Any]:
    """Shares with their 95 % intervals, all and by condition."""
    groups: dict[str, Callable[[OnsetScene], bool]] = {
        "all": lambda scene: True,
        "real": lambda scene: scene.real,
        "synthetic": lambda scene: not scene.real,
        "clean": lambda scene: scene.snr_db is None,
        "20 dB": lambda scene: scene.snr_db == 20,
        "10 dB": lambda scene: scene.snr_db == 10,
        "0 dB": lambda scene: scene.snr_db == 0,
        "soft": lambda scene: scene.soft,
        "in a room": lambda scene: scene.rt60_s is not None,
        "short first word": lambda scene: scene.pause_ms is not None,
        "while an answer is playing": lambda scene: scene.playing,
        "with echo": lambda scene: scene.echo_db is not None,
        "session just begun": lambda scene: scene.onset < LISTEN_RATE // 5,
    }
    return {
        name: _share([each for each in played if belongs(each[0])])
        for name, belongs in groups.items()
    }


def _share(played: Sequence[Played]) -> dict[str, Any]:
    covered = sum(result.covered for _, result in played)
    early = [result.early_ms for _, result in played if result.covered and result.early_ms]
    late = [result.late_ms for _, result in played if result.late_ms is not None]
    before = sum(result.began_before for _, result in played)
    return {
        "n": len(played),
        "covered": covered,
        "share": round(covered / len(played), 4) if played else None,
        "interval": wilson(covered, len(played)),
        "starts_before_onset_ms": _percentiles(early),
        "speech_started_after_onset_ms": _percentiles(late),
        "turns_begun_before_anybody_spoke": before,
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    points = (1, 5, 50, 95, 99)
    found = np.percentile(values, points)
    return {f"p{point}": round(float(value)) for point, value in zip(points, found, strict=True)}


def wilson(hits: int, count: int) -> list[float]:
    """95 % interval of a share."""
    if not count:
        return [0.0, 1.0]
    z, p = 1.96, hits / count
    middle = p + z * z / (2 * count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return [round((middle - half) / whole, 4), round((middle + half) / whole, 4)]


def _described(scene: OnsetScene, result: Outcome) -> dict[str, Any]:
    told = {name: value for name, value in _fields(scene).items() if name != "pcm"}
    return told | asdict(result)


def _fields(scene: OnsetScene) -> dict[str, Any]:
    return {name: getattr(scene, name) for name in OnsetScene.__slots__}


# --- the script --------------------------------------------------------------------------------


def main() -> None:
    options = _arguments()
    load_before, began = os.getloadavg()[0], time.monotonic()
    weights = _weights()
    vad = build_vad(SileroOptions(), weights("silero-vad"))
    endpointing = Endpointing()
    run_virtual = importlib.import_module("virtual_time").run_virtual
    maker = SceneMaker(options.seed, weights("piper-joe"), options.corpus)
    moonshine = importlib.import_module("pipeline.stt.moonshine")
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    played: list[Played] = []
    first_words = {"clean": FirstWords(), "20 dB": FirstWords()}
    for scene in maker.scenes(options.n):
        result = outcome(scene, run_virtual(play(scene, vad, endpointing)))
        played.append((scene, result))
        reads = scene.words and scene.condition in first_words and scene.echo_db is None
        reads = reads and not options.no_words
        if reads and result.committed:
            first_words[scene.condition].take(stt, scene, result.committed)
    report: dict[str, Any] = {
        "n": len(played),
        "seed": options.seed,
        "endpointing": endpointing.model_dump(),
        "summary": summary(played),
        "first_words": {name: asdict(found) for name, found in first_words.items()},
    }
    if not options.no_noise:
        report["false_starts"] = asyncio.run(false_starts(vad, endpointing, options.seed))
    report["missed"] = [_described(*each) for each in played if not each[1].covered]
    report["seconds"] = round(time.monotonic() - began, 1)
    report["load_average"] = [load_before, os.getloadavg()[0]]
    report["cores"] = os.cpu_count()
    if options.before:
        before = json.loads(options.before.read_text())
        report["before"] = {key: before.get(key) for key in ("summary", "first_words")}
        report["before"]["false_starts"] = before.get("false_starts")
    print(json.dumps({**report, "missed": len(report["missed"])}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["summary"]["all"]["share"] >= BAR else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.onsets")
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        default=[],
        help="a part of the conversation corpus, whose real speakers join in; may be repeated",
    )
    parser.add_argument("--before", type=Path, help="report of an earlier state, to compare with")
    parser.add_argument("--no-words", action="store_true", help="leave Moonshine out")
    parser.add_argument("--no-noise", action="store_true", help="leave false starts out")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _weights() -> Callable[[str], Path]:
    """The machine's own weights."""
    load_settings = importlib.import_module("app.settings_load").load_settings
    cache = importlib.import_module("app.weights").WeightsCache(
        load_settings(None).settings.paths.cache(os.environ)
    )
    path: Callable[[str], Path] = cache.path
    return path


if __name__ == "__main__":
    main()
