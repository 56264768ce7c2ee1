"""Calls in the spellings of other families, which their servers should have read. Sans-I/O.

``[TOOL_CALLS]name[ARGS]{…}`` (Mistral), ``<function=name>{…}</function>`` (Llama), and
``<function=name><parameter=key>text</parameter></function>`` (Qwen3-Coder, Qwen3.5).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.tool_calls.syntax import BARE

LIST, FUNCTION = "[TOOL_CALLS]", "<function="
_HEAD = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?>?\s*")
_BEGUN = re.compile(r"\s*+[\w.-]*+\s*+(?:\[[A-Z_]*+(?:\]\w*+)?+){0,2}+>?\s*+")
_END = re.compile(r"</function>|</tool_call>")
_PARAMETER = re.compile(
    r"<parameter=(?P<key>[^>]+)>\n?(?P<text>.*?)\n?(?=</parameter>|<parameter=|\Z)", re.DOTALL
)
_PYTHON = {"True": "true", "False": "false", "None": "null"}


def end(text: str, mark: str) -> int | None:
    """Where the call after ``mark`` ends in ``text``, which follows the mark; 0 if it is none;
    ``None`` if it has not ended yet."""
    if _BEGUN.fullmatch(text):
        return None
    head = _HEAD.match(text)
    if head and text[head.end()] == "{":
        return CallData(BARE, head.end()).end(text)
    close = _END.search(text)
    return 0 if mark == LIST else close and close.start()


def read(text: str, schemas: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a whole call; ``None`` if it is malformed."""
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
    types = schemas.get(name, {}).get("properties")
    types, found = types if isinstance(types, Mapping) else {}, _PARAMETER.finditer(data)
    return name, {one["key"]: _value(one["text"], types.get(one["key"], {})) for one in found}


def _value(text: str, schema: Any) -> Any:
    """A parameter's text as its schema wants it."""
    if not fits(text, schema):
        try:
            return json.loads(_PYTHON.get(text, text))
        except (ValueError, RecursionError):
            pass
    return text
