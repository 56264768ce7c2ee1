"""The robot's daemon: which app runs, and starting one (REST of reachy-mini 1.13.0)."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from app.pairing.steps import CONVERSATION_APP, Robot, in_url, plain


@dataclass(frozen=True, slots=True)
class RunningApp:
    """``state``: starting, running, done, stopping or error; ``error``: its last words."""

    name: str
    state: str
    error: str = ""

    @property
    def over(self) -> bool:
        """It has ended by itself, and holds the robot no more."""
        return self.state == "done"


class DaemonError(Exception):
    """``status`` is that of HTTP; ``None``: nobody answers."""

    def __init__(self, detail: str, status: int | None = None) -> None:
        super().__init__(detail, status)
        self.detail = detail
        self.status = status


class Daemon:
    """The daemon of one robot. ``timeout_s`` is for one request."""

    def __init__(self, robot: Robot, timeout_s: float) -> None:
        # Nothing is encrypted here, and loading certificates takes a while.
        self._client = httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False)
        self._base = f"http://{in_url(robot.address)}:{robot.daemon_port}/api/apps"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def current(self) -> RunningApp | None:
        """The app that runs or has ended last. Raises ``DaemonError``."""
        return _app(await self._ask("GET", "current-app-status"))

    async def installed(self) -> list[str]:
        """Names of the apps that it can start. Raises ``DaemonError``."""
        listed = await self._ask("GET", "list-available/installed")
        if not isinstance(listed, list):
            raise DaemonError("its list of apps is not understood", 200)
        names = [entry.get("name") for entry in listed if isinstance(entry, dict)]
        return [name for name in names if isinstance(name, str)]

    async def start(self, name: str) -> None:
        """Raises ``DaemonError``; 400 if another app runs."""
        await self._ask("POST", f"start-app/{name}")

    async def restart(self) -> None:
        """The app that runs, or has failed. Raises ``DaemonError``; 400 if there is none."""
        await self._ask("POST", "restart-current-app")

    async def _ask(self, method: str, path: str) -> Any:
        try:
            answer = await self._client.request(method, f"{self._base}/{path}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DaemonError(plain(error) or type(error).__name__) from error
        try:
            body = answer.json()
        except ValueError:
            body = None
            if answer.is_success:
                raise DaemonError("its answer is not JSON", answer.status_code) from None
        if not answer.is_success:
            detail = body.get("detail") if isinstance(body, dict) else None
            shown = plain(detail) if isinstance(detail, str) else f"HTTP {answer.status_code}"
            raise DaemonError(shown, answer.status_code)
        return body


def _app(body: Any) -> RunningApp | None:
    if body is None:
        return None
    info = body.get("info") if isinstance(body, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    state = body.get("state") if isinstance(body, dict) else None
    if not isinstance(name, str) or not isinstance(state, str):
        raise DaemonError("the state of its app is not understood", 200)
    error = body.get("error")
    return RunningApp(plain(name), plain(state), last_words(error))


def last_words(error: object) -> str:
    """The last line of an app's error, which is where Python says what it was."""
    lines = [line for line in error.splitlines() if line.strip()] if isinstance(error, str) else []
    return plain(lines[-1]) if lines else ""


def conversation_app(names: list[str]) -> str | None:
    """The conversation app among those installed; somebody's own version counts if it is the only
    one."""
    if CONVERSATION_APP in names:
        return CONVERSATION_APP
    similar = [name for name in names if "conversation" in name.lower()]
    return similar[0] if len(similar) == 1 else None
