"""A real room: what noise, a television and other people do to a session.

    python -m benchmarks.room [--people FOLDER] [--packages FOLDER] [-n 10] [--minutes 5]
                              [--part NAME]... [--sound NAME]... [--seed N] [--jobs N] [--set K=V]
                              [--out FILE]

Each scene is one session in virtual time in a simulated room (``benchmarks.harness.rooms``), with
one of ``benchmarks.room.sounds`` at a level relative to the person who speaks, or would speak.
Silero, Moonshine, Smart Turn and the language model's opinion are real; calls take their measured
times. There is no echo.

- **silence**, **answers**: ``--minutes`` of sound per level, nobody speaks; the latter over long
  answers. Turns that open, with words (each is answered); answers stopped, and lost for good.
- **others**: ``-n`` people say something while the sound goes on, from 2 s before to 32 s after.
  When does the turn end after the last word, if at all? Words of others in it; other turns.
- **words**: ``-n`` people per signal-to-noise ratio, and in quiet. Words kept (of commands whose
  meaning is known, only those of the slots), word errors against Moonshine's text of the dry
  recording, turns split or missed, end of the turn, first audio. Control: words kept if the same
  range of audio is 64 ms longer.
- **one word**: ten words by twenty voices, in quiet; missed: no words heard.
- **one minute**: three voices that do not pause for a minute, in quiet; split: cut in the middle.
- **cost**: processor time of hearing, without the recogniser.

Intervals are bootstrapped by person, or by room where nobody speaks.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from app.settings.load import load_settings
from benchmarks.echo.scenes import RobotVoices, say_all
from benchmarks.harness.acoustics import to_pcm
from benchmarks.harness.program import arguments, keep, weights
from benchmarks.harness.rooms import draw_room
from benchmarks.harness.statistics import Bootstrap, Estimate
from benchmarks.harness.virtual_engines import InlineVad
from benchmarks.room.play import OTHERS_TAIL_S, Case, Outcome, Part, play_all
from benchmarks.room.sounds import SOUNDS, SPOKEN, Home, Sound
from benchmarks.turns.people import Packages
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import SileroOptions, build
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.client import ClientHearing
from pipeline.hearing.listening import Listener
from pipeline.hearing.turn_taker import TurnPause
from pipeline.settings import Echo
from reachy_voice.testing import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurn

PARTS: tuple[Part, ...] = get_args(Part)
ALONE: tuple[tuple[Sound, int], ...] = (
    *(("servo", -6), ("servo", 0), ("servo", 6), ("fan", -6), ("music", -12)),
    *(("babble", -15), ("babble", 0), ("reader", -18), ("television", -18)),
)
"""Sounds and levels while nobody speaks to the robot. Below: while somebody does, or just has."""
OTHERS: tuple[Sound, ...] = ("reader", "television", "babble")
OTHERS_DB = (-24, -18, -12, -6)
NOISES: tuple[Sound, ...] = ("servo", "fan", "music", "babble")
SNR_DB = (20, 10, 5, 0)
WORDS_IN_ALL = 200
BATCH = 10
"""How many scenes a process plays before their results are saved."""
IN_TIME_MS = 1500
HEARD_S = 120


def cases(parts: Sequence[Part], sounds: Sequence[Sound], n: int, minutes: int) -> Iterator[Case]:
    beside: dict[Part, tuple[Sequence[tuple[Sound | None, int]], int]] = {
        "silence": (ALONE, minutes),
        "answers": (ALONE, minutes),
        "others": ([(sound, db) for sound in OTHERS for db in OTHERS_DB], n),
        "words": ([(None, 0), *((sound, -db) for sound in NOISES for db in SNR_DB)], n),
        "one word": (((None, 0),), WORDS_IN_ALL),
        "one minute": (((None, 0),), 3),
    }
    for part in (each for each in parts if each in beside):
        of, count = beside[part]
        for (sound, db), number in itertools.product(of, range(count)):
            if sound is None or sound in sounds:
                yield Case(part, sound, db, number)


def hearing_ms(home: Home) -> float:
    """Processor time, in ms, of hearing one second of people talking."""
    rng = np.random.default_rng(3)
    pcm = to_pcm(home.at_mic("television", draw_room(rng), HEARD_S * LISTEN_RATE, rng))
    vad = InlineVad(build(SileroOptions(), weights("silero-vad")))
    stages = Stages(vad, ScriptedTurn(), ScriptedStt(), ScriptedLlm(), ScriptedTts())
    began = time.process_time()
    asyncio.run(_hear(pcm, stages))
    return round((time.process_time() - began) * 1000 / HEARD_S, 2)


async def _hear(pcm: Pcm, stages: Stages) -> None:
    hearing = ClientHearing(stages.vad.window_samples, Echo())
    endpointing = load_settings(None).settings.endpointing
    listener = Listener(stages, hearing, endpointing)
    async for signals in listener.hear(pcm):
        if any(isinstance(signal, TurnPause) for signal in signals):
            listener.judge(endpointing.unsure_wait_ms)


# --- figures -----------------------------------------------------------------------------------


def figures(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Rates an hour, shares and ms, by group."""
    groups = dict.fromkeys(each.group for each in outcomes)
    of = {group: [each for each in outcomes if each.group == group] for group in groups}
    return {group: {k: asdict(v) for k, v in _figures(some)} for group, some in of.items()}


def _figures(some: Sequence[Outcome]) -> Iterator[tuple[str, Estimate]]:
    sources = [each.source for each in some]
    bootstrap = Bootstrap(sources)

    def ratio(
        part: Callable[[Outcome], float], whole: Callable[[Outcome], float] = lambda _: 1.0
    ) -> Estimate:
        return bootstrap.ratio(list(map(part, some)), list(map(whole, some)), sources)

    part = some[0].group.partition(",")[0]
    if part in ("silence", "answers", "others"):
        yield "false turns an hour", ratio(lambda each: len(each.texts), lambda each: each.hours)
        yield "opened an hour", ratio(lambda each: each.turns, lambda each: each.hours)
        yield "stopped answers an hour", ratio(lambda each: each.stopped, lambda each: each.hours)
        yield "lost answers an hour", ratio(lambda each: each.lost, lambda each: each.hours)
    if part in ("silence", "answers"):
        return
    yield "missed", ratio(lambda each: not each.heard)
    yield "words kept", ratio(lambda each: each.kept, lambda each: each.wanted)
    if part == "one word":
        return
    late_ms = OTHERS_TAIL_S * 1000
    over = [late_ms if each.over_ms is None else each.over_ms for each in some]
    yield "over in time", bootstrap.mean([each <= IN_TIME_MS for each in over], sources)
    yield "never over", ratio(lambda each: each.open)
    for percent in (50, 90):
        yield f"over P{percent}, ms", bootstrap.percentile(over, percent, sources)
    yield "word errors", ratio(lambda each: each.errors, lambda each: each.spoken)
    yield "words of others, a turn", ratio(lambda each: each.of_others)
    yield "split", ratio(lambda each: each.own_turns > 1)
    if some[0].group == "words":
        yield "words kept, control", ratio(lambda each: each.control, lambda each: each.wanted)
        audio = [late_ms if each.audio_ms is None else each.audio_ms for each in some]
        for percent in (50, 90):
            yield f"first audio P{percent}, ms", bootstrap.percentile(audio, percent, sources)


def lines(report: dict[str, dict[str, Any]]) -> Iterator[str]:
    for group, data in report.items():
        yield group
        for name, each in data.items():
            plain = any(unit in name for unit in ("hour", "ms", "a turn"))
            value, low, high = (each[key] for key in ("value", "low", "high"))
            if value is not None:
                text = "{:.4g} [{:.4g}, {:.4g}]" if plain else "{:.1%} [{:.1%}, {:.1%}]"
                yield f"  {name:<26}{text.format(value, low, high)} n={each['n']}"


def main() -> None:
    parser = arguments(__doc__, "benchmarks.room", settings=True)
    parser.add_argument("--people", type=Path, help="labelled recordings, or folders of them")
    parser.add_argument("--packages", type=Path, action="append", default=[], help="as for turns")
    parser.add_argument("-n", type=int, default=10, help="people a condition")
    parser.add_argument("--minutes", type=int, default=5, help="of each sound alone")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated")
    parser.add_argument("--sound", choices=SOUNDS, action="append", help="may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    parts = args.part or PARTS
    voices = Path(tempfile.gettempdir()) / "reachy-voice-room-voices.npz"
    say_all(weights("piper-joe"), voices, SPOKEN)
    packages = Packages((Path("/"), *args.packages))
    todo = list(cases(parts, args.sound or SOUNDS, args.n, args.minutes))
    how = (voices, args.people, packages, args.seed, args.config, tuple(args.sets))
    report: dict[str, Any] = {"set": args.sets, "seed": args.seed, "people": bool(args.people)}
    try:
        home = Home(RobotVoices.load(voices), args.people, packages)
        report["hearing_ms"] = hearing_ms(home) if "cost" in parts else None
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
            batches = [todo[at : at + BATCH] for at in range(0, len(todo), BATCH)]
            playing = [pool.submit(play_all, batch, *how) for batch in batches]
            outcomes: list[Outcome] = []
            for batch in playing:
                outcomes += batch.result()
                print(f"{len(outcomes)} of {len(todo)} scenes", file=sys.stderr)
    except (FileNotFoundError, ReachyVoiceError) as error:
        sys.exit(str(error))
    order = {case.group: number for number, case in enumerate(todo)}
    report["figures"] = figures(sorted(outcomes, key=lambda each: order[each.group]))
    print("\n".join(lines(report["figures"])))
    print("hearing, ms of processor a second:", report["hearing_ms"])
    keep({**report, "scenes": [asdict(each) for each in outcomes]}, args.out)


if __name__ == "__main__":
    main()
