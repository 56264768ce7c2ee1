"""Programs that tests run in the background."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

START_LIMIT_S = 60.0


@dataclass
class Program:
    process: Process
    lines: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Its output line by line; an empty line means the end."""

    async def until(self, text: str) -> str:
        """The next line that contains ``text``; fails if the program ends first."""
        said: list[str] = []
        while text not in (line := await self.lines.get()):
            said.append(line)
            if not line:
                raise AssertionError(f"it ended before {text!r}:\n{''.join(said)}")
        return line

    def forget(self) -> None:
        """Discard the output so far."""
        while not self.lines.empty():
            self.lines.get_nowait()

    async def kill(self) -> None:
        """Kill it at once, as a power cut would."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def read(self) -> None:
        output = self.process.stdout
        assert output is not None
        while line := (await output.readline()).decode(errors="replace"):
            self.lines.put_nowait(line)
        self.lines.put_nowait("")


@asynccontextmanager
async def running(*command: str, ready: str, **options: Any) -> AsyncIterator[Program]:
    """A program that has printed ``ready``; killed when the context ends."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, **options
    )
    program = Program(process)
    reading = asyncio.create_task(program.read())
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await program.until(ready)
        yield program
    finally:
        await program.kill()
        await reading
