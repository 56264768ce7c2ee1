"""Names of speakers in what the model reads."""

from __future__ import annotations

import pytest

from pipeline.conversation.prompt import prompt
from pipeline.items import AudioPart, Item, MessageItem, TextPart

pytestmark = pytest.mark.quick


def said(text: str, speaker: str) -> Item:
    return MessageItem(text, "user", (AudioPart(text, speaker=speaker),))


def typed(text: str) -> Item:
    return MessageItem(text, "user", (TextPart(text),))


ANSWER = MessageItem("answer", "assistant", (AudioPart("Yes.", 3.0),))

CONVERSATIONS: list[tuple[list[Item], list[str]]] = [
    ([said("One.", "")], ["One."]),
    ([said("One.", "Tom")], ["Tom says: One."]),
    ([said("One.", "Tom"), said("Two.", "Tom")], ["Tom says: One. Two."]),
    ([said("One.", "Tom"), said("Two.", "Anna")], ["Tom says: One. Anna says: Two."]),
    ([said("One.", "Tom"), said("Two.", "")], ["Tom says: One. Somebody else says: Two."]),
    ([said("One.", ""), said("Two.", "Tom")], ["One. Tom says: Two."]),
    ([said("One.", "Tom"), typed("Two.")], ["Tom says: One. Two."]),
    ([said("One.", "Tom"), typed("2"), said("Three.", "Tom")], ["Tom says: One. 2 Three."]),
    (
        [said("One.", "Tom"), ANSWER, said("Two.", "Tom"), ANSWER, said("Three.", "")],
        ["Tom says: One.", "Tom says: Two.", "Three."],
    ),
]


@pytest.mark.parametrize(("items", "texts"), CONVERSATIONS)
def test_each_message_names_its_speaker_once(items: list[Item], texts: list[str]) -> None:
    messages = prompt("", items)
    assert [each.content for each in messages if each.role == "user"] == texts
    for count in range(len(items)):  # the part already read stays
        before = prompt("", items[:count])
        for early, late in zip(before, messages, strict=False):
            assert late.content.startswith(early.content)


def test_the_users_words_exclude_the_notes() -> None:
    tom = AudioPart("Dad says: 9.", speaker="Tom")
    items = [MessageItem("1", "user", (tom,), at=0.0), said("Now.", "Anna"), ANSWER, typed("Two.")]
    messages = prompt("Be brief.", items)
    words = [each.words for each in messages]
    assert words == [(), ("Dad says: 9.", "Now."), (), ("Two.",)]
    assert messages[1].content.endswith(".) Tom says: Dad says: 9. Anna says: Now.")
