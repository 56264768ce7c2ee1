"""Options that all engines by URL share."""

from __future__ import annotations

from typing import Annotated, Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from pipeline.engines.registry import EngineOptions


def base_url(text: str) -> str:
    """``text`` without a trailing slash. Raises ``ValueError`` if it is not an HTTP address."""
    try:
        parts = urlsplit(text.strip())
        parts.port  # noqa: B018, raises if it is not a number
    except ValueError:
        raise ValueError("must be an address such as http://192.168.1.5:8080/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://192.168.1.5:8080/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a name or password; use api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not contain a ? or a #")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def joined(base: str, path: str) -> str:
    """``path`` below ``base``. If ``path`` begins with a slash, it replaces the ``/v1`` of ``base``
    but keeps what precedes it: a proxy may serve the API below a prefix."""
    return f"{base.removesuffix('/v1')}{path}" if path.startswith("/") else f"{base}/{path}"


def _header_value(key: SecretStr) -> SecretStr:
    """``key`` without the line end of its file. Checked here, as httpx's error would quote it."""
    text = key.get_secret_value().strip()
    if not (text.isascii() and text.isprintable()):
        raise ValueError("must be ASCII, without line ends inside")
    return SecretStr(text)


Seconds = Annotated[float, Field(gt=0, le=600)]


class UrlOptions(EngineOptions):
    url: Annotated[str, AfterValidator(base_url)]
    """Base address of the server's API, such as ``http://192.168.1.5:8080/v1``."""
    model: str | None = Field(default=None, min_length=1)
    """Name of the model at the server; null: one that runs, else the first that it lists."""
    api_key: Annotated[SecretStr, AfterValidator(_header_value)] | None = Field(
        default=None, repr=False
    )
    """Sent as ``Authorization: Bearer``; set it in the environment rather than in a file."""
    max_requests: int = Field(default=8, ge=1, le=256)
    """Concurrent requests; further ones wait, and confirmed answers go first."""
    connect_s: Seconds = 2.0
    """Longest wait for a connection."""
    first_s: Seconds = 20.0
    """Longest wait for an answer to begin."""
    between_s: Seconds = 10.0
    """Longest silence in the middle of an answer."""
    start_s: float = Field(default=120.0, ge=0, le=86_400)
    """How long to wait for the server at startup."""
    check: str | None = "models"
    """Path for health checks, relative to ``url``; null turns them off."""
    warm_up: bool = True
    """Send one small request at startup, so that the server loads its model; not to OpenAI. A model
    that the server does not list is asked for in any case."""
    keep_warm: bool = False
    """Repeat that small request after 4 minutes without another, so that the server keeps its model
    loaded."""
    extra: dict[str, Any] = Field(default={})
    """More fields for the body of each request; a null value removes a default field."""

    @model_validator(mode="after")
    def _runs_nowhere(self) -> Self:
        if self.run_in is not None:
            raise ValueError("run_in is for engines on this machine, not for engines by URL")
        return self

    @property
    def key(self) -> str:
        """The API key, or an empty text. Never log it."""
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def with_extra(self, body: dict[str, Any]) -> dict[str, Any]:
        """``body`` overridden by ``extra``."""
        whole = {**body, **self.extra}
        return {key: value for key, value in whole.items() if value is not None}
