"""The timer tools of one session: a ``pipeline.tools.contract.ToolServer`` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.clock.clock import Clock
from app.clock.phrases import UNCLEAR
from app.clock.timers import LONGEST_S, MOST_ENTRIES, ClockEntry, Kind, next_at
from pipeline.commands import ServerRequest
from pipeline.tools.contract import CallResult, ServerTool, ToolServer, ToolServers

LABEL = "this machine's clock"
"""No server of the owner's can have this label."""


class _Nothing(BaseModel):
    pass


class _After(BaseModel):
    text: str = Field(default="", max_length=300, description="what it is for")
    seconds: float = Field(default=0, ge=0, le=LONGEST_S)
    minutes: float = Field(default=0, ge=0, le=LONGEST_S / 60)
    hours: float = Field(default=0, ge=0, le=LONGEST_S / 3600)

    @property
    def total_s(self) -> float:
        return self.seconds + 60 * self.minutes + 3600 * self.hours


_TIME: Any = {"pattern": r"^([01]?\d|2[0-3]):[0-5]\d$", "description": "24 hours, HH:MM"}
_DATE: Any = {"pattern": r"^(2\d{3}-\d\d-\d\d)?$", "description": "YYYY-MM-DD; none: the next time"}


class _At(BaseModel):
    time: str = Field(**_TIME)
    date: str = Field(default="", **_DATE)


class _Reminder(_After):
    text: str = Field(max_length=300)
    time: str = Field(default="", pattern=_TIME["pattern"] + "|^$", description="or HH:MM")
    date: str = Field(default="", **_DATE)


class _Which(BaseModel):
    model_config = ConfigDict(extra="forbid")  # passed over, "time" would cancel all

    kind: Kind
    text: str = Field(default="", max_length=300, description="which; none: all of the kind")
    seconds: float = Field(default=0, description="length of the timer")

    def fits(self, entry: ClockEntry) -> bool:
        """Whether ``entry`` is meant: "noodle" also fits the timer for noodles, and "Anna" the
        reminder to call Anna."""
        names = sorted((self.text.lower(), entry.text.lower()), key=len)
        named = not self.text or (names[0] and f" {names[0]}" in f" {names[1]}")
        return bool(entry.kind == self.kind and named and self.seconds in (0, entry.length_s))


_TOOLS: Mapping[str, tuple[type[BaseModel], str]] = {
    "now": (_Nothing, "Tell the day and the time."),
    "set_timer": (_After, "Set a timer."),
    "set_alarm": (_At, "Set an alarm for a time."),
    "set_reminder": (_Reminder, "Remind the user of something, after a while or at a time."),
    "list_timers": (_Nothing, "Tell which timers, alarms and reminders are set."),
    "cancel_timer": (_Which, "Cancel what is set: timer, alarm or reminder."),
    UNCLEAR: (_Nothing, "Tell that a request about timers was not understood."),
}


_READ_ONLY = ("now", "list_timers", UNCLEAR)


class ClockTools:
    label = LABEL

    def __init__(
        self, clock: Clock, place: str, language: Callable[[], str], *, offered: bool
    ) -> None:
        """``place`` and ``language()``: of the session. ``offered``: whether the model is told
        about the tools."""
        self._clock = clock
        self._place = place
        self._language = language
        self.tools: Sequence[ServerTool] = [
            ServerTool(name, text, _schema(kind), name in _READ_ONLY, offered and name != UNCLEAR)
            for name, (kind, text) in _TOOLS.items()
        ]

    async def wait_for_tools(self) -> str:
        return ""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        if name not in _TOOLS:
            return CallResult(error=f"There is no tool {name}.")
        try:
            given = {key: each for key, each in arguments.items() if each not in (None, "")}
            request = _TOOLS[name][0].model_validate(given)
        except ValidationError as error:
            return CallResult(error=f"The arguments do not fit: {error.errors()[0]['msg']}.")
        return CallResult(await self._answer(name, request))

    async def _answer(self, name: str, request: BaseModel) -> str:
        wall = self._clock.look().wall
        match request:
            case _At(time=time, date=date):
                return await self._set("alarm", "", 0, time, date)
            case _Reminder(text=text, time=time, date=date):
                return await self._set("reminder", text, request.total_s, time, date)
            case _After(text=text):
                return await self._set("timer", text, request.total_s)
            case _Which():
                return await self._cancel([each for each in self._mine if request.fits(each)])
            case _ if name == "now":
                sentences, language = self._clock.sentences, self._language()
                return sentences.now(datetime.fromtimestamp(wall), language)
            case _ if name == UNCLEAR:
                return self._say("unclear")
        entries = [e.model_copy(update={"language": self._language()}) for e in self._mine]
        items = [
            self._clock.sentences.of("item" if entry.due > wall else "due", entry, wall)
            for entry in entries
        ]
        return " ".join(items) or self._say("none")

    async def _cancel(self, entries: Sequence[ClockEntry]) -> str:
        if not entries:
            return self._say("no_such" if self._mine else "none")
        await self._clock.remove(entries)
        name = "cancelled" if len(entries) == 1 else "cancelled_all"
        return self._or_warn(self._say(name, n=len(entries)))

    async def _set(
        self, kind: Kind, text: str, length_s: float, time: str = "", date: str = ""
    ) -> str:
        wall = self._clock.now().wall
        due = wall + length_s
        if time:
            hour, _, minute = time.partition(":")
            try:
                at = next_at(datetime.fromtimestamp(wall), int(hour), int(minute), date)
            except ValueError:  # 30 February
                at = None
            due = at.timestamp() if at else wall
            length_s = 0
        if due <= wall:
            return self._say("past")
        entry = ClockEntry(
            kind=kind,
            due=due,
            length_s=length_s,
            text=text,
            place=self._place,
            language=self._language(),
        )
        if not await self._clock.add(entry):
            return self._say("full")
        return self._or_warn(self._clock.sentences.of("set", entry, wall))

    def _or_warn(self, text: str) -> str:
        return text if self._clock.saved else f"{text} {self._say('unsaved')}"

    @property
    def _mine(self) -> list[ClockEntry]:
        return [each for each in self._clock.timers.entries if each.place == self._place]

    def _say(self, name: str, n: int = MOST_ENTRIES) -> str:
        return self._clock.sentences.say(name, self._language(), n=n)


def _schema(kind: type[BaseModel]) -> Mapping[str, Any]:
    schema = kind.model_json_schema()
    properties = {
        name: {
            key: value for key, value in each.items() if key in ("type", "description", "pattern")
        }
        for name, each in schema.get("properties", {}).items()
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


class WithClock:
    """A ``pipeline.tools.contract.ToolServers``: the clock's tools, and those of ``others``."""

    def __init__(self, clock: ClockTools, others: ToolServers) -> None:
        self._clock = clock
        self._others = others

    @property
    def owners(self) -> Sequence[ToolServer]:
        return (self._clock, *self._others.owners)

    def open(self, request: ServerRequest, changed: Callable[[], None]) -> ToolServer:
        return self._others.open(request, changed)
