"""strands-agents: its bidirectional agent over the OpenAI realtime model.

The model insists on the server's turns, so it has no push-to-talk; and it truncates nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from common import Moment, Plan, Report, hold, stream
from strands import tool as strands_tool
from strands.bidi import BidiAgent
from strands.bidi.models.openai import realtime
from strands.bidi.types.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiOutputEvent,
    BidiResponseStopEvent,
    BidiTranscriptBlockEvent,
)
from strands.bidi.types.media import AudioDelta


class Talk:
    """A running agent and what it experiences."""

    def __init__(self, agent: BidiAgent, report: Report) -> None:
        self.agent = agent
        self.report = report
        self.moments: list[Moment] = []
        self.playing = ""
        self.interrupted = ""
        """The audio that the user has interrupted."""

    def when(self, happened: Callable[[], bool]) -> Moment:
        self.moments.append(Moment(happened))
        return self.moments[-1]

    def responses(self, count: int) -> Moment:
        """When so many responses are over."""
        return self.when(lambda: self.report.events.count("bidi_response_stop") >= count)

    async def follow(self) -> None:
        async for event in self.agent.receive():
            self._note(event)
            for moment in self.moments:
                moment.look()

    def _note(self, event: BidiOutputEvent) -> None:
        report = self.report
        if isinstance(event, BidiAudioDeltaEvent):
            report.audio_bytes += len(base64.b64decode(event.audio))
            self.playing = event.content_id
            if event.content_id == self.interrupted:
                report.late_audio_bytes += len(event.audio)
        elif isinstance(event, BidiBargeInEvent):
            self.interrupted = self.playing
        elif isinstance(event, BidiTranscriptBlockEvent):
            if event.role == "assistant":
                report.said.append(event.transcript)
            else:
                report.heard += event.transcript
        elif isinstance(event, BidiResponseStopEvent):
            report.events.append(event["type"])

    async def send(self, pcm: bytes) -> None:
        await self.agent.send(AudioDelta(format="pcm", source={"bytes": pcm}))

    def history(self) -> list[dict[str, str]]:
        """The words of the conversation as the agent's messages have them."""
        return [
            {"role": message["role"], "text": part["text"]}
            for message in self.agent.messages
            for part in message["content"]
            if "text" in part
        ]


@asynccontextmanager
async def talking(report: Report, plan: Plan) -> AsyncIterator[Talk]:
    @strands_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        report.tool_calls.append({"name": "get_weather", "arguments": f'{{"city": "{city}"}}'})
        return "sunny"

    # The one way to point it at another server.
    realtime.OPENAI_REALTIME_URL = plan.url
    model = realtime.OpenAIRealtimeModel(
        model_id=report.turn, api_key="unused", transcription_model_id="gpt-4o-mini-transcribe"
    )
    tools: list[Any] = [get_weather] if report.turn == "tool" else []
    agent = BidiAgent(model=model, tools=tools, system_prompt="Be brief.")
    async with agent, asyncio.TaskGroup() as tasks:
        talk = Talk(agent, report)
        following = tasks.create_task(talk.follow())
        yield talk
        report.history = talk.history()
        following.cancel()


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.responses(1))


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        done = talk.responses(1)
        await talk.agent.send("What time is it?")
        await done.wait()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("weather", 0.5), talk.send, talk.responses(2))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await talk.agent.send("Tell me a long story.")
        await speaking.wait()
        await stream(plan.tone("wait", 0.5), talk.send, talk.responses(2))


hold({"voice": voice, "text": text, "tool": tool, "barge_in": barge_in})
