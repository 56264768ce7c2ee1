"""The llama.cpp engine with several sessions: aborts, preemption, cells, saved prefixes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.llm.llama_context import DecodeOutcome, LlamaContext
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import LlmRequest, Message
from pipeline.work import Cancelled
from pipeline.workers.host import Answer, EngineHost, Item, JobEnd, Submit
from tests.support.llama_talk import (
    AUTO,
    FRANCE,
    GREEDY,
    LONG,
    SHORT_TOOLS,
    SPAIN,
    SYSTEM,
    answer,
    begin,
    joined,
    replies,
    warm,
)
from tests.support.recordings import Token
from tests.support.robot_tools import robot_tools

pytestmark = [pytest.mark.engines, pytest.mark.real]


# --- cancelling, stepping aside, sharing -------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1, 4, 9])
def test_cancelling_while_reading(engine: LlamaCpp, alone: dict[str, str], looks: int) -> None:
    session = engine.open()
    with pytest.raises(Cancelled):
        list(replies(session, LONG, cancel=Token(cancel_after=looks)))
    assert answer(session, LONG)[0] == alone["long"]


def test_a_computation_is_aborted_in_the_middle(engine: LlamaCpp) -> None:
    context = engine._parts.context
    sequence = engine._parts.scratch
    tokens = list(range(100, 164))
    outcomes = []
    for token in (Token(cancel_after=0), Token(preempt_after=0)):
        outcome = context.decode(tokens, 0, sequence, logits=True, by=token)
        outcomes.append(outcome.name)
    insisting = context.decode(
        tokens, 0, sequence, logits=True, by=Token(preempt_after=0), preemptible=False
    )
    assert outcomes == ["ABORTED", "ABORTED"]
    assert insisting.name == "DONE"
    context.remove(sequence, 0)


def test_cancelling_while_answering(engine: LlamaCpp, alone: dict[str, str]) -> None:
    session = engine.open()
    token = Token()
    steps = replies(session, FRANCE, cancel=token)
    begin(steps)
    token.cancel_after = token.looks
    with pytest.raises(Cancelled):
        list(steps)
    assert answer(session, FRANCE)[0] == alone["france"]


def test_an_abandoned_answer(engine: LlamaCpp, alone: dict[str, str]) -> None:
    session = engine.open()
    steps = replies(session, FRANCE)
    begin(steps)
    steps.close()  # type: ignore[attr-defined]
    assert answer(session, SPAIN)[0] == alone["spain"]


@pytest.mark.parametrize("looks", [0, 1, 3, 6, 11])
def test_preemption_changes_nothing(engine: LlamaCpp, alone: dict[str, str], looks: int) -> None:
    token = Token(preempt_after=looks)
    text, end = answer(engine.open(), LONG, cancel=token)
    assert token.preemptions == 1
    assert end.usage.evaluated == end.usage.prompt
    assert text == alone["long"]


@pytest.mark.parametrize("sessions", [1, 2])
def test_interleaved_answers_are_unchanged(
    engine: LlamaCpp, alone: dict[str, str], sessions: int
) -> None:
    france, *others = (engine.open() for _ in range(sessions))
    spain = others[0] if others else france
    pairs = list(itertools.zip_longest(replies(france, FRANCE), replies(spain, SPAIN)))
    assert joined([pair[0] for pair in pairs])[0] == alone["france"]
    assert joined([pair[1] for pair in pairs])[0] == alone["spain"]


def test_closing_in_the_middle(engine: LlamaCpp, alone: dict[str, str]) -> None:
    session = engine.open()
    steps = replies(session, SPAIN)
    begin(steps)
    session.close()
    assert answer(engine.open(), FRANCE)[0] == alone["france"]
    with pytest.raises(Cancelled):
        list(steps)


def test_a_confirmed_reply_interrupts_reading_ahead(
    engine: LlamaCpp, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real scheduler: the reply arrives during a slice of the warm-up."""
    answers: list[Answer] = []
    host = EngineHost(engine, answers.append)
    outcomes: list[DecodeOutcome] = []
    decode = LlamaContext.decode

    def interrupted(self: LlamaContext, *args: Any, **more: Any) -> DecodeOutcome:
        if len(outcomes) == 2:
            call = Submit(
                4, 2, "reply", (LlmRequest(FRANCE, [], AUTO, GREEDY),), 0, cancellable=True
            )
            host.receive(call)
        outcomes.append(decode(self, *args, **more))
        return outcomes[-1]

    monkeypatch.setattr(LlamaContext, "decode", interrupted)
    for job in (1, 2):
        host.receive(Submit(job, 0, "open", (), 2, cancellable=False, keep_as=job))
    host.run_until_idle()
    host.receive(
        Submit(3, 1, "warm", (LlmRequest(LONG, SHORT_TOOLS),), priority=2, cancellable=True)
    )
    host.run_until_idle()

    assert outcomes.count(DecodeOutcome.ABORTED) == 1
    assert outcomes[2] is DecodeOutcome.ABORTED
    ends = [done for done in answers if isinstance(done, JobEnd) and done.job > 2]
    assert [(done.job, done.error) for done in ends] == [(4, None), (3, None)]
    items = [item.value for item in answers if isinstance(item, Item) and item.job == 4]
    assert joined(items)[0] == alone["france"]


def test_more_sessions_than_sequences(small: LlamaCpp, alone: dict[str, str]) -> None:
    sessions = [small.open() for _ in range(5)]
    for session in [*sessions, *sessions]:
        assert answer(session, FRANCE)[0] == alone["france"]


def test_sessions_that_do_not_fit_together_take_turns(small: LlamaCpp) -> None:
    prompts = [[SYSTEM, Message("user", f"{i} {LONG[1].content}")] for i in range(3)]
    expected = [answer(small.open(), prompt)[0] for prompt in prompts]
    rounds = itertools.zip_longest(*(replies(small.open(), prompt) for prompt in prompts))
    results = list(zip(*rounds, strict=True))
    assert [joined(items)[0] for items in results] == expected


def test_the_more_urgent_session_takes_the_cells(small: LlamaCpp) -> None:
    expected = answer(small.open(), LONG)[0]
    slow = replies(small.open(), LONG)
    begin(slow)
    urgent = [SYSTEM, Message("user", f"0 {LONG[1].content}")]
    assert answer(small.open(), urgent)[1].usage.generated > 0
    assert expected.endswith(joined(list(slow))[0])


# --- instructions and tools --------------------------------------------------------------------


@pytest.fixture(scope="module")
def saving(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> LlamaCppOptions:
    """Options of engines that save prefixes in one directory."""
    place = tmp_path_factory.mktemp("cache") / "prefixes"
    return LlamaCppOptions(threads=1, context_tokens=4096, saved_prefix_dir=place)


def test_tools_are_read_once(saving: LlamaCppOptions, directory: Path) -> None:
    tools = robot_tools()[:8]
    engine = build(saving, directory)
    session = engine.open()
    first = warm(session, [SYSTEM], tools)
    assert first.evaluated > 900
    usage = answer(session, FRANCE, tools=tools)[1].usage
    assert usage.cached >= first.prompt - 1
    assert usage.evaluated < 80, "only the question"

    again = build(saving, directory)
    assert warm(again.open(), [SYSTEM], tools).evaluated == 0
    usage = answer(build(saving, directory).open(), FRANCE, tools=tools)[1].usage
    assert usage.cached >= first.prompt - 1


def test_no_conversation_is_saved(directory: Path, tmp_path: Path) -> None:
    tools = robot_tools()[:1]
    options = LlamaCppOptions(threads=1, context_tokens=2048, saved_prefix_dir=tmp_path / "p")
    engine = build(options, directory)
    for said in ("My secret is 1234.", "Hello"):
        warm(engine.open(), [SYSTEM, Message("user", said)], tools)
    answer(engine.open(), FRANCE, tools=tools)
    (file,) = (tmp_path / "p").iterdir()
    prompts = engine._parts.prompts
    prefix = prompts.prefix([SYSTEM], tools)
    saved = engine._parts.store
    assert saved is not None
    assert prefix in saved
    text = b"".join(engine._parts.model.piece(token, special=True) for token in prefix)
    assert text.decode().endswith("<|im_end|>\n<|im_start|>user\n")

    data = bytearray(file.read_bytes())
    data[-1] ^= 255
    file.write_bytes(data)
    usage = warm(build(options, directory).open(), [SYSTEM], tools)
    assert usage.evaluated > 100, "a damaged file is not used"
    assert file.read_bytes() != data, "and is written again"
