"""What a conversation keeps, and how another session continues it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio import Recording
from pipeline.commands import (
    AddItem,
    AppendAudio,
    CommitAudio,
    CreateResponse,
    RetrieveItem,
    ServerRequest,
)
from pipeline.conversation.chat import Chat
from pipeline.conversation.media import PICTURE_CHARS_KEPT
from pipeline.conversation.memory import Memory
from pipeline.conversation.prompt import prompt
from pipeline.engines.llm.pictures import pieces
from pipeline.events import ItemAdded, ItemRetrieved
from pipeline.items import (
    UNSEEN_IMAGE,
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    MessageItem,
    TextPart,
)
from reachy_voice.testing import (
    PUSH_TO_TALK,
    Act,
    Noise,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    play,
    say,
    silence,
    text_item,
    wait,
    write,
)
from tests.support.scripted_tool_servers import ScriptedToolServer, ScriptedToolServers

pytestmark = pytest.mark.quick


def left_by(*acts: Act, **options: object) -> Memory:
    """The memory of a session that lost its client after these acts."""
    kept: list[Memory] = []
    play(*acts, lambda played: kept.append(played.session.release()), **options)
    return kept[0]


# --- going on ----------------------------------------------------------------------------------


def test_a_session_continues_from_anothers_memory() -> None:
    long = tuple(f"word{n} " for n in range(40))
    llm = ScriptedLlm(answers=[long, long])
    memory = left_by(say(1.0), silence(4.0), llm=llm)
    assert llm.opened == 1, "released, not closed"
    spoken = memory.chat.items[-1]
    assert isinstance(spoken, MessageItem)
    assert "word0" in spoken.text
    assert "word39" not in spoken.text, "cut to what was heard"
    first = AppendAudio(np.zeros(160, dtype=np.int16), 16_000)
    second = play(first, say(1.0), silence(1.0), llm=llm, memory=memory)
    assert second.prompts[-1][1] == ("user", "hello")
    assert len(llm.prompts[-1]) >= 3
    assert llm.opened == 0


def test_a_reconnecting_client_may_resend_its_items() -> None:
    """Some clients (LiveKit) resend their items after a reconnect, with the old ids."""
    memory = left_by(write("One", "a"), write("Two", "b"), config=PUSH_TO_TALK)
    again = [("b", "Two", "1"), ("b", "Two", "2"), ("a", "Other", "3")]
    items = [AddItem(text_item(item_id, text), event_id=event) for item_id, text, event in again]
    second = play(*items, config=PUSH_TO_TALK, memory=memory)
    assert [event.item.id for event in second.events(ItemAdded)] == ["b"]
    assert [event_id for event_id, _ in second.refusals] == ["2", "3"]
    assert [item.id for item in memory.chat.items] == ["a", "b"]


def test_a_replayed_history_is_once_in_the_prompt() -> None:
    llm = ScriptedLlm()
    asks = write("One", "a"), write("And a half", "b"), CreateResponse(), silence(4.0)
    memory = left_by(*asks, config=PUSH_TO_TALK, llm=llm)
    answer = memory.chat.items[-1].text  # type: ignore[union-attr]
    said = AddItem(text_item("new2", answer, "assistant"), after="new1")
    asked = AddItem(text_item("new3", "Two"), after="new2")
    more = (write("Two", "new4"), RetrieveItem("new1"))
    acts = (write(" One and a half", "new1"), said, asked, CreateResponse(), silence(4.0), *more)
    second = play(*acts, config=PUSH_TO_TALK, llm=llm, memory=memory)
    added = [(event.item.id, event.previous_item_id) for event in second.events(ItemAdded)]
    assert added[:3] == [("new1", None), ("new2", "new1"), ("new3", "new2")]
    assert [m.content for m in llm.prompts[-1]][1:] == ["One And a half", answer, "Two"]
    assert [item.id for item in memory.chat.items[:3]] == ["new1", "new2", "new3"]
    assert memory.chat.last_id == "new4", "after a turn nothing is a replay"
    assert second.events(ItemRetrieved)


def test_what_is_said_a_second_time_is_answered() -> None:
    llm = ScriptedLlm()
    ask = (CreateResponse(), silence(4.0))
    memory = left_by(write("Yes", "a"), *ask, config=PUSH_TO_TALK, llm=llm)
    second = play(write("Yes", "new"), *ask, config=PUSH_TO_TALK, llm=llm, memory=memory)
    assert second.events(ItemAdded)[0].item.id == "new"
    assert [m.role for m in llm.prompts[-1]][1:] == ["user", "assistant", "user"]
    assert [item.id for item in memory.chat.items][::2] == ["a", "new"]


def test_items_of_the_servers_own_do_not_end_the_replay() -> None:
    """A list of tools, and an announcement, before the client sends its history."""
    memory = left_by(write("One", "a"), write("Two", "b"), config=PUSH_TO_TALK)
    config = replace(PUSH_TO_TALK, servers=(ServerRequest("weather", "http://a"),))
    servers = ScriptedToolServers(clients={"http://a": ScriptedToolServer()})

    async def announce(played: Scene) -> None:
        await played.session.announce("Ding.", math.inf)

    acts = wait(1), announce, write("One", "new1"), write("Two", "new2")
    play(*acts, config=config, tool_servers=servers, memory=memory)
    ids = [item.id for item in memory.chat.items if getattr(item, "role", "") == "user"]
    assert ids == ["new1", "new2"]


def test_speech_ends_the_replay() -> None:
    memory = left_by(write("One", "a"), config=PUSH_TO_TALK)
    play(say(1.0), silence(4.0), write("One", "new"), memory=memory)
    assert "a" in memory.chat
    assert "new" in memory.chat


def test_speech_without_a_transcript_is_recognised_after_a_reconnect() -> None:
    spoken = (AppendAudio(Noise(1)(9000, 8_000), 16_000), CommitAudio())
    memory = left_by(*spoken, config=PUSH_TO_TALK, stt=ScriptedStt(takes_s=9.0))
    second = play(silence(1.0), config=PUSH_TO_TALK, memory=memory)
    assert second.transcripts == ["hello"]
    assert memory.chat.items[0].text == "hello"  # type: ignore[union-attr]


# --- what is kept ------------------------------------------------------------------------------


def pictures(chat: Chat) -> list[str | None]:
    return [item.parts[0].url for item in chat.items]  # type: ignore[union-attr]


def test_old_pictures_are_dropped_when_there_are_too_many() -> None:
    chat = Chat()
    for n in range(4):
        chat.add(MessageItem(f"p{n}", "user", (ImagePart(f"data:{n}"), TextPart("look"))))
    assert pictures(chat) == [f"data:{n}" for n in range(4)]
    chat.add(MessageItem("p4", "user", (ImagePart("data:4"),)))
    assert pictures(chat) == [None, None, None, None, "data:4"]
    huge = f"data:{'x' * PICTURE_CHARS_KEPT}"
    chat.add(MessageItem("p5", "user", (ImagePart(huge),)))
    assert pictures(chat) == [None] * 5 + [huge], "however large, the newest one stays"


def test_a_picture_keeps_its_place_in_the_prompt() -> None:
    shown = MessageItem("a", "user", (TextPart("Look:"), ImagePart("data:1"), TextPart("nice?")))
    again = MessageItem("b", "user", (ImagePart(None), AudioPart(None), TextPart("And that?")))
    (message,) = prompt("", [shown, again])
    assert message.content == f"Look: {UNSEEN_IMAGE} nice? {UNSEEN_IMAGE} And that?"
    first, second = message.images
    assert (first.url, second.url) == ("data:1", None)
    assert list(pieces(message)) == ["Look: ", first, " nice? ", second, " And that?"]


def test_only_the_newest_audio_is_kept() -> None:
    chat = Chat()
    for n in range(3):
        chat.add(MessageItem(f"p{n}", "user", (ImagePart(f"data:{n}"), TextPart("look"))))
    minute = Recording(np.zeros(8_000 * 60, dtype=np.int16), 8_000)
    for n in range(7):
        chat.add(MessageItem(f"a{n}", "user", (AudioPart("hi", 60.0, minute),)))
    kept = [item.parts[0].audio is not None for item in chat.items[3:]]  # type: ignore[union-attr]
    assert kept == [False, False, True, True, True, True, True]
    assert "cannot see images" in prompt("", chat.items[:1])[0].content


def test_forgetting_never_empties_the_context() -> None:
    user = text_item("u", "hi")
    first, second = (FunctionCallItem(f"c{n}", f"call_{n}", "look", "{}") for n in (1, 2))
    outputs = [FunctionOutputItem(f"o{n}", "call_1", "{}") for n in range(3)]
    for items in ([user, first, outputs[0]], [user, first, second, *outputs], [user]):
        chat = Chat()
        for item in items:
            chat.add(item)
        while chat.forget_oldest():
            pass
        assert chat.context
        assert not isinstance(chat.context[0], FunctionOutputItem)
