"""Replays the commands of a recorded session in a new one, at their times."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipeline.bus import Bus, Published
from pipeline.commands import (
    AddItem,
    CancelResponse,
    Command,
    DeleteItem,
    NoteDirection,
    RetrieveItem,
    TruncateItem,
)
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.echo.sent import ClientEcho
from pipeline.engines.stages import Stages
from pipeline.events import Event, InputCommitted, ReplyItemStarted
from pipeline.hearing.client_echo import EchoHearing, Hearing
from pipeline.items import FunctionCallItem, FunctionOutputItem
from pipeline.recording.reading import RecordedRun
from pipeline.session import Session
from pipeline.settings import Echo
from pipeline.turn_record import TurnRecord

LAST_ANSWER_S = 30.0
"""How long an answer may continue after the recording ends."""

Begin = Callable[[Bus, Memory | None, Hearing], Session]


class RecordedRoom(EchoHearing):
    """Hears the recorded echo, which is of the audio sent then, not in the replay."""

    def __init__(self, window_samples: int, settings: Echo) -> None:
        super().__init__(ClientEcho(window_samples), settings)

    def note(self, published: Published) -> None:
        """No-op: the replay's audio is not in the recorded room."""

    def sent_then(self, event: Event) -> None:
        super().note(Published(asyncio.get_running_loop().time(), event))


@dataclass(slots=True)
class Replayed:
    records: list[tuple[float, TurnRecord]] = field(default_factory=list)
    """With the seconds since the session began."""
    left_out: int = 0
    """Commands about an answer or call that does not exist in the replay."""


async def replay(run: RecordedRun, stages: Stages, echo: Echo, begin: Begin) -> Replayed:
    """Play ``run`` in real time to the session that ``begin`` makes on ``stages``. Engines must be
    ready."""
    began_at = asyncio.get_running_loop().time()
    replayed, ids, bus = Replayed(), _Ids(), Bus()

    def note(published: Published) -> None:
        ids.ours(published.event)
        if isinstance(published.event, TurnRecord):
            replayed.records.append((published.at - began_at, published.event))

    bus.tap(note)
    room = RecordedRoom(stages.vad.window_samples, echo)
    session = begin(bus, _memory(run, stages), room)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(session.run())
        for at, step in run.steps:
            await asyncio.sleep(began_at + at - asyncio.get_running_loop().time())
            if not isinstance(step, Command):
                ids.theirs(step)
                room.sent_then(step)
            elif (command := ids.translated(step)) is None:
                replayed.left_out += 1
            elif isinstance(command, NoteDirection):
                session.offer(command)
            else:
                await session.submit(command)
        await asyncio.sleep(began_at + run.last_at - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(LAST_ANSWER_S):
                await session.quiet()
        except TimeoutError:
            pass
        running.cancel()
    return replayed


def _memory(run: RecordedRun, stages: Stages) -> Memory | None:
    if not run.items:
        return None
    chat = Chat()
    for item in run.items:
        chat.add(item)
    return Memory(chat, LastingConversation(stages))


class _Ids:
    """Maps recorded ids to those of the replay, by position: the answer before last is still the
    answer before last."""

    def __init__(self) -> None:
        self._theirs: defaultdict[str, list[str]] = defaultdict(list)
        self._ours: defaultdict[str, list[str]] = defaultdict(list)

    def theirs(self, event: Event) -> None:
        _add(self._theirs, event)

    def ours(self, event: Event) -> None:
        _add(self._ours, event)

    def translated(self, command: Command) -> Command | None:
        """``command`` with the ids of the replay; ``None``: the replay has no counterpart."""
        match command:
            case CancelResponse():
                return replace(command, response_id=None)
            case DeleteItem() | RetrieveItem() | TruncateItem():
                found = self._now(command.item_id)
                return None if found is None else replace(command, item_id=found)
            case AddItem(item=FunctionOutputItem() as item):
                if (found := self._now(item.call_id)) is None:
                    return None
                return replace(command, item=replace(item, call_id=found))
            case AddItem(after=str(after)):
                return replace(command, after=self._now(after))
        return command

    def _now(self, known: str) -> str | None:
        for kind, ids in self._theirs.items():
            if known in ids:
                back = len(ids) - ids.index(known)
                ours = self._ours[kind]
                return ours[-back] if back <= len(ours) else None
        return known  # the client chose it


def _add(known: defaultdict[str, list[str]], event: Event) -> None:
    match event:
        case InputCommitted():
            known["speech"].append(event.item_id)
        case ReplyItemStarted(item=FunctionCallItem() as item):
            known["calls"].append(item.id)
            known["call ids"].append(item.call_id)
        case ReplyItemStarted():
            known["messages"].append(event.item.id)
