"""The composition root: builds a running assistant from settings."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from app.announcing.announcer import Announcer
from app.clock.clock import Clock
from app.clock.clock_tools import ClockTools, WithClock
from app.clock.phrases import PlainRequests
from app.clock.sentences import Sentences
from app.clock.timers_file import TimersFile
from app.models.engine_set import EngineSet, engines_alone
from app.models.wake_word import wake_word
from app.models.weights import WeightsCache
from app.models.word_scales import WordScales
from app.people.household import Household
from app.settings.languages import (
    read_clock,
    read_lexicons,
    read_notices,
    read_sentences,
)
from app.settings.load import config_dir
from app.settings.model import Settings
from app.settings.tools import ToolSettings
from pipeline.audio import Pcm
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.echo.client import Rooms
from pipeline.engines.registry import EngineOptions, Kind, SttOptions, require_package
from pipeline.errors import EngineError, one_error
from pipeline.hearing.client import ClientHearing, Hearing
from pipeline.messages import SpeechRequest
from pipeline.realtime.session_config import SessionDefaults
from pipeline.recording.writing import Recorder, SessionRecording
from pipeline.session import Session
from pipeline.settings import Rule, SessionSettings
from pipeline.tools.contract import NoToolServers, RunningToolServers, ToolServers
from pipeline.waking.calls import Calls
from pipeline.waking.waking import DEFAULT_CALLS, calls_of
from pipeline.work import Work
from pipeline.workers.stages import tts_stage


def new_id(prefix: str) -> str:
    """A fresh id in the style of the Realtime API, such as ``item_5f2c…``."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Assistant:
    """All engines and the sessions that use them. ``run`` it in a TaskGroup; ``close`` ends it."""

    def __init__(self, settings: Settings, cache: WeightsCache) -> None:
        """Reads files only. Raises ``ConfigError``, ``MissingExtra`` or ``WeightsError``."""
        self.settings = settings
        cache.check(settings.needed_weights())
        languages = config_dir() / "languages"
        self._lexicons = read_lexicons(languages)
        self._notices = read_notices(languages)
        self.sessions: weakref.WeakKeyDictionary[Session, str] = weakref.WeakKeyDictionary()
        """Each session with its client's place."""
        self.announcer = Announcer(lambda: list(self.sessions.items()))
        self._wake_word = wake_word(settings)
        calls = (*calls_of(settings.wake, self._wake_word), *DEFAULT_CALLS)
        self.clock, self._rule = _clock(settings, self.announcer, read_clock(languages), calls)
        scales = _word_scales(settings, cache)
        self.engines = EngineSet(settings, cache, scales, self._apologies())
        self.stages = self.engines.stages
        self.ready = self.engines.ready
        self.household = Household(settings, self.engines)
        self._rooms = Rooms()
        self.recorder: Recorder | None = None
        """Records sessions that start from now on."""
        self.tool_servers = _tool_servers(settings.tools, self._tools_changed)

    async def run(
        self,
        on_engine_ready: Callable[[Kind], None] = lambda kind: None,
        *,
        without_servers: bool = False,
    ) -> None:
        """Build and warm every engine, then live until ``close``. ``without_servers``: engines by
        URL may become ready later. Raises what a build raises."""
        with one_error():
            async with asyncio.TaskGroup() as group:
                beside = [self.tool_servers.run(), self.announcer.run(), self.household.run()]
                beside += [self.clock.run()] if self.clock else []
                running = [group.create_task(each) for each in beside]
                await self.engines.run(on_engine_ready, without_servers=without_servers)
                for task in running:
                    task.cancel()

    def close(self) -> None:
        self.engines.close()

    def readiness(self) -> Mapping[str, str | None]:
        """Why each engine is not ready, or ``None``."""
        return self.engines.readiness()

    def describe(self, kind: Kind) -> str:
        """The engine of one kind and its weights, for display."""
        return described(self.settings.engine(kind))

    # -- sessions (app.server.realtime_link.AssistantLike)

    def defaults(self) -> SessionDefaults:
        """A session's configuration before its client changes it. Without voices if those are not
        known yet, for a session that only transcribes."""
        conversation = self.settings.conversation
        voices: Sequence[str] = ()
        with suppress(EngineError):
            voices = self.stages.tts.voices
        return SessionDefaults(
            model=MODEL,
            voice=getattr(self.settings.tts, "voice", None) or next(iter(voices), ""),
            voices=voices,
            instructions=conversation.instructions,
            language=conversation.language,
            language_fixed=conversation.language_fixed,
            tool_servers=tuple(self.settings.tools.mcp),
            tool_server_urls=self.settings.tools.client_urls,
        )

    def session(
        self,
        bus: Bus,
        config: SessionConfig,
        memory: Memory | None = None,
        place: str = "",
        hearing: Hearing | None = None,
    ) -> Session:
        """``hearing``: the input path; ``None``: a remote client's at ``place``."""
        if hearing is None:
            hearing = self._far_away(place)
        settings = self.session_settings()
        recording = SessionRecording(self.recorder, bus, config, memory) if self.recorder else None
        servers: ToolServers = self.tool_servers
        if self.clock:
            offered = self.settings.tools.clock == "always"
            tools = ClockTools(self.clock, place, lambda: session.language, offered=offered)
            servers = WithClock(tools, servers)
        parts = memory, hearing, recording, servers, self._wake_word
        session = Session(self.stages, config, settings, bus, new_id, *parts)
        self.sessions[session] = place
        self.announcer.arrive()
        return session

    def memory(self, chat: Chat) -> Memory:
        """The memory of a conversation that began at another server."""
        return Memory(chat, LastingConversation(self.stages))

    def session_settings(self) -> SessionSettings:
        """The part of the settings that sessions follow."""
        settings = self.settings
        return SessionSettings(
            endpointing=settings.endpointing,
            speculation=settings.speculation,
            barge_in=settings.barge_in,
            echo=settings.echo,
            sampling=settings.conversation.sampling.build(),
            tool_instructions=settings.conversation.tool_instructions,
            max_items=settings.limits.max_items,
            wake=settings.wake,
            partials=settings.conversation.partial_transcripts,
            lead_ms=settings.playback.lead_ms,
            chunk_ms=settings.playback.chunk_ms,
            watched=settings.playback.watch_voice,
            lexicons=self._lexicons,
            words=settings.stt.words if isinstance(settings.stt, SttOptions) else (),
            notices=self._notices,
            apology=settings.conversation.apology,
            exchange_notice=settings.conversation.exchange_notice,
            filler=settings.conversation.filler,
            accept=settings.accepted,
            people=settings.people.accept,
            rule=self._rule,
            clock=time.time if settings.conversation.clock else None,
        )

    def _apologies(self) -> Mapping[str, str]:
        """The apologies in all languages that may be spoken, each with its language."""
        own = self.session_settings()
        heard = _heard_languages(self.settings, {each.language for each in self._notices})
        spoken = [own.notices_in(each) for each in heard or (self.settings.conversation.language,)]
        return {each.apology: each.language for each in spoken if each.apology}

    def _tools_changed(self) -> None:
        for session in list(self.sessions):
            session.tools_changed()

    def _far_away(self, place: str) -> Hearing:
        room, keep = self._rooms.of(place), partial(self._rooms.keep, place)
        return ClientHearing(self.stages.vad.window_samples, self.settings.echo, room, keep)

    async def idle(self) -> None:
        """Wait until no session is replying."""
        for session in list(self.sessions):
            await session.quiet()


def _clock(
    settings: Settings,
    announcer: Announcer,
    words: Mapping[str, Mapping[str, str]],
    calls: Sequence[str],
) -> tuple[Clock | None, Rule | None]:
    """The timers, and the rule that recognises plain requests behind one of ``calls``."""
    if settings.tools.clock == "never":
        return None, None

    heard = _heard_languages(settings, words)
    usual = [each for each in words if each in heard or not heard]
    clock = Clock(TimersFile(settings.paths.timers(os.environ)), announcer, Sentences(words))
    return clock, PlainRequests(words, usual, Calls(calls, ()), lambda: clock.now().wall)


def _tool_servers(settings: ToolSettings, changed: Callable[[], None]) -> RunningToolServers:
    """Raises ``MissingExtra``."""
    if not settings.used:
        return NoToolServers()
    require_package("mcp", "tools.mcp or tools.client_urls")
    from app.mcp.servers import McpServers

    return McpServers(settings, changed)


def _word_scales(settings: Settings, cache: WeightsCache) -> WordScales:
    """Scales for the conversation's language; if it is not fixed, for all that STT knows."""
    sentences = read_sentences(config_dir() / "languages")
    heard = _heard_languages(settings, sentences)
    chosen = {key: sentences[key] for key in sentences if key in heard or not heard}
    return WordScales(chosen, settings.conversation.instructions, cache.directory / "word-scales")


def _heard_languages(settings: Settings, known: Container[str]) -> Sequence[str]:
    """The conversation's language, or those that STT knows; empty: any."""
    language = settings.conversation.language
    return (language,) if language in known else getattr(settings.stt, "languages", ())


def described(options: EngineOptions) -> str:
    """An engine and its weights, for display."""
    detail = options.weights_name or getattr(options, "url", None)
    return f"{options.engine} ({detail})" if detail else options.engine


async def synthesize_alone(
    settings: Settings, cache: WeightsCache, texts: Sequence[str]
) -> list[tuple[Pcm, int]]:
    """Speak each text with the voice engine alone: (int16 mono, rate in Hz)."""
    spoken = []
    async with engines_alone(settings, cache, Kind.TTS) as (engine,):
        tts = tts_stage(engine)
        for text in texts:
            chunks = [pcm async for pcm in tts.synthesize(SpeechRequest(text), Work())]
            spoken.append((np.concatenate(chunks), tts.rate))
    return spoken


MODEL = "reachy-voice"
"""Model name that the API shows for the whole cascade."""
