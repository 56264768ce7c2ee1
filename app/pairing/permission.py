"""The robot on the owner's list, for as long as the pairing may still fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TypeVar

from app.access.file import AccessFile, AccessFileError, AccessList
from app.access.policy import Network, parse_address, parse_network
from app.file_lock import locked
from app.pairing.steps import PairError

T = TypeVar("T")

NOTE = "Reachy Mini, by reachy-voice pair"


@contextmanager
def alone(file: AccessFile) -> Iterator[None]:
    """No other pairing with this list goes on: each would undo what the other one has done. Raises
    ``PairError``."""

    def busy() -> None:
        what = "Another reachy-voice pair is at work on this machine"
        raise PairError(what, fix="Wait until it has ended, then pair again")

    with ExitStack() as held:
        with suppress(OSError):  # whoever has to write the list is told why that does not go
            file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(locked(file.path.with_name("pair.lock"), busy))
        yield


@asynccontextmanager
async def allowed(
    file: AccessFile,
    address: str,
    in_settings: Sequence[str],
    on_undone: Callable[[AccessFileError | None], None] = lambda error: None,
) -> AsyncIterator[bool]:
    """Let ``address`` connect; gives whether it could not before. An error or a cancellation
    inside takes a new permission back; ``on_undone`` is told if that failed. Raises
    ``AccessFileError``."""
    network = parse_network(address)

    def add() -> bool:
        new = False

        def edit(known: AccessList) -> AccessList:
            nonlocal new
            new = not covered(network, [*known.networks(), *map(parse_network, in_settings)])
            return known.with_address(network, NOTE) if new else known

        file.change(edit)
        return new

    changing = asyncio.ensure_future(asyncio.to_thread(add))
    try:
        yield await asyncio.shield(changing)
    except BaseException:
        # A thread that writes goes on when its caller is cancelled.
        if await _came_true(changing):
            remove = partial(AccessList.without_address, network=network)
            failed = None
            try:
                await to_end(asyncio.to_thread(file.change, remove))
            except AccessFileError as error:
                failed = error
            on_undone(failed)
        raise


async def _came_true(adding: Awaitable[bool]) -> bool:
    """Whether there is something to undo."""
    with suppress(AccessFileError):
        return await to_end(adding)
    return False


def covered(network: Network, allowed: Sequence[Network]) -> bool:
    """Whether it was admitted already."""
    address = parse_address(str(network.network_address))
    return any(address in other for other in allowed)


async def to_end(work: Awaitable[T]) -> T:
    """Wait for it, however often the task is cancelled meanwhile: it is bounded, and half of it is
    worse than waiting. For the undoing after a first cancellation, which goes on afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()
