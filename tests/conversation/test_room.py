"""How much of a conversation the model reads, and how much of it was heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.conversation.chat import Chat, heard_text
from pipeline.conversation.room import FILLED, SHORTEST_CHARS, limits, shortened
from pipeline.conversation.warm_up import new_beginning
from pipeline.engines.contract import Warmed
from pipeline.errors import PromptTooLong
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    MessageItem,
    MessageRole,
    Part,
    TextPart,
    text_chars,
)
from pipeline.messages import Usage

pytestmark = pytest.mark.quick

TWICE = PromptTooLong(16_000, 8_000)


def outputs(*sizes: int) -> list[Item]:
    return [FunctionOutputItem(f"{n}", f"{n}", "x" * size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "problem", "most"),
    [
        ([400, 40_000], TWICE, {"1": 4_650}),
        ([20_000, 20_000], TWICE, {"0": 2_500, "1": 2_500}),
        ([400, 40_000, 40_000], TWICE, {"1": 4_825, "2": 4_825}),
        ([400, 40_000], PromptTooLong(0, 0), {"1": 9_700}),
        ([400, 40_000], PromptTooLong(0, 2_000), {"1": 1_600}),
        ([400, 40_000], PromptTooLong(100, 8_000), {"1": 9_700}),
        ([400, 40_000], PromptTooLong(10**6, 10), {"1": SHORTEST_CHARS}),
        ([900] * 100, TWICE, {}),
        ([], TWICE, {}),
    ],
)
def test_the_longest_are_shortened_first(
    sizes: list[int], problem: PromptTooLong, most: dict[str, int]
) -> None:
    assert limits(outputs(*sizes), problem) == most


def test_repeated_shortening_ends() -> None:
    items = outputs(45_000, 300, 2_000)
    sizes = [sum(map(text_chars, items))]
    while most := limits(items, PromptTooLong(0, 0)):
        items = [shortened(i, most[i.id]) if i.id in most else i for i in items]
        sizes.append(sum(map(text_chars, items)))
        assert sizes[-1] <= FILLED * sizes[-2] or max(map(text_chars, items)) <= SHORTEST_CHARS
    assert max(map(text_chars, items)) <= SHORTEST_CHARS


@pytest.mark.parametrize("parts", [[ImagePart("data:,")] * 40, [TextPart("Well, then.")] * 200])
def test_items_that_cannot_be_shortened_are_forgotten(parts: list[Part]) -> None:
    chat = Chat()
    for item_id in "ab":
        chat.add(MessageItem(item_id, "user", tuple(parts)))
    while chat.make_room(PromptTooLong(0, 0)):
        pass
    assert [item.id for item in chat.context] == ["b"]
    assert chat.context == chat.items[1:]


LONG = "".join(f"{n} " for n in range(20_000))


@pytest.mark.parametrize(
    "item",
    [
        MessageItem("a", "user", (TextPart(LONG),)),
        MessageItem("a", "user", (TextPart(LONG), AudioPart(LONG), AudioPart(None))),
        MessageItem("a", "user", (ImagePart("data:,"), TextPart(LONG))),
        FunctionCallItem("a", "c", "save", LONG),
        FunctionOutputItem("a", "c", LONG),
    ],
)
def test_shortening_keeps_the_beginning_and_the_end(item: Item) -> None:
    short = shortened(item, 3_000)
    assert text_chars(short) <= 3_100
    shown = short.text if isinstance(short, MessageItem) else _value(short)
    assert "0 1 2 3" in shown
    assert " 19998 19999" in shown
    assert "characters left out" in shown


def _value(item: Item) -> str:
    return item.arguments if isinstance(item, FunctionCallItem) else item.output  # type: ignore[union-attr]


# --- when the model's context is shortened, and to what ----------------------------------------


SENTENCE = "This takes a certain number of characters, which is always the same. " * 2


def talk(turns: int) -> list[Item]:
    items: list[Item] = []
    for n in range(turns):
        items += [
            MessageItem(f"user_{n}", "user", (AudioPart(SENTENCE),)),
            FunctionCallItem(f"call_{n}", f"{n}", "look", '{"direction": "left"}'),
            FunctionOutputItem(f"output_{n}", f"{n}", SENTENCE),
            MessageItem(f"answer_{n}", "assistant", (AudioPart(SENTENCE),)),
        ]
    return items


def of(role: MessageRole) -> list[Item]:
    return [MessageItem(role, role, (AudioPart(SENTENCE),))]


def warmed(prompt: int, *, fixed: int = 1000, most: int = 8000) -> Warmed:
    return Warmed(Usage(prompt, prompt, 0, 0), None, fixed, most)


@pytest.mark.parametrize(
    ("items", "read", "start"),
    [
        pytest.param(talk(20), warmed(1000 + 4200), None, id="there is room"),
        pytest.param([], warmed(1000), None, id="nothing was said"),
        pytest.param(talk(20), warmed(9000, fixed=0, most=0), None, id="no limit is known"),
        # Slightly more than 60 percent of the room was used; 30 may stay.
        pytest.param(talk(20), warmed(1000 + 4201), "user_11", id="half goes, the user begins"),
        pytest.param(talk(20), warmed(5000 + 1801, fixed=5000), "user_11", id="long instructions"),
        pytest.param(
            [*talk(1), MessageItem("long", "user", (AudioPart(SENTENCE * 100),))],
            warmed(7000),
            "long",
            id="the newest turn stays, however long it is",
        ),
        pytest.param(of("assistant") * 4, warmed(7000), None, id="no user to begin with"),
        pytest.param(of("system") * 4, warmed(7000), None, id="nobody to begin with"),
    ],
)
def test_where_the_context_begins(items: list[Item], read: Warmed, start: str | None) -> None:
    assert new_beginning(items, read) == start


def test_a_shortened_context_is_not_cut_again_at_once() -> None:
    items = talk(40)
    start = new_beginning(items, warmed(6000))
    ids = [item.id for item in items]
    assert start is not None
    rest = items[ids.index(start) :]
    tokens = 5000 * len(rest) // len(items)
    assert tokens < 0.31 * 7000
    assert new_beginning(rest, warmed(1000 + tokens)) is None


# --- from seconds of audio that were heard to words --------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "heard"),
    [
        (
            [("Hello there,", 1.0), (" my dear\n old friend.", 2.0)],
            {
                0.0: "",
                1.0: "Hello there,",
                2.0: "Hello there, my dear",
                9.0: "Hello there, my dear\n old friend.",
            },
        ),
        # Long words take longer than short ones; numbers take as long as they are spoken.
        ([("I unquestionably do", 1.6)], {0.2: "I", 0.9: "I", 1.4: "I unquestionably"}),
        ([("In 1984 we", 2.0)], {1.0: "In", 1.8: "In 1984"}),
    ],
)
def test_heard_text_ends_in_the_clause_that_was_playing(
    spoken: list[tuple[str, float]], heard: dict[float, str]
) -> None:
    assert {seconds: heard_text(spoken, seconds) for seconds in heard} == heard


CLAUSES = st.lists(st.tuples(st.text(" ab1,.\n", max_size=20), st.floats(0, 5)), max_size=5)


@given(CLAUSES, st.floats(0, 20), st.floats(0, 20))
def test_heard_text_is_a_growing_prefix(
    spoken: list[tuple[str, float]], one: float, other: float
) -> None:
    less, more = (heard_text(spoken, seconds) for seconds in sorted((one, other)))
    assert more.startswith(less)
    assert "".join(text for text, _ in spoken).startswith(more)
