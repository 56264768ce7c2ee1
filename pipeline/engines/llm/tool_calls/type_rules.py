"""From what a JSON schema says about one type to GBNF rules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.engines.llm.tool_calls import number_rules
from pipeline.engines.llm.tool_calls.gbnf import Rules, literal, repeated
from pipeline.engines.llm.tool_calls.object_rules import Member, bounded, members
from pipeline.engines.llm.tool_calls.schema_check import fits, is_number, tuple_items
from pipeline.engines.llm.tool_calls.schema_merge import UnusableSchema
from pipeline.engines.llm.tool_calls.shapes import ANY_OBJECT, Shape, choose, object_starts

_MOST_COUNTED = 1_000
"""llama.cpp refuses repetitions beyond 2,000. Longer texts and lists may be of any length: the
check of whole calls sees to that."""
_LEAST_COUNTED = 4 * _MOST_COUNTED
"""More signs or items than that are never written."""
_MOST_LISTED = 500
"""Multiples between two bounds are listed."""
_MOST_VALUES = 5_000
_TYPE_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class SchemaTooLarge(UnusableSchema):
    """Not to be used part by part either: trying takes too long."""


class TypeRules(ABC):
    """Adds rules to ``rules``. Raises ``UnusableSchema``."""

    def __init__(self, rules: Rules, root: Any) -> None:
        self._rules = rules
        self._notation = rules.notation
        self._root = root
        self._shapes: dict[str, Shape] = {}
        self._unfinished: set[str] = set()
        """References that are being followed."""
        self.left_out: set[str] = set()
        """What will not be written though it is allowed."""

    @abstractmethod
    def count(self, items: int = 0) -> None:
        """One more schema, with so many items in lists. Raises ``SchemaTooLarge``."""

    @abstractmethod
    def group(self, schema: Any, level: int) -> str:
        """A rule for a part with something written in front of it; it may be anything if it
        cannot be used."""

    def typed(self, schema: Mapping[str, Any], level: int) -> str:
        """An expression for what ``type`` and the keywords of that type say."""
        kind = schema.get("type", _guessed_type(schema))
        if isinstance(kind, list) and kind:
            options = []
            for one in dict.fromkeys(map(_word, kind)):
                self.count()
                options.append(self.typed({**schema, "type": one}, level))
            return self._choice(options)
        match kind:
            case None:
                return self._any()
            case "object":
                return self._object(schema, level)
            case "array":
                return self._array(schema, level)
            case "string":
                counts = _counts(schema, "minLength", "maxLength")
                text = self._rules.text(*counts)
                self._shapes[text] = Shape(frozenset([('"', "")]))
                return text
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._one_of([True, False])
            case "null":
                return self._one_of([None])
        raise UnusableSchema("it names a type that JSON does not have")

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> str:
        low, above = _bound(schema, "minimum", "exclusiveMinimum", max)
        high, below = _bound(schema, "maximum", "exclusiveMaximum", min)
        shape = Shape(frozenset([("0", "")]), first=16, width=16)
        if whole:
            low = low + 1 if above and low is not None and low == int(low) else low
            high = high - 1 if below and high is not None and high == int(high) else high
        step = schema.get("multipleOf")
        if is_number(step):
            listed = number_rules.multiples(low, high, step, _MOST_LISTED)
            if not listed and whole and step > 1:
                self.left_out.add("numbers far away from its bounds")
                listed = number_rules.some_multiples(low, high, step, _MOST_LISTED)
            if found := [one for one in listed if fits(one, schema, self._root)]:
                return self._one_of(found)
        if low is None and high is None:
            any_number = self._rules.integer() if whole else self._rules.number()
            self._shapes[any_number] = Shape(frozenset([("0", "")]), first=3, width=3)
            return any_number
        if whole:
            expression = number_rules.integers(low, high)
        else:
            expression = number_rules.numbers(low, high, above=above, below=below)
        if expression is None:
            # Bounds that are closer to each other than our decimals may be written themselves.
            if exact := [one for one in (low, high) if one is not None and fits(one, schema)]:
                return self._one_of(exact[:1])
            raise UnusableSchema("no number is within its bounds")
        return self._shaped(expression, shape)

    def _array(self, schema: Mapping[str, Any], level: int) -> str:
        comma = literal(self._notation.comma)
        least, most = _counts(schema, "minItems", "maxItems")
        if most == 0:
            return literal("[]")
        first, others = tuple_items(schema)
        if not first and "contains" in schema:
            wanted = max(1, _counts(schema, "minContains", "maxContains")[0])
            first = [{"allOf": [schema["contains"], others]}] * wanted
        first = first[:most]
        items = [self.group(one, level) for one in first]
        if len(items) < least and others is False:
            raise UnusableSchema("it wants more items than it describes")
        if items and len(items) >= least:
            return self._list(f" {comma} ".join(items), items)
        item = self.group(others, level)
        one_more = f"({comma} {item})"
        before = max(1, len(items))
        upper = None if most is None else most - before
        rest = repeated(one_more, max(0, least - before), upper)
        whole = f"{f' {comma} '.join(items) if items else item} {rest}"
        return self._list(whole if items or least else f"({whole})?", [*items, item])

    def _list(self, items: str, parts: Sequence[str]) -> str:
        shapes = [self._shape(part) for part in parts]
        width = max(shape.width for shape in shapes) + 2
        loops = frozenset[str]().union(*(shape.loops for shape in shapes))
        return self._shaped(f'"[" {items} "]"', Shape(frozenset([("[", "")]), 1, width, loops))

    def _object(self, schema: Mapping[str, Any], level: int) -> str:
        known, required = schema.get("properties"), schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if not known and not required and (known is None or "minProperties" in schema):
            return self._map(schema, more, level)
        if not isinstance(known or {}, Mapping) or not isinstance(required, list):
            raise UnusableSchema("properties or required are not what they should be")
        known = dict(known or {}) | {n: more for n in required if n not in (known or {})}
        names = [n for n in known if n in required or known[n] is not False]
        if self._notation.sorted_members:
            names.sort(key=str.lower)
        found = []
        for name in names:
            if not isinstance(name, str) or not self._notation.writable(name):
                if name in required:
                    raise UnusableSchema("a name in it cannot be written")
                self.left_out.add("a name in it cannot be written")
                continue
            value = self.group(known[name], level)
            found.append(Member(self._notation.key(name), value, name in required))
        kept = bounded(found, *_counts(schema, "minProperties", "maxProperties"))
        if len(kept) < len(found):
            self.left_out.add("it has many members")
        expression, shape = members(self._rules, kept, self._shape)
        return self._shaped(expression, shape)

    def _map(self, schema: Mapping[str, Any], more: Any, level: int) -> str:
        """An object with members of any name."""
        least, most = _counts(schema, "minProperties", "maxProperties")
        if (more is False and not least) or most == 0:
            return literal("{}")
        if more is True and (least, most) == (0, None):
            return self._rules.any_object()
        self._rules.text()
        colon, comma = literal(self._notation.colon), literal(self._notation.comma)
        value = self.group(more, level)
        member = self._rules.add(f"{self._notation.free_key} {colon} {value}")
        more_of_them = repeated(
            f"({comma} {member})", max(0, least - 1), None if most is None else most - 1
        )
        several = f"{member} {more_of_them}"
        shape = self._shape(value)
        shape = Shape(frozenset([ANY_OBJECT]), 1, shape.width + 3, shape.loops)
        return self._shaped(f'"{{" {several if least else f"({several})?"} "}}"', shape)

    def _any(self) -> str:
        any_value = self._rules.any_value()
        starts = frozenset([ANY_OBJECT, ("[", ""), ('"', ""), ("0", "")])
        self._shapes[any_value] = Shape(starts, first=8, width=8)
        return any_value

    def _shape(self, expression: str) -> Shape:
        return self._shapes.get(expression, Shape())

    def _shaped(self, expression: str, shape: Shape) -> str:
        """The name of a rule for ``expression``."""
        name = self._rules.add(expression)
        self._shapes[name] = shape
        return name

    def _one_of(self, values: Sequence[Any]) -> str:
        if len(values) > _MOST_VALUES:
            self.left_out.add("it lists very many values")
            values = values[:_MOST_VALUES]
        texts = [self._notation.value(value) for value in values]
        found = self._rules.one_of(values)
        if len(texts) == 1:
            shape = Shape(frozenset([("", texts[0])]), 1, 1)
        else:
            starts = object_starts({(text[:1], "") for text in texts})
            shape = Shape(starts, min(len(texts), 16), min(len(texts), 16))
        self._shapes[found] = shape
        return found

    def _choice(self, found: Sequence[str]) -> str:
        kept, shape = choose({one: self._shape(one) for one in found}, self._unfinished)
        if len(kept) < len(set(found)):
            self.left_out.add("too many alternatives begin alike")
        return self._shaped(" | ".join(kept), shape)


def _word(kind: Any) -> str:
    if not isinstance(kind, str):
        raise UnusableSchema("a type is not a word")
    return kind


def _guessed_type(schema: Mapping[str, Any]) -> str | None:
    for kind, keywords in _TYPE_KEYWORDS.items():
        if any(keyword in schema for keyword in keywords):
            return kind
    return None


def _counts(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    fewest, highest = schema.get(least), schema.get(most)
    low = math.ceil(fewest) if is_number(fewest) and 0 <= fewest <= _LEAST_COUNTED else 0
    high = None
    if is_number(highest) and 0 <= highest <= _MOST_COUNTED:
        high = math.floor(highest)
    if high is not None and high < low:
        raise UnusableSchema("no length is within its bounds")
    return low, high


def _bound(
    schema: Mapping[str, Any], included: str, excluded: str, tighter: Any
) -> tuple[float | None, bool]:
    """The tighter of two bounds, and whether it is excluded itself."""
    inner, outer = schema.get(included), schema.get(excluded)
    found = [bound for bound in (inner, outer) if is_number(bound)]
    if not found:
        return None, False
    bound = tighter(found)
    # In draft 4 the exclusive one is a boolean.
    return bound, outer is True or (is_number(outer) and bound == outer)
