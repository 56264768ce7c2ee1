"""Real sessions over scripted engines, for ``scripted_server.servers``."""

from __future__ import annotations

from collections.abc import Mapping

from app.compose import new_id
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.engines.stages import Stages, VadStage
from pipeline.realtime.session_config import SessionDefaults
from pipeline.session import Session
from tests.support.lexicons import with_words
from tests.support.scripted import (
    LevelVad,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
)


class CountedLlm(ScriptedLlm):
    """Quick, unless told otherwise."""

    def __init__(self, first_s: float = 0.0, per_token_s: float = 0.0) -> None:
        super().__init__(first_s=first_s, per_token_s=per_token_s)


class StagedAssistant:
    """``app.compose.Assistant`` with scripted engines; they are quick unless told otherwise."""

    def __init__(
        self,
        llm: CountedLlm | None = None,
        tts: ScriptedTts | None = None,
        vad: VadStage | None = None,
    ) -> None:
        self.llm = llm or CountedLlm()
        self.tts = tts or ScriptedTts(first_s=0.0, seconds_per_word=0.05)
        self.stt = ScriptedStt(takes_s=0.0)
        self.sessions: list[Session] = []
        self.buses: list[Bus] = []
        turn = ScriptedTurn(takes_s=0.0)
        self._stages = Stages(vad or LevelVad(), turn, self.stt, self.llm, self.tts)

    def defaults(self) -> SessionDefaults:
        return SessionDefaults("reachy-voice", "joe", ("joe",), "You are Reachy.")

    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        session = Session(self._stages, config, with_words(None), bus, new_id, memory)
        self.sessions.append(session)
        self.buses.append(bus)
        return session

    def memory(self, chat: Chat) -> Memory:
        return Memory(chat, LastingConversation(self._stages))

    def readiness(self) -> Mapping[str, str | None]:
        return {"stt": None, "llm": None}

    def forget(self) -> None:
        """Let go of all that was noted for tests to look at."""
        for noted in (self.llm.prompts, self.llm.warmed, self.llm.offered, self.tts.said):
            noted.clear()
        for kept in (self.stt.finished, self.sessions, self.buses):
            kept.clear()

    async def idle(self) -> None:
        for session in self.sessions:
            await session.quiet()
