"""Hostile client messages, seeded, each with its expected outcome."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.hostile.shapes import REQUIRED, VALID

Verdict = Literal["bad", "bad_pcm", "either"]
"""``bad``: exactly one error. ``bad_pcm``: the same while the input is 16-bit PCM. ``either``: one
error and no effect, or an effect and no error."""

Json = Any


@dataclass(frozen=True, slots=True)
class Attack:
    """One frame. ``event_id``: the id its error must name; ``None`` if it may be unreadable."""

    kind: str
    frame: str | bytes
    verdict: Verdict
    event_id: str | None = None


_BASE64 = "y" * 5_000
"""A long text that happens to be audio."""

WEIRD: tuple[Json, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63,
    -(2**70),
    10**400,
    0.5,
    1e308,
    "",
    "x",
    "\x00",
    "‮ \U0001f916 " + chr(0x10FFFF),
    _BASE64,
    "audio/pcm",
    [],
    [[]],
    [None],
    ["text", "audio"],
    {},
    {"type": "message"},
    {"": ""},
    {"a": {"b": {"c": [1]}}},
)
"""Values to put anywhere in a message."""

NOT_JSON = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "9" * 5_000,
    '"\\ud800"',
    '"\\udc00\\ud800"',
    "01",
    "'x'",
    "undefined",
    "//",
    '"\t"',
)
"""Input that Python's reader accepts, or others write, but that is not valid JSON or text."""


class Hostile:
    """Endless attacks, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._messages = VALID
        self._number = 0
        self._makers: tuple[tuple[int, Callable[[], Attack]], ...] = (
            (3, self._cut_short),
            (2, self._noise),
            (2, self._no_object),
            (2, self._no_json),
            (2, self._binary),
            (1, self._empty),
            (3, self._no_known_type),
            (4, self._bad_audio),
            (2, self._field_missing),
            (12, self._field_spoilt),
            (4, self._field_added),
            (3, self._deep),
            (2, self._huge_id),
            (2, self._unknown_item),
            (2, self._twice_the_same_key),
            (3, self._valid),
        )

    def __iter__(self) -> Iterator[Attack]:
        weights = [weight for weight, _ in self._makers]
        makers = [maker for _, maker in self._makers]
        while True:
            (make,) = self._random.choices(makers, weights)
            self._number += 1
            yield make()

    # --- no messages at all ------------------------------------------------------------------

    def _cut_short(self) -> Attack:
        text = self._text(self._choice(self._messages))
        return Attack("cut short", text[: self._random.randrange(1, len(text))], "bad")

    def _noise(self) -> Attack:
        characters = self._random.choices('{}[]",:\\/ u0d8\n\u2028é\U0001f600trunfalse-1.5e', k=40)
        return Attack("noise", "]" + "".join(characters), "bad")

    def _no_object(self) -> Attack:
        value = self._choice([value for value in WEIRD if not isinstance(value, dict)])
        return Attack("no object", json.dumps(value), "bad")

    def _no_json(self) -> Attack:
        number, event_id = self._random.randrange(4), self._event_id()
        literal = self._choice(NOT_JSON)
        text = self._text({**self._choice(self._messages), "event_id": event_id, "x": "@"})
        spoilt = text.replace('"@"', literal if number else f"[{literal}]")
        return Attack("no json", spoilt, "bad")

    def _binary(self) -> Attack:
        text = self._text(self._choice(self._messages)).encode()
        frame = self._choice([b"", b"\x00", b"\xff\xfe", self._random.randbytes(64), text])
        return Attack("binary", frame, "bad")

    def _empty(self) -> Attack:
        return Attack("empty", self._choice(["", " ", "\n\n"]), "bad")

    # --- messages that make no sense ---------------------------------------------------------

    def _no_known_type(self) -> Attack:
        event_id = self._event_id()
        kind = self._choice(
            [
                *(value for value in WEIRD if value != "audio/pcm"),
                "input_audio_buffer.append ",
                "Session.update",
                "session.created",
                "response.done",
                "error",
                "__class__",
                "x" * 100_000,
            ]
        )
        message = {**self._choice(self._messages), "type": kind, "event_id": event_id}
        if self._random.random() < 0.1:
            del message["type"]
        return Attack("no known type", self._text(message), "bad", event_id)

    def _bad_audio(self) -> Attack:
        event_id = self._event_id()
        odd = base64.b64encode(self._random.randbytes(2 * self._random.randrange(0, 400) + 1))
        number = self._random.randrange(8)
        if number < 3:
            audio: Json = odd.decode()
        else:
            audio = self._choice(
                [
                    *(value for value in WEIRD if value not in ("", _BASE64)),
                    "A",
                    "AAA",
                    "AA==AA==",
                    "====",
                    "AAAA\n",
                    " AAAA",
                    "AA-_",
                    "ÄÄÄÄ",
                    "AAA=AAAA" * 20_000,
                ]
            )
        message = {"type": "input_audio_buffer.append", "event_id": event_id, "audio": audio}
        verdict: Verdict = "bad_pcm" if number < 3 else "bad"
        return Attack("bad audio", self._text(message), verdict, event_id)

    def _field_missing(self) -> Attack:
        event_id = self._event_id()
        message, path = self._choice(REQUIRED)
        spoilt = {**copy.deepcopy(message), "event_id": event_id}
        place = spoilt
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        return Attack("field missing", self._text(spoilt), "bad", event_id)

    def _field_spoilt(self) -> Attack:
        event_id = self._event_id()
        message = {**copy.deepcopy(self._choice(self._messages)), "event_id": event_id}
        places = [place for place in _places(message) if place[1] != "event_id"]
        container, key = self._choice(places)
        container[key] = copy.deepcopy(self._choice(WEIRD))
        return Attack("field spoilt", self._text(message), "either", event_id)

    def _field_added(self) -> Attack:
        event_id = self._event_id()
        message = {**copy.deepcopy(self._choice(self._messages)), "event_id": event_id}
        objects = [message, *(at for at in _nodes(message) if isinstance(at, dict))]
        name = self._choice(["zzz", "", "__proto__", "audio", "type ", "é" * 300])
        self._choice(objects)[name] = copy.deepcopy(self._choice(WEIRD))
        return Attack("field added", self._text(message), "either", event_id)

    def _deep(self) -> Attack:
        depth = self._choice([90, 101, 500, 5_000, 50_000])
        opening, closing = self._choice([("[", "]"), ('{"a":', "}")])
        if self._random.random() < 0.3:
            return Attack("deep", opening * depth, "bad")
        nested = f"{opening * depth}1{closing * depth}"
        event_id = self._event_id()
        text = self._text({**self._choice(self._messages), "event_id": event_id, "metadata": "@"})
        spoilt = text.replace('"@"', nested)
        if depth == 90:
            # An append may carry fields that are never read.
            return Attack("deep", spoilt, "either", event_id)
        return Attack("deep", spoilt, "bad")

    def _huge_id(self) -> Attack:
        huge = "i" * self._choice([257, 513, 10_000, 200_000])
        kind = self._choice(["conversation.item.delete", "conversation.item.retrieve"])
        if self._random.random() < 0.5:
            event_id = self._event_id()
            message = {"type": kind, "event_id": event_id, "item_id": huge}
            return Attack("huge id", self._text(message), "bad", event_id)
        message = {"type": kind, "event_id": huge * 2, "item_id": ""}
        return Attack("huge id", self._text(message), "bad")

    def _unknown_item(self) -> Attack:
        event_id = self._event_id()
        kind = self._choice(["delete", "retrieve", "truncate"])
        message: dict[str, Json] = {"type": f"conversation.item.{kind}", "event_id": event_id}
        message["item_id"] = f"nobody_{self._number}"
        if kind == "truncate":
            message |= {"content_index": 0, "audio_end_ms": 0}
        # Only the session knows which items there are.
        return Attack("unknown item", self._text(message), "either", event_id)

    def _twice_the_same_key(self) -> Attack:
        event_id = self._event_id()
        text = self._text({**self._choice(self._messages), "event_id": event_id})
        kind = json.dumps(self._choice(WEIRD))
        return Attack("same key twice", f'{{"type":{kind},{text[1:]}', "either", event_id)

    def _valid(self) -> Attack:
        event_id = self._event_id()
        text = self._text({**self._choice(self._messages), "event_id": event_id})
        return Attack("valid", text, "either", event_id)

    # --- parts -------------------------------------------------------------------------------

    def _choice(self, options: Any) -> Any:
        return self._random.choice(options)

    def _event_id(self) -> str:
        return f"attack_{self._number}"

    def _text(self, message: Json) -> str:
        return json.dumps(message, ensure_ascii=self._random.random() < 0.5)


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Each container in ``value`` with each of its keys."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _nodes(value: Json) -> Iterator[Json]:
    for container, key in _places(value):
        yield container[key]
