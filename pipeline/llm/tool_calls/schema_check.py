"""Does a value fit a JSON schema? The keywords that tools use; others do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

_MOST_LEVELS = 64
_MOST_STEPS = 20_000
"""Schemas that are looked at for one value. Those that refer to themselves could go on for ever."""

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

    What a schema says wrongly does not count, nor what lies too deep to be looked at.
    ``oneOf`` is read as ``anyOf``.
    """
    return _Check(schema if root is None else root).fits(value, schema, 0)


def resolve(root: Any, reference: Any) -> tuple[bool, Any]:
    """Follow a local reference ("#/$defs/name"): whether it exists, and what is there."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False, None
    target = root
    for key in reference[1:].split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or key not in target:
            return False, None
        target = target[key]
    return True, target


def is_number(value: Any) -> TypeGuard[float]:
    """A number as JSON sees it: true is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def fits(self, value: Any, schema: Any, level: int) -> bool:
        self._steps += 1
        if not isinstance(schema, Mapping):
            return schema is not False
        if level > _MOST_LEVELS or self._steps > _MOST_STEPS:
            return True
        return (
            self._fits_reference(value, schema, level)
            and _fits_type(value, schema.get("type"))
            and _fits_values(value, schema)
            and self._fits_alternatives(value, schema, level)
            and _fits_number(value, schema)
            and _fits_length(value, schema)
            and (not isinstance(value, list) or self._fits_items(value, schema, level))
            and (not isinstance(value, dict) or self._fits_members(value, schema, level))
        )

    def _fits_reference(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        found, target = resolve(self._root, schema.get("$ref"))
        return not found or self.fits(value, target, level + 1)

    def _fits_alternatives(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        for keyword, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            options = schema.get(keyword)
            if not isinstance(options, list) or not options:
                continue
            if not enough(self.fits(value, option, level + 1) for option in options):
                return False
        return True

    def _fits_items(self, value: list[Any], schema: Mapping[str, Any], level: int) -> bool:
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        others = schema.get("items", True)
        pairs = [(one, first[i] if i < len(first) else others) for i, one in enumerate(value)]
        return all(self.fits(one, part, level + 1) for one, part in pairs)

    def _fits_members(self, value: dict[str, Any], schema: Mapping[str, Any], level: int) -> bool:
        required, known = schema.get("required"), schema.get("properties")
        names = required if isinstance(required, list) else []
        if any(isinstance(name, str) and name not in value for name in names):
            return False
        known = known if isinstance(known, Mapping) else {}
        more = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        pairs = [(one, known.get(name, more)) for name, one in value.items()]
        return all(self.fits(one, part, level + 1) for one, part in pairs)


def _same(one: Any, other: Any) -> bool:
    """Equality as JSON sees it: true is not 1."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


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
    if "const" in schema and not _same(value, schema["const"]):
        return False
    listed = schema.get("enum")
    return not isinstance(listed, list) or any(_same(value, one) for one in listed)


def _fits_number(value: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
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
    )


def _fits_length(value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, str | list):
        return True
    noun = "Length" if isinstance(value, str) else "Items"
    least, most = schema.get(f"min{noun}"), schema.get(f"max{noun}")
    too_few = is_number(least) and len(value) < least
    return not (too_few or (is_number(most) and len(value) > most))
