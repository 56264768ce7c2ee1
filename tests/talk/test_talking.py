"""A sound card and a session, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from app.talk.conversation import Connected, Disconnected
from app.talk.state import TalkState
from app.talk.talking import DUCKED_DB, Talking
from hardware.sound.alignment import SoundBlock
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm
from pipeline.bus import Published
from pipeline.commands import AppendAudio, Command, SessionConfig, TruncateItem
from pipeline.events import (
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechIgnored,
    SpeechStarted,
    TranscriptReady,
)
from pipeline.hearing.card import ChipHearing
from pipeline.items import AudioPart, MessageItem
from pipeline.settings import SessionSettings
from reachy_voice.testing import (
    AT_ONCE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    run_virtual,
    scene,
)
from tests.support.beside import beside

pytestmark = pytest.mark.quick

CONFIG = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=16_000))
STORY = tuple(f"{word} " for word in ("and then I went on " * 8).split())
BLOCK = LISTEN_RATE // 100


class ScriptedCard:
    """A card in virtual time: the loudspeaker plays by the loop's clock.

    ``say`` and ``be_quiet`` are the room; ``done`` is what was asked of the loudspeaker.
    """

    def __init__(self) -> None:
        self.done: list[tuple[float, str]] = []
        self.ducked_db = 0.0
        self._queue: list[tuple[str, Pcm]] = []
        self._heard: dict[str, float] = {}
        self._blocks: asyncio.Queue[SoundBlock | None] = asyncio.Queue(1000)

    # -- the room

    async def hear(self, seconds: float, level: int = 0) -> None:
        """The microphone in real time; queued audio plays meanwhile."""
        for _ in range(round(seconds * 100)):
            await asyncio.sleep(0.01)
            pcm = np.full(BLOCK, level, np.int16)
            now = asyncio.get_running_loop().time()
            await self._blocks.put(SoundBlock(pcm, self._play_block(), now))

    async def say(self, seconds: float) -> None:
        await self.hear(seconds, 3000)

    def end(self) -> None:
        self._blocks.put_nowait(None)

    def _play_block(self) -> Pcm:
        played, wanted = [], BLOCK
        while wanted and self._queue:
            sound_id, pcm = self._queue.pop(0)
            piece, rest = pcm[:wanted], pcm[wanted:]
            played.append(piece)
            wanted -= len(piece)
            self._heard[sound_id] = self._heard.get(sound_id, 0.0) + len(piece) / LISTEN_RATE
            if len(rest):
                self._queue.insert(0, (sound_id, rest))
        return np.concatenate((*played, np.zeros(wanted, np.int16)))

    @property
    def playing(self) -> bool:
        return bool(self._queue)

    # -- app.talk.talking.Card

    async def blocks(self) -> AsyncIterator[SoundBlock]:
        while block := await self._blocks.get():
            yield block

    def play(self, pcm: Pcm, rate: int, sound_id: str) -> None:
        assert rate == LISTEN_RATE
        self._queue.append((sound_id, pcm))

    def flush(self) -> None:
        if self._queue:
            self._note("flush")
        self._queue.clear()

    def duck(self, by_db: float) -> None:
        if by_db != self.ducked_db:
            self._note(f"duck {by_db:g}")
        self.ducked_db = by_db

    def heard_s(self, sound_id: str) -> float:
        return self._heard.get(sound_id, 0.0)

    def _note(self, what: str) -> None:
        self.done.append((asyncio.get_running_loop().time(), what))


class SceneConversation:
    def __init__(self, played: Scene) -> None:
        self._session = played.session
        self._bus = played.session._bus
        self._events = self._bus.subscribe()
        self.submitted: list[Command] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def submit(self, command: Command) -> None:
        self.submitted.append(command)
        await self._session.submit(command)

    async def events(self) -> AsyncIterator[Published | Connected | Disconnected]:
        yield Connected()
        async for published in self._events:
            yield published


@dataclass
class Talk:
    played: Scene
    card: ScriptedCard
    talking: Talking
    conversation: SceneConversation
    state: TalkState = field(default_factory=TalkState)
    doing: list[str] = field(default_factory=list)

    def commands(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.conversation.submitted if isinstance(command, kind)]

    def look(self) -> None:
        if not self.doing or self.doing[-1] != self.state.doing:
            self.doing.append(self.state.doing)


@asynccontextmanager
async def talk(push_to_talk: bool = False, **given: Any) -> AsyncIterator[Talk]:
    config = replace(CONFIG, turn_detection=None) if push_to_talk else CONFIG
    async with scene(config=config, hearing=ChipHearing(512), **given) as played:
        card, conversation = ScriptedCard(), SceneConversation(played)

        def note(at: float, event: Any) -> None:
            told.state.note(event)
            told.look()

        def heard(block: Any) -> None:
            told.state.heard(block)
            told.look()

        talking = Talking(card, conversation, note, heard, push_to_talk=push_to_talk)
        told = Talk(played, card, talking, conversation)
        async with beside(talking.run()):
            yield told


@in_virtual_time
async def test_a_question_is_answered_and_shown() -> None:
    async with talk() as told:
        await told.card.hear(0.3)
        await told.card.say(1.0)
        await told.card.hear(6.0)
    (finished,) = told.played.events(ReplyFinished)
    assert finished.status == "completed"
    assert told.doing == ["listening", "hearing", "thinking", "speaking", "listening"]
    assert [line.who for line in told.state.lines] == ["you", "reachy"]
    assert told.card.done == []
    assert told.commands(TruncateItem) == []
    assert set(told.state.stages_ms) >= {"endpoint", "transcript", "first_audio"}


def interrupted(said: str, lasts_s: float = 1.0, settings: SessionSettings | None = None) -> Talk:
    async def main() -> Talk:
        stt = ScriptedStt(texts=("tell me a story", said, said))
        llm = ScriptedLlm(deltas=STORY)
        async with talk(llm=llm, stt=stt, settings=settings) as told:
            await told.card.say(1.0)
            await told.card.hear(3.0)
            await told.card.say(lasts_s)
            await told.card.hear(3.0)
        return told

    return run_virtual(main())


def test_a_barge_in_ducks_the_answer_then_silences_it() -> None:
    told = interrupted("stop")
    assert told.card.done[0][1] == f"duck {DUCKED_DB:g}"
    assert told.card.ducked_db == 0
    assert told.played.statuses[0] == "cancelled"


def test_after_a_barge_in_the_history_has_what_was_heard() -> None:
    told = interrupted("stop", settings=AT_ONCE)
    started = [at for at, event in told.played.log if isinstance(event, SpeechStarted)]
    flushed = told.card.done[0]
    assert flushed == (pytest.approx(started[1], abs=0.011), "flush")
    (cut,) = told.commands(TruncateItem)
    message = spoken_first(told)
    assert message.id == cut.item_id
    (part,) = message.parts
    assert isinstance(part, AudioPart)
    assert part.seconds == pytest.approx(cut.audio_end_ms / 1000)
    assert told.card.ducked_db == 0
    first = next(at for at, event in told.played.log if isinstance(event, ReplyAudio))
    heard_s = flushed[0] - first
    assert part.seconds == pytest.approx(heard_s, abs=0.03)


def spoken_first(told: Talk) -> MessageItem:
    return next(
        item
        for item in told.played.session.chat.items
        if isinstance(item, MessageItem) and item.role == "assistant"
    )


def test_a_backchannel_ducks_the_answer_for_a_moment() -> None:
    told = interrupted("yeah", 0.3)
    assert told.played.events(SpeechIgnored)
    assert told.commands(TruncateItem) == []
    kinds = [what for _, what in told.card.done]
    assert kinds[:2] == [f"duck {DUCKED_DB:g}", "duck 0"]
    assert "flush" not in kinds
    assert any("did not stop for yeah" in line.text for line in told.state.lines)


@in_virtual_time
async def test_push_to_talk_sends_only_speech_between_the_keys() -> None:
    async with talk(push_to_talk=True) as told:
        await told.card.say(1.0)  # not sent
        await told.talking.press()
        await told.card.say(1.0)
        await told.talking.release()
        await told.card.say(4.0)
    assert len(told.played.events(TranscriptReady)) == 1
    (ready,) = told.played.events(TranscriptReady)
    assert ready.seconds == pytest.approx(1.0, abs=0.05)
    assert told.played.statuses == ["completed"]


@in_virtual_time
async def test_push_to_talk_over_an_answer_ends_it() -> None:
    async with talk(push_to_talk=True, llm=ScriptedLlm(deltas=STORY)) as told:
        for _ in range(2):
            await told.talking.press()
            await told.card.say(0.5)
            await told.talking.release()
            await told.card.hear(1.5)
    assert "flush" in [what for _, what in told.card.done]
    (cut,) = told.commands(TruncateItem)
    (part,) = spoken_first(told).parts
    assert isinstance(part, AudioPart)
    assert part.seconds == pytest.approx(cut.audio_end_ms / 1000)
    assert part.seconds < 2.0


@in_virtual_time
async def test_it_ends_when_the_card_ends() -> None:
    async with talk() as told:
        told.card.end()
        await told.card.hear(0.1)


@in_virtual_time
async def test_a_moved_reference_is_reported_after_mute() -> None:
    async with talk() as told:
        silence = np.zeros(160, np.int16)
        for muted, moved in ((False, 5), (True, 160), (True, None), (True, -3), (False, None)):
            told.talking.muted = muted
            await told.card._blocks.put(SoundBlock(silence, silence, 0.0, 0, moved))
            await asyncio.sleep(0.01)
        await told.card.hear(0.01)
    heard = told.commands(AppendAudio)
    assert [piece.reference_moved for piece in heard] == [5, 157, None]


@in_virtual_time
async def test_speech_before_a_mute_is_answered() -> None:
    async with talk() as told:
        await told.card.say(1.0)
        told.talking.muted = True
        await told.card.say(4.0)
    assert len(told.played.events(SpeechStarted)) == 1
    assert told.played.statuses == ["completed"]


@in_virtual_time
async def test_a_brief_push_to_talk_requests_nothing() -> None:
    async with talk(push_to_talk=True) as told:
        await told.talking.press()
        await told.card.say(0.05)
        assert not await told.talking.release()
        await told.card.hear(2.0)
        await told.talking.press()
        await told.card.say(0.5)
        assert await told.talking.release()
        await told.card.hear(2.0)
    assert len(told.played.events(ReplyFinished)) == 1
    assert told.played.events(Refused) == []


@in_virtual_time
async def test_a_key_stops_the_answer() -> None:
    async with talk(push_to_talk=True) as told:
        bus = told.played.session._bus
        bus.publish(ReplyStarted("r", "audio", True, "", AudioFormat(), None, None))
        bus.publish(ReplyAudio("r", "a", 0, np.full(16_000, 700, np.int16), 16_000))
        await told.card.hear(0.3)
        await told.talking.press()
        bus.publish(ReplyAudio("r", "a", 0, np.full(16_000, 700, np.int16), 16_000))
        await told.card.hear(0.3)
        assert not told.card.playing
    (cut,) = told.commands(TruncateItem)
    assert cut.audio_end_ms == pytest.approx(300, abs=11)
    # There is no such item; the refusal of our own truncation is not shown.
    assert told.played.events(Refused)
    assert [line.text for line in told.state.lines] == []
