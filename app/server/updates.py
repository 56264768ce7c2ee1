"""Follows the folders and URLs of ``updates:`` and gives running engines their new weights.

A delta is applied while the model stays in use; the result is loaded, asked for a first answer, and
takes the old one's place by an ``Exchange``: the conversation goes on. A model that an engine
refuses or that answers badly is never tried again; after any other failure it is.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import numpy as np

from app.compose import Assistant
from app.models.delta import SUFFIX, BadDelta
from app.models.download import Fetcher, Progress, RemoteFile, Report, require_space
from app.models.engine_set import Engine
from app.models.updates import (
    ModelFile,
    ModelStep,
    Update,
    degenerate,
    model_files,
    read_index,
    steps_of,
)
from app.server.exchange import Exchange
from pipeline.engines.contract import TextDelta
from pipeline.engines.registry import CORE, EngineOptions, Kind
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError, WeightsError
from pipeline.messages import LlmRequest, Message, Sampling, SpeechRequest
from pipeline.work import Cancelled, Priority, Work
from pipeline.workers.fatal_errors import is_out_of_memory, lost_its_device
from pipeline.workers.stages import llm_stage, tts_stage

log = logging.getLogger("reachy_voice.updates")

ASK_AGAIN_S = 60.0
"""How often an index is fetched, and a failure tried again. A folder is also read this often,
because change notices end when it is deleted, and never come from other machines."""
LONGEST_PAUSE_S = 3600.0
"""A model that could not be loaded is tried again after pauses that double up to this: each try may
interrupt the conversation."""
STALLED_S = 10.0
INDEX_S = 60.0
"""Time-out for a whole index; that for an update is ``FETCH_S``."""
FETCH_S = 3600.0
MOST_INDEX_BYTES = 1 << 20
ANSWER_S = 60.0
FIRST_TOKENS = 24
Look = Callable[[], Awaitable[None]]
Fetch = Callable[[ModelStep], Awaitable[Path]]
"""Downloads the delta of a step, unless it is here, and returns its path."""


class _AnotherModel(Exception):
    """The engine no longer uses the model that was updated."""


class _NotLoaded(EngineError):
    """The model may be good, but could not be loaded now."""


class UpdateFollower:
    """``follow`` runs until it is cancelled."""

    def __init__(
        self,
        assistant: Assistant,
        exchange: Exchange,
        ask_again_s: float = ASK_AGAIN_S,
        patience_s: float = INDEX_S,
    ) -> None:
        self._assistant = assistant
        self._exchange = exchange
        self._ask_again_s = ask_again_s
        self._patience_s = patience_s
        self._updates = assistant.engines.updates
        self._cache = assistant.engines.cache
        self._logged: set[str] = set()

    async def follow(self) -> None:
        """``updates:`` is read once; a change takes effect when the server restarts."""
        await self._assistant.ready.wait()
        async with asyncio.TaskGroup() as group:
            for kind in CORE:
                if source := getattr(self._assistant.settings.engine(kind), "updates", None):
                    follow = self._follow_url if "://" in source else self._follow_folder
                    group.create_task(follow(kind, source))

    # -- where updates come from

    async def _follow_folder(self, kind: Kind, source: str) -> None:
        folder, changed = _folder(source), asyncio.Event()
        done: list[tuple[int, int, Path]] = []

        async def look() -> None:
            nonlocal done
            now = await asyncio.to_thread(_listing, folder)
            if now != done:
                steps, wrong = await asyncio.to_thread(steps_of, [path for *_, path in now])
                for error in wrong:
                    self._log_once(logging.INFO, f"not used, or not yet: {error}")
                await self._apply_newest(kind, steps, _local_delta, back=not wrong)
                done = [] if wrong else now

        async with asyncio.TaskGroup() as group:
            group.create_task(self._notice(folder, changed))
            await asyncio.sleep(0)  # now it watches, so nothing that arrives later is missed
            await self._repeat(kind, look, changed)

    async def _notice(self, folder: Path, changed: asyncio.Event) -> None:
        from watchfiles import awatch

        timeout_ms = int(1000 * self._ask_again_s)
        while True:
            try:
                async for changes in awatch(
                    folder, recursive=False, rust_timeout=timeout_ms, yield_on_timeout=True
                ):
                    if not changes:
                        break  # watch again: it may be another folder now
                    changed.set()
            except (OSError, RuntimeError):  # it is gone, or there are too many watches
                await asyncio.sleep(self._ask_again_s)

    async def _follow_url(self, kind: Kind, url: str) -> None:
        done = b""

        async def look() -> None:
            nonlocal done
            async with asyncio.timeout(self._patience_s):
                text = await _index(url)
            if text != done:
                steps = [ModelStep(each.base, each.result, each) for each in read_index(text)]
                await self._apply_newest(kind, steps, partial(self._fetch, url))
                done = text

        await self._repeat(kind, look, asyncio.Event())

    async def _repeat(self, kind: Kind, look: Look, changed: asyncio.Event) -> None:
        """Networks and disks fail in many ways: a failure is logged once, and ``look`` repeated."""
        last_why, pause_s = "", self._ask_again_s
        while True:
            changed.clear()
            try:
                await look()
                why, pause_s = "", self._ask_again_s
            except Exception as error:
                why = str(error) or repr(error)
                if isinstance(error, _NotLoaded):
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if why and why != last_why:
                log.error("%s is not updated: %s", kind, why)
            last_why = why
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await changed.wait()

    def _log_once(self, level: int, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.log(level, text)

    async def _fetch(self, url: str, step: ModelStep) -> Path:
        update = step.source
        assert isinstance(update, Update)
        folder = self._cache.directory / "downloads"
        target = folder / f"{update.sha256}{SUFFIX}"
        place = urljoin(url, update.file)
        if urlsplit(place)[:2] != urlsplit(url)[:2]:
            raise WeightsError(
                f"{place} is not fetched",
                why="it is on another server than the index of updates",
                fix="Put it where the index is",
            )

        def fetch(report: Report) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                require_space(folder, update.size, "an update")
                remote = RemoteFile(place, "an update", update.size, update.sha256)

                def pause(seconds: float) -> None:
                    report(Progress(remote.label, 0, remote.size))
                    time.sleep(seconds)

                with Fetcher(timeout_s=STALLED_S, redirects=False, sleep=pause) as fetcher:
                    fetcher.fetch(remote, target, report)

        async with asyncio.timeout(FETCH_S):  # what has arrived is kept
            await _in_thread(fetch)
        return target

    # -- applying updates

    async def _apply_newest(
        self, kind: Kind, steps: list[ModelStep], fetch: Fetch, back: bool = True
    ) -> None:
        """Give the engine the newest working model that these deltas lead to. ``back``: it may go
        back to the original for that."""
        options = self._assistant.settings.engine(kind)
        files = await asyncio.to_thread(model_files, options, self._cache)
        if not files:
            self._log_once(logging.WARNING, f"the weights of {kind} here cannot be updated")
            return
        for file in files:
            left = steps
            while True:
                base, chain = await asyncio.to_thread(self._updates.chain, file, left, back)
                try:
                    if not chain or await self._load(kind, file, base, chain, fetch):
                        break
                except BadDelta as error:
                    self._log_once(logging.ERROR, f"{kind} is not updated: {error}")
                    left = [step for step in left if step != chain[-1]]
        for step in await asyncio.to_thread(self._updates.astray, files, steps):
            self._log_once(
                logging.WARNING,
                f"{step.name} is not used: it starts from the model {step.base[:16]}, which is "
                f"neither in use nor the original of {kind}, and no other delta leads to it. "
                "Make it from one of these",
            )

    async def _load(
        self,
        kind: Kind,
        file: ModelFile,
        base: Path,
        chain: list[ModelStep],
        fetch: Fetch,
    ) -> bool:
        """Returns ``False`` if the model is bad, so that an earlier one of the chain may be tried.
        Raises ``BadDelta``, ``_NotLoaded``."""
        digest = chain[-1].result
        deltas = [await fetch(step) for step in chain]
        await _in_thread(partial(self._updates.make, file, base, deltas, digest))

        def updated(now: EngineOptions) -> EngineOptions:
            if file not in model_files(now, self._cache):
                raise _AnotherModel
            return self._updates.with_result(now, file, digest)

        log.info("the update %s of %s is applied and will be loaded", digest[:16], kind)
        tell = partial(log.info, "%s")
        try:
            await self._exchange.exchange(
                kind, None, tell, updated=updated, check=partial(self._check, kind)
            )
        except _AnotherModel:
            log.info("it is not loaded: %s was given another model meanwhile", kind)
            return True
        except ReachyVoiceError as error:
            if may_pass(error):
                what = f"the update {digest[:16]} cannot be loaded now and will be tried again"
                raise _NotLoaded(what, why=str(error)) from error
            await asyncio.to_thread(self._updates.reject, digest)
            log.error(
                "the update %s of %s is bad and not tried again: %s", digest[:16], kind, error
            )
            return False
        await asyncio.to_thread(self._updates.keep, file, digest, deltas)
        log.info("%s is updated to %s", kind, digest[:16])
        return True

    async def _check(self, kind: Kind, engine: Engine) -> None:
        """Ask for a first answer. Raises ``EngineError`` if it is degenerate or does not come."""
        try:
            async with asyncio.timeout(ANSWER_S):
                if kind is Kind.LLM:
                    wrong = degenerate(await self._answer(engine))
                elif kind is Kind.TTS:
                    wrong = await silence(engine)
                else:
                    return
        except TimeoutError as late:
            raise EngineError(
                "The first answer of the new weights does not come",
                why=f"it did not end within {ANSWER_S:g} s",
            ) from late
        if wrong:
            raise EngineError(
                "The first answer of the new weights is not one",
                why=wrong,
                fix="Train them again; the old ones stay in use",
            )

    async def _answer(self, engine: Engine) -> str:
        instructions = self._assistant.settings.conversation.instructions
        messages = [Message("system", instructions), Message("user", "Hello! How are you?")]
        sampling = Sampling(temperature=0, repeat_penalty=1, max_tokens=FIRST_TOKENS)
        conversation = llm_stage(engine).open()
        work = Work(Priority.WARM_UP)
        try:
            request = LlmRequest(messages, sampling=sampling)
            deltas = conversation.reply(request, work)
            return "".join([each.text async for each in deltas if isinstance(each, TextDelta)])
        finally:
            conversation.close()


_ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO),
    *(errno.ESTALE, errno.EACCES, errno.EBUSY, errno.EAGAIN, errno.EROFS, errno.ENODEV),
    *(errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN),
)
_GPU = (
    *("busy or unavailable", "no CUDA-capable device", "CUBLAS_STATUS_NOT_INITIALIZED"),
    *("driver version is insufficient", "driver combination", "library version mismatch"),
)
"""Also after an upgrade of the driver, until the machine restarts."""
_SYSTEM_ERROR = re.compile(
    "|".join((r"\[Errno \d", "can't start new thread", *_GPU, *map(os.strerror, _ERRNOS)))
)
"""Matches texts of system errors, which say nothing about the weights."""


def may_pass(error: BaseException) -> bool:
    """Whether a model that failed with ``error`` may load another time: the system failed, memory
    or time ran out, or a process died. An error from an engine's process arrives only as text."""
    if is_out_of_memory(error) or lost_its_device(error):
        return True
    if _SYSTEM_ERROR.search(str(error)):
        return True
    cause: BaseException | None = error
    while cause and not isinstance(cause, EngineCrashed | OSError):
        cause = cause.__cause__
    return cause is not None


async def _index(url: str) -> bytes:
    import httpx

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses with passwords
    as_it_is = {"Accept-Encoding": "identity"}
    async with (
        await asyncio.to_thread(httpx.AsyncClient) as client,  # it loads certificates
        client.stream("GET", url, headers=as_it_is) as response,
    ):
        if not response.is_success:  # or a redirection: only the URL that was named is trusted
            raise WeightsError(
                "The index of updates cannot be fetched", why=f"HTTP {response.status_code}"
            )
        text = b""
        async for block in response.aiter_raw():
            text += block
            if len(text) > MOST_INDEX_BYTES:
                raise ValueError("the index of updates is too long")
    return text


def _folder(source: str) -> Path:
    return Path(os.path.expanduser(source))  # unlike Path.expanduser, it never fails


def _listing(folder: Path) -> list[tuple[int, int, Path]]:
    """Times of change, sizes and paths of the deltas in it, the oldest first."""
    deltas = [path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file()]
    return sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in deltas)


async def _local_delta(step: ModelStep) -> Path:
    assert isinstance(step.source, Path)
    return step.source


async def silence(engine: Engine) -> str | None:
    """What is wrong with a voice's first words, or ``None``."""
    spoken = tts_stage(engine).synthesize(SpeechRequest("Hello."), Work(Priority.WARM_UP))
    chunks = [pcm async for pcm in spoken]
    return None if any(np.ptp(pcm) for pcm in chunks if len(pcm)) else "it is silent"


async def _in_thread(function: Callable[[Report], None]) -> None:
    """Run ``function`` in a thread. If this is cancelled, it soon stops: its report raises."""
    stopped = threading.Event()

    def report(_: Progress) -> None:
        if stopped.is_set():
            raise Cancelled

    try:
        await asyncio.to_thread(function, report)
    finally:
        stopped.set()
