"""Connects a sound card and a conversation: microphone in, answers out.

Nothing here waits for anything but those two. When the user speaks over an answer, it is ducked at
once, and silenced as soon as the interruption is confirmed; then the conversation learns how much
was really heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from app.talk.conversation import Connected, Conversation, Disconnected
from hardware.sound.alignment import SoundBlock
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import (
    AppendAudio,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    CreateResponse,
    Direction,
    NoteDirection,
    TruncateItem,
    WakeUp,
)
from pipeline.events import (
    Event,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyHeld,
    ReplyStarted,
    ReplyWentOn,
    SpeechStarted,
)

DUCKED_DB = 12.0
"""How much an answer is ducked while a barge-in is undecided."""
_LEAST_CUT_S = 0.05
"""An unheard rest shorter than this counts as heard."""
_LEAST_SAID_S = 0.15
"""The Realtime API refuses to commit less than 100 ms; no word is that short."""
_CUT = "talk_cut"
"""The event id with which we end and cut answers. The session does so, too: if it has already cut
more, or the answer has just ended, it refuses our request, which is harmless."""


class Card(Protocol):
    """``hardware.sound.card.SoundCard``."""

    def blocks(self) -> AsyncIterator[SoundBlock]: ...
    def play(self, pcm: Pcm, rate: int, sound_id: str) -> None: ...
    def flush(self) -> None: ...
    def duck(self, by_db: float) -> None: ...
    def heard_s(self, sound_id: str) -> float: ...


Noted = Event | Connected | Disconnected


class Talking:
    """One conversation through one card; both run elsewhere."""

    def __init__(
        self,
        card: Card,
        conversation: Conversation,
        note: Callable[[float, Noted], None] = lambda at, event: None,
        on_block: Callable[[SoundBlock], None] = lambda block: None,
        *,
        push_to_talk: bool = False,
    ) -> None:
        """``note(at, event)`` gets every event, ``on_block(block)`` every block. With
        ``push_to_talk``, audio is only sent between ``press`` and ``release``."""
        self._card = card
        self._conversation = conversation
        self._note = note
        self._on_block = on_block
        self._push_to_talk = push_to_talk
        self._reply_id = ""
        """The answer that owns the loudspeaker."""
        self._answering = False
        self._given_s: dict[str, float] = {}
        """How much of each item of that answer was passed to the loudspeaker."""
        self._said_s = 0.0
        """Audio sent since ``press``."""
        self.muted = False
        self.pressed = False

    async def run(self) -> None:
        """Run until cancelled, or the conversation ends."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen())
            await self._speak()
            listening.cancel()

    # -- user input

    async def press(self) -> None:
        """Push to talk: the user begins to speak; an answer ends."""
        answering, self._answering = self._answering, False
        self._reply_id = ""  # its audio still on the way is not played
        await self._interrupt()
        if answering:
            await self._conversation.submit(CancelResponse(event_id=_CUT))
        await self._conversation.submit(ClearAudio())
        self._said_s = 0.0
        self.pressed = True

    async def release(self) -> bool:
        """Push to talk: the user is done. False if that was too short for an answer."""
        self.pressed = False
        if self._said_s < _LEAST_SAID_S:
            await self._conversation.submit(ClearAudio())
            return False
        await self._conversation.submit(CommitAudio())
        await self._conversation.submit(CreateResponse())
        return True

    async def wake(self) -> None:
        """The user wakes the robot, or wants it to listen for longer."""
        await self._conversation.submit(WakeUp())

    async def face(self, direction: Direction) -> None:
        """An array reports the direction of speech."""
        await self._conversation.submit(NoteDirection(direction))

    # -- in

    async def _listen(self) -> None:
        shift: int | None = None
        """Shift of the reference since audio was last sent: it moves while muted, too."""
        async for block in self._card.blocks():
            self._on_block(block)
            if block.reference_moved is not None:
                shift = (shift or 0) + block.reference_moved
            if self.muted or (self._push_to_talk and not self.pressed):
                shift = shift or 0  # Sound played now is heard when its reference is already lost.
                continue
            self._said_s += len(block.pcm) / LISTEN_RATE
            pcm, reference = block.pcm, block.reference
            await self._conversation.submit(
                AppendAudio(pcm, LISTEN_RATE, reference=reference, reference_moved=shift)
            )
            shift = None

    # -- out

    async def _speak(self) -> None:
        async for each in self._conversation.events():
            if not isinstance(each, Published):
                if isinstance(each, Disconnected):
                    self._reply_id, self._answering = "", False
                    self._silence()
                self._note(asyncio.get_running_loop().time(), each)
                continue
            at, event = each
            if isinstance(event, Refused) and event.event_id == _CUT:
                continue
            await self._follow(event)
            self._note(at, event)

    async def _follow(self, event: Event) -> None:
        match event:
            case ReplyStarted(in_conversation=True):
                self._reply_id, self._answering = event.reply_id, True
                self._given_s = {item_id: self._given_s[item_id] for item_id in self._unheard()}
            case ReplyAudio() if event.reply_id == self._reply_id:
                self._play(event)
            case ReplyHeld():
                self._card.duck(DUCKED_DB)
            case ReplyWentOn():
                self._card.duck(0)
            case SpeechStarted():
                await self._interrupt()
            case ReplyFinished() if event.reply_id == self._reply_id:
                self._answering = False
                if event.status == "cancelled":
                    await self._interrupt()

    def _play(self, audio: ReplyAudio) -> None:
        seconds = len(audio.pcm) / audio.rate
        self._given_s[audio.item_id] = self._given_s.get(audio.item_id, 0.0) + seconds
        self._card.play(audio.pcm, audio.rate, audio.item_id)

    async def _interrupt(self) -> None:
        """Silence the loudspeaker first; then report how much was really heard."""
        for item_id, heard_s in self._silence().items():
            truncation = TruncateItem(item_id, 0, round(heard_s * 1000), event_id=_CUT)
            await self._conversation.submit(truncation)

    def _silence(self) -> dict[str, float]:
        """Items with an unheard rest, and how much of each was heard."""
        unheard = self._unheard()
        self._card.flush()
        self._card.duck(0)
        self._given_s = {}
        return unheard

    def _unheard(self) -> dict[str, float]:
        times_s = {item_id: self._card.heard_s(item_id) for item_id in self._given_s}
        return {
            item_id: heard_s
            for item_id, heard_s in times_s.items()
            if self._given_s[item_id] - heard_s > _LEAST_CUT_S
        }
