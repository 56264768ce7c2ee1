"""Plain HTTP on the server's port: liveness, readiness, metrics and models."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.api_errors import RETRY
from app.compose import MODEL
from app.server import process_usage
from app.server.metrics import CONTENT_TYPE
from app.server.realtime_link import AssistantLike
from pipeline.engines.registry import Kind
from pipeline.engines.stages import Stages
from pipeline.speaking.tuning import RAMP_SLOW


def unready(assistant: AssistantLike) -> Mapping[str, str]:
    """Engines that are not ready, and why."""
    return {name: why for name, why in assistant.readiness().items() if why is not None}


def nameless(assistant: AssistantLike) -> Mapping[str, str]:
    """Reasons why the voices are not known, so that no session can be described."""
    return {name: why for name, why in unready(assistant).items() if name != Kind.LLM}


def not_ready_response(reasons: Mapping[str, str]) -> JSONResponse:
    body = {"ready": False, "reasons": dict(reasons)}
    return JSONResponse(body, 503, headers=RETRY)


def notes(stages: Stages) -> Mapping[str, str]:
    """What the owner should know about engines that are ready."""
    if stages.voice_rtf <= RAMP_SLOW:
        return {}
    slow = f"slower than speech ({stages.voice_rtf:.1f} s a second): answers begin late"
    return {str(Kind.TTS): slow}


async def health(request: Request) -> JSONResponse:
    """200 while the event loop runs."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """200 when every engine is ready and a client is welcome, else 503 with the reasons."""
    assistant = request.app.state.assistant
    reasons = dict(unready(assistant))
    if busy := request.app.state.clients.busy:
        reasons["server"] = busy
    if reasons:
        return not_ready_response(reasons)
    return JSONResponse({"ready": True, "reasons": {}, "notes": dict(notes(assistant.stages))})


async def metrics(request: Request) -> Response:
    state = request.app.state
    usage = await asyncio.to_thread(process_usage.usage, os.getpid())
    clients = state.clients
    text = clients.metrics.render(state.assistant.readiness(), len(clients.parked), usage)
    return Response(text, media_type=None, headers={"Content-Type": CONTENT_TYPE})


_MODEL = {"id": MODEL, "object": "model", "created": 0, "owned_by": "reachy-voice"}


async def models(request: Request) -> JSONResponse:
    """The list for model pickers, engines ready or not. The whole cascade is one model."""
    return JSONResponse({"object": "list", "data": [_MODEL]})


async def model(request: Request) -> JSONResponse:
    return JSONResponse(_MODEL)


async def upgrade_required(request: Request) -> JSONResponse:
    """For a browser that opens the WebSocket's address."""
    text = "This is a WebSocket endpoint. Connect with an OpenAI Realtime client: ws://..."
    return JSONResponse({"error": {"message": text}}, 426, headers={"Upgrade": "websocket"})


ROUTES = (
    Route("/health", health),
    Route("/ready", ready),
    Route("/metrics", metrics),
    Route("/v1/models", models),
    Route(f"/v1/models/{MODEL}", model),
    Route("/v1/realtime", upgrade_required),
    Route("/realtime", upgrade_required),
)
