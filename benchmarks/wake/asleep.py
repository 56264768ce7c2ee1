"""A sleeping session in virtual time, with the real VAD, recogniser and wake engine."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from app.models.wake_word import wake_word
from app.settings.languages import read_lexicons
from app.settings.load import config_dir, load_settings
from benchmarks.harness.acoustics import Signal, to_pcm, to_signal
from benchmarks.harness.program import weights
from benchmarks.harness.rooms import through
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm
from pipeline.bus import Bus, Published
from pipeline.commands import AppendAudio, CreateResponse, SessionConfig
from pipeline.engines.contract import Partial, Transcript, Utterance, WakeWord
from pipeline.engines.stages import Stages
from pipeline.engines.stt import moonshine
from pipeline.engines.vad import silero
from pipeline.events import FellAsleep, ReplyAudio, TranscriptReady, Woke
from pipeline.messages import SpeechRequest
from pipeline.session import Session
from pipeline.settings import SessionSettings, Wake
from pipeline.waking.calls import Calls
from pipeline.waking.tuning import FIRST_WORDS_SAMPLES
from pipeline.waking.waking import calls_of
from pipeline.work import NEVER, Work
from reachy_voice.testing import ScriptedLlm, ScriptedTurn

ECHO_DELAY_S = 0.12
LEAD_S = 3.0
"""How much sound comes before a call."""


@dataclass
class InlineStt:
    """The real recogniser, without a worker. ``busy_s``: processor time."""

    engine: moonshine.Moonshine
    streams: bool = False
    languages: Sequence[str] = ("en",)
    busy_s: float = 0.0
    passes: int = 0

    async def open(self, language: str, partials: bool, work: Work) -> InlineUtterance:
        return InlineUtterance(self, self.engine.open("en", False))

    async def begins_with(self, pcm: Pcm, phrase: str, work: Work) -> bool | None:
        began = time.process_time()
        found = self.engine.begins_with(pcm, phrase)
        self.busy_s += time.process_time() - began
        return found


@dataclass
class InlineUtterance:
    stt: InlineStt
    utterance: Utterance

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        return self.utterance.feed(pcm)

    async def finish(self, work: Work) -> Transcript:
        began = time.process_time()
        transcript = self.utterance.finish(NEVER)
        self.stt.busy_s += time.process_time() - began
        self.stt.passes += 1
        return transcript

    def close(self) -> None:
        pass


@dataclass
class ClipVoice:
    """A voice that says everything with the same clip."""

    clip: Pcm
    rate: int = LISTEN_RATE
    voices: Sequence[str] = ("clip",)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        yield self.clip


@dataclass
class SleepEars:
    """The real engines that hear, built once."""

    vad: silero.SileroVad
    stt: InlineStt
    wake: Wake
    wake_word: WakeWord | None

    def session(self, bus: Bus, clip: Pcm, answer: str) -> Session:
        llm = ScriptedLlm((answer,), first_s=0.05)
        stages = Stages(InlineVad(self.vad), ScriptedTurn(), self.stt, llm, ClipVoice(clip))
        languages = config_dir() / "languages"
        settings = SessionSettings(
            wake=self.wake,
            lexicons=read_lexicons(languages),
        )
        config = SessionConfig("Be brief.", output_format=AudioFormat(rate=LISTEN_RATE))
        ids = itertools.count()
        new_id = "{}_{}".format
        return Session(
            stages,
            config,
            settings,
            bus,
            lambda prefix: new_id(prefix, next(ids)),
            wake_word=self.wake_word,
        )

    def called(self, sound: Signal) -> bool:
        """Whether the engine hears the call, without a session. A model hears every sample anyway;
        the recogniser gets the two seconds from ``LEAD_S`` on, without what precedes an onset."""
        if self.wake_word:
            return bool(model_times(self.wake_word, sound))
        first = round((LEAD_S - 0.3) * LISTEN_RATE)
        utterance = self.stt.engine.open("en", False)
        heard = sound[first : first + FIRST_WORDS_SAMPLES + LISTEN_RATE * 3 // 10]
        utterance.feed(to_pcm(heard))
        call = calls_of(self.wake, None)[0]
        text = utterance.finish(NEVER).text
        return Calls([call], ()).begins(text, 0) or bool(
            self.stt.engine.begins_with(to_pcm(heard), call)
        )


def ears(engine: str) -> SleepEars:
    sets = ["wake.mode=word", f"wake.engine={engine}", "wake.follow_up_s=1"]
    settings = load_settings(None, sets, {}).settings
    recogniser = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    vad = silero.build(silero.SileroOptions(), weights("silero-vad"))
    return SleepEars(vad, InlineStt(recogniser), settings.wake, wake_word(settings))


@dataclass
class SleepScene:
    """What a session hears and says. ``echo``: its voice as the microphone hears it."""

    sound: Signal
    echo: Signal | None = None
    events: list[Published] = field(default_factory=list)
    _played_to: int = 0

    def note(self, published: Published) -> None:
        at, event = published
        if isinstance(event, Woke | FellAsleep | TranscriptReady):
            self.events.append(published)
        if isinstance(event, ReplyAudio) and self.echo is not None:
            heard = through(to_signal(event.pcm), self.echo)
            start = max(self._played_to, round((at + ECHO_DELAY_S) * LISTEN_RATE))
            self._played_to = start + len(heard)
            place = self.sound[start : self._played_to]
            place += heard[: len(place)]


async def live(session: Session, bus: Bus, microphone: SleepScene, announce: bool) -> None:
    """Let the session hear the whole sound at normal speed."""
    bus.tap(microphone.note)
    running = asyncio.create_task(session.run())
    loop = asyncio.get_running_loop()
    began, step = loop.time(), LISTEN_RATE // 50
    try:
        for start in range(0, len(microphone.sound), step):
            if announce and start == step:
                await session.submit(CreateResponse())
            pcm = to_pcm(microphone.sound[start : start + step])
            await session.submit(AppendAudio(pcm, LISTEN_RATE))
            await asyncio.sleep(max(0.0, began + (start + step) / LISTEN_RATE - loop.time()))
    finally:
        running.cancel()
        await asyncio.wait({running})


def model_times(model: WakeWord, sound: Signal) -> list[float]:
    stream, step, pcm = model.open(), 512, to_pcm(sound)
    starts = range(0, len(pcm), step)
    times = [at / LISTEN_RATE for at in starts if stream.called(pcm[at : at + step])]
    return [at for n, at in enumerate(times) if not n or at - times[n - 1] > 2]
