"""HTTP errors in the shape that OpenAI's clients read: ``{"error": {"message", "type", ...}}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

ModelT = TypeVar("ModelT", bound=BaseModel)

RETRY = {"Retry-After": "2"}
"""For a client that may try again: engines take seconds to warm up."""

_KINDS = {429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed"}


class ApiError(Exception):
    """Becomes the error response to a request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``status``: of HTTP. ``param``: the wrong field."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers

    @property
    def body(self) -> Mapping[str, Any]:
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(self.status, usual)
        error = {"message": self.message, "type": kind, "code": self.code, "param": self.param}
        return {"error": error}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, headers=self.headers)

    def raw(self) -> bytes:
        """The whole response, for a connection that has sent no request that can be understood."""
        body = json.dumps(self.body).encode()
        status = f"{self.status} {HTTPStatus(self.status).phrase}"
        return (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer Starlette's own refusals: no such path, no such method."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    code = _CODES.get(error.status_code, "invalid_request")
    return ApiError(error.status_code, code, message, headers=error.headers).response()


def parsed(kind: type[ModelT], body: bytes | Mapping[str, Any]) -> ModelT:
    """A JSON body, or the fields of a form, as a ``kind``. Raises ``ApiError`` (400)."""
    try:
        if isinstance(body, bytes):
            return kind.model_validate_json(body)
        return kind.model_validate(body)
    except ValidationError as errors:
        found = errors.errors(include_url=False, include_input=False)
        first = max(found, key=lambda each: len(each["loc"]))  # what fits best of several kinds
        param = ".".join(map(str, first["loc"])) or None
        where = f" at '{param}'" if param else ""
        code = "invalid_json" if first["type"] == "json_invalid" else "invalid_value"
        raise ApiError(400, code, f"Invalid body{where}: {first['msg']}", param) from None


async def read_body(request: Request, max_bytes: int, setting: str = "") -> bytes:
    """The whole body. Raises ``ApiError`` as soon as it is too large (413), or the client has gone.
    ``setting``: the name of the limit, in brackets."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                message = f"The body may have at most {max_bytes} bytes{setting}."
                raise ApiError(413, "request_too_large", message)
            parts.append(part)
    except ClientDisconnect:
        raise ApiError(400, "client_gone", "The client has gone.") from None
    return b"".join(parts)


def form_of(request: Request, body: bytes) -> AbstractAsyncContextManager[FormData]:
    """Parse the form in a body that has already been read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    return Request(request.scope, receive).form()
