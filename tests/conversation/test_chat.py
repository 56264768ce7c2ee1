"""The conversation and the prompt made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.conversation.chat import Chat, DuplicateItem, TooShort, UnknownItem
from pipeline.conversation.prompt import NO_OUTPUT, prompt
from pipeline.conversation.reply_prompts import awaits_an_answer
from pipeline.engines.llm.template_messages import STRICT, Capabilities, adapted
from pipeline.errors import PromptTooLong
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    TextPart,
)
from pipeline.messages import Message
from pipeline.speaking.playback import Lead, PlaybackClock

pytestmark = pytest.mark.quick


def user(item_id: str, text: str = "hi") -> MessageItem:
    return MessageItem(item_id, "user", (TextPart(text),))


def answer(item_id: str, text: str) -> MessageItem:
    return MessageItem(item_id, "assistant", (TextPart(text),))


CALLS = [FunctionCallItem(f"c{n}", f"call_{n}", "look", "{}") for n in range(3)]
OUTPUTS = [FunctionOutputItem(f"o{n}", f"call_{n}", f"tree {n}") for n in range(3)]


def test_items_keep_their_order_and_know_the_one_before() -> None:
    chat = Chat()
    assert chat.add(user("a")) is None
    assert chat.add(user("c")) == "a"
    assert chat.add(user("b"), after="a") == "a"
    assert chat.add(user("0"), after=Chat.ROOT) is None
    assert [item.id for item in chat.items] == ["0", "a", "b", "c"]
    assert chat.previous_id("b") == "a"
    assert chat.last_id == "c"
    with pytest.raises(DuplicateItem):
        chat.add(user("a"))
    with pytest.raises(UnknownItem):
        chat.add(user("d"), after="nowhere")


IDS = st.sampled_from("abcdefgh")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), IDS, st.text(max_size=3)),
        st.tuples(st.just("insert"), IDS, IDS),
        st.tuples(st.just("put"), IDS, st.text(max_size=3)),
        st.tuples(st.just("delete"), IDS),
        st.tuples(st.just("drop"), st.integers(1, 3)),
        st.tuples(st.just("forget"), IDS),
        st.tuples(st.just("rename"), IDS, st.integers(1, 3), IDS),
    ),
    max_size=30,
)


def test_a_client_is_told_of_no_hidden_item_before_another() -> None:
    chat = Chat()
    chat.add(user("a"))
    chat.add(OUTPUTS[0], hidden=True)
    assert chat.add(user("b"), after="a") == "a"
    assert chat.add(user("c")) == "b"
    chat.delete("b")
    assert chat.previous_id("c") == "a"
    assert chat.drop_oldest(3) == ["a", "c"]


@given(CHANGES)
def test_any_changes_match_a_plain_list(changes: list[tuple[Any, ...]]) -> None:
    chat, plain, forgotten = Chat(), list[MessageItem](), set[str]()
    for change, *values in changes:
        ids = [item.id for item in plain]
        item = user(values[0], values[-1]) if isinstance(values[0], str) else user("")
        at = ids.index(item.id) if item.id in ids else None
        match change:
            case "add" if at is None:
                assert chat.add(item) == (ids[-1] if ids else None)
                plain.append(item)
            case "insert" if at is None and values[1] in ids:
                assert chat.add(item, after=values[1]) == values[1]
                place = ids.index(values[1]) + 1
                plain.insert(place, item)
                if any(each.id in forgotten for each in plain[place:]):
                    forgotten.add(item.id)
            case "put" if at is not None:
                chat.put(item)
                plain[at] = item
            case "delete" if at is not None:
                chat.delete(item.id)
                del plain[at]
                forgotten.discard(item.id)
            case "drop":
                assert chat.drop_oldest(values[0]) == ids[: values[0]]
                del plain[: values[0]]
                forgotten.difference_update(ids[: values[0]])
            case "forget" if at is not None:
                chat.forget_before(item.id)
                forgotten.update(ids[:at])
            case "rename" if at is not None and values[2] not in ids:
                run = ids[at : at + values[1]]
                chat.rename(run, values[2])
                parts = tuple(part for each in plain[at : at + len(run)] for part in each.parts)
                plain[at : at + len(run)] = [MessageItem(values[2], "user", parts)]
                if forgotten.issuperset(run):
                    forgotten.add(values[2])
                forgotten.difference_update(run)
    assert list(chat.items) == plain
    assert list(chat.context) == [item for item in plain if item.id not in forgotten]
    assert chat.text_chars == sum(len(item.text) for item in plain)
    assert chat.last_id == (plain[-1].id if plain else None)
    assert len(chat) == len(plain)


class CountedId(str):
    """Counts how often any id is looked at."""

    looks = 0

    def __hash__(self) -> int:
        CountedId.looks += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        CountedId.looks += 1
        return str.__eq__(self, other)


def looks_at_ids(length: int) -> dict[str, int]:
    """The number of id comparisons for each change in the middle of a conversation."""
    chat, looks = Chat(), dict[str, int]()
    ids = [CountedId(f"item {at}") for at in range(length)]
    for each in ids:
        chat.add(user(each))
    chat.forget_before(ids[length // 2 - 5])
    middle, behind, new = ids[length // 2], ids[length // 2 + 1], CountedId("new")
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: chat.add(user(CountedId("last"))),
        "insert": lambda: chat.add(user(CountedId("between")), after=middle),
        "put": lambda: chat.put(user(middle, "again")),
        "previous": lambda: chat.previous_id(middle),
        "rename": lambda: chat.rename([middle], new),
        "delete": lambda: chat.delete(behind),
        "delete what is forgotten": lambda: chat.delete(ids[2]),
    }
    for name, change in changes.items():
        CountedId.looks = 0
        change()
        looks[name] = CountedId.looks
    return looks


def test_a_change_costs_the_same_in_a_long_conversation() -> None:
    assert looks_at_ids(2000) == looks_at_ids(20)


def test_a_renamed_item_stays_shortened() -> None:
    chat = Chat()
    chat.add(user("a", "long " * 5000))
    chat.shorten(chat.items, PromptTooLong(4000, 1000))
    before = prompt("", chat.context)
    chat.rename(["a"], "b")
    assert prompt("", chat.context) == before != prompt("", chat.items)


def test_truncation_keeps_the_words_that_were_heard() -> None:
    chat = Chat()
    chat.add(MessageItem("a", "assistant", (AudioPart("one two three four", 2.0),)))
    chat.truncate("a", 1.0)
    assert chat.get("a").parts == (AudioPart("one two", 1.0),)  # type: ignore[union-attr]
    with pytest.raises(TooShort):
        chat.truncate("a", 1.2)


def test_forgetting_keeps_the_items_but_shortens_the_context() -> None:
    chat = Chat()
    for n in range(5):
        chat.add(user(str(n)))
    assert chat.forget_oldest()
    assert [item.id for item in chat.context] == ["3", "4"]
    assert len(chat.items) == 5
    chat.delete("0")
    assert [item.id for item in chat.context] == ["3", "4"]
    assert chat.forget_oldest()
    assert not chat.forget_oldest()
    assert [item.id for item in chat.context] == ["4"]


def test_forgetting_never_separates_a_call_from_its_output() -> None:
    chat = Chat()
    chat.add(user("a"))
    chat.add(FunctionCallItem("b", "call", "dance", "{}"))
    chat.add(FunctionOutputItem("c", "call", "done"))
    chat.add(user("d"))
    assert chat.forget_oldest()
    assert [item.id for item in chat.context] == ["d"]


def test_the_prompt_merges_a_turn_in_two_parts() -> None:
    items = (
        user("a", "What is"),
        MessageItem("b", "assistant", (AudioPart("", 0.0),)),
        user("c", "the time?"),
        FunctionCallItem("d", "call_1", "clock", '{"zone": "UTC"}'),
        FunctionOutputItem("e", "call_1", "noon"),
        MessageItem("f", "assistant", (AudioPart("It is noon.", 1.0),)),
    )
    messages = prompt("Be brief.", items)
    assert [(m.role, m.content) for m in messages] == [
        ("system", "Be brief."),
        ("user", "What is the time?"),
        ("assistant", ""),
        ("tool", "noon"),
        ("assistant", "It is noon."),
    ]
    assert messages[2].tool_calls[0]["function"]["arguments"] == '{"zone": "UTC"}'


@pytest.mark.parametrize(("heard_s", "kept"), [(1.9, False), (2.1, True)])
def test_an_answer_is_left_out_if_the_user_resumes_within_two_seconds(
    heard_s: float, kept: bool
) -> None:
    part = AudioPart("It", heard_s)
    begun = MessageItem("b", "assistant", (part,), "incomplete", interrupted=True)
    messages = prompt("", (user("a", "What is"), begun, user("c", "the time?")))
    assert ("assistant" in [message.role for message in messages]) == kept
    assert (messages[0].content == "What is the time?") != kept


def test_a_short_answer_at_its_token_limit_is_kept() -> None:
    given = MessageItem("b", "assistant", (AudioPart("It is", 0.5),), "incomplete")
    messages = prompt("", (user("a", "What time is it?"), given, user("c", "Go on.")))
    assert [message.role for message in messages] == ["user", "assistant", "user"]


def test_answers_in_a_row_are_one_message_and_calls_stay_apart() -> None:
    answers = answer("b", "Hi."), answer("c", "Are you there?")
    steps = CALLS[0], OUTPUTS[0], CALLS[1], OUTPUTS[1]
    messages = prompt("", (user("a", "Hello."), *answers, *steps, answer("f", "Nobody.")))
    assert [(m.role, m.content) for m in messages] == [
        ("user", "Hello."),
        ("assistant", "Hi. Are you there?"),
        ("tool", "tree 0"),
        ("assistant", ""),
        ("tool", "tree 1"),
        ("assistant", "Nobody."),
    ]


def test_each_call_is_followed_by_its_output() -> None:
    calls, late = CALLS, OUTPUTS[1]
    lost = FunctionOutputItem("l", "call_9", "a result without its call")
    items = (user("a", "Look!"), *calls[:2], user("b", "And?"), late, lost, user("c"), calls[2])
    messages = prompt("", items)
    assert [(m.role, m.content, m.tool_call_id) for m in messages] == [
        ("user", "Look!", ""),
        ("assistant", "", ""),
        ("tool", NO_OUTPUT, "call_0"),
        ("tool", "tree 1", "call_1"),
        ("user", "And? hi", ""),
        ("assistant", "", ""),
        ("tool", NO_OUTPUT, "call_2"),
    ]
    assert [call["id"] for call in messages[1].tool_calls] == ["call_0", "call_1"]
    assert not awaits_an_answer(messages), "its result does not yet"
    assert awaits_an_answer(prompt("", (calls[1], late)))


LOOK = FunctionCallItem("c", "call", "look", "{}")
OUTPUT = FunctionOutputItem("o", "call", "a tree")
HM = MessageItem("n", "assistant", (TextPart("Sorry?"),), notice=True)


@pytest.mark.parametrize(
    ("items", "late"),
    [
        ((LOOK, OUTPUT), False),
        ((LOOK, user("b", "And?"), OUTPUT), False),
        ((LOOK, HM, OUTPUT, user("b", "And?")), False),
        ((LOOK, answer("b", "Wait."), OUTPUT), True),
        ((LOOK, user("b"), answer("d", "Wait."), user("e"), answer("f", "Well."), OUTPUT), True),
        ((LOOK, user("b"), FunctionCallItem("d", "other", "nod", "{}"), OUTPUT), True),
    ],
)
def test_a_late_output_stays_where_it_arrived(items: tuple[Item, ...], late: bool) -> None:
    before, after = prompt("", items[: items.index(OUTPUT)]), prompt("", items)
    outputs = [m.content for m in after if m.role == "tool" and m.tool_call_id == "call"]
    assert outputs == ([NO_OUTPUT, "a tree"] if late else ["a tree"])
    assert awaits_an_answer(after)
    if late:
        assert after[:-1] == before
        told = adapted([*after, Message("user", "And now?")], [], Capabilities())
        news = Message("user", "(The result of look has come in: a tree)\nAnd now?")
        assert told[-1] == news


@pytest.mark.parametrize("before", [(LOOK,), (LOOK, answer("b", "Wait."))])
def test_an_output_that_is_sent_again_is_read_once(before: tuple[Item, ...]) -> None:
    again, other = replace(OUTPUT, id="again"), replace(OUTPUT, id="other", output="a bush")
    read = prompt("", (*before, OUTPUT))
    assert prompt("", (*before, OUTPUT, again)) == read
    news = prompt("", (*before, OUTPUT, other))[-1]
    assert (news.role, news.content) == ("tool", "a bush")


def test_calls_with_the_same_id_keep_their_own_outputs() -> None:
    calls = [FunctionCallItem(f"c{n}", "0", "look", "{}") for n in range(3)]
    outputs = [FunctionOutputItem(f"o{n}", "0", f"tree {n}") for n in range(3)]
    items = (user("a"), calls[0], outputs[0], answer("b", "Hm."), calls[1], outputs[1], outputs[2])
    told = [m.content for m in prompt("", (*items, calls[2])) if m.role == "tool"]
    assert told == ["tree 0", "tree 1", "tree 2", NO_OUTPUT]
    in_one_answer = adapted(prompt("", (user("a"), *calls[:2], *outputs[:2])), (), STRICT)
    assert [m.role for m in in_one_answer][1:] == ["assistant", "tool"] * 2
    assert [m.content for m in in_one_answer if m.role == "tool"] == ["tree 0", "tree 1"]


def test_appending_items_never_changes_the_beginning_of_the_prompt() -> None:
    items = (user("a"), MessageItem("b", "assistant", (TextPart("yes"),)), user("c"))
    for n in range(1, 3):
        assert prompt("x", items)[: n + 1] == prompt("x", items[:n])
    assert prompt("", ()) == []
    assert prompt("x", (MessageItem("a", "user"),)) == [Message("system", "x")]


def test_the_playback_clock_knows_what_was_heard() -> None:
    clock = PlaybackClock()
    lead = Lead(first_s=0.08, s=0.25)
    assert clock.delay(0.04, lead, now=10.0) == 0.0
    clock.send(1.0, now=10.0)
    assert clock.heard_seconds(10.4) == pytest.approx(0.4)
    assert clock.delay(0.04, lead, now=10.4) == pytest.approx(0.56)
    # A stall: the player ran dry, and later audio starts when it arrives.
    clock.send(1.0, now=12.0)
    assert clock.heard_seconds(12.5) == pytest.approx(1.5)
    assert clock.heard_seconds(99.0) == pytest.approx(2.0)
    # The answer has begun: the player may hold more.
    assert clock.delay(0.04, lead, now=12.5) == pytest.approx(0.29)
