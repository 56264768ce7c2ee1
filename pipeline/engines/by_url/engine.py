"""One engine by URL; an assistant uses it in place of a worker.

``run`` waits until the server answers, then probes it: often while any engine by URL is in use, to
keep a connection open for the next request, and rarely otherwise. If a request finds the server
down, all requests fail at once, ``problem`` says why, and the server is probed at growing
intervals until it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from pipeline.engines.by_url.endpoint import ASLEEP_S, LOADING_S, Endpoint
from pipeline.engines.by_url.failures import (
    EngineAddress,
    Misconfiguration,
    ServerFailure,
    ServerLoading,
    ServerTimeout,
    loading,
)
from pipeline.engines.by_url.families import OPENAI, ProbeResult
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import HttpFailure, Pool
from pipeline.engines.by_url.probe import probe
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, Rejection, Unreachable
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.by_url")

AGAIN_S = (0.25, 0.5, 1.0, 2.0, 5.0)
"""Seconds between probes of a server that is down; the last one repeats."""
USED_S, USED_FOR_S = 4.0, 60.0
"""Seconds between probes of a server that was used in the last minute: uvicorn, which vLLM and most
speech servers use, closes a connection after 5 s without a request."""
UNUSED_S = 30.0
ASKS_TO_WAIT = "asks to wait"
"""Prefix of ``problem`` while requests only have to wait, such as for the server to load its model:
clients can still connect."""


class UrlEngine:
    """Each kind has a subclass, which adds what sessions call (``pipeline.engines.stages``)."""

    def __init__(self, kind: Kind, options: UrlOptions, pool: Pool) -> None:
        self.name = f"{kind} {options.engine}"
        self.server = ProbeResult(model=options.model or "")
        """The result of the last probe."""
        self.ready = asyncio.Event()
        """Set while it is ready."""
        self.on_absence: Callable[[], None] | None = None
        """Called if the server does not answer within ``start_s``; ``run`` then goes on waiting.
        Without a callback, that is an error."""
        self.place = EngineAddress(kind, options.url, options.key)
        self.endpoint = Endpoint(self.place, options, pool, self._doubt, self._note_loaded)
        self.options = options
        self.pool = pool
        self._closing = False
        self._life: asyncio.Timeout | None = None
        self._wake = asyncio.Event()
        self._doubtful = False
        """Whether a request has failed since the last probe."""
        self._looked_at = 0.0
        self._unproved = False
        """Whether only a request can tell that the server serves us."""
        self.problem = "is starting"

    @property
    def problem(self) -> str | None:
        """Why it is not ready, or ``None``."""
        return self._problem

    @problem.setter
    def problem(self, why: str | None) -> None:
        self._problem = self.endpoint.problem = why
        self.endpoint.loading = False
        if why:
            self.ready.clear()
        else:
            self.ready.set()

    async def warm_up(self) -> None:
        """Make the server load its model with a small request."""
        raise NotImplementedError

    async def run(self, ready: Callable[[], None]) -> None:
        """Wait for the server, call ``ready``, then watch it until ``close``. Raises
        ``EngineError`` if the server does not answer in time (see ``on_absence``) or does not
        match the settings."""
        try:
            # ``close`` expires this time-out, which ends any wait without a second task.
            async with asyncio.timeout(0 if self._closing else None) as self._life:
                await self._until_there()
                ready()
                self.pool.on_use.add(self._note_use)
                while True:
                    await self._pause(self._until_next_look_s())
                    if self._probe_is_due():
                        await self._look_again()
                    await self._keep_warm()
        except TimeoutError:
            if not self._closing:
                raise
        finally:
            self._life = None
            self.pool.on_use.discard(self._note_use)
            self.close()

    def close(self) -> None:
        """End all requests; ``run`` then returns."""
        self._closing = True
        self.problem = "is closed"
        self.endpoint.end(Cancelled())
        if self._life and not self._life.expired():
            self._life.reschedule(asyncio.get_running_loop().time())

    # -- looking

    async def _until_there(self) -> None:
        loop = asyncio.get_running_loop()
        began, looks, last_error, absent = loop.time(), 0, "", False
        while True:
            try:
                await self._look()
                await self._load_model()
                if absent:
                    log.info("the %s engine is there", self.name)
                return
            except EngineError as error:
                late = loop.time() - began >= self.options.start_s
                wrong = isinstance(error, Misconfiguration)
                if not absent and (wrong or (late and self.on_absence is None)):
                    raise
                if str(error) != last_error:
                    last_error = str(error)
                    log.warning("waiting for the %s engine: %s", self.name, error)
                self._note_absence(error)
                if late and self.on_absence and not absent:
                    absent = True
                    self.on_absence()
            await self._pause(AGAIN_S[min(looks, len(AGAIN_S) - 1)])
            looks += 1

    async def _look_again(self) -> None:
        looks = 0
        while True:
            again_s = AGAIN_S[min(looks, len(AGAIN_S) - 1)]
            try:
                await self._look()
                if self.endpoint.busy and self.server.loaded is False:
                    raise loading(self.place)
                if not (self.endpoint.busy and self.endpoint.loading):  # else that request tells
                    gone = self.problem is not None
                    if gone or self._unproved:
                        await self._load_model()
                    if gone:
                        log.info("the %s engine is back", self.name)
                    return
            except ServerLoading as error:
                if looks == 0:
                    log.warning("the %s engine asks to wait: %s", self.name, error)
                self._note_absence(error)
                again_s = max(again_s, min(error.retry_s, LOADING_S))
            except EngineError as error:
                if self.endpoint.busy:
                    if not _is_refused(error):
                        return  # it may be too busy to answer both
                    self.endpoint.end(error)
                if looks == 0:
                    log.error("the %s engine is gone: %s", self.name, error)
                self._note_absence(error)
            await self._pause(again_s)
            looks += 1

    async def _look(self, *, just_used: bool = False) -> None:
        self._doubtful, before = False, self.server
        try:
            self.server = await probe(
                self.place, self.options, self.pool, before, just_used=just_used
            )
            self._unproved |= bool(self.server.missing and not before.missing)
        finally:
            self._looked_at = asyncio.get_running_loop().time()
        self.endpoint.limit(self.server.slots)

    async def _load_model(self) -> None:
        """Load the model; the engine is then ready. Raises ``Unreachable``, ``ServerTimeout`` and
        ``Misconfiguration``; other errors are left to later requests."""
        warms_up = self.options.warm_up and self.server.family is not OPENAI
        if warms_up or self._unproved or self.server.missing:
            await self.use_model()
            # Some report the context size only for a loaded model.
            await self._look(just_used=True)
        self.problem = None

    async def use_model(self) -> None:
        """Make one small request. Raises the same errors; ``Misconfiguration`` also if the server
        neither lists nor serves the model."""
        if not self._unproved:
            self.problem = "its server is loading the model"
        self.endpoint.problem = None  # for this one request
        self.endpoint.patience_s = LOADING_S
        missing = self.server.missing
        try:
            await self.warm_up()
        except (Unreachable, ServerTimeout):
            raise
        except EngineError as error:
            unknown = (error.why or "").startswith("HTTP 404")
            if missing and (unknown or isinstance(error, Rejection | ServerFailure)):
                if not unknown:
                    missing.why = f"{missing.why}; asked for it, it says: {error.why}"
                raise missing from error
            if isinstance(error, Misconfiguration):
                raise
            log.warning("the %s engine was not warmed up: %s", self.name, error)
        else:
            if missing:
                name = self.options.model
                log.warning("%s does not list the model %r, but serves it", self.place.who, name)
        finally:
            self.endpoint.patience_s = self.options.first_s
            self._wake.clear()  # a refusal must not cause the next request at once
        self._unproved = False

    async def _keep_warm(self) -> None:
        """With ``keep_warm``, make the server use its model if nothing else did lately."""
        idle_s = asyncio.get_running_loop().time() - self.endpoint.last_used
        if not self.options.keep_warm or self.endpoint.busy or idle_s < ASLEEP_S:
            return
        if self.server.family is not OPENAI and not self.problem:
            try:
                await self.warm_up()
            except EngineError as error:
                log.warning("the %s engine was not kept warm: %s", self.name, error)

    def _note_absence(self, error: EngineError) -> None:
        self.problem = (
            f"{ASKS_TO_WAIT}; {error}" if isinstance(error, ServerLoading) else str(error)
        )
        if isinstance(error, ServerLoading):
            self.endpoint.loading = True
            self.endpoint.wait_longer()

    def _note_loaded(self) -> None:
        """The server answered a request that had waited for the model."""
        self.problem = None
        log.info("the %s engine is back", self.name)

    def _doubt(self, error: EngineError | None) -> None:
        """A request got no answer, or none yet: probe at once. ``error``: set if the server is
        gone, or refuses what a probe may be allowed."""
        refused = isinstance(error, Misconfiguration)
        self._unproved |= refused or self.server.missing is not None
        if error and not refused and not self._closing:
            self._note_absence(error)
        self._doubtful = True
        self._wake.set()

    # -- when

    def _note_use(self) -> None:
        if self._unmet_s() >= USED_S:
            self._wake.set()

    def _unmet_s(self) -> float:
        """Time since the server's last answer or probe."""
        met_at = max(self.endpoint.last_used, self._looked_at)
        return asyncio.get_running_loop().time() - met_at

    def _until_next_look_s(self) -> float:
        unused_s = asyncio.get_running_loop().time() - self.pool.used_at
        return USED_S if unused_s < USED_FOR_S else UNUSED_S

    def _probe_is_due(self) -> bool:
        """No probe is due during or just after an answer: that proves the server is up."""
        recent = self.endpoint.busy or self._unmet_s() < USED_S
        return self._doubtful or self.problem is not None or not recent

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless woken by a failed request or ``_note_use``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()


def _is_refused(error: EngineError) -> bool:
    """Whether no program listens at the address."""
    return isinstance(error.__cause__, HttpFailure) and error.__cause__.why == "connect"
