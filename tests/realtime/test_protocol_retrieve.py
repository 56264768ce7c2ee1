"""``conversation.item.retrieve``: the item with its audio, in frames below 1 MiB."""

from __future__ import annotations

import base64
import os
from typing import Any

import numpy as np
import pytest

from pipeline import events
from pipeline.audio import AudioFormat, Pcm, Recording, resampled
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
from pipeline.realtime.retrieval import retrieved_items
from tests.support.protocol_client import Client, data_url

pytestmark = pytest.mark.quick


def noise(samples: int) -> Pcm:
    return np.random.default_rng(7).integers(-9000, 9000, samples, dtype=np.int16)


def said(pcm: Pcm, rate: int, text: str | None = "Hello.", role: Any = "user") -> MessageItem:
    part = AudioPart(text, len(pcm) / rate, Recording(pcm, rate))
    return MessageItem("item_u", role, (part,))


def retrieved(client: Client, item: Item) -> list[dict[str, Any]]:
    sent = client.apply(events.ItemRetrieved(item))
    assert {event["type"] for event in sent} == {"conversation.item.retrieved"}
    return [event["item"] for event in sent]


def samples(item: dict[str, Any], at: int = 0) -> Pcm:
    return np.frombuffer(base64.b64decode(item["content"][at]["audio"]), "<i2")


def test_audio_is_resampled_to_the_sessions_rate() -> None:
    pcm = noise(16_000)
    (item,) = retrieved(Client(), said(pcm, 16_000))
    whole = resampled(pcm, 16_000, 24_000)
    assert np.array_equal(samples(item), whole)
    assert abs(len(whole) - 24_000) <= 1


def test_each_side_has_its_own_format(client: Client) -> None:
    formats = {"input": {"format": {"type": "audio/pcma"}}, "output": {"format": {"rate": 8000}}}
    client.updated(audio=formats)
    pcm = noise(8_000)
    (user,) = retrieved(client, said(pcm, 8_000))
    assert base64.b64decode(user["content"][0]["audio"]) == g711.encode(pcm, "pcma")
    (answer,) = retrieved(client, said(pcm, 8_000, role="assistant"))
    assert answer["content"][0]["type"] == "output_audio"
    assert np.array_equal(samples(answer), pcm)


def test_an_answer_is_returned_as_heard() -> None:
    pcm = noise(24_000)
    heard = AudioPart("Once upon", 0.25, Recording(pcm, 24_000), (("Once upon a time.", 1.0),))
    (item,) = retrieved(Client(), MessageItem("item_u", "assistant", (heard,), "incomplete"))
    assert np.array_equal(samples(item), pcm[:6_000])
    assert item["content"][0]["transcript"] == "Once upon"
    assert item["status"] == "incomplete"
    nothing = AudioPart("", 0.0, Recording(pcm, 24_000))
    (item,) = retrieved(Client(), MessageItem("item_u", "assistant", (nothing,)))
    assert "audio" not in item["content"][0]


def test_long_audio_comes_in_several_events_in_order() -> None:
    pcm = noise(24_000 * 60)  # a minute: 3.8 MB in base64
    client = Client()
    items = retrieved(client, said(pcm, 24_000, "A long story."))
    assert len(items) == 5
    assert all(item["content"][0]["transcript"] == "A long story." for item in items)
    pieces = [samples(item) for item in items]  # an even number of bytes each
    assert np.array_equal(np.concatenate(pieces), pcm)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
@pytest.mark.parametrize("seconds", [0.02, 13.9, 14.0, 14.1, 41.97])
def test_no_frame_is_over_900_kb_and_no_sample_is_lost(rate: int, seconds: float) -> None:
    pcm = noise(round(rate * seconds) | 1)
    format = AudioFormat("pcm", rate)
    texts = [wire.encode(item) for item in retrieved_items(said(pcm, rate), format, format)]
    assert max(map(len, texts)) <= wire.MAX_FRAME_CHARS - 1000
    assert sum(text.count('"audio"') for text in texts) == len(texts)


def test_text_and_calls_are_one_event() -> None:
    items: list[Item] = [
        MessageItem("i", "system", (TextPart("Be kind."),)),
        FunctionCallItem("i", "c", "f", "{}"),
        FunctionOutputItem("i", "c", "42"),
        MessageItem("i", "user", (AudioPart("Not kept.", 2.0),)),
    ]
    for item in items:
        (shown,) = retrieved(Client(), item)
        assert shown["id"] == "i"


def test_images_are_returned_unless_too_large_for_a_frame() -> None:
    small, large = data_url(os.urandom(300_000)), data_url(os.urandom(900_000), "image/png")
    content = (
        TextPart("Look!"),
        ImagePart(small, "low"),
        ImagePart(large),
        ImagePart(None),
        ImagePart(small),
        AudioPart("Here.", 10.0, Recording(noise(240_000), 24_000)),
    )
    items = retrieved(Client(), MessageItem("i", "user", content))
    assert len(items) == 2
    shown = [[sorted(part) for part in item["content"]] for item in items]
    assert [part[0] for part in shown[0]] == ["text", *["detail"] * 4, "audio"]
    urls = [part.get("image_url") for item in items for part in item["content"]]
    assert urls.count(small) == 2
    assert large not in urls
    assert items[0]["content"][1]["detail"] == "low"
    audio = b"".join(base64.b64decode(item["content"][5].get("audio", "")) for item in items)
    assert audio == noise(240_000).astype("<i2").tobytes()
