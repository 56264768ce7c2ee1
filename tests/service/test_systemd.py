"""The systemd service: its unit, and what is asked of systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from app.cli import service as service_command
from app.service.errors import ServiceError
from app.service.systemd import NAME, SystemdService, unit
from tests.support.commands import run

ANALYZE = shutil.which("systemd-analyze")
MANAGER = """#!/bin/sh
echo "$(basename "$0") $*" >> {calls}
{answers}
"""


class FakeSystem:
    """Programs of systemd that note how they are called, and answer as told."""

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
    notes = service(system).install(["/opt/reachy-voice", "serve", "--lan"], [Path("/cache")])
    written = (system.home / "config/systemd/user" / NAME).read_text()
    assert "ExecStart=/opt/reachy-voice serve --lan\n" in written
    assert "ReadWritePaths=-/cache\n" in written
    assert [call for call in system.calls() if call.startswith("systemctl")] == [
        "systemctl --user show-environment",
        "systemctl --user daemon-reload",
        f"systemctl --user enable {NAME}",
        f"systemctl --user restart --no-block {NAME}",
    ]
    assert "    sudo loginctl enable-linger robin" in notes


def test_who_lingers_is_not_told_to(system: FakeSystem) -> None:
    system.answers("loginctl", "echo Linger=yes")
    assert "enable-linger" not in " ".join(service(system).install(["/x"], []))


def test_without_a_manager_nothing_is_written(system: FakeSystem) -> None:
    system.answers("systemctl", "echo Failed to connect to bus; exit 1")
    with pytest.raises(ServiceError, match="show-environment failed") as caught:
        service(system).install(["/x"], [])
    assert caught.value.why == "Failed to connect to bus"
    assert not service(system).file.exists()


def test_without_systemd(system: FakeSystem) -> None:
    (system.bin / "systemctl").unlink()
    with pytest.raises(ServiceError) as caught:
        service(system).install(["/x"], [])
    assert caught.value.why == "systemctl is not installed"


def test_where_user_namespaces_are_denied_it_runs_without(system: FakeSystem) -> None:
    system.answers("systemd-run", "exit 1")
    notes = service(system).install(["/x"], [Path("/cache")])
    written = service(system).file.read_text()
    assert "PrivateUsers" not in written
    assert "NoNewPrivileges=yes" in written
    assert any("user namespaces" in note for note in notes)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("ActiveState=active\\nStatusText=serving\\nNRestarts=2", "active: serving; restarted 2"),
        ("ActiveState=activating\\nStatusText=\\nNRestarts=0", "activating; restarted 0"),
    ],
)
def test_status(system: FakeSystem, shown: str, told: str) -> None:
    service(system).install(["/x"], [])
    system.answers("systemctl", f"printf '{shown}\\n'")
    assert service(system).status()[0].startswith(told)


def test_status_says_why_it_does_not_run(system: FakeSystem) -> None:
    with pytest.raises(ServiceError, match="There is no service"):
        service(system).status()
    service(system).install(["/x"], [])
    system.answers("systemctl", "printf 'ActiveState=failed\\nExecMainStatus=4\\n'")
    with pytest.raises(ServiceError, match="is failed") as caught:
        service(system).status()
    assert "exit code was 4" in caught.value.why


def test_remove_leaves_nothing_of_it(system: FakeSystem) -> None:
    service(system).install(["/x"], [])
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
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my own.yaml").write_text("extends: default\n")
    options = ("--config", "./my own.yaml", "--set", "tts.engine=espeak-ng", "--port", "9000")
    code, printed = run(capsys, "service", "install", *options)
    assert code == 0, printed
    written = service(system).file.read_text()
    served = f'serve --config "{tmp_path}/my own.yaml" --set tts.engine=espeak-ng --port 9000\n'
    assert served in written
    assert f"-{system.home}/config/reachy-voice" in written
    assert run(capsys, "service", "remove")[0] == 0
    assert run(capsys, "service", "status")[0] == 24


def test_words_of_the_command_reach_the_server_as_they_are() -> None:
    written = unit(["/a b/x", "100%", "$HOME", 'say "hi"', "back\\slash"], [], Path("/env"))
    assert r'ExecStart="/a b/x" 100%% $$HOME "say \"hi\"" "back\\slash"' in written


@pytest.mark.skipif(ANALYZE is None, reason="needs the Debian package systemd")
class TestBySystemd:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / NAME
        file.write_text(unit(["/bin/true", "serve"], [tmp_path], tmp_path / "environment"))
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
