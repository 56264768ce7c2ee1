"""Calls without marks: golden answers split at every character, and JSON that is no call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.engines.contract import TextDelta, ToolCall
from pipeline.engines.llm.tool_calls.parser import CallParser
from pipeline.engines.llm.tool_calls.syntax import FAMILIES, GEMMA, HERMES, LLAMA, Syntax
from tests.engines.llm.test_tool_parser import TOOLS, cut, joined, read, shown

pytestmark = pytest.mark.quick

LOOK = {"name": "look", "arguments": {"direction": "left"}}
STOP: dict[str, Any] = {"name": "stop", "arguments": {}}
LOOK_TEXT, STOP_TEXT = json.dumps(LOOK), json.dumps(STOP)


def note(text: str) -> dict[str, Any]:
    return {"name": "note", "arguments": {"text": text}}


CALLS: dict[str, tuple[str, list[Any]]] = {
    "alone": (LOOK_TEXT, [LOOK]),
    "behind white space": (f"\n\n  {LOOK_TEXT}\n", [LOOK]),
    "parameters": ('{"name": "look", "parameters": {"direction": "left"}}', [LOOK]),
    "arguments first": ('{"arguments": {"direction": "left"}, "name": "look"}', [LOOK]),
    "with its type": ('{"type": "function", "name": "stop", "parameters": {}}', [STOP]),
    "arguments as a text": (
        r'{"name": "note", "arguments": "{\"text\": \"a \\\" b\"}"}',
        [note('a " b')],
    ),
    "a fence": (f"```json\n{LOOK_TEXT}\n```", [LOOK]),
    "a fence without a language": (f"```\n{LOOK_TEXT}\n```\n", [LOOK]),
    "a fence that does not end": (f"```json\n{LOOK_TEXT}\n", [LOOK]),
    "a fence that ends behind a list that does not": (
        f"```\n[{LOOK_TEXT}\n``` Yes.",
        [LOOK, "Yes."],
    ),
    "a list": (f"[{LOOK_TEXT}, {STOP_TEXT}]", [LOOK, STOP]),
    "two in lines": (f"{LOOK_TEXT}\n{STOP_TEXT}", [LOOK, STOP]),
    "text behind it": (f"{LOOK_TEXT}\n\nI look left.", [LOOK, "I look left."]),
    "text behind a fence": (f"```json\n{LOOK_TEXT}\n```\n\nDone.", [LOOK, "Done."]),
    "text between two": (
        f"{STOP_TEXT} Then <tool_call>{LOOK_TEXT}</tool_call>",
        [STOP, "Then", LOOK],
    ),
    "behind a thought": (f"<think>\nHm, {STOP_TEXT}?\n</think>\n\n{LOOK_TEXT}", [LOOK]),
    "its end mark alone": (f"{LOOK_TEXT}\n</tool_call>", [LOOK]),
    "braces and quotes in a text": (json.dumps(note('}] "{" \\ ``` {')), [note('}] "{" \\ ``` {')]),
    "nested braces": (
        '{"name": "note", "arguments": {"text": "a", "more": {"b": [{}, {"c": "}"}]}}}',
        [{"name": "note", "arguments": {"text": "a", "more": {"b": [{}, {"c": "}"}]}}}],
    ),
    "escapes": (
        r'{"name": "note", "arguments": {"text": "\u00e9 \ud83e\udd16 \n"}}',
        [note("é 🤖 \n")],
    ),
    "a call, then JSON": (f'{STOP_TEXT}\n{{"a": 1}}', [STOP, '{"a": 1}']),
    "behind words": (f"Sure! {LOOK_TEXT} Done.", ["Sure!", LOOK, "Done."]),
    "inside of an object": (f'{{"tool": {STOP_TEXT}}}', ['{"tool":', STOP, "}"]),
    "inside of code": (
        f"```python\nprint({STOP_TEXT})\n```",
        ["```python\nprint(", STOP, ")\n```"],
    ),
    "a call, then none": (
        f'[{STOP_TEXT}, {{"name": "fly", "arguments": {{}}}}]',
        [STOP, '{"name": "fly", "arguments": {}}]'],
    ),
}

WORDS = {
    "words": "Hello.",
    "another tool": '{"name": "fly", "arguments": {}}',
    "a longer name": '{"name": "stopping", "arguments": {}}',
    "arguments that do not fit": '{"name": "look", "arguments": {"direction": "away"}}',
    "no arguments": '{"name": "stop"}',
    "arguments that are no object": '{"name": "stop", "arguments": "stop"}',
    "arguments that are a list": '{"name": "stop", "arguments": []}',
    "half a surrogate pair": r'{"name": "note", "arguments": {"text": "\ud83e"}}',
    "a person of that name": '{"name": "look", "age": 7}',
    "more members": '{"name": "stop", "arguments": {}, "confidence": 1}',
    "nested too deeply": '{"name": "stop", "arguments": ' + '{"a": ' * 60 + "1" + "}" * 61,
    "cut off": '{"name": "look", "arguments": {"direction": "le',
    "cut off in the name": '{"name": "lo',
    "cut off in a fence": '```json\n[{"name": "look"',
    "a fence alone": "```json\n",
    "no JSON": '{"name": "stop", arguments: {}}',
    "braces that do not match": '{"name": "note", "arguments": {"text": "a"}',
    "an empty object": "{} is empty.",
    "a brace": "{ is a brace.",
    "code in a fence without a language": '```\ncall = {"name": "stop"}\n```',
    "JSON to be spoken": '```json\n{"city": "Paris"}\n```\nThat is JSON.',
    "a link": "[here](http://example.com) it is.",
    "quoted otherwise": "{'name': 'stop', 'arguments': {}}",
}


def fed(syntax: Syntax, pieces: list[str], **how: Any) -> list[Any]:
    return shown(read(syntax, pieces, **how))


@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("case", [*CALLS, *WORDS])
def test_splits_do_not_change_the_calls(syntax: Syntax, case: str) -> None:
    others = {"text between two": (GEMMA, LLAMA), "its end mark alone": (GEMMA,)}
    if syntax in others.get(case, ()):
        return  # not its marks
    text, expected = CALLS[case] if case in CALLS else (WORDS[case], [WORDS[case].strip()])
    assert fed(syntax, [text]) == expected
    assert fed(syntax, list(text)) == expected
    for border in range(len(text)):
        assert fed(syntax, cut(text, [border])) == expected, f"cut at {border}"


@pytest.mark.parametrize("case", [*CALLS, *WORDS])
def test_without_a_tool_everything_is_text(case: str) -> None:
    text = CALLS[case][0] if case in CALLS else WORDS[case]
    parser = CallParser(HERMES, [], bare=True)
    parts = joined([*parser.feed(text), *parser.finish()])
    assert not [part for part in parts if isinstance(part, ToolCall)]
    if "<" not in text:
        assert shown(parts) == [text.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Sure! {LOOK_TEXT}", [LOOK]),
        (f'{{"tool": {STOP_TEXT}}}', [STOP]),
        (f'{{"tool_calls": [{STOP_TEXT}, {LOOK_TEXT}]}}', [STOP, LOOK]),
        (f'{{"name": "fly", "arguments": {{}}}} or {STOP_TEXT}', [STOP]),
        (f'{{"name": "look", "arguments": {{"direction": "up"}}}}\n{LOOK_TEXT}', [LOOK]),
        (f'print("{{") {STOP_TEXT}', [STOP]),
        (f'{{"name": "look", "arguments": {STOP_TEXT}', [STOP]),
        ('{"name": "fly", "arguments": {}}', []),
    ],
)
def test_a_call_is_the_first_object_that_fits(text: str, expected: list[Any]) -> None:
    for size in (1, 2, 3, 5, len(text)):
        found = fed(HERMES, cut(text, range(size, len(text), size)))
        assert [part for part in found if isinstance(part, dict)] == expected
        if not expected:
            assert found == [text]


# --- what waits --------------------------------------------------------------------------------


@pytest.mark.parametrize("syntax", FAMILIES, ids=lambda syntax: syntax.name)
def test_plain_text_is_not_delayed(syntax: Syntax) -> None:
    for first in ("H", "1", '"', "(", "*", "é", "-"):
        assert CallParser(syntax, TOOLS).feed(first) == [TextDelta(first)]


@pytest.mark.parametrize(
    ("held", "released"),
    [
        ('{"na', "g"),
        ('{"name": "st', "r"),
        ('{"name": "stop", ', "x"),
        ('{"name": "stop", "arg', "o"),
        ('{"name": "stop", "arguments": ', "n"),
        ("```js", "x"),
        ("```json\n", "a"),
        ("[", "1"),
        ("[\n", '"'),
        ('{"type": "fun', "k"),
    ],
)
def test_text_waits_only_while_it_may_be_a_call(held: str, released: str) -> None:
    parser = CallParser(HERMES, TOOLS)
    assert [part for sign in held for part in parser.feed(sign)] == []
    assert shown(parser.feed(released)) == [held + released]


def test_a_call_nested_too_deeply_is_released_as_text() -> None:
    parser = CallParser(HERMES, TOOLS)
    begin = '{"name": "stop", "arguments": {"a": '
    parts = [part for _ in range(200) for part in parser.feed(begin)]
    assert len(shown(joined(parts))[0]) > 100 * len(begin)


@pytest.mark.parametrize("size", [97, 10**6])
def test_an_unterminated_call_is_released_as_text(size: int) -> None:
    begin = '{"name": "note", "arguments": {"text": "'
    parser = CallParser(HERMES, TOOLS)
    text = begin + "x{" * 30_000
    parts = [part for at in range(0, len(text), size) for part in parser.feed(text[at : at + size])]
    (said,) = shown(joined(parts))
    assert text.startswith(said)
    assert len(said) > 50_000
    assert shown(joined([*parts, *parser.finish()])) == [text]


def test_a_long_call_is_recognised() -> None:
    long = note("word {" * 5000)
    assert fed(HERMES, cut(json.dumps(long), range(0, 30_000, 7))) == [long]


def test_a_call_comes_out_with_its_last_brace() -> None:
    parser = CallParser(HERMES, TOOLS)
    assert parser.feed(f"```json\n[{STOP_TEXT[:-1]}") == []
    assert parser.feed("}") == [ToolCall("stop", "{}")]
    assert parser.feed("]\n```\nOk") == [TextDelta("Ok")]


def test_a_call_begins_at_its_known_name() -> None:
    for family in FAMILIES:
        parser = CallParser(family, TOOLS)
        before = '[{ "name" : "stop"'
        assert parser.feed(before + ', "argu', pause=True) == []
        assert parser.begun
        assert parser.drop_unread() == ', "argu'
        assert parser.commit() == "stop"
        assert parser.in_call
        assert parser.feed(parser.rest) == []
        assert parser.feed("{}}, ") == [ToolCall("stop", "{}")]
        assert parser.feed("]Ok.") == [TextDelta("Ok.")]
    for text in ('{"arguments": {}, "name": "stop"', '{"name": "stopp'):
        parser = CallParser(HERMES, TOOLS)
        parser.feed(text, pause=True)
        assert not parser.begun
