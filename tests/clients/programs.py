"""Runs a client program against a scripted server and reads its reports."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.engines import LEVELS, STORY, TIME, WAIT, WEATHER
from tests.clients.python.common import Report
from tests.clients.serving import Served, Wire

TURNS = ("voice", "push_to_talk", "text", "tool", "barge_in")
TURN_LIMIT_S = 30.0
PROGRAM_LIMIT_S = 50.0
_NAMES = {TIME: "time", WEATHER: "weather", STORY: "story", WAIT: "wait"}


@dataclass
class Held:
    """All turns of one client, as the client and the server saw them."""

    reports: dict[str, Report]
    wires: list[Wire]
    stderr: str

    def report(self, turn: str) -> Report:
        assert turn in self.reports, f"no report of {turn}; the program said:\n{self.stderr}"
        report = self.reports[turn]
        assert report.failure is None, f"{report}\n{self.stderr}"
        return report


async def hold_turns(served: Served, command: Sequence[str | Path], cwd: Path) -> Held:
    """Run the program until it has done every turn."""
    plan = {
        "url": served.url,
        "levels": {_NAMES[phrase]: level for level, phrase in LEVELS.items()},
        "limit_s": TURN_LIMIT_S,
    }
    arguments = [str(part) for part in (*command, json.dumps(plan))]
    # The program gets no proxy and no key from this machine.
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=cwd, stdout=PIPE, stderr=PIPE, env=environment
    )
    try:
        async with asyncio.timeout(PROGRAM_LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    reports = [Report(**json.loads(line)) for line in out.decode().splitlines() if line[:1] == "{"]
    by_turn = {report.turn: report for report in reports}
    return Held(by_turn, list(served.wires), err.decode()[-4000:])
