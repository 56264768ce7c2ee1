"""Are there gaps in what a client plays while the voice stutters?

    python -m benchmarks.pacing [--hours 1] [--seed N --seed M] [--any-time] [--out FILE]

Answers of a real session in virtual time, sent with the default lead. The voice makes speech at
1.1 to 5 times real time in pieces of 40 to 400 ms, and now and then stalls for up to 400 ms. A
reference client plays what it gets as soon as it has it. A gap is more than 10 ms in which it has
nothing to play in the middle of an answer.

The voice stalls when it is so far ahead of the listener that the stall, and the longest piece
behind it, fit in: then every gap is the pipeline's. With ``--any-time`` it stalls whenever it
likes. A gap is then the pipeline's if there was audio that it kept to itself, or if the voice had
been idle for so long shortly before; all others are counted as the voice's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.played_session import played_session
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import CreateResponse
from pipeline.engines.stages import Stages
from pipeline.events import ReplyAudio, ReplyFinished
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.speaking.playback import PlaybackClock
from pipeline.work import Work
from tests.support.scripted import LevelVad, ScriptedLlm, ScriptedStt, ScriptedTurn
from tests.support.virtual_time import run_virtual

SPEED = (1.1, 5.0)
PIECE_S = (0.04, 0.4)
LONGEST_STALL_S = 0.4
STALL_SHARE = 0.15
GAP_S = 0.01
LATELY_S = 3.0
"""Before a gap; longer than the most that the pipeline has made ahead."""
WORDS = 60
SECONDS_PER_WORD = 0.3


@dataclass
class StutteringTts:
    """``ahead_s``: of the speech that is made, how much its listener has still to hear."""

    rng: np.random.Generator
    any_time: bool = False
    rate: int = LISTEN_RATE
    voices: tuple[str, ...] = ("stutter",)
    player: PlaybackClock = field(default_factory=PlaybackClock)
    made: list[tuple[float, float]] = field(default_factory=list)
    """When a piece of this answer was there, and how many seconds had been made by then."""
    made_s: float = 0.0
    busy: list[tuple[float, float]] = field(default_factory=list)
    """From when to when it worked for this answer."""
    speed: float = 1.0

    def begin(self) -> None:
        self.player, self.made_s = PlaybackClock(), 0.0
        self.made.clear()
        self.busy.clear()
        self.speed = float(self.rng.uniform(*SPEED))

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        loop = asyncio.get_running_loop()
        left_s = SECONDS_PER_WORD * len(request.text.split())
        while left_s > 0:
            began = loop.time()
            seconds = min(left_s, float(self.rng.uniform(*PIECE_S)))
            takes_s = seconds / self.speed
            stall_s = float(self.rng.uniform(0, LONGEST_STALL_S))
            if self.rng.random() < STALL_SHARE and self._may_stall(seconds, takes_s, began):
                takes_s += stall_s
            await asyncio.sleep(takes_s)
            self.made_s += seconds
            self.made.append((loop.time(), self.made_s))
            self.busy.append((began, loop.time()))
            left_s -= seconds
            yield np.full(round(seconds * self.rate), 1000, np.int16)

    def _may_stall(self, seconds: float, takes_s: float, now: float) -> bool:
        if self.any_time:
            return True
        ahead_s = self.made_s - self.player.heard_seconds(now) - LONGEST_STALL_S - takes_s
        return ahead_s >= 0 and ahead_s + seconds >= PIECE_S[1] / self.speed

    def made_by(self, at: float) -> float:
        """Seconds of this answer that were there by then."""
        return max((made_s for when, made_s in self.made if when <= at), default=0.0)

    def idle_s(self, since: float, until: float) -> float:
        """For how long it had nothing to do."""
        worked = (min(end, until) - max(begin, since) for begin, end in self.busy)
        return until - since - sum(max(0.0, each) for each in worked)


def ours(tts: StutteringTts, dry_at: float, gap_s: float) -> bool:
    """Whether a gap that begins at ``dry_at`` is the pipeline's, and not the voice's."""
    begun = tts.busy[0][0] if tts.busy else dry_at
    kept_s = tts.made_by(dry_at) - tts.player.sent_seconds
    idle_s = tts.idle_s(max(begun, dry_at - LATELY_S), dry_at)
    return kept_s > GAP_S or idle_s >= gap_s


@dataclass
class Found:
    """``gaps_ms``: the pipeline's."""

    answers: int = 0
    seconds: float = 0.0
    gaps_ms: list[float] = field(default_factory=list)
    voice_gaps_ms: list[float] = field(default_factory=list)
    late_starts: int = 0
    """Gaps before the voice was as far ahead as its longest stall lasts."""


async def listen(seconds: float, seed: int, any_time: bool = False) -> Found:
    tts = StutteringTts(np.random.default_rng(seed), any_time)
    deltas = tuple(f"word{number}{'.' if number % 12 == 11 else ''} " for number in range(WORDS))
    stages = Stages(
        LevelVad(), ScriptedTurn(), ScriptedStt(), ScriptedLlm(deltas=deltas, per_token_s=0.01), tts
    )
    told: asyncio.Queue[Published] = asyncio.Queue(1_000_000)
    found = Found()
    async with played_session(stages, SessionSettings(), told.put_nowait, began=0.0) as session:
        while found.seconds < seconds:
            tts.begin()
            await session.submit(CreateResponse())
            await _play(told, tts, found)
    return found


async def _play(told: asyncio.Queue[Published], tts: StutteringTts, found: Found) -> None:
    """Follow one answer to its end."""
    player = tts.player
    buffered = False
    while True:
        at, event = await told.get()
        match event:
            case ReplyAudio():
                missing_s = at - player.plays_until if player.sent_seconds else 0.0
                if missing_s > GAP_S:
                    _note(found, tts, missing_s, buffered)
                player.send(len(event.pcm) / event.rate, at)
                buffered |= tts.made_s - player.heard_seconds(at) >= LONGEST_STALL_S
            case ReplyFinished():
                found.answers += 1
                found.seconds += player.sent_seconds
                return


def _note(found: Found, tts: StutteringTts, gap_s: float, buffered: bool) -> None:
    if not buffered:
        found.late_starts += 1
    elif not tts.any_time or ours(tts, tts.player.plays_until, gap_s):
        found.gaps_ms.append(round(gap_s * 1000, 1))
    else:
        found.voice_gaps_ms.append(round(gap_s * 1000, 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, action="append", dest="seeds")
    parser.add_argument("--any-time", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = []
    for seed in given.seeds or [1]:
        found = run_virtual(listen(given.hours * 3600, seed, given.any_time))
        runs.append(_figures(found, seed))
    data = {"hours": given.hours, "any_time": given.any_time, "runs": runs}
    text = json.dumps(data, indent=1)
    print(text)
    if given.out:
        given.out.write_text(f"{text}\n", encoding="utf-8")
    sys.exit(1 if any(run["gaps"] for run in runs) else 0)


def _figures(found: Found, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "answers": found.answers,
        "seconds": round(found.seconds, 1),
        "gaps": len(found.gaps_ms),
        "longest_gaps_ms": sorted(found.gaps_ms)[-10:],
        "before_it_was_buffered": found.late_starts,
        "gaps_of_the_voice": len(found.voice_gaps_ms),
    }


if __name__ == "__main__":
    main()
