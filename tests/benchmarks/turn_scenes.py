"""Scenes whose right answer is plain, and ears that hear them without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from app.settings.model import Settings
from benchmarks.harness.played_scene import play
from benchmarks.harness.scene import Pause, Scene
from benchmarks.harness.virtual_engines import NO_DELAYS, Delays
from benchmarks.turns.metrics import SceneScore, score_scene
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import EngineOptions
from pipeline.engines.stt.moonshine import Moonshine, MoonshineOptions, Recogniser
from pipeline.engines.turn.smart_turn import SmartTurnOptions
from pipeline.engines.vad.silero import WINDOW_SAMPLES, SileroOptions
from pipeline.messages import Message
from pipeline.settings import Endpointing, SessionSettings

WINDOW_MS = 32
LEVELS = {2000: "apples", 4000: "bananas", 6000: "cherries"}
"""Each loudness is a word."""


class LevelEars:
    """Hears loud windows as speech and each loudness as its word."""

    def __init__(self, turn_over: float = 0.9) -> None:
        self.passes: list[float] = []
        self.stt = Moonshine(cast(Recogniser, self), MoonshineOptions())
        self._turn_over = turn_over

    def speech_scores(self, pcm: Pcm) -> Any:
        windows = len(pcm) // WINDOW_SAMPLES
        loud = np.abs(pcm[: windows * WINDOW_SAMPLES].astype(int)).reshape(windows, -1).mean(axis=1)
        return np.where(loud > 500, 0.99, 0.01)

    def turn_over(self, pcm: Pcm) -> float:
        return self._turn_over

    def words_complete(self, messages: Sequence[Message]) -> float | None:
        return None

    def transcribe(self, pcm: Pcm) -> str:
        self.passes.append(len(pcm) / LISTEN_RATE)
        heard = [level for level in LEVELS if (np.abs(pcm.astype(int)) == level).any()]
        first = {level: int(np.argmax(np.abs(pcm.astype(int)) == level)) for level in heard}
        return " ".join(LEVELS[level] for level in sorted(heard, key=lambda level: first[level]))


def scene(*spans_ms: int, kind: str = "statement", pause_kind: str = "word", **more: Any) -> Scene:
    """Speech and pauses in turn, after 512 ms of room; whole windows: VAD and label agree."""
    assert all(ms % WINDOW_MS == 0 for ms in spans_ms)
    pieces = [np.full(512 * 16, 3, np.int16)]
    at, pauses, levels = 512 * 16, [], iter(LEVELS)
    for place, ms in enumerate(spans_ms):
        speech = place % 2 == 0
        pieces.append(np.full(ms * 16, next(levels) if speech else 3, np.int16))
        if not speech:
            pauses.append(Pause(at, at + ms * 16, cast(Any, pause_kind)))
        at += ms * 16
    pieces.append(np.full(3000 * 16, 3, np.int16))
    said = " ".join(list(LEVELS.values())[: len(spans_ms) // 2 + 1])
    fields: dict[str, Any] = {
        "id": "s", "part": "tuning", "source": "synthetic:levels", "speaker": "nobody",
        "kind": kind, "text": said, "asked": "", "snr_db": None, "rt60_s": None, **more,
    }  # fmt: skip
    pcm = np.concatenate(pieces)
    return Scene(**fields, pcm=pcm, onset=512 * 16, end=at, pauses=tuple(pauses))


def waits(ms: int) -> SessionSettings:
    """A session that ends every turn after exactly so much silence."""
    fixed = dict.fromkeys(("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms"), ms)
    return SessionSettings(endpointing=Endpointing.model_validate({"policy": "strict", **fixed}))


def scored(
    said: Scene, wait_ms: int, delays: Delays = NO_DELAYS, ears: LevelEars | None = None
) -> SceneScore:
    return score_scene(play(said, ears or LevelEars(), waits(wait_ms), delays))


def settings() -> Settings:
    """The defaults, without a look at any file."""
    return Settings(
        vad=SileroOptions(),
        turn=SmartTurnOptions(),
        stt=MoonshineOptions(),
        llm=EngineOptions(engine="none"),
        tts=EngineOptions(engine="none"),
    )


def arrival_ms(index: int) -> float:
    """When the 20 ms chunk with the sample before ``index`` arrives."""
    return -(-index // 320) * 20
