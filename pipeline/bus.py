"""The bus: delivers a session's observable events, in order, to its readers.

It stamps each event with the running loop's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from pipeline.events import Event

log = logging.getLogger("reachy_voice.bus")


class Published(NamedTuple):
    """An event and when it was published, in seconds of the loop's clock."""

    at: float
    event: Event


class SlowSubscriber(Exception):
    """A subscriber fell so far behind that it must be dropped."""


class Subscription:
    """One reader of the bus: ``async for at, event in subscription``. With more than ``capacity``
    unread events it raises ``SlowSubscriber``."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._unread: deque[Published] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._overflowed = False

    def offer(self, published: Published) -> None:
        if self._closed or self._overflowed:
            return
        if len(self._unread) >= self._capacity:
            self._overflowed = True
            self._unread.clear()
        else:
            self._unread.append(published)
        self._wake.set()

    def close(self) -> None:
        """Let the reader finish what is unread, then end its loop."""
        self._closed = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Published]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._overflowed:
                raise SlowSubscriber(f"more than {self._capacity} unread events")
            if self._closed:
                return
            self._wake.clear()
            await self._wake.wait()


class Bus:
    """Carries one session's events to every subscriber, in order, without waiting for any."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._listeners: list[Callable[[Published], None]] = []
        self._derive: Callable[[float, Event], Iterable[Event]] = lambda at, event: ()

    def derive(self, fold: Callable[[float, Event], Iterable[Event]]) -> None:
        """Have ``fold`` see every event first; the events it returns are published before it."""
        self._derive = fold

    def subscribe(self, capacity: int = 8192) -> Subscription:
        subscription = Subscription(capacity)
        self._subscriptions.append(subscription)
        self._listeners.append(subscription.offer)
        return subscription

    def tap(self, listener: Callable[[Published], None]) -> None:
        """Call ``listener`` with every event, at once. It must be quick. Its exceptions are logged
        and reach neither the publisher nor other listeners."""
        self._listeners.append(listener)

    def publish(self, event: Event) -> None:
        at = asyncio.get_running_loop().time()
        derived: tuple[Event, ...] = ()
        try:
            derived = tuple(self._derive(at, event))
        except Exception:
            log.exception("deriving events from %s failed", type(event).__name__)
        for published in (*derived, event):
            for listener in self._listeners:
                try:
                    listener(Published(at, published))
                except Exception:
                    log.exception("a listener failed to handle %s", type(published).__name__)

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
