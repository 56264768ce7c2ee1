"""Run as a separate process with the example package on its path: a real server over scripted
engines and the example voice, and a client that has it say a sentence. Prints what it heard from a
voice in a thread, and from one in a process."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import numpy as np

from app.settings.load import load_settings
from pipeline.engines.registry import EngineSpec, Kind, engine_spec
from pipeline.workers.placements import worker_for
from pipeline.workers.stages import tts_stage
from tests.support.protocol_client import text_item
from tests.support.scripted_server import servers, talking
from tests.support.staged_server import StagedAssistant, quick_llm

SENTENCE = "Is it noon? Yes, it is."
DELTA = "response.output_audio.delta"


async def heard(place: str) -> dict[str, Any]:
    voice = f"tts={{engine: chirping, run_in: {place}, pitch_hz: 500.0}}"
    settings = load_settings(None, [voice], {}).settings
    spec = engine_spec(Kind.TTS, settings.tts.engine)
    assert isinstance(spec, EngineSpec)
    worker = worker_for(spec, settings.tts, None)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(ready.set))
        await ready.wait()
        said = await answer(tts_stage(worker))
        worker.close()
    return {"worker": type(worker).__name__, "options": settings.tts.model_dump(), **said}


async def answer(tts: Any) -> dict[str, Any]:
    llm = quick_llm()
    llm.deltas = (SENTENCE,)
    async with servers() as serve:
        served = await serve(StagedAssistant(llm, tts))
        async with talking(served) as talk:
            response = await talk.ask(text_item("What time is it?"))
    events = [event for event in talk.recorder.events if event["type"] == DELTA]
    sound = b"".join(base64.b64decode(event["delta"]) for event in events)
    pcm = np.frombuffer(sound, np.int16)
    crossings = int((np.diff(np.signbit(pcm)) != 0).sum())
    return {
        "status": response["status"],
        "words": response["output"][0]["content"][0]["transcript"],
        "voices": list(tts.voices),
        "seconds": len(pcm) / 24_000,
        "peak": int(np.abs(pcm.astype(int)).max()),
        "crossings_per_s": crossings * 24_000 / len(pcm),
    }


if __name__ == "__main__":
    ways = [asyncio.run(heard(place)) for place in ("thread", "process")]
    sys.stdout.write(json.dumps(ways))
