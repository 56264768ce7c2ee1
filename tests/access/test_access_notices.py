"""Console notices about refused clients."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.access.policy import Caller, Refusal, Rules, parse_address
from app.server.gate import LINE_EVERY_S, MAX_REMEMBERED, RefusalNotices, typed_command
from app.settings.load import load_settings

pytestmark = pytest.mark.quick

RULES = Rules()
ROBOT = Caller(parse_address("192.168.1.7"), hosts=("192.168.1.2",))
PAGE = replace(ROBOT, address=parse_address("192.168.1.66"), origins=("http://a.example",))


class Console:
    """The notices, their lines, and a clock."""

    def __init__(self) -> None:
        self.now = 50.0
        self.told: list[str] = []
        self.notices = RefusalNotices(self.told.append, now=lambda: self.now)

    def refuse(self, caller: Caller) -> list[str]:
        """The lines printed for this refusal."""
        before = len(self.told)
        verdict = RULES.decide(caller)
        assert isinstance(verdict, Refusal)
        self.notices.refused(verdict, caller)
        return self.told[before:]

    def strangers(self, number: int, first: int = 0) -> None:
        for n in range(first, first + number):
            self.refuse(Caller(parse_address(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}")))


@pytest.fixture
def console() -> Console:
    return Console()


def test_many_strangers_do_not_flood_the_console(console: Console) -> None:
    console.strangers(1_000)
    assert len(console.told) == 101
    assert "Many are refused" in console.told[-1]


def test_the_robot_is_still_reported_after_a_flood(console: Console) -> None:
    """As soon as it tries again, as robots do."""
    console.strangers(1_000)
    assert console.refuse(ROBOT) == []
    console.now += LINE_EVERY_S
    (line,) = console.refuse(ROBOT)  # mass refusals were already reported
    assert line.endswith("reachy-voice allow 192.168.1.7")
    assert console.refuse(ROBOT) == []
    console.now += 100 * LINE_EVERY_S
    console.strangers(200, first=1_000)
    assert len(console.told) == 101 + 1 + 101


def test_many_pages_of_one_stranger_do_not_silence_the_console(console: Console) -> None:
    for n in range(101):
        console.refuse(replace(PAGE, origins=(f"http://e{n}.example",)))
    assert len(console.told) == 11
    assert "allow 192.168.1.7" in console.refuse(ROBOT)[0]


def test_addresses_are_forgotten_in_time(console: Console) -> None:
    for n in range(MAX_REMEMBERED + 1):
        console.now += LINE_EVERY_S
        console.strangers(1, first=n)
        console.refuse(ROBOT)  # it keeps trying
    console.now += LINE_EVERY_S
    assert console.refuse(ROBOT) == []
    assert console.refuse(Caller(parse_address("10.0.0.0")))


def test_an_allowed_proxy_is_told_to_use_a_key(console: Console) -> None:
    proxied = replace(ROBOT, forwarded=True)
    (line,) = console.refuse(proxied)
    assert "through a proxy" in line
    assert "key new NAME" in line
    console.notices.admitted(replace(proxied, keys=(b"good",)))
    assert console.refuse(proxied) == []


# --- what is typed -----------------------------------------------------------------------------


def test_the_command_changes_the_list_that_the_server_reads(tmp_path: Path) -> None:
    plain = load_settings(None, (), {}).settings
    assert typed_command(plain, "allow 192.168.1.7") == "reachy-voice allow 192.168.1.7"
    config = tmp_path / "my config.yaml"
    config.write_text("paths: {access_file: mine.json}\n")
    own = load_settings(str(config), (), {}).settings
    typed = typed_command(own, "allow 192.168.1.7")
    path = tmp_path / "mine.json"
    assert typed == f"reachy-voice allow 192.168.1.7 --set paths.access_file={path}"


def test_the_command_can_be_typed_where_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv" / "bin" / "reachy-voice"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = load_settings(None, (), {}).settings
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed_command(settings, "key list") == ".venv/bin/reachy-voice key list"
    monkeypatch.chdir("/")
    assert typed_command(settings, "key list") == f"{str(program)[1:]} key list"
    monkeypatch.chdir(program.parent)
    assert typed_command(settings, "key list") == "./reachy-voice key list"
    monkeypatch.setenv("PATH", str(program.parent))
    assert typed_command(settings, "key list") == "reachy-voice key list"
