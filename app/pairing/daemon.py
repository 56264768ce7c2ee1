"""The robot's daemon: which app runs, and starting one (REST of reachy-mini 1.13.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from app.pairing.json_http import JsonHttp, NoAnswer
from app.pairing.steps import CONVERSATION_APP, Robot, in_url, plain, read_json


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
    """``status``: of HTTP; ``None``: no answer."""

    def __init__(self, detail: str, status: int | None = None) -> None:
        super().__init__(detail, status)
        self.detail = detail
        self.status = status


class Daemon(JsonHttp):
    """The daemon of one robot. ``timeout_s`` is for one request."""

    def __init__(self, robot: Robot, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._base = f"http://{in_url(robot.address)}:{robot.daemon_port}/api/apps"

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

    async def start(self, name: str, patience_s: float) -> None:
        """Raises ``DaemonError``; 400 if another app runs."""
        await self._ask("POST", f"start-app/{quote(name, safe='')}", patience_s)

    async def restart(self, patience_s: float) -> None:
        """The app that runs, or has failed: the answer comes when it has begun anew. Raises
        ``DaemonError``; 400 if there is none."""
        await self._ask("POST", "restart-current-app", patience_s)

    async def _ask(self, method: str, path: str, patience_s: float | None = None) -> Any:
        try:
            status, text = await self.ask(method, f"{self._base}/{path}", answer_s=patience_s)
        except NoAnswer as error:
            raise DaemonError(error.detail) from error
        fine = 200 <= status < 300
        try:
            body = read_json(text)
        except ValueError:
            body = None
            if fine:
                raise DaemonError("its answer is not JSON", status) from None
        if not fine:
            detail = body.get("detail") if isinstance(body, dict) else None
            raise DaemonError(
                plain(detail) if isinstance(detail, str) else f"HTTP {status}", status
            )
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
    """The conversation app among those installed; a modified version counts if it is the only
    one."""
    if CONVERSATION_APP in names:
        return CONVERSATION_APP
    similar = [name for name in names if "conversation" in name.lower()]
    return similar[0] if len(similar) == 1 else None
