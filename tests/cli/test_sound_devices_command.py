"""``reachy-voice devices`` and ``devices test``, on the virtual card and over a scripted driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.cli.devices import advise
from app.talk.devices import SoundTest, run_test
from hardware.settings import Robot, Sound
from reachy_voice.testing import run_virtual
from tests.support.scripted_driver import SleepyDriver
from tests.support.steady import on_a_steady_machine
from tests.support.virtual_sound import ECHO, NAME, OTHER, VirtualSound

pytestmark = pytest.mark.machine

RUNNER = CliRunner()
TO_ECHO = ["--set", f"sound.microphone={ECHO}", "--set", f"sound.speaker={ECHO}"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualSound]:
    with VirtualSound(tmp_path_factory.mktemp("sound")) as sound:
        yield sound


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the search for false starts needs the whole ten seconds."""
    monkeypatch.setattr("app.talk.devices.SILENT_S", 1.0)


def test_the_list(sound: VirtualSound) -> None:
    result = RUNNER.invoke(cli, ["devices", "--json"], catch_exceptions=False)
    listed = json.loads(result.stdout)
    lines = {line["name"]: line for line in listed["devices"]}
    assert listed["problems"] == []
    assert {16_000, 24_000, 44_100, 48_000} <= set(lines[NAME]["rates_hz"])
    assert (lines[NAME]["array"], lines[NAME]["microphone"], lines[NAME]["speaker"]) == (
        True, True, True,
    )  # fmt: skip
    assert lines[OTHER]["rates_hz"] == []
    assert not lines[OTHER]["microphone"]


def test_the_list_in_words(sound: VirtualSound) -> None:
    arguments = ["devices", "--set", "sound.microphone=Blue Yeti"]
    result = RUNNER.invoke(cli, arguments, catch_exceptions=False)
    assert NAME in result.stdout
    assert "cannot be opened now" in " ".join(result.stdout.split())
    assert "no microphone called 'Blue Yeti'" in " ".join(result.stdout.split())
    assert "Next step" not in result.stdout, "that is to choose another one"


@pytest.mark.usefixtures("short_silence")
@on_a_steady_machine
def test_the_test_measures_the_loudspeaker_to_microphone_path(sound: VirtualSound) -> None:
    arguments = ["devices", "test", "--json", *TO_ECHO]
    result = RUNNER.invoke(cli, arguments, catch_exceptions=False)
    tested = json.loads(result.stdout)
    assert result.exit_code == 0
    assert tested["microphone"] == tested["speaker"] == ECHO
    # The virtual microphone hears exactly what is played.
    assert tested["echo_return_loss_db"] == pytest.approx(0, abs=1)
    assert 6 < tested["echo_delay_ms"] < 100
    assert 5 < tested["loopback_ms"] < 300
    assert tested["lost_samples"] == 0


@pytest.mark.usefixtures("short_silence")
def test_a_microphone_that_hears_nothing_is_explained(sound: VirtualSound) -> None:
    arguments = ["devices", "test", "--set", f"sound.microphone={NAME}"]
    result = RUNNER.invoke(cli, arguments, catch_exceptions=False)
    assert "delivers only zeros" in " ".join(result.stdout.split())
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("asleep_s", "late_s", "keep_awake_dbfs", "lost_ms"),
    [
        (0, 0, None, 0),
        (0.3, 0, None, 300),
        (0.6, 0, None, 500),
        (0.6, 0.3, None, 500),
        (0.6, 0, -50, 0),
    ],
)
def test_a_loudspeaker_that_sleeps_is_found_and_kept_awake(
    asleep_s: float, late_s: float, keep_awake_dbfs: float | None, lost_ms: int
) -> None:
    settings = Sound(keep_awake_dbfs=keep_awake_dbfs)
    tested, _ = run_virtual(run_test(settings, Robot(), SleepyDriver(asleep_s, late_s)))
    assert tested.lost_start_ms == lost_ms, "a chirp takes 500 ms"
    assert tested.echo_delay_ms == pytest.approx(40 + 1000 * late_s, abs=1)


TESTED = SoundTest("Mic", "Speaker", 16_000, 16_000, (10, 15), -50, False, 40, 22, 20, 0, 0)


@pytest.mark.parametrize(
    "row",
    [
        ({},),
        ({"all_zero": True},),
        ({"all_zero": True, "loopback_ms": None, "echo_delay_ms": None}, "only zeros"),
        ({"loopback_ms": None, "echo_delay_ms": None}, "The chirps were not heard"),
        ({"echo_delay_ms": 420.0}, "half-duplex"),
        ({"echo_delay_ms": 2.0}, "from 6 to 300"),
        ({"lost_start_ms": 40.0},),
        ({"lost_start_ms": 500.0}, "keep_awake_dbfs"),
        ({"lost_start_ms": 600.0, "echo_delay_ms": 320.0}, "half-duplex", "keep_awake_dbfs"),
        ({"lost_start_ms": 600.0, "echo_delay_ms": None}, "were not heard", "keep_awake_dbfs"),
        ({"false_starts": 0},),
        ({"false_starts": 2, "quiet_threshold": 0.7}, "endpointing.speech_threshold to 0.7"),
        ({"false_starts": 2}, "at any threshold"),
        ({"false_starts": 2, "robot": "moved"}, "robot.moves to false"),
    ],
)
def test_advice(row: tuple[dict[str, object], *tuple[str, ...]]) -> None:
    changed, *words = row
    advice = advise(replace(TESTED, **changed))  # type: ignore[arg-type]
    assert len(advice) == len(words)
    assert all(each in line for each, line in zip(words, advice, strict=True))
