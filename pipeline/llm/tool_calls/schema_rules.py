"""From the JSON schema of a tool's arguments to GBNF rules.

llama-cpp-python has a converter too. It lets control characters into strings, writes constants
with a backslash wrongly, forgets ``enum`` next to a list of types and has no bounds of numbers;
and it knows JSON only, while Gemma writes arguments in a notation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.llm.tool_calls import number_rules
from pipeline.llm.tool_calls.gbnf import Rules, literal
from pipeline.llm.tool_calls.schema_check import fits, is_number, resolve

_MOST_COUNTED = 1_000
"""Longer texts and lists are not counted; llama.cpp refuses repetitions beyond 2,000."""
_MOST_LEVELS = 32
_MOST_PARTS = 5_000
"""Schemas inside of one, counted each time that they are used."""

_NOT_ENFORCED = frozenset(
    [
        "pattern",
        "format",
        "multipleOf",
        "uniqueItems",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
        "unevaluatedItems",
    ]
)
"""Keywords that a call is written without regard to. The tool itself has to check them."""
_TYPE_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_NO_CONSTRAINTS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "nullable",
        "strict",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "$comment",
        "$anchor",
    ]
)


class UnusableSchema(Exception):
    """A schema that says something wrong, or something that cannot be written as rules."""


class SchemaRules:
    """Adds rules for one schema to ``rules``. Raises ``UnusableSchema``."""

    def __init__(self, rules: Rules, root: Any) -> None:
        self._rules = rules
        self._notation = rules.notation
        self._root = root
        self._references: dict[str, str] = {}
        self._parts = 0
        self.not_enforced: set[str] = set()
        """Keywords that had to be ignored."""
        self.unusable: set[str] = set()
        """What is wrong with parts of it, which may be anything now."""

    def arguments(self) -> str:
        """The whole schema as an object; one that declares no members has none."""
        schema = self._root
        if not isinstance(schema, Mapping):
            raise UnusableSchema("it is not an object")
        kind = schema.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise UnusableSchema("arguments are always an object")
        if not set(schema) - _NO_CONSTRAINTS - {"type"}:
            schema = {**schema, "properties": {}}
        return self.value({**schema, "type": "object"}, 0)

    def value(self, schema: Any, level: int) -> str:
        """An expression for what fits ``schema``."""
        self._parts += 1
        if level > _MOST_LEVELS or self._parts > _MOST_PARTS:
            raise UnusableSchema("it is nested too deeply, or too large")
        if schema is True:
            return self._rules.any_value()
        if not isinstance(schema, Mapping):
            raise UnusableSchema("a part of it is not a schema")
        schema = {k: v for k, v in schema.items() if k not in _NO_CONSTRAINTS}
        self.not_enforced |= schema.keys() & _NOT_ENFORCED
        if "$ref" in schema:
            return self._reference(schema, level)
        if "const" in schema or "enum" in schema:
            return self._constants(schema)
        if "allOf" in schema:
            return self.value(self._merged(_without(schema, "allOf"), schema["allOf"]), level + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._alternatives(_without(schema, keyword), schema[keyword], level)
        return self._typed(schema, level)

    # --- combinations

    def _reference(self, schema: Mapping[str, Any], level: int) -> str:
        reference = schema["$ref"]
        found, target = resolve(self._root, reference)
        if not found:
            raise UnusableSchema("it refers to something outside of it")
        if others := _without(schema, "$ref"):
            return self.value(self._merged(others, [target]), level + 1)
        if reference not in self._references:
            name = self._references[reference] = self._rules.reserve()
            self._rules.define(name, self.value(target, level + 1))
        return self._references[reference]

    def _constants(self, schema: Mapping[str, Any]) -> str:
        values = schema.get("enum", [schema.get("const")])
        if not isinstance(values, list):
            raise UnusableSchema("enum is not a list")
        values = [value for value in values if fits(value, schema, self._root)]
        if not values:
            raise UnusableSchema("no value fits it")
        return self._rules.one_of(values)

    def _alternatives(self, others: Mapping[str, Any], options: Any, level: int) -> str:
        if not isinstance(options, list) or not options:
            raise UnusableSchema("a list of alternatives is missing")
        merged = [self._merged(others, [option]) if others else option for option in options]
        found = [self.value(option, level + 1) for option in merged]
        return self._rules.add(" | ".join(dict.fromkeys(found)))

    def _merged(self, schema: Mapping[str, Any], others: Any) -> dict[str, Any]:
        """One schema that says what ``schema`` and all the ``others`` say."""
        if not isinstance(others, list):
            raise UnusableSchema("a list of schemas is missing")
        result = dict(schema)
        for other in others:
            if isinstance(other, Mapping) and set(other) == {"$ref"}:
                other = resolve(self._root, other["$ref"])[1]
            if other is True:
                continue
            if not isinstance(other, Mapping):
                raise UnusableSchema("a part of it is not a schema")
            for key, value in other.items():
                result[key] = _both(key, result[key], value) if key in result else value
        return result

    # --- types

    def _typed(self, schema: Mapping[str, Any], level: int) -> str:
        kind = schema.get("type", _guessed_type(schema))
        if isinstance(kind, list) and kind:
            options = [self._typed({**schema, "type": one}, level) for one in kind]
            return self._rules.add(" | ".join(dict.fromkeys(options)))
        match kind:
            case None:
                return self._rules.any_value()
            case "object":
                return self._object(schema, level)
            case "array":
                return self._array(schema, level)
            case "string":
                return self._rules.text(*_counts(schema, "minLength", "maxLength"))
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._rules.one_of([True, False])
            case "null":
                return literal("null")
        raise UnusableSchema("it names a type that JSON does not have")

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> str:
        low, above = _bound(schema, "minimum", "exclusiveMinimum", max)
        high, below = _bound(schema, "maximum", "exclusiveMaximum", min)
        if low is None and high is None:
            return self._rules.integer() if whole else self._rules.number()
        if whole:
            low = low + 1 if above and low is not None and low == int(low) else low
            high = high - 1 if below and high is not None and high == int(high) else high
            found = number_rules.integers(low, high)
        else:
            found = number_rules.numbers(low, high, above=above, below=below)
        if found is None:
            raise UnusableSchema("no number is within its bounds")
        return self._rules.add(found)

    def _array(self, schema: Mapping[str, Any], level: int) -> str:
        comma = literal(self._notation.comma)
        least, most = _counts(schema, "minItems", "maxItems")
        if most == 0:
            return literal("[]")
        first = schema.get("prefixItems")
        if isinstance(first, list) and first:
            items = [self._group(one, level) for one in first[:most]]
            if len(items) < least:
                raise UnusableSchema("it wants more items than it describes")
            return self._rules.add(f'"[" {f" {comma} ".join(items)} "]"')
        item = self._group(schema.get("items", True), level)
        upper = "" if most is None else most - 1
        several = f"{item} ({comma} {item}){{{max(0, least - 1)},{upper}}}"
        return self._rules.add(f'"[" {several if least else f"({several})?"} "]"')

    def _object(self, schema: Mapping[str, Any], level: int) -> str:
        known, required = schema.get("properties"), schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if known is None and not required:
            return self._map(more, level)
        if not isinstance(known or {}, Mapping) or not isinstance(required, list):
            raise UnusableSchema("properties or required are not what they should be")
        known = dict(known or {}) | {n: more for n in required if n not in (known or {})}
        names = [n for n in known if n in required or known[n] is not False]
        if self._notation.sorted_members:
            names.sort(key=str.lower)
        members = []
        for name in names:
            if not isinstance(name, str) or not self._notation.writable(name):
                raise UnusableSchema("a name in it cannot be written")
            pair = f"{literal(self._notation.key(name))} {self._group(known[name], level)}"
            members.append((pair, name in required))
        return self._rules.add(f'"{{" {self._members(members)} "}}"')

    def _map(self, more: Any, level: int) -> str:
        """An object with members of any name."""
        if more is False:
            return literal("{}")
        if more is True:
            return self._rules.any_object()
        self._rules.text()
        colon, comma = literal(self._notation.colon), literal(self._notation.comma)
        member = self._rules.add(f"{self._notation.free_key} {colon} {self._group(more, level)}")
        return self._rules.add(f'"{{" ({member} ({comma} {member})*)? "}}"')

    def _group(self, schema: Any, level: int) -> str:
        try:
            return self._rules.add(self.value(schema, level + 1))
        except UnusableSchema as problem:
            self.unusable.add(str(problem))
            return self._rules.any_value()

    def _members(self, members: Sequence[tuple[str, bool]]) -> str:
        """Members in their order, each with whether it is required; commas between them."""
        comma = literal(self._notation.comma)
        following = ['""']
        """Expressions for what follows member i, from the last one back; not the first thing."""
        for pair, required in reversed(members[1:]):
            one = f"{comma} {pair}" if required else f"({comma} {pair})?"
            rest = following[-1]
            following.append(one if rest == '""' else self._rules.add(f"{one} {rest}"))
        options = []
        for (pair, required), rest in zip(members, reversed(following), strict=False):
            options.append(pair if rest == '""' else f"{pair} {rest}")
            if required:
                return f"({' | '.join(options)})"
        return f"({' | '.join(options)})?" if options else ""


def _without(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k != key}


def _guessed_type(schema: Mapping[str, Any]) -> str | None:
    for kind, keywords in _TYPE_KEYWORDS.items():
        if any(keyword in schema for keyword in keywords):
            return kind
    return None


def _both(key: str, one: Any, other: Any) -> Any:
    """What two schemas say with the same keyword, where both hold."""
    if one == other or key in _NO_CONSTRAINTS:
        return one
    if key == "properties" and isinstance(one, Mapping) and isinstance(other, Mapping):
        shared = {k: {"allOf": [one[k], other[k]]} for k in one.keys() & other.keys()}
        return {**one, **other, **shared}
    if key == "required" and isinstance(one, list) and isinstance(other, list):
        return list(dict.fromkeys([*one, *other]))
    if key == "type":
        return _common_type(one, other)
    raise UnusableSchema(f"it says {key} twice")


def _common_type(one: Any, other: Any) -> Any:
    both = [[kinds] if isinstance(kinds, str) else kinds for kinds in (one, other)]
    if not all(isinstance(kinds, list) for kinds in both):
        raise UnusableSchema("a type is not a word")
    common = [kind for kind in both[0] if kind in both[1]]
    if "integer" in (one, other) and "number" in (one, other):
        common = ["integer"]
    if not common:
        raise UnusableSchema("no type fits it")
    return common


def _counts(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    def count(key: str) -> int | None:
        value = schema.get(key)
        return int(value) if is_number(value) and 0 <= value <= _MOST_COUNTED else None

    low, high = count(least) or 0, count(most)
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
