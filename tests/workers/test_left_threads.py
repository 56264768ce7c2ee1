"""A process whose engines were still being built when it was to end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

_LEFT = """
import asyncio, sys
sys.path[:] = sys.argv[1:]
import tests.workers.test_worker_ends as told
from pipeline.workers.placements import leave_now_if_threads_were_left
from pipeline.workers.placements import InlineWorker

async def main():
    running = asyncio.create_task(
        InlineWorker(told.spec(told.build_for_ever), told.Options(), None).run(lambda: None)
    )
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})

asyncio.run(main())
sys.stdout.write("said")
leave_now_if_threads_were_left(7)
raise SystemExit("there was one")
"""


async def test_a_process_with_threads_left_ends_at_once_and_says_what_it_had_to() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _LEFT, *sys.path), stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(20):
        said, stderr = await process.communicate()
    assert (process.returncode, said) == (7, b"said"), stderr.decode()
