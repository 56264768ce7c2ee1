"""Follows the folders and URLs of ``updates:`` and gives running engines their new weights.

A delta is applied beside the model in use; the result is loaded, asked for a first answer, and
takes the old one's place by an ``Exchange``: the conversation goes on. A model that does not load
or answers badly is never tried again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np

from app.compose import Assistant
from app.models.delta import SUFFIX, BadDelta
from app.models.download import Fetcher, Progress, Remote, Report
from app.models.engine_set import Engine
from app.models.updates import ModelFile, Update, degenerate, model_files, read_index, updates_in
from app.server.exchange import Exchange
from pipeline.engines.contract import TextDelta
from pipeline.engines.registry import EngineOptions, Kind
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.messages import Message, Sampling, SpeechRequest, ToolChoice
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.updates")

ASK_AGAIN_S = 60.0
"""A URL is asked this often whether its index has changed."""
MOST_INDEX_BYTES = 1 << 20
ANSWER_S = 60.0
FIRST_TOKENS = 24
Known = list[tuple[str, str, Any]]
"""Base, result, and where the delta is."""
Fetch = Callable[[Any], Awaitable[Path]]
"""Brings such a delta here."""


class UpdateFollower:
    """``follow`` runs until it is cancelled."""

    def __init__(
        self, assistant: Assistant, exchange: Exchange, ask_again_s: float = ASK_AGAIN_S
    ) -> None:
        self._assistant = assistant
        self._exchange = exchange
        self._ask_again_s = ask_again_s
        self._updates = assistant.engines.updates
        self._cache = assistant.engines.cache

    async def follow(self) -> None:
        """``updates:`` is read once; a change takes effect when the server restarts."""
        async with asyncio.TaskGroup() as group:
            for kind in Kind:
                if source := getattr(self._assistant.settings.engine(kind), "updates", None):
                    far = source.startswith(("http://", "https://"))
                    follow = self._follow_url if far else self._follow_folder
                    group.create_task(follow(kind, source))

    # -- where updates come from

    async def _follow_folder(self, kind: Kind, source: str) -> None:
        from watchfiles import awatch

        folder = await asyncio.to_thread(_made, source)

        changed = asyncio.Event()
        changed.set()

        async def notice() -> None:
            async for _ in awatch(folder, recursive=False):
                changed.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(notice())  # first: nothing that arrives from now on is missed
            while True:
                await changed.wait()
                changed.clear()
                await self._tried(kind, partial(self._look_in, kind, folder))

    async def _look_in(self, kind: Kind, folder: Path) -> None:
        async def here(path: Path) -> Path:
            return path

        await self._bring(kind, await asyncio.to_thread(updates_in, folder), here)

    async def _follow_url(self, kind: Kind, url: str) -> None:
        import httpx

        headers: dict[str, str] = {}
        async with httpx.AsyncClient(follow_redirects=True) as client:

            async def ask() -> None:
                nonlocal headers
                async with client.stream("GET", url, headers=headers) as response:
                    if response.status_code == httpx.codes.NOT_MODIFIED:
                        return
                    response.raise_for_status()
                    text = b""
                    async for block in response.aiter_bytes():
                        text += block
                        if len(text) > MOST_INDEX_BYTES:
                            raise ValueError("the index of updates is too long")
                known = [(each.base, each.result, each) for each in read_index(text)]
                await self._bring(kind, known, partial(self._fetch, url))
                wanted = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
                found = response.headers
                headers = {name: found[key] for key, name in wanted.items() if key in found}

            while True:
                await self._tried(kind, ask)
                await asyncio.sleep(self._ask_again_s)

    async def _fetch(self, url: str, update: Update) -> Path:
        folder = self._cache.directory / "downloads"
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        target = folder / f"{update.sha256}{SUFFIX}"
        place = urljoin(url, update.file)
        remote = Remote(place, "an update", update.size, update.sha256)

        def fetch(report: Report) -> None:
            if not target.exists():
                with Fetcher() as fetcher:
                    fetcher.fetch(remote, target, report)

        await _in_thread(fetch)
        return target

    # -- what is done with them

    async def _tried(self, kind: Kind, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await look()
        except ReachyVoiceError as error:
            log.error("%s is not updated: %s", kind, error)
        except Exception as error:  # networks and disks fail in many ways; the server goes on
            log.error("%s is not updated: %s: %s", kind, type(error).__name__, error)

    async def _bring(self, kind: Kind, known: Known, fetch: Fetch) -> None:
        """Give the engine the newest model that these deltas lead to and that works."""
        options = self._assistant.settings.engine(kind)
        for file in await asyncio.to_thread(model_files, options, self._cache):
            while True:
                _, digest = await asyncio.to_thread(self._updates.now, file)
                chain = self._updates.chain(digest, known)
                if not chain or await self._use(kind, options, file, chain, fetch):
                    break

    async def _use(
        self,
        kind: Kind,
        options: EngineOptions,
        file: ModelFile,
        chain: list[tuple[str, Any]],
        fetch: Fetch,
    ) -> bool:
        """``False``: the model is bad, and an earlier one of the chain may be good."""
        digest = chain[-1][0]
        deltas = [await fetch(source) for _, source in chain]
        try:
            await _in_thread(partial(self._updates.make, file, deltas, digest))
        except BadDelta as error:  # until something new arrives
            log.error("%s is not updated: %s", kind, error)
            return True
        updated = self._updates.with_result(options, file, digest)
        try:
            await self._exchange.exchange(
                kind, options, _log_step, updated=updated, check=partial(self._check, kind)
            )
        except ReachyVoiceError as error:
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
        except TimeoutError:
            wrong = f"it did not end within {ANSWER_S:g} s"
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
        conversation = engine.stage.open()
        work = Work(Priority.WARM_UP)
        try:
            deltas = conversation.reply(messages, [], ToolChoice("none"), sampling, work)
            return "".join([each.text async for each in deltas if isinstance(each, TextDelta)])
        finally:
            conversation.close()


def _made(folder: str) -> Path:
    path = Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


async def silence(engine: Engine) -> str | None:
    """What is wrong with a voice's first words, or ``None``."""
    spoken = engine.stage.synthesize(SpeechRequest("Hello."), Work(Priority.WARM_UP))
    chunks = [pcm async for pcm in spoken]
    return None if any(np.ptp(pcm) for pcm in chunks if len(pcm)) else "it is silent"


async def _in_thread(function: Callable[[Report], None]) -> None:
    """``function`` stops soon if this is cancelled: its report raises."""
    stopped = threading.Event()

    def report(_: Progress) -> None:
        if stopped.is_set():
            raise Cancelled

    try:
        await asyncio.to_thread(function, report)
    finally:
        stopped.set()


def _log_step(step: str) -> None:
    log.info("%s", step)
