"""G.711 against the numbers that the standard prints, and against a second implementation."""

from __future__ import annotations

import importlib
import sys
import warnings
from bisect import bisect_right
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest

from pipeline.realtime import g711

EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = np.arange(-(2**15), 2**15).astype(np.int16)
LAWS: tuple[g711.Law, ...] = ("pcmu", "pcma")

# Decision values x(n) at the ends of the eight segments, and output values y(n) next to them, as
# printed in ITU-T G.711 (11/88): Tables 2a (µ-law, of 8159) and 1a (A-law, of 4096).
MU_DECISIONS = (31, 95, 223, 479, 991, 2015, 4063)
MU_OUTPUTS = {0xFF: 0, 0xFE: 2, 0xEF: 33, 0xDF: 99, 0xCF: 231, 0xBF: 495, 0xAF: 1023, 0x9F: 2079}
MU_OUTPUTS |= {0x8F: 4191, 0x80: 8031}
A_DECISIONS = (64, 128, 256, 512, 1024, 2048)
# Written with every other bit inverted, as it goes over the line.
A_OUTPUTS = {0x80: 1, 0xA0: 66, 0xB0: 132, 0xC0: 264, 0xD0: 528, 0xE0: 1056, 0xF0: 2112}
A_OUTPUTS |= {0xFF: 4032}


def other_implementation() -> ModuleType:
    if sys.version_info >= (3, 13):
        pytest.skip("audioop is gone from Python 3.13")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("audioop")


def test_the_output_values_are_those_that_the_standard_prints() -> None:
    mu = g711.decode(bytes(MU_OUTPUTS), "pcmu").tolist()
    assert mu == [4 * value for value in MU_OUTPUTS.values()]
    a = g711.decode(bytes(code ^ 0x55 for code in A_OUTPUTS), "pcma").tolist()
    assert a == [8 * value for value in A_OUTPUTS.values()]


def test_codes_of_the_two_signs_mirror_each_other() -> None:
    for law in LAWS:
        samples = g711.decode(EVERY_CODE, law).astype(int)
        assert (samples[:128] == -samples[128:]).all()


def decision_values(law: g711.Law) -> list[int]:
    """Ends of all intervals on the scale of 16-bit samples, from the printed ends of segments."""
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
        ends = decision_values(law)[:-1]  # louder samples belong to the last interval, too
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


def test_decoded_samples_encode_to_the_same_code() -> None:
    for law in LAWS:
        again = g711.encode(g711.decode(EVERY_CODE, law), law)
        changed = [hex(code) for code in EVERY_CODE if again[code] != code]
        # µ-law has a zero of each sign; 16-bit samples have one.
        assert changed == (["0x7f"] if law == "pcmu" else []), law


def test_silence_and_the_loudest_samples() -> None:
    loudest = np.array([0, -1, 32767, -32768], np.int16)
    assert g711.encode(loudest, "pcmu").hex() == "ff7f8000"
    assert g711.encode(loudest, "pcma").hex() == "d555aa2a"


def test_a_strided_view_and_nothing_at_all() -> None:
    for law in LAWS:
        every_other = np.arange(-400, 400, dtype=np.int16)[::2]
        assert g711.encode(every_other, law) == g711.encode(every_other.copy(), law)
        assert g711.encode(np.zeros(0, np.int16), law) == b""
        empty = g711.decode(b"", law)
        assert empty.dtype == np.int16
        assert len(empty) == 0


def test_it_agrees_with_another_implementation() -> None:
    audioop = other_implementation()
    pcm = EVERY_SAMPLE.tobytes()
    assert g711.decode(EVERY_CODE, "pcmu").tobytes() == audioop.ulaw2lin(EVERY_CODE, 2)
    assert g711.decode(EVERY_CODE, "pcma").tobytes() == audioop.alaw2lin(EVERY_CODE, 2)
    assert g711.encode(EVERY_SAMPLE, "pcma") == audioop.lin2alaw(pcm, 2)
    ours = np.frombuffer(g711.encode(EVERY_SAMPLE, "pcmu"), np.uint8)
    theirs = np.frombuffer(audioop.lin2ulaw(pcm, 2), np.uint8)
    zero = 2**15
    assert (ours[zero:] == theirs[zero:]).all()
    # It rounds a negative sample down to 14 bits first, which moves its decisions by 4.
    assert (ours[: zero - 4] == theirs[4:zero]).all()
