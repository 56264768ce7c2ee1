"""How many ways llama.cpp has to keep open while it reads a value, and how to keep them few.

It follows all alternatives that fit what was written so far at once, as stacks that it compares
with each other and with the whole vocabulary. Alternatives that begin alike, inside of others
that begin alike, make a power of them: 6,561 stacks take 0.4 s for a token, 20,000 take 5 s, in
one call that nothing can interrupt. Leaving alternatives out keeps whatever is written valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

MOST_STACKS = 256
"""Ways open at once; these take some milliseconds for a token."""
_MOST_STARTS = 16
_STACKS_OF_A_LOOP = 16
"""What a reference counts inside of what it refers to: as if it went so deep, a stack a level."""

Start = tuple[str, str]
"""A sign, or the beginning of an object up to its first value; and that value, if it is known."""
ANY_OBJECT: Start = ("{", "")


@dataclass(frozen=True, slots=True)
class Shape:
    """``starts``: how it may begin. ``first``: stacks in front of it. ``width``: the most stacks
    inside of it. ``loops``: unfinished references in it."""

    starts: frozenset[Start] = frozenset([("", "")])
    first: int = 1
    width: int = 2
    loops: frozenset[str] = frozenset()


def loop(reference: str) -> Shape:
    """A reference inside of what it refers to."""
    return Shape(width=_STACKS_OF_A_LOOP, loops=frozenset([reference]))


def object_starts(starts: Collection[Start]) -> frozenset[Start]:
    """The starts of an object; those of many kinds count as any."""
    return frozenset(starts if len(starts) <= _MOST_STARTS else [ANY_OBJECT])


def choose(found: Mapping[str, Shape], unfinished: Collection[str]) -> tuple[list[str], Shape]:
    """Those of some alternatives that can be followed at once, and the shape of the choice.

    The narrow ones come first; of several that lead back to something ``unfinished`` and begin
    alike, one stays, because two would be a power.
    """
    kept: set[str] = set()
    load = _Load()
    loops: frozenset[str] = frozenset()
    for name, shape in sorted(found.items(), key=lambda pair: (pair[1].width, bool(pair[1].loops))):
        back = not shape.loops.isdisjoint(unfinished)
        if not kept or load.takes(shape, back=back):
            load.add(shape, back=back)
            kept.add(name)
            loops |= shape.loops
    starts = object_starts({start for name in kept for start in found[name].starts})
    return [name for name in found if name in kept], Shape(starts, load.first, load.width, loops)


class _Load:
    """Stacks by what they begin with."""

    def __init__(self) -> None:
        self.first = 0
        self.width = 1
        self._any = 0
        """Of objects that may begin with whatever member."""
        self._keys: dict[str, int] = defaultdict(int)
        self._values: dict[Start, int] = defaultdict(int)
        self._highest: dict[str, int] = defaultdict(int)
        self._back: set[str] = set()

    def takes(self, shape: Shape, *, back: bool) -> bool:
        alike = {key if key.startswith("{") else key[:1] for key, _ in shape.starts}
        if back and (alike & self._back or (alike and "{" in self._back)):
            return False
        if self.first + shape.first > MOST_STACKS:
            return False
        return max(self._after(start, shape.width) for start in shape.starts) <= MOST_STACKS

    def add(self, shape: Shape, *, back: bool) -> None:
        self.first += shape.first
        for key, value in shape.starts:
            if (key, value) == ANY_OBJECT:
                self._any += shape.width
            elif not value:
                self._keys[key] += shape.width
            else:
                self._values[key, value] += shape.width
                self._highest[key] = max(self._highest[key], self._values[key, value])
            self.width = max(self.width, self.first, self._after((key, value), 0))
            if back:
                self._back.add(key)

    def _after(self, start: Start, width: int) -> int:
        """Stacks once ``start`` is read, with ``width`` more of them."""
        key, value = start
        if start == ANY_OBJECT:
            keys = self._keys.keys() | self._highest.keys()
            most = max((self._keys[k] + self._highest[k] for k in keys), default=0)
            return self._any + most + width
        beside = self._values[start] if value else self._highest[key]
        more = self._any if key.startswith("{") else 0
        return more + self._keys[key] + beside + width
