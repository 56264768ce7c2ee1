"""Pictures for language models by URL, and messages with pictures in general."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pipeline.engines.llm.pictures import FORGOTTEN_IMAGE, data_of, in_words, joined, pieces, pixels
from pipeline.errors import PromptTooLong
from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Image, LlmRequest, Message
from pipeline.work import Work
from tests.support.far_server import FarServer, Mood, problem
from tests.support.places import DATA
from tests.support.url_engines import answer, chat_with

pytestmark = pytest.mark.machine

CHAT = "/v1/chat/completions"
PICTURE = "data:image/jpeg;base64,/9j/"
BALL = DATA / "pictures" / "ball.jpg"


def shows(*urls: str | None) -> Message:
    content, images = "Look: ", []
    for url in urls:
        images.append(Image(len(content), len(UNSEEN_IMAGE), url))
        content += f"{UNSEEN_IMAGE} "
    return Message("user", f"{content}nice?", images=tuple(images))


async def sent(*messages: Message, **options: Any) -> Any:
    """The messages that the server is sent."""
    far = FarServer("llama-server")
    async with chat_with(far, **options) as engine:
        assert await answer(engine, *messages)
        if engine.reads_ahead:
            await engine.open().warm(LlmRequest(messages), Work())
    answered, *ahead = [seen.json for seen in far.asked(CHAT)]
    assert all(one["messages"] == answered["messages"] for one in ahead)
    return answered["messages"]


async def test_chat_completions_with_vision() -> None:
    before = Message("user", "Look."), Message("assistant", "Show me!")
    messages = await sent(*before, shows(PICTURE, None), vision=True)
    assert messages == [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "Show me!"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look: "},
                {"type": "image_url", "image_url": {"url": PICTURE}},
                {"type": "text", "text": f" {FORGOTTEN_IMAGE} nice?"},
            ],
        },
    ]


async def test_without_vision_a_sentence_replaces_a_picture() -> None:
    (message,) = await sent(shows(PICTURE))
    assert message["content"] == f"Look: {UNSEEN_IMAGE} nice?"


@pytest.mark.parametrize(
    "refused",
    [
        problem(500, {"error": {"message": "image input is not supported - hint: mmproj"}}),
        problem(400, {"error": {"message": "qwen3 is not a multimodal model"}}),
        problem(400, {"error": {"message": "Failed to load image: it is truncated"}}),
        Mood(413, "text/html", [b"<html>413 Request Entity Too Large</html>"]),  # nginx, above 1 MB
    ],
)
async def test_pictures_that_a_server_refuses_are_left_out(refused: Mood) -> None:
    far = FarServer("llama-server", moods={CHAT: [refused]})
    async with chat_with(far, vision=True) as engine:
        assert await answer(engine, shows(PICTURE), Message("assistant", "Yes."), shows(PICTURE))
    assert "image_url" in str(far.asked(CHAT)[0].json)
    first, _, last = far.asked(CHAT)[1].json["messages"]
    assert first["content"] == last["content"] == f"Look: {UNSEEN_IMAGE} nice?"


async def test_a_long_conversation_with_pictures_is_too_long() -> None:
    refused = problem(400, {"error": {"message": "the request exceeds the context size"}})
    far = FarServer("llama-server", moods={CHAT: [refused]})
    async with chat_with(far, vision=True) as engine:
        with pytest.raises(PromptTooLong):
            await answer(engine, shows(PICTURE))


# --- messages ----------------------------------------------------------------------------------


def test_merged_messages_keep_their_pictures() -> None:
    both = joined(shows("data:1"), shows("data:2", None), " And ")
    assert both.content == f"{shows('').content} And {shows('', None).content}"
    shown = ["*" if isinstance(piece, Image) else piece for piece in pieces(both)]
    assert shown == ["Look: ", "*", " nice? And Look: ", "*", " ", "*", " nice?"]
    told = in_words(both, lambda image: None if image.url == "data:2" else "(gone)")
    assert told.content == f"Look: (gone) nice? And Look: {UNSEEN_IMAGE} (gone) nice?"
    (left,) = told.images
    assert told.content[left.start : left.start + left.chars] == UNSEEN_IMAGE
    assert in_words(told, lambda _: "").content == "Look: (gone) nice? And Look:  (gone) nice?"


def test_data_urls_are_decoded() -> None:
    assert data_of("data:image/png;base64,aGk=") == b"hi"
    for url in ("", "https://example.org/a.png", "data:image/png,hi", "data:;base64,%", "hi"):
        assert data_of(url) is None


def test_picture_sizes_are_read() -> None:
    data = BALL.read_bytes()
    assert pixels(data) == (64, 48)
    padded = data[:2] + b"\xff\xff\xff" + data[3:]
    assert pixels(padded) == (64, 48), "markers may be filled up"
    assert pixels(b"\x89PNG\r\n\x1a\n" + bytes(8) + struct.pack(">II", 3, 5)) == (3, 5)
    for length in range(24):
        assert pixels(data[:length]) is None
    assert pixels(b"GIF89a" + bytes(30)) is None
    assert pixels(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 20) in (None, (0, 0))
