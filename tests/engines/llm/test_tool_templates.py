"""History with calls and results, as each family's chat template renders it.

The expected prompts are in ``data/tool_calls`` (its README says where the templates are from).
"""

from __future__ import annotations

import json

import pytest

from pipeline.engines.llm.chat_template import CHATML, ChatTemplate
from pipeline.engines.llm.tool_calls.syntax import GEMMA, HERMES, LLAMA, Syntax
from pipeline.messages import Message, Tool
from tests.support.places import DATA

pytestmark = pytest.mark.quick

CALLS = DATA / "tool_calls"
LOOK = Tool(
    "look",
    "Turns the head.",
    {
        "type": "object",
        "properties": {
            "direction": {
                "type": "string",
                "description": "Where to.",
                "enum": ["left", "right"],
            },
            "degrees": {"type": "number", "description": "How far."},
        },
        "required": ["direction"],
    },
)
STOP = Tool("stop", "Stops moving.", {"type": "object", "properties": {}})


def call(number: int, name: str, arguments: object) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


CONVERSATION = [
    Message("system", "You are a robot."),
    Message("user", "Look left!"),
    Message(
        "assistant",
        "Of course.",
        tool_calls=(call(1, "look", '{"direction": "left", "degrees": 12.5}'),),
    ),
    Message("tool", '{"seen": "a \\"tree\\""}', tool_call_id="call_1"),
    Message("assistant", "There is a tree."),
    Message("user", "Look right, then stop."),
    Message(
        "assistant",
        "",
        tool_calls=(call(2, "look", '{"direction": "right"}'), call(3, "stop", "{}")),
    ),
    Message("tool", "ok", tool_call_id="call_2"),
    Message("tool", "stopped", tool_call_id="call_3"),
]


def source(family: str) -> str:
    return CHATML if family == "words" else (CALLS / f"{family}.jinja").read_text()


def template(family: str) -> ChatTemplate:
    return ChatTemplate(source(family), bos="<s>", arguments={"enable_thinking": False})


@pytest.mark.parametrize(
    ("family", "syntax"),
    [
        ("qwen3", HERMES),
        ("hermes", HERMES),
        ("gemma4", GEMMA),
        ("llama3", LLAMA),
        ("words", HERMES),
    ],
)
def test_a_template_shows_its_family(family: str, syntax: Syntax) -> None:
    assert template(family).syntax == syntax
    assert template(family).capabilities.tools == (family != "words")


@pytest.mark.parametrize("family", ["qwen3", "hermes", "gemma4", "llama3", "words"])
def test_history_with_calls_and_results(family: str) -> None:
    pieces = template(family).render(CONVERSATION, [LOOK, STOP])
    text = "".join(piece.text for piece in pieces)
    assert text == (CALLS / f"{family}.txt").read_text()


@pytest.mark.parametrize("family", ["qwen3", "hermes", "gemma4", "llama3", "words"])
@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "\\ud800"}',
        {"a": "\ud800", "\udc00": 1},
        "[" * 100_000,
        json.loads('{"a":' * 300 + "1" + "}" * 300),
        "[" * 300 + "]" * 300,
    ],
    ids=["half a character", "the same as data", "endless", "deep", "deep text"],
)
def test_odd_arguments_in_the_history(family: str, arguments: object) -> None:
    talk = [
        Message("user", "Hi"),
        Message("assistant", "", tool_calls=(call(1, "look", arguments),)),
        Message("tool", "half \ud800", tool_call_id="call_1"),
    ]
    text = "".join(piece.text for piece in template(family).render(talk, [LOOK]))
    assert text.encode()
    assert "look" in text


def test_a_schema_that_is_nested_too_deeply_is_not_shown() -> None:
    deep = Tool("look", "", json.loads('{"items":' * 200 + "{}" + "}" * 200))
    for family in ("qwen3", "gemma4", "words"):
        assert template(family).render([Message("user", "Hi")], [deep])


def test_an_unknown_family_gets_the_tools_in_words() -> None:
    calls = "{% for m in messages %}{{ m.role }}{% if m.tool_calls %}[CALL]{% endif %}{% endfor %}"
    unknown = ChatTemplate(calls + "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}")
    assert not unknown.capabilities.tools
    text = "".join(piece.text for piece in unknown.render([Message("user", "Hi")], [LOOK]))
    assert "You can call functions." in text


def test_a_prompt_may_end_inside_a_thought() -> None:
    opened = CHATML + "{{ '<think>\\n' }}"
    assert ChatTemplate(opened).thought_end == "</think>"
    assert not template("qwen3").thought_end
    quiet = ChatTemplate(opened, arguments={"enable_thinking": False})
    assert not quiet.thought_end
    text = "".join(piece.text for piece in quiet.render([Message("user", "Hi")], []))
    assert text.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("family", ["qwen3", "gemma4"])
def test_reasoning_is_off_unless_it_is_asked_for(family: str) -> None:
    def rendered(thinking: bool) -> str:
        made = ChatTemplate(source(family), arguments={"enable_thinking": thinking})
        assert not made.thought_end
        return "".join(piece.text for piece in made.render([Message("user", "Hi")], []))

    empty = {"qwen3": "<think>\n\n</think>", "gemma4": "<|channel>thought\n<channel|>"}[family]
    assert rendered(False).rstrip().endswith(empty)
    assert not rendered(True).rstrip().endswith(empty)
