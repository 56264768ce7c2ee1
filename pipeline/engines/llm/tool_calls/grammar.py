"""The grammar of calls, which allows only names and arguments that the tools accept.

It is written in Lark for llguidance, which compiles the tools' JSON schemas itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.engines.llm.recent import Latest
from pipeline.engines.llm.tool_calls import gemma
from pipeline.engines.llm.tool_calls.schema_check import why_unusable
from pipeline.engines.llm.tool_calls.syntax import Syntax
from pipeline.engines.llm.vocabulary import Vocabulary
from pipeline.errors import EngineError
from pipeline.messages import Tool

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from pipeline.engines.llm.llama_model import Model

log = logging.getLogger("reachy_voice.llm")

_JSON = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "coerce_one_of": True,
    "lenient": True,
}
"""JSON as ``json.dumps`` and chat templates write it, so that a call keeps its tokens in later
prompts. ``schema_check`` checks the whole call for what llguidance cannot enforce."""


class CallGrammars:
    """Compiled grammars of one model's calls, cached for the latest sets of tools."""

    def __init__(self, model: Model, syntax: Syntax) -> None:
        self.syntax = syntax
        self._vocabulary = Vocabulary(model, syntax.spelled)
        self._cache = Latest()

    def matcher(self, tools: Sequence[Tool], *, bare: bool = False) -> LLMatcher:
        """A matcher for one call of one of ``tools``, from the first letter of its name to the end.
        ``bare``: from the arguments on, for a call without marks whose name is known.

        If a schema cannot be used, the log says so, and the arguments may be any object. If tools
        share a name, the last one counts.
        """
        syntax = self.syntax.bare if bare else self.syntax
        tools = list({tool.name: tool for tool in tools}.values())
        key = (syntax.name, str(bare), *map(repr, tools))
        return self._cache.get(key, lambda: self._compile(syntax, tools, named=bare)).deep_copy()

    def _compile(self, syntax: Syntax, tools: Sequence[Tool], *, named: bool) -> LLMatcher:
        schemas = [_usable(tool) for tool in tools]
        try:
            matcher = self._vocabulary.matcher(_lark(syntax, tools, schemas, named=named))
        except EngineError:
            schemas = [
                self._compilable(syntax, tool, schema)
                for tool, schema in zip(tools, schemas, strict=True)
            ]
            matcher = self._vocabulary.matcher(_lark(syntax, tools, schemas, named=named))
        for warning in matcher.get_grammar_warnings():
            log.info("Ignoring calls that break parts of their schema: %s", warning)
        return matcher

    def _compilable(self, syntax: Syntax, tool: Tool, schema: Any) -> Any:
        """The schema, or the part of it that llguidance can use."""
        for some in (schema, _shape(schema)):
            try:
                self._vocabulary.matcher(_lark(syntax, [tool], [some], named=True))
                return some
            except EngineError as error:
                why = error.why
        _say_unusable(tool, why or "it is too large")
        return _ANY


_ANY = {"type": "object"}
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
_BOUNDS |= {"minLength", "maxLength", "minItems", "maxItems", "format"}


def _shape(schema: Any) -> Any:
    """``schema`` without bounds."""
    if isinstance(schema, list):
        return [_shape(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: part if name in ("enum", "const") else _shape(part)
        for name, part in schema.items()
        if name not in _BOUNDS or isinstance(part, Mapping)
    }


def _usable(tool: Tool) -> Any:
    """The schema of the tool's arguments; any object if the schema cannot be used."""
    schema = tool.parameters
    why = why_unusable(schema)
    if not why and isinstance(schema, Mapping) and schema.get("type", "object") != "object":
        why = "arguments are always an object"
    if why:
        _say_unusable(tool, why)
        return _ANY
    return closed({"properties": {}, **schema, "type": "object"})


def _say_unusable(tool: Tool, why: str) -> None:
    log.warning("The schema of the tool %s cannot be used: %s", tool.name, why)


_COMBINED = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "additionalProperties"}
_COMBINED |= {"patternProperties", "unevaluatedProperties", "dependentSchemas"}


def closed(schema: Any) -> Any:
    """``schema`` that rejects undeclared members, which small models invent."""
    if not isinstance(schema, Mapping):
        return schema
    strict = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        strict["properties"] = {name: closed(part) for name, part in properties.items()}
        if not schema.keys() & _COMBINED and set(schema.get("required", ())) <= set(properties):
            strict["additionalProperties"] = False
    if "items" in schema:
        strict["items"] = closed(schema["items"])
    return strict


def _lark(syntax: Syntax, tools: Sequence[Tool], schemas: Sequence[Any], *, named: bool) -> str:
    """``named``: begin at the arguments."""
    rules, calls = list[str](), list[str]()
    for number, (tool, schema) in enumerate(zip(tools, schemas, strict=True)):
        begin = "" if named else f"{literal(syntax.spelled_name(tool.name) + syntax.middle)} "
        calls.append(f"{begin}arguments_{number}")
        if syntax.values == "gemma":
            rules += gemma.rules(f"arguments_{number}", schema)
        else:
            text = json.dumps({**schema, "x-guidance": _JSON})
            rules.append(f"arguments_{number}: %json {text}")
    end = syntax.end + syntax.close
    start = f"start: ({' | '.join(calls)}) {literal(end) if end else ''}"
    return "\n".join([start, *dict.fromkeys(rules)])


def literal(text: str) -> str:
    """``text`` as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)
