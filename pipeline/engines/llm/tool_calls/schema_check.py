"""Checks values against JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs

_DRAFTS = (
    jsonschema_rs.Draft202012Validator,
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft4Validator,
)
"""Tools rarely name their schema draft, so the first draft that accepts the schema is used."""
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
"""A pattern that exceeds this limit does not match."""
_PYTHON = {"True": "true", "False": "false", "None": "null"}


def fits(value: Any, schema: Any) -> bool:
    """Whether ``value`` is valid. Anything fits a schema that cannot be used (``why_unusable``)."""
    check, _ = _compile(_text(schema))
    return check is None or check.is_valid(value)


def fitted(arguments: Mapping[str, Any], schema: Any) -> Mapping[str, Any] | None:
    """A call's arguments as they fit, or ``None``. Small models write "30" for a number, and null
    for what they leave out."""
    if fits(arguments, schema):
        return arguments
    types = properties(schema)
    meant = {key: typed(each, types.get(key, {})) for key, each in arguments.items()}
    meant = {key: each for key, each in meant.items() if each is not None}
    return meant if fits(meant, schema) else None


def properties(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def typed(value: Any, schema: Any) -> Any:
    """What a text says, if ``schema`` wants something else than text."""
    if isinstance(value, str) and not fits(value, schema):
        try:
            return json.loads(_PYTHON.get(value, value))
        except (ValueError, RecursionError):
            pass
    return value


def why_unusable(schema: Any) -> str:
    """What is wrong with ``schema``, in one line, or an empty string. Fetches nothing."""
    return _compile(_text(schema))[1]


def why_unwritable(schema: Any) -> str:
    """Why no grammar can be made from ``schema``, in one line, or an empty string. Keywords that a
    grammar just leaves out, such as ``not`` and ``uniqueItems``, are no reason."""
    from llguidance import LLMatcher

    if why := why_unusable(schema):
        return why
    rule = json.dumps({**schema, "x-guidance": {"lenient": True}})
    why = LLMatcher.validate_grammar(f"start: %json {rule}").partition("\n   1 |")[0]
    return " ".join(why.rpartition("JSON schema: ")[2].split())


@lru_cache(256)
def _compile(text: str) -> tuple[Any, str]:
    """The validator of a schema, or what is wrong with it."""
    why = ""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    if not isinstance(schema, dict | bool):
        return None, "it is not an object"
    for draft in _DRAFTS:
        try:
            return draft(schema, retriever=_refuse, pattern_options=_PATTERNS), ""
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            place = ".".join(map(str, getattr(error, "instance_path", ())))
            message = str(error).partition("\n")[0]
            why = why or (f"{place}: {message}" if place else message)
    return None, why


def _text(schema: Any) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not part of the schema")
