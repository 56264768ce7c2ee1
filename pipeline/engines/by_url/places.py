"""Limits one server's concurrent requests; the most urgent waiting request goes next.

Confirmed work goes before speculative work, speculative work before reading ahead. Among equals,
the client with the fewest places goes first, then the oldest request.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

from pipeline.work import Cancelled, Work


class _Waiter:
    def __init__(self, work: Work, turn: int) -> None:
        self.work = work
        self.turn = turn
        self.place: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def changed(self, work: Work) -> None:
        if work.cancelled and not self.place.done():
            self.place.set_exception(Cancelled())


class Places:
    """The places of one engine. Used on the event loop only."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._places: Counter[int] = Counter()
        """Places held by each client; clients without a place are absent."""
        self._waiters: list[_Waiter] = []
        self._turns = itertools.count()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def take(self, work: Work) -> None:
        """Wait for a place, to be returned by ``give_back``. Raises ``Cancelled`` if the work is
        cancelled."""
        if work.cancelled:
            raise Cancelled
        if self._free > 0:
            self._hand_over(work)
            return
        waiter = _Waiter(work, next(self._turns))
        self._waiters.append(waiter)
        work.watch(waiter, waiter.changed)
        try:
            await waiter.place
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:  # it got the place just as its task was cancelled
                self.give_back(work)
            raise
        finally:
            work.unwatch(waiter)

    def give_back(self, work: Work) -> None:
        self._free += 1
        self._places[work.client] -= 1
        if not self._places[work.client]:
            del self._places[work.client]
        self._serve()

    def resize(self, count: int) -> None:
        """Change the limit. Places already held stay held."""
        self._free += count - self._count
        self._count = count
        self._serve()

    def _serve(self) -> None:
        while self._free > 0:
            ready = [waiter for waiter in self._waiters if not waiter.place.done()]
            if not ready:
                return
            waiter = min(ready, key=self._urgency)
            self._waiters.remove(waiter)
            self._hand_over(waiter.work)
            waiter.place.set_result(None)

    def _hand_over(self, work: Work) -> None:
        self._free -= 1
        self._places[work.client] += 1

    def _urgency(self, waiter: _Waiter) -> tuple[int, int, int]:
        """The lowest is served first."""
        return int(waiter.work.priority), self._places[waiter.work.client], waiter.turn
