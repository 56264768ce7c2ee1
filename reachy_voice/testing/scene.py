"""A scene: a real session, played in virtual time, and everything it published."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pipeline.audio import LISTEN_RATE, AudioFormat
from pipeline.bus import Bus, Published
from pipeline.commands import AddItem, AppendAudio, Command, SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.engines.contract import WakeWord
from pipeline.engines.stages import (
    KeptVoice,
    LlmStage,
    SpeakerStage,
    Stages,
    SttStage,
    TtsStage,
    TurnStage,
    VadStage,
)
from pipeline.engines.voices import Person
from pipeline.events import (
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyText,
    TranscriptReady,
)
from pipeline.hearing.client import Hearing
from pipeline.items import MessageItem, MessageRole, TextPart
from pipeline.recording.writing import Recorder, SessionRecording
from pipeline.session import Session
from pipeline.settings import BargeIn, Echo, SessionSettings
from pipeline.tools.contract import ToolServers
from pipeline.turn_record import TurnRecord
from reachy_voice.testing.engines import (
    LevelVad,
    Noise,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
)
from reachy_voice.testing.tape import NOISE, SAMPLES_PER_MS, Tape
from reachy_voice.testing.virtual_time import run_virtual
from reachy_voice.testing.words import with_words

E = TypeVar("E")

VOICE = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=LISTEN_RATE))
PUSH_TO_TALK = replace(VOICE, turn_detection=None)
AT_ONCE = SessionSettings(barge_in=BargeIn(policy="any-speech"), echo=Echo(cancel="never"))
"""All speech interrupts, whatever its words, and even if it may be an echo."""
SPEECH_LEVEL = 3_000
"""Loud enough for ``LevelVad``."""


# --- what happens from outside -----------------------------------------------------------------


@dataclass(frozen=True)
class MicrophoneSound:
    """Noise or words from the microphone, in real time; level 0 is silence."""

    seconds: float
    level: int = 0
    words: str = ""


Act = MicrophoneSound | Command | Callable[["Scene"], Awaitable[None] | object]
"""What happens in a scene: sound, a client's command, or any function that takes the scene."""


def say(seconds: float, level: int = SPEECH_LEVEL) -> MicrophoneSound:
    """The user speaks."""
    return MicrophoneSound(seconds, level)


def speak(words: str, seconds: float) -> MicrophoneSound:
    """The user says these words, for a recogniser with a ``Tape``; there, ``say`` is only noise."""
    return MicrophoneSound(seconds, words=words)


def silence(seconds: float) -> MicrophoneSound:
    return MicrophoneSound(seconds)


def wait(seconds: float) -> Act:
    """The microphone sends nothing."""
    return lambda scene: scene.pause(seconds)


def text_item(item_id: str, text: str, role: MessageRole = "user") -> MessageItem:
    return MessageItem(item_id, role, (TextPart(text),))


def write(text: str, item_id: str = "item_x") -> AddItem:
    """The client adds a text message from the user to the conversation."""
    return AddItem(text_item(item_id, text))


# --- the scene ---------------------------------------------------------------------------------


@dataclass
class Scene:
    """A session, its microphone, and everything it published."""

    session: Session
    log: list[Published]
    stages: Stages
    bus: Bus
    loop: asyncio.AbstractEventLoop
    began: float = 0.0
    noise: Noise = field(default_factory=lambda: Noise(1))
    played: int = 0
    """Samples of the recogniser's tape that were played."""

    async def act(self, *acts: Act) -> None:
        """Perform acts in order."""
        for each in acts:
            match each:
                case MicrophoneSound(seconds, level, words):
                    await self.hear(seconds, level=level, words=words)
                case _ if callable(each):
                    result = each(self)
                    if inspect.isawaitable(result):
                        await result
                case _:
                    await self.do(each)

    async def do(self, *commands: Command) -> None:
        """Submit a client's commands, then ``settle``."""
        for command in commands:
            await self.session.submit(command)
        await self.settle()

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def until(self, kind: type[Any]) -> None:
        """Wait for the next event of this kind."""
        published = asyncio.Event()
        self.bus.tap(lambda each: published.set() if isinstance(each.event, kind) else None)
        await published.wait()

    async def hear(self, seconds: float, *, level: int = 0, words: str = "") -> None:
        """Feed 20 ms chunks of noise in real time. A recogniser's tape, if it has one, is played in
        windows of the detector, each after it was spoken, so that all times are exact."""
        if tape := self.tape:
            end, window = self.played + round(seconds * LISTEN_RATE), LevelVad.window_samples
            if words or level:
                tape.say(self.played // SAMPLES_PER_MS, words or NOISE, round(seconds * 1000))
            while self.played < end:
                border = min((self.played // window + 1) * window, end)
                await self.sleep_until(border / LISTEN_RATE)
                pcm, self.played = tape.between(self.played, border), border
                await self.session.submit(AppendAudio(pcm, LISTEN_RATE))
            return
        assert not words, "the recogniser has no tape"
        for _ in range(round(seconds / 0.02)):
            pcm = self.noise(level, LISTEN_RATE // 50)
            await self.session.submit(AppendAudio(pcm, LISTEN_RATE))
            await asyncio.sleep(0.02)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.played += round(seconds * LISTEN_RATE)

    async def say(self, seconds: float) -> None:
        await self.hear(seconds, level=SPEECH_LEVEL)

    async def sleep_until(self, seconds: float) -> None:
        """Wait until this many seconds after the scene began."""
        await asyncio.sleep(max(0.0, self.began + seconds - self.loop.time()))

    @property
    def tape(self) -> Tape | None:
        """The microphone's input, if the scripted recogniser knows words."""
        return self.stages.stt.tape if isinstance(self.stages.stt, ScriptedStt) else None

    # -- what came of it

    def events(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.log if isinstance(event, kind)]

    def times_of(self, kind: type[Any]) -> list[float]:
        """When events of this kind were published, in seconds."""
        return [at for at, event in self.log if isinstance(event, kind)]

    def time_of(self, kind: type[Any]) -> float:
        """When the first event of this kind was published."""
        return next(at for at, event in self.log if isinstance(event, kind))

    def names(self, *without: type[Any]) -> list[str]:
        """Names of the events in order, except turn records and those in ``without``; repeats in a
        row count once."""
        left_out: tuple[type[Any], ...] = (TurnRecord, *without)
        names = [type(event).__name__ for _, event in self.log if not isinstance(event, left_out)]
        return [name for name, _ in itertools.groupby(names)]

    @property
    def transcripts(self) -> list[str]:
        """The transcripts of the user's turns."""
        return [event.text for event in self.events(TranscriptReady)]

    @property
    def statuses(self) -> list[str]:
        """The final status of each answer."""
        return [event.status for event in self.events(ReplyFinished)]

    @property
    def reply(self) -> ReplyFinished:
        """The end of the first answer."""
        return self.events(ReplyFinished)[0]

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        """Final status of each answer, and its reason or error."""
        replies = self.events(ReplyFinished)
        return [(event.status, event.reason or event.error) for event in replies]

    @property
    def words(self) -> list[str]:
        """The pieces of text of all answers, as the client received them."""
        return [event.text for event in self.events(ReplyText)]

    @property
    def audio_s(self) -> float:
        """Seconds of speech that the client received."""
        return sum(len(event.pcm) / event.rate for event in self.events(ReplyAudio))

    @property
    def refusals(self) -> list[tuple[str | None, str]]:
        """Event id and code of each command that was refused."""
        return [(event.event_id, event.code) for event in self.events(Refused)]

    @property
    def prompts(self) -> list[list[tuple[str, str]]]:
        """Role and text of the messages that the scripted model read for each answer."""
        assert isinstance(self.stages.llm, ScriptedLlm)
        return [[(m.role, m.content) for m in prompt] for prompt in self.stages.llm.prompts]

    @property
    def chat(self) -> list[tuple[str, str]]:
        """Role and text of the messages that the conversation keeps."""
        items = self.session.chat.items
        return [(item.role, item.text) for item in items if isinstance(item, MessageItem)]


@asynccontextmanager
async def scene(
    *,
    config: SessionConfig | None = None,
    settings: SessionSettings | None = None,
    turn: TurnStage | None = None,
    stt: SttStage | None = None,
    llm: LlmStage | None = None,
    tts: TtsStage | None = None,
    kept: KeptVoice | None = None,
    memory: Memory | None = None,
    vad: VadStage | None = None,
    hearing: Hearing | None = None,
    recorder: Recorder | None = None,
    tool_servers: ToolServers | None = None,
    wake_word: WakeWord | None = None,
    speaker: SpeakerStage | None = None,
    people: tuple[Person, ...] = (),
    stages: Stages | None = None,
) -> AsyncIterator[Scene]:
    """A session that runs until the context ends; engines that are not given are scripted.
    ``stages``: all engines, in place of single ones."""
    stages = stages or Stages(
        vad or LevelVad(),
        turn or ScriptedTurn(),
        stt or ScriptedStt(),
        llm or ScriptedLlm(),
        tts or ScriptedTts(),
        notice_voice=kept,
        speaker=speaker,
        people=people,
    )
    bus = Bus()
    log: list[Published] = []
    bus.tap(log.append)
    counter = itertools.count(1 + len(memory.chat.items) * 100 if memory else 1)
    config = config or VOICE
    session = Session(
        stages,
        config,
        with_words(settings),
        bus,
        lambda prefix: f"{prefix}_{next(counter)}",
        memory,
        hearing,
        SessionRecording(recorder, bus, config, memory) if recorder else None,
        tool_servers,
        wake_word,
    )

    running = asyncio.create_task(session.run())
    try:
        played = Scene(session, log, stages, bus, asyncio.get_running_loop())
        await played.settle()
        yield played
    finally:
        running.cancel()
        await asyncio.wait({running})
        bus.close()
    if not running.cancelled() and (error := running.exception()):
        raise error


def play(*acts: Act, **options: Any) -> Scene:
    """Play a whole scene in virtual time; ``options`` are those of ``scene``.

    >>> played = play(say(1.0), silence(3.0), stt=ScriptedStt(["What time is it?"]))
    >>> played.transcripts, played.statuses
    (['What time is it?'], ['completed'])
    """

    async def main() -> Scene:
        async with scene(**options) as played:
            await played.act(*acts)
        return played

    result: Scene = run_virtual(main())
    return result
