"""``POST /v1/realtime/client_secrets``.

Shapes: ``ClientSecretCreateParams`` and ``...Response`` of ``openai.types.realtime``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.api_errors import parsed, read_body
from app.access.client_secrets import ClientSecrets
from app.server import health
from app.server.gate import CALLER
from app.server.identity import maker_of
from app.server.realtime_link import AssistantLike
from app.server.session_address import defaults_for
from pipeline.realtime import schema, shapes, wire
from pipeline.realtime.session_config import EffectiveSession, SessionDefaults
from pipeline.realtime.shapes import Shape

SHORTEST_S, LONGEST_S, USUAL_S = 10, 7200, 600
"""Bounds and default of ``expires_after.seconds`` in the API reference."""


class ExpiresAfter(Shape):
    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Field(ge=SHORTEST_S, le=LONGEST_S)] = USUAL_S


class SecretRequest(Shape):
    """The body; an empty one is fine."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(default_factory=dict)


def secret_routes(issued: ClientSecrets, max_body_bytes: int) -> list[Route]:
    """``max_body_bytes``: the largest request body."""

    async def create(request: Request) -> Response:
        """200 with the secret and its session; 400, 413 and 503 as errors."""
        assistant: AssistantLike = request.app.state.assistant
        if reasons := health.nameless(assistant):
            return health.not_ready_response(reasons)
        body = await read_body(request, max_body_bytes, " (limits.http_body_kb)")
        answered = _answer(issued, body, request, assistant.defaults())
        return JSONResponse(answered, headers={"Cache-Control": "no-store"})

    return [Route("/v1/realtime/client_secrets", create, methods=["POST"])]


def _answer(
    issued: ClientSecrets, body: bytes, request: Request, defaults: SessionDefaults
) -> dict[str, Any]:
    given = parsed(SecretRequest, body or b"{}")
    session = effective_session(defaults, given.session)
    seconds, maker = given.expires_after.seconds, maker_of(request.scope[CALLER])
    value, secret = issued.issue(seconds, given.session, maker)
    return {"value": value, "expires_at": secret.expires_at, "session": session}


def effective_session(defaults: SessionDefaults, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The session that a connection with these fields will have. Raises ``WireError``."""
    session = EffectiveSession(
        defaults_for(defaults, {}, fields), f"sess_{secrets.token_hex(12)}", time.time()
    )
    if fields:
        message = wire.parse(json.dumps({"type": "session.update", "session": fields}))
        session.update(shapes.read(schema.SessionUpdate, message.body).session)
    return session.shown()
