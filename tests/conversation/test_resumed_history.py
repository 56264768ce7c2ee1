"""Items that a client resends of a resumed conversation are recognised."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import Recording
from pipeline.conversation.resumed_history import ResumedHistory
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    ItemStatus,
    MessageItem,
    MessageRole,
    Part,
    TextPart,
)

pytestmark = pytest.mark.quick

_ROLES: dict[str, MessageRole] = {"u": "user", "a": "assistant", "s": "system"}


def item(line: str, item_id: str = "new") -> Item:
    """``u yes``: the user's text; ``~a It is``: speech, cut if it is an answer; ``!a Sorry``: a
    notice; ``c 1``, ``o 1``: a call and its output."""
    kind, _, text = line.lstrip("~!").partition(" ")
    if kind == "c":
        return FunctionCallItem(item_id, text, "look", "{}")
    if kind == "o":
        return FunctionOutputItem(item_id, text, "nothing")
    spoken = line.startswith("~")
    part: Part = AudioPart(text, 1.0) if spoken else TextPart(text)
    status: ItemStatus = "incomplete" if spoken and kind == "a" else "completed"
    return MessageItem(item_id, _ROLES[kind], (part,), status, notice=line.startswith("!"))


def items(*lines: str) -> list[Item]:
    return [item(line, str(at)) for at, line in enumerate(lines)]


DOGS = ("s Be kind.", "u My dog is Bello.", "a Nice.", "~u My cat is Minka.", "~a What a", "u yes")
TOOLS = ("u Look!", "c 1", "o 1", "a Nobody.", "u yes", "a Good.", "u yes", "a Fine.")


@pytest.mark.parametrize(
    ("held", "sent", "found"),
    [
        pytest.param(DOGS, DOGS, "012345", id="all"),
        pytest.param(DOGS, DOGS[3:], "345", id="the last ones"),
        pytest.param(DOGS, DOGS[:4], "0123", id="the first ones"),
        pytest.param(DOGS, DOGS[1::2], "135", id="without the answers"),
        pytest.param(
            DOGS, ["u My cat is Minka.", "a What a nice name."], "34", id="a whole answer"
        ),
        pytest.param(("u Why?", "a No reason at all."), ["u Why?", "a No"], "01", id="cut there"),
        pytest.param(("u Why?", "a No reason."), ["a Nor that."], "-", id="cut within a word"),
        pytest.param(
            ("u Hi", "~a ", "u So?"), ["u Hi", "a Hello!", "u So?"], "012", id="not heard"
        ),
        pytest.param(("u Hi", "~a ", "u So?"), ["a Welcome back!"], "-", id="nothing in common"),
        pytest.param(DOGS, ["u  My dog\n is Bello. "], "1", id="white space"),
        pytest.param(DOGS, ["u my dog is bello", "a “Nice”", "u YES!"], "125", id="punctuation"),
        pytest.param(("u Set it to 1.5", "a Done."), ["u Set it to 15"], "-", id="a number"),
        pytest.param(("u Caf\u00e9?",), ["u Cafe\u0301?"], "0", id="another form of Unicode"),
        pytest.param(("u 👍", "a :-)"), ["u ?", "u 👍", "a :-)"], "-01", id="no words"),
        pytest.param(DOGS, ["~a What a…"], "4", id="marked as cut"),
        pytest.param(DOGS, ["a What a, what a day"], "4", id="cut at a comma"),
        pytest.param(DOGS, [*DOGS[3:5], *DOGS[1:3], DOGS[5]], "34125", id="in another order"),
        pytest.param(DOGS, ["a My dog is Bello."], "-", id="another role"),
        pytest.param(DOGS, ["u Other", *DOGS[:2], "u More", *DOGS[2:]], "-01-2345", id="and more"),
        pytest.param(DOGS, ["u yes", "u yes"], "5-", id="once more than before"),
        pytest.param(DOGS, [*DOGS, "u yes", *DOGS], "012345-------", id="again"),
        pytest.param(DOGS, ["u My dog is Bello. My cat is Minka."], "-", id="across an answer"),
        pytest.param(
            ("u My dog", "~a ", "u is Bello.", "u My cat is", "u Minka!", "a Nice."),
            ["u My dog is Bello.\nMy cat is Minka.", "u My cat is Minka", "a Nice."],
            "0234-5",
            id="in one message",
        ),
        pytest.param(
            ("u Hi", "a Hello.", "a Are you there?", "~a Is", "u Yes"),
            ["a Hello. Are you there? Is anybody?", "u Yes"],
            "1234",
            id="answers in one message",
        ),
        pytest.param(("a Hi.", "!a Sorry."), ["a Hi. Sorry."], "0", id="a notice stays apart"),
        pytest.param(
            ("u A", "u B", "u C", "a D"), ["u B C", "u A", "a D"], "1203", id="two of three"
        ),
        pytest.param(("u A", "u B", "a D"), ["u A B C", "u A B"], "-01", id="more than that"),
        pytest.param(TOOLS, TOOLS, "01234567", id="tools"),
        pytest.param(TOOLS, ["o 1", "c 1", "o 1", "c 2", "o 2"], "21---", id="by call_id"),
        pytest.param(TOOLS, ["u yes", "u yes", "u yes"], "46-", id="the same twice"),
    ],
)
def test_resent_items_are_recognised(held: tuple[str, ...], sent: list[str], found: str) -> None:
    history = ResumedHistory(items(*held))
    assert "".join("".join(history.find(item(line))) or "-" for line in sent) == found


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([("3", "a Nobody."), ("0", "u Look!")], "30"),  # in any order
        ([("3", "a Nobody."), ("3", "a Nobody.")], "3-"),
        ([("0", "a Nobody."), ("1", "u Another")], "3-"),  # it numbers its own items from 0
    ],
)
def test_ids(sent: list[tuple[str, str]], found: str) -> None:
    history = ResumedHistory(items(*TOOLS))
    assert "".join("".join(history.find(item(line, id_))) or "-" for id_, line in sent) == found


def heard(level: int, transcript: str | None = None) -> AudioPart:
    return AudioPart(transcript, 0.1, Recording(np.full(1600, level, np.int16), 16_000))


@pytest.mark.parametrize(
    ("held", "sent", "same"),
    [
        (heard(1, "Hello."), heard(1), True),
        (heard(1), heard(1), False),
        (heard(1, "Hello."), heard(2), False),
        (AudioPart("Hello.", 0.1), heard(1), False),
        (heard(1), TextPart(""), False),
        (ImagePart("data:1"), ImagePart("data:1"), True),
        (ImagePart(None), ImagePart("data:1"), True),
        (ImagePart("data:1"), ImagePart("data:2"), False),
        (ImagePart("data:image/jpg;base64,1"), ImagePart("DATA:image/jpeg;base64,1"), True),
        (ImagePart("data:image/png;base64,1"), ImagePart("data:image/png;base64,2"), False),
        (ImagePart("data:1"), TextPart(""), False),
    ],
)
def test_recordings_and_pictures(held: Part, sent: Part, same: bool) -> None:
    history = ResumedHistory([MessageItem("0", "user", (held,))])
    assert (history.find(MessageItem("new", "user", (sent,))) == ["0"]) == same


def test_a_message_that_lost_its_picture_is_recognised() -> None:
    words, picture = TextPart("What is this?"), ImagePart("data:1")
    held = [MessageItem("0", "user", (picture, words)), MessageItem("1", "user", (words, picture))]
    sent = MessageItem("new", "user", (words,))
    for before in ([], items("u Hi", "a Hello.")):
        history = ResumedHistory([*before, *held])
        assert [history.find(sent) for _ in range(3)] == [["0"], ["1"], []]
    history = ResumedHistory([sent])
    assert history.find(held[0]) == []


@pytest.mark.parametrize(
    ("held", "sent", "found"),
    [
        (DOGS, ["~a What", "a a", "u yes"], "4-new0-5"),
        (DOGS, ["a What", "a a nice name."], "4-new0"),
        (DOGS, ["a What", "a Nice.", "a a"], "4-2-"),
        (DOGS, ["u My dog", "u is Bello."], "-"),
        (("a One.", "a Two three.", "u yes"), ["a One. Two", "a three", "a three"], "0,1-new0-"),
        (("a What a day.",), ["a What", "u yes", "a a day."], "0--"),
    ],
)
def test_an_answer_in_two_items_is_recognised(
    held: tuple[str, ...], sent: list[str], found: str
) -> None:
    history = ResumedHistory(items(*held))
    ids = (history.find(item(line, f"new{at}")) for at, line in enumerate(sent))
    assert "-".join(map(",".join, ids)) == found


@pytest.mark.parametrize(
    ("held", "sent", "asked"),
    [
        pytest.param(TOOLS, ["u yes"], ["u yes"], id="only a yes"),
        pytest.param(TOOLS, [*TOOLS[:4], "u yes"], ["u yes"], id="after the first ones"),
        pytest.param(TOOLS, TOOLS, [], id="the history alone"),
        pytest.param(TOOLS, [*TOOLS, "u And now?"], [], id="a new one"),
        pytest.param(TOOLS[:-1], TOOLS[:-1], [], id="not answered yet"),
        pytest.param((*TOOLS[:-1], "~a Fi"), TOOLS[:-1], [], id="not answered to the end"),
        pytest.param(("s Hi", *TOOLS), ["s Hi"], ["s Hi"], id="asked by the system"),
        pytest.param(("u Go", "s Be", "a X"), ["u Go", "s Be"], ["u Go", "s Be"], id="both"),
        pytest.param(("s Be", "u Go", "a X"), ["s Be", "u Go"], ["u Go"], id="the last message"),
        pytest.param(("u Go", "s Be", "a X"), ["u Off", "s Be"], [], id="behind a new one"),
    ],
)
def test_a_resent_last_message_is_answered_again(
    held: tuple[str, ...], sent: list[str], asked: list[str]
) -> None:
    history = ResumedHistory(items(*held))
    for line in sent:
        history.find(item(line))
    assert [each for each, _ in history.asked_again] == [item(line) for line in asked]


LINES = st.sampled_from(["u yes", "u no", "a yes", "~a yes I", "~a ", "s yes", "c", "o"])


@given(st.data(), st.lists(LINES, max_size=12))
def test_any_resent_part_is_recognised_and_new_items_are_new(
    data: st.DataObject, lines: list[str]
) -> None:
    """Calls and outputs have their own ids."""
    lines = [f"{line} {at}" if line in "co" else line for at, line in enumerate(lines)]
    held = items(*lines)
    start = data.draw(st.integers(0, len(lines)))
    end = data.draw(st.integers(start, len(lines)))
    history = ResumedHistory(held)
    found = [history.find(item(line, f"new{at}")) for at, line in enumerate(lines[start:end])]
    assert all(found)
    assert len(set(chain(*found))) == len(found)
    assert history.find(item("u what is new")) == []
    if end == len(lines) and start == 0:
        assert not any(history.find(item(line)) for line in lines)
