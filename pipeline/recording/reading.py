"""Reads what ``tape`` has written, as far as it goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.commands import Command, SessionConfig
from pipeline.echo.path import EchoWindow
from pipeline.recording.plain import RecordingError, from_plain
from pipeline.recording.tape import FORMAT
from pipeline.settings import SessionSettings

LATE_S = 0.25
"""How much later than in a replay things may happen on a live server, whose event loop is shared:
180 ms was seen with two conversations and a load of 11 on two cores."""


@dataclass(slots=True)
class HeldCall:
    """An engine call and all that is known of it. Times: seconds since the session began."""

    of: str
    key: str
    began: float
    at_once: bool = False
    items: list[tuple[float, Any]] = field(default_factory=list)
    """What it gave, and when; one thing, if it is no stream."""
    ended: float | None = None
    """``None``: the recording ends before it does."""
    left: bool = False
    """The caller stopped waiting before its end."""
    error: Mapping[str, Any] | None = None
    costs: list[tuple[float, float]] = field(default_factory=list)
    """When engine time was booked, and how many seconds."""

    @property
    def whole(self) -> bool:
        """Whether it went on to its own end."""
        stopped = self.error is not None and self.error["error"] == "Cancelled"
        return self.ended is not None and not self.left and not stopped


@dataclass(slots=True)
class HeldSession:
    """One session of a recording. ``events`` are plain data with their times."""

    name: str
    version: str
    config: SessionConfig
    settings: SessionSettings
    items: tuple[Any, ...]
    """The conversation that it went on with."""
    engines: Mapping[str, Any]
    commands: list[tuple[float, Command]] = field(default_factory=list)
    calls: list[HeldCall] = field(default_factory=list)
    ids: list[tuple[float, str, str]] = field(default_factory=list)
    """When an id was made, what for, and the id."""
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    echo: dict[int, EchoWindow] = field(default_factory=dict)
    """Windows in which there may have been an echo, by their first sample."""
    hears_itself: dict[int, bool] = field(default_factory=dict)
    """Whether an echo was taken off from the window on that begins there."""
    explained: dict[int, bool | None] = field(default_factory=dict)
    """Whether an echo explained what was heard, as asked with the window that begins there."""
    last_at: float = 0.0
    stopped_at: float | None = None
    """When it was told to end."""
    whole: bool = False
    """Whether its end was recorded."""
    numbered: dict[int, HeldCall] = field(default_factory=dict)
    """The calls by their number in the file."""
    early_costs: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Of calls whose own line comes when they end."""

    @property
    def end_s(self) -> float:
        """When it was told to end, or what is known of it ends."""
        return self.last_at if self.stopped_at is None else self.stopped_at


@dataclass(slots=True)
class HeldFile:
    """A recording: its sessions by name, and what is wrong with it, for a person."""

    sessions: dict[str, HeldSession]
    problems: list[str]


def read_file(path: Path) -> HeldFile:
    """Read a recording, up to its last whole line. Raises ``RecordingError``: it cannot be read,
    or is none."""
    try:
        with path.open("rb") as file:
            return _read(path, iter(file.readline, b""))
    except OSError as error:
        why = error.strerror or str(error)
        raise RecordingError(f"Cannot read {path}", why=why, fix="Name another file") from error


def _read(path: Path, lines: Any) -> HeldFile:
    held = HeldFile({}, [])
    version = ""
    open_names: set[str] = set()
    for number, text in enumerate(lines, 1):
        line = _parsed(text)
        if number == 1 and (line is None or line["kind"] != "file"):
            break
        if line and line["kind"] == "file":
            version = _version(path, line)
            open_names.clear()
        elif line is None or not _taken(held, line, version, open_names):
            whose = f"; it ends {', '.join(sorted(open_names))}" if open_names else ""
            held.problems.append(f"line {number} is damaged or cut off{whose}")
            open_names.clear()
    if not version:
        raise RecordingError(
            f"{path} is not a recording",
            why="its first line is not the one that --record writes",
            fix="Name a file that reachy-voice serve --record has written",
        )
    return held


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line as data; ``None`` for one that is not whole."""
    try:
        line = json.loads(text.decode("utf-8", "surrogatepass"))
        whole = line["kind"] == "file" or (line["session"] and line["at"] >= 0)
    except (ValueError, TypeError, KeyError):
        return None
    return line if whole and text.endswith(b"\n") else None


def _version(path: Path, line: Mapping[str, Any]) -> str:
    if line.get("format") != FORMAT:
        raise RecordingError(
            f"{path} cannot be played",
            why=f"it has format {line.get('format')}, this version reads format {FORMAT}",
            fix=f"Use the version that recorded it: {line.get('reachy_voice', 'unknown')}",
        )
    return str(line.get("reachy_voice", "unknown"))


def _taken(held: HeldFile, line: Mapping[str, Any], version: str, open_names: set[str]) -> bool:
    """Take a line of a session. False if it makes no sense."""
    name = line["session"]
    try:
        if line["kind"] == "session":
            held.sessions[name] = _session(line, version)
            open_names.add(name)
        elif name in open_names:
            _take(held.sessions[name], line)
            if held.sessions[name].whole:
                open_names.remove(name)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return True


def _session(line: Mapping[str, Any], version: str) -> HeldSession:
    config, settings, items = (from_plain(line[name]) for name in ("config", "settings", "items"))
    return HeldSession(line["session"], version, config, settings, items, line["engines"])


def _take(session: HeldSession, line: Mapping[str, Any]) -> None:
    session.last_at = max(session.last_at, line["at"])
    if take := _TAKERS.get(line["kind"]):
        take(session, line["at"], line)


def _command(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.commands.append((at, from_plain(line["command"])))


def _call(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    call = HeldCall(line["of"], line["key"], line.get("began", at), line.get("at_once", False))
    session.calls.append(call)
    session.numbered[line["call"]] = call
    call.costs += session.early_costs.pop(line["call"], ())
    if "began" in line:
        if "error" not in line and "left" not in line:
            call.items.append((at, from_plain(line["result"])))
        _done(session, at, line)


def _item(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.numbered[line["call"]].items.append((at, from_plain(line["item"])))


def _done(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    call = session.numbered[line["call"]]
    call.ended = at
    call.left = line.get("left", False)
    call.error = line.get("error")


def _cost(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    call = session.numbered.get(line["call"])
    costs = call.costs if call else session.early_costs.setdefault(line["call"], [])
    costs.append((at, line["engine_s"]))


def _id(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.ids.append((at, line["of"], line["id"]))


def _event(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.events.append((at, line["event"]))


def _echo(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    window = from_plain(line["window"])
    session.echo[window.frame.index] = window


def _hears_itself(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.hears_itself[line["index"]] = line["found"]


def _explains(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.explained[line["index"]] = line["explained"]


def _stop(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.stopped_at = at


def _end(session: HeldSession, at: float, line: Mapping[str, Any]) -> None:
    session.whole = True


_TAKERS: Mapping[str, Callable[[HeldSession, float, Mapping[str, Any]], None]] = {
    "command": _command,
    "call": _call,
    "item": _item,
    "done": _done,
    "cost": _cost,
    "id": _id,
    "event": _event,
    "echo": _echo,
    "hears_itself": _hears_itself,
    "explains": _explains,
    "stop": _stop,
    "end": _end,
}
