"""What every engine by URL can be told."""

from __future__ import annotations

from typing import Annotated, Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from pipeline.engines.registry import EngineOptions


def base_url(text: str) -> str:
    """``text`` without a slash at its end. Raises ``ValueError`` for what is no such address."""
    try:
        parts = urlsplit(text.strip())
        parts.port  # noqa: B018, raises for what is no number
    except ValueError:
        raise ValueError("must be an address as http://192.168.1.5:8080/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address as http://192.168.1.5:8080/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a name or password; use api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a ? or a #")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def joined(base: str, path: str) -> str:
    """``path`` below ``base``; from the server's root if it begins with a slash."""
    if path.startswith("/"):
        parts = urlsplit(base)
        return f"{parts.scheme}://{parts.netloc}{path}"
    return f"{base}/{path}"


Seconds = Annotated[float, Field(gt=0, le=600)]


class UrlOptions(EngineOptions):
    url: Annotated[str, AfterValidator(base_url)]
    """Where the server's API begins, as ``http://192.168.1.5:8080/v1``."""
    model: str | None = Field(default=None, min_length=1)
    """Which model, by its name at the server; null: the first that it lists."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Sent as ``Authorization: Bearer``; better from the environment than from a file."""
    max_requests: int = Field(default=8, ge=1, le=256)
    """Requests at the same time; more wait, confirmed answers first."""
    connect_s: Seconds = 2.0
    """Longest wait for a connection."""
    first_s: Seconds = 20.0
    """Longest wait for the beginning of an answer."""
    between_s: Seconds = 10.0
    """Longest silence in the middle of one."""
    start_s: float = Field(default=120.0, ge=0, le=86_400)
    """How long to wait for the server when we start."""
    check: str | None = "models"
    """What is asked to see whether the server is well, relative to ``url``; null asks nothing."""
    warm_up: bool = True
    """One small request when the server is found, so that its model is loaded; never at OpenAI."""
    extra: dict[str, Any] = Field(default={})
    """More fields for the body of each request; null takes one of ours away."""

    @model_validator(mode="after")
    def _runs_nowhere(self) -> Self:
        if self.run_in is not None:
            raise ValueError("run_in is for engines of this machine, not for those by URL")
        return self

    @property
    def key(self) -> str:
        """Empty: none. Not for logs."""
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def with_extra(self, body: dict[str, Any]) -> dict[str, Any]:
        """``body`` with ``extra`` over it."""
        whole = {**body, **self.extra}
        return {key: value for key, value in whole.items() if value is not None}
