"""Calls that are written without a mark of their own: is this JSON object one? Sans-I/O.

Small models write the bare object, a list of them, or a fenced block, where their template has
marks. An object is a call if it has ``name``, of a tool that is offered, and ``arguments`` or
``parameters``. Whether those fit is seen when it is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from enum import Enum, auto

from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.syntax import BARE

_OPENING = re.compile(r"(?P<fence>```\s*+(?:json\w*+)?\s*+)?(?P<list>\[\s*+)?\{", re.IGNORECASE)
_BEGUN = re.compile(r"(?:`{1,2}|```\s*+(?:j|js|jso|json\w*+)?\s*+)?(?:\[\s*+)?", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_MOST_LEVELS = 50
"""Of arguments. Where a call may begin at any brace, each one is followed so far."""
_ARGUMENTS = ("arguments", "parameters")
_KEYS = tuple(f'"{key}"' for key in ("name", *_ARGUMENTS, "type"))


class Opening:
    """What may stand in front of an answer's first call.

    ``length``: up to the object, its brace excluded. ``closers``: what ends the list and the fence,
    the outermost last. ``whole``: False while more text has to show whether it is one.
    """

    def __init__(self, text: str) -> None:
        found = _OPENING.match(text)
        self.whole = found is not None
        self.possible = self.whole or _BEGUN.fullmatch(text) is not None
        self.length = found.end() - 1 if found else 0
        ends = {"list": "]", "fence": "```"}
        self.closers = [end for part, end in ends.items() if found and found[part]]


class _Part(Enum):
    """What comes next in the object."""

    KEY = auto()
    COLON = auto()
    VALUE = auto()
    NEXT = auto()


class BareCall:
    """Looks at one object while it is being written; each sign is read about once."""

    def __init__(self, names: Iterable[str], opening: Opening) -> None:
        """``names``: of the tools that may be called."""
        self.start = opening.length
        self.closers = opening.closers
        self.name = ""
        """Once it is known."""
        self._names = tuple(json.dumps(name, ensure_ascii=False) for name in names)
        self._at = self.start + 1
        self._next = _Part.KEY
        self._key = ""
        self._keys: set[str] = set()
        self._data: CallData | None = None

    @property
    def named(self) -> bool:
        """Its name is known, and its arguments are what comes next."""
        has_arguments = not self._keys.isdisjoint(_ARGUMENTS)
        return self._next is _Part.NEXT and "name" in self._keys and not has_arguments

    def end(self, text: str) -> int | None:
        """Where the object ends in ``text``, which is all of it so far; -1: it is no call, however
        it goes on; ``None``: not known yet."""
        while True:
            space = _SPACE.match(text, self._at)
            at = space.end() if space else self._at
            if at == len(text):
                return None
            after = self._step(text, at)
            if after is None or after < 0:
                return after
            self._at = after
            if self._next is _Part.KEY and text[after - 1] == "}":
                return after if self._is_whole else -1

    @property
    def _is_whole(self) -> bool:
        return "name" in self._keys and not self._keys.isdisjoint(_ARGUMENTS)

    def _step(self, text: str, at: int) -> int | None:
        """Where the part ends that begins at ``at``; ``None`` and -1 as ``end`` has them."""
        match self._next:
            case _Part.KEY:
                after = _one_of(_KEYS, text, at)
                if after is not None and after > 0:
                    self._key = text[at + 1 : after - 1]
                    self._next = _Part.COLON
            case _Part.COLON:
                after = _one_of([":"], text, at)
                self._next = _Part.VALUE
            case _Part.VALUE:
                after = self._value(text, at)
                if after is not None and after > 0:
                    self._keys.add(self._key)
                    self._data = None
                    self._next = _Part.NEXT
            case _Part.NEXT:
                after = _one_of([",", "}"], text, at)
                self._next = _Part.KEY
        return after

    def _value(self, text: str, at: int) -> int | None:
        if self._key == "name":
            after = _one_of(self._names, text, at)
            if after is not None and after > 0:
                self.name = json.loads(text[at:after])
            return after
        if self._key == "type":
            return _one_of(['"function"'], text, at)
        if text[at] == '"':  # OpenAI's APIs write arguments as a text
            found = _TEXT.match(text, at)
            return found.end() if found else None
        if text[at] != "{":
            return -1
        self._data = self._data or CallData(BARE, at)
        end = self._data.end(text)
        return -1 if self._data.deepest > _MOST_LEVELS else end


def _one_of(options: Collection[str], text: str, at: int) -> int | None:
    """Where that of ``options`` ends which stands at ``at``; -1: none does; ``None``: one may."""
    for option in options:
        if text.startswith(option, at):
            return at + len(option)
    begun = any(option.startswith(text[at : at + len(option)]) for option in options)
    return None if begun else -1
