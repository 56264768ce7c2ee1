"""Recognises calls without marks: is this JSON object a call? Sans-I/O.

Small models may write a bare object, a list of objects or a fenced block instead of their
template's marks. An object is a call if it has the ``name`` of an offered tool, and ``arguments``
or ``parameters``. Whether these fit the schema is checked once the object is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Literal

from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.syntax import BARE

_OPENING = re.compile(r"(?P<fence>```\s*+(?:json\w*+)?\s*+)?(?P<list>\[\s*+)?\{", re.IGNORECASE)
_BEGUN = re.compile(r"(?:`{1,2}|```\s*+(?:j|js|jso|json\w*+)?\s*+)?(?:\[\s*+)?", re.IGNORECASE)
_CLOSERS = {"list": "]", "fence": "```"}
_SPACE = re.compile(r"\s*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_MOST_LEVELS = 50
"""Nesting limit of arguments. Bounds the work if a call may begin at any brace."""
_ARGUMENTS = ("arguments", "parameters")
_KEYS = tuple(f'"{key}"' for key in ("name", *_ARGUMENTS, "type", "id"))


def opens(text: str) -> bool:
    """Whether ``text`` begins like a call: with an object, maybe inside a list or a fence."""
    return _OPENING.match(text) is not None


def may_open(text: str) -> bool:
    """Whether ``text`` ``opens``, or may do so once more text follows."""
    return opens(text) or _BEGUN.fullmatch(text) is not None


class BareCall:
    """Follows one object while it is being written; reads each character about once."""

    def __init__(self, names: Iterable[str], text: str) -> None:
        """``names`` are the tools that may be called. ``opens(text)`` must hold."""
        opening = _OPENING.match(text)
        assert opening
        self.start = opening.end() - 1
        """Where the object begins in ``text``."""
        self.at = opening.end()
        """How far ``text`` was read."""
        self.closers = [end for part, end in _CLOSERS.items() if opening[part]]
        """Ends of the list and fence around the object, the outermost last."""
        self.name = ""
        """The tool's name, once known."""
        self._names = tuple(json.dumps(name, ensure_ascii=False) for name in names)
        self._next: Literal["key", "colon", "value", "comma"] = "key"
        self._key = ""
        self._keys: set[str] = set()
        self._data: CallData | None = None

    @property
    def named(self) -> bool:
        """Whether the name is known and the arguments come next."""
        has_arguments = not self._keys.isdisjoint(_ARGUMENTS)
        return self._next == "comma" and "name" in self._keys and not has_arguments

    def end(self, text: str, *, pause: bool = False) -> int | None:
        """Where the object ends in ``text``, the whole text so far; -1 if it cannot become a call;
        ``None`` if it has not ended yet. ``pause``: stop reading once it is ``named``."""
        while not (pause and self.named):
            space = _SPACE.match(text, self.at)
            at = space.end() if space else self.at
            if at == len(text):
                return None
            after = self._step(text, at)
            if after is None or after < 0:
                return after
            self.at = after
            if text[at] == "}" and self._next == "key":
                whole = "name" in self._keys and not self._keys.isdisjoint(_ARGUMENTS)
                return after if whole else -1
        return None

    def _step(self, text: str, at: int) -> int | None:
        """Where the part that begins at ``at`` ends; ``None`` and -1 as in ``end``."""
        match self._next:
            case "key":
                after = _one_of(_KEYS, text, at)
                if after is not None and after > 0:
                    self._key = text[at + 1 : after - 1]
                    self._next = "colon"
            case "colon":
                after = _one_of([":"], text, at)
                self._next = "value"
            case "value":
                after = self._value(text, at)
                if after is not None and after > 0:
                    self._keys.add(self._key)
                    self._data = None
                    self._next = "comma"
            case "comma":
                after = _one_of([",", "}"], text, at)
                self._next = "key"
        return after

    def _value(self, text: str, at: int) -> int | None:
        if self._key == "name":
            after = _one_of(self._names, text, at)
            if after is not None and after > 0:
                self.name = json.loads(text[at:after])
            return after
        if self._key == "type":
            return _one_of(['"function"'], text, at)
        if text[at] == '"':  # OpenAI's APIs write arguments as a string
            match = _TEXT.match(text, at)
            return match.end() if match else None
        if text[at] != "{":
            return -1
        self._data = self._data or CallData(BARE, at)
        end = self._data.end(text)
        return -1 if self._data.deepest > _MOST_LEVELS else end


def _one_of(options: Collection[str], text: str, at: int) -> int | None:
    """Where the option at ``at`` ends; -1 if there is none; ``None`` if it may be incomplete."""
    for option in options:
        if text.startswith(option, at):
            return at + len(option)
    may_follow = any(option.startswith(text[at : at + len(option)]) for option in options)
    return None if may_follow else -1
