"""What the plain routes share: reading a request, and ending its work when the client leaves."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.access.api_errors import RETRY, ApiError, on_http_exception
from app.api.turnstile import Passage, Turnstile
from pipeline.errors import EngineCrashed, PromptTooLong, ReachyVoiceError
from pipeline.realtime.wire import WireError
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.server")

T = TypeVar("T")


class RequestBody(BaseModel):
    """A request. Unknown fields are ignored, since newer clients send more."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Drop null fields, which many clients send for those that they leave out."""
        if not isinstance(given, Mapping):
            return given
        return {name: value for name, value in given.items() if value is not None}


async def _answer(request: Request, error: Exception) -> Response:
    return Response() if isinstance(error, ClientDisconnect) else as_api_error(error).response()


_ANSWERED = ApiError, WireError, ReachyVoiceError, Cancelled, ClientDisconnect
ERROR_ANSWERS = {HTTPException: on_http_exception, **dict.fromkeys(_ANSWERED, _answer)}
"""For an application: what its routes may raise, and how that is answered."""


def as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, WireError):
        return ApiError(400, error.code, error.message, error.param)
    if isinstance(error, PromptTooLong):
        return ApiError(400, "context_length_exceeded", str(error), "messages")
    if isinstance(error, Cancelled):  # by the engine, not by us
        error = EngineCrashed("The engine was replaced, or the server is shutting down. Try again")
    if isinstance(error, EngineCrashed):
        return ApiError(503, "not_ready", str(error), headers=RETRY)
    return ApiError(500, "engine_failed", str(error))


Make = Callable[[Passage], Awaitable[Response]]


async def whole(request: Request, turnstile: Turnstile, make: Make) -> Response:
    """Answer in one piece. If the client leaves first, the work ends."""
    async with turnstile.enter() as passage:
        return await _unless_left(request, make(passage))


async def _unless_left(request: Request, made: Awaitable[T]) -> T:
    """Await ``made``. If the client leaves first, cancel it and raise ``ClientDisconnect``."""
    making, gone = asyncio.ensure_future(made), asyncio.create_task(_disconnect(request))
    try:
        await asyncio.wait((making, gone), return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            raise ClientDisconnect
        return making.result()
    finally:
        making.cancel()
        gone.cancel()
        await asyncio.wait((making, gone))


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def streamed(
    request: Request,
    turnstile: Turnstile,
    pieces: Callable[[Passage], AsyncGenerator[bytes, None]],
    media_type: str,
) -> Response:
    """Answer piece by piece. The first piece is awaited, so that an early failure gives an error
    response and not a stream that breaks off."""
    stack = AsyncExitStack()
    try:
        passage = await stack.enter_async_context(turnstile.enter())
        made = await stack.enter_async_context(aclosing(pieces(passage)))
        first = await _unless_left(request, anext(made, b""))
    except BaseException:
        await stack.aclose()
        raise
    return _Streamed(first, made, stack, media_type)


class _Streamed(StreamingResponse):
    """Closes ``stack`` at its end, even if the client leaves before it begins."""

    def __init__(
        self,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        stack: AsyncExitStack,
        media_type: str,
    ) -> None:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield first
            async for piece in rest:
                yield piece

        super().__init__(pieces(), media_type=media_type, headers={"Cache-Control": "no-store"})
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            try:
                await super().__call__(scope, receive, send)
            except (ReachyVoiceError, Cancelled) as error:  # the client sees that it is not whole
                log.warning("an answer broke off: %s", as_api_error(error).message)


async def streamed_events(
    request: Request, turnstile: Turnstile, make: Callable[[Passage], AsyncGenerator[Any, None]]
) -> Response:
    """Answer with server-sent events, made from JSON data or text. A later failure is an event."""

    async def events(passage: Passage) -> AsyncGenerator[bytes, None]:
        async with aclosing(make(passage)) as made:
            try:
                async for each in made:
                    yield sse(each)
            except (ReachyVoiceError, Cancelled) as error:
                yield sse(as_api_error(error).body)

    return await streamed(request, turnstile, events, "text/event-stream")


def sse(data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()
