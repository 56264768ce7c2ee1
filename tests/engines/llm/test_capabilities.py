"""Conversations of any shape, written for the chat templates of current models.

The templates are in ``data/chat_templates`` and ``data/tool_calls`` (their READMEs say more).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipeline.engines.llm.chat_template import ChatTemplate, capabilities_of
from pipeline.engines.llm.jinja_dialect import compile_template
from pipeline.engines.llm.template_messages import (
    BARE,
    CUE,
    OKAY,
    STRICT,
    Capabilities,
    adapted,
    call_data,
    function_data,
)
from pipeline.messages import Message, Tool
from tests.support.places import DATA

pytestmark = pytest.mark.machine

SOURCES = {
    path.stem: path.read_text()
    for folder in ("chat_templates", "tool_calls")
    for path in sorted((DATA / folder).glob("*.jinja"))
}
LOOK = Tool("look", "Turns.", {"type": "object", "properties": {"at": {"type": "string"}}})


system, user, speaks = (
    functools.partial(Message, role) for role in ("system", "user", "assistant")
)


def calls(speech: str, *places: str) -> Message:
    made = (
        {"id": at, "type": "function", "function": {"name": "look", "arguments": {"at": at}}}
        for at in places
    )
    return Message("assistant", speech, tuple(made))


def found(text: str, at: str) -> Message:
    return Message("tool", text, tool_call_id=at)


S1, S2, S3, S4 = map(system, ("Be kind.", "It rains.", "It is dark.", "It is cold."))
U1, U2 = map(user, ("Look around!", "And now?"))
A1, A2 = map(speaks, ("Good morning.", "There is a tree."))
CALL, RESULT = calls("", "left"), found("an oak", "left")
PENDING = found("(No result yet.)", "left")
SPOKEN, NEXT = calls("Let me see.", "left"), calls("Once more.", "right")
BOTH, SECOND = calls("One moment.", "left", "right"), found("a lime", "right")
SHAPES: dict[str, tuple[Message, ...]] = {
    "an ordinary talk": (S1, U1, A1, U2),
    "nothing": (),
    "instructions alone": (S1,),
    "two system messages": (S1, S2),
    "a late system message": (S1, U1, A1, S2, U2),
    "a system message at the end": (S1, U1, A1, S2),
    "many system messages": (S1, S2, U1, S3, A1, S4, U2),
    "the assistant begins": (S1, A1, U1),
    "the assistant alone": (A1,),
    "the assistant spoke last": (S1, U1, A1),
    "the user twice": (U1, U2),
    "the assistant twice": (U1, A1, A2, U2),
    "a call": (S1, U1, CALL, RESULT),
    "a call with speech": (S1, U1, SPOKEN, RESULT),
    "a call that was answered": (S1, U1, SPOKEN, RESULT, A1, U2),
    "a call and the user": (S1, U1, SPOKEN, RESULT, U2),
    "two calls at once": (U1, BOTH, RESULT, SECOND, A1, U2),
    "a call after a call": (U1, SPOKEN, RESULT, NEXT, SECOND, A1, U2, A2),
    "a call at the beginning": (S1, CALL, RESULT),
    "a result that came later": (S1, U1, CALL, PENDING, A1, U2, A2, RESULT),
    "a result that came later, and the user": (S1, U1, CALL, PENDING, A1, RESULT, U2),
    "a result without a call": (S1, RESULT, U1),
    "a system message after a result": (U1, CALL, RESULT, S1, U2),
}


@functools.cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], arguments={"enable_thinking": False})


def require_once(prompt: str, shape: str) -> None:
    for message in SHAPES[shape]:
        assert not message.content or prompt.count(message.content) == 1, shape


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("tools", [[], [LOOK]], ids=["no tools", "tools"])
def test_the_embedded_model_reads_each_sentence_once(name: str, tools: list[Tool]) -> None:
    for shape, messages in SHAPES.items():
        require_once("".join(p.text for p in template(name).render(messages, tools)), shape)


SHOWS_NO_CALLS = {"gemma2", "gemma3", "smollm2"}
"""Servers report that these take no tools."""
TEXT_ARGUMENTS = {"deepseek-r1", "deepseek-v3.1"}
"""Servers pass the arguments of calls on unchanged."""


def at_a_server(name: str, messages: tuple[Message, ...], capabilities: Capabilities) -> str:
    """The prompt that a server renders from a request. Raises the template's refusal."""
    data: list[dict[str, Any]] = []
    for message in adapted(messages, [LOOK], capabilities):
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["tool_calls"] = [call_data(call) for call in message.tool_calls]
        if message.role == "tool":
            entry["tool_call_id"] = message.tool_call_id
        for call in entry.get("tool_calls", ()) if name in TEXT_ARGUMENTS else ():
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        data.append(entry)
    tools = [function_data(LOOK)] if capabilities.tools else None
    return compiled(name)(
        messages=data, tools=tools, add_generation_prompt=True, enable_thinking=False
    )


@functools.cache
def compiled(name: str) -> Callable[..., str]:
    return compile_template(SOURCES[name])


@pytest.mark.parametrize("name", SOURCES)
def test_a_server_with_a_known_template_refuses_nothing(name: str) -> None:
    capabilities = replace(capabilities_of(SOURCES[name]), tools=name not in SHOWS_NO_CALLS)
    for shape, messages in SHAPES.items():
        require_once(at_a_server(name, messages, capabilities), shape)


@pytest.mark.parametrize("name", SOURCES)
def test_a_hidden_template_refuses_at_most_one_simpler_form(name: str) -> None:
    capabilities = BARE if name in SHOWS_NO_CALLS else STRICT
    for shape, messages in SHAPES.items():
        prompt = at_a_server(name, messages, capabilities)
        assert not shape.startswith(("a late", "many")) or S2.content in prompt


def test_each_templates_capabilities_are_known() -> None:
    lacks = {
        name: {field for field in Capabilities.__slots__ if not getattr(capabilities, field)}
        for name, source in SOURCES.items()
        if (capabilities := capabilities_of(source))
    }
    assert lacks == {
        "qwen3": set(),
        "qwen3.5": {"late_system", "tools"},
        "gemma2": {"system", "late_system", "tools"},
        "gemma3": {"late_system", "tools"},
        "gemma4": {"speech_with_calls"},
        "mistral-nemo": {
            *("late_system", "tools", "speech_with_calls", "any_order", "any_call_id"),
        },
        "ministral3": {"late_system", "tools", "any_order"},
        "llama3": {"speech_with_calls", "several_calls"},
        "hermes": {"speech_with_calls"},
        "lfm2": {"tools"},
        "smollm2": {"tools"},
        "smollm3": {"late_system", "tools"},
        "gpt-oss": {"late_system", "tools", "several_calls", "speech_with_calls"},
        "deepseek-r1": {"late_system", "tools"},
        "deepseek-v3.1": {"late_system", "tools"},
    }


@pytest.mark.parametrize("capabilities", [Capabilities(), STRICT, BARE])
@pytest.mark.parametrize("shape", SHAPES)
def test_appended_messages_never_change_the_beginning(
    shape: str, capabilities: Capabilities
) -> None:
    """Except the last message, which may become longer."""
    whole = SHAPES[shape]
    for length in range(1, len(whole)):
        if whole[length - 1].role == "user" and whole[length].role == "assistant":
            before = adapted(whole[:length], [LOOK], capabilities)
            assert adapted(whole, [LOOK], capabilities)[: len(before)] == before


def test_the_last_message_is_never_the_assistants() -> None:
    for capabilities in (Capabilities(), STRICT, BARE):
        for messages in SHAPES.values():
            turns = adapted(messages, [], capabilities)
            assert turns[-1].role in ("user", "tool")
    assert adapted((S1, A1), [], Capabilities()) == [S1, CUE, A1, CUE]


@pytest.mark.parametrize("capabilities", [Capabilities(), STRICT, BARE])
def test_a_late_result_is_a_new_message(capabilities: Capabilities) -> None:
    told = adapted((U1, CALL, PENDING, A1, RESULT, U2), [], capabilities)
    news = "(The result of look has come in: an oak)\nAnd now?"
    assert told[-1] == user(news)
    assert told[:-1] == adapted((U1, CALL, PENDING, A1), [], capabilities)[:-1]


def test_strict_templates_get_alternating_roles() -> None:
    told = adapted((U1, SPOKEN, RESULT, U2), [], STRICT)
    assert [(m.role, m.content) for m in told][2:] == [
        ("tool", "an oak"),
        ("assistant", OKAY),
        ("user", "And now?"),
    ]
    assert {len(call["id"]) for m in told for call in m.tool_calls} == {9}
    assert told[1].tool_calls[0]["id"] == told[2].tool_call_id


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("", {}),
        ("  ", {}),
        ('{"city": "Par', {"arguments": '{"city": "Par'}),
        ("not json", {"arguments": "not json"}),
        ("[1]", {"arguments": "[1]"}),
        ("null", {"arguments": "null"}),
        ('"Paris"', {"arguments": '"Paris"'}),
        ('{"n": NaN}', {"arguments": '{"n": NaN}'}),
        ('{"n": 1e999}', {"arguments": '{"n": 1e999}'}),
        ('{"a":' * 200 + "1" + "}" * 200, {}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
    ],
    ids=lambda value: str(value)[:20],
)
def test_arguments_are_always_an_object(sent: object, arguments: object) -> None:
    data = call_data({"id": "c", "function": {"name": "weather", "arguments": sent}})
    assert data["function"]["arguments"] == arguments
    assert json.loads(json.dumps(arguments, allow_nan=False)) == arguments
