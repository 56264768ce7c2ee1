"""Audio on the wire: PCM at three rates and G.711, both ways, for a session or one response."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import commands, events
from pipeline.audio import AudioFormat, Pcm
from pipeline.realtime import g711
from tests.support.protocol_client import ITEM_STARTED, Client, started

pytestmark = pytest.mark.quick

FORMATS = [
    ({"type": "audio/pcm", "rate": 24000}, AudioFormat("pcm", 24_000)),
    ({"type": "audio/pcm", "rate": 16000}, AudioFormat("pcm", 16_000)),
    ({"type": "audio/pcm", "rate": 8000}, AudioFormat("pcm", 8_000)),
    ({"type": "audio/pcmu"}, AudioFormat("pcmu", 8_000)),
    ({"type": "audio/pcma"}, AudioFormat("pcma", 8_000)),
]
IDS = ["24k", "16k", "8k", "mu-law", "A-law"]
TONE: Pcm = (np.sin(np.arange(480) / 5) * 9000).astype(np.int16)


def coded(pcm: Pcm, format: AudioFormat) -> bytes:
    if format.encoding == "pcm":
        return pcm.astype("<i2").tobytes()
    return g711.encode(pcm, format.encoding)


def decoded(data: bytes, format: AudioFormat) -> Pcm:
    if format.encoding == "pcm":
        return np.frombuffer(data, "<i2").astype(np.int16)
    return g711.decode(data, format.encoding)


@pytest.mark.parametrize(("shown", "format"), FORMATS, ids=IDS)
def test_appends_are_read_in_the_sessions_format(shown: Any, format: AudioFormat) -> None:
    client = Client()
    session, _ = client.updated(audio={"input": {"format": shown}})
    assert session["audio"]["input"]["format"] == shown
    data = coded(TONE, format)
    audio = base64.b64encode(data).decode()
    (appended,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(appended, commands.AppendAudio)
    assert appended.rate == format.rate
    assert appended.pcm.dtype == np.int16
    assert appended.pcm.tolist() == decoded(data, format).tolist()


@pytest.mark.parametrize(("shown", "format"), FORMATS, ids=IDS)
def test_answers_are_written_in_the_sessions_format(shown: Any, format: AudioFormat) -> None:
    client = Client()
    session, config = client.updated(audio={"output": {"format": shown}})
    assert session["audio"]["output"]["format"] == shown
    assert config.output_format == format
    created, *_ = client.apply(started(format=format), ITEM_STARTED)
    assert created["response"]["audio"]["output"]["format"] == shown
    pcm: Pcm = np.resize(TONE, format.rate)
    sent = client.apply(events.ReplyAudio("resp_1", "item_a", 0, pcm, format.rate))
    assert len(sent) == 5  # 200 ms each
    pieces = [base64.b64decode(event["delta"]) for event in sent]
    assert b"".join(pieces) == coded(pcm, format)


@pytest.mark.parametrize(("shown", "format"), FORMATS, ids=IDS)
def test_a_response_may_have_its_own_format(shown: Any, format: AudioFormat) -> None:
    client = Client()
    (command,) = client.send("response.create", response={"audio": {"output": {"format": shown}}})
    assert isinstance(command, commands.CreateResponse)
    assert command.options.output_format == format
    assert client.protocol.config.output_format == AudioFormat()


def test_two_responses_at_once_keep_their_formats() -> None:
    client = Client()
    client.apply(started(), ITEM_STARTED)
    aside = started(reply_id="resp_2", in_conversation=False, format=AudioFormat("pcmu", 8_000))
    item = events.ReplyItemStarted("resp_2", replace(ITEM_STARTED.item, id="item_b"), 0, None)
    (_, _, _, wide, narrow) = client.apply(
        aside,
        item,
        events.ReplyAudio("resp_1", "item_a", 0, TONE, 24_000),
        events.ReplyAudio("resp_2", "item_b", 0, TONE, 8_000),
    )
    assert len(base64.b64decode(wide["delta"])) == 2 * len(TONE)
    assert len(base64.b64decode(narrow["delta"])) == len(TONE)


def test_a_null_rate_means_16_khz_only_if_sent() -> None:
    client, pcm = Client(), {"type": "audio/pcm"}
    updates: list[tuple[Any, AudioFormat]] = [
        ({**pcm, "rate": None}, AudioFormat("pcm", 16_000)),
        (pcm, AudioFormat("pcm", 16_000)),  # it was not mentioned
        ({}, AudioFormat("pcm", 16_000)),
        ({"type": "audio/pcmu", "rate": None}, AudioFormat("pcmu", 8_000)),
        (pcm, AudioFormat("pcm", 24_000)),
        ({"rate": 8000}, AudioFormat("pcm", 8_000)),
        (None, AudioFormat()),
    ]
    for shown, format in updates:
        _, config = client.updated(audio={"output": {"format": shown}})
        assert config.output_format == format


def test_half_a_sample_is_refused_and_one_byte_of_g711_is_not() -> None:
    client = Client()
    audio = base64.b64encode(bytes(3)).decode()
    error = client.refused("input_audio_buffer.append", audio=audio)
    assert (error["code"], error["param"]) == ("invalid_value", "audio")
    assert "even number" in error["message"]
    client.updated(audio={"input": {"format": {"type": "audio/pcma"}}})
    (appended,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(appended, commands.AppendAudio)
    assert len(appended.pcm) == 3
