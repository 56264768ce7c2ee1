"""Tool calls of the llama.cpp engine on a real model that is far too small to want any.

The model's free output is not asserted; where a test needs certain words, it forces them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from pipeline.engines.contract import Delta, EndOfTurn, Finished, TextDelta, ToolCall
from pipeline.engines.llm import writer
from pipeline.engines.llm.llama_cpp import LlamaCpp
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from pipeline.work import Cancelled
from tests.engines.llm.conftest import Says
from tests.support.deltas import calls_of, text_of
from tests.support.llama_talk import (
    FRANCE,
    LEFT,
    SHORT_TOOLS,
    SYSTEM,
    answer,
    check,
    joined,
    nudge,
    push,
    replies,
    told,
)
from tests.support.recordings import Token

pytestmark = [pytest.mark.engines, pytest.mark.real]

REQUIRED = ToolChoice("required")
CALL = '<tool_call>\n{"name": "'
NOTE = Tool(
    "note",
    "Keeps a text.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


@pytest.fixture
def engine(shared_engine: LlamaCpp) -> LlamaCpp:
    """The shared engine as the test before left it: its prompt with the tools need not be read
    again."""
    return shared_engine


def items(
    engine: LlamaCpp,
    choice: ToolChoice,
    *,
    tools: Sequence[Tool] = SHORT_TOOLS,
    **how: Any,
) -> tuple[list[Delta], Finished]:
    """The items of the answer, and its end."""
    sampling = Sampling(**{"max_tokens": 40, "seed": 1, **how})
    steps = replies(engine.open(), LEFT, tools=tools, tool_choice=choice, sampling=sampling)
    *found, end = told(steps)
    assert isinstance(end, Finished)
    return found, end


# --- has to call -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_required_gives_calls_and_nothing_else(engine: LlamaCpp, seed: int) -> None:
    found, end = items(engine, REQUIRED, seed=seed, temperature=1.2)
    assert end.reason == "stop"
    assert found
    for call in found:
        check(call)


@pytest.mark.parametrize("tool", SHORT_TOOLS, ids=lambda tool: tool.name)
def test_a_named_tool_is_called_once(engine: LlamaCpp, tool: Tool) -> None:
    for seed in range(2):
        (call,), end = items(engine, ToolChoice("named", tool.name), seed=seed)
        check(call, [tool])
        assert end.reason == "stop"


def test_required_without_tools_gives_an_answer(engine: LlamaCpp) -> None:
    assert answer(engine.open(), FRANCE, tool_choice=REQUIRED)[0]


def test_required_without_any_room(engine: LlamaCpp) -> None:
    found, end = items(engine, REQUIRED, max_tokens=0)
    assert (found, end.reason, end.usage.generated) == ([], "length", 0)


# --- may call ----------------------------------------------------------------------------------


def test_speech_comes_out_before_the_call_is_complete(engine: LlamaCpp, says: Says) -> None:
    says("Of course.\n<tool_call>")
    steps = replies(
        engine.open(), LEFT, tools=SHORT_TOOLS, sampling=Sampling(seed=1, max_tokens=40)
    )
    said = ""
    while said != "Of course.":
        item = next(steps)
        assert item is None or isinstance(item, EndOfTurn | TextDelta)
        said += item.text if isinstance(item, TextDelta) else ""
    assert calls_of(told(steps))


def test_two_calls_and_speech_around_them(engine: LlamaCpp, says: Says) -> None:
    says("One.<tool_call>", "Two.\n", "<tool_call>", "Three.")
    found, _ = items(engine, ToolChoice(), max_tokens=200)
    kinds = [kind for kind, _ in itertools.groupby(map(type, found))]
    assert kinds == [TextDelta, ToolCall, TextDelta, ToolCall, TextDelta]
    assert text_of(found) == "One.Two.Three."
    for call in calls_of(found):
        check(call)


def test_a_mark_may_end_inside_a_token(
    engine: LlamaCpp, model: Model, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """The model continues differently and is steered back to the syntax."""
    (token,) = model.tokenize("></", special=False)
    tokens = [*model.tokenize("<tool_call", special=True), token]
    monkeypatch.setattr(Model, "tokenize", _knows_one_more(model, "MARK", tokens))
    says("MARK")
    (call,) = calls_of(items(engine, ToolChoice())[0])
    check(call)


def _knows_one_more(model: Model, text: str, tokens: list[int]) -> Any:
    tokenize = Model.tokenize
    return lambda self, asked, special: (
        tokens if asked == text else tokenize(self, asked, special=special)
    )


def test_without_parallel_calls_one_call_ends_the_answer(engine: LlamaCpp, says: Says) -> None:
    says("<tool_call>", "\n<tool_call>")
    found, end = items(engine, ToolChoice(parallel=False))
    assert [type(item) for item in found] == [ToolCall]
    assert end.reason == "stop"


@pytest.mark.parametrize("text", ["[TOOL_CALLS]camera[ARGS]{}", "<function=camera>{}</function>"])
def test_a_call_in_the_spelling_of_another_family(engine: LlamaCpp, says: Says, text: str) -> None:
    camera = Tool("camera", "", {"type": "object", "properties": {}})
    says(f"Well. {text}")
    found, _ = items(engine, ToolChoice(parallel=False), tools=[camera])
    assert text_of(found) == "Well."
    assert calls_of(found) == [ToolCall("camera", "{}")]


@pytest.mark.parametrize(
    ("before", "choice", "mark"),
    [
        ("Well.", "none", '<tool_call>\n{"name": "camera", "arguments": {}}'),
        ("Well.", "none", "<|im_start|>assistant\nMore."),
        ("Well.", "auto", "<|im_start|>assistant\nMore."),
        ("", "none", '<tool_call>\n{"name": "camera", "arguments": {}}'),
    ],
)
def test_words_end_before_another_turn_or_an_unwanted_call(
    engine: LlamaCpp, says: Says, before: str, choice: Literal["none", "auto"], mark: str
) -> None:
    says(f"{before}\n{mark}")
    found, end = items(engine, ToolChoice(choice))
    text = text_of(found)
    assert not calls_of(found)
    assert end.reason == "stop"
    assert text == before or (not before and "<" not in text)


def test_multibyte_characters_arrive_whole(engine: LlamaCpp, says: Says) -> None:
    says("né 🤖 日本")
    found, _ = items(engine, ToolChoice())
    parts = [item.text for item in found if isinstance(item, TextDelta)]
    assert "".join(parts) == "né 🤖 日本"
    assert not any("\ufffd" in part for part in parts)


# --- lengths -----------------------------------------------------------------------------------


def test_a_begun_call_is_completed(engine: LlamaCpp, model: Model, says: Says) -> None:
    says("<tool_call>")
    most = len(model.tokenize(CALL, special=True))
    (call,), end = items(engine, ToolChoice(), max_tokens=most)
    check(call)
    assert end.usage.generated > 10


def test_an_endless_call_is_forced_to_end(
    engine: LlamaCpp, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_CALL_TOKENS", 30)
    monkeypatch.setattr(writer, "_CLOSING_TOKENS", 15)
    push(monkeypatch, model.tokenize("a", special=False))
    (call,), end = items(engine, ToolChoice("named", "note"), tools=[NOTE], max_tokens=10)
    check(call, [NOTE])
    assert set(json.loads(call.arguments)["text"]) == {"a"}  # type: ignore[union-attr]
    assert (end.reason, end.usage.generated <= 40) == ("stop", True)


def test_the_end_of_the_context_in_a_call(small: LlamaCpp) -> None:
    prompt = [SYSTEM, Message("user", "one two three four " * 56)]
    steps = replies(
        small.open(),
        prompt,
        tools=[NOTE],
        tool_choice=REQUIRED,
        sampling=Sampling(seed=1, temperature=3, min_p=0),
    )
    found = told(steps)
    assert calls_of(found)
    assert isinstance(found[-1], Finished)
    usage = found[-1].usage
    assert usage.prompt + usage.generated <= 512


# --- sessions ----------------------------------------------------------------------------------


def test_aborting_inside_of_a_call(engine: LlamaCpp) -> None:
    session = engine.open()
    expected = answer(engine.open(), FRANCE)[0]
    token = Token()
    steps = replies(
        session,
        LEFT,
        tools=SHORT_TOOLS,
        tool_choice=REQUIRED,
        sampling=Sampling(seed=1),
        cancel=token,
    )
    sampled = []
    sample = Sampler.sample

    def counted(self: Sampler, logits: Any, **how: Any) -> int | None:
        sampled.append(self.bound)
        return sample(self, logits, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "sample", counted)
        while len(sampled) < 3:
            assert not isinstance(next(steps), TextDelta | ToolCall)
    assert all(sampled)
    token.cancel_after = token.looks
    with pytest.raises(Cancelled):
        list(steps)
    assert answer(session, FRANCE)[0] == expected
    assert calls_of(replies(session, LEFT, tools=SHORT_TOOLS, tool_choice=REQUIRED))


@pytest.mark.parametrize("knows_its_syntax", [True, False])
def test_a_call_stays_in_the_cells_for_the_next_turn(
    engine: LlamaCpp, model: Model, monkeypatch: pytest.MonkeyPatch, knows_its_syntax: bool
) -> None:
    """The grammar writes calls as the template does, so only text that the model tokenizes
    differently is read again. A model that learned the syntax tokenizes it as the prompt does."""
    call = ToolCall("head_tracking", '{"enabled": true}')
    text = engine._parts.prompts.calls.syntax.written(call.name, json.loads(call.arguments))
    tokens = model.tokenize(text, special=True)
    begin = len(model.tokenize(CALL, special=True))
    session = engine.open()
    with monkeypatch.context() as patch:
        if knows_its_syntax:
            push(patch, (*tokens[begin:], model.eos))
        sampling = Sampling(seed=1, max_tokens=40)
        tools = [tool for tool in SHORT_TOOLS if tool.name == call.name]
        steps = replies(session, LEFT, tools=tools, tool_choice=REQUIRED, sampling=sampling)
        found = told(steps)
    end = found[-1]
    assert isinstance(end, Finished)
    function = {"name": call.name, "arguments": calls_of(found)[0].arguments}
    history = [
        *LEFT,
        Message("assistant", "", tool_calls=({"id": "1", "function": function},)),
        Message("tool", "done", tool_call_id="1"),
    ]
    usage = answer(session, history, tools=tools)[1].usage
    if knows_its_syntax:
        assert calls_of(found) == [call]
        assert usage.cached == end.usage.prompt + len(tokens)
    assert usage.cached > end.usage.prompt + begin


# --- calls without marks in process ------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [
        '{"name": "head_tracking"',
        '{"name":"head_tracking", "arguments": {"on": 1}}',
        '\n{ "type": "function",\n "name": "head_tracking"}',
        '```json\n[{"name": "head_tracking"',
    ],
)
def test_the_grammar_starts_at_the_known_name(engine: LlamaCpp, wish: str, says: Says) -> None:
    says(wish)
    (call, *_), _ = items(engine, ToolChoice(), max_tokens=60)
    check(call, [tool for tool in SHORT_TOOLS if tool.name == "head_tracking"])


STOP = Tool("stop", "", {"type": "object", "properties": {}, "additionalProperties": False})


@pytest.mark.parametrize("begin", ['{"name": "stop"', "<tool_call>"])
def test_a_call_that_is_written_again_is_the_end(engine: LlamaCpp, begin: str, says: Says) -> None:
    says(*[begin, "\n"] * 6, "Done.")
    found, end = items(engine, ToolChoice(), tools=[STOP], max_tokens=400)
    assert (found, end.reason) == ([ToolCall("stop", "{}")], "stop")


@pytest.mark.parametrize(
    ("times", "words", "last", "called"),
    [
        (1, "Again!", (), True),
        (2, "Again!", (), False),
        (2, "", (), True),
        (2, "Again!", (Message("user", "Stop again."),), True),
    ],
)
def test_the_same_call_is_made_twice_at_most(
    engine: LlamaCpp, says: Says, times: int, words: str, last: tuple[Message, ...], called: bool
) -> None:
    """Clients ask for an answer after each call."""
    says(f'{words}<tool_call>\n{{"name": "stop"}}</tool_call>')
    call = {"id": "call_1", "function": {"name": "stop", "arguments": "{}"}}
    made = [Message("assistant", "", (call,)), Message("tool", "ok", tool_call_id="call_1")]
    sampling = Sampling(seed=1, max_tokens=60)
    steps = replies(engine.open(), [*LEFT, *made * times, *last], tools=[STOP], sampling=sampling)
    found = told(steps)
    assert calls_of(found) == [ToolCall("stop", "{}")] * called
    assert joined(found)[0] == words


def test_a_required_call_may_lack_its_marks(
    engine: LlamaCpp, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes = ['[{"name": "head_tracking"', ", ", '{"name": "stop"', "] Done."]
    tools = [*SHORT_TOOLS, STOP]
    for parallel, names in ((True, ["head_tracking", "stop"]), (False, ["head_tracking"])):
        with monkeypatch.context() as patch:
            nudge(patch, model, *wishes)
            how = {"tools": tools, "max_tokens": 200}
            found, end = items(engine, ToolChoice(parallel=parallel), **how)
        assert [call.name for call in calls_of(found)] == names
        assert joined([*found, end])[0] == ("Done." if parallel else "")
