"""Turns that would begin although the owner is silent, while the robot moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from app.models.weights import open_cache
from app.settings.model import Settings
from hardware.robot.body import RobotBody
from hardware.robot.errors import RobotError
from hardware.robot.gaze import NEEDED
from hardware.settings import Robot
from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm
from pipeline.commands import Direction
from pipeline.engines.registry import Kind, engine_spec, require_modules
from pipeline.hearing.nearness import Nearness, WindowEvidence
from pipeline.hearing.timbre import Motor, may_be_voice
from pipeline.hearing.tuning import TIMBRE_BEFORE_SAMPLES
from pipeline.hearing.turn_taker import TurnPause, TurnTaker
from pipeline.settings import Endpointing

SIDES_DEG, _TURN_S = (40.0, 140.0), 1.5
_THRESHOLDS = (0.6, 0.7, 0.8, 0.9)


@asynccontextmanager
async def turning_head(robot: Robot, notify: Callable[[RobotError], None]) -> AsyncIterator[None]:
    """Have the robot, if any, look from side to side, as if people spoke there."""
    body = RobotBody(robot, notify, array_in_head=False)
    async with asyncio.TaskGroup() as tasks:
        moving = [tasks.create_task(each) for each in (body.run(), _turn(body))]
        yield
        for each in moving:
            each.cancel()


async def _turn(body: RobotBody) -> None:
    for azimuth_deg in itertools.cycle(SIDES_DEG):
        for _ in range(NEEDED):
            body.heard(Direction(azimuth_deg, True))
        await asyncio.sleep(_TURN_S)


@dataclass(frozen=True, slots=True)
class SilentRoom:
    """Sound at 16 kHz in windows of the VAD, each with its score."""

    windows: Sequence[tuple[float, AudioFrame]]
    least_movement_db: float = 0.0
    """See ``Vad``."""

    def moves(self, start: int, end: int) -> bool:
        """As ``Listener.moves``."""
        first = max(0, start - TIMBRE_BEFORE_SAMPLES)
        pieces = [frame.pcm for _, frame in self.windows if first < frame.end <= end]
        pcm = np.concatenate(pieces)
        return may_be_voice(pcm, len(pcm) - (end - start), self.least_movement_db)


def score_windows(pcm: Pcm, settings: Settings) -> SilentRoom:
    """Have the VAD score 16 kHz audio. Raises ``WeightsError``, ``MissingExtra``."""
    options = settings.engine(Kind.VAD)
    spec = engine_spec(Kind.VAD, options.engine)
    require_modules(spec)
    vad = spec.build(options, open_cache(settings).of(options))
    stream, size = vad.open(), vad.window_samples
    starts = range(0, len(pcm) - size + 1, size)
    frames = [AudioFrame(pcm[at : at + size], LISTEN_RATE, at) for at in starts]
    windows = [(float(stream.score(frame.pcm)), frame) for frame in frames]
    return SilentRoom(windows, vad.least_movement_db)


def false_starts(heard: SilentRoom, endpointing: Endpointing) -> int:
    """How many turns begin, judged as in a session, which rejects turns that a motor began."""
    taker, nearness, motor = TurnTaker(endpointing), Nearness(), Motor(heard.moves)
    count = 0
    for score, frame in heard.windows:
        was_open = taker.open
        is_sound = score >= endpointing.silence_threshold
        runs = motor.runs(is_sound, frame, taker.noticed if was_open else None)
        evidence = WindowEvidence(score, motor=runs)
        verdict = nearness.hear(evidence, frame, was_open, endpointing)
        signals = taker.feed(verdict.score, frame, *verdict[1:])
        if any(isinstance(signal, TurnPause) for signal in signals):
            taker.judge(endpointing.likely_wait_ms)
        is_last = frame is heard.windows[-1][1]
        if (was_open and not taker.open) or (taker.open and is_last):
            count += heard.moves(taker.noticed, frame.end)
    return count


def quiet_threshold(heard: SilentRoom, endpointing: Endpointing) -> float | None:
    """The lowest ``endpointing.speech_threshold`` above the present one at which no turn begins."""
    for threshold in _THRESHOLDS:
        higher = endpointing.model_copy(update={"speech_threshold": threshold})
        if threshold > endpointing.speech_threshold and not false_starts(heard, higher):
            return threshold
    return None
