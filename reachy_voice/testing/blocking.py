"""Runs a real engine in a scene: each call runs on the event loop and takes no virtual time."""

from __future__ import annotations

from typing import Any

from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.workers import stages
from pipeline.workers.host import EngineHost, Request, build_engine
from pipeline.workers.worker import Worker

_STAGES = {
    Kind.VAD: stages.vad_stage,
    Kind.TURN: stages.turn_stage,
    Kind.STT: stages.stt_stage,
    Kind.LLM: stages.llm_stage,
    Kind.TTS: stages.tts_stage,
    Kind.SPEAKER: stages.speaker_stage,
}


class LoopWorker(Worker):
    """Runs an engine on the event loop itself, which also works in virtual time."""

    def __init__(self, kind: Kind, engine: object) -> None:
        options = EngineOptions(engine="mine")
        spec = EngineSpec("mine", kind, EngineOptions, lambda options, weights: engine)
        super().__init__(spec, options, None)
        own, self.info = build_engine(spec, options, None)
        self._host = EngineHost(own, self._answer)
        self.problem = None

    def post(self, request: Request) -> None:
        self._host.receive(request)
        self._host.run_until_idle()


def stage(kind: Kind, engine: object) -> Any:
    """Wrap an engine of this kind for a scene. Raises ``EngineError`` if it lacks something.

    >>> play(say(1.0), silence(3.0), tts=stage(Kind.TTS, ChirpingVoice(Options())))
    """
    return _STAGES[kind](LoopWorker(kind, engine))
