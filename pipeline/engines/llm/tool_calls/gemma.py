"""Gemma 4's notation for arguments: ``{key:<|"|>text<|"|>,other:[1,true]}``.

Keys are bare and sorted, as its chat template writes them; strings have no escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

QUOTE = '<|"|>'
_CALL = re.compile(r"\s*call:(?P<name>[^{]+)(?=\{)")
_NOT_JSON = re.compile(
    r'<\|"\|>(?P<text>.*?)<\|"\|>|(?<=[{,])\s*(?P<key>[^:{}\[\],<]+)(?=:)|\bNone\b'
    r"|(?<=[:,\[])(?P<before_zeros>\s*-?)0+(?=\d)",
    re.DOTALL,
)


def written(value: Any) -> str:
    """``value`` as the chat template writes it."""
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        # jinja's dictsort ignores case.
        pairs = sorted(value.items(), key=lambda pair: str(pair[0]).lower())
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    return str(value)


def read_call(body: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of ``call:name{…}``; ``None`` if it is malformed."""
    match = _CALL.match(body)
    if match is None:
        return None
    try:
        arguments = json.loads(_NOT_JSON.sub(_as_json, body[match.end() :]))
    except (ValueError, RecursionError):
        return None
    return match["name"].strip(), arguments


def _as_json(match: re.Match[str]) -> str:
    if match["key"]:
        return json.dumps(match["key"].strip())
    if match["before_zeros"] is not None:
        return match["before_zeros"]
    return "null" if match["text"] is None else json.dumps(match["text"])


# --- grammar -----------------------------------------------------------------------------------

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
    """The Lark rule ``name`` for an object with the members of ``schema``, and the rules that it
    needs. It enforces names and types; the rest of the schema is checked on the complete call."""
    return [f"{name}: {_value(schema, 0)}", *_ANY]


def _value(schema: Any, level: int) -> str:
    if not isinstance(schema, Mapping) or level > _MOST_LEVELS:
        return "gemma_any"
    kind = schema.get("type")
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return _one_of([json.dumps(written(value)) for value in values])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return _one_of([_value(option, level + 1) for option in schema[keyword]])
    if isinstance(kind, list):
        return _one_of([_value({**schema, "type": one}, level + 1) for one in kind])
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        item = _value(schema["items"], level + 1)
        return f'"[" ({item} ("," {item})*)? "]"'
    members = schema.get("properties", {})
    closed = kind == "object" and schema.get("additionalProperties") is False
    if not closed or len(members) > _MOST_MEMBERS:
        return _TYPES.get(str(kind), "gemma_any")
    in_order = [
        (f"{json.dumps(f'{name}:')} {_value(members[name], level + 1)}", name)
        for name in sorted(members, key=str.lower)
    ]
    return f'"{{" {_members(in_order, set(schema.get("required", ())), needs_comma=False)} "}}"'


def _one_of(options: list[str]) -> str:
    return f"({' | '.join(options)})"


def _members(members: list[tuple[str, str]], required: set[str], *, needs_comma: bool) -> str:
    """``needs_comma``: a member precedes these, so each needs a comma before it."""
    if not members:
        return ""
    (member, name), *others = members
    after = _members(others, required, needs_comma=True)
    if needs_comma:
        return f'"," {member} {after}' if name in required else f'("," {member})? {after}'
    if name in required:
        return f"{member} {after}"
    without = _members(others, required, needs_comma=False)
    return f"({member} {after} | {without})" if without else f"({member} {after})?"
