"""Real sessions over scripted engines, for ``scripted_server.servers``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from app.announcing.announcer import Announcer
from app.compose import new_id
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.engines.stages import VadStage
from pipeline.realtime.session_config import SessionDefaults
from pipeline.session import Session
from pipeline.settings import SessionSettings
from pipeline.tools.contract import ToolServers
from reachy_voice.testing import Cast, ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurn
from reachy_voice.testing.words import with_words

quick_llm = partial(ScriptedLlm, first_s=0.0, per_token_s=0.0)


def quick_cast() -> Cast:
    """Engines that take no time."""
    tts = ScriptedTts(first_s=0.0, seconds_per_word=0.05)
    return Cast(ScriptedStt(takes_s=0.0), quick_llm(), tts, ScriptedTurn(takes_s=0.0))


class StagedAssistant:
    """``app.compose.Assistant`` with scripted engines, quick by default."""

    def __init__(
        self,
        llm: ScriptedLlm | None = None,
        tts: ScriptedTts | None = None,
        vad: VadStage | None = None,
        *,
        cast: Cast | None = None,
        settings: SessionSettings | None = None,
        tool_servers: ToolServers | None = None,
        tool_server_urls: Sequence[str] = (),
    ) -> None:
        self.tool_servers, self.tool_server_urls = tool_servers, tool_server_urls
        self.cast = cast or quick_cast()
        self.llm = self.cast.llm = llm or self.cast.llm
        self.tts = self.cast.tts = tts or self.cast.tts
        self.cast.vad = vad or self.cast.vad
        self.stt = self.cast.stt
        self.reasons: dict[str, str | None] = {"stt": None, "llm": None, "tts": None}
        self.sessions: list[Session] = []
        self.places: list[str] = []
        self.announcer = Announcer(lambda: zip(self.sessions, self.places, strict=True))
        self.household = None
        self.buses: list[Bus] = []
        self.draining = asyncio.Event()
        self._settings = with_words(settings)
        self.stages = self.cast.stages()

    def defaults(self) -> SessionDefaults:
        assert not self.reasons["stt"], "no session does without that"
        voices = self.tts.voices
        owners = [each.label for each in self.tool_servers.owners] if self.tool_servers else []
        return SessionDefaults(
            "reachy-voice",
            voices[0],
            voices,
            "You are Reachy.",
            tool_servers=owners,
            tool_server_urls=self.tool_server_urls,
        )

    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        servers = self.tool_servers
        session = Session(
            self.stages, config, self._settings, bus, new_id, memory, tool_servers=servers
        )
        self.sessions.append(session)
        self.places.append(place)
        self.announcer.arrive()
        self.buses.append(bus)
        return session

    def memory(self, chat: Chat) -> Memory:
        return Memory(chat, LastingConversation(self.stages))

    def session_settings(self) -> SessionSettings:
        return self._settings

    def readiness(self) -> Mapping[str, str | None]:
        return self.reasons

    def forget(self) -> None:
        """Drop everything that was recorded for tests."""
        for noted in (self.llm.prompts, self.llm.warmed, self.llm.offered, self.tts.said):
            noted.clear()
        for kept in (self.stt.finished, self.sessions, self.places, self.buses):
            kept.clear()

    async def idle(self) -> None:
        self.draining.set()
        for session in self.sessions:
            await session.quiet()
