"""The XVF3800's control protocol, without any USB: requests, payloads and answers.

As in the SDK of reachy-mini 1.13.0, Seeed's host tool and XMOS's ``host_xvf_control`` 3.0.0: vendor
control transfers to the device, ``bRequest`` 0, ``wValue`` the command (with bit 7 for a read),
``wIndex`` the servicer; little-endian payloads. An answer begins with one byte of status.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.xvf3800.errors import ArrayError, ParameterError, array_error
from hardware.xvf3800.parameters import Parameter, Type, Value

READ_TYPE, WRITE_TYPE = 0xC0, 0x40
"""``bmRequestType``: vendor, to the device; in and out."""
READ_BIT = 0x80
STATUS_BYTES = 1
OK, RETRY = 0, 64

_REFUSED = {
    1: "it cannot do that (CONTROL_REGISTRATION_FAILED)",
    2: "it does not know the command (CONTROL_BAD_COMMAND)",
    3: "the length is wrong (CONTROL_DATA_LENGTH_ERROR)",
    4: "its transport failed (CONTROL_OTHER_TRANSPORT_ERROR)",
    5: "it has no such servicer (CONTROL_BAD_RESOURCE)",
    6: "the payload is malformed (CONTROL_MALFORMED_PACKET)",
    7: "it was ignored (CONTROL_COMMAND_IGNORED_IN_DEVICE)",
    8: "something failed inside (CONTROL_ERROR)",
    65: "it does not know the command (SERVICER_WRONG_COMMAND_ID)",
    66: "the length is wrong (SERVICER_WRONG_COMMAND_LEN)",
    67: "it rejects the value (SERVICER_WRONG_PAYLOAD)",
}
_QUEUE_FULL = 68

_LIMITS: dict[Type, tuple[int, int]] = {
    "char": (0, 255),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}
_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ControlTransfer:
    """The setup packet of one control transfer."""

    request_type: int
    value: int
    index: int
    length: int
    data: bytes | None = None
    """The bytes to write, or ``None`` for a read of ``length`` bytes."""


def read_request(parameter: Parameter) -> ControlTransfer:
    """The transfer that reads a parameter. Raises ``ParameterError`` for a command."""
    if parameter.access == "wo":
        raise ParameterError(
            f"{parameter.name} cannot be read",
            why=f"it is a command ({parameter.meaning})",
            fix=f"Set it instead: reachy-voice xvf set {parameter.name} ...",
        )
    length = STATUS_BYTES + parameter.payload.size
    return ControlTransfer(READ_TYPE, READ_BIT | parameter.command, parameter.resource, length)


def write_request(parameter: Parameter, values: Sequence[Value]) -> ControlTransfer:
    """The transfer that writes a parameter. Raises ``ParameterError``."""
    check_values(parameter, values)
    whole = parameter.type in _LIMITS
    numbers = [int(value) if whole else float(value) for value in values]
    data = parameter.payload.pack(*numbers)
    return ControlTransfer(WRITE_TYPE, parameter.command, parameter.resource, len(data), data)


def check_values(parameter: Parameter, values: Sequence[Value]) -> None:
    """Check access, count, type and range. Raises ``ParameterError``."""
    if parameter.access == "ro":
        raise ParameterError(f"{parameter.name} can only be read", why=f"it is {parameter.meaning}")
    if len(values) != parameter.count:
        raise _wrong(parameter, f"it takes {parameter.count}, not {len(values)}")
    for value in values:
        _check_value(parameter, value)
    # The minimum gain must not exceed the maximum.
    if parameter.name == "PP_MGSCALE" and values[0] < values[1]:
        raise _wrong(
            parameter, "the first value, the maximum, is less than the second, the minimum"
        )


def _check_value(parameter: Parameter, value: Value) -> None:
    if not math.isfinite(value):
        raise _wrong(parameter, f"{value} is not a number")
    if parameter.type in _LIMITS:
        least, most = _LIMITS[parameter.type]
        if value != int(value):
            raise _wrong(parameter, f"{value:g} is not a whole number")
        if not least <= value <= most:
            raise _wrong(parameter, f"{value:g} does not fit into {parameter.type}")
    elif abs(value) > _LARGEST_FLOAT:
        raise _wrong(parameter, f"{value:g} does not fit into a 32-bit float")
    if parameter.ranges and not any(a <= value <= b for a, b in parameter.ranges):
        raise _wrong(parameter, f"{value:g} is not {in_words(parameter)}")


def _wrong(parameter: Parameter, why: str) -> ParameterError:
    limits = f" {in_words(parameter)}" if parameter.ranges else ""
    plural = "value" if parameter.count == 1 else "values"
    return ParameterError(
        f"{parameter.name} cannot be set to that",
        why=why,
        fix=f"Give {parameter.count} {plural} of type {parameter.type}{limits}",
    )


def in_words(parameter: Parameter) -> str:
    """The range, such as ``0 to 5 or 10 to 15``; empty without a range."""
    return " or ".join(f"{a:g}" if a == b else f"{a:g} to {b:g}" for a, b in parameter.ranges)


def is_retry(answer: bytes) -> bool:
    """Whether the chip asks to repeat the read."""
    return len(answer) > 0 and answer[0] == RETRY


def decode(parameter: Parameter, answer: bytes) -> Values | str:
    """An answer's values; text for ``char``. Raises ``ArrayError``."""
    if not answer:
        raise array_error("wrong answer", f"{parameter.name}: an empty answer")
    if answer[0] != OK:
        raise _status_error(parameter.name, answer[0])
    payload = answer[STATUS_BYTES:]
    if len(payload) != parameter.payload.size:
        why = f"{parameter.name}: {len(payload)} bytes instead of {parameter.payload.size}"
        raise array_error("wrong answer", why)
    if parameter.type == "char":
        return payload.split(b"\0", 1)[0].decode("ascii", errors="replace").strip()
    return parameter.payload.unpack(payload)


def _status_error(name: str, status: int) -> ArrayError:
    if status == RETRY:
        return array_error("busy", f"{name}: no value was ready in time (SERVICER_COMMAND_RETRY)")
    if status == _QUEUE_FULL:
        return array_error("busy", f"{name}: its queue is full (SERVICER_QUEUE_FULL)")
    if why := _REFUSED.get(status):
        return array_error("refused", f"{name}: {why}")
    return array_error("wrong answer", f"{name}: status {status}, which is not documented")


_KEPT = {"PP_MGSCALE": 2, "AEC_AECSILENCELEVEL": 1}
"""How many of a parameter's first values can be set; the chip changes the others itself."""


def keeps_all(parameter: Parameter) -> bool:
    """Whether every value read back is the value set."""
    return parameter.name not in _KEPT


def same(parameter: Parameter, left: Sequence[Value], right: Sequence[Value]) -> bool:
    """Whether two lists of values mean the same to the chip, which keeps 32-bit floats."""
    if len(left) != len(right):
        return False
    count = _KEPT.get(parameter.name, parameter.count)
    pairs = zip(left[:count], right[:count], strict=True)
    # Some values are as small as 1e-8.
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12) for a, b in pairs)
