"""JSON and G.711 to plain data and back: accepted and refused input, no side effects."""

from __future__ import annotations

import base64
import functools
import json
from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.realtime import g711, wire
from pipeline.realtime.wire import WireError

pytestmark = pytest.mark.quick


def append(audio: object) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


@given(st.binary(max_size=400_000))
def test_audio_survives_the_wire(data: bytes) -> None:
    assert wire.parse(append(base64.b64encode(data).decode())).audio == data


@pytest.mark.parametrize(
    ("audio", "says"),
    [
        ("AAA", "base64"),  # padding is missing
        ("AAA=AAAA", "base64"),  # data after the padding
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
        {"tools": functools.reduce(lambda inner, _: [inner], range(200), [])},
    ],
)
def test_too_many_values_or_too_deep_ones_are_refused(many: dict[str, object]) -> None:
    with pytest.raises(WireError, match=r"values|deep") as refused:
        wire.parse(json.dumps({"type": "x", "event_id": "mine", **many}))
    assert (refused.value.code, refused.value.event_id) == ("invalid_json", "mine")


def test_far_too_many_values_are_not_even_decoded() -> None:
    with pytest.raises(WireError, match="values"):
        wire.parse('{"type":"x","n":[' + "1," * wire.MAX_COMMAS)


def test_commas_in_a_text_do_not_count_as_values() -> None:
    text = "a, b" * (wire.MAX_VALUES + 1)
    assert wire.parse(json.dumps({"type": "x", "text": text})).body["text"] == text


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


# --- G.711 against the numbers that the standard prints ----------------------------------------


EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = np.arange(-(2**15), 2**15).astype(np.int16)
LAWS: tuple[g711.Law, ...] = ("pcmu", "pcma")

# Decision values x(n) at the ends of the eight segments, and output values y(n) next to them, as
# printed in ITU-T G.711 (11/88): Tables 2a (µ-law, of 8159) and 1a (A-law, of 4096).
MU_DECISIONS = (31, 95, 223, 479, 991, 2015, 4063)
MU_OUTPUTS = {0xFF: 0, 0xFE: 2, 0xEF: 33, 0xDF: 99, 0xCF: 231, 0xBF: 495, 0xAF: 1023, 0x9F: 2079}
MU_OUTPUTS |= {0x8F: 4191, 0x80: 8031}
A_DECISIONS = (64, 128, 256, 512, 1024, 2048)
# With every other bit inverted, as on the line.
A_OUTPUTS = {0x80: 1, 0xA0: 66, 0xB0: 132, 0xC0: 264, 0xD0: 528, 0xE0: 1056, 0xF0: 2112}
A_OUTPUTS |= {0xFF: 4032}


def test_the_output_values_equal_the_standards() -> None:
    mu = g711.decode(bytes(MU_OUTPUTS), "pcmu").tolist()
    assert mu == [4 * value for value in MU_OUTPUTS.values()]
    a = g711.decode(bytes(code ^ 0x55 for code in A_OUTPUTS), "pcma").tolist()
    assert a == [8 * value for value in A_OUTPUTS.values()]


def decision_values(law: g711.Law) -> list[int]:
    """Ends of all intervals on the 16-bit scale, from the printed ends of segments."""
    if law == "pcmu":
        values, ends, scale = [1, *range(3, 32, 2)], [*MU_DECISIONS, 8159], 4
    else:
        values, ends, scale = list(range(2, 65, 2)), [*A_DECISIONS, 4096], 8
    for begin, end in pairwise(ends):
        step = (end - begin) // 16
        values += range(begin + step, end + 1, step)
    assert len(values) == 128
    return [value * scale for value in values]


def test_a_sample_gets_the_code_of_its_interval() -> None:
    for law in LAWS:
        ends = decision_values(law)[:-1]  # louder samples also belong to the last interval
        for sign, samples in ((1, EVERY_SAMPLE[2**15 :]), (-1, EVERY_SAMPLE[: 2**15])):
            codes = np.frombuffer(g711.encode(samples, law), np.uint8)
            magnitude = samples.astype(int) if sign > 0 else -1 - samples.astype(int)
            interval = np.array([bisect_right(ends, at) for at in magnitude.tolist()])
            if law == "pcmu":
                expected = (interval | (0 if sign > 0 else 0x80)) ^ 0xFF
            else:
                expected = (interval | (0x80 if sign > 0 else 0)) ^ 0x55
            assert (codes == expected).all(), law


def test_an_output_value_lies_in_the_middle_of_its_interval() -> None:
    for law in LAWS:
        ends = decision_values(law)
        begins = [-ends[0] if law == "pcmu" else 0, *ends[:-1]]
        middles = {(begin + end) // 2 for begin, end in zip(begins, ends, strict=True)}
        assert set(g711.decode(EVERY_CODE, law).tolist()) == middles | {-at for at in middles}


def test_a_strided_view_and_nothing_at_all() -> None:
    for law in LAWS:
        every_other = np.arange(-400, 400, dtype=np.int16)[::2]
        assert g711.encode(every_other, law) == g711.encode(every_other.copy(), law)
        assert g711.encode(np.zeros(0, np.int16), law) == b""
        empty = g711.decode(b"", law)
        assert empty.dtype == np.int16
        assert len(empty) == 0
