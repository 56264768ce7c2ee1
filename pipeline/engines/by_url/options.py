"""What every engine by URL can be told."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from pipeline.engines.by_url.addresses import base_url
from pipeline.engines.registry import EngineOptions

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
