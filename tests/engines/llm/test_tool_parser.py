"""Parsing model output, however it is split: golden cases and arbitrary text."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.engines.contract import TextDelta, ToolCall
from pipeline.engines.llm.tool_calls.parser import CallParser, Part
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.tool_calls.syntax import (
    ENDS,
    FAMILIES,
    GEMMA,
    HERMES,
    LLAMA,
    THOUGHTS,
    Syntax,
)
from pipeline.messages import Tool
from tests.support.places import DATA

pytestmark = pytest.mark.quick

CASES = json.loads((DATA / "tool_calls" / "streams.json").read_text())
SYNTAX = {family.name: family for family in FAMILIES}
LOOK = Tool(
    "look",
    "",
    {
        "type": "object",
        "properties": {"direction": {"type": "string", "enum": ["left", "right"]}},
        "required": ["direction"],
    },
)
STOP = Tool("stop", "", {"type": "object", "properties": {}})
NOTE = Tool("note", "", {"type": "object", "properties": {"text": {"type": "string"}}})
TOOLS = [LOOK, STOP, NOTE]
CALL = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'


def read(syntax: Syntax, pieces: Sequence[str], **how: Any) -> list[Part]:
    parser = CallParser(syntax, TOOLS, **how)
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return joined([*parts, *parser.finish()])


def joined(parts: Sequence[Part]) -> list[Part]:
    result: list[Part] = []
    for part in parts:
        if isinstance(part, TextDelta) and result and isinstance(result[-1], TextDelta):
            result[-1] = TextDelta(result[-1].text + part.text)
        else:
            result.append(part)
    return result


def shown(parts: Sequence[Part]) -> list[Any]:
    return [
        {"name": part.name, "arguments": json.loads(part.arguments)}
        if isinstance(part, ToolCall)
        else part.text
        for part in parts
    ]


def cut(text: str, borders: Sequence[int]) -> list[str]:
    return [text[a:b] for a, b in pairwise([0, *sorted(borders), len(text)])]


# --- golden cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['family']}: {case['case']}")
def test_parsed_parts_do_not_depend_on_the_splits(case: dict[str, Any]) -> None:
    text, syntax = case["output"], SYNTAX[case["family"]]
    expected = read(syntax, [text])
    assert shown(expected) == case["parts"]
    assert read(syntax, list(text)) == expected, "sign by sign"
    if len(text) < 400:
        for border in range(len(text)):
            assert read(syntax, cut(text, [border])) == expected, f"cut at {border}"
    for size in range(2, 9):
        assert read(syntax, cut(text, range(size, len(text), size))) == expected


def test_text_that_cannot_be_a_mark_passes_at_once() -> None:
    parser = CallParser(HERMES, TOOLS)
    assert parser.feed("a") == [TextDelta("a")]
    assert parser.feed(" <to") == []
    assert parser.feed("w>") == [TextDelta(" <tow>")]


def test_a_call_comes_out_before_its_closing_mark() -> None:
    parser = CallParser(HERMES, TOOLS)
    assert parser.feed(CALL.removesuffix("\n</tool_call>")) == [ToolCall("stop", "{}")]
    assert parser.in_call
    assert parser.feed("\n</tool_call>") == []
    assert not parser.in_call
    assert parser.calls == 1


def test_an_answer_may_begin_inside_a_thought() -> None:
    text = "I wonder.\n</think>\n\nHello."
    assert read(HERMES, list(text), thought_end="</think>") == [TextDelta("Hello.")]


@pytest.mark.parametrize(("begin", "end"), THOUGHTS.items())
def test_thoughts_are_never_spoken(begin: str, end: str) -> None:
    text = f"{begin} The user says hello. <b>{end}Hello."
    for size in (1, 2, 3, 7, len(text)):
        assert read(HERMES, cut(text, range(size, len(text), size))) == [TextDelta("Hello.")]
    assert read(HERMES, [f"{begin} I never come to an end"]) == []
    assert read(HERMES, [f"{end}Hello."]) == [TextDelta("Hello.")]


@pytest.mark.parametrize("end", ENDS)
def test_nothing_after_the_end_of_a_turn_is_an_answer(end: str) -> None:
    text = f"Hello.{end}\n<|im_start|>user\nStop!{end}{CALL}"
    assert read(HERMES, [text]) == read(HERMES, list(text)) == [TextDelta("Hello.")]


def test_an_object_may_be_text() -> None:
    text = '{"name": "stop", "parameters": {}}'
    assert read(LLAMA, list(text), bare=False) == [TextDelta(text)]
    assert read(HERMES, list(text), bare=False) == [TextDelta(text)]
    assert read(LLAMA, [f"<|python_tag|>{text}"], bare=False) == [ToolCall("stop", "{}")]


def test_reading_can_pause_where_a_call_begins() -> None:
    parser = CallParser(HERMES, TOOLS)
    assert parser.feed("Yes.<tool_", pause=True) == [TextDelta("Yes.")]
    assert not parser.begun
    assert parser.feed("call>\n{", pause=True) == []
    assert parser.begun
    assert parser.drop_unread() == "\n{"
    assert parser.rest == '\n{"name": "'


def test_a_possible_start_of_a_call_is_suspected() -> None:
    parser = CallParser(HERMES, TOOLS)
    assert parser.suspects("<"), "before the first word"
    assert parser.suspects("So.\n<"), "in a new line"
    assert not parser.suspects("So <")
    assert parser.suspects("So <t")
    assert parser.suspects("<tool_call>")
    assert not parser.suspects("<table>")
    assert parser.suspects("[TOOL_CALLS]")


def test_the_conversation_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    secret = '{"name": "look", "arguments": {"direction": "secret"}}'
    with caplog.at_level(logging.DEBUG):
        for text in (secret, secret[:-1], secret.replace("look", "secret"), "{secret}"):
            read(HERMES, [f"<tool_call>{text}</tool_call>"])
            read(HERMES, [f"<tool_call>{text}"])
    assert caplog.messages
    assert "secret" not in caplog.text


def test_no_mark_is_the_beginning_of_another() -> None:
    for syntax in FAMILIES:
        marks = [syntax.marker, *syntax.other_markers]
        assert not [(a, b) for a in marks for b in marks if a != b and b.startswith(a)]


# --- any text at all ---------------------------------------------------------------------------

_FRAGMENTS = [
    *(family.marker for family in FAMILIES),
    *(marker for family in FAMILIES for marker in family.other_markers),
    *('"', "\\", "{", "}", "[", "]", ":", ",", "\n", " ", "<", "|", '<|"|>', "é", "word"),
    *("[ARGS]", "stop", ">", "<parameter=text>", "</parameter>"),
    *('{"name": "stop", "arguments": {}}', "call:stop{}", '"name": "stop"', '"parameters": {'),
    CALL,
]
texts = st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=3), max_size=16).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts)
    borders = draw(st.lists(st.integers(0, len(text)), max_size=12))
    return text, cut(text, borders)


@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
@given(cut_text=cut_texts())
@example(cut_text=("<tool_call><tool_call>", ["<tool_call><tool", "_call>"]))
def test_any_split_gives_the_same_parts(syntax: Syntax, cut_text: tuple[str, list[str]]) -> None:
    text, pieces = cut_text
    parts = read(syntax, [text])
    assert read(syntax, pieces) == parts
    spoken = [part.text for part in parts if isinstance(part, TextDelta)]
    marks = [syntax.marker, *syntax.other_markers]
    # The text on both sides of a mark may look like another mark when joined.
    assert not [one for one in spoken if one in text and any(mark in one for mark in marks)]
    for part in parts:
        if isinstance(part, ToolCall):
            schema = {tool.name: tool.parameters for tool in TOOLS}[part.name]
            assert fits(json.loads(part.arguments), schema)


def test_leading_zeros_in_numbers_of_gemma_are_ignored() -> None:
    body = 'call:look{n:007,0:[ -01.5,0, 00],t:<|"|>a:01<|"|>,u:0.05}'
    assert GEMMA.read(body) == ("look", {"n": 7, "0": [-1.5, 0, 0], "t": "a:01", "u": 0.05})


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abcXYZ_1", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("syntax", [HERMES, GEMMA, LLAMA], ids=lambda syntax: syntax.name)
@given(arguments=st.dictionaries(st.text("abc_", min_size=1, max_size=4), values, max_size=4))
def test_written_calls_parse_back(syntax: Syntax, arguments: dict[str, Any]) -> None:
    if syntax is GEMMA and '<|"|>' in repr(arguments):
        return
    parts = read(syntax, list(syntax.written("note", arguments)))
    assert shown(parts) == [{"name": "note", "arguments": arguments}]
