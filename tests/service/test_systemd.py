"""The systemd service: its unit, and the calls to systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import service as service_command
from app.service.systemd import NAME, ServiceError, ServiceStart, SystemdService, unit
from pipeline.errors import WrongProcessor
from tests.support.commands import run

pytestmark = pytest.mark.machine

ANALYZE = shutil.which("systemd-analyze")
MANAGER = """#!/bin/sh
echo "$(basename "$0") $*" >> {calls}
{answers}
"""


START = ServiceStart(["/x"], writable=[Path("/cache")])


class FakeSystem:
    """Fake programs of systemd that record their calls and answer as told."""

    def __init__(self, folder: Path) -> None:
        self.home, self.bin, self.noted = folder / "home", folder / "bin", folder / "calls"
        self.bin.mkdir()
        for name in ("systemctl", "systemd-run"):
            self.answers(name, "exit 0")
        self.answers("loginctl", "echo Linger=no")
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home), "USER": "robin"}
        self.environ["XDG_CONFIG_HOME"] = str(self.home / "config")

    def answers(self, name: str, shell: str) -> None:
        program = self.bin / name
        text = MANAGER.format(calls=self.noted, answers=shell).replace('$(basename "$0")', name)
        program.write_text(text)
        program.chmod(0o755)

    def calls(self) -> list[str]:
        return self.noted.read_text().splitlines() if self.noted.exists() else []


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    fake = FakeSystem(tmp_path)
    for name, value in fake.environ.items():
        monkeypatch.setenv(name, value)
    return fake


def service(system: FakeSystem) -> SystemdService:
    return SystemdService(system.environ)


def test_install_starts_it_now_and_with_the_machine(system: FakeSystem) -> None:
    notes = service(system).install(
        ServiceStart(["/opt/reachy-voice", "serve", "--lan"], writable=[Path("/cache")], stop_s=90)
    )
    written = (system.home / "config/systemd/user" / NAME).read_text()
    assert "ExecStart=/opt/reachy-voice serve --lan\n" in written
    assert "ReadWritePaths=-/cache\n" in written
    assert "TimeoutStopSec=90\n" in written
    assert [call for call in system.calls() if call.startswith("systemctl")] == [
        "systemctl --user show-environment",
        "systemctl --user daemon-reload",
        f"systemctl --user enable {NAME}",
        f"systemctl --user restart --no-block {NAME}",
    ]
    assert "    sudo loginctl enable-linger robin" in notes


def test_a_lingering_user_gets_no_advice_to_linger(system: FakeSystem) -> None:
    system.answers("loginctl", "echo Linger=yes")
    assert "enable-linger" not in " ".join(service(system).install(START))


def test_without_a_manager_nothing_is_written(system: FakeSystem) -> None:
    system.answers("systemctl", "echo Failed to connect to bus; exit 1")
    with pytest.raises(ServiceError, match="show-environment failed") as caught:
        service(system).install(START)
    assert caught.value.why == "Failed to connect to bus"
    assert not service(system).file.exists()


def test_without_systemd(system: FakeSystem) -> None:
    (system.bin / "systemctl").unlink()
    with pytest.raises(ServiceError) as caught:
        service(system).install(START)
    assert caught.value.why == "systemctl is not installed"
    assert "log in" not in caught.value.fix.lower()


@pytest.mark.parametrize("command", ["install", "status", "remove"])
def test_on_a_mac_it_names_the_alternative(
    system: FakeSystem,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    code, printed = run(capsys, "service", command)
    assert code == 24
    assert "There is no service on a Mac" in printed
    assert "login item" in printed
    assert "launchctl" not in printed
    assert not system.home.exists()


def test_on_a_mac_it_says_how_to_remove_the_agent_of_version_0_2(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    agent = system.home / "Library/LaunchAgents/reachy-voice.plist"
    agent.parent.mkdir(parents=True)
    agent.touch()
    _, printed = run(capsys, "service", "remove")
    assert "launchctl bootout gui/$UID/reachy-voice" in printed


def test_it_runs_without_a_sandbox_if_denied(system: FakeSystem) -> None:
    system.answers("systemd-run", "exit 1")
    notes = service(system).install(START)
    written = service(system).file.read_text()
    assert "PrivateUsers" not in written
    assert "NoNewPrivileges=yes" in written
    assert any("sandboxes" in note for note in notes)
    (probe,) = (call for call in system.calls() if call.startswith("systemd-run"))
    assert "ProtectKernelTunables=yes" in probe


SHOWN = {"Result": "success", "StatusText": "", "NRestarts": "0", "ExecMainStatus": "0"}


def shows(system: FakeSystem, state: str, sub_state: str, **more: str) -> None:
    found = {"ActiveState": state, "SubState": sub_state, **SHOWN, **more}
    lines = "".join(f"{name}={value}\\n" for name, value in found.items())
    system.answers("systemctl", f"printf '{lines}'")


@pytest.mark.parametrize(
    ("state", "sub_state", "text", "told"),
    [
        ("active", "running", "serving", "active: serving; restarted 2 times"),
        ("activating", "start", "", "activating; restarted 2 times"),
    ],
)
def test_status(system: FakeSystem, state: str, sub_state: str, text: str, told: str) -> None:
    service(system).install(START)
    shows(system, state, sub_state, StatusText=text, NRestarts="2")
    assert service(system).status()[0] == told


def test_status_without_a_service(system: FakeSystem) -> None:
    with pytest.raises(ServiceError, match="There is no service"):
        service(system).status()


def test_status_says_how_to_start_it(system: FakeSystem) -> None:
    service(system).install(START)
    shows(system, "inactive", "dead")
    with pytest.raises(ServiceError, match="is stopped") as caught:
        service(system).status()
    assert "systemctl --user start reachy-voice" in caught.value.fix


@pytest.mark.parametrize(
    ("state", "sub_state", "told"),
    [
        ("failed", "failed", "is not started again, after 3 restarts"),
        ("activating", "auto-restart", "will be started again, after 3 restarts"),
    ],
)
def test_status_says_why_it_does_not_run(
    system: FakeSystem, state: str, sub_state: str, told: str
) -> None:
    service(system).install(START)
    shows(system, state, sub_state, Result="watchdog", ExecMainStatus="6", NRestarts="3")
    with pytest.raises(ServiceError, match=told) as caught:
        service(system).status()
    assert "watchdog" in caught.value.why
    assert "signal was 6" in caught.value.why


def test_status_without_a_manager(system: FakeSystem) -> None:
    service(system).install(START)
    system.answers("systemctl", "echo Failed to connect to bus; exit 1")
    with pytest.raises(ServiceError) as caught:
        service(system).status()
    assert caught.value.why == "Failed to connect to bus"


def test_installing_again_replaces_the_unit_and_starts_it_again(system: FakeSystem) -> None:
    for path in ("/old", "/new"):
        service(system).install(ServiceStart([path]))
    assert "ExecStart=/new\n" in service(system).file.read_text()
    assert system.calls().count(f"systemctl --user restart --no-block {NAME}") == 2


def test_remove_leaves_nothing(system: FakeSystem) -> None:
    service(system).install(START)
    service(system).remove()
    assert not service(system).file.exists()
    assert f"systemctl --user disable --now {NAME}" in system.calls()
    before = len(system.calls())
    assert service(system).remove() == ["There is no service."]
    assert len(system.calls()) == before


def test_the_command_passes_on_how_to_serve(
    system: FakeSystem,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_command.sys, "platform", "linux")
    folder = tmp_path / "my folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setenv("REACHY_VOICE__LIMITS__IDLE_S", "60")
    (folder / "my own.yaml").write_text("server: {conversations_dir: shared, finish_s: 100}\n")
    options = ("--config", "./my own.yaml", "--set", "llm.saved_prefix_dir=read", "--port", "9000")
    code, printed = run(capsys, "service", "install", *options, "--wyoming")
    assert code == 0, printed
    written = service(system).file.read_text()
    assert f'serve --config "{folder}/my own.yaml" --set llm.saved_prefix_dir=read ' in written
    assert " --port 9000 --wyoming\n" in written
    assert f"WorkingDirectory=-{folder}\n" in written
    assert f'Environment="XDG_CACHE_HOME={tmp_path}/my cache"\n' in written
    for place in (tmp_path / "my cache/reachy-voice", folder / "shared", folder / "read"):
        assert place.is_dir()
        assert f'"-{place}"' in written
    assert f"-{system.home}/config/reachy-voice" in written
    assert "TimeoutStopSec=165\n" in written
    assert "does not see REACHY_VOICE__" in printed
    assert run(capsys, "service", "remove")[0] == 0
    assert run(capsys, "service", "status")[0] == 24


def test_a_server_that_cannot_start_is_not_installed(
    system: FakeSystem,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_command.sys, "platform", "linux")
    assert run(capsys, "service", "install", "--port", "99999")[0] == 2
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, printed = run(capsys, "service", "install")
    assert code == ServiceError.exit_code
    assert f"Not a directory: '{tmp_path}/file/reachy-voice'" in printed
    assert not service(system).file.exists()


def test_arguments_reach_the_server_unchanged() -> None:
    words = ["/a b/x", "100%", "$HOME", 'say "hi"', "back\\slash", "two\nlines"]
    written = unit(ServiceStart(words), Path("/env"))
    quoted = r'ExecStart="/a b/x" 100%% $$HOME "say \"hi\"" "back\\slash" "two\nlines"'
    assert f"{quoted}\n" in written


def test_a_server_for_another_processor_is_not_restarted() -> None:
    (line,) = re.findall("^RestartPreventExitStatus=(.+)$", unit(START, Path("/env")), re.M)
    assert {str(WrongProcessor.exit_code), "SIGILL"} <= set(line.split())


@pytest.mark.skipif(ANALYZE is None, reason="needs the Debian package systemd")
class TestBySystemd:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        folder = tmp_path / "with spaces"
        folder.mkdir()
        program = folder / "reachy-voice"
        program.symlink_to("/bin/true")
        start = ServiceStart([str(program), "serve"], folder, {"PATH": f"{folder}:/bin"}, [folder])
        file = tmp_path / NAME
        file.write_text(unit(start, folder / "environment"))
        return file

    def analyze(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert ANALYZE is not None
        return subprocess.run(
            [ANALYZE, "--user", *arguments],
            env={**os.environ, "XDG_RUNTIME_DIR": "/tmp", "SYSTEMD_PAGER": "cat"},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_the_unit_is_valid(self, file: Path) -> None:
        done = self.analyze("verify", str(file))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    def test_its_exposure_is_at_most_4(self, file: Path) -> None:
        done = self.analyze("security", "--offline=true", "--threshold=40", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
