"""Whatever a tool's grammar allows is a call that fits its schema."""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.tool_calls.schema_check import fits, fitted
from pipeline.engines.llm.tool_calls.syntax import FAMILIES, GEMMA, HERMES, LLAMA, Syntax
from pipeline.engines.llm.vocabulary import Vocabulary
from pipeline.messages import Sampling, Tool
from tests.support.llama_talk import random_text
from tests.support.robot_tools import robot_tools

pytestmark = [pytest.mark.engines, pytest.mark.real]


def need(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


NAME = {"type": "string"}
COLOR = {"enum": ["red", "blue"]}
NODE = need(kind=NAME, inner={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})
LEAF = need(kind=NAME, value={"type": "boolean"})
SCHEMAS: dict[str, Any] = {
    "nothing": {},
    "one of": {
        "properties": {"a": {"enum": ['say "hi"', "back\\slash", "né 🤖", 1.5, None, True]}}
    },
    "required": {
        "properties": {k: {"const": k} for k in "abcd"},
        "required": ["b", "d"],
    },
    "types": {"properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]},
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
    "nested": need(
        a={**need(b={"type": "object", "properties": {"c": NAME}}), "additionalProperties": False}
    ),
    "anything": {"properties": {"a": True, "b": {}}, "required": ["a", "c"]},
    "alternatives": {
        "properties": {
            "a": {"anyOf": [{"type": "boolean"}, {"type": "object", "properties": {"x": NAME}}]},
            "b": {"oneOf": [{"const": 1}, {"const": "one"}], "description": "One."},
            "c": {"type": "object", "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        },
        "required": ["a", "b", "c"],
    },
    "references": {
        "properties": {"a": {"$ref": "#/$defs/color", "description": "A color."}},
        "required": ["a"],
        "$defs": {"color": {"enum": ["red", "blue"]}},
    },
    "recursion": {
        "$ref": "#/$defs/n",
        "$defs": {"n": need(kind=NAME, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]})},
    },
    "a tuple of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **need(b={"type": "array", "items": [{"type": "integer"}, COLOR], "minItems": 2}),
    },
    "a name with a blank": need(**{"first name": {"type": "integer"}}),
    "nanoseconds": need(b={"type": "integer", "minimum": 1_700_000_000_000_000_000}),
    "at least one member": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 1,
    },
    "a list with a seven": need(
        b={"type": "array", "contains": {"const": 7}, "items": {"enum": [7]}}
    ),
    "a tree that begins alike": {
        **need(a={"$ref": "#/$defs/n"}),
        "$defs": {"n": {"anyOf": [LEAF, NODE]}},
    },
    "many values": need(a={"enum": [f"item_{i}" for i in range(2_000)]}),
    "many members": {"type": "object", "properties": {f"m{i}": COLOR for i in range(300)}},
}
UNUSABLE: dict[str, Any] = {
    "not a schema": 3,
    "not an object": {"type": "array"},
    "no such type": {"properties": {"a": {"type": "text"}}},
    "nowhere": {"properties": {"a": {"$ref": "#/$defs/none"}}},
    "elsewhere": {"properties": {"a": {"$ref": "https://example.com/schema"}}},
    "deep": json.loads('{"items":' * 500 + "true" + "}" * 500),
    "a strange bound": {"properties": {"a": {"type": "number", "maximum": float("nan")}}},
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
    """Valid by our own check, and by another validator if one is installed."""
    if importlib.util.find_spec("jsonschema"):
        import jsonschema

        jsonschema.validate(value, schema)
    return fits(value, schema)


# --- grammars ----------------------------------------------------------------------------------


@functools.cache
def grammars_of(model: Model, syntax: Syntax) -> CallGrammars:
    """Made once: most of its time goes into the vocabulary."""
    return CallGrammars(model, syntax)


def calls(
    model: Model, syntax: Syntax, tools: Sequence[Tool], count: int
) -> list[tuple[str, dict[str, Any]]]:
    """Random calls that the grammar allows, soon steered to an end."""
    quotes = ["<|", "|>", '"'] if syntax is GEMMA else ['"']
    found = []
    for seed in range(count):
        grammar = grammars_of(model, syntax).matcher(tools)
        whole = syntax.begin + random_text(model, grammar, quotes, seed)
        assert whole.endswith(syntax.end + syntax.close)
        body = whole.removesuffix(syntax.close).removeprefix(syntax.marker)
        call = syntax.read(body)
        assert call is not None, whole
        found.append(call)
    return found


@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
def test_whatever_the_grammar_allows_fits_a_robot_tool(model: Model, syntax: Syntax) -> None:
    for one in robot_tools():
        for name, arguments in calls(model, syntax, [one], 1):
            assert name == one.name
            assert valid(arguments, one.parameters)


@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_the_grammar_allows_fits_its_schema(
    model: Model, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = [arguments for _, arguments in calls(model, HERMES, [tool(SCHEMAS[name])], 3)]
    # llguidance enforces no bound beyond 32 bits and no "contains", and takes an exclusive bound
    # of 0 for an inclusive one: such calls are dropped when they are complete.
    late = name in ("numbers", "nanoseconds", "a list with a seven")
    assert late or all(valid(arguments, SCHEMAS[name]) for arguments in found)
    assert not caplog.messages


@pytest.mark.parametrize("name", ["one of", "required", "types", "nested", "a name with a blank"])
def test_gemmas_notation_holds_names_and_types(model: Model, name: str) -> None:
    for _, arguments in calls(model, GEMMA, [tool(SCHEMAS[name])], 3):
        assert valid(arguments, SCHEMAS[name])


def test_no_unknown_member_is_allowed(model: Model) -> None:
    inner = {"type": "object", "properties": {"c": NAME}}
    schema = {"properties": {"a": NAME, "b": inner}}
    for syntax in (HERMES, GEMMA):
        for _, arguments in calls(model, syntax, [tool(schema)], 5):
            assert set(arguments) <= {"a", "b"}
            assert set(arguments.get("b", ())) <= {"c"}


def test_an_odd_name(model: Model) -> None:
    odd = tool({"properties": {"a": {"type": "boolean"}}}, 'say "hi"\\n')
    for syntax in (HERMES, LLAMA):
        for name, _ in calls(model, syntax, [odd], 1):
            assert name == odd.name


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_that_cannot_be_used_allows_any_object(
    model: Model, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = tool({"properties": {"a": {"const": 1}}, "required": ["a"]}, "good")
    for called, arguments in calls(model, HERMES, [tool(UNUSABLE[name]), good], 3):
        assert arguments == {"a": 1} if called == "good" else isinstance(arguments, dict)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "The schema of the tool act cannot be used: " in caplog.text


def test_the_last_of_tools_with_one_name_counts(model: Model) -> None:
    first, last = tool(need(a={"const": 1})), tool(need(b={"const": 2}))
    assert [arguments for _, arguments in calls(model, HERMES, [first, last], 2)] == [{"b": 2}] * 2


def test_unenforceable_schema_parts_are_logged(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
    with caplog.at_level(logging.INFO):
        CallGrammars(model, HERMES).matcher([tool(schema)])
    assert "uniqueItems" in caplog.text


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
    for _ in range(17):
        grammars.matcher([tool({}, "act_0")])
    grammars.matcher(robot_tools())
    assert len(compiled) == 2, "many look-ups of one set of tools evict no other"
    for number in range(16):
        grammars.matcher([tool({}, f"act_{number}")])
    grammars.matcher(robot_tools())
    assert len(compiled) == 18


# --- schemas that are made to take long --------------------------------------------------------


def alike(options: int, levels: int) -> dict[str, Any]:
    """Nested alternatives that begin alike, so exponentially many are open at once."""
    defs: dict[str, Any] = {"l0": {"type": "string"}}
    for level in range(1, levels + 1):
        inner = {"$ref": f"#/$defs/l{level - 1}"}
        some = [need(a=inner, **{f"b{i}": {"type": "null"}}) for i in range(options)]
        defs[f"l{level}"] = {"anyOf": some}
    return {**need(v={"$ref": f"#/$defs/l{levels}"}), "$defs": defs}


def ladder(types: int, members: int) -> dict[str, Any]:
    """A type named often, and references that cannot be shared."""
    inner = {f"p{i}": {"$ref": "#/$defs/a", "maxLength": 1} for i in range(members)}
    return {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object"] * types, "properties": inner}}}


NODES = [need(a={"$ref": "#/$defs/n"}, **{f"b{i}": {"type": "null"}}) for i in range(3)]
SLOW: dict[str, tuple[Any, str]] = {
    "levels alike": (alike(3, 12), '{"v": ' + '{"a": ' * 12 + '"'),
    "wide and alike": (alike(60, 30), '{"v": {"a": {"a": '),
    "a recursion that begins alike": (
        {
            **need(v={"$ref": "#/$defs/n"}),
            "$defs": {"n": {"anyOf": [*NODES, need(a={"type": "boolean"})]}},
        },
        '{"v": ' + '{"a": ' * 40,
    ),
    "many values": (SCHEMAS["many values"], '{"a": "item_'),
    "a ladder": (ladder(300, 300), "{"),
    "lists of values": (need(a={"allOf": [{"enum": list(range(5_000))}] * 200}), '{"a": 4'),
}


def slowest_s(model: Model, schema: Any, text: str) -> float:
    """The slowest of compilation and tokens, in s, while the model writes ``text`` as far as
    allowed."""
    start = time.thread_time()
    grammar = CallGrammars(model, HERMES).matcher([tool(schema)])
    slowest = time.thread_time() - start
    sampler = Sampler(model, Sampling(seed=1))
    sampler.bind(grammar)
    chance = np.random.default_rng(0)
    for token in [*model.tokenize(text, special=False), *[-1] * 4]:
        logits = chance.normal(size=model.vocab_tokens).astype(np.float32)
        logits[token] += 1_000 if token >= 0 else 0
        start = time.thread_time()
        taken = sampler.sample(logits)
        slowest = max(slowest, time.thread_time() - start)
        if taken is None:
            break
    return slowest


@pytest.mark.parametrize("name", SLOW)
def test_no_schema_stops_the_engine(model: Model, name: str) -> None:
    schema, text = SLOW[name]
    assert slowest_s(model, schema, f'act", "arguments": {text}') < 3


# --- the check ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1.0, {"type": "integer"}, True),
        (True, {"enum": [1]}, False),
        ({"a": 1}, {"properties": {"b": {}}, "additionalProperties": False}, False),
        # Drafts 4 and 7, where the newest does not accept a schema.
        (3, {"minimum": 3, "exclusiveMinimum": True}, False),
        ([1, "x"], {"items": [{"type": "integer"}, {"type": "integer"}]}, False),
        # A schema that cannot be used excludes nothing, and nothing is fetched.
        ("x", {"type": "nonsense", "enum": 3, "required": 3, "minLength": "x"}, True),
        ("x", "nonsense", True),
        ("x", {"$ref": "https://example.com/schema"}, True),
        ("x", False, False),
        # Slow checks end early.
        ("x", {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, True),
        ("a" * 40 + "b", {"pattern": "^(a+)+$"}, False),
        (json.loads("[" * 300 + "]" * 300), {"items": {"$ref": "#"}}, True),
    ],
)
def test_fits_checks_a_value_against_its_schema(value: Any, schema: Any, expected: bool) -> None:
    assert fits(value, schema) == expected


TURN = {
    "type": "object",
    "properties": {"degrees": {"type": "number"}, "fast": {"type": "boolean"}, "why": NAME},
    "required": ["degrees"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"degrees": "30", "fast": "True", "why": None}, {"degrees": 30, "fast": True}),
        ({"degrees": 30, "why": "5"}, {"degrees": 30, "why": "5"}),
        ({"degrees": "30", "why": "5"}, {"degrees": 30, "why": "5"}),
        ({"degrees": "thirty"}, None),
        ({"degrees": "NaN"}, None),
        ({"degrees": None}, None),
        ({"degrees": "30", "slow": True}, None),
    ],
)
def test_arguments_are_taken_as_small_models_mean_them(
    written: dict[str, Any], meant: dict[str, Any] | None
) -> None:
    assert fitted(written, TURN) == meant
