"""Two schemas that both hold, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.engines.llm.tool_calls.schema_check import canonical, is_number, same


class UnusableSchema(Exception):
    """A schema that says something wrong, or something that cannot be written as rules."""


_GREATER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SMALLER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_BOTH_HOLD = ("items", "additionalProperties", "additionalItems", "propertyNames")


def merged(
    one: Mapping[str, Any], other: Mapping[str, Any], contradicts: Callable[[str], None]
) -> dict[str, Any]:
    """What ``one`` and ``other`` say. Where that cannot be said with one keyword, what ``one``
    says is kept, and ``contradicts`` is told the keyword.

    Raises ``UnusableSchema`` if nothing fits both.
    """
    result = dict(one)
    for key, value in other.items():
        if key not in result or same(result[key], value):
            result[key] = value
        else:
            result[key] = _both(key, result[key], value, contradicts)
    return result


def _both(key: str, one: Any, other: Any, contradicts: Callable[[str], None]) -> Any:
    if key in _GREATER and is_number(one) and is_number(other):
        return max(one, other)
    if key in _SMALLER and is_number(one) and is_number(other):
        return min(one, other)
    if key == "properties" and isinstance(one, Mapping) and isinstance(other, Mapping):
        shared = {k: {"allOf": [one[k], other[k]]} for k in one if k in other}
        return {**one, **other, **shared}
    if key in _BOTH_HOLD and not isinstance(one, list) and not isinstance(other, list):
        return False if one is False or other is False else {"allOf": [one, other]}
    if key == "required" and isinstance(one, list) and isinstance(other, list):
        return [*one, *(name for name in other if name not in one)]
    if key == "enum" and isinstance(one, list) and isinstance(other, list):
        known = {*map(canonical, other)}
        return [value for value in one if canonical(value) in known]
    if key == "allOf" and isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    if key == "uniqueItems":
        return True
    if key == "type":
        return _common_type(one, other)
    if key == "const":
        raise UnusableSchema("no value fits it")
    contradicts(key)
    return one


def _common_type(one: Any, other: Any) -> Any:
    both = [[kinds] if isinstance(kinds, str) else kinds for kinds in (one, other)]
    if not all(isinstance(kinds, list) for kinds in both):
        raise UnusableSchema("a type is not a word")
    common = [
        "integer" if {kind, another} == {"integer", "number"} else kind
        for kind in both[0]
        for another in both[1]
        if kind == another or {"integer", "number"} == {kind, another}
    ]
    if not common:
        raise UnusableSchema("no type fits it")
    return list(dict.fromkeys(common))
