"""The launch agent of a Mac: its property list, and what is asked of launchd."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest

from app.service.errors import ServiceError
from app.service.launchd import LaunchAgent
from app.service.start import Start
from tests.service.test_systemd import FakeSystem
from tests.service.test_systemd import system as system


@pytest.fixture
def agent(system: FakeSystem) -> LaunchAgent:
    system.answers("launchctl", "exit 0")
    return LaunchAgent(system.environ)


def test_install(system: FakeSystem, agent: LaunchAgent) -> None:
    agent.install(Start(["/opt/reachy-voice", "serve", "--lan"], variables={"PATH": "/opt/bin"}))
    written = plistlib.loads(agent.file.read_bytes())
    assert agent.file == system.home / "Library/LaunchAgents/reachy-voice.plist"
    assert written["ProgramArguments"] == ["/opt/reachy-voice", "serve", "--lan"]
    assert written["EnvironmentVariables"] == {"PATH": "/opt/bin"}
    assert written["RunAtLoad"] is True
    assert written["KeepAlive"] == {"SuccessfulExit": False}
    assert system.calls()[-1] == f"launchctl bootstrap {agent.domain} {agent.file}"


def test_status_and_remove(system: FakeSystem, agent: LaunchAgent) -> None:
    agent.install(Start(["/x"]))
    with pytest.raises(ServiceError) as caught:
        agent.status()
    assert str(agent.log) in caught.value.fix
    system.answers("launchctl", "echo '\tstate = running'")
    assert agent.status() == ["running"]
    agent.remove()
    assert not agent.file.exists()
    assert Path(agent.file).parent.exists()
