"""Whatever the grammar of a tool lets through is a call that fits its schema."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.tool_calls.syntax import FAMILIES, GEMMA, HERMES, LLAMA, Syntax
from pipeline.engines.llm.vocabulary import Vocabulary
from pipeline.messages import Sampling, Tool
from tests.support.robot_tools import robot_tools

NAME = {"type": "string"}
SCHEMAS: dict[str, Any] = {
    "nothing": {},
    "no members": {"type": "object", "properties": {}},
    "one of": {
        "properties": {"a": {"enum": ['say "hi"', "back\\slash", "né 🤖", 1.5, None, True]}}
    },
    "required": {
        "properties": {k: {"const": k} for k in "abcd"},
        "required": ["b", "d"],
    },
    "enum and types": {"properties": {"a": {"type": ["string", "null"], "enum": ["x", 3, None]}}},
    "types": {"properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]},
    "whole numbers": {
        "properties": {"a": {"type": "integer", "minimum": -3, "exclusiveMaximum": 120}},
        "required": ["a"],
    },
    "numbers": {
        "properties": {"a": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.35}},
        "required": ["a"],
    },
    "lists": {
        "properties": {
            "a": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            "b": {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}]},
            "c": {"type": "array", "maxItems": 0},
        },
        "required": ["a", "b", "c"],
    },
    "nested": {
        "properties": {
            "a": {
                "type": "object",
                "properties": {"b": {"type": "object", "properties": {"c": NAME}}},
                "required": ["b"],
                "additionalProperties": False,
            }
        },
        "required": ["a"],
    },
    "a map": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 9}},
    "anything": {"properties": {"a": True, "b": {}}, "required": ["a", "c"]},
    "alternatives": {
        "properties": {
            "a": {"anyOf": [{"type": "boolean"}, {"type": "object", "properties": {"x": NAME}}]},
            "b": {"oneOf": [{"const": 1}, {"const": "one"}], "description": "One."},
            "c": {"type": "object", "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        },
        "required": ["a", "b", "c"],
    },
    "all of": {
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"properties": {"b": {"type": "null"}}, "required": ["b"]},
        ],
        "$defs": {"base": {"properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
    },
    "references": {
        "properties": {"a": {"$ref": "#/$defs/color", "description": "A color."}},
        "required": ["a"],
        "$defs": {"color": {"enum": ["red", "blue"]}},
    },
    "recursion": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "boolean"},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
                "required": ["value", "next"],
            }
        },
    },
    "lengths": {
        "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 4}},
        "required": ["a"],
    },
    "long lists": {
        "properties": {"a": {"type": "array", "items": {"enum": [1]}, "maxItems": 900}},
        "required": ["a"],
    },
}
UNUSABLE: dict[str, Any] = {
    "not a schema": 3,
    "not an object": {"type": "array"},
    "no such type": {"properties": {"a": {"type": "text"}}},
    "nowhere": {"properties": {"a": {"$ref": "#/$defs/none"}}},
    "elsewhere": {"properties": {"a": {"$ref": "https://example.com/schema"}}},
    "no alternatives": {"properties": {"a": {"anyOf": []}}},
    "deep": json.loads('{"items":' * 500 + "true" + "}" * 500),
    "a strange bound": {"properties": {"a": {"type": "number", "maximum": float("nan")}}},
    "strange members": {"properties": [1, 2]},
    "required by nobody": {"required": "all", "properties": {}},
    "endless": {
        "$defs": {"a": {"type": "object", "allOf": [{"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
    "exploding": {
        "$defs": {"a": {"type": "object", "anyOf": [{"$ref": "#/$defs/a"}] * 9}},
        "$ref": "#/$defs/a",
    },
}


def tool(parameters: Any, name: str = "act") -> Tool:
    return Tool(name, "", parameters)


def valid(value: Any, schema: Any) -> bool:
    """By our own check, and by another validator where there is one."""
    if importlib.util.find_spec("jsonschema"):
        import jsonschema

        jsonschema.validate(value, schema)
    return fits(value, schema)


# --- grammars ----------------------------------------------------------------------------------


def calls(
    model: Model, syntax: Syntax, tools: Sequence[Tool], count: int
) -> list[tuple[str, dict[str, Any]]]:
    """Calls that the grammar lets through of chance, soon brought to an end."""
    quote = ["<|", "|>", '"'] if syntax is GEMMA else ['"']
    ends = [t for text in [*quote, "}", "]", ","] for t in model.tokenize(text, special=False)]
    grammars = CallGrammars(model, syntax)
    found = []
    for seed in range(count):
        chance = np.random.default_rng(seed)
        sampler = Sampler(model, Sampling(seed=seed, temperature=1))
        sampler.bind(grammars.matcher(tools))
        data = b""
        for step in range(400):
            logits = chance.normal(size=model.vocab_tokens).astype(np.float32)
            logits[ends] += 7
            hurry = ends if step > 60 else ()
            token = sampler.sample(logits, preferred=hurry)
            assert token is not None
            if model.ends(token):
                break
            data += model.piece(token) or model.piece(token, special=True)
        whole = syntax.begin + data.decode()
        assert whole.endswith(syntax.end + syntax.close)
        body = whole.removesuffix(syntax.close).removeprefix(syntax.marker)
        call = syntax.read(body)
        assert call is not None, whole
        found.append(call)
    return found


@pytest.mark.real
@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
def test_whatever_the_grammar_allows_fits_a_robot_tool(model: Model, syntax: Syntax) -> None:
    for one in robot_tools():
        for name, arguments in calls(model, syntax, [one], 1):
            assert name == one.name
            assert valid(arguments, one.parameters)


@pytest.mark.real
@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
def test_all_robot_tools_at_once(model: Model, syntax: Syntax) -> None:
    tools = {one.name: one for one in robot_tools()}
    for name, arguments in calls(model, syntax, list(tools.values()), 4):
        assert valid(arguments, tools[name].parameters)


@pytest.mark.real
@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_the_grammar_allows_fits_its_schema(
    model: Model, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = [arguments for _, arguments in calls(model, HERMES, [tool(SCHEMAS[name])], 3)]
    late = name == "numbers"  # llguidance takes an exclusive bound of 0 for an inclusive one
    assert all(valid(arguments, SCHEMAS[name]) for arguments in found if not late or arguments["a"])
    assert not caplog.messages


@pytest.mark.real
@pytest.mark.parametrize("name", ["one of", "required", "types", "nested"])
def test_gemmas_notation_holds_names_and_types(model: Model, name: str) -> None:
    for _, arguments in calls(model, GEMMA, [tool(SCHEMAS[name])], 3):
        assert valid(arguments, SCHEMAS[name])


@pytest.mark.real
def test_no_member_is_invented(model: Model) -> None:
    inner = {"type": "object", "properties": {"c": NAME}}
    schema = {"properties": {"a": NAME, "b": inner}}
    for syntax in (HERMES, GEMMA):
        for _, arguments in calls(model, syntax, [tool(schema)], 5):
            assert set(arguments) <= {"a", "b"}
            assert set(arguments.get("b", ())) <= {"c"}


@pytest.mark.real
def test_an_odd_name(model: Model) -> None:
    odd = tool({"properties": {"a": {"type": "boolean"}}}, 'say "hi"\\n')
    for syntax in (HERMES, LLAMA):
        for name, _ in calls(model, syntax, [odd], 1):
            assert name == odd.name


@pytest.mark.real
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_that_cannot_be_used_allows_any_object(
    model: Model, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = tool({"properties": {"a": {"const": 1}}, "required": ["a"]}, "good")
    for called, arguments in calls(model, HERMES, [tool(UNUSABLE[name]), good], 3):
        assert arguments == {"a": 1} if called == "good" else isinstance(arguments, dict)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "The schema of the tool act cannot be used: " in caplog.text


@pytest.mark.real
def test_what_cannot_be_enforced_is_said(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
    with caplog.at_level(logging.INFO):
        CallGrammars(model, HERMES).matcher([tool(schema)])
    assert "uniqueItems" in caplog.text


@pytest.mark.real
def test_a_set_of_tools_is_compiled_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    matcher = Vocabulary.matcher

    def counted(self: Vocabulary, lark: str) -> Any:
        compiled.append(lark)
        return matcher(self, lark)

    monkeypatch.setattr(Vocabulary, "matcher", counted)
    grammars = CallGrammars(model, HERMES)
    for _ in range(2):
        grammars.matcher(robot_tools())
    assert len(compiled) == 1
    for number in range(16):
        grammars.matcher([tool({}, f"act_{number}")])
    grammars.matcher(robot_tools())
    assert len(compiled) == 18


# --- the check ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, {"type": "integer"}, True),
        (1.0, {"type": "integer"}, True),
        (1.5, {"type": "integer"}, False),
        (True, {"type": "integer"}, False),
        (True, {"enum": [1]}, False),
        (None, {"type": ["string", "null"]}, True),
        ({"a": 1}, {"properties": {"b": {}}, "additionalProperties": False}, False),
        ({"a": 1}, {"additionalProperties": {"type": "string"}}, False),
        ({}, {"required": ["a"]}, False),
        ({"a": {"b": 1}}, {"properties": {"a": {"properties": {"b": {"maximum": 0}}}}}, False),
        ([1, "x"], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, True),
        ([1, 2], {"maxItems": 1}, False),
        ("abc", {"minLength": 4}, False),
        (3, {"minimum": 3, "exclusiveMinimum": True}, False),
        (3, {"exclusiveMaximum": 3}, False),
        (1, {"anyOf": [{"type": "string"}, {"minimum": 1}]}, True),
        (1, {"allOf": [{"type": "string"}, {"minimum": 1}]}, False),
        ("x", {"$ref": "#/$defs/a", "$defs": {"a": {"const": "y"}}}, False),
        ("x", {"$ref": "#"}, True),
        ("x", {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, True),
        ("x", {"type": "nonsense", "enum": 3, "required": 3, "minLength": "x"}, True),
        ("x", False, False),
        ("x", "nonsense", True),
        (1, {"$ref": "#/a/1", "a": [True, {"type": "string"}]}, False),
        (1, {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "string"}}}, False),
        (1, {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "string"}}}, False),
        ([1, "x"], {"items": [{"type": "integer"}, {"type": "integer"}]}, False),
        ([1, 2], {"items": [True], "additionalItems": False}, False),
        ([1, 1.0], {"uniqueItems": True}, False),
        ([1, True, [1], [True]], {"uniqueItems": True}, True),
        (0.3, {"multipleOf": 0.1}, True),
        (7, {"multipleOf": 5}, False),
        ({}, {"minProperties": 1}, False),
        ({"a": 1}, {"maxProperties": 0}, False),
        ({"abc": 1}, {"propertyNames": {"maxLength": 2}}, False),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}, False),
        ({"a": 1}, {"dependencies": {"a": {"required": ["b"]}}}, False),
        ([1], {"contains": {"const": 2}}, False),
        ([2, 2], {"contains": {"const": 2}, "maxContains": 1}, False),
        (6575, {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, False),
        ("x", {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, False),
        ("x", {"not": {"type": "string"}}, False),
        ("x", {"not": {"pattern": "y"}}, True),
        ("a" * 40 + "b", {"pattern": "^(a+)+$"}, False),
        ("x", {"$ref": "https://example.com/schema"}, True),
        (3, {"if": {"minimum": 2}, "then": {"maximum": 2}}, False),
        (1, {"if": {"minimum": 2}, "else": {"const": 0}}, False),
        (json.loads("[" * 300 + "]" * 300), {"items": {"$ref": "#"}}, True),
    ],
)
def test_the_check(value: Any, schema: Any, expected: bool) -> None:
    assert fits(value, schema) == expected
