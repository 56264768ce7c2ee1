"""Are there gaps in what a client plays while the voice stutters?

    python -m benchmarks.pacing [--hours 1] [--seed N] [--out FILE]

Answers of a real session in virtual time, sent with the default lead. The voice makes speech at
1.1 to 5 times real time in pieces of 40 to 400 ms, and now and then stalls for up to 400 ms, once
it is that far ahead of the listener. A reference client plays what it gets as soon as it has it. A
gap is more than 10 ms in which it has nothing to play in the middle of an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm
from pipeline.bus import Bus
from pipeline.commands import CreateResponse, SessionConfig
from pipeline.events import ReplyAudio, ReplyFinished
from pipeline.playback import PlaybackClock
from pipeline.session import Session
from pipeline.session_settings import SessionSettings
from pipeline.stages import Stages
from pipeline.work import Work
from tests.scripted import LevelVad, ScriptedLlm, ScriptedStt, ScriptedTurn
from tests.virtual_time import run_virtual

SPEED = (1.1, 5.0)
PIECE_S = (0.04, 0.4)
LONGEST_STALL_S = 0.4
STALL_SHARE = 0.15
GAP_S = 0.01
WORDS = 60
SECONDS_PER_WORD = 0.3


@dataclass
class StutteringTts:
    """``ahead_s``: of the speech that is made, how much its listener has still to hear."""

    rng: np.random.Generator
    rate: int = LISTEN_RATE
    voices: tuple[str, ...] = ("stutter",)
    player: PlaybackClock = field(default_factory=PlaybackClock)
    made_s: float = 0.0
    speed: float = 1.0

    def begin(self) -> None:
        self.player, self.made_s = PlaybackClock(), 0.0
        self.speed = float(self.rng.uniform(*SPEED))

    async def synthesize(
        self, text: str, voice: str, speed: float, work: Work
    ) -> AsyncGenerator[Pcm, None]:
        loop = asyncio.get_running_loop()
        left_s = SECONDS_PER_WORD * len(text.split())
        while left_s > 0:
            seconds = min(left_s, float(self.rng.uniform(*PIECE_S)))
            takes_s = seconds / self.speed
            stall_s = float(self.rng.uniform(0, LONGEST_STALL_S))
            # The piece after the stall has to be made in time, too.
            ahead_s = self.made_s - self.player.heard_seconds(loop.time())
            if self.rng.random() < STALL_SHARE and ahead_s >= LONGEST_STALL_S + takes_s:
                takes_s += stall_s
            await asyncio.sleep(takes_s)
            self.made_s += seconds
            left_s -= seconds
            yield np.full(round(seconds * self.rate), 1000, np.int16)


@dataclass
class Found:
    answers: int = 0
    seconds: float = 0.0
    gaps_ms: list[float] = field(default_factory=list)
    late_starts: int = 0
    """Gaps before the voice was as far ahead as its longest stall lasts."""


async def listen(seconds: float, seed: int) -> Found:
    rng = np.random.default_rng(seed)
    tts = StutteringTts(rng)
    deltas = tuple(f"word{number}{'.' if number % 12 == 11 else ''} " for number in range(WORDS))
    stages = Stages(
        LevelVad(), ScriptedTurn(), ScriptedStt(), ScriptedLlm(deltas=deltas, per_token_s=0.01), tts
    )
    bus = Bus()
    subscription = bus.subscribe(1_000_000)
    counter = itertools.count(1)
    config = SessionConfig(instructions="", output_format=AudioFormat(rate=LISTEN_RATE))
    session = Session(
        stages, config, SessionSettings(), bus, lambda prefix: f"{prefix}_{next(counter)}"
    )
    running = asyncio.create_task(session.run())
    found = Found()
    while found.seconds < seconds:
        tts.begin()
        await session.submit(CreateResponse())
        await _play(subscription, tts, found)
    running.cancel()
    await asyncio.wait({running})
    bus.close()
    return found


async def _play(subscription: Any, tts: StutteringTts, found: Found) -> None:
    """Follow one answer to its end."""
    player = tts.player
    buffered = False
    async for at, event in subscription:
        match event:
            case ReplyAudio():
                missing_s = at - player.plays_until if player.sent_seconds else 0.0
                if missing_s > GAP_S and buffered:
                    found.gaps_ms.append(round(missing_s * 1000, 1))
                found.late_starts += missing_s > GAP_S and not buffered
                player.send(len(event.pcm) / event.rate, at)
                buffered |= tts.made_s - player.heard_seconds(at) >= LONGEST_STALL_S
            case ReplyFinished():
                found.answers += 1
                found.seconds += player.sent_seconds
                return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = run_virtual(listen(given.hours * 3600, given.seed))
    data = {
        "hours": given.hours,
        "seed": given.seed,
        "answers": found.answers,
        "seconds": round(found.seconds, 1),
        "gaps": len(found.gaps_ms),
        "longest_gaps_ms": sorted(found.gaps_ms)[-10:],
        "before_it_was_buffered": found.late_starts,
    }
    print(json.dumps(data, indent=1))
    if given.out:
        given.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
