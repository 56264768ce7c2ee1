"""No gap in an answer that the voice's speed allows to be without, and few joints.

Whole sessions in virtual time: the real chunker, ramp, reply and pacing, over a language model and
a voice of many speeds.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from scripted import ScriptedLlm, ScriptedTts, scene
from virtual_time import run_virtual

from pipeline.audio import Pcm
from pipeline.commands import CreateResponse
from pipeline.events import ReplyAudio, ReplyFinished, ReplyText
from pipeline.ramp import MOST_S, Ramp, Spoken
from pipeline.work import Work

ANSWER = (
    "That is a good question. The old clock in the hall, which nobody had wound for many years, "
    "began to strike one evening in November when the whole family sat at dinner. My grandfather "
    "put down his spoon and counted: one, two, three, and so on, up to thirteen. Nobody said a "
    "word. Then he got up, opened the glass door and looked inside, but there was nothing to be "
    "seen except dust and a small brass key that hung on a nail. He took the key and went up to "
    "the attic, where a box had stood under the window since before my mother was born. It was "
    "locked, of course. The key fitted! What he found in there I will tell you another time, "
    "because it is late, and you should have been in bed an hour ago."
)
SECONDS_PER_CHAR = 0.065


@dataclass
class PacedTts(ScriptedTts):
    """A voice of a given speed. ``chunk_s``: of audio that it gives at once; 0: a whole piece.

    ``stalls``: seconds that some steps take longer, one after the other.
    """

    fixed_s: float = 0.08
    rtf: float = 0.1
    chunk_s: float = 0.0
    stalls: Iterator[float] = field(default_factory=lambda: iter(()))

    async def synthesize(
        self, text: str, voice: str, speed: float, work: Work
    ) -> AsyncGenerator[Pcm, None]:
        self.said.append(text)
        await asyncio.sleep(self.fixed_s)
        left_s = SECONDS_PER_CHAR * len(text)
        while left_s > 1e-6:
            now_s = min(self.chunk_s or left_s, left_s)
            await asyncio.sleep(now_s * self.rtf + next(self.stalls, 0.0))
            left_s -= now_s
            yield np.full(round(now_s * self.rate), 1000, np.int16)


@dataclass
class Told:
    """How an answer came out."""

    said: list[str]
    first_s: float
    gaps_s: list[float]

    @property
    def joints(self) -> int:
        """Where pieces meet within a sentence."""
        return sum(text[-1] not in ".!?" for text in self.said)


def told(tts: PacedTts, *, token_s: float = 0.02, answer: str = ANSWER) -> Told:
    """One answer, its words coming every ``token_s``, played with the usual lead."""

    async def play() -> Told:
        deltas = tuple(re.findall(r"\s*\S+", answer))
        llm = ScriptedLlm(deltas, first_s=0.1, per_token_s=token_s)
        async with scene(llm=llm, tts=tts) as played:
            await played.do(CreateResponse(None))
            while not played.events(ReplyFinished):
                await asyncio.sleep(0.5)
            assert "".join(e.text for e in played.events(ReplyText)) == answer
            plays_until, gaps = 0.0, []
            for at, event in played.log:
                if isinstance(event, ReplyAudio):
                    if plays_until and at > plays_until + 0.001:
                        gaps.append(at - plays_until)
                    plays_until = max(at, plays_until) + len(event.pcm) / event.rate
            return Told(tts.said, played.time_of(ReplyAudio), gaps)

    result: Told = run_virtual(play())
    return result


@pytest.mark.parametrize("token_s", [0.005, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("rtf", [0.05, 0.1, 0.2, 0.3])
def test_a_fast_voice_makes_no_gap_and_hardly_a_joint(rtf: float, token_s: float) -> None:
    result = told(PacedTts(rtf=rtf), token_s=token_s)
    assert result.gaps_s == []
    assert result.joints <= (2 if token_s <= 0.02 else 4)
    assert len(result.said) <= 14


if __name__ == "__main__":
    for stream in (0.0, 0.2):
        for rtf in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2):
            for token_s in (0.005, 0.02, 0.05, 0.1, 0.25):
                r = told(PacedTts(rtf=rtf, chunk_s=stream), token_s=token_s)
                print(stream, rtf, token_s, "first %.2f" % r.first_s, "pieces", len(r.said), "joints", r.joints, "gaps", len(r.gaps_s), "%.2f" % sum(r.gaps_s), "max %.2f" % max(r.gaps_s, default=0), [len(x) for x in r.said])
