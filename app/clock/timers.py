"""The timers that are set, and those that are due. Pure: the caller passes times.

A timer takes as long as it was set for, even if the wall clock is set meanwhile; alarms and
reminders are due when the wall clock says so. So are timers that were set before the machine
started: its clock may be wrong then, and is put right once it reaches the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

MOST_ENTRIES = 100
EXPIRY_S = 12 * 3600.0
"""Entries still unheard this long after they were due are dropped."""
LONGEST_S = 366 * 86_400.0
STARTED_S = 600.0
"""Less than this since the machine started, entries from before were set before it did."""

Kind = Literal["timer", "alarm", "reminder"]


class Moment(NamedTuple):
    wall: float
    """Seconds since 1970."""
    steady: float
    """Seconds since the machine started, by a clock that is never set and keeps running while the
    machine sleeps."""


class ClockEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    due: float = Field(ge=0, le=1e11)
    """Seconds since 1970."""
    length_s: float = Field(default=0.0, ge=0, le=1e11)
    """Of a timer, and of a reminder after a while."""
    text: str = ""
    place: str = ""
    """Whose conversation set it, in ``language``."""
    language: str = ""


ENTRIES = TypeAdapter(tuple[ClockEntry, ...])


class Timers:
    def __init__(self, now: Moment, before: Sequence[ClockEntry] = ()) -> None:
        """``before``: the entries that were set before the last restart."""
        self.entries = tuple(before)
        self._fixed = set(before if now.steady < STARTED_S else ())
        """Those that no change of the wall clock moves: they were due, or were set before the
        machine started."""
        self._ahead = now.wall - now.steady

    def follow(self, now: Moment) -> None:
        """If the wall clock was set, move the entries that are due after a length of time."""
        ahead = now.wall - now.steady
        jump, self._ahead = ahead - self._ahead, ahead
        self.entries = tuple(
            each.model_copy(update={"due": each.due + jump})
            if each.length_s and each not in self._fixed
            else each
            for each in self.entries
        )

    def on(self, now: Moment) -> list[ClockEntry]:
        """The entries that are due and not removed; drops those that are long overdue."""
        self.follow(now)
        self.entries = tuple(each for each in self.entries if each.due > now.wall - EXPIRY_S)
        due = [each for each in self.entries if each.due <= now.wall]
        self._fixed = {*due, *self._fixed.intersection(self.entries)}
        return due

    def next_s(self, now: Moment) -> float | None:
        """Seconds until the next entry is due; ``None``: there is none."""
        return min((e.due - now.wall for e in self.entries if e.due > now.wall), default=None)

    def add(self, entry: ClockEntry) -> bool:
        """Add ``entry``; False if there are too many."""
        if len(self.entries) >= MOST_ENTRIES:
            return False
        self.entries = tuple(sorted((*self.entries, entry), key=lambda each: each.due))
        return True

    def remove(self, entries: Sequence[ClockEntry]) -> None:
        self.entries = tuple(each for each in self.entries if each not in entries)


def next_at(now: datetime, hour: int, minute: int, date: str = "") -> datetime | None:
    """The next ``hour:minute``, or that of ``date`` (ISO 8601), in local time; ``None`` if it is
    in the past. Where daylight saving time skips it, an hour later."""
    at = (datetime.fromisoformat(date) if date else now).replace(
        hour=hour, minute=minute, second=0, microsecond=0, fold=now.fold
    )
    if not date and at <= now:
        at += timedelta(days=1)
    return at if at > now else None
