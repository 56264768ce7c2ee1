"""Servers whose chat templates refuse some conversations, as those of current models do."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Message, Sampling
from pipeline.work import Work
from tests.support.far_answers import data, refusal
from tests.support.far_server import FarServer, Mood, problem, stream
from tests.support.far_server import Kind as Server
from tests.support.places import DATA
from tests.support.url_engines import DANCE, HELLO, NOD, answer, answered, chat_with

pytestmark = pytest.mark.machine

PATH = "/v1/chat/completions"
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "dance", "arguments": '{"steps": '},
}
ASKED = (*HELLO, Message("assistant", "Look!", (CALL,)))
PENDING, OK = (Message("tool", text, tool_call_id="call_1") for text in ("(None yet.)", "ok"))
I_AM = Message("assistant", "I am Reachy.")
TALKS = (
    HELLO,
    (*HELLO, I_AM, Message("system", "It is dark."), HELLO[1]),
    HELLO[:1],
    (*HELLO, I_AM),
    (*ASKED, OK),
    (*ASKED, OK, Message("user", "And?")),
    (*ASKED, PENDING, I_AM, OK),
)
"""A late system message, no user, the assistant last, broken arguments, the user after a tool, and
a late result."""


def template(name: str) -> str:
    return (DATA / "chat_templates" / f"{name}.jinja").read_text()


def refused(far: FarServer) -> int:
    """How many requests the template refused."""
    return sum(bool(refusal(far.template, seen.json)) for seen in far.asked(PATH))


def sent(far: FarServer) -> list[Any]:
    messages: list[Any] = far.asked(PATH)[-1].json["messages"]
    return messages


def sent_fields(far: FarServer) -> set[str]:
    return set(far.asked(PATH)[-1].json)


@pytest.mark.parametrize(
    ("server", "name", "most"),
    [
        ("llama-server", "mistral-nemo", 0),  # it publishes its template
        ("llama-server", "gpt-oss", 0),
        ("vllm", "mistral-nemo", 1),
        ("vllm", "gemma2", 2),
    ],
)
async def test_a_refused_conversation_is_known_or_remembered(
    server: Any, name: str, most: int
) -> None:
    far = FarServer(server, template=template(name))
    async with chat_with(far) as engine:
        for talk in (*TALKS, *TALKS):
            await engine.open().warm(LlmRequest(talk, [DANCE]), Work())
            await answer(engine, *talk, tools=(DANCE,))
    assert refused(far) <= most


@pytest.mark.parametrize("server", ["llama-server", "vllm", "ollama", "lm-studio"])
async def test_a_late_system_message_reaches_the_model_as_a_note(server: Server) -> None:
    """Even with templates that would drop it silently."""
    far = FarServer(server, template=template("smollm3"))
    await answered(far, *TALKS[1])
    assert [message["role"] for message in sent(far)] == ["system", "user", "assistant", "user"]
    assert sent(far)[-1]["content"] == f"(System: It is dark.)\n{HELLO[1].content}"


NO_TOOLS = "Jinja Exception: tool_call not allowed"


@pytest.mark.parametrize(
    ("server", "mood"),
    [
        ("ollama", problem(400, {"error": {"message": "gemma3:4b does not support tools"}})),
        ("vllm", problem(400, {"error": {"message": '"auto" requires --tool-call-parser'}})),
        ("vllm", problem(404, {"error": NO_TOOLS})),  # mlx_lm.server
        ("openai", problem(404, {"error": {"message": "No endpoints support tool use"}})),
        ("lm-studio", stream(data({"error": {"message": NO_TOOLS}}, "error"))),
        ("lm-studio", stream(b": wait\n\n" + data({"error": {"message": NO_TOOLS}}, "error"))),
        ("lm-studio", stream(b": wait\n\n", 0.05, data({"error": {"message": NO_TOOLS}}, "error"))),
        ("vllm", problem(200, {"error": {"message": NO_TOOLS}})),
        ("openai", problem(400, {"error": "Unrecognized request arguments: tool_choice, tools"})),
    ],
)
async def test_tools_that_a_server_refuses_are_described(server: Server, mood: Mood) -> None:
    far = FarServer(server, moods={PATH: [mood]})
    async with chat_with(far) as engine:
        for _ in range(2):
            assert await answer(engine, tools=(DANCE,))
    assert ["tools" in seen.json for seen in far.asked(PATH)] == [True, False, False]
    assert '"name":"dance"' in sent(far)[0]["content"]


@pytest.mark.parametrize(
    "says",
    [
        "Invalid schema for function 'dance': array schema missing items",
        "Invalid 'tools[0].function.name': string does not match pattern",
        "functionDeclaration parameters.steps schema didn't specify the schema type field",
    ],
)
async def test_a_tool_that_a_server_refuses_is_described(says: str) -> None:
    """To this conversation; others may have better ones."""
    far = FarServer("vllm", moods={PATH: [problem(400, {"error": {"message": says}})]})
    async with chat_with(far) as engine:
        for tool in (DANCE, NOD):
            assert await answer(engine, tools=(tool,))
    assert ["tools" in seen.json for seen in far.asked(PATH)] == [True, False, True]


FORBIDDEN = {"loc": ["body", "chat_template_kwargs"], "msg": "Extra inputs are not permitted"}


@pytest.mark.parametrize(
    ("server", "status", "body"),
    [
        ("koboldcpp", 422, {"detail": [FORBIDDEN]}),
        ("koboldcpp", 422, {"object": "error", "message": {"detail": [FORBIDDEN]}}),  # Mistral
        ("koboldcpp", 400, {"error": 'Unknown name "chat_template_kwargs": Cannot find field.'}),
        ("koboldcpp", 400, {"error": "Unrecognized request argument: chat_template_kwargs"}),
        ("koboldcpp", 400, {"error": "`reasoning_effort` is not supported with this model"}),
        ("koboldcpp", 500, {"error": "unexpected keyword argument 'reasoning_effort'"}),
        ("lm-studio", 400, {"error": "Model 'm' does not expose reasoning configuration."}),
        ("ollama", 400, {"error": 'think value "none" is not supported for this model'}),
        ("vllm", 400, {"message": "1 validation error:\n  {'loc': ('chat_template_kwargs',)}"}),
        ("vllm", 200, {"error": {"code": 400, "message": "Unsupported parameter"}}),
    ],
)
async def test_refused_fields_are_left_out_from_then_on(
    server: Server, status: int, body: Any
) -> None:
    far = FarServer(server, moods={PATH: [problem(status, body)]})
    async with chat_with(far) as engine:
        for _ in range(2):
            assert await answer(engine, *TALKS[1], tools=(DANCE,))
    fields = {"chat_template_kwargs", "reasoning_effort"}
    assert [bool(fields & set(seen.json)) for seen in far.asked(PATH)] == [True, False, False]
    assert "tools" in far.asked(PATH)[-1].json


@pytest.mark.parametrize(
    ("server", "fields", "says"),
    [
        ("openai", ["temperature"], "Unsupported value: 'temperature' does not support 0.7"),
        ("openai", ["temperature", "top_p"], "Unsupported parameter: '{}' is not supported"),
        ("koboldcpp", ["stream_options"], "Unrecognized request argument supplied: {}"),
        ("vllm", ["min_p"], "{} is not supported with speculative decoding"),
        ("koboldcpp", ["max_tokens"], "'{}' is not supported. Use 'max_completion_tokens'"),
    ],
)
async def test_only_the_fields_that_a_server_names_are_left_out(
    server: Server, fields: list[str], says: str
) -> None:
    """As by OpenAI's reasoning models and older APIs of Azure."""
    refusals = [problem(400, {"error": {"message": says.format(name)}}) for name in fields]
    far = FarServer(server, moods={PATH: refusals})
    async with chat_with(far) as engine:
        for _ in range(2):
            assert await answer(engine, sampling=Sampling(max_tokens=9))
    first, *_, last = (seen.json for seen in far.asked(PATH))
    assert len(far.asked(PATH)) == len(fields) + 2
    renamed = {"max_completion_tokens"} if "max_tokens" in fields else set()
    assert set(last) == set(first) - set(fields) | renamed


@pytest.mark.parametrize(
    ("says", "gone"),
    [
        ("Unsupported value: 'temperature' does not support 0.7", "temperature"),
        ("Unsupported parameter: 'top_p' is not supported", "top_p"),
        ("You said: Is the temperature at the top?", ""),
    ],
)
async def test_a_server_may_name_a_field_with_a_word_of_the_conversation(
    says: str, gone: str
) -> None:
    refused = problem(400, {"error": {"message": says}})
    far = FarServer("openai", moods={PATH: [refused]})
    talk = [*HELLO[:1], Message("user", "Is the temperature at the top?")]
    async with chat_with(far) as engine:
        with contextlib.nullcontext() if gone else pytest.raises(EngineError):
            await answer(engine, *talk)
        await answer(engine, *talk)
    assert set(far.asked(PATH)[0].json) - sent_fields(far) == {gone} - {""}


async def test_a_system_message_that_a_server_refuses_goes_before_the_users_first() -> None:
    refused = problem(400, {"error": "Developer instruction is not enabled for models/gemma-3"})
    far = FarServer("koboldcpp", moods={PATH: [refused]})
    async with chat_with(far) as engine:
        for _ in range(2):
            assert await answer(engine)
    assert [[m["role"] for m in seen.json["messages"]] for seen in far.asked(PATH)] == [
        ["system", "user"],
        ["user"],
        ["user"],
    ]


async def test_a_server_may_refuse_fields_and_then_the_conversation() -> None:
    system = problem(400, {"error": "System message must be at the beginning"})
    far = FarServer("koboldcpp", moods={PATH: [problem(422, {"detail": [FORBIDDEN]}), system]})
    async with chat_with(far) as engine:
        for _ in range(2):
            assert await answer(engine, *TALKS[1], tools=(DANCE,))
    assert len(far.asked(PATH)) == 4
    assert "reasoning_effort" not in far.asked(PATH)[-1].json


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, "seed is too large"),
        (500, "Failed to parse input at pos 0: <tool_call>"),
        (500, "operating system error"),
    ],
)
async def test_other_refusals_are_reported_and_change_nothing(status: int, why: str) -> None:
    far = FarServer("vllm")
    far.moods[PATH] = [problem(status, {"error": {"message": why}})]
    async with chat_with(far) as engine:
        with pytest.raises(EngineError, match=why):
            await answer(engine, tools=(DANCE, NOD))
        await answer(engine, *TALKS[1], tools=(DANCE,))
    assert sent(far)[0]["role"] == "system", "not told by the user"
    assert len(far.asked(PATH)) == 2


@pytest.mark.parametrize(
    "failures",
    [
        [],
        [problem(200, {"error": {"code": 502, "message": "Provider returned error"}})],
        [problem(200, {"error": {"message": "Try an alternative provider"}})],
        [problem(500, {"error": {"message": "Internal error"}})],
    ],
)
async def test_openai_takes_late_system_messages(failures: list[Mood]) -> None:
    """Also after a temporary failure."""
    far = FarServer("openai", moods={PATH: failures})
    async with chat_with(far) as engine:
        for _ in range(2):
            await answer(engine, *TALKS[1])
    assert [message["role"] for message in sent(far)][3] == "system"
