"""A user's systemd service."""

from __future__ import annotations

import getpass
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import ReachyVoiceError

NAME = "reachy-voice.service"
POINTLESS = ("2", "3", "4", "5", "16", "SIGILL")
"""Exit codes and signals after which the next start would fail alike: usage, settings, weights,
packages, another processor."""
WITHOUT_SYSTEMD_FIX = "Let this system start `reachy-voice serve` by its own means"
MANAGER_FIX = "Log in as this user, not through su or sudo; then run this again"

UNIT = """\
# Written by `reachy-voice service install`, which replaces it.
# For changes of your own: systemctl --user edit reachy-voice
[Unit]
Description=reachy-voice, a voice for a robot
# It is never given up: a model behind a URL may come back at any time.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={command}
WorkingDirectory=-{folder}
{variables}# Keys of servers and other variables, one NAME=VALUE a line.
EnvironmentFile=-{environment}
WatchdogSec=30
Restart=on-failure
RestartSec=3
RestartPreventExitStatus={pointless}
# The server asks for more time, again and again, while its engines start.
TimeoutStartSec=60
TimeoutStopSec={stop_s}
UMask=0077
RuntimeDirectory=reachy-voice
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
KeyringMode=private
{sandbox}
[Install]
WantedBy=default.target
"""
SANDBOX = """\
PrivateUsers=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={writable}
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
CapabilityBoundingSet=
"""
"""Needs user namespaces and more, which some systems, and many containers, deny. ProtectClock is
left out: before systemd 253 it also denies a root's service all devices, such as a GPU. The other
lines protect the clock."""


NO_SUCH_PROGRAM = 127


class ServiceError(ReachyVoiceError):
    """The service cannot be installed or removed, or it does not run."""

    exit_code = 24


@dataclass(frozen=True)
class ServiceStart:
    """How the service starts the server."""

    command: Sequence[str]
    folder: Path = Path("/")
    """Its working directory, where relative paths in its options start."""
    variables: Mapping[str, str] = field(default_factory=dict)
    writable: Sequence[Path] = ()
    """Folders that the server writes to."""
    stop_s: int = 60
    """How long it may take to end."""


def unit(start: ServiceStart, environment: Path, *, sandbox: bool = True) -> str:
    """The text of the unit file. ``environment``: the file of variables."""
    folders = " ".join(_quote(f"-{folder}") for folder in start.writable)
    variables = (_quote(f"{name}={value}") for name, value in start.variables.items())
    return UNIT.format(
        command=" ".join(_quote(word, of_command=True) for word in start.command),
        folder=str(start.folder).replace("%", "%%"),
        variables="".join(f"Environment={variable}\n" for variable in variables),
        environment=str(environment).replace("%", "%%"),
        pointless=" ".join(POINTLESS),
        stop_s=start.stop_s,
        sandbox=SANDBOX.format(writable=folders) if sandbox else "",
    )


def _quote(word: str, *, of_command: bool = False) -> str:
    word = word.replace("%", "%%")
    if of_command:
        word = word.replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class SystemdService:
    """``reachy-voice.service`` of the user who runs this."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        base = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        self.file = base / "systemd" / "user" / NAME
        self.environment = base / "reachy-voice" / "environment"

    def install(self, start: ServiceStart) -> list[str]:
        """Write the unit, and start it now and with the machine. Returns lines for the owner.
        Raises ``ServiceError``."""
        # Before anything is written: without a manager there is nothing to install into.
        self._systemctl("show-environment")
        sandbox = self._has_sandboxes()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(unit(start, self.environment, sandbox=sandbox))
        self._systemctl("daemon-reload")
        self._systemctl("enable", NAME)
        self._systemctl("restart", "--no-block", NAME)
        notes = [f"Installed {self.file}", "What it says: journalctl --user -u reachy-voice -f"]
        if not sandbox:
            notes.append("This system denies users' sandboxes: the file system is not protected.")
        return [*notes, *self._linger()]

    def status(self) -> list[str]:
        """Returns lines for the owner. Raises ``ServiceError`` unless it runs."""
        if not self.file.exists():
            raise ServiceError("There is no service", fix="Run: reachy-voice service install")
        properties = "--property=ActiveState,SubState,Result,StatusText,NRestarts,ExecMainStatus"
        output = self._systemctl("show", properties, NAME)
        values = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        state, restarts = values["ActiveState"], values["NRestarts"]
        if state == "inactive":
            raise ServiceError(
                "The service is stopped", fix="Run: systemctl --user start reachy-voice"
            )
        if state == "failed" or values["SubState"] == "auto-restart":
            again = "will be started again" if state != "failed" else "is not started again"
            code = values["ExecMainStatus"]
            raise ServiceError(
                f"The service failed and {again}, after {restarts} restarts",
                why=f"systemd says {values['Result']}; the server's exit code or signal was {code}",
                fix="See journalctl --user -u reachy-voice -e",
            )
        text = f": {values['StatusText']}" if values["StatusText"] else ""
        return [f"{state}{text}; restarted {restarts} times", *self._linger()]

    def remove(self) -> list[str]:
        """Stop it and delete the unit. Keys, settings and weights stay."""
        if not self.file.exists():
            return ["There is no service."]
        self._systemctl("disable", "--now", NAME)
        self.file.unlink()
        self._systemctl("daemon-reload")
        self._ask("systemctl", "--user", "reset-failed", NAME)
        return [f"Removed {self.file}"]

    def _systemctl(self, *arguments: str) -> str:
        """Run ``systemctl`` and return its output. Raises ``ServiceError`` if it fails."""
        command = ("systemctl", "--user", *arguments)
        code, output = self._ask(*command)
        if code:
            why = output or f"exit code {code}"
            fix = WITHOUT_SYSTEMD_FIX if code == NO_SUCH_PROGRAM else MANAGER_FIX
            raise ServiceError(f"{' '.join(command)} failed", why=why, fix=fix)
        return output

    def _ask(self, *command: str) -> tuple[int, str]:
        """Run a command: exit code and output; 127 if there is no such program."""
        try:
            process = subprocess.run(
                command,
                env=dict(self.environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            return NO_SUCH_PROGRAM, f"{command[0]} is not installed"
        return process.returncode, process.stdout.strip()

    def _has_sandboxes(self) -> bool:
        probe = ["--user", "--wait", "--quiet", "--collect"]
        probe += [f"--property={line}" for line in SANDBOX.format(writable="-/tmp").splitlines()]
        return self._ask("systemd-run", *probe, "true")[0] == 0

    def _linger(self) -> list[str]:
        user = self.environ.get("USER") or getpass.getuser()
        _, output = self._ask("loginctl", "show-user", user, "--property=Linger")
        if output == "Linger=yes":
            return []
        return [
            "It starts when you log in and ends when you log out. To start with the machine:",
            f"    sudo loginctl enable-linger {user}",
        ]
