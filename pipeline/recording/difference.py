"""Whether a replay did what was recorded, and if not, what was different first.

A live server's timers come a little late, and a replay's do not. So times may differ by
``LATE_S``, the events of two subjects (an answer, an utterance) may meet the other way
round, and where an answer was cut off, a piece of it more or less may have been on its way.
Everything else must be equal.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.recording.reading import LATE_S

Timed = tuple[float, dict[str, Any]]
"""An event as plain data, and when it was published, in seconds since the session began."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``difference``: the first one, for a person; ``None`` if there is none. ``largest_ms``: by
    which times differ that count as equal. ``cuts``: answers of which a piece more or less had
    left when they were cut off."""

    events: int
    largest_ms: float
    cuts: int
    difference: str | None


@dataclass(slots=True)
class _Found:
    """What comes to light while subjects are compared."""

    largest_s: float = 0.0
    cuts: int = 0
    differences: list[tuple[float, str]] = field(default_factory=list)

    def add(self, at: float, text: str) -> None:
        self.differences.append((at, f"After {at:.3f} s: {text}."))


def compare(
    recorded: Sequence[Timed], replayed: Sequence[Timed], cut_s: float = math.inf
) -> Comparison:
    """Compare what was published. ``cut_s``: when one of the two was cut off; what only the other
    one has from then on does not count."""
    ours, theirs = _by_subject(replayed), _by_subject(recorded)
    found = _Found()
    for subject in {**theirs, **ours}:
        _compare_one(theirs[subject], ours[subject], cut_s - LATE_S, found)
    first = min(found.differences)[1] if found.differences else None
    return Comparison(len(recorded), found.largest_s * 1000, found.cuts, first)


def _by_subject(events: Sequence[Timed]) -> defaultdict[str, list[Timed]]:
    subjects: defaultdict[str, list[Timed]] = defaultdict(list)
    for at, event in events:
        subjects[_subject(event)].append((at, event))
    return subjects


def _subject(event: Mapping[str, Any]) -> str:
    if event["is"] == "TurnRecord":
        return f"TurnRecord {event.get('reply_id') or event.get('item_id')}"
    if "reply_id" in event:
        return str(event["reply_id"])
    item = event.get("item") or {}
    return str(event.get("item_id") or item.get("id") or event["is"])


def _compare_one(
    recorded: Sequence[Timed], replayed: Sequence[Timed], cut_s: float, found: _Found
) -> None:
    """Compare the events of one subject, up to the first difference."""
    cancelled = _is_cancelled(recorded) and _is_cancelled(replayed)
    if cancelled:
        spare = len(_pieces(recorded)) - len(_pieces(replayed))
        recorded = _without_last_pieces(recorded, spare)
        replayed = _without_last_pieces(replayed, -spare)
        found.cuts += spare != 0
    for (at, event), (our_at, our_event) in zip(recorded, replayed, strict=False):
        if event["is"] != our_event["is"]:
            text = f"the recording has {_name(event)}, the replay {_name(our_event)}"
            return found.add(min(at, our_at), text)
        if path := _unequal(_told(event, cancelled), _told(our_event, cancelled)):
            return found.add(at, f"{_name(event)}: {path}")
        apart_s = abs(at - our_at)
        if apart_s > LATE_S:
            return found.add(at, f"{_name(event)} comes {_later(our_at - at)} in the replay")
        found.largest_s = max(found.largest_s, apart_s)
    both = min(len(recorded), len(replayed))
    for at, event in recorded[both:]:
        if at < cut_s:
            return found.add(at, f"{_name(event)} is not in the replay")
    for at, event in replayed[both:]:
        if at < cut_s:
            return found.add(at, f"{_name(event)} is only in the replay")
    return None


# --- answers that were cut off -----------------------------------------------------------------

_PIECES = ("ReplyItemStarted", "ReplyText", "ReplyAudio")


def _is_cancelled(events: Sequence[Timed]) -> bool:
    last = events[-1][1] if events else {}
    return last.get("is") == "ReplyFinished" and last.get("status") == "cancelled"


def _pieces(events: Sequence[Timed]) -> list[int]:
    return [n for n, (_, event) in enumerate(events) if event["is"] in _PIECES]


def _without_last_pieces(events: Sequence[Timed], spare: int) -> Sequence[Timed]:
    """``events`` without the last ``spare`` pieces, as far as they left just before the end."""
    if spare <= 0:
        return events
    ended_at = events[-1][0]
    last = _pieces(events)[-spare:]
    gone = {n for n in last if ended_at - events[n][0] < LATE_S}
    return [entry for n, entry in enumerate(events) if n not in gone]


def _told(event: dict[str, Any], cancelled: bool) -> dict[str, Any]:
    """Of an answer that was cut off, how much of it had left does not count; how much was heard
    does as a time (``heard_s``)."""
    if event.get("status") == "cancelled" and event["is"] == "TurnRecord":
        return event | {"heard": ""}
    if not cancelled:
        return event
    told = dict(event)
    if "item" in told:
        told["item"] = told["item"] | {"parts": []}
    if "items" in told:
        told["items"] = [item | {"parts": []} for item in told["items"]]
    return told


# --- in plain words ----------------------------------------------------------------------------


def _later(seconds: float) -> str:
    return f"{abs(seconds) * 1000:.0f} ms {'later' if seconds > 0 else 'earlier'}"


def _name(event: Mapping[str, Any]) -> str:
    subject = _subject(event)
    kind = str(event["is"])
    return kind if subject.startswith(kind) else f"{kind} of {subject}"


def _unequal(recorded: Any, replayed: Any, path: str = "") -> str:
    """Where two values differ, and how; empty if they do not."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys((*recorded, *replayed)):
            inner = f"{path}.{name}" if path else name
            if found := _unequal(recorded.get(name), replayed.get(name), inner):
                return found
        return ""
    if isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        for number, (one, other) in enumerate(zip(recorded, replayed, strict=True)):
            if found := _unequal(one, other, f"{path}[{number}]"):
                return found
        return ""
    if _is_number(recorded) and _is_number(replayed) and _close(recorded, replayed, path):
        return ""
    if recorded == replayed:
        return ""
    return f"{path} is {_shown(recorded)} in the recording, and {_shown(replayed)} in the replay"


def _is_number(value: Any) -> bool:
    # A time of 0 is left out of the plain data of some events.
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _close(recorded: float | None, replayed: float | None, path: str) -> bool:
    """Whether two times are near enough; what is no time must be equal."""
    name = path.split(".")[-1]
    if None in (recorded, replayed) and name not in _ZERO_LEFT_OUT:
        return recorded is replayed
    apart = abs((recorded or 0) - (replayed or 0))
    if name in _MS or (name.endswith("_ms") and isinstance(recorded, float)):
        return apart <= LATE_S * 1000
    if name.endswith(("_s", "seconds")):
        return apart <= LATE_S
    return apart < 1e-9


_MS = {
    *("endpoint", "transcript", "first_token", "first_clause", "first_audio"),
    *("audio_start_ms", "audio_end_ms"),
}
"""Times without a unit in their name (``Timeline``), and those of the loop's clock in whole ms."""

_ZERO_LEFT_OUT = {"engine_seconds", "engine_used_s", "engine_wasted_s", "sent_s", "heard_s"}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
