"""``reachy-voice xvf`` over the fake bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from click.testing import Result
from typer.testing import CliRunner

from app.cli import xvf
from app.cli.xvf import install_rule
from hardware.settings import PresetName
from hardware.xvf3800.boards import Board
from hardware.xvf3800.errors import ArrayError, Problem
from hardware.xvf3800.parameters import PARAMETERS
from hardware.xvf3800.presets import PRESETS
from hardware.xvf3800.udev import RULES
from tests.support.fake_usb import REACHY, SEEED, FakeBus, FakeXvf, floats, gone, ints, status

pytestmark = pytest.mark.machine


@pytest.fixture
def device() -> FakeXvf:
    return FakeXvf(REACHY, retries=0)


@pytest.fixture
def bus(device: FakeXvf, monkeypatch: pytest.MonkeyPatch) -> FakeBus:
    bus = FakeBus(device)
    monkeypatch.setattr("hardware.xvf3800.opening.usb_backend", lambda: bus)
    monkeypatch.setattr("app.cli.xvf.SETTLE_S", 0)
    return bus


def run(*arguments: str) -> Result:
    return CliRunner().invoke(xvf.app, list(arguments))


def said(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exception is None, result.exception
    return str(result.stdout)


def failure(problem: Problem, *arguments: str) -> ArrayError:
    error = run(*arguments).exception
    assert isinstance(error, ArrayError)
    assert error.problem == problem
    return error


# --- get and set -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VERSION", "2 1 4"),
        ("audio_mgr_op_l", "8 0"),
        ("BLD_MSG", "ua-io16-lin"),
        ("PP_MIN_NS", "0.15"),
        ("LED_COLOR", "0x00ff00"),
        ("AUDIO_MGR_SELECTED_AZIMUTHS", "nan 0.91378  (- 52°)"),
    ],
)
def test_get_prints_values_in_input_form(bus: FakeBus, name: str, expected: str) -> None:
    assert said("get", name) == expected + "\n"
    assert bus.open_handles == 0


def test_set_writes_reads_back_and_says_how_long_it_lasts(bus: FakeBus, device: FakeXvf) -> None:
    output = said("set", "pp_mgscale", "4", "1.0", "1")
    assert "PP_MGSCALE = 4 1 1 (was 1000 1 1)" in output
    assert "volatile" in output
    assert device.registers[(17, 29)] == floats(4, 1, 1)


def test_set_takes_hexadecimal_and_negative_numbers(bus: FakeBus, device: FakeXvf) -> None:
    assert "LED_COLOR = 0xff8800" in said("set", "LED_COLOR", "0xff8800")
    assert "AUDIO_MGR_SYS_DELAY = -12 (was 12)" in said("set", "AUDIO_MGR_SYS_DELAY", "-12")
    assert device.registers[(35, 26)] == ints(-12)


def test_set_does_not_call_an_order_volatile(bus: FakeBus, device: FakeXvf) -> None:
    output = said("set", "SAVE_CONFIGURATION", "1")
    assert "keeps all that is set" in output
    assert "volatile" not in output
    assert device.writes == [((48, 9), b"\1")]


def test_a_value_that_does_not_take_is_an_error(bus: FakeBus, device: FakeXvf) -> None:
    def ignored(device: FakeXvf, data: object, timeout_s: float) -> int:
        return 4

    device.faults = [lambda *_: None, lambda *_: None, ignored]
    error = failure("not taken", "set", "PP_MIN_NS", "0.8")
    assert "is 0.15 after it was set to 0.8" in error.why


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "VERSION", "1", "2", "3"), "can only be read"),
        (("set", "PP_MIN_NS", "2"), "2 is not 0 to 1"),
        (("set", "PP_MIN_NS", "0.1", "0.2"), "takes 1, not 2"),
        (("set", "PP_MIN_NS", "loud"), "loud is not a number"),
        (("set", "PP_MIN_NSS", "1"), "Did you mean PP_MIN_NS"),
        (("set", "REBOOT", "1"), "reachy-voice xvf reboot"),
        (("get", "REBOOT"), "cannot be read"),
        (("get", "AEC_CONVERGED"), "AEC_AECCONVERGED"),
        (("get", "LED_RING_COLOR"), "only another board"),
        (("presets", "--apply", "loud"), "barge-in"),
    ],
)
def test_mistakes_are_explained_and_nothing_is_written(
    bus: FakeBus, device: FakeXvf, arguments: tuple[str, ...], why: str
) -> None:
    error = failure("other", *arguments)
    assert why in str(error)
    assert error.exit_code == 2
    assert device.writes == []
    assert bus.open_handles == 0


def test_without_an_array_every_command_fails(bus: FakeBus, device: FakeXvf) -> None:
    device.plugged = False
    for arguments in (("get", "VERSION"), ("dump",), ("reboot",), ("set", "PP_MIN_NS", "1")):
        assert failure("not found", *arguments).exit_code == 21


def test_unknown_names_are_refused_before_an_array_is_looked_for(
    bus: FakeBus, device: FakeXvf
) -> None:
    device.plugged = False
    for arguments in (("get", "NONSENSE"), ("set", "NONSENSE", "1")):
        assert "NONSENSE" in failure("other", *arguments).what
    failure("other", "presets", "--apply", "nonsense")


def test_the_settings_know_each_preset() -> None:
    assert get_args(PresetName) == tuple(PRESETS)


def test_commands_ignore_array_control_never(bus: FakeBus) -> None:
    assert said("get", "VERSION", "--set", "array.control=never") == "2 1 4\n"


# --- dump, watch, reboot, presets ---------------------------------------------------------------


@pytest.mark.parametrize(("ids", "board"), [(REACHY, "reachy"), (SEEED, "seeed")])
def test_dump_has_every_parameter_that_can_be_read(
    bus: FakeBus, device: FakeXvf, ids: tuple[int, int], board: Board
) -> None:
    device.ids = ids
    device.registers = FakeXvf(ids).registers
    dumped = json.loads(said("dump", "--json"))
    assert (dumped["board"], dumped["firmware"], dumped["via"]) == (board, "2.1.4", "usb")
    readable = [p.name for p in PARAMETERS[board].values() if p.access != "wo"]
    assert list(dumped["parameters"]) == readable
    assert dumped["parameters"]["AUDIO_MGR_SELECTED_AZIMUTHS"][0] is None
    text = said("dump")
    assert all(name in text for name in readable)
    assert "processed: the chosen beam" in text


def test_a_dump_skips_parameters_the_firmware_does_not_know(bus: FakeBus, device: FakeXvf) -> None:
    del device.registers[(33, 9)]
    assert json.loads(said("dump", "--json"))["parameters"]["AEC_RT60"] is None
    assert "SERVICER_WRONG_COMMAND_ID" in said("dump")


def test_a_value_that_is_never_ready_does_not_end_a_dump(bus: FakeBus, device: FakeXvf) -> None:
    device.waiting[(33, 80)] = 10_000
    read = json.loads(said("dump", "--json"))["parameters"]
    assert read["AEC_SPENERGY_VALUES"] is None
    assert read["PP_DTSENSITIVE"] == [1]


def test_losing_the_array_ends_a_dump(bus: FakeBus, device: FakeXvf) -> None:
    device.faults = [status(0), gone]
    failure("gone", "dump")
    assert bus.open_handles == 0


def test_watch_shows_readings_and_closes(bus: FakeBus) -> None:
    result = run("watch", "--readings", "2", "--json")
    readings = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(readings) == 2
    assert readings[0]["direction"]["azimuth_deg"] == pytest.approx(31.0, abs=0.1)
    assert readings[0]["aec_converged"] is True
    assert "Reachy Mini Audio, firmware 2.1.4" in result.stderr
    assert "31°  speech" in said("watch", "--readings", "1")
    assert bus.open_handles == 0


def test_watch_into_a_closed_pipe_ends_cleanly(
    bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> str:
        raise BrokenPipeError

    monkeypatch.setattr("app.cli.xvf.reading_line", closed)
    assert isinstance(run("watch").exception, BrokenPipeError)
    assert bus.open_handles == 0


def test_reboot_restarts_and_finds_it_again(
    bus: FakeBus, device: FakeXvf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardware.xvf3800.rebooting.SETTLE_S", 0)
    assert "Back: Reachy Mini Audio, firmware 2.1.4" in said("reboot")
    assert device.reboots == 1
    assert bus.open_handles == 0


def test_a_failed_reboot_is_an_error(
    bus: FakeBus, device: FakeXvf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardware.xvf3800.rebooting.SETTLE_S", 0)
    monkeypatch.setattr("hardware.xvf3800.rebooting.GIVE_UP_S", 0)
    monkeypatch.setattr(device, "restart", lambda: setattr(device, "plugged", False))
    failure("not back", "reboot")


def test_presets_are_listed_and_applied(bus: FakeBus, device: FakeXvf) -> None:
    listed = said("presets")
    assert "barge-in: " in listed
    assert "    PP_MGSCALE 4 1 1" in listed
    assert "volatile" in said("presets", "--apply", "asr-beam")
    assert device.registers[(35, 19)] == bytes([7, 3])


# --- the udev rule -----------------------------------------------------------------------------


def test_the_rule_is_printed() -> None:
    assert said("udev") == RULES + "\n"


def test_the_rule_is_written_and_activated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[tuple[str, ...]] = []

    def works(command: tuple[str, ...]) -> int:
        commands.append(command)
        return 0

    install_rule(tmp_path / "70.rules", "linux", works)
    assert (tmp_path / "70.rules").read_text() == RULES + "\n"
    assert commands[0] == ("udevadm", "control", "--reload")
    assert "plug" in capsys.readouterr().out.splitlines()[-1]


def test_a_rule_that_cannot_be_installed_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArrayError, match=r"No such file.*sudo .* xvf udev --install"):
        install_rule(tmp_path / "none" / "70.rules", "linux")
    with pytest.raises(ArrayError, match="not active yet"):
        install_rule(tmp_path / "70.rules", "linux", lambda _: 1)
    capsys.readouterr()
    install_rule(tmp_path / "none" / "70.rules", "darwin")
    assert "only Linux" in capsys.readouterr().out
