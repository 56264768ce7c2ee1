"""Is anything lost when somebody begins to speak? And how often does nobody, and a turn begins?

    python -m benchmarks.onsets [-n 1000] [--seed N]... [--corpus DIR]... [--jobs N] [--out FILE]

Each scene (``benchmarks.onsets.scenes``) goes through a real session in virtual time, in 20 ms
pieces, with the real VAD; the other engines are scripted. The recogniser is an oracle: it finds
words in an utterance exactly if some of the speech is in it, so an utterance of noise is rejected
as with a real one. A scene is *covered* if a committed range holds its first speech sample.

Then Moonshine reads the committed range of scenes that are clean or at 20 dB, and beside it the
same range from 200 ms before the true onset: lost or invented first words show in the difference.
Last, sounds without speech (``benchmarks.onsets.false_starts``) go through the listener, and the
turns that open are counted. The first seed is played twice: as it is, and with a fixed padding and
the VAD's plain scores, as it was before.

Ends with 1 if fewer than 999 in 1,000 onsets are covered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.onsets.false_starts import false_starts
from benchmarks.onsets.play import SAMPLES_PER_MS, Outcome, fixed_padding_only, outcome, play
from benchmarks.onsets.scenes import OnsetScene, SceneMaker
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Stt
from pipeline.engines.stt import moonshine
from pipeline.engines.vad.silero import SileroOptions
from pipeline.engines.vad.silero import build as build_vad
from pipeline.settings import Endpointing
from tests.support.recordings import Uncancelled
from tests.support.virtual_time import run_virtual

BAR = 0.999
IDEAL_PADDING_MS = 200


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
    return words(utterance.finish(Uncancelled()).text)


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
        "0 dB babble": lambda scene: scene.snr_db == 0 and scene.noise == "babble",
        "0 dB fan": lambda scene: scene.snr_db == 0 and scene.noise == "fan",
        "0 dB pink": lambda scene: scene.snr_db == 0 and scene.noise == "pink",
        "0 dB voices": lambda scene: scene.snr_db == 0 and scene.noise == "voices",
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
    alone = [result.covered for _, result in played if not result.began_before]
    return {
        "n": len(played),
        "covered": covered,
        "share": round(covered / len(played), 4) if played else None,
        "interval": wilson(covered, len(played)),
        "starts_before_onset_ms": _percentiles(early),
        "speech_started_after_onset_ms": _percentiles(late),
        "turns_begun_before_anybody_spoke": before,
        # Without scenes that a turn of noise or echo had opened, and may cover by chance.
        "no_turn_before": {
            "n": len(alone),
            "covered": sum(alone),
            "interval": wilson(sum(alone), len(alone)),
        },
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


def _described(seed: int, scene: OnsetScene, result: Outcome) -> dict[str, Any]:
    told = {name: getattr(scene, name) for name in OnsetScene.__slots__ if name != "pcm"}
    return {"seed": seed} | told | asdict(result)


def not_later(before: Sequence[Played], after: Sequence[Played]) -> dict[str, int]:
    """``SpeechStarted`` of the same scenes: whether any comes later than it did."""
    pairs = [
        (old.late_ms, new.late_ms, new.began_before)
        for (_, old), (_, new) in zip(before, after, strict=True)
        if old.late_ms is not None
    ]
    later = [each for each in pairs if each[1] is None or each[1] > each[0]]
    return {
        "n": len(pairs),
        "earlier": sum(new is not None and new < old for old, new, _ in pairs),
        "later": len(later),
        "later_but_a_turn_was_open_already": sum(began > 0 for *_, began in later),
    }


# --- the work ----------------------------------------------------------------------------------


State = tuple[str, list[Played], Callable[[], AbstractContextManager[None]]]


@dataclass
class Part:
    """All that one seed yields. ``before``: empty if only the present state was played."""

    seed: int
    after: list[Played]
    before: list[Played]
    first_words: dict[str, dict[str, FirstWords]]


def play_seed(seed: int, count: int, corpora: Sequence[Path], compare: bool) -> Part:
    """Play all scenes of a seed; with ``compare`` also as it was before, and read first words."""
    weights = _weights()
    vad = build_vad(SileroOptions(), weights("silero-vad"))
    maker = SceneMaker(seed, weights("piper-joe"), corpora)
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    readings = {
        state: {"clean": FirstWords(), "20 dB": FirstWords()} for state in ("before", "after")
    }
    part = Part(seed, [], [], readings if compare else {})
    states: list[State] = [("after", part.after, nullcontext)]
    if compare:
        states.append(("before", part.before, fixed_padding_only))
    for scene in maker.scenes(count):
        reads = compare and scene.words and scene.condition in readings["after"]
        for state, played, context in states:
            with context():
                result = outcome(scene, run_virtual(play(scene, vad, Endpointing())))
            played.append((replace(scene, pcm=scene.pcm[:0]), result))
            if reads and scene.echo_db is None and result.committed:
                readings[state][scene.condition].take(stt, scene, result.committed)
    return part


def count_false_starts(seed: int) -> dict[str, Any]:
    """Before and after, on the same sounds."""
    vad = build_vad(SileroOptions(), _weights()("silero-vad"))
    after = asyncio.run(false_starts(vad, Endpointing(), seed))
    with fixed_padding_only():
        before = asyncio.run(false_starts(vad, Endpointing(), seed))
    return {"before": before, "after": after}


# --- the script --------------------------------------------------------------------------------


def main() -> None:
    options = _arguments()
    load_before, began = os.getloadavg()[0], time.monotonic()
    seeds: list[int] = options.seed or [1]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        playing = [
            pool.submit(play_seed, seed, options.n, options.corpus, number == 0)
            for number, seed in enumerate(seeds)
        ]
        noise = pool.submit(count_false_starts, seeds[0]) if not options.no_noise else None
        parts = [each.result() for each in playing]
        found_noise = noise.result() if noise else None
    after = [each for part in parts for each in part.after]
    first = parts[0]
    report: dict[str, Any] = {
        "n": len(after),
        "seeds": seeds,
        "corpora": [corpus.name for corpus in options.corpus],
        "endpointing": Endpointing().model_dump(),
        "covered_by_seed": {
            part.seed: sum(result.covered for _, result in part.after) for part in parts
        },
        "summary": summary(after),
        "first_seed_before": summary(first.before),
        "first_seed_after": summary(first.after),
        "speech_started_before_and_after": not_later(first.before, first.after),
        "first_words_of_first_seed": {
            state: {name: asdict(found) for name, found in conditions.items()}
            for state, conditions in first.first_words.items()
        },
        "false_starts": found_noise,
        "missed": [
            _described(part.seed, *each)
            for part in parts
            for each in part.after
            if not each[1].covered
        ],
        "seconds": round(time.monotonic() - began, 1),
        "load_average": [load_before, os.getloadavg()[0]],
        "cores": os.cpu_count(),
    }
    print(json.dumps({**report, "missed": len(report["missed"])}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["summary"]["all"]["share"] >= BAR else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.onsets")
    parser.add_argument("-n", type=int, default=1000, help="scenes of each seed")
    parser.add_argument(
        "--seed",
        type=int,
        action="append",
        help="may be repeated; the first is also played as it was before",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        default=[],
        help="a part of the conversation corpus, whose real speakers join in; may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--no-noise", action="store_true", help="leave false starts out")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _weights() -> Callable[[str], Path]:
    """The machine's own weights."""
    cache = WeightsCache(load_settings(None).settings.paths.cache(os.environ))
    path: Callable[[str], Path] = cache.path
    return path


if __name__ == "__main__":
    main()
