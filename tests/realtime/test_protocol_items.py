"""``conversation.item.create``: what each kind of item becomes, and how it is shown."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import commands, events
from pipeline.audio import AudioFormat
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    MessageItem,
    TextPart,
)
from pipeline.realtime import g711, wire
from tests.support.protocol_client import PCM, Client, data_url, text_item

pytestmark = pytest.mark.quick

JPEG = data_url(b"\xff\xd8\xff\xe0 a picture")
AUDIO = base64.b64encode(PCM.astype("<i2").tobytes()).decode()


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content), "id": "i"}


def added(client: Client, item: dict[str, Any], **fields: Any) -> Item:
    (command,) = client.send("conversation.item.create", item=item, **fields)
    assert isinstance(command, commands.AddItem)
    return command.item


def refused(item: dict[str, Any]) -> dict[str, Any]:
    return Client().refused("conversation.item.create", item=item)


def test_messages_of_each_role(client: Client) -> None:
    assert added(client, {**text_item(), "id": "mine"}) == MessageItem(
        "mine", "user", (TextPart("Hello."),)
    )
    in_between = {**text_item("He winks.", "system"), "id": "s"}  # in mid-conversation
    assert added(client, in_between) == MessageItem("s", "system", (TextPart("He winks."),))
    answer = added(client, text_item("Hi.", "assistant", "output_text"))
    assert isinstance(answer, MessageItem)
    assert (answer.role, answer.text) == ("assistant", "Hi.")
    assert answer.id.startswith("item_")


def test_calls_and_their_outputs(client: Client) -> None:
    call = {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}", "id": "i"}
    assert added(client, call) == FunctionCallItem("i", "c", "f", "{}")
    call.pop("call_id")
    nameless = added(client, call)
    assert isinstance(nameless, FunctionCallItem)
    assert nameless.call_id.startswith("call_")
    output = {"type": "function_call_output", "call_id": "c", "output": "42", "id": "o"}
    assert added(client, output) == FunctionOutputItem("o", "c", "42")


@pytest.mark.parametrize(
    "item",
    [
        FunctionCallItem("i", "c", "f", "{}"),
        FunctionOutputItem("i", "c", "42"),
        MessageItem("i", "user", (AudioPart("Hello."),)),
        MessageItem("i", "user", (AudioPart(""),)),
        MessageItem("i", "assistant", (AudioPart("Hi."),)),
        MessageItem("i", "assistant", (AudioPart(""),)),
        MessageItem("i", "assistant", (TextPart("Hi."),)),
    ],
)
def test_shown_items_may_be_sent_back(client: Client, item: Item) -> None:
    """A reconnecting client replays its items."""
    (event, _) = client.apply(events.ItemAdded(replace(item, status="incomplete"), None))
    assert added(client, event["item"]) == item


def test_an_image_is_kept_and_never_shown(client: Client) -> None:
    parts = ({"type": "input_text", "text": "Look!"}, {"type": "input_image", "image_url": JPEG})
    item = added(client, user(*parts))
    assert item == MessageItem("i", "user", (TextPart("Look!"), ImagePart(JPEG, "auto")))
    shown = client.apply(events.ItemAdded(item, None))
    for event in shown:
        assert event["item"]["content"][1] == {"type": "input_image", "detail": "auto"}
    large = data_url(bytes(900_000), "image/png")
    item = added(client, user({"type": "input_image", "image_url": large, "detail": "low"}))
    assert isinstance(item, MessageItem)
    assert item.parts == (ImagePart(large, "low"),)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/cat.jpg",
        "data:image/gif;base64,AAAA",
        "data:image/jpeg,AAAA",
        "data:image/jpeg;base64,",
        "data:image/jpeg;base64,AAA",
        "data:image/jpeg;base64,AA==AAAA",
        "data:image/jpeg;base64,ÄÖÜß",
        "AAAA",
        "",
    ],
)
def test_an_invalid_image_is_refused(url: str) -> None:
    error = refused(user({"type": "input_image", "image_url": url}))
    assert (error["code"], error["param"]) == ("invalid_value", "item.content[0].image_url")


def test_recorded_speech_is_kept_with_or_without_its_transcript(client: Client) -> None:
    item = added(client, user({"type": "input_audio", "audio": AUDIO}))
    assert isinstance(item, MessageItem)
    (part,) = item.parts
    assert isinstance(part, AudioPart)
    assert (part.transcript, part.seconds) == (None, 0.01)  # for the session to transcribe
    assert part.audio
    assert part.audio.rate == 24_000
    assert np.array_equal(part.audio.pcm, PCM)
    known = user({"type": "input_audio", "audio": AUDIO, "transcript": "Hello."})
    assert added(client, known) == MessageItem("i", "user", (AudioPart("Hello.", 0.01),))
    words_only = user({"type": "input_audio", "transcript": "Hello."})
    assert added(client, words_only) == MessageItem("i", "user", (AudioPart("Hello."),))


def test_recorded_speech_is_in_the_sessions_format(client: Client) -> None:
    client.updated(audio={"input": {"format": {"type": "audio/pcmu"}}})
    data = g711.encode(PCM, "pcmu")
    audio = base64.b64encode(data).decode()
    item = added(client, user({"type": "input_audio", "audio": audio}))
    assert isinstance(item, MessageItem)
    (part,) = item.parts
    assert isinstance(part, AudioPart)
    assert part.audio
    assert part.audio.rate == AudioFormat("pcmu", 8_000).rate
    assert np.array_equal(part.audio.pcm, g711.decode(data, "pcmu"))


@pytest.mark.parametrize(
    ("content", "code", "param"),
    [
        ({"type": "input_audio"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio", "audio": ""}, "invalid_value", "audio"),
        ({"type": "input_audio", "audio": "AAAA"}, "invalid_value", "audio"),  # 3 bytes
        ({"type": "input_audio", "audio": "%%%%"}, "invalid_value", "audio"),
        ({"type": "input_image"}, "missing_required_parameter", "image_url"),
        ({"type": "input_text"}, "missing_required_parameter", "text"),
        ({"type": "input_text", "text": 3}, "invalid_value", "text"),
        ({"type": "output_audio"}, "invalid_value", "type"),
        ({"type": "hologram"}, "invalid_value", "type"),
        ({"type": "input_image", "image_url": JPEG, "detail": "4k"}, "invalid_value", "detail"),
        ({"type": "input_text", "text": "x", "bold": True}, "unknown_parameter", "bold"),
        ({}, "missing_required_parameter", "type"),
    ],
)
def test_bad_content_is_refused_with_its_path(
    content: dict[str, Any], code: str, param: str
) -> None:
    error = refused(user({"type": "input_text", "text": "fine"}, content))
    assert (error["code"], error["param"]) == (code, f"item.content[1].{param}")


def test_a_client_cannot_create_assistant_speech() -> None:
    content = {"type": "output_audio", "audio": AUDIO, "transcript": "I said this."}
    item = {"type": "message", "role": "assistant", "content": [content]}
    assert refused(item)["param"] == "item.content[0].audio"


@pytest.mark.parametrize("text", ["x" * 600_000, "ü" * 100_000, "🤖" * 50_000])
def test_an_item_too_long_to_be_shown_is_refused(text: str) -> None:
    error = refused(text_item(text))
    assert (error["code"], error["param"]) == ("invalid_value", "item")
    assert "600000" in error["message"]
    output = {"type": "function_call_output", "call_id": "c", "output": text}
    assert refused(output)["param"] == "item"
    client = Client()
    item = added(client, text_item(text[: len(text) // 7 * 6]))
    client.apply(events.ItemAdded(item, None))  # the recorder refuses frames of 1 MiB
    assert wire.MAX_SHOWN_CHARS < wire.MAX_FRAME_CHARS
