"""Calls without marks in process: the grammar takes over where the name is known.

On a real model, and on a random one, which would write anything else.
"""

from __future__ import annotations

import pytest

from pipeline.engines.contract import Finished, ToolCall
from pipeline.engines.llm.llama_cpp import LlamaCpp
from pipeline.engines.llm.llama_model import Model
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from tests.engines.llm.conftest import Says
from tests.engines.llm.test_llama_tools import check, items
from tests.support.llama_talk import SHORT_TOOLS, calls, joined, nudge, replies, told

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "wish",
    [
        '{"name": "head_tracking"',
        '{"name":"head_tracking", "arguments": {"on": 1}}',
        '\n{ "type": "function",\n "name": "head_tracking"}',
        '```json\n[{"name": "head_tracking"',
    ],
)
def test_the_grammar_takes_over_where_the_name_is_known(
    engine: LlamaCpp, wish: str, says: Says
) -> None:
    says(wish)
    call, *_ = items(engine, ToolChoice(), max_tokens=60)
    assert isinstance(call, ToolCall)
    assert call.name == "head_tracking"
    check(call)


@pytest.mark.parametrize(
    "wish",
    [
        '{"name": "head_tracking_now", "arguments": {}}',
        '{"person": {"name": "head_tracking"}}',
        'Sure! {"name": "head_tracking", "arguments": {}}',
    ],
)
def test_an_object_that_is_not_a_call_stays_text(engine: LlamaCpp, wish: str, says: Says) -> None:
    says(wish)
    found = items(engine, ToolChoice(), max_tokens=60)
    assert (joined(found)[0], calls(found)) == (wish, [])


STOP = Tool("stop", "", {"type": "object", "properties": {}, "additionalProperties": False})
SHOWN = [
    Message("system", 'To act, write {"name": "camera", "arguments": {"question": "..."}}.'),
    Message("user", "Who is there?"),
    Message("assistant", '{"name": "camera", "arguments": {"question": "Who is there?"}}'),
    Message("user", "What is this?"),
    Message("assistant", '{"name": "camera", "arguments": {"question": "What is this?"}}'),
    Message("user", "What colour is it?"),
]


def test_a_model_that_writes_its_calls_without_marks_calls(engine: LlamaCpp) -> None:
    """Nothing is put into its mouth: it has seen two calls, and writes the third."""
    made = []
    for seed in range(8):
        sampling = Sampling(seed=seed, temperature=0.3, max_tokens=60)
        steps = replies(engine.open(), SHOWN, tools=SHORT_TOOLS, sampling=sampling)
        made += calls(told(steps))
    assert len(made) >= 6
    for call in made:
        check(call)


@pytest.mark.parametrize("begin", ['{"name": "stop"', "<tool_call>"])
def test_a_call_that_is_written_again_is_the_end(engine: LlamaCpp, begin: str, says: Says) -> None:
    says(*[begin, "\n"] * 6, "Done.")
    *found, end = items(engine, ToolChoice(), tools=[STOP], max_tokens=400)
    assert found == [ToolCall("stop", "{}")]
    assert isinstance(end, Finished)
    assert end.reason == "stop"


def test_calls_without_marks_where_one_is_wanted(
    engine: LlamaCpp, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes = ['[{"name": "head_tracking"', ", ", '{"name": "stop"', "] Done."]
    tools = [*SHORT_TOOLS, STOP]
    for parallel, names in ((True, ["head_tracking", "stop"]), (False, ["head_tracking"])):
        with monkeypatch.context() as patch:
            nudge(patch, model, *wishes)
            found = items(engine, ToolChoice(parallel=parallel), tools=tools, max_tokens=200)
        assert [call.name for call in calls(found)] == names
        assert joined(found)[0] == ("Done." if parallel else "")


def test_tool_choice_none_keeps_an_object_as_text(engine: LlamaCpp, says: Says) -> None:
    text = '{"name": "camera", "arguments": {"question": "Who?"}}'
    says(text)
    found = items(engine, ToolChoice("none"), max_tokens=60)
    assert joined(found)[0] == text
    assert not calls(found)
