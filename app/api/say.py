"""``POST /v1/reachy/say``: ours, not OpenAI's."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.api_errors import ApiError, parsed
from app.announcing.announcer import (
    AnnouncementError,
    AnnouncementRequest,
    Announcer,
    UnknownConversation,
)
from app.api.answering import whole
from app.api.turnstile import Passage, Turnstile


async def say(
    request: Request, body: bytes, turnstile: Turnstile, announcer: Announcer
) -> Response:
    """Say an announcement, unless the client leaves before it begins. Raises ``ApiError``."""
    announcement = parsed(AnnouncementRequest, body)

    async def make(passage: Passage) -> Response:
        try:
            return JSONResponse(await announcer.announce(announcement))
        except UnknownConversation as error:
            raise ApiError(400, "unknown_name", str(error), "to") from None
        except AnnouncementError as error:
            raise ApiError(409, "not_said", str(error)) from None

    return await whole(request, turnstile, make)
