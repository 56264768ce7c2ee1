"""Gemma's notation of arguments as Lark rules: members by name and type. What else a schema says
is left to the check of the whole call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.engines.llm.tool_calls import gemma_values

_ANY = [
    r'gemma_any: gemma_object | gemma_array | STRING | NUMBER | "true" | "false" | "null"',
    'gemma_object: "{" (gemma_member ("," gemma_member)*)? "}"',
    'gemma_member: /[a-zA-Z0-9_-]{1,64}/ ":" gemma_any',
    'gemma_array: "[" (gemma_any ("," gemma_any)*)? "]"',
    r"NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/",
    "INTEGER: /-?(0|[1-9][0-9]{0,17})/",
    r'STRING: /<\|"\|>([^<]|<[^|<])*<\|"\|>/',
]
_TYPES = {
    "string": "STRING",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": '("true" | "false")',
    "null": '"null"',
    "array": "gemma_array",
    "object": "gemma_object",
}
_MOST_LEVELS, _MOST_MEMBERS = 6, 32


def rules(name: str, schema: Mapping[str, Any]) -> list[str]:
    """The rule ``name`` for an object that fits ``schema``, and those that it needs."""
    return [f"{name}: {_value(schema, 0)}", *_ANY]


def _value(schema: Any, level: int) -> str:
    if not isinstance(schema, Mapping) or level > _MOST_LEVELS:
        return "gemma_any"
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"({' | '.join(json.dumps(gemma_values.written(value)) for value in values)})"
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return f"({' | '.join(_value(option, level + 1) for option in schema[keyword])})"
    kind = schema.get("type")
    if isinstance(kind, list):
        return f"({' | '.join(_value({**schema, 'type': one}, level + 1) for one in kind)})"
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        item = _value(schema["items"], level + 1)
        return f'"[" ({item} ("," {item})*)? "]"'
    if kind == "object" and schema.get("additionalProperties") is False:
        members = schema.get("properties", {})
        if len(members) <= _MOST_MEMBERS:
            return f'"{{" {_members(members, set(schema.get("required", ())), level)} "}}"'
    return _TYPES.get(str(kind), "gemma_any")


def _members(properties: Mapping[str, Any], required: set[str], level: int) -> str:
    """In the order of the notation."""
    names = sorted(properties, key=str.lower)
    members = [
        (f"{json.dumps(f'{name}:')} {_value(properties[name], level + 1)}", name) for name in names
    ]
    return _rest(members, required, begun=False)


def _rest(members: list[tuple[str, str]], required: set[str], *, begun: bool) -> str:
    """``begun``: a member stands before them, so that each needs a comma."""
    if not members:
        return ""
    (member, name), *others = members
    after = _rest(others, required, begun=True)
    if begun:
        return f'"," {member} {after}' if name in required else f'("," {member})? {after}'
    if name in required:
        return f"{member} {after}"
    without = _rest(others, required, begun=False)
    return f"({member} {after} | {without})" if without else f"({member} {after})?"
