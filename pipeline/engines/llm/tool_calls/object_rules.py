"""The members of an object: in their order, those that need not be may be missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline.engines.llm.tool_calls.gbnf import Rules, literal
from pipeline.engines.llm.tool_calls.schema_merge import UnusableSchema
from pipeline.engines.llm.tool_calls.shapes import Shape, Start, object_starts

_MOST_OPTIONAL = 100
"""Behind a comma, each of them is a way that llama.cpp keeps open."""


@dataclass(frozen=True, slots=True)
class Member:
    """``key``: its name and what follows it, as plain text. ``value``: an expression."""

    key: str
    value: str
    required: bool


def bounded(members: Sequence[Member], least: int, most: int | None) -> list[Member]:
    """Members for an object with at least ``least`` of them and at most ``most``.

    Some that may be missing always are, and some never are: what is written fits all the same.
    Raises ``UnusableSchema`` if there are not so few or so many.
    """
    needed = sum(member.required for member in members)
    if len(members) < least or (most is not None and needed > most):
        raise UnusableSchema("it wants another number of members than it describes")
    optional = _MOST_OPTIONAL if most is None else min(_MOST_OPTIONAL, most - needed)
    forced = max(0, least - needed)
    kept = []
    for member in members:
        if not member.required:
            if forced:
                forced, optional = forced - 1, optional - 1
                member = replace(member, required=True)
            elif optional > 0:
                optional -= 1
            else:
                continue
        kept.append(member)
    return kept


def members(
    rules: Rules, found: Sequence[Member], shape_of: Callable[[str], Shape]
) -> tuple[str, Shape]:
    """An expression for the whole object, and its shape."""
    shapes = [shape_of(member.value) for member in found]
    optional = sum(not member.required for member in found)
    width = max([optional + 4, *(shape.width for shape in shapes)]) + 1
    loops = frozenset[str]().union(*(shape.loops for shape in shapes))
    shape = Shape(object_starts(_starts(found, shapes)), 1, width, loops)
    return f'"{{" {_written(rules, found)} "}}"', shape


def _starts(found: Sequence[Member], shapes: Sequence[Shape]) -> list[Start]:
    starts: list[Start] = []
    for member, shape in zip(found, shapes, strict=True):
        begin = "{" + member.key
        known = all(not key and value for key, value in shape.starts)
        starts += [(begin, value) for _, value in shape.starts] if known else [(begin, "")]
        if member.required:
            return starts
    return [*starts, ("{}", "")]


def _written(rules: Rules, found: Sequence[Member]) -> str:
    comma = literal(rules.notation.comma)
    pairs = [(f"{literal(member.key)} {member.value}", member.required) for member in found]
    following = ['""']
    """Expressions for what follows member i, from the last one back; not the first thing."""
    for pair, required in reversed(pairs[1:]):
        one = f"{comma} {pair}" if required else f"({comma} {pair})?"
        rest = following[-1]
        following.append(one if rest == '""' else rules.add(f"{one} {rest}"))
    options = []
    for (pair, required), rest in zip(pairs, reversed(following), strict=False):
        options.append(pair if rest == '""' else f"{pair} {rest}")
        if required:
            return f"({' | '.join(options)})"
    return f"({' | '.join(options)})?" if options else ""
