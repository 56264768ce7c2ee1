"""Plays one scene through a real session, in virtual time.

The transcripts and the verdicts on complete words are the real models' (``ears.Ears``). Their
calls, the answer and the voice take their measured times (``virtual_engines``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.settings.languages import read_lexicons
from app.settings.load import config_dir
from app.settings.model import Settings
from benchmarks.harness.pauses import milliseconds, with_tail
from benchmarks.harness.played_session import played_session
from benchmarks.harness.scene import RecordedTurn
from benchmarks.harness.virtual_engines import (
    EMBEDDED,
    Computer,
    Delays,
    ModelResults,
    VirtualLlm,
    virtual_stages,
)
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm
from pipeline.bus import Published
from pipeline.commands import AddItem, AppendAudio, SessionConfig, TurnDetection
from pipeline.engines.stages import Stages
from pipeline.events import ReplyAudio, ReplyFinished
from pipeline.items import MessageItem, TextPart
from pipeline.messages import Message
from pipeline.session import Session
from pipeline.settings import SessionSettings
from pipeline.work import Priority
from reachy_voice.testing import run_virtual

CHUNK_SAMPLES = LISTEN_RATE // 50
"""20 ms, like the robot's app."""
_AFTER_ANSWER_S = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class PlayedScene:
    """Everything published while a scene played. Event times are seconds since its first sample, as
    if heard in real time."""

    scene: RecordedTurn
    log: list[Published]
    prompts: list[list[Message]]
    """Of the confirmed replies, oldest first."""
    used_s: float
    """Engine time for confirmed work."""
    wasted_s: float
    """Engine time for discarded speculation."""
    ahead_s: float
    """Engine time for reading ahead."""
    passes: int
    """How many the recogniser made."""


def session_settings(settings: Settings) -> SessionSettings:
    """The session's settings, built as in ``app.compose``."""
    return SessionSettings(
        lexicons=read_lexicons(config_dir() / "languages"),
        endpointing=settings.endpointing,
        speculation=settings.speculation,
        barge_in=settings.barge_in,
        echo=settings.echo,
        lead_ms=settings.playback.lead_ms,
        chunk_ms=settings.playback.chunk_ms,
        partials=settings.conversation.partial_transcripts,
    )


def play(
    scene: RecordedTurn,
    ears: ModelResults,
    settings: SessionSettings,
    delays: Delays = EMBEDDED,
    instructions: str = "Be brief.",
    detection: TurnDetection | None = None,
) -> PlayedScene:
    """Play ``scene`` to a new session. Ends with the first sound of its last answer, or
    ``pauses.AFTER_S`` after the speech. Raises ``RuntimeError`` if an answer fails."""
    computer = Computer(delays)
    pcm = with_tail(scene)
    before = len(ears.passes)
    llm = VirtualLlm(ears, computer)
    config = SessionConfig(
        instructions=instructions,
        output_format=AudioFormat(rate=LISTEN_RATE),
        turn_detection=detection or TurnDetection(),
    )
    stages = virtual_stages(pcm, llm)
    log = run_virtual(_say(scene, pcm, stages, settings, config))
    return PlayedScene(
        scene,
        log,
        [messages for work, messages in llm.prompts if work.priority is Priority.CONFIRMED],
        computer.seconds(Priority.CONFIRMED),
        computer.seconds(Priority.SPECULATIVE),
        computer.seconds(Priority.WARM_UP),
        len(ears.passes) - before,
    )


async def _say(
    scene: RecordedTurn, pcm: Pcm, stages: Stages, settings: SessionSettings, config: SessionConfig
) -> list[Published]:
    log: list[Published] = []
    answered = asyncio.Event()
    began = 1.0  # so that the session is warm

    def note(published: Published) -> None:
        log.append(published)
        if isinstance(published.event, ReplyAudio) and published.at * LISTEN_RATE > scene.end:
            answered.set()

    async with played_session(stages, settings, note, config, began) as session:
        if scene.asked:
            question = MessageItem("item_asked", "assistant", (TextPart(scene.asked),))
            await session.submit(AddItem(question))
        await _feed(session, pcm, began, answered)
    for _, event in log:
        if isinstance(event, ReplyFinished) and event.status == "failed":
            raise RuntimeError(f"scene {scene.id}: an answer failed: {event.error}")
    return log


async def _feed(session: Session, pcm: Pcm, began: float, answered: asyncio.Event) -> None:
    """Submit each chunk when its last sample has been heard."""
    loop = asyncio.get_running_loop()
    for at in range(0, len(pcm), CHUNK_SAMPLES):
        chunk = pcm[at : at + CHUNK_SAMPLES]
        heard_at = began + milliseconds(at + len(chunk)) / 1000
        await asyncio.sleep(heard_at - loop.time())
        await session.submit(AppendAudio(chunk, LISTEN_RATE))
        if answered.is_set():
            await asyncio.sleep(_AFTER_ANSWER_S)
            return
