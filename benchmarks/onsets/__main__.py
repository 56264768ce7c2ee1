"""Is the beginning of speech ever lost?

    python -m benchmarks.onsets [-n 1000] [--seed N]... [--corpus DIR]... [--jobs N] [--out FILE]

Each scene (``benchmarks.onsets.scenes``) goes through a real session in virtual time, in 20 ms
pieces, with the real VAD; the other engines are scripted. The recogniser is an oracle: it finds
words in an utterance exactly if some of the speech is in it, so it rejects an utterance of noise
like a real one. A scene is *covered* if a committed range includes its first speech sample.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.program import arguments, finish, load
from benchmarks.onsets.play import Outcome, Played, play_seed
from benchmarks.onsets.scenes import OnsetScene
from pipeline.audio import LISTEN_RATE
from pipeline.settings import Endpointing

# --- figures -----------------------------------------------------------------------------------


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
        name: _share([result for _, scene, result in played if belongs(scene)])
        for name, belongs in groups.items()
    }


def _share(results: Sequence[Outcome]) -> dict[str, Any]:
    covered = sum(result.covered for result in results)
    early = [result.early_ms for result in results if result.covered and result.early_ms]
    late = [result.late_ms for result in results if result.late_ms is not None]
    # Without scenes that a turn of noise or echo opened first and may cover by chance.
    alone = [result.covered for result in results if not result.began_before]
    return {
        "n": len(results),
        "covered": covered,
        "share": round(covered / len(results), 4) if results else None,
        "interval": wilson(covered, len(results)),
        "starts_before_onset_ms": _percentiles(early),
        "speech_started_after_onset_ms": _percentiles(late),
        "turns_begun_before_anybody_spoke": sum(result.began_before for result in results),
        "no_turn_before": {"n": len(alone), "covered": sum(alone)},
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {f"p{q}": round(float(np.percentile(values, q))) for q in (1, 5, 50, 95, 99)}


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


def main() -> None:
    parser = arguments(__doc__, "benchmarks.onsets")
    parser.add_argument("-n", type=int, default=1000, help="scenes of each seed")
    parser.add_argument("--seed", type=int, action="append", help="may be repeated")
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        default=[],
        help="a part of the conversation corpus, whose real speakers join in; may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    before = load()
    seeds: list[int] = given.seed or [1]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=spawn) as pool:
        playing = [pool.submit(play_seed, seed, given.n, given.corpus) for seed in seeds]
        played = [each for part in playing for each in part.result()]
    report = {
        "seeds": seeds,
        "corpora": [corpus.name for corpus in given.corpus],
        "endpointing": Endpointing().model_dump(),
        "summary": summary(played),
        "missed": [_described(*each) for each in played if not each[2].covered],
    }
    finish(report, given.out, before, details="missed")


if __name__ == "__main__":
    main()
