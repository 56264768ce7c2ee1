"""When the model's context is shortened, and to what."""

from __future__ import annotations

import pytest

from pipeline.conversation.warm_up import new_beginning
from pipeline.engines.contract import Warmed
from pipeline.items import AudioPart, FunctionCallItem, FunctionOutputItem, Item, MessageItem
from pipeline.messages import Usage

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


def warmed(prompt: int, *, fixed: int = 1000, most: int = 8000) -> Warmed:
    return Warmed(Usage(prompt, prompt, 0, 0), None, fixed, most)


def test_there_is_room() -> None:
    assert new_beginning(talk(20), warmed(1000 + 4200)) is None
    assert new_beginning([], warmed(1000)) is None


def test_an_engine_that_knows_no_limit() -> None:
    assert new_beginning(talk(20), warmed(9000, fixed=0, most=0)) is None


def test_half_goes_and_the_user_begins() -> None:
    """A little more than 60 percent of the room was used, 30 may stay."""
    assert new_beginning(talk(20), warmed(1000 + 4201)) == "user_11"


def test_instructions_and_tools_are_not_counted_twice() -> None:
    assert new_beginning(talk(20), warmed(5000 + 1801, fixed=5000)) == "user_11"


def test_the_newest_turn_stays_however_long_it_is() -> None:
    long = MessageItem("long", "user", (AudioPart(SENTENCE * 100),))
    assert new_beginning([*talk(1), long], warmed(7000)) == "long"


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_nothing_to_begin_with(role: str) -> None:
    items = [MessageItem(f"{n}", role, (AudioPart(SENTENCE),)) for n in range(4)]  # type: ignore[arg-type]
    assert new_beginning(items, warmed(7000)) is None


def test_the_rest_is_not_cut_again_at_once() -> None:
    items = talk(40)
    start = new_beginning(items, warmed(6000))
    ids = [item.id for item in items]
    assert start is not None
    rest = items[ids.index(start) :]
    tokens = 5000 * len(rest) // len(items)
    assert tokens < 0.31 * 7000
    assert new_beginning(rest, warmed(1000 + tokens)) is None
