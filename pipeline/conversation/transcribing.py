"""Transcribes the conversation's audio: committed speech, and recordings in a client's items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pipeline.audio import LISTEN_RATE, Recording, Resampler
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_editor import ItemEditor
from pipeline.engines.contract import Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.events import TranscriptFailed, TranscriptReady
from pipeline.hearing.attribution import attributed
from pipeline.hearing.plausibility import NO_SCORES, Segment, believed
from pipeline.hearing.recognition import Recognition, recognition_of
from pipeline.items import AudioPart, Item, MessageItem
from pipeline.work import Work

MAX_WAITING = 32
"""Most items of one session that may wait for their transcript."""


class Transcriber:
    """Its tasks live in the session's TaskGroup and end with it."""

    def __init__(self, context: SessionContext, chat: Chat, editor: ItemEditor) -> None:
        self._context = context
        self._chat = chat
        self._editor = editor
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether so many items are waiting that no more are accepted."""
        return len(self._waiting) >= MAX_WAITING

    async def settled(self) -> None:
        """Wait for all transcripts requested so far."""
        if self._waiting:
            await asyncio.wait(set(self._waiting))

    def commit(
        self,
        item_id: str,
        recognition: Recognition,
        words: Transcript | ReachyVoiceError | None = None,
        segment: Segment = NO_SCORES,
    ) -> None:
        """Add the user's speech to the conversation. ``words``: its words, or why recognition
        failed; ``None``: the words follow, and answers wait for them. ``segment``: what is known
        about its sound."""
        audio = recognition.audio
        item = self._editor.commit(item_id, AudioPart(None, audio.seconds, audio))
        if words is None:
            self._begin(self._follow(item, recognition, segment))
        else:
            self._set_text(item, words)

    def read(self, item: MessageItem) -> None:
        """Transcribe the recordings in an item."""
        if item.unread:
            self._begin(self._read(item))

    async def with_text(self, items: Sequence[Item]) -> list[Item]:
        """``items``, with missing transcripts filled in. Raises what the engine raises."""
        return [
            await self._item_with_text(item)
            if isinstance(item, MessageItem) and item.unread
            else item
            for item in items
        ]

    def _begin(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._context.tasks.create_task(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _follow(self, item: MessageItem, recognition: Recognition, segment: Segment) -> None:
        words: Transcript | ReachyVoiceError
        try:
            words = await attributed(self._context, recognition, Work())
            # The client wants it, whoever said it.
            segment = replace(segment, after_question=True, live=False)
            words = believed(self._context, words, segment)
        except ReachyVoiceError as error:
            words = error
        finally:
            recognition.stop()
        self._set_text(item, words)

    def _set_text(self, item: MessageItem, words: Transcript | ReachyVoiceError) -> None:
        if isinstance(words, ReachyVoiceError):
            self._context.bus.publish(TranscriptFailed(item.id, str(words)))
            return
        part = item.parts[0]
        assert isinstance(part, AudioPart)
        part = replace(part, transcript=words.text, speaker=words.speaker or "")
        self._publish_read(item, replace(item, parts=(part,)), words)

    async def _read(self, item: MessageItem) -> None:
        try:
            known = await self._item_with_text(item)
        except ReachyVoiceError as error:
            self._context.bus.publish(TranscriptFailed(item.id, str(error)))
        else:
            seconds = sum(part.seconds for part in known.parts if isinstance(part, AudioPart))
            self._publish_read(item, known, Transcript("", seconds))

    def _publish_read(self, item: MessageItem, known: MessageItem, transcript: Transcript) -> None:
        """Store and publish ``known``, which is ``item`` with its text."""
        if item.id in self._chat:
            if not _same_recordings(self._chat.get(item.id), item):
                return
            self._chat.put(known)
        spoken = [part for part in known.parts if isinstance(part, AudioPart)]
        text = " ".join(part.transcript for part in spoken if part.transcript)
        about = transcript.seconds, transcript.speaker, transcript.exclusion, transcript.doubt
        self._context.bus.publish(TranscriptReady(item.id, text, *about))

    async def _item_with_text(self, item: MessageItem) -> MessageItem:
        parts = []
        for part in item.parts:
            if isinstance(part, AudioPart) and part.transcript is None and part.audio:
                part = replace(part, transcript=await self._text(part.audio))
            parts.append(part)
        return replace(item, parts=tuple(parts))

    async def _text(self, audio: Recording) -> str:
        resampler = Resampler(audio.rate, LISTEN_RATE)
        context, recognition = self._context, recognition_of(self._context)
        for start in range(0, len(audio.pcm), audio.rate):
            await asyncio.sleep(0)  # minutes of audio must not block the loop
            recognition.append(resampler.feed(audio.pcm[start : start + audio.rate]))
        recognition.append(resampler.flush())
        recognition.begin(context.tasks)
        try:
            return believed(context, await recognition.transcript(Work()), NO_SCORES).text
        finally:
            recognition.stop()


def _same_recordings(now: Item, item: MessageItem) -> bool:
    """Whether ``now`` is still ``item``: the client may have deleted it and added another item with
    its id. Old audio may have been dropped meanwhile."""
    if not isinstance(now, MessageItem):
        return False
    new, old = ([p.audio for p in i.parts if isinstance(p, AudioPart)] for i in (now, item))
    return len(new) == len(old) and all(
        ours is None or ours is theirs for ours, theirs in zip(new, old, strict=True)
    )
