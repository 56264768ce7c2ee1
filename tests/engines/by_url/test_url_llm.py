"""Language models by URL: requests and answers in each server's dialect."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from pipeline.engines.contract import Finished, ToolCall
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Message, Sampling, ToolChoice, Usage
from pipeline.work import Work
from tests.support.deltas import calls_of, text_of
from tests.support.far_answers import data
from tests.support.far_server import FarServer, Mood, problem, stream
from tests.support.far_server import Kind as Server
from tests.support.url_engines import DANCE, HELLO, NOD, answer, answered, chat_with

pytestmark = pytest.mark.machine

PATH = "/v1/chat/completions"
SERVERS = pytest.mark.parametrize(
    "server", ["llama-server", "llama-swap", "vllm", "ollama", "lm-studio", "openai", "koboldcpp"]
)


def last(far: FarServer) -> Any:
    return far.asked(PATH)[-1].json


# --- each server -------------------------------------------------------------------------------


@SERVERS
async def test_an_answer_in_words_and_calls(server: Server) -> None:
    far = FarServer(
        server, thoughts=["Hm, ", "who am I?"], calls=[("dance", '{"steps": 3}'), ("nod", "{}")]
    )
    deltas = await answered(far, tools=(DANCE, NOD))
    assert text_of(deltas) == "Hello there, my friend. How are you?"
    assert calls_of(deltas) == [ToolCall("dance", '{"steps": 3}'), ToolCall("nod", "{}")]
    cached = 0 if server == "ollama" else 12
    assert deltas[-1] == Finished("stop", Usage(20, cached, 20 - cached, 7))
    assert len({seen.port for seen in far.seen}) == 1, "one connection, kept"


@SERVERS
async def test_an_answer_that_is_cut_at_its_limit(server: Server) -> None:
    far = FarServer(server)
    sampling = Sampling(max_tokens=2)
    deltas = await answered(far, sampling=sampling)
    if server == "openai":
        assert last(far)["max_completion_tokens"] == 2
    else:
        assert last(far)["max_tokens"] == 2
        assert text_of(deltas) == "Hello there,"
        assert isinstance(deltas[-1], Finished)
        assert deltas[-1].reason == "length"


@SERVERS
async def test_each_server_gets_the_fields_it_knows(server: Server) -> None:
    far = FarServer(server)
    sampling = Sampling(0.5, 0.8, 0.07, 1.2, seed=3, max_tokens=9, stops=("noon",))
    await answered(far, sampling=sampling)
    asked = last(far)
    fixed = {"model": "qwen3", "stream": True, "temperature": 0.5, "top_p": 0.8, "seed": 3}
    fixed["stop"] = ["noon"]
    assert {key: asked[key] for key in fixed} == fixed
    assert asked["stream_options"] == {"include_usage": True}
    no_thoughts = {"chat_template_kwargs": {"enable_thinking": False}}
    llama = {"min_p": 0.07, "repeat_penalty": 1.2, "cache_prompt": True, **no_thoughts}
    own: dict[str, Any] = {
        "llama-server": llama,
        "llama-swap": llama,
        "vllm": {"min_p": 0.07, "repetition_penalty": 1.2, **no_thoughts},
        "ollama": {"reasoning_effort": "none"},
        "lm-studio": {"min_p": 0.07, "repeat_penalty": 1.2, "reasoning_effort": "none"},
        "koboldcpp": {"reasoning_effort": "none", **no_thoughts},
        "openai": {"max_completion_tokens": 9},
    }[server]
    most = {} if server == "openai" else {"max_tokens": 9}
    known = {*fixed, "stream_options", "messages"}
    assert {key: asked[key] for key in asked if key not in known} == own | most


@pytest.mark.parametrize(
    ("server", "tokens"),
    [("llama-server", 8192), ("vllm", 5000), ("ollama", 4096), ("lm-studio", 6000), ("openai", 0)],
)
async def test_the_context_is_what_the_server_reports(server: Server, tokens: int) -> None:
    far = FarServer(server)
    async with chat_with(far) as engine:
        assert engine.context_tokens == tokens
        warmed = await engine.open().warm(LlmRequest(HELLO, [DANCE]), Work())
    assert warmed.most_tokens == (tokens - 512 if tokens else 0)
    async with chat_with(far, context_tokens=1000) as engine:
        assert engine.context_tokens == 1000


# --- prompts -----------------------------------------------------------------------------------

CALL = {
    "id": "call_9",
    "type": "function",
    "function": {"name": "dance", "arguments": {"steps": 2}},
}
LONG = (
    Message("system", "Be brief."),
    Message("user", "Dance!"),
    Message("assistant", "I dance.", tool_calls=(CALL,)),
    Message("tool", "done", tool_call_id="call_9"),
    Message("user", "Half a pair: \ud83d"),
)


async def test_a_conversation_as_chat_messages() -> None:
    far = FarServer()
    await answered(far, *LONG, tools=(DANCE,))
    asked = last(far)
    function = {"name": "dance", "arguments": '{"steps": 2}'}
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Dance!"},
        {
            "role": "assistant",
            "content": "I dance.",
            "tool_calls": [{"id": "call_9", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "done", "tool_call_id": "call_9"},
        {"role": "user", "content": "Half a pair: ?"},
    ]
    (tool,) = asked["tools"]
    assert tool["function"]["parameters"] == DANCE.parameters
    assert asked["tool_choice"] == "auto"
    assert "parallel_tool_calls" not in asked


async def test_extra_fields_of_the_settings_win_and_null_removes() -> None:
    far = FarServer()
    extra = {"temperature": None, "cache_prompt": False, "slot": 1}
    async with chat_with(far, extra=extra, model="mine") as engine:
        await answer(engine)
    asked = last(far)
    assert "temperature" not in asked
    assert (asked["cache_prompt"], asked["slot"], asked["model"]) == (False, 1, "mine")


# --- tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sent", "offered", "called"),
    [
        (ToolChoice("auto"), "auto", ["dance", "nod"], ["dance", "nod"]),
        (ToolChoice("none"), "none", ["dance", "nod"], []),
        (ToolChoice("required"), "required", ["dance", "nod"], ["dance", "nod"]),
        (ToolChoice("required", parallel=False), "required", ["dance", "nod"], ["dance"]),
        (ToolChoice("named", "nod"), "required", ["nod"], ["nod"]),
    ],
)
async def test_tool_choice_limits_the_calls(
    choice: ToolChoice, sent: str, offered: list[str], called: list[str]
) -> None:
    """Even if the server ignores the choice, as Ollama long did."""
    far = FarServer("ollama", calls=[("dance", '{"steps": 3}'), ("nod", "{}")])
    deltas = await answered(far, tools=(DANCE, NOD), choice=choice)
    asked = last(far)
    assert asked["tool_choice"] == sent
    assert [tool.get("function", tool)["name"] for tool in asked["tools"]] == offered
    assert asked.get("parallel_tool_calls", True) == choice.parallel
    assert [call.name for call in calls_of(deltas)] == called
    forced = choice.kind in ("required", "named")
    assert (text_of(deltas) == "") == forced


@pytest.mark.parametrize(
    "call",
    [
        ("fly", "{}"),
        ("dance", "{"),
        ("dance", "{}"),
        ("dance", '{"steps": "two"}'),
        ("dance", "[]"),
    ],
)
async def test_calls_that_cannot_be_made_are_left_out(
    call: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    far = FarServer(calls=[call, ("nod", "")])
    async with chat_with(far) as engine:
        deltas = await answer(engine, tools=(DANCE, NOD))
        assert calls_of(deltas) == [ToolCall("nod", "{}")]
        assert "Ignoring a" in caplog.text
        far.calls = [call]
        with pytest.raises(EngineError, match="no tool call that fits"):
            await answer(engine, tools=(DANCE, NOD), choice=ToolChoice("required"))


# --- streams as they should not be -------------------------------------------------------------


def chunk(delta: Any, reason: str | None = None) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


WORDS = chunk({"content": "Hello."})
STOP = chunk({}, "stop")


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        (stream(WORDS), "stream ended before"),
        (stream(WORDS, torn=True), "broke off"),
        (stream(data("{")), "not JSON"),
        (stream(data("[1]")), "not an object"),
        (stream(data({"choices": ["x"]})), "no choice"),
        (stream(data({"choices": [{"delta": "x"}]})), "no delta"),
        (stream(chunk({"tool_calls": [1]})), "no function"),
        (stream(WORDS, data({"error": {"message": "out of memory"}})), "out of memory"),
        (stream(WORDS, data({"error": {"message": "Hello friend"}})), "… friend"),
        (stream(b"<html>"), "stream ended before"),
        (Mood(200, "text/html", [b"<html>"]), "got text/html"),
        (Mood(200, "application/json", [b"{}"]), "stream ended before"),
        (Mood(200, "application/json", [b"[]"]), "got application/json"),
        (stream(data({"object": "error", "message": "out of memory"}), data("[DONE]")), "memory"),
        (stream(WORDS, chunk({}, "abort"), data("[DONE]")), "abort"),
    ],
)
async def test_a_broken_stream_is_an_error(mood: Mood, why: str) -> None:
    far = FarServer(moods={PATH: [mood]})
    async with chat_with(far) as engine:
        with pytest.raises(EngineError, match=why):
            await answer(engine)
        assert engine.problem is None, "it is there"
        assert text_of(await answer(engine)), "the next answer comes"


@pytest.mark.parametrize("end", [STOP, data("[DONE]")])
@pytest.mark.parametrize("torn", [True, False])
async def test_an_answer_ends_at_its_end_mark(torn: bool, end: bytes) -> None:
    far = FarServer(moods={PATH: [stream(WORDS, end, torn=torn)]})
    deltas = await answered(far)
    assert text_of(deltas) == "Hello."
    assert deltas[-1] == Finished("stop", Usage())


WHOLE = {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
    {"type": "text", "text": "Hello."},
]


@pytest.mark.parametrize(
    "mood",
    [
        Mood(200, "application/json", [json.dumps(WHOLE).encode()]),  # it does not stream
        Mood(200, "", [WORDS, STOP]),  # a FastAPI app
        Mood(200, "text/plain; charset=utf-8", [b": wait\n\n", WORDS, STOP]),
        stream(data(""), data(" "), WORDS, STOP),
        stream(chunk({"content": PARTS}), STOP),  # Mistral
        stream(chunk({"content": None, "refusal": "Hello."}), STOP),  # OpenAI
        stream(WORDS, data({"choices": [{"delta": {}, **WHOLE["choices"][0]}]})),
        stream(chunk({"content": "Hello"}, "null"), 0.7, chunk({"content": "."}, "null"), STOP),
    ],
)
async def test_an_answer_in_an_odd_form_is_understood(mood: Mood) -> None:
    assert text_of(await answered(FarServer(moods={PATH: [mood]}))) == "Hello."


# --- thoughts ----------------------------------------------------------------------------------

THOUGHT = chunk({"reasoning_content": "Hello."})


async def test_an_answer_that_a_server_takes_for_a_thought_is_said() -> None:
    """As vLLM does with some parsers when thinking is turned off."""
    assert text_of(await answered(FarServer("vllm", moods={PATH: [stream(THOUGHT, STOP)]}))) == (
        "Hello."
    )
    nod = {"index": 0, "id": "1", "function": {"name": "nod", "arguments": "{}"}}
    calls = stream(THOUGHT, chunk({"tool_calls": [nod]}), STOP)
    deltas = await answered(FarServer("vllm", moods={PATH: [calls]}), tools=(NOD,))
    assert (text_of(deltas), calls_of(deltas)) == ("", [ToolCall("nod", "{}")])
    refused = problem(400, {"error": "reasoning_effort is not supported"})
    thinker = FarServer("ollama", moods={PATH: [refused, stream(THOUGHT, STOP)]})
    assert text_of(await answered(thinker)) == ""
    cut = stream(THOUGHT, chunk({}, "length"))
    thinker = FarServer("vllm", moods={PATH: [cut, stream(THOUGHT, STOP)]})
    assert text_of(await answered(thinker)) == ""


CLOSED = "Hm, let me see.\n</think>\n\nHello."


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([CLOSED, "[THINK]Hm.[/THINK]Hello."], ["Hello.", "Hello."]),
        (["</think>Hello.", CLOSED, "<think>Hm.</think>Hello."], ["Hello."] * 3),
        ([CLOSED, "Hi.", CLOSED], ["Hello.", "Hi.", "Hello."]),
        ([CLOSED, "Hi.", "Hi.", "Yes</think>."], ["Hello.", "Hi.", "Hi.", "Yes."]),
        (["<think>Hm.</think>Hello.</think>", "Yes</think>."], ["Hello.", "Yes."]),
    ],
)
async def test_thoughts_that_begin_in_the_prompt_are_said_once_at_most(
    answers: list[str], said: list[str]
) -> None:
    moods = [stream(*(chunk({"content": sign}) for sign in text), STOP) for text in answers]
    async with chat_with(FarServer("vllm", moods={PATH: moods})) as engine:
        heard = [text_of(await answer(engine, tools=(NOD,))) for _ in answers]
    assert heard[0].endswith("Hello.")
    assert heard[1:] == said[1:]


async def test_an_interrupted_answer_tells_that_answers_begin_with_thoughts() -> None:
    cut = stream(chunk({"content": CLOSED}), STOP)
    late = stream(chunk({"content": CLOSED.replace("Hello.", "")}), chunk({}, "length"))
    answers = [cut, late, stream(chunk({"content": CLOSED}), STOP)]
    far = FarServer("vllm", moods={PATH: answers})
    async with chat_with(far) as engine:
        async with aclosing(engine.open().reply(LlmRequest(HELLO), Work())) as deltas:
            await anext(deltas)
        assert text_of(await answer(engine)) == "Hello.", "more tokens after the thoughts"


@pytest.mark.parametrize("thought", [THOUGHT, chunk({"content": "<think>Hm, let me see"})])
async def test_a_model_that_cannot_but_think_gets_tokens_for_it(thought: bytes) -> None:
    words = [chunk({"content": word}) for word in ("One ", "two ", "three ")]
    long = stream(thought, chunk({"content": "</think>"}), *words, STOP)
    far = FarServer("ollama", moods={PATH: [stream(thought, chunk({}, "length")), long, long]})
    async with chat_with(far) as engine:
        for _ in range(2):
            deltas = await answer(engine, sampling=Sampling(max_tokens=2))
            assert text_of(deltas) == "One two"
            assert deltas[-1] == Finished("length", Usage())
    assert [seen.json["max_tokens"] for seen in far.asked(PATH)] == [2, 1026, 1026]
