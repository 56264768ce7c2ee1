"""The engine with each family's chat template, on a model that learned none of them.

Their marks are plain text to the model, so each takes several tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.engines.contract import Finished
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.engines.llm.llama_model import Model
from pipeline.messages import Message, Sampling
from tests.support.deltas import calls_of, text_of
from tests.support.llama_talk import (
    LEFT,
    MODEL,
    SHORT_TOOLS,
    answer,
    check,
    joined,
    nudge,
    replies,
    told,
)
from tests.support.places import DATA

pytestmark = [pytest.mark.engines, pytest.mark.real]

CALLS = DATA / "tool_calls"
SAMPLING = Sampling(seed=1, max_tokens=30)


@pytest.fixture(scope="module", params=["qwen3", "hermes", "gemma4", "llama3"])
def engine(request: pytest.FixtureRequest, weights: Callable[[str], Path]) -> LlamaCpp:
    source = (CALLS / f"{request.param}.jinja").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "chat_template", lambda _, name=None: None if name else source)
        engine = build(LlamaCppOptions(threads=1, context_tokens=4096), weights(MODEL))
    assert engine._parts.prompts._template.capabilities.tools
    return engine


def test_speech_and_a_call_and_the_next_turn(
    engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = engine.open()
    mark = engine._parts.prompts.calls.syntax.marker
    with monkeypatch.context() as patch:
        nudge(patch, engine._parts.model, f"Of course.\n{mark}")
        steps = replies(session, LEFT, tools=SHORT_TOOLS, sampling=SAMPLING)
        found = told(steps)
    assert text_of(found) == "Of course."
    (call,) = calls_of(found)
    check(call)
    function = {"name": call.name, "arguments": call.arguments}
    history = [
        *LEFT,
        Message("assistant", "Of course.", tool_calls=({"id": "1", "function": function},)),
        Message("tool", "done", tool_call_id="1"),
    ]
    usage = answer(session, history, tools=SHORT_TOOLS)[1].usage
    assert isinstance(found[-1], Finished)
    # Qwen 3 and Gemma 4 begin an answer with an empty thought, which history does not show.
    assert usage.cached >= found[-1].usage.prompt - 12


def test_a_call_without_marks(engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch) -> None:
    """In JSON, whatever the family's notation."""
    nudge(monkeypatch, engine._parts.model, '```json\n{"name": "head_tracking"', "\n```\nDone.")
    steps = replies(engine.open(), LEFT, tools=SHORT_TOOLS, sampling=SAMPLING)
    call, *said = told(steps)
    check(call)
    assert joined(said)[0] == "Done."
