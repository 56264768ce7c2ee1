"""How much of long items the model reads."""

from __future__ import annotations

import pytest

from pipeline.conversation.chat import Chat
from pipeline.conversation.room import FILLED, SHORTEST_CHARS, limits, shortened
from pipeline.errors import PromptTooLong
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    MessageItem,
    Part,
    TextPart,
    text_chars,
)

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


def test_each_time_there_is_less_until_nothing_is_long() -> None:
    items = outputs(45_000, 300, 2_000)
    sizes = [sum(map(text_chars, items))]
    while most := limits(items, PromptTooLong(0, 0)):
        items = [shortened(i, most[i.id]) if i.id in most else i for i in items]
        sizes.append(sum(map(text_chars, items)))
        assert sizes[-1] <= FILLED * sizes[-2] or max(map(text_chars, items)) <= SHORTEST_CHARS
    assert max(map(text_chars, items)) <= SHORTEST_CHARS


@pytest.mark.parametrize("parts", [[ImagePart("data:,")] * 40, [TextPart("Well, then.")] * 200])
def test_what_cannot_be_shortened_leaves_room_by_being_forgotten(parts: list[Part]) -> None:
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
def test_the_beginning_and_the_end_stay(item: Item) -> None:
    short = shortened(item, 3_000)
    assert text_chars(short) <= 3_100
    shown = short.text if isinstance(short, MessageItem) else _value(short)
    assert "0 1 2 3" in shown
    assert " 19998 19999" in shown
    assert "characters left out" in shown


def _value(item: Item) -> str:
    return item.arguments if isinstance(item, FunctionCallItem) else item.output  # type: ignore[union-attr]
