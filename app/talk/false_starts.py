"""Turns that would begin although the owner is silent, while the robot moves."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from app.models.weights import WeightsCache
from app.settings.model import Settings
from hardware.robot.body import RobotBody
from hardware.robot.errors import RobotError
from hardware.robot.gaze import NEEDED
from hardware.settings import Robot
from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm
from pipeline.commands import Direction
from pipeline.engines.registry import Kind, engine_spec, require_modules
from pipeline.hearing.turn_taker import TurnPause, TurnStart, TurnTaker
from pipeline.settings import Endpointing

SIDES_DEG, _TURN_S = (40.0, 140.0), 1.5
_THRESHOLDS = (0.6, 0.7, 0.8, 0.9)


@asynccontextmanager
async def turning_head(robot: Robot, notify: Callable[[RobotError], None]) -> AsyncIterator[None]:
    """The robot, if there is one, looks from side to side, as if people spoke there."""
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


def score_windows(pcm: Pcm, settings: Settings) -> list[tuple[float, AudioFrame]]:
    """Each window of 16 kHz audio with its VAD score. Raises ``WeightsError``, ``MissingExtra``."""
    options = settings.engine(Kind.VAD)
    spec = engine_spec(Kind.VAD, options.engine)
    require_modules(spec)
    weights = getattr(options, "weights", None)
    cache = WeightsCache(settings.paths.cache(os.environ))
    vad = spec.build(options, cache.path(weights) if weights else None)
    stream, size = vad.open(), vad.window_samples
    starts = range(0, len(pcm) - size + 1, size)
    frames = [AudioFrame(pcm[at : at + size], LISTEN_RATE, at) for at in starts]
    return [(float(stream.score(frame.pcm)), frame) for frame in frames]


def false_starts(windows: Sequence[tuple[float, AudioFrame]], endpointing: Endpointing) -> int:
    """How many turns begin."""
    taker, count = TurnTaker(endpointing), 0
    for score, frame in windows:
        signals = taker.feed(score, frame)
        count += sum(isinstance(signal, TurnStart) for signal in signals)
        if any(isinstance(signal, TurnPause) for signal in signals):
            taker.judge(endpointing.likely_wait_ms)
    return count


def quiet_threshold(
    windows: Sequence[tuple[float, AudioFrame]], endpointing: Endpointing
) -> float | None:
    """The lowest higher ``endpointing.speech_threshold`` at which none begins."""
    for threshold in _THRESHOLDS:
        higher = endpointing.model_copy(update={"speech_threshold": threshold})
        if threshold > endpointing.speech_threshold and not false_starts(windows, higher):
            return threshold
    return None
