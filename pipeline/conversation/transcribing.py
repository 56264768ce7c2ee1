"""The text of what stands in the conversation as speech: of committed audio, and of recordings
that a client puts into items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pipeline.audio import LISTEN_RATE, Recording, Resampler
from pipeline.bus import Bus
from pipeline.conversation.chat import Chat, UnknownItem
from pipeline.engines.contract import Transcript
from pipeline.engines.stages import Stages
from pipeline.errors import ReachyVoiceError
from pipeline.events import TranscriptFailed, TranscriptReady
from pipeline.hearing.recognition import Recognition
from pipeline.items import AudioPart, Item, MessageItem
from pipeline.work import Work

MAX_WAITING = 32
"""Items of one session that may wait for their transcript."""


class Transcriber:
    """Lives in the session's TaskGroup; what it does ends with that."""

    def __init__(self, stages: Stages, chat: Chat, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.language = ""
        self._tasks = tasks
        self._stages = stages
        self._chat = chat
        self._bus = bus
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether so much waits that nothing more is taken."""
        return len(self._waiting) >= MAX_WAITING

    async def settled(self) -> None:
        """Wait for everything that was asked for so far."""
        if self._waiting:
            await asyncio.wait(set(self._waiting))

    def heard(self, item_id: str, said: Transcript | ReachyVoiceError) -> None:
        """The text of a committed item is known, or will never be."""
        if isinstance(said, ReachyVoiceError):
            self._bus.publish(TranscriptFailed(item_id, str(said)))
            return
        self._bus.publish(TranscriptReady(item_id, said.text, said.seconds))
        try:
            item = self._chat.get(item_id)
        except UnknownItem:
            return
        if isinstance(item, MessageItem) and isinstance(part := item.parts[0], AudioPart):
            part = replace(part, transcript=said.text)
            self._chat.put(replace(item, parts=(part, *item.parts[1:])))

    def follow(
        self, item_id: str, recognition: Recognition, recognising: asyncio.Task[None]
    ) -> None:
        """A committed item gets its text from a recognition that is under way."""
        self._begin(self._follow(item_id, recognition, recognising))

    def read(self, item: MessageItem) -> None:
        """An item that came with recordings gets their text."""
        if item.unread:
            self._begin(self._read(item))

    async def with_text(self, items: Sequence[Item]) -> list[Item]:
        """``items``, recordings that have no transcript read. Raises what the engine raises."""
        known = []
        for item in items:
            if isinstance(item, MessageItem) and item.unread:
                item = await self._item_with_text(item)
            known.append(item)
        return known

    # -- one after the other

    def _begin(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._tasks.create_task(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _follow(
        self, item_id: str, recognition: Recognition, recognising: asyncio.Task[None]
    ) -> None:
        said: Transcript | ReachyVoiceError
        try:
            said = await recognition.transcript(Work())
        except ReachyVoiceError as error:
            said = error
        finally:
            recognising.cancel()
        self.heard(item_id, said)

    async def _read(self, item: MessageItem) -> None:
        try:
            known = await self._item_with_text(item)
        except ReachyVoiceError as error:
            self._bus.publish(TranscriptFailed(item.id, str(error)))
            return
        if self._replaced(item):
            return
        if any(other.id == item.id for other in self._chat.items):
            self._chat.put(known)
        spoken = [part for part in known.parts if isinstance(part, AudioPart)]
        seconds = sum(part.seconds for part in spoken)
        text = " ".join(part.transcript for part in spoken if part.transcript)
        self._bus.publish(TranscriptReady(item.id, text, seconds))

    def _replaced(self, item: MessageItem) -> bool:
        """Whether the client deleted ``item`` and added another one under its id."""
        now = next((other for other in self._chat.items if other.id == item.id), item)
        if not isinstance(now, MessageItem):
            return True
        new, old = ([p.audio for p in i.parts if isinstance(p, AudioPart)] for i in (now, item))
        # Old audio may have been let go meanwhile.
        return len(new) != len(old) or any(
            ours is not None and ours is not theirs for ours, theirs in zip(new, old, strict=True)
        )

    async def _item_with_text(self, item: MessageItem) -> MessageItem:
        parts = []
        for part in item.parts:
            if isinstance(part, AudioPart) and part.transcript is None and part.audio:
                part = replace(part, transcript=await self._text(part.audio))
            parts.append(part)
        return replace(item, parts=tuple(parts))

    async def _text(self, audio: Recording) -> str:
        resampler = Resampler(audio.rate, LISTEN_RATE)
        recognition = Recognition(self._stages, self.language)
        for start in range(0, len(audio.pcm), audio.rate):
            await asyncio.sleep(0)  # minutes of audio must not keep the loop
            recognition.append(resampler.feed(audio.pcm[start : start + audio.rate]))
        recognition.append(resampler.flush())
        recognising = self._tasks.create_task(recognition.run())
        try:
            return (await recognition.transcript(Work())).text
        finally:
            recognising.cancel()
