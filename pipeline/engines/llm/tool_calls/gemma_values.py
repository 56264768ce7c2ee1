"""Gemma 4's notation for arguments: ``{key:<|"|>text<|"|>,other:[1,true]}``.

Keys are bare and sorted, as its chat template writes them; strings have no escapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:(?P<name>[^{]+)(?=\{)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "None": None}
_MOST_LEVELS = 64


def written(value: Any) -> str:
    """``value`` as the chat template writes it."""
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        # jinja's dictsort does not look at upper and lower case.
        pairs = sorted(value.items(), key=lambda pair: str(pair[0]).lower())
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    return str(value)


def read_call(body: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of ``call:name{…}``; ``None`` if it is malformed."""
    found = _CALL.match(body)
    if found is None:
        return None
    reader = _Reader(body, found.end())
    try:
        arguments = reader.object(0)
    except ValueError:
        return None
    return (found["name"].strip(), arguments) if not body[reader.at :].strip() else None


class _Reader:
    """Recursive descent. Raises ``ValueError``."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self.at = at

    def object(self, level: int) -> dict[str, Any]:
        self._expect("{")
        result: dict[str, Any] = {}
        if self._skip("}"):
            return result
        while True:
            key = self._key()
            result[key] = self._value(level + 1)
            if self._skip("}"):
                return result
            self._expect(",")

    def _array(self, level: int) -> list[Any]:
        self._expect("[")
        result: list[Any] = []
        if self._skip("]"):
            return result
        while True:
            result.append(self._value(level + 1))
            if self._skip("]"):
                return result
            self._expect(",")

    def _value(self, level: int) -> Any:
        if level > _MOST_LEVELS:
            raise ValueError("nested too deeply")
        self._blanks()
        if self._text.startswith("{", self.at):
            return self.object(level)
        if self._text.startswith("[", self.at):
            return self._array(level)
        if self._text.startswith(QUOTE, self.at):
            return self._string()
        if number := _NUMBER.match(self._text, self.at):
            self.at = number.end()
            digits = number.group()
            return int(digits) if digits.lstrip("-").isdigit() else float(digits)
        for word, value in _WORDS.items():
            if self._skip(word):
                return value
        raise ValueError("not a value")

    def _key(self) -> str:
        self._blanks()
        if self._text.startswith(QUOTE, self.at):
            key = self._string()
        else:
            end = self._text.index(":", self.at)
            key = self._text[self.at : end].strip()
            self.at = end
        self._expect(":")
        return key

    def _string(self) -> str:
        start = self.at + len(QUOTE)
        end = self._text.index(QUOTE, start)
        self.at = end + len(QUOTE)
        return self._text[start:end]

    def _blanks(self) -> None:
        while self._text[self.at : self.at + 1].isspace():
            self.at += 1

    def _skip(self, text: str) -> bool:
        self._blanks()
        found = self._text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise ValueError(f"no {text} here")
