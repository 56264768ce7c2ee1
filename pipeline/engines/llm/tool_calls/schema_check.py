"""Does a value fit a JSON schema? The keywords that tools use; others do not count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeGuard
from urllib.parse import unquote

_MOST_LEVELS = 100
_MOST_STEPS = 20_000
"""Schemas that are looked at for one value."""

UNCHECKED = frozenset(
    ["pattern", "format", "patternProperties", "unevaluatedProperties", "unevaluatedItems"]
)
"""Keywords that do not count: patterns of strangers may take for ever, formats are mere notes."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def fits(value: Any, schema: Any, root: Any = None) -> bool:
    """Whether ``value`` is valid. ``root``: the whole schema, which references point into.

    What a schema says wrongly does not count. What lies too deep to be looked at does not fit.
    """
    try:
        return _Check(schema if root is None else root).fits(value, schema, 0)
    except RecursionError:
        return False


def fitting(values: Sequence[Any], schema: Any, root: Any) -> list[Any]:
    """Those of ``values`` that fit; where there is very much to look at, some of them."""
    check = _Check(root)
    return [value for value in values if check.fits(value, schema, 0)]


def resolve(root: Any, reference: Any) -> tuple[bool, Any]:
    """Follow a local reference ("#/$defs/name"): whether it exists, and what is there."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False, None
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        return _anchored(root, pointer)
    target = root
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        else:
            return False, None
    return True, target


def tuple_items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Schemas of a list's first items, and of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):  # up to draft 7
        return items, schema.get("additionalItems", True)
    first = schema.get("prefixItems")
    return (first if isinstance(first, list) else []), items


def is_number(value: Any) -> TypeGuard[float]:
    """A number as JSON sees it: true is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    """Equality as JSON sees it: true is not 1."""
    return bool(one == other) and canonical(one) == canonical(other)


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0
        self._active: set[tuple[int, int]] = set()
        """Schemas and the values that they are being held against."""

    def fits(self, value: Any, schema: Any, level: int) -> bool:
        self._steps += 1
        if not isinstance(schema, Mapping):
            return schema is not False
        if level > _MOST_LEVELS or self._steps > _MOST_STEPS:
            return False
        pair = (id(schema), id(value))
        if pair in self._active:
            return True
        self._active.add(pair)
        try:
            return (
                self._fits_reference(value, schema, level)
                and _fits_type(value, schema.get("type"))
                and _fits_values(value, schema)
                and self._fits_alternatives(value, schema, level)
                and self._fits_conditions(value, schema, level)
                and _fits_number(value, schema)
                and _fits_length(value, schema)
                and (not isinstance(value, list) or self._fits_items(value, schema, level))
                and (not isinstance(value, dict) or self._fits_members(value, schema, level))
            )
        finally:
            self._active.discard(pair)

    def _fits_reference(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        found, target = resolve(self._root, schema.get("$ref"))
        return not found or self.fits(value, target, level + 1)

    def _circular(self, value: Any, option: Any) -> bool:
        """An alternative that only leads back to where it is one says nothing."""
        if not isinstance(option, Mapping):
            return False
        target = resolve(self._root, option.get("$ref"))[1]
        return (id(target), id(value)) in self._active

    def _fits_alternatives(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        for keyword, enough in (("anyOf", any), ("allOf", all)):
            options = _listed(schema, keyword)
            options = [one for one in options if not self._circular(value, one)]
            if options and not enough(self.fits(value, one, level + 1) for one in options):
                return False
        options = _listed(schema, "oneOf")
        options = [one for one in options if not self._circular(value, one)]
        found = [one for one in options if self.fits(value, one, level + 1)]
        return not options or (bool(found) and sum(not self._vague(one) for one in found) <= 1)

    def _fits_conditions(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        wrong, condition = schema.get("not", False), schema.get("if", None)
        if wrong is not False and not self._vague(wrong) and self.fits(value, wrong, level + 1):
            return False
        if condition is None or self._vague(condition):
            return True
        holds = self.fits(value, condition, level + 1)
        return self.fits(value, schema.get("then" if holds else "else", True), level + 1)

    def _fits_items(self, value: list[Any], schema: Mapping[str, Any], level: int) -> bool:
        first, others = tuple_items(schema)
        pairs = [(one, first[i] if i < len(first) else others) for i, one in enumerate(value)]
        if not all(self.fits(one, part, level + 1) for one, part in pairs):
            return False
        if schema.get("uniqueItems") is True and len({*map(canonical, value)}) < len(value):
            return False
        if "contains" not in schema or self._vague(schema["contains"]):
            return True
        count = sum(self.fits(one, schema["contains"], level + 1) for one in value)
        return _is_within(count, schema.get("minContains", 1), schema.get("maxContains"))

    def _fits_members(self, value: dict[str, Any], schema: Mapping[str, Any], level: int) -> bool:
        if not all(_has(value, name) for name in _listed(schema, "required")):
            return False
        if not _is_within(len(value), schema.get("minProperties"), schema.get("maxProperties")):
            return False
        known = _mapping(schema, "properties")
        more = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        pairs = [(one, known.get(name, more)) for name, one in value.items()]
        pairs += [(name, schema.get("propertyNames", True)) for name in value]
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, wanted in _mapping(schema, keyword).items():
                if name in value and isinstance(wanted, list):
                    pairs += [(value, _has(value, other)) for other in wanted]
                elif name in value:
                    pairs.append((value, wanted))
        return all(self.fits(one, part, level + 1) for one, part in pairs)

    def _vague(self, schema: Any) -> bool:
        """Whether it says something that does not count here, so that more may fit than should."""
        seen: set[int] = set()
        left = [schema]
        while left:
            part = left.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, Mapping):
                self._steps += 1
                if part.keys() & UNCHECKED:
                    return True
                left += [*part.values(), resolve(self._root, part.get("$ref"))[1]]
            elif isinstance(part, list):
                left += part
        return False


def _anchored(root: Any, name: str) -> tuple[bool, Any]:
    for keyword in ("$defs", "definitions"):
        for target in _mapping(root, keyword).values():
            if isinstance(target, Mapping) and target.get("$anchor") == name:
                return True, target
    return False, None


def _listed(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _mapping(schema: Any, key: str) -> Mapping[str, Any]:
    found = schema.get(key) if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _has(value: Mapping[str, Any], name: Any) -> bool:
    return not isinstance(name, str) or name in value


def canonical(value: Any) -> str:
    """Text that equal values share."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value


def _fits_type(value: Any, kinds: Any) -> bool:
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list | tuple) or not kinds:
        return True
    return any(kind not in _TYPES or _is(value, kind) for kind in kinds)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _fits_values(value: Any, schema: Mapping[str, Any]) -> bool:
    if "const" in schema and not same(value, schema["const"]):
        return False
    listed = schema.get("enum")
    return not isinstance(listed, list) or any(same(value, one) for one in listed)


def _fits_number(value: Any, schema: Mapping[str, Any]) -> bool:
    if not is_number(value):
        return True
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    # In draft 4 the exclusive ones are booleans.
    above, below = (low if above is True else above), (high if below is True else below)
    return not (
        (is_number(low) and value < low)
        or (is_number(above) and value <= above)
        or (is_number(high) and value > high)
        or (is_number(below) and value >= below)
        or not _is_multiple(value, schema.get("multipleOf"))
    )


def _is_multiple(value: float, step: Any) -> bool:
    if not is_number(step) or step <= 0:
        return True
    try:
        return Decimal(str(value)) % Decimal(str(step)) == 0
    except ArithmeticError:
        return False


def _fits_length(value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, str | list):
        return True
    noun = "Length" if isinstance(value, str) else "Items"
    return _is_within(len(value), schema.get(f"min{noun}"), schema.get(f"max{noun}"))


def _is_within(count: int, least: Any, most: Any) -> bool:
    return not ((is_number(least) and count < least) or (is_number(most) and count > most))
