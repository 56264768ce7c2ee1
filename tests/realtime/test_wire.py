"""JSON <-> plain data: accepted and refused input, without side effects."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import AudioFormat
from pipeline.realtime import wire
from pipeline.realtime.wire import WireError


def append(audio: object) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


@given(st.binary(max_size=400_000))
def test_audio_survives_the_wire(data: bytes) -> None:
    assert wire.parse(append(base64.b64encode(data).decode())).audio == data


def test_samples_are_little_endian() -> None:
    assert wire.samples_of(b"\x01\x02\xff\xff", AudioFormat(), "audio").tolist() == [0x0201, -1]


@pytest.mark.parametrize(
    ("audio", "says"),
    [
        ("AAA", "base64"),  # padding is missing
        ("AAA=AAAA", "base64"),  # something follows the padding
        ("AA\nAA", "base64"),
        ("AA-_", "base64"),  # the URL alphabet
        ("ÄÖÜß", "base64"),
        ("A" * 65_532 + "AAA=" + "AAAA", "base64"),  # padding at a border of our slices
        (17, "string"),
        (["AAAA"], "string"),
    ],
)
def test_bad_audio_is_refused(audio: object, says: str) -> None:
    with pytest.raises(WireError, match=says) as refused:
        wire.parse(append(audio))
    assert (refused.value.code, refused.value.param) == ("invalid_value", "audio")


def test_audio_over_15_mib_is_refused_before_it_is_decoded() -> None:
    whole = base64.b64encode(bytes(wire.MAX_APPEND_BYTES)).decode()
    assert len(wire.parse(append(whole)).audio) == wire.MAX_APPEND_BYTES
    with pytest.raises(WireError, match="15 MiB"):
        wire.parse(append(whole + "AAAA"))


def test_an_append_without_audio_names_what_is_missing() -> None:
    with pytest.raises(WireError) as refused:
        wire.parse('{"type":"input_audio_buffer.append","event_id":"mine"}')
    assert refused.value.code == "missing_required_parameter"
    assert refused.value.event_id == "mine"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_json"),
        ("hello", "invalid_json"),
        ("[]", "invalid_json"),
        ("null", "invalid_json"),
        ('{"type":"x"', "invalid_json"),
        ('{"type":"x","n":NaN}', "invalid_json"),
        ('{"type":"x","n":-Infinity}', "invalid_json"),
        ('{"type":"x","n":1e999}', "invalid_json"),
        ('{"type":"x","n":' + "9" * 5000 + "}", "invalid_json"),
        ('{"type":"x","s":"\\ud800"}', "invalid_json"),
        ('{"type":"x","n":' + "[" * 200 + "]" * 200 + "}", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("{}", "missing_required_parameter"),
        ('{"type":7}', "invalid_value"),
        (b'{"type":"x"}', "invalid_frame"),
    ],
)
def test_an_invalid_client_event_is_refused(text: str | bytes, code: str) -> None:
    with pytest.raises(WireError) as refused:
        wire.parse(text)
    assert refused.value.code == code
    assert len(refused.value.message) < 400


def test_many_siblings_are_not_deep_nesting() -> None:
    wire.parse(json.dumps({"type": "x", "tools": [{"a": [1]}] * 500}))


@pytest.mark.parametrize(
    "many",
    [
        {"tools": [1] * (wire.MAX_VALUES + 1)},
        {str(n): 1 for n in range(wire.MAX_VALUES)},
        {"tools": [[1] * 999] * 21},
    ],
)
def test_too_many_values_are_refused(many: dict[str, object]) -> None:
    with pytest.raises(WireError, match="values") as refused:
        wire.parse(json.dumps({"type": "x", "event_id": "mine", **many}))
    assert (refused.value.code, refused.value.event_id) == ("invalid_json", "mine")


def test_far_too_many_values_are_not_even_decoded() -> None:
    with pytest.raises(WireError, match="values"):
        wire.parse('{"type":"x","n":[' + "1," * wire.MAX_COMMAS)


def test_commas_in_a_text_are_no_values() -> None:
    text = "a, b" * (wire.MAX_VALUES + 1)
    assert wire.parse(json.dumps({"type": "x", "text": text})).body["text"] == text


def test_a_message_that_is_too_deep_is_refused_by_its_name() -> None:
    deep = '{"type":"x","event_id":"mine","n":' + "[" * 200 + "]" * 200 + "}"
    with pytest.raises(WireError, match="deep") as refused:
        wire.parse(deep)
    assert refused.value.event_id == "mine"


def test_an_emoji_sent_as_a_surrogate_pair_is_text() -> None:
    assert wire.parse('{"type":"x","s":"\\ud83e\\udd16"}').body["s"] == "🤖"


@given(st.text(max_size=50))
def test_any_character_can_be_sent_back(text: str) -> None:
    encoded = wire.encode({"text": text})
    assert encoded.isascii()
    assert json.loads(encoded) == {"text": text}


def test_an_event_id_that_is_too_long_is_not_repeated() -> None:
    assert wire.parse(json.dumps({"type": "x", "event_id": "e" * 512})).event_id == "e" * 512
    assert wire.parse(json.dumps({"type": "x", "event_id": "e" * 513})).event_id is None


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_long_audio_is_sent_in_pieces_of_at_most_200_ms(rate: int) -> None:
    pcm = np.arange(rate * 3 + 7, dtype=np.int16)
    parts = list(wire.pieces(pcm, rate))
    assert max(len(part) for part in parts) == rate // 5
    assert np.array_equal(np.concatenate(parts), pcm)
