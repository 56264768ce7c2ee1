"""Schemas that are made to take long, and ordinary ones that were hard to write."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.tool_calls.syntax import GEMMA, HERMES
from pipeline.messages import Sampling
from tests.engines.llm.test_tool_grammar import calls, tool, valid


def need(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def alike(options: int, levels: int) -> dict[str, Any]:
    """Alternatives that begin alike, inside of others that do: a power of them is open at once."""
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


COLOR = {"enum": ["red", "blue"]}
NODE = need(kind={"type": "string"}, inner={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})
LEAF = need(kind={"type": "string"}, value={"type": "boolean"})
ORDINARY: dict[str, Any] = {
    "a pointer into a list": need(
        a={"anyOf": [{"type": "integer"}, {"type": "null"}]}, b={"$ref": "#/properties/a/anyOf/0"}
    ),
    "a pointer with a blank": {
        **need(b={"$ref": "#/$defs/My%20Type"}),
        "$defs": {"My Type": {"type": "integer"}},
    },
    "an anchor": {**need(b={"$ref": "#x"}), "$defs": {"a": {"$anchor": "x", "type": "integer"}}},
    "a tuple of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **need(b={"type": "array", "items": [{"type": "integer"}, COLOR], "minItems": 2}),
    },
    "a bound twice": need(b={"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 5}]}),
    "a reference and a bound": {
        **need(b={"$ref": "#/$defs/p", "maximum": 3}),
        "$defs": {"p": {"type": "integer", "minimum": 0, "maximum": 9}},
    },
    "values twice": need(b={"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}),
    "an alternative that nothing fits": need(b={"anyOf": [{"enum": []}, {"type": "integer"}]}),
    "more items than are described": need(
        b={"type": "array", "prefixItems": [{"const": 1}], "items": COLOR, "minItems": 3}
    ),
    "no more items than that": need(
        b={"type": "array", "prefixItems": [{"const": 1}], "items": COLOR, "maxItems": 2}
    ),
    "nanoseconds": need(b={"type": "integer", "minimum": 1_700_000_000_000_000_000}),
    "tiny numbers": need(b={"type": "number", "minimum": 1e-7, "maximum": 2e-7}),
    "multiples": need(b={"type": "integer", "multipleOf": 5}),
    "few multiples": need(b={"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 3}),
    "at least one member": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 1,
    },
    "at least one of two": {"type": "object", "properties": {"a": COLOR, "b": COLOR}}
    | {"minProperties": 1, "maxProperties": 1},
    "a list with a seven": need(
        b={"type": "array", "contains": {"const": 7}, "items": {"enum": [7]}}
    ),
    "a name with a blank": need(**{"first name": {"type": "integer"}}),
    "only itself, or a number": {
        **need(a={"$ref": "#/$defs/a"}),
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "integer"}]}},
    },
    "a tree that begins alike": {
        **need(a={"$ref": "#/$defs/n"}),
        "$defs": {"n": {"anyOf": [LEAF, NODE]}},
    },
    "many values": need(a={"enum": [f"item_{i}" for i in range(2_000)]}),
    "values that begin with each other": need(a={"enum": ["a" * i for i in range(1, 200)]}),
    "many members": {"type": "object", "properties": {f"m{i}": COLOR for i in range(300)}},
    "a power": alike(3, 6),
}


CHECKED_LATE = {"nanoseconds", "a list with a seven"}
"""A bound beyond 32 bits and ``contains`` are nothing that llguidance enforces."""


@pytest.mark.real
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_schemas_give_valid_calls(model: Model, name: str) -> None:
    schema = ORDINARY[name]
    leads_to_itself = name.startswith("only itself")
    for _, arguments in calls(model, HERMES, [tool(schema)], 3):
        if name in CHECKED_LATE:
            assert set(arguments) == {"b"}
        else:
            assert isinstance(arguments["a"], int) if leads_to_itself else valid(arguments, schema)


@pytest.mark.real
def test_a_name_with_a_blank_in_gemmas_notation(model: Model) -> None:
    schema = ORDINARY["a name with a blank"]
    for _, arguments in calls(model, GEMMA, [tool(schema)], 2):
        assert valid(arguments, schema)


def slowest_s(model: Model, schema: Any, text: str) -> float:
    """Of the compilation and of each token, where the model writes ``text`` as far as it may."""
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


NODES = [need(a={"$ref": "#/$defs/n"}, **{f"b{i}": {"type": "null"}}) for i in range(3)]
SLOW: dict[str, tuple[Any, str]] = {
    **{
        f"{levels} levels alike": (alike(3, levels), '{"v": ' + '{"a": ' * levels + '"')
        for levels in (8, 12, 25)
    },
    "a recursion that begins alike": (
        {
            **need(v={"$ref": "#/$defs/n"}),
            "$defs": {"n": {"anyOf": [*NODES, need(a={"type": "boolean"})]}},
        },
        '{"v": ' + '{"a": ' * 40,
    ),
    "many values": (ORDINARY["many values"], '{"a": "item_'),
    "many members": (ORDINARY["many members"], '{"m'),
    "a ladder": (ladder(300, 300), "{"),
    "lists of values": (need(a={"allOf": [{"enum": list(range(5_000))}] * 200}), '{"a": 4'),
    "alternatives": (
        need(a={"enum": list(range(5_000)), "anyOf": [{"enum": [1]}] * 2_000}),
        '{"a": 1',
    ),
    "values of alternatives": (need(a={"anyOf": [{"enum": list(range(100))}] * 2_000}), '{"a": 1'),
    "wide and alike": (alike(60, 30), '{"v": {"a": {"a": '),
}


@pytest.mark.real
@pytest.mark.parametrize("name", SLOW)
def test_no_schema_stops_the_engine(model: Model, name: str) -> None:
    schema, text = SLOW[name]
    assert slowest_s(model, schema, f'act", "arguments": {text}') < 3


@pytest.mark.real
def test_the_last_of_tools_with_one_name_counts(model: Model) -> None:
    first, last = tool(need(a={"const": 1})), tool(need(b={"const": 2}))
    assert [arguments for _, arguments in calls(model, HERMES, [first, last], 2)] == [{"b": 2}] * 2
