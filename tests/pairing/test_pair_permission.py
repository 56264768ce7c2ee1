"""A permission for as long as the pairing may fail: whatever happens, none is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.access.file import AccessFile, AccessFileError, AccessList
from app.pairing.permission import NOTE, allowed, alone, to_end
from app.pairing.steps import PairError

ROBOT = "192.168.1.7"


class SlowFile(AccessFile):
    """Another command holds the lock until it is told to let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting = threading.Event()
        self.let_go = threading.Event()

    def change(self, edit: Callable[[AccessList], AccessList]) -> AccessList:
        self.waiting.set()
        self.let_go.wait()
        return super().change(edit)


@pytest.fixture
def file(tmp_path: Path) -> SlowFile:
    made = SlowFile(tmp_path / "access.json")
    made.let_go.set()
    return made


async def listed(file: AccessFile) -> list[tuple[str, str]]:
    known = await asyncio.to_thread(file.read)
    return [(entry.network, entry.note) for entry in known.addresses]


async def test_success_keeps_it(file: SlowFile) -> None:
    async with allowed(file, ROBOT, ()) as new:
        assert new
    assert await listed(file) == [(f"{ROBOT}/32", NOTE)]
    async with allowed(file, ROBOT, ()) as new:
        assert not new


async def test_an_error_takes_it_back_and_says_so(file: SlowFile) -> None:
    undone: list[AccessFileError | None] = []
    with pytest.raises(ZeroDivisionError):
        async with allowed(file, ROBOT, (), undone.append):
            raise ZeroDivisionError
    assert (await listed(file), undone) == ([], [None])


async def test_what_cannot_be_taken_back_is_said(file: SlowFile) -> None:
    undone: list[AccessFileError | None] = []

    async def fail() -> None:
        async with allowed(file, ROBOT, (), undone.append):
            await asyncio.to_thread(file.path.write_text, "{")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (error,) = undone
    assert isinstance(error, AccessFileError)


def test_one_pairing_at_a_time(file: SlowFile) -> None:
    """Else the one that fails takes back what the other one needs."""
    with alone(file):
        with pytest.raises(PairError) as refused, alone(AccessFile(file.path)):
            raise AssertionError("both are at work")
        assert refused.value.what == "Another reachy-voice pair is at work on this machine"
    with alone(file):
        pass


def test_a_read_only_folder_does_not_stop_pairing(tmp_path: Path) -> None:
    """A robot on this machine needs no list."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with alone(AccessFile(blocked / "access.json")):
        pass


async def test_the_settings_let_it_in_already(file: SlowFile) -> None:
    async with allowed(file, ROBOT, ("192.168.1.0/24",)) as new:
        assert not new
    assert await listed(file) == []


async def test_cancelled_while_the_list_is_written(file: SlowFile) -> None:
    """The thread cannot be stopped: what it writes after all is taken back."""
    file.let_go.clear()

    async def enter() -> None:
        async with allowed(file, ROBOT, ()):
            raise AssertionError("it was cancelled before")

    entering = asyncio.create_task(enter())
    await asyncio.to_thread(file.waiting.wait)
    entering.cancel()
    file.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert await listed(file) == []


async def test_a_list_that_cannot_be_read(file: SlowFile) -> None:
    await asyncio.to_thread(file.path.write_text, "{")
    with pytest.raises(AccessFileError):
        async with allowed(file, ROBOT, ()):
            raise AssertionError("nothing was allowed")


async def test_undoing_is_not_cut_short() -> None:
    release = asyncio.Event()
    done: list[bool] = []

    async def undo() -> None:
        await release.wait()
        done.append(True)

    undoing = asyncio.create_task(to_end(undo()))
    for _ in range(3):
        await asyncio.sleep(0)
        undoing.cancel()
    release.set()
    await undoing
    assert done == [True]
