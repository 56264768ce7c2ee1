"""The plain routes: OpenAI's chat completions, speech and transcriptions, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.api_errors import RETRY, ApiError, parsed, read_body
from app.announcing.announcer import (
    AnnouncementError,
    AnnouncementRequest,
    Announcer,
    UnknownConversation,
)
from app.api import chat, speech, transcriptions
from app.api.answering import whole
from app.api.turnstile import Passage, Turnstile
from app.settings.model import LimitSettings
from pipeline.engines.registry import Kind
from pipeline.engines.stages import Stages
from pipeline.realtime.session_config import SessionDefaults
from pipeline.settings import SessionSettings


class Engines(Protocol):
    """What the routes need of the assembled assistant."""

    @property
    def stages(self) -> Stages: ...

    def defaults(self) -> SessionDefaults:
        """A new session's settings; call it only while every engine is ready."""
        ...

    def session_settings(self) -> SessionSettings: ...

    def readiness(self) -> Mapping[str, str | None]:
        """Each engine's name, and why it is not ready; ``None``: it is."""
        ...

    @property
    def announcer(self) -> Announcer:
        """Speaks first in the sessions."""
        ...


def plain_routes(engines: Engines, limits: LimitSettings, turnstile: Turnstile) -> list[Route]:
    most_bytes, most_upload = limits.http_body_kb * 1024, limits.upload_mb * 1024 * 1024

    def check(*kinds: Kind) -> SessionDefaults:
        reasons = engines.readiness()
        if why := [f"{kind}: {reasons[kind]}" for kind in kinds if reasons.get(kind)]:
            raise ApiError(503, "not_ready", "; ".join(why), headers=RETRY)
        return engines.defaults()

    async def body(request: Request) -> bytes:
        return await read_body(request, most_bytes, " (limits.http_body_kb)")

    async def complete(request: Request) -> Response:
        model, sampling = check(Kind.LLM).model, engines.session_settings().sampling
        text = await read_body(request, most_upload, " (limits.upload_mb)")
        llm = engines.stages.llm
        return await chat.complete(request, text, most_bytes, turnstile, llm, sampling, model)

    async def speak(request: Request) -> Response:
        language = check(Kind.TTS).language
        text = await body(request)
        return await speech.speak(request, text, turnstile, engines.stages.tts, language)

    async def transcribe(request: Request) -> Response:
        language = check(Kind.STT, Kind.VAD).language
        stages = engines.stages
        return await transcriptions.transcribe(request, most_upload, turnstile, stages, language)

    async def say(request: Request) -> Response:
        """Ours, not OpenAI's. Says it, unless the client leaves before it begins."""
        announcement = parsed(AnnouncementRequest, await body(request))

        async def make(passage: Passage) -> Response:
            try:
                return JSONResponse(await engines.announcer.announce(announcement))
            except UnknownConversation as error:
                raise ApiError(400, "unknown_name", str(error), "to") from None
            except AnnouncementError as error:
                raise ApiError(409, "not_said", str(error)) from None

        return await whole(request, turnstile, make)

    return [
        Route("/v1/reachy/say", say, methods=["POST"]),
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/audio/speech", speak, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcribe, methods=["POST"]),
    ]
