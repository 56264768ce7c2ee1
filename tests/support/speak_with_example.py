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
from websockets.asyncio.client import connect

from app.settings.load import load_settings
from pipeline.engines.registry import EngineSpec, Kind, engine_spec
from pipeline.workers.placements import worker_for
from pipeline.workers.stages import tts_stage
from tests.support.scripted_server import servers
from tests.support.staged_server import StagedAssistant, quick_llm

SENTENCE = "Is it noon? Yes, it is."


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
        async with connect(served.url, max_size=None) as client:
            content = [{"type": "input_text", "text": "What time is it?"}]
            item = {"type": "message", "role": "user", "content": content}
            await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
            await client.send(json.dumps({"type": "response.create"}))
            sound, words = b"", ""
            async for message in client:
                event = json.loads(message)
                match event["type"]:
                    case "response.output_audio.delta":
                        sound += base64.b64decode(event["delta"])
                    case "response.output_audio_transcript.delta":
                        words += event["delta"]
                    case "response.done":
                        status = event["response"]["status"]
                        break
    pcm = np.frombuffer(sound, np.int16)
    crossings = int((np.diff(np.signbit(pcm)) != 0).sum())
    return {
        "status": status,
        "words": words,
        "voices": list(tts.voices),
        "seconds": len(pcm) / 24_000,
        "peak": int(np.abs(pcm.astype(int)).max()),
        "crossings_per_s": crossings * 24_000 / len(pcm),
    }


if __name__ == "__main__":
    ways = [asyncio.run(heard(place)) for place in ("thread", "process")]
    sys.stdout.write(json.dumps(ways))
