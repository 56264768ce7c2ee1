"""Each stretch of echo is scored by new VAD streams."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.harness.acoustics import gained, noise, to_pcm
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, AudioFrame, Framer, Pcm
from pipeline.echo.path import EchoWindow
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import SileroVad
from pipeline.errors import EngineError
from pipeline.hearing.nearness import weigh
from pipeline.hearing.speech_scores import SpeechScores
from pipeline.work import Work
from tests.support.recordings import recording

pytestmark = pytest.mark.engines

WINDOW = 512
SILENCE = np.zeros(WINDOW, np.int16)


@dataclass
class Heard:
    """One stream: the number of its windows, and whether it was closed."""

    stage: ScriptedVad
    windows: int = 0
    closed: bool = False

    async def score(self, pcm: Pcm) -> float:
        assert not self.closed
        self.windows += 1
        return self.stage.says

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedVad:
    """All its streams return its current score."""

    says: float = 0.0
    streams: list[Heard] = field(default_factory=list)
    window_samples = WINDOW
    least_movement_db = 0.0

    async def open(self, work: Work) -> Heard:
        self.streams.append(Heard(self))
        return self.streams[-1]


def heard_by(script: list[tuple[bool, float]]) -> list[int]:
    """``script``: for each window, whether it may hold an echo, and its VAD score. Returns the
    number of windows per stream, in order of opening."""
    stage = ScriptedVad()

    async def hear() -> None:
        scores = SpeechScores(cast(Stages, SimpleNamespace(vad=stage)))
        for number, (echo, stage.says) in enumerate(script):
            frame = AudioFrame(SILENCE, LISTEN_RATE, number * WINDOW)
            await scores.evidence(EchoWindow(frame, SILENCE if echo else None))
        scores.close()

    asyncio.run(hear())
    assert all(stream.closed for stream in stage.streams)
    return [stream.windows for stream in stage.streams]


QUIET = [(False, 0.0)] * 10
OVER = [(True, 0.9)] * 20
"""Speech over an echo."""
AFTER = [(False, 0.9)] * 30


@pytest.mark.parametrize(
    ("script", "windows"),
    [
        pytest.param([*QUIET, *[(True, 0.1)] * 20, *QUIET], [20, 20, 20], id="an echo"),
        # So is the echo itself before it is recognised.
        pytest.param(
            [*[(False, 0.9)] * 10, *[(True, 0.1)] * 20, *QUIET], [30, 20, 10], id="its onset"
        ),
        pytest.param(
            [*QUIET, *OVER, *AFTER, *[(False, 0.1)] * 8, *QUIET[:5]], [15, 58, 58], id="its end"
        ),
        pytest.param([*QUIET, *OVER, *AFTER, *OVER], [10, 70, 70], id="from one to the next"),
        pytest.param(
            [*QUIET, *OVER, *AFTER * 5, *QUIET[:8], *[(True, 0.0)] * 5],
            [10, 178, 114, 5, 5],
            id="speech long after it makes its VAD that of the room",
        ),
    ],
)
def test_the_rooms_vad_stream_never_hears_residual_echo(
    script: list[tuple[bool, float]], windows: list[int]
) -> None:
    """But speech is scored to its end by the streams that began it."""
    assert heard_by(script) == windows


def test_replacing_a_vad_closes_all_streams_of_the_old_one() -> None:
    old, new = ScriptedVad(), ScriptedVad()
    stages = SimpleNamespace(vad=old)

    async def hear() -> None:
        scores = SpeechScores(cast(Stages, stages))
        window = EchoWindow(AudioFrame(SILENCE, LISTEN_RATE, 0), SILENCE)
        await scores.evidence(window)
        stages.vad = new
        await scores.evidence(window)
        assert [stream.closed for stream in old.streams] == [True] * 2
        scores.close()

    asyncio.run(hear())
    assert [stream.closed for stream in new.streams] == [True] * 2


async def test_a_vad_that_cannot_be_opened_is_retried_at_the_next_window() -> None:
    class Restarting(ScriptedVad):
        async def open(self, work: Work) -> Heard:
            if not self.streams:
                self.streams.append(Heard(self, closed=True))
                raise EngineError("It is being restarted")
            return await super().open(work)

    scores = SpeechScores(cast(Stages, SimpleNamespace(vad=Restarting(says=0.9))))
    window = EchoWindow(AudioFrame(SILENCE, LISTEN_RATE, 0))
    assert (await scores.evidence(window)).score == 0.0
    assert (await scores.evidence(window)).score == 0.9
    scores.close()


@pytest.mark.real
def test_speech_scores_do_not_fall_after_some_answers(vad: SileroVad) -> None:
    """Real Silero. Over the first answers it hears a rustle that it learns to ignore."""
    stage = InlineVad(vad)
    rustle = to_pcm(gained(noise("white", 625 * WINDOW, np.random.default_rng(2)), -40))
    speech = recording("goforward").pcm

    async def speech_windows(answers: int) -> int:
        scores = SpeechScores(cast(Stages, SimpleNamespace(vad=stage)))

        async def hear(pcm: Pcm, echo: bool) -> list[float]:
            windows = (
                EchoWindow(frame, frame.pcm if echo else None) for frame in Framer(WINDOW).feed(pcm)
            )
            found = [await scores.evidence(window) for window in windows]
            return [weigh(each, False, 0.5, None).score for each in found]

        for _ in range(answers):
            await hear(rustle, echo=True)
            await hear(np.zeros(LISTEN_RATE, np.int16), echo=False)
        return sum(score >= 0.5 for score in await hear(speech, echo=True))

    first = asyncio.run(speech_windows(answers=0))
    assert first > 40
    assert asyncio.run(speech_windows(answers=2)) == first
