"""Calls that servers leave in the text, and calls requested by schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.by_url.families import LLAMA_SERVER
from pipeline.engines.contract import Finished, TextDelta, ToolCall
from pipeline.engines.llm.chat_completions import ChatReader
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.url_prompts import (
    RawCall,
    ReplyParser,
    UrlRequest,
    call_schema,
    format_fields,
)
from pipeline.engines.llm.vocabulary import Vocabulary
from pipeline.errors import EngineError
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from tests.engines.by_url.test_url_llm import PATH, last
from tests.support.deltas import calls_of, text_of
from tests.support.far_server import FarServer, Mood, Seen, problem
from tests.support.far_server import Kind as Server
from tests.support.llama_talk import MODEL, random_text
from tests.support.robot_tools import robot_tools
from tests.support.url_engines import DANCE, NOD, answer, answered, chat_with

pytestmark = pytest.mark.engines

DANCE_TEXT = '{"name": "dance", "arguments": {"steps": 3}}'
NOD_TEXT = '{"name": "nod", "arguments": {}}'
DANCED = ToolCall("dance", '{"steps": 3}')
NODDED = ToolCall("nod", "{}")
ONE_CALL = ToolChoice("required", parallel=False)


async def test_tools_that_the_template_cannot_show_are_described() -> None:
    far = FarServer(shows_tools=False, words=[f"<tool_call>{DANCE_TEXT}</tool_call>"])
    call = {"id": "c", "type": "function", "function": {"name": "nod", "arguments": "{}"}}
    history = (
        Message("system", "Be brief."),
        Message("user", "Nod!"),
        Message("assistant", "", (call,)),
        Message("tool", "ok", tool_call_id="c"),
        Message("user", "Dance!"),
    )
    async with chat_with(far) as engine:
        assert calls_of(await answer(engine, *history, tools=(DANCE, NOD))) == [DANCED]
        asked = last(far)
        assert "tools" not in asked
        assert "tool_choice" not in asked
        system, *others = asked["messages"]
        assert "Dance some steps" in system["content"]
        assert [(each["role"], each["content"]) for each in others] == [
            ("user", "Nod!"),
            ("assistant", f"<tool_call>\n{NOD_TEXT}\n</tool_call>"),
            ("user", "<tool_response>\nok\n</tool_response>\nDance!"),
        ]
        await answer(engine, *history, tools=(DANCE, NOD), choice=ToolChoice("required"))
        assert last(far)["response_format"]["json_schema"]["schema"]["anyOf"]


# --- in the text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "size"),
    [("llama-server", 1), ("vllm", 4), ("ollama", 4), ("lm-studio", 4), ("openai", 500)],
)
async def test_a_call_without_marks_is_a_call(server: Server, size: int) -> None:
    for text in (f"```json\n{DANCE_TEXT}\n```\nI dance.", f"I dance.\n{DANCE_TEXT}"):
        words = [text[at : at + size] for at in range(0, len(text), size)]
        far = FarServer(server, words=words)
        deltas = await answered(far, tools=(DANCE, NOD))
        assert calls_of(deltas) == [DANCED]
        assert text_of(deltas) == "I dance."


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"name": "fly", "arguments": {}}', ToolChoice()),
        ('{"name": "dance", "arguments": {"steps": "two"}} it is.', ToolChoice()),
        (DANCE_TEXT, ToolChoice("none")),
        ('{"name": "dance", "arguments": {"st', ToolChoice()),
    ],
)
async def test_json_that_is_no_call_stays_text(text: str, choice: ToolChoice) -> None:
    far = FarServer(words=list(text))
    async with chat_with(far) as engine:
        deltas = await answer(engine, tools=(DANCE, NOD), choice=choice)
        assert (text_of(deltas), calls_of(deltas)) == (text, [])
        deltas = await answer(engine)
    assert text_of(deltas) == text, "without tools"


@pytest.mark.parametrize(
    "text",
    [
        f"[TOOL_CALLS][{DANCE_TEXT}]",  # Mistral
        f'[TOOL_CALLS] [{DANCE_TEXT[:-1]}, "id": "VvvODy9mT"}}]</s>',
        f"<|tool_call|>[{DANCE_TEXT}]",  # Granite
        f"<TOOLCALL>[{DANCE_TEXT}]</TOOLCALL>",  # Nemotron
        f"[TOOL_REQUEST]{DANCE_TEXT}[END_TOOL_REQUEST]",  # LM Studio
        f"<tools>\n{DANCE_TEXT}\n</tools>",  # small Qwen
        f"<tool_calls>[{DANCE_TEXT}]</tool_calls>",
        f"<function_call>{DANCE_TEXT}</function_call>",
        f"{DANCE_TEXT}<|im_end|>",
        '[TOOL_CALLS]dance[ARGS]{"steps": 3}',
        '<function=dance>{"steps": 3}</function>',
        "<tool_call>\n<function=dance>\n<parameter=steps>\n3\n</parameter>\n</function>\n</tool_call>",
    ],
)
async def test_marks_of_other_models_are_not_spoken(text: str) -> None:
    deltas = await answered(FarServer(words=[text]), tools=(DANCE, NOD))
    assert (text_of(deltas), calls_of(deltas)) == ("", [DANCED])


@pytest.mark.parametrize(
    "arguments", ['{"steps": 3}', json.dumps('{"steps": 3}'), ' {"steps": 3}\n', '{"steps": "3"}']
)
def test_arguments_may_be_written_as_text(arguments: str) -> None:
    parser = ReplyParser(UrlRequest("", LLAMA_SERVER, [], [DANCE, NOD]))
    calls = [RawCall("1", "dance", arguments), RawCall("2", "nod", "null")]
    assert list(parser.finish(calls)) == [DANCED, NODDED]


def test_a_name_may_have_the_namespace_of_functions() -> None:
    """As gpt-oss may write it."""
    parser = ReplyParser(UrlRequest("", LLAMA_SERVER, [], [DANCE, NOD]))
    calls = [RawCall("1", "functions.dance", '{"steps": 3}'), RawCall("2", "functions.sing", "")]
    assert list(parser.finish(calls)) == [DANCED]


@pytest.mark.parametrize(
    ("text", "choice", "expected"),
    [
        (f"Sure. {DANCE_TEXT}", ToolChoice("required"), [DANCED]),
        (f"{DANCE_TEXT}\n{DANCE_TEXT}", ToolChoice(), [DANCED]),
        (f"<tool_call>{DANCE_TEXT}</tool_call>" * 3, ToolChoice(), [DANCED]),
        (f"{DANCE_TEXT}, {DANCE_TEXT}", ToolChoice("required"), [DANCED]),
        (f'{{"nod": {NOD_TEXT}}}', ToolChoice("named", "nod"), [NODDED]),
        (f"[{DANCE_TEXT}, {DANCE_TEXT[:-3]}4}}}}]", ONE_CALL, [DANCED]),
    ],
)
async def test_how_many_calls_an_answer_makes(
    text: str, choice: ToolChoice, expected: list[ToolCall]
) -> None:
    far = FarServer("vllm", words=list(text))
    deltas = await answered(far, tools=(DANCE, NOD), choice=choice)
    assert calls_of(deltas) == expected
    assert text_of(deltas) == ""


async def test_halves_of_surrogate_pairs_are_put_together() -> None:
    sing = Tool("sing", "", {"type": "object", "properties": {"text": {"type": "string"}}})
    units = ["\ud83e", "\udd16"]
    call = '{"name": "sing", "arguments": {"text": "', *units, '"}}'
    for words in (call, ("Hi ", *units, " there", "\ud83e", "!", "\ud83e")):
        far = FarServer(words=words)
        async with chat_with(far) as engine:
            deltas = await answer(engine, tools=(sing,))
        if words is call:
            assert calls_of(deltas) == [ToolCall("sing", '{"text": "🤖"}')]
        else:
            assert text_of(deltas) == "Hi 🤖 there\ufffd!\ufffd"


async def test_surrogate_halves_in_arguments_are_put_together() -> None:
    parts = ReplyParser(UrlRequest("", LLAMA_SERVER, [], [DANCE]))
    raw = RawCall("", "dance", '{"steps": 3, "to": "\ud83e' + '\udd16"}')
    assert [*parts.finish([raw])] == [ToolCall("dance", '{"steps": 3, "to": "🤖"}')]


async def test_a_call_found_twice_is_reported_once() -> None:
    far = FarServer(
        "vllm", words=[DANCE_TEXT], calls=[("dance", '{"steps":3}'), ("nod", "{}"), ("nod", "{}")]
    )
    deltas = await answered(far, tools=(DANCE, NOD))
    assert calls_of(deltas) == [DANCED, NODDED]


# --- by schema ---------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "dance")])
async def test_llama_server_is_asked_for_a_call_by_its_schema(choice: ToolChoice) -> None:
    far = FarServer(words=list(DANCE_TEXT))
    deltas = await answered(far, tools=(DANCE, NOD), choice=choice)
    assert calls_of(deltas) == [DANCED]
    assert text_of(deltas) == ""
    asked = last(far)
    named = choice.kind == "named"
    offered = [DANCE] if named else [DANCE, NOD]
    assert asked["tool_choice"] == "none"
    assert [tool.get("function", tool)["name"] for tool in asked["tools"]] == [
        tool.name for tool in offered
    ]
    form = asked["response_format"]
    assert form["type"] == "json_schema"
    schema = form["json_schema"]["schema"]
    assert schema == call_schema(offered)
    assert fits(json.loads(DANCE_TEXT), schema)
    assert not fits({"name": "dance", "arguments": {}}, schema)
    assert fits({"name": "nod", "arguments": {}}, schema) != named


async def test_a_schema_is_sent_only_to_llama_server_for_forced_calls() -> None:
    for server, choice in (("llama-server", ToolChoice()), ("vllm", ToolChoice("required"))):
        far = FarServer(server, calls=[("nod", "{}")])  # type: ignore[arg-type]
        async with chat_with(far) as engine:
            await answer(engine, tools=(DANCE, NOD), choice=choice)
        assert "response_format" not in last(far)
        assert last(far)["tool_choice"] == choice.kind


REFUSAL = problem(400, {"error": {"message": "failed to parse grammar", "code": 400}})


async def test_a_refused_schema_is_replaced_by_one_for_any_arguments() -> None:
    far = FarServer(words=[NOD_TEXT], moods={PATH: [REFUSAL]})
    async with chat_with(far) as engine:
        deltas = await answer(engine, tools=(DANCE, NOD), choice=ToolChoice("required"))
        assert calls_of(deltas) == [NODDED]
        first, second = far.asked(PATH)
        assert '"steps"' in json.dumps(first.json["response_format"])
        assert '"steps"' not in json.dumps(second.json["response_format"])
        assert first.json["tool_choice"] == second.json["tool_choice"] == "none"
        far.moods = {PATH: [REFUSAL, REFUSAL]}
        with pytest.raises(EngineError, match="refuses the request"):
            await answer(engine, tools=(DANCE,), choice=ToolChoice("required"))


class Careless(FarServer):
    """llama-server that enforces a schema only in part."""

    def _answer(self, seen: Seen) -> Mood:
        asked = sum(b"response_format" in each.content for each in self.seen)
        steps = 3 if asked > 1 else 300
        self.words = [DANCE_TEXT.replace("3", str(steps))]
        return super()._answer(seen)


async def test_a_call_that_breaks_its_schema_is_asked_for_once_more() -> None:
    steps = {"steps": {"type": "number", "minimum": 0, "maximum": 10}}
    dance = Tool("dance", "", {"type": "object", "properties": steps, "required": ["steps"]})
    far = Careless()
    async with chat_with(far) as engine:
        (free,) = [d for d in await answer(engine) if isinstance(d, Finished)]
        *deltas, end = await answer(engine, tools=(dance,), choice=ToolChoice("required"))
    assert calls_of(deltas) == [DANCED]
    assert text_of(deltas) == ""
    assert isinstance(end, Finished)
    assert end.usage == free.usage + free.usage, "both attempts are paid for"
    assert len(far.asked(PATH)) == 3


async def test_a_call_that_is_cut_off_is_not_asked_for_again() -> None:
    far = FarServer(words=list(DANCE_TEXT))
    sampling = Sampling(max_tokens=20)
    async with chat_with(far) as engine:
        deltas = await answer(
            engine, tools=(DANCE,), choice=ToolChoice("required"), sampling=sampling
        )
    (end,) = deltas
    assert isinstance(end, Finished)
    assert end.reason == "length"
    assert len(far.asked(PATH)) == 1


async def test_a_missing_forced_call_is_a_failure() -> None:
    far = FarServer(words=["I would rather not."])
    async with chat_with(far) as engine:
        with pytest.raises(EngineError, match="no tool call that fits"):
            await answer(engine, tools=(DANCE,), choice=ToolChoice("required"))


def chat_calls(*pieces: Any) -> list[tuple[str, str]]:
    reader = ChatReader()
    for piece in pieces:
        reader.feed(json.dumps({"choices": [{"delta": {"tool_calls": piece}}]}))
    return [(call.name, call.arguments) for call in reader.calls]


def piece(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def test_pieces_are_joined_into_their_call() -> None:
    by_index = chat_calls(
        [piece("a", "", index=0, id="1")],
        [piece(None, "{", index=0)],
        [piece("b", "{", index=1, id="2")],
        [piece(None, "}", index=0), piece(None, "}", index=1)],
    )
    assert by_index == [("a", "{}"), ("b", "{}")]
    one_index = chat_calls([piece("a", "{}", index=0, id="1")], [piece("b", "{}", index=0, id="2")])
    assert one_index == [("a", "{}"), ("b", "{}")]
    no_index = chat_calls([piece("a", "{}", id="1"), piece("b", "{}", id="2")])
    assert no_index == [("a", "{}"), ("b", "{}")]
    no_id = chat_calls([piece("a", "{}", index=0), piece("a", "{}", index=0)])
    assert no_id == [("a", "{}"), ("a", "{}")]
    name_repeated = chat_calls([piece("a", "{", index=0)], [piece("a", "}", index=0)])
    assert name_repeated == [("a", "{}")]
    repeated = chat_calls([piece("a", "{", index=0, id="1")], [piece("a", "}", index=0, id="1")])
    assert repeated == [("a", "{}")]
    new_ids = chat_calls([piece("a", "{", index=0, id="1")], [piece(None, "}", index=0, id="2")])
    assert new_ids == [("a", "{}")]
    empty = chat_calls([piece("a", "{", index=0)], [{"index": 0, "function": None}])
    assert empty == [("a", "{")]
    assert chat_calls([piece("a", {"x": 1}, index=0, id="1")]) == [("a", '{"x": 1}')]


def test_references_point_into_the_whole_schema() -> None:
    parameters = {
        "$defs": {"place": {"enum": ["left", "right"]}},
        "properties": {"at": {"$ref": "#/$defs/place"}, "$ref": {"type": "string"}},
        "required": ["at"],
    }
    for others in ([], [NOD]):
        schema = call_schema([*others, Tool("look", "", parameters)])
        assert fits({"name": "look", "arguments": {"at": "left", "$ref": "#x"}}, schema)
        assert not fits({"name": "look", "arguments": {"at": "up"}}, schema)


@pytest.mark.real
def test_a_required_call_schema_yields_calls(weights: Any) -> None:
    """Any output of the model is then a call of a robot tool."""
    path: Path = next(weights(MODEL).glob("*.gguf"))
    model = Model(path, LlamaCppOptions(requantize=False))
    tools = robot_tools()
    asked = UrlRequest("", LLAMA_SERVER, [], tools, ToolChoice("required"), form="schema")
    schema = format_fields(asked)["response_format"]["json_schema"]["schema"]
    grammar = Vocabulary(model, ()).matcher(f"start: %json {json.dumps(schema)}")
    schemas = {tool.name: tool.parameters for tool in tools}
    for seed in range(4):
        parts = ReplyParser(asked)
        text = random_text(model, grammar.deep_copy(), '"', seed)
        (call,) = [*parts.text(text), *parts.finish([])]
        assert not isinstance(call, TextDelta)
        assert fits(json.loads(call.arguments), schemas[call.name])
