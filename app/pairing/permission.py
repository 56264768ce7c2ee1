"""The robot on the owner's list, for as long as the pairing may still fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from app.access import Network, parse_address, parse_network
from app.access_file import AccessFile, AccessFileError, AccessList

T = TypeVar("T")

NOTE = "Reachy Mini, by reachy-voice pair"


@asynccontextmanager
async def allowed(
    file: AccessFile,
    address: str,
    in_settings: Sequence[str],
    on_undone: Callable[[], None] = lambda: None,
) -> AsyncIterator[bool]:
    """Let ``address`` connect; gives whether it could not before. An error or a cancellation
    inside takes a new permission back. Raises ``AccessFileError``."""
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
        with suppress(AccessFileError):
            if await to_end(changing):
                remove = partial(AccessList.without_address, network=network)
                await to_end(asyncio.to_thread(file.change, remove))
                on_undone()
        raise


def covered(network: Network, allowed: Sequence[Network]) -> bool:
    """Whether somebody has let it in already."""
    address = parse_address(str(network.network_address))
    return any(address in other for other in allowed)


async def to_end(work: Awaitable[T]) -> T:
    """Wait for it, however often somebody cancels meanwhile: it is bounded, and half of it is worse
    than waiting. For the undoing after a first cancellation, which goes on afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()
