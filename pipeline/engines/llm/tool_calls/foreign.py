"""Calls in the spellings of other families, which their servers should have read. Sans-I/O.

``[TOOL_CALLS]name[ARGS]{…}`` (Mistral), ``<function=name>{…}</function>`` (Llama),
``<function=name><parameter=key>text</parameter></function>`` (Qwen3-Coder, Qwen3.5), and lists of
calls in Python, ``[name(key="text")]`` (LFM2 with marks, Llama 3.2 and 4 without).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.schema_check import properties, typed
from pipeline.engines.llm.tool_calls.syntax import BARE

LIST, FUNCTION, PYTHON = "[TOOL_CALLS]", "<function=", "<|tool_call_start|>"
_HEAD = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?>?\s*")
_BEGUN = re.compile(r"\s*+[\w.-]*+\s*+(?:\[[A-Z_]*+(?:\]\w*+)?+){0,2}+>?\s*+")
_END = re.compile(r"</function>|</tool_call>")
_PARAMETER = re.compile(
    r"<parameter=(?P<key>[^>]+)>\n?(?P<text>.*?)\n?(?=</parameter>|<parameter=|\Z)", re.DOTALL
)
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_PART = re.compile(
    r"""(?P<text>(['"])(?:\\.|(?!\2).)*+\2)|(?P<begun>['"])|[\[({]|[\])}]""", re.DOTALL
)

Read = tuple[str, dict[str, Any]] | None
"""Name and arguments of a call; ``None`` if it is malformed."""


def opens_python(text: str, names: Collection[str]) -> bool:
    """Whether ``text`` begins like a list of calls in Python."""
    return any(text.startswith(f"[{name}(") for name in names)


def may_open_python(text: str, names: Collection[str]) -> bool:
    """Whether ``text`` may do so once more text follows."""
    return any(f"[{name}(".startswith(text) for name in names)


def end(text: str, mark: str) -> int | None:
    """Where the call after ``mark`` ends in ``text``, which follows the mark; 0 if it is none;
    ``None`` if it has not ended yet."""
    if mark == PYTHON:
        return _end_of_list(text)
    if _BEGUN.fullmatch(text):
        return None
    head = _HEAD.match(text)
    if head and text[head.end()] == "{":
        return CallData(BARE, head.end()).end(text)
    close = _END.search(text)
    return 0 if mark == LIST else close and close.start()


def read(text: str, mark: str, schemas: Mapping[str, Any]) -> Sequence[Read]:
    """The whole call after ``mark``, or the whole list of calls."""
    return _read_python(text) if mark == PYTHON else [_read(text, schemas)]


def _read(text: str, schemas: Mapping[str, Any]) -> Read:
    head = _HEAD.match(text)
    if not head:
        return None
    name, data = head["name"], text[head.end() :]
    if data.startswith("{"):
        try:
            return name, json.loads(data, strict=False)
        except (ValueError, RecursionError):
            return None
    if data and not data.startswith("<parameter="):
        return None
    types, found = properties(schemas.get(name)), _PARAMETER.finditer(data)
    return name, {one["key"]: typed(one["text"], types.get(one["key"], {})) for one in found}


def _end_of_list(text: str) -> int | None:
    """Where the list that ``text`` begins with ends; as ``end``."""
    depth, begun = 0, text.lstrip()
    if begun and begun[0] != "[":
        return 0
    for part in _PYTHON_PART.finditer(text):
        if part["begun"]:
            return None
        if not part["text"]:
            depth += 1 if part[0] in "[({" else -1
            if not depth:
                return part.end()
    return None


def _read_python(text: str) -> Sequence[Read]:
    try:
        calls = _JsonWords().visit(ast.parse(text.strip(), mode="eval")).body
        return [_python_call(call) for call in calls.elts] if isinstance(calls, ast.List) else []
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return [None]


def _python_call(call: ast.expr) -> Read:
    """Raises ``ValueError`` or ``TypeError`` if an argument is no constant that JSON knows."""
    if not isinstance(call, ast.Call) or call.args:
        return None
    constants = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
    return ast.unparse(call.func), json.loads(json.dumps(constants))


class _JsonWords(ast.NodeTransformer):
    """Replaces the names ``true``, ``false`` and ``null`` by their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
