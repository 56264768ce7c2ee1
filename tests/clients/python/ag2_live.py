"""ag2: its live agent over the OpenAI realtime configuration.

A session takes audio and nothing else: no written words, and no commit for push-to-talk. It hears
of no interruption either, and truncates nothing; the server's cancelling is all there is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ag2.context import ConversationContext
from ag2.events import (
    ModelResponse,
    RecordedAudioEvent,
    SynthesizedAudioEvent,
    ToolCallEvent,
    TranscriptionCompletedEvent,
)
from ag2.live import LiveAgent, OpenAIRealTimeConfig
from ag2.live.openai import InputConfig
from ag2.stream import MemoryStream
from ag2.tools import tool as ag2_tool
from common import Moment, Plan, Report, hold, stream
from openai import AsyncOpenAI


@ag2_tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


class Talk:
    """An open session and what it experiences."""

    def __init__(self, events: MemoryStream, report: Report) -> None:
        self.report = report
        self.moments: list[Moment] = []
        self.context: ConversationContext | None = None
        kinds = (
            (TranscriptionCompletedEvent, self._heard),
            (SynthesizedAudioEvent, self._hear),
            (ToolCallEvent, self._call),
            (ModelResponse, self._respond),
        )
        for kind, note in kinds:
            events.where(kind).subscribe(note)

    def when(self, happened: Callable[[], bool]) -> Moment:
        self.moments.append(Moment(happened))
        return self.moments[-1]

    def said(self, count: int) -> Moment:
        """When so many answers are over."""
        return self.when(lambda: len(self.report.said) >= count)

    def _look(self) -> None:
        for moment in self.moments:
            moment.look()

    async def _heard(self, event: TranscriptionCompletedEvent) -> None:
        self.report.heard = event.content

    async def _hear(self, event: SynthesizedAudioEvent) -> None:
        self.report.audio_bytes += len(event.content)
        self._look()

    async def _call(self, event: ToolCallEvent) -> None:
        self.report.tool_calls.append({"name": event.name, "arguments": event.arguments})

    async def _respond(self, event: ModelResponse) -> None:
        if event.message:
            self.report.said.append(event.message.content)
        self._look()

    async def send(self, pcm: bytes) -> None:
        assert self.context is not None
        await self.context.send(RecordedAudioEvent(pcm))


@asynccontextmanager
async def talking(report: Report, plan: Plan) -> AsyncIterator[Talk]:
    base = plan.url.replace("ws://", "http://").removesuffix("/realtime")
    client = AsyncOpenAI(base_url=base, api_key="unused")
    heard = InputConfig(transcription={"model": "gpt-4o-mini-transcribe"})
    config = OpenAIRealTimeConfig(report.turn, client=client, input=heard)
    tools: list[Any] = [get_weather] if report.turn == "tool" else []
    events = MemoryStream()
    agent = LiveAgent("Reachy", "Be brief.", config=config, tools=tools, stream=events)
    talk = Talk(events, report)
    async with client, agent.run() as talk.context:
        yield talk


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.said(1))


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("weather", 0.5), talk.send, talk.said(1))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await stream(plan.tone("story", 0.5), talk.send, speaking)
        await stream(plan.tone("wait", 0.5), talk.send, talk.said(2))


hold({"voice": voice, "tool": tool, "barge_in": barge_in})
