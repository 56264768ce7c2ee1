"""This machine's recogniser and voice for other programs, by OpenAI's audio routes.

    .venv/bin/python examples/audio_server.py --port 8001 [--config FILE]

Serves the engines ``stt`` and ``tts`` of the settings (Moonshine and Piper) at
``POST /v1/audio/transcriptions`` and ``/v1/audio/speech`` (raw PCM at 24 kHz, streamed);
``GET /v1/models`` and ``/health`` tell whether they run. It listens on this machine only and needs
no key. Piper (GPL-3) runs in a separate program. See docs/servers.md.
"""

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from reachy_voice.engines import Kind, SpeechRequest
from reachy_voice.hosting import (
    LISTEN_RATE,
    Engine,
    ReachyVoiceError,
    Resampler,
    Work,
    decoded,
    engines_alone,
    load_settings,
    open_cache,
    stt_stage,
    tts_stage,
)

SPOKEN_RATE = 24_000


def audio_server(config: str | None, kinds: Sequence[Kind] = (Kind.STT, Kind.TTS)) -> Starlette:
    settings = load_settings(config).settings
    engines: dict[Kind, Engine] = {}

    async def transcriptions(request: Request) -> Response:
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        form = BytesParser(policy=HTTP).parsebytes(head + await request.body())
        fields: dict[str, Any] = {
            str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
            for part in form.iter_parts()
        }
        pcm = np.concatenate([*decoded(fields["file"], LISTEN_RATE, "file")])
        utterance = await stt_stage(engines[Kind.STT]).open(
            fields.get("language", b"").decode(), False, Work()
        )
        try:
            await utterance.feed(pcm, Work())
            return JSONResponse({"text": (await utterance.finish(Work())).text})
        finally:
            utterance.close()

    async def speech(request: Request) -> Response:
        asked = await request.json()
        said = SpeechRequest(asked["input"], asked.get("voice", ""), asked.get("speed", 1.0))
        return StreamingResponse(spoken(said), media_type="audio/pcm")

    async def spoken(said: SpeechRequest) -> AsyncIterator[bytes]:
        """The speech as raw PCM. Synthesis stops if the client hangs up."""
        voice = tts_stage(engines[Kind.TTS])
        work, resampler = Work(), Resampler(voice.rate, SPOKEN_RATE)
        try:
            async with aclosing(voice.synthesize(said, work)) as pieces:
                async for pcm in pieces:
                    yield resampler.feed(pcm).tobytes()
            yield resampler.flush().tobytes()
        finally:
            work.cancel()

    async def health(request: Request) -> Response:
        problems = {engine.name: engine.problem for engine in engines.values() if engine.problem}
        return JSONResponse(problems or {"status": "ok"}, 503 if problems else 200)

    async def models(request: Request) -> Response:
        names = [settings.engine(kind).engine for kind in kinds]
        return JSONResponse({"object": "list", "data": [{"id": name} for name in names]})

    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": {"message": str(error)}}, 500)

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        """Load the engines before serving, and close them after."""
        async with engines_alone(settings, open_cache(settings), *kinds) as loaded:
            engines.update(zip(kinds, loaded, strict=True))
            yield

    paths = {
        Kind.STT: Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
        Kind.TTS: Route("/v1/audio/speech", speech, methods=["POST"]),
    }
    routes = [
        *(paths[kind] for kind in kinds),
        Route("/v1/models", models),
        Route("/health", health),
    ]
    return Starlette(routes=routes, lifespan=running, exception_handlers={ReachyVoiceError: failed})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", help="a profile or a YAML file, as for script/serve")
    parser.add_argument("--port", type=int, default=8001)
    given = parser.parse_args()
    uvicorn.run(audio_server(given.config), host="127.0.0.1", port=given.port)
