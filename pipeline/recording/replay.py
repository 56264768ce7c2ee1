"""Runs a recorded session again: the same commands, the engine results that the file holds, and
a clock that jumps. The same recording gives the same bytes every time."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.bus import Bus, Published
from pipeline.conversation.chat import Chat
from pipeline.conversation.lasting_conversation import LastingConversation
from pipeline.conversation.memory import Memory
from pipeline.errors import ConfigError
from pipeline.events import TurnUnderWay
from pipeline.recording.hearings import ReplayedHearing
from pipeline.recording.plain import to_plain
from pipeline.recording.reading import LATE_S, HeldSession
from pipeline.recording.recorded import id_kind
from pipeline.recording.replayed import Player, replayed_stages
from pipeline.recording.virtual_time import VirtualLoop
from pipeline.session import Session
from pipeline.settings import SessionSettings
from pipeline.turn_record import TurnRecord

ROUNDING_S = 1e-6
"""How exactly a recording holds times."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What happened in a replay. ``published``: with seconds since the session began."""

    published: tuple[Published, ...]
    stopped: str | None
    """Why it could not go on, for a person."""
    otherwise: int = 0
    """How many engine calls were asked something else than in the recording, and got the answer
    that was given there at that time."""
    unfinished: tuple[Published, ...] = ()
    """What only its end made happen, where that is not the end of the recorded session."""

    @property
    def records(self) -> list[tuple[float, TurnRecord]]:
        """The turn records, and when each was made."""
        return _records(self.published)

    @property
    def unfinished_records(self) -> list[tuple[float, TurnRecord]]:
        """Those of turns that were under way when the replay ended."""
        return _records(self.unfinished)

    @property
    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """All events as a recording has them."""
        told = [each for each in self.published if not isinstance(each.event, TurnUnderWay)]
        return [(round(at, 6), to_plain(event, audio=False)) for at, event in told]

    def lines(self, name: str) -> Iterator[str]:
        """All events as lines of a recording."""
        for at, event in self.events:
            line = {"kind": "event", "session": name, "at": at, "event": event}
            yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _records(published: Iterable[Published]) -> list[tuple[float, TurnRecord]]:
    return [(at, event) for at, event in published if isinstance(event, TurnRecord)]


def replay(held: HeldSession, settings: SessionSettings | None = None) -> Replayed:
    """Run it again, faster than it was. ``settings``: others than it had, to see what if.

    Needs no engine and no weights. Must not be called on a running event loop.
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_replay(held, settings))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _replay(held: HeldSession, settings: SessionSettings | None) -> Replayed:
    player = Player(held, what_if=settings is not None)
    stages = replayed_stages(player)
    published: list[Published] = []
    bus = Bus()
    bus.tap(published.append)
    ids = _Ids(held.ids, player)
    memory = Memory(_chat(held.items), LastingConversation(stages)) if held.items else None
    begun = (stages, held.config, settings or held.settings, bus, ids, memory)
    session = Session(*begun, ReplayedHearing(held))
    running = asyncio.create_task(session.run())
    playing = asyncio.create_task(_play(held, player, session))
    either: set[asyncio.Future[Any]] = {running, playing, player.stopped}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopped = player.stopped.result() if player.stopped.done() else None
    seen = tuple(published)
    await _end(playing)
    error = await _end(running)
    if error is not None:
        stopped = f"After {player.now:.3f} s the session failed: {type(error).__name__}: {error}"
    # How it ended is a part of the recording only if that has its end.
    if held.whole and not stopped:
        seen = tuple(published)
    return Replayed(seen, stopped, player.otherwise, tuple(published[len(seen) :]))


async def _end(task: asyncio.Task[None]) -> BaseException | None:
    """Cancel a task, and wait; the error that it ended with."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()


async def _play(held: HeldSession, player: Player, session: Session) -> None:
    """Hand over each command at its time, and return when the recording ends."""
    for at, command in held.commands:
        await asyncio.sleep(max(0.0, at - player.now))
        await session.submit(command)
    rounding_s = ROUNDING_S if held.stopped_at is None else 0.0
    await asyncio.sleep(max(0.0, held.end_s + rounding_s - player.now))


def _chat(items: Iterable[Any]) -> Chat:
    chat = Chat()
    for item in items:
        chat.add(item)
    return chat


class _Ids:
    """Gives the recorded ids again, each for what it was made for, and about when."""

    def __init__(self, ids: Iterable[tuple[float, str, str]], player: Player) -> None:
        self._left: defaultdict[str, deque[tuple[float, str]]] = defaultdict(deque)
        self._player = player
        self._numbers = itertools.count(1)
        self._before = ""
        for at, kind, made in ids:
            self._left[kind].append((at, made))

    def __call__(self, prefix: str) -> str:
        kind, self._before = id_kind(prefix, self._before), prefix
        left, now = self._left[kind], self._player.now
        while left and left[0][0] < now - LATE_S:
            left.popleft()  # it was not asked for here
        if left and left[0][0] < now + LATE_S:
            return left.popleft()[1]
        return f"{prefix}_new{next(self._numbers)}"


# --- what if -----------------------------------------------------------------------------------

_PLAYBACK = {"playback.lead_ms": "lead_ms", "playback.chunk_ms": "chunk_ms"}


def changed(settings: SessionSettings, name: str, value: Any) -> SessionSettings:
    """``settings`` with one value, by the name that it has in the YAML. Raises ``ConfigError``."""
    section, _, field = name.partition(".")
    model = getattr(settings, section, None)
    if name in _PLAYBACK and isinstance(value, int) and value > 0:
        change: dict[str, Any] = {_PLAYBACK[name]: value}
        return replace(settings, **change)
    if not isinstance(model, BaseModel) or field not in type(model).model_fields:
        raise _cannot_set(settings, name, value, "a replay does not depend on it")
    try:
        change = {section: type(model).model_validate({**model.model_dump(), field: value})}
    except ValidationError as problem:
        raise _cannot_set(settings, name, value, problem.errors()[0]["msg"]) from problem
    return replace(settings, **change)


def _cannot_set(settings: SessionSettings, name: str, value: Any, why: str) -> ConfigError:
    models = {field.name: getattr(settings, field.name) for field in fields(settings)}
    known = [
        f"{section}.{field}"
        for section, model in models.items()
        if isinstance(model, BaseModel)
        for field in type(model).model_fields
    ]
    fix = f"Set one of: {', '.join([*known, *_PLAYBACK])}"
    return ConfigError(f"{name} cannot be {value!r} in a replay", why=why, fix=fix)
