"""Rules of a GBNF grammar, and how values are written in it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.llm.tool_calls import gemma_values
from pipeline.engines.llm.tool_calls.number_rules import ANY_INTEGER, ANY_NUMBER

_UNWRITABLE = re.compile(r"[:{}<\n\r]|^$|^\s|\s$")
"""In a bare name; blanks around it are not part of it."""
_MOST_REPEATED = 1_000
"""llama.cpp refuses repetitions beyond 2,000."""
_FEW_CHOICES = 16
_MOST_BRANCHES = 64
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f-\x9f]')


def literal(text: str) -> str:
    """``text`` itself as GBNF."""
    return '"' + _ESCAPED.sub(lambda m: f"\\x{ord(m.group()):02X}", text) + '"'


def repeated(expression: str, least: int, most: int | None) -> str:
    """``expression`` so many times."""
    blocks = max(0, least - 1) // _MOST_REPEATED
    upper = "" if most is None else most - blocks * _MOST_REPEATED
    rest = f"{expression}{{{least - blocks * _MOST_REPEATED},{upper}}}"
    return f"{expression}{{{_MOST_REPEATED}}} " * blocks + rest


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written: marks between them, and rules for text and for names of members.

    ``sign``: one character of a text, or more where that makes no difference; ``one_sign``: never
    more than one. Quotes are ``quote``.
    """

    comma: str
    colon: str
    quote: str
    sign: str
    one_sign: str
    free_key: str
    sorted_members: bool

    def value(self, value: Any) -> str:
        """Plain text of a constant."""
        return gemma_values.written(value) if self.sorted_members else _json(value)

    def key(self, name: str) -> str:
        """Plain text of a member's name with what follows it."""
        return (name if self.sorted_members else _json(name)) + self.colon

    def writable(self, name: str) -> bool:
        """Whether the notation can spell this name of a member."""
        return not self.sorted_members or _UNWRITABLE.search(name) is None


_JSON_SIGN = r'[^"\\\x00-\x1F\x7F] | "\\" ["\\bfnrt]'

JSON = Notation(
    comma=", ",
    colon=": ",
    quote='"',
    # Without \u: everything can be written as itself, but for half a surrogate pair.
    sign=_JSON_SIGN,
    one_sign=_JSON_SIGN,
    free_key="text",
    sorted_members=False,
)
"""As ``json.dumps`` and chat templates write it, so that a call has the same tokens later."""

GEMMA = Notation(
    comma=",",
    colon=":",
    quote=gemma_values.QUOTE,
    sign='[^<] | "<" [^|<]',
    one_sign="[^<]",
    free_key="[a-zA-Z0-9_-]{1,64}",
    sorted_members=True,
)


class Rules:
    """Rules that are added as they are needed; equal ones are shared."""

    def __init__(self, notation: Notation) -> None:
        self.notation = notation
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def add(self, expression: str) -> str:
        """The name of a rule for ``expression``."""
        if expression in self._rules:
            return expression
        if expression not in self._names:
            name = f"r{len(self._names)}"
            self._names[expression] = name
            self._rules[name] = expression
        return self._names[expression]

    def reserve(self) -> str:
        """A name for a rule that refers to itself, maybe by way of others; ``define`` it later."""
        name = f"x{len(self._rules)}"
        self._rules[name] = '""'
        return name

    def define(self, name: str, expression: str) -> None:
        self._rules[name] = expression

    def text(self, least: int = 0, most: int | None = None) -> str:
        """A quoted text of so many characters."""
        quote = literal(self.notation.quote)
        if (least, most) == (0, None):
            self._rules["sign"] = self.notation.sign
            self._rules["text"] = f"{quote} sign* {quote}"
            return "text"
        self._rules["one-sign"] = self.notation.one_sign
        return self.add(f"{quote} {repeated('one-sign', least, most)} {quote}")

    def any_value(self) -> str:
        self.any_object()
        return "value"

    def any_object(self) -> str:
        """An object with any members."""
        if "value" not in self._rules:
            comma, colon = literal(self.notation.comma), literal(self.notation.colon)
            self.text()
            self._rules["member"] = f"{self.notation.free_key} {colon} value"
            self._rules["object"] = f'"{{" (member ({comma} member)*)? "}}"'
            self._rules["array"] = f'"[" (value ({comma} value)*)? "]"'
            self._rules["number"] = ANY_NUMBER
            self._rules["value"] = 'object | array | text | number | "true" | "false" | "null"'
        return "object"

    def number(self) -> str:
        self._rules["number"] = ANY_NUMBER
        return "number"

    def integer(self) -> str:
        self._rules["integer"] = ANY_INTEGER
        return "integer"

    def one_of(self, values: Sequence[Any]) -> str:
        """One of some constants."""
        return self.choice({self.notation.value(value): "" for value in values})

    def choice(self, options: Mapping[str, str]) -> str:
        """One of some texts, each with an expression for what follows it.

        Many texts are sorted into a tree of their common beginnings: llama.cpp compares every
        alternative that is still open with the whole vocabulary.
        """
        if len(options) <= _FEW_CHOICES:
            return self.add(_flat(options))
        return self.add(self._tree(sorted(options.items()), 0))

    def _tree(self, options: Sequence[tuple[str, str]], level: int) -> str:
        """An expression for sorted ``options``, whose common beginning was read."""
        branches = []
        for _, some in itertools.groupby(options, lambda option: option[0][:1]):
            group = list(some)
            if len(group) == 1 or level > _MOST_BRANCHES:
                branches.append(_flat(dict(group)))
                continue
            # Those of sorted texts that differ most are the first and the last.
            shared = _common_beginning(group[0][0], group[-1][0])
            rest = [(text[len(shared) :], after) for text, after in group]
            branches.append(f"{literal(shared)} {self.add(self._tree(rest, level + 1))}")
        return " | ".join(branches)

    def grammar(self, root: str) -> str:
        """The whole text; ``root`` is an expression."""
        lines = [f"{name} ::= {rule}" for name, rule in {"root": root, **self._rules}.items()]
        return "\n".join(lines) + "\n"


def _flat(options: Mapping[str, str]) -> str:
    return " | ".join(f"{literal(text)} {after}".strip() for text, after in options.items())


def _common_beginning(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    return "".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
