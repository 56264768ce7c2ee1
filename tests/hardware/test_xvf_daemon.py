"""The array behind a robot's daemon, and the choice of connection.

The daemon here is a small HTTP server with the formats of reachy-mini 1.13.0: FastAPI's errors,
``{"name", "values"}``, ``{"applied"}``, and ``{"angle", "speech_detected"}`` or null.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hardware.daemon_url import is_local
from hardware.settings import Array, Robot
from hardware.xvf3800.daemon_parameters import DaemonArray
from hardware.xvf3800.errors import ParameterError, Problem
from hardware.xvf3800.opening import open_array
from tests.support.fake_usb import REACHY, SEEED, FakeBus, FakeXvf
from tests.support.scripted_array import raises_problem

pytestmark = pytest.mark.machine


class Daemon(ThreadingHTTPServer):
    """``overrides``: path -> (status, body) instead of the usual answer; bytes are sent as such."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.values: dict[str, list[Any]] = {
            "VERSION": [2, 1, 4],
            "PP_MIN_NS": [0.15000000596046448],
            "AEC_SPENERGY_VALUES": [2080656.0, 0.0, 2083455.0, 2080656.0],
            "AUDIO_MGR_SELECTED_AZIMUTHS": [None, 0.91378],
            "AUDIO_MGR_OP_R": [0, 0],
            "AEC_ASROUTONOFF": [0],
        }
        self.doa: Any = {"angle": 1.57, "speech_detected": True}
        self.overrides: dict[str, tuple[int, Any]] = {}
        self.applied: list[Any] = []
        self.own: dict[str, int] = {}
        """The value of a parameter that the chip keeps, whatever is set."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str) -> tuple[int, Any]:
        if path in self.overrides:
            return self.overrides[path]
        if path == "/api/state/doa":
            return 200, self.doa
        name = path.removeprefix("/api/audio/config/parameter/")
        if name in self.values:
            return 200, {"name": name, "values": self.values[name]}
        return 404, {"detail": f"Parameter {name!r} could not be read"}

    def apply(self, body: Any) -> tuple[int, Any]:
        if "/api/audio/config/apply" in self.overrides:
            return self.overrides["/api/audio/config/apply"]
        self.applied.append(body)
        applied = True
        for pair in body["config"]:
            # As pydantic's list[float]; the chip returns floats with 32 bits.
            rounded = struct.pack(f"<{len(pair['values'])}f", *pair["values"])
            values = list(struct.unpack(f"<{len(pair['values'])}f", rounded))
            if (own := self.own.get(pair["name"])) is not None:
                values[own] = 3.5
                applied = not body["verify"]
            self.values[pair["name"]] = values
        return 200, {"applied": applied}


class _Handler(BaseHTTPRequestHandler):
    server: Daemon
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(*self.server.answer(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.server.apply(body))

    def _send(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def array(daemon: Daemon) -> Iterator[DaemonArray]:
    control = DaemonArray(daemon.url)
    yield control
    control.close()


# --- reading and writing -----------------------------------------------------------------------


def test_it_reads_what_the_daemon_reads(array: DaemonArray) -> None:
    assert (array.board, array.firmware, array.via) == ("reachy", "2.1.4", "daemon")
    assert array.read("pp_min_ns") == (pytest.approx(0.15),)
    assert array.read("AEC_SPENERGY_VALUES") == (2080656.0, 0.0, 2083455.0, 2080656.0)
    nothing, there = array.read("AUDIO_MGR_SELECTED_AZIMUTHS")
    assert math.isnan(float(nothing))
    assert there == pytest.approx(0.91378)


def test_the_direction_comes_from_the_daemon(daemon: Daemon, array: DaemonArray) -> None:
    assert array.read("DOA_VALUE_RADIANS") == (1.57, 1.0)
    daemon.values["DOA_VALUE_RADIANS"] = [0.541, 0.0]
    daemon.doa = None
    assert array.read("DOA_VALUE_RADIANS") == (0.541, 0.0)
    daemon.overrides["/api/state/doa"] = (503, {"detail": "Backend not running"})
    assert array.read("DOA_VALUE_RADIANS") == (0.541, 0.0)
    del daemon.overrides["/api/state/doa"]
    daemon.doa = {"speech_detected": False}
    with raises_problem("wrong answer", match="no angle"):
        array.read("DOA_VALUE_RADIANS")


def test_it_writes_and_lets_the_daemon_verify(daemon: Daemon, array: DaemonArray) -> None:
    array.write("AUDIO_MGR_OP_R", 7, 3)
    array.write("REBOOT", 1)
    assert daemon.applied == [
        {"config": [{"name": "AUDIO_MGR_OP_R", "values": [7, 3]}], "verify": True},
        {"config": [{"name": "REBOOT", "values": [1]}], "verify": False},
    ]
    assert array.read("AUDIO_MGR_OP_R") == (7, 3)


def test_mistakes_are_found_before_anything_is_sent(daemon: Daemon, array: DaemonArray) -> None:
    with pytest.raises(ParameterError):
        array.write("VERSION", 1, 2, 3)
    with pytest.raises(ParameterError):
        array.write("PP_MIN_NS", 2)
    with pytest.raises(ParameterError, match="cannot be read"):
        array.read("REBOOT")
    with pytest.raises(ParameterError, match="through the robot's daemon"):
        array.read("BLD_MSG")
    assert daemon.applied == []


# --- everything that goes wrong ----------------------------------------------------------------

PARAMETER = "/api/audio/config/parameter/PP_MIN_NS"
VERSION = "/api/audio/config/parameter/VERSION"


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (503, {"detail": "ReSpeaker audio board not available"}, "not found"),
        (404, {"detail": "Parameter 'PP_MIN_NS' could not be read"}, "refused"),
        (500, {"detail": "read_audio_parameter failed: Read attempt exceeds 100"}, "busy"),
        (500, b"Internal Server Error", "busy"),
        (401, {"detail": "no"}, "not the daemon"),
        (404, {"detail": "Not Found"}, "not the daemon"),
        (200, b"<html>", "not the daemon"),
        (200, b'"\xff\xfe\xfa"', "not the daemon"),
        (500, b'"\xff\xfe\xfa"', "busy"),
        (200, {"name": "PP_MIN_NS", "values": []}, "wrong answer"),
        (200, {"name": "PP_MIN_NS", "values": ["0.1"]}, "wrong answer"),
        (200, ["surprise"], "wrong answer"),
    ],
)
def test_every_bad_answer_has_its_name(
    daemon: Daemon, array: DaemonArray, status: int, body: Any, problem: Problem
) -> None:
    daemon.overrides[PARAMETER] = (status, body)
    with raises_problem(problem):
        array.read("PP_MIN_NS")
    assert array.read("VERSION") == (2, 1, 4)


def test_a_value_that_is_not_applied_is_an_error(daemon: Daemon, array: DaemonArray) -> None:
    daemon.overrides["/api/audio/config/apply"] = (200, {"applied": False})
    with raises_problem("refused", match="daemon's log"):
        array.write("PP_MIN_NS", 0.8)


def test_a_missing_daemon_is_an_error(daemon: Daemon) -> None:
    with raises_problem("daemon away", match="refused") as caught:
        DaemonArray("http://127.0.0.1:9")
    assert "robot.url" in caught.value.fix


def test_a_silent_daemon_is_given_up(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with raises_problem("daemon silent", match="timed out"):
            DaemonArray(url, answer_s=0.05)


def test_a_tuning_with_a_value_the_chip_overrides_is_applied(daemon: Daemon) -> None:
    """The daemon compares all it reads back and reports a failure."""
    daemon.values["PP_MGSCALE"] = [1000.0, 1.0, 1.0]
    daemon.own["PP_MGSCALE"] = 2
    array = DaemonArray(daemon.url)
    array.write("PP_MGSCALE", 4.0, 1.0, 1.0)
    assert array.read("PP_MGSCALE") == (4.0, 1.0, 3.5)
    array.close()


def test_after_closing_nothing_is_requested(daemon: Daemon) -> None:
    control = DaemonArray(daemon.url)
    control.close()
    control.close()
    with raises_problem("gone", match="closed"):
        control.read("VERSION")


# --- which way ---------------------------------------------------------------------------------


def test_a_late_local_daemon_keeps_the_array() -> None:
    """With USB beside it, each would get the other's answers."""
    bus = FakeBus(FakeXvf(REACHY))
    with socket.create_server(("127.0.0.1", 0)) as late, raises_problem("daemon silent"):
        open_array(Array(), f"http://127.0.0.1:{late.getsockname()[1]}", bus)
    assert bus.opened == 0


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (500, {"detail": "read_audio_parameter failed"}, "busy"),
        (404, {"detail": "Parameter 'VERSION' could not be read"}, "refused"),
        (200, {"name": "VERSION", "values": []}, "wrong answer"),
    ],
)
def test_a_failing_local_daemon_keeps_the_array(
    daemon: Daemon, status: int, body: Any, problem: Problem
) -> None:
    bus = FakeBus(FakeXvf(REACHY))
    daemon.overrides[VERSION] = (status, body)
    with raises_problem(problem):
        open_array(Array(), daemon.url, bus)
    assert bus.opened == 0


NO_BOARD = (503, {"detail": "ReSpeaker audio board not available"})
NO_API = (404, {"detail": "Not Found"})
AWAY = None


@pytest.mark.parametrize(
    ("devices", "version", "way"),
    [
        ([FakeXvf(REACHY)], (200, {"values": [2, 1, 4]}), "daemon"),
        ([FakeXvf(REACHY)], NO_BOARD, "usb"),
        ([FakeXvf(REACHY)], NO_API, "usb"),
        ([FakeXvf(REACHY)], AWAY, "usb"),
        ([FakeXvf(SEEED)], (200, {"values": [2, 1, 4]}), "usb"),
        ([FakeXvf(SEEED, permission=False)], (200, {"values": [2, 1, 4]}), "daemon"),
        ([], (200, {"values": [2, 1, 4]}), "daemon"),
    ],
)
def test_the_connection_to_an_array_is_chosen(
    daemon: Daemon, devices: list[FakeXvf], version: tuple[int, Any] | None, way: str
) -> None:
    """``version``: answer of a daemon on this machine."""
    if version:
        daemon.overrides[VERSION] = version
    bus = FakeBus(*devices)
    control = open_array(Array(), daemon.url if version else "http://127.0.0.1:9", bus)
    assert control.via == way
    assert bus.opened == (way == "usb")
    control.close()


def test_a_local_problem_is_reported_before_an_absent_robot() -> None:
    bus = FakeBus(FakeXvf(SEEED, permission=False))
    with raises_problem("no permission"):
        open_array(Array(), "http://127.0.0.1:9", bus)
    with raises_problem("daemon away"):
        open_array(Array(), "http://127.0.0.1:9", FakeBus())
    with raises_problem("not found"):
        open_array(Array(), None, FakeBus())


def test_control_never_opens_no_array(daemon: Daemon) -> None:
    bus = FakeBus(FakeXvf(REACHY))
    with raises_problem("not found", match="never"):
        open_array(Array(control="never"), daemon.url, bus)
    assert bus.opened == 0


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        (" localhost:8000/ ", "http://localhost:8000"),
        ("reachy-mini.local", "http://reachy-mini.local:8000"),
        ("[::1]", "http://[::1]:8000"),
        ("http://reachy-mini.local", "http://reachy-mini.local"),
        ("HTTPS://robot.example/daemon/", "https://robot.example/daemon"),
    ],
)
def test_addresses_may_be_written_in_many_ways(written: str, url: str) -> None:
    assert Robot(url=written).url == url


@pytest.mark.parametrize(
    "written", ["", "ftp://robot", "http://", "localhost:eighty", "http://[::1", "a..b", "a" * 64]
)
def test_an_invalid_url_in_the_settings_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"robot\.url is no"):
        Robot(url=written)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8000", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://reachy-mini.local:8000", False),
        ("http://192.168.1.7:8000", False),
    ],
)
def test_the_loopback_is_this_machine(url: str, expected: bool) -> None:
    assert is_local(url) is expected
