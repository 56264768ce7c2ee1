"""A launch agent, on a Mac. Not yet run on one."""

from __future__ import annotations

import os
import plistlib
from collections.abc import Mapping
from pathlib import Path

from app.service.errors import ServiceError
from app.service.programs import ask, do
from app.service.start import Start

LABEL = "reachy-voice"


def agent(start: Start, log: Path) -> bytes:
    """The property list."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(start.command),
            "WorkingDirectory": str(start.folder),
            "EnvironmentVariables": dict(start.variables),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ProcessType": "Interactive",
            "Umask": 0o077,
            "ExitTimeOut": start.stop_s,
            "StandardErrorPath": str(log),
        }
    )


class LaunchAgent:
    """The agent of the user who runs this."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        library = Path("~/Library").expanduser()
        self.file = library / "LaunchAgents" / f"{LABEL}.plist"
        self.log = library / "Logs" / f"{LABEL}.log"
        self.domain = f"gui/{os.getuid()}"

    def install(self, start: Start) -> list[str]:
        """Write the agent, and start it now and at each log-in. Raises ``ServiceError``."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(agent(start, self.log))
        self._launchctl("bootout", f"{self.domain}/{LABEL}")  # an older one, if there is one
        do(self.environ, "launchctl", "bootstrap", self.domain, str(self.file), fix="Log in first")
        return [f"Installed {self.file}", f"What it says: tail -f {self.log}"]

    def status(self) -> list[str]:
        """Lines for the owner. Raises ``ServiceError`` unless it runs."""
        code, said = self._launchctl("print", f"{self.domain}/{LABEL}")
        if code or "state = running" not in said:
            fix = f"See {self.log}" if self.file.exists() else "Run: reachy-voice service install"
            raise ServiceError("The service does not run", fix=fix)
        return ["running"]

    def remove(self) -> list[str]:
        """Stop it and delete the agent. Keys, settings and weights stay."""
        self._launchctl("bootout", f"{self.domain}/{LABEL}")
        self.file.unlink(missing_ok=True)
        return [f"Removed {self.file}"]

    def _launchctl(self, *arguments: str) -> tuple[int, str]:
        return ask(self.environ, "launchctl", *arguments)
