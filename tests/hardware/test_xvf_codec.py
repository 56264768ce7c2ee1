"""The XVF3800's parameters and protocol, without a device."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hardware.xvf3800.boards import Board, is_array_name, version_of
from hardware.xvf3800.codec import check_values, decode, read_request, same, write_request
from hardware.xvf3800.errors import ArrayError, ParameterError, array_error, permission_fix
from hardware.xvf3800.parameters import PARAMETERS, Parameter, parameter
from hardware.xvf3800.udev import RULES

pytestmark = pytest.mark.quick

BOARDS: list[Board] = ["reachy", "seeed"]
EVERY = [p for board in BOARDS for p in PARAMETERS[board].values()]


# --- requests ----------------------------------------------------------------------------------


def test_every_setup_packet_is_valid() -> None:
    for each in EVERY:
        assert 0 <= each.command < 0x80
        assert 1 + each.payload.size <= 64, "the chip's control buffer"


def test_requests_are_the_reference_s_setup_packets() -> None:
    request = read_request(parameter("reachy", "AUDIO_MGR_OP_L"))
    assert (request.request_type, request.value, request.index) == (0xC0, 143, 35)
    assert (request.length, request.data) == (3, None)
    request = write_request(parameter("reachy", "AUDIO_MGR_OP_L"), (3, 0))
    assert (request.request_type, request.value, request.index) == (0x40, 15, 35)
    assert request.data == b"\x03\x00"


def test_the_printed_answers_of_the_reference_are_read() -> None:
    doa = parameter("reachy", "DOA_VALUE")
    assert decode(doa, bytes([0, 133, 0, 0, 0, 1, 0, 0, 0])) == (133, 1)
    seeed = parameter("seeed", "DOA_VALUE")
    assert decode(seeed, bytes([0, 133, 0, 1, 0])) == (133, 1)
    assert decode(parameter("reachy", "AUDIO_MGR_OP_L"), bytes([0, 8, 0])) == (8, 0)
    text = decode(parameter("reachy", "BLD_MSG"), b"\0" + b"ua-io16-lin".ljust(50, b"\0"))
    assert text == "ua-io16-lin"


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("PP_MIN_NS", (1.5,), "1.5 is not 0 to 1"),
        ("PP_MIN_NS", (), "takes 1, not 0"),
        ("AUDIO_MGR_OP_R", (7,), "takes 2, not 1"),
        ("AUDIO_MGR_OP_R", (7, 256), "does not fit into uint8"),
        ("PP_DTSENSITIVE", (7,), "7 is not 0 to 5 or 10 to 15"),
        ("PP_DTSENSITIVE", (1.5,), "not a whole number"),
        ("PP_MIN_NS", (math.nan,), "not a number"),
        ("AUDIO_MGR_MIC_GAIN", (1e39,), "32-bit float"),
        ("PP_MGSCALE", (1.0, 4.0, 1.0), "less than"),
    ],
)
def test_values_are_checked_before_anything_is_sent(
    name: str, values: tuple[float, ...], why: str
) -> None:
    with pytest.raises(ParameterError, match=re.escape(why)) as caught:
        check_values(parameter("reachy", name), values)
    assert caught.value.fix


# --- round trips -------------------------------------------------------------------------------


def values_of(wanted: Parameter) -> some.SearchStrategy[tuple[float, ...]]:
    limits = {"uint8": (0, 255), "uint16": (0, 65535), "int32": (-(2**31), 2**31 - 1)}
    limits["uint32"] = (0, 2**32 - 1)
    ranges = wanted.ranges or (limits.get(wanted.type, (-1e30, 1e30)),)
    one: some.SearchStrategy[Any]
    if wanted.type in limits:
        one = some.one_of(*(some.integers(int(a), int(b)) for a, b in ranges))
    else:
        # Inwards, since a limit's nearest 32-bit float may lie outside.
        one = some.one_of(
            *(
                some.floats(a, b).map(lambda v: struct.unpack("<f", struct.pack("<f", v))[0])
                for a, b in ranges
            )
        ).filter(lambda v: any(a <= v <= b for a, b in ranges))
    many = some.tuples(*[one] * wanted.count)
    if wanted.name == "PP_MGSCALE":
        return many.map(lambda v: (max(v[:2]), min(v[:2]), v[2]))
    return many


@given(some.data())
def test_written_values_decode_to_themselves(data: some.DataObject) -> None:
    wanted = data.draw(some.sampled_from([p for p in EVERY if p.access == "rw"]))
    values = data.draw(values_of(wanted))
    request = write_request(wanted, values)
    assert request.data is not None
    assert len(request.data) == request.length
    read = decode(wanted, b"\0" + request.data)
    assert read == values
    assert not isinstance(read, str)
    assert same(wanted, read, values)


@given(some.sampled_from(EVERY), some.binary(max_size=70))
def test_any_bad_answer_raises_a_named_error(wanted: Parameter, answer: bytes) -> None:
    try:
        values = decode(wanted, answer)
    except ArrayError:
        return
    assert answer[0] == 0
    assert isinstance(values, str) or len(values) == wanted.count


# --- errors and small things -------------------------------------------------------------------


def test_without_permission_the_rule_is_printed() -> None:
    assert RULES in array_error("no permission", "errno 13").fix
    for ids in ("38fb", "1001", "2886", "001a"):
        assert f'=="{ids}"' in RULES


def test_only_linux_mentions_udev() -> None:
    assert "udev" in permission_fix("linux")
    assert "WinUSB" in permission_fix("win32")
    assert "udev" not in permission_fix("darwin") + permission_fix("win32")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Reachy Mini Audio: USB Audio (hw:2,0)", True),
        ("Echo Cancelling Speakerphone (Reachy Mini Audio)", True),
        ("ReSpeaker XVF3800 4-Mic Array", True),
        ("HDA Intel PCH: ALC256", False),
    ],
)
def test_sound_devices_of_arrays_are_recognised_by_name(name: str, expected: bool) -> None:
    assert is_array_name(name) is expected


def test_versions_are_compared_as_numbers() -> None:
    assert version_of("2.0.10") > version_of("2.0.9")
    assert version_of("unknown") == ()
