"""The rules by which conversations are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from app.settings.model import ConversationSettings
from benchmarks.answers.conversations import HeldOutTurn, Talk, TurnVerdict, figures, judge
from pipeline.engines.contract import Delta, TextDelta, ToolCall
from pipeline.messages import LlmRequest

pytestmark = pytest.mark.quick

LEFT = ToolCall("move_head", '{"direction": "left"}')


class Says:
    """A session that answers with these parts, whatever is asked."""

    def __init__(self, *parts: str | ToolCall) -> None:
        self._parts = iter(parts)
        self.requests: list[LlmRequest] = []

    def reply(self, request: LlmRequest, _cancel: Any) -> Iterator[Delta | None]:
        self.requests.append(LlmRequest(list(request.messages), request.tools))
        part = next(self._parts)
        yield TextDelta(part) if isinstance(part, str) else part


def verdict(said: str | ToolCall, before: Sequence[str] = (), **turn: Any) -> TurnVerdict:
    session: Any = Says(*before, said)
    talk = Talk(session, ConversationSettings(), tools=True)
    turns = [*(HeldOutTurn(user="Hm.") for _ in before), HeldOutTurn(user="Well?", **turn)]
    return list(judge(talk, turns))[-1]


@pytest.mark.parametrize(
    ("said", "turn", "worth"),
    [
        ("Your cat is Mimi.", {"expect": ["mimi"]}, True),
        ("Your cat is Momo.", {"expect": ["mimi"]}, False),
        ("It is noon.", {"forbid": ["noon"]}, False),
        ("One. Two. Three.", {}, False),
        ("One. Two.", {}, True),
        ("It is", {}, False),
        ("Left.", {"call": "move_head"}, False),
        ("Fine.", {"call": None}, True),
        (LEFT, {"call": "move_head"}, True),
        (LEFT, {"call": ["dance", "move_head"], "arguments": {"direction": "left"}}, True),
        (LEFT, {"call": "move_head", "arguments": {"direction": "right"}}, False),
        (LEFT, {"call": "dance"}, False),
        (LEFT, {"call": None}, False),
    ],
)
def test_an_answer_is_worth_hearing_or_not(said: Any, turn: Any, worth: bool) -> None:
    assert verdict(said, **turn).worth is worth


def test_an_answer_that_was_given_before_is_not_worth_hearing() -> None:
    assert verdict("Sure!", ["Oh.", "Sure."]).twice
    assert not verdict("Sure!", ["Sure thing."]).twice


def test_figures_count_only_what_was_asked() -> None:
    turns = [HeldOutTurn(user="a", call=None), HeldOutTurn(user="b", call="dance")]
    found = figures([verdict(LEFT, call=None), verdict(LEFT, call="dance")], turns)
    assert (found["uncalled"], found["called"], found["told"]) == ([1, 1], [0, 1], [0, 0])


def test_a_call_and_its_result_stay_in_the_conversation() -> None:
    session: Any = Says(LEFT, "There.")
    talk = Talk(session, ConversationSettings(), tools=True)
    for text in ("Look left.", "And now?"):
        talk.say(text)
    roles = [message.role for message in session.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
