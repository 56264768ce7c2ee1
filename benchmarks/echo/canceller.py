"""Echo path: self-interruptions an hour, interruptions found in time, words kept, cost.

    python -m benchmarks.echo.canceller --hours 4 --seed 1000 --corpus corpus/frozen
        --jobs 2 --out F

Scenes are simulated (``scenes``, ``harness.rooms``): no loudspeaker of this world was recorded.
Tune on seeds below 100; report on seeds of 1000 and more, where the robot says other sentences.
The first 3 s of each scene are those of a cold filter and are counted apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks import wer
from benchmarks.echo.listen import (
    IN_TIME_S,
    SER_DB,
    Alone,
    PlainSilero,
    Read,
    Spoken,
    alone,
    cost_ms,
    interrupted,
)
from benchmarks.echo.scenes import Clip, EchoSceneMaker, Event, clips_of_people, seeds
from benchmarks.echo.voices import RobotVoices, say_all
from pipeline.audio import Pcm
from pipeline.engines.stt import moonshine
from tests.support.recordings import Uncancelled

T = TypeVar("T")

ALONE_S = 120.0
INTERRUPTED_S = 60.0
EVENT_S = 60.0
EVENTS: tuple[Event, ...] = ("gap", "skip", "jump", "wander")
_AFTER_EVENT_S = 2.0


# --- work of one process -----------------------------------------------------------------------


@cache
def _maker(voices: Path) -> EchoSceneMaker:
    return EchoSceneMaker(RobotVoices.load(voices))


@cache
def _vad() -> PlainSilero:
    return PlainSilero.load(_weights()("silero-vad"))


@cache
def _clips(corpora: tuple[Path, ...]) -> list[Clip]:
    return clips_of_people(corpora)


@cache
def _reader() -> Read:
    stt = moonshine.build(moonshine.MoonshineOptions(), _weights()("moonshine-tiny-en"))
    never = Uncancelled()

    def read(text: str, pcm: Pcm) -> tuple[int, int]:
        utterance = stt.open("en", False)
        utterance.feed(pcm)
        found = wer.word_errors(text, utterance.finish(never).text)
        return found.errors, found.words

    return read


def play_alone(voices: Path, seed: int, seconds: float, event: Event) -> Alone:
    return alone(_maker(voices).make(seed, seconds, event), _vad())


def play_interrupted(
    voices: Path, seed: int, seconds: float, ser_db: int, corpora: tuple[Path, ...], words: bool
) -> list[Spoken]:
    scene = _maker(voices).make(seed, seconds, ser_db=ser_db)
    return interrupted(scene, ser_db, _clips(corpora), _vad(), _reader() if words else None)


def measure_cost(voices: Path, seed: int) -> dict[str, float]:
    return cost_ms(_maker(voices).make(seed, 20.0), _vad())


def _weights() -> Callable[[str], Path]:
    held = WeightsCache(load_settings(None).settings.paths.cache(os.environ))
    path: Callable[[str], Path] = held.path
    return path


# --- figures -----------------------------------------------------------------------------------


def of_alone(found: Sequence[Alone]) -> dict[str, Any]:
    """``false_per_hour_at_most``: with 95 % confidence, one-sided."""
    hours = sum(each.robot_s for each in found) / 3600
    false = sum(len(each.fired_s) for each in found)
    spans = list(dict.fromkeys(span for each in found for span in each.erle_db))
    return {
        "scenes": len(found),
        "robot_hours": round(hours, 3),
        "false_triggers": false,
        "false_per_hour": round(false / hours, 2) if hours else None,
        "false_per_hour_at_most": round(_poisson_most(false) / hours, 2) if hours else None,
        "triggers_in_the_first_3_s": sum(each.cold for each in found),
        "slips": sum(each.slips for each in found),
        "erle_db_median": {
            span: round(float(np.median([each.erle_db[span] for each in found])), 1)
            for span in spans
            if all(span in each.erle_db for each in found)
        },
        "ppm_error_median": {
            at: round(float(np.median([abs(each.ppm_errors[at]) for each in found])), 2)
            for at in (found[0].ppm_errors if found else ())
        },
        "fired": [
            {"seed": each.seed, "at_s": each.fired_s, "voice": each.voice, "ppm": each.ppm}
            for each in found
            if each.fired_s
        ],
    }  # fmt: skip


def of_events(event: Event, found: Sequence[Alone]) -> dict[str, Any]:
    """``near_events``: false triggers within 2 s of one."""
    near = sum(
        any(0 <= fired - at < _AFTER_EVENT_S for at in each.events_s)
        for each in found
        for fired in each.fired_s
    )
    number = sum(len(each.events_s) for each in found)
    return {"event": event, "events": number, "near_events": near, **of_alone(found)}


def of_interruptions(found: Sequence[Spoken]) -> dict[str, Any]:
    report: dict[str, Any] = {"triggers_before": sum(each.fired_before for each in found)}
    for ser_db in SER_DB:
        some = [each for each in found if each.ser_db == ser_db and not each.fired_before]
        report[f"{ser_db:+d} dB"] = {
            "n": len(some),
            "residual": _latencies([each.late_s for each in some]),
            "clean": _latencies([each.clean_late_s for each in some]),
            "clean_vad_alone": _latencies([each.vad_late_s for each in some]),
            **_words(some),
        }
    return report


def _latencies(late_s: Sequence[float | None]) -> dict[str, Any]:
    known = [each for each in late_s if each is not None]
    # A miss is later than all that was found.
    sorted_ms = sorted(1000 * each if each is not None else inf for each in late_s)
    median = sorted_ms[len(sorted_ms) // 2] if sorted_ms else inf
    return {
        "within_250_ms": _share(sum(each <= IN_TIME_S for each in known), len(late_s)),
        "within_400_ms": _share(sum(each <= 0.4 for each in known), len(late_s)),
        "within_1_s": _share(len(known), len(late_s)),
        "median_ms": round(median) if median < inf else None,
    }


def _words(found: Iterable[Spoken]) -> dict[str, Any]:
    read = [each.errors for each in found if each.errors]
    if not read:
        return {}
    return {
        f"wer_{name}": _share(*(sum(each[name][at] for each in read) for at in (0, 1)))
        for name in ("residual", "clean")
    } | {"words": sum(each["clean"][1] for each in read), "utterances": len(read)}


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


def main() -> None:
    options = _arguments()
    began, load_before = time.monotonic(), os.getloadavg()[0]
    voices = options.voices or Path(tempfile.gettempdir()) / "reachy-voice-echo-voices.npz"
    say_all(_weights()("piper-joe"), voices)
    corpora = tuple(options.corpus)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        count = round(options.hours * 3600 / ALONE_S)
        alone_ = [
            pool.submit(play_alone, voices, seed, ALONE_S, "none")
            for seed in seeds(options.seed, count)
        ]
        spoken = [
            pool.submit(
                play_interrupted, voices, seed, options.seconds, ser_db, corpora, options.words
            )
            for seed in seeds(options.seed, options.interrupted if corpora else 0)
            for ser_db in SER_DB
        ]
        events = {
            event: [
                pool.submit(play_alone, voices, seed, EVENT_S, event)
                for seed in seeds(options.seed, options.events)
            ]
            for event in EVENTS
        }
        cost = pool.submit(measure_cost, voices, options.seed) if options.cost else None
        report: dict[str, Any] = {
            "simulated": True,
            "first_seed": options.seed,
            "interrupted_scene_s": options.seconds,
            "corpora": [corpus.name for corpus in corpora],
            "echo_only": of_alone(_results(alone_, options.progress)),
            "interruptions": of_interruptions(
                [each for part in _results(spoken, options.progress) for each in part]
            ),
            "events": [
                of_events(event, _results(found, options.progress))
                for event, found in events.items()
                if found
            ],
            "cost_ms_per_10_ms": cost.result() if cost else None,
        }
    report |= {
        "seconds": round(time.monotonic() - began, 1),
        "load_average": [load_before, os.getloadavg()[0]],
        "cores": os.cpu_count(),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        detail = {"scenes": [asdict(each.result()) for each in alone_]} if options.detail else {}
        options.out.write_text(json.dumps(report | detail, indent=1) + "\n")


def _results(futures: Sequence[Future[T]], progress: bool) -> list[T]:
    found = []
    for number, future in enumerate(futures, start=1):
        found.append(future.result())
        if progress and number % 10 == 0:
            print(f"{number} of {len(futures)}", flush=True)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.echo.canceller"
    )
    parser.add_argument("--hours", type=float, default=0.5, help="of scenes with the robot alone")
    parser.add_argument("--seed", type=int, default=0, help="of the first scene of each kind")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="who interrupts")
    parser.add_argument("--interrupted", type=int, default=10, help="scenes with interruptions")
    parser.add_argument("--seconds", type=float, default=INTERRUPTED_S, help="of each of those")
    parser.add_argument("--events", type=int, default=0, help="scenes of each kind of event")
    parser.add_argument("--words", action="store_true", help="read the interruptions (Moonshine)")
    parser.add_argument("--cost", action="store_true", help="measure CPU; wants an idle machine")
    parser.add_argument("--voices", type=Path, help="file in which the robot's speech is kept")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--detail", action="store_true", help="keep each scene's figures")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
