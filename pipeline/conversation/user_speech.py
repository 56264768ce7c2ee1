"""What the user says, on its way into the conversation: committed at once, its words when known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipeline.audio import Recording
from pipeline.bus import Bus
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_commands import make_room
from pipeline.conversation.transcribing import Transcriber
from pipeline.engines.contract import Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.events import InputCommitted, ItemAdded, ItemDone
from pipeline.hearing.recognition import Recognition
from pipeline.items import AudioPart, MessageItem


class UserSpeech:
    """One session's. ``on_commit`` is called before each item is added."""

    def __init__(
        self,
        chat: Chat,
        bus: Bus,
        transcriber: Transcriber,
        max_items: int,
        new_id: Callable[[str], str],
        on_commit: Callable[[], None],
    ) -> None:
        self._chat = chat
        self._bus = bus
        self._transcriber = transcriber
        self._max_items = max_items
        self._new_id = new_id
        self._on_commit = on_commit

    def commit_known(
        self, item_id: str, said: Transcript | ReachyVoiceError, audio: Recording
    ) -> None:
        """Speech whose words are known, or never will be."""
        item_id = self.commit_part(item_id, AudioPart(None, audio.seconds, audio))
        self._transcriber.heard(item_id, said)

    def commit(
        self,
        item_id: str,
        audio: Recording,
        recognition: Recognition,
        recognising: asyncio.Task[None],
    ) -> None:
        """Speech that is still being recognised: the words follow, and answers wait for them."""
        item_id = self.commit_part(item_id, AudioPart(None, audio.seconds, audio))
        self._transcriber.follow(item_id, recognition, recognising)

    def commit_part(self, item_id: str, part: AudioPart) -> str:
        """Add it to the conversation; returns the id that it has there."""
        self._on_commit()
        if any(item.id == item_id for item in self._chat.items):
            # The client has used the id of its own running speech for something else.
            item_id = self._new_id("item")
        make_room(self._chat, self._bus, self._max_items)
        item = MessageItem(item_id, "user", (part,))
        previous = self._chat.add(item)
        self._bus.publish(InputCommitted(item_id, previous))
        self._bus.publish(ItemAdded(item, previous))
        self._bus.publish(ItemDone(item, previous))
        return item_id
