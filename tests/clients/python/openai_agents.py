"""OpenAI's Agents SDK for Python, ``openai-agents``: runner, session, agent and function tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from agents.realtime.model_inputs import RealtimeModelSendRawMessage
from common import Plan, Report, Watch, hold, note, silence, stream


class Talk(Watch):
    """One session and its events."""

    def __init__(self, session: RealtimeSession, report: Report) -> None:
        super().__init__(report)
        self.session = session
        self.configured = self.event("session.updated")
        self.first_response = ""
        self.interrupted = False

    async def follow(self) -> None:
        async for event in self.session:
            self._note(event)
            self.look()

    def _note(self, event: Any) -> None:
        report = self.report
        if event.type == "raw_model_event":
            if event.data.type == "raw_server_event":
                note(report, event.data.data)
            elif event.data.type == "exception":
                report.errors.append(repr(event.data))
        elif event.type == "audio":
            report.audio_bytes += len(event.audio.data)
            self.first_response = self.first_response or event.audio.response_id
            if self.interrupted and event.audio.response_id == self.first_response:
                report.late_audio_bytes += len(event.audio.data)
        elif event.type == "audio_interrupted":
            self.interrupted = True
            report.events.append("audio_interrupted")
        elif event.type == "error":
            report.errors.append(repr(event.error))

    async def send(self, pcm: bytes) -> None:
        await self.session.send_audio(pcm)

    async def request_response(self) -> None:
        message: Any = {"type": "response.create"}
        await self.session.model.send_event(RealtimeModelSendRawMessage(message=message))

    def history(self) -> list[dict[str, str]]:
        """The conversation's words in the session's history."""
        return [
            {"role": item.role, "text": "".join(_text(part) for part in item.content)}
            for item in self.session._history
            if item.type == "message"
        ]


def _text(part: Any) -> str:
    return getattr(part, "transcript", None) or getattr(part, "text", None) or ""


@asynccontextmanager
async def talking(report: Report, plan: Plan, **settings: Any) -> AsyncIterator[Talk]:
    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        report.tool_calls.append({"name": "get_weather", "arguments": f'{{"city": "{city}"}}'})
        return "sunny"

    tools: Any = [get_weather] if report.turn == "tool" else []
    agent = RealtimeAgent(name="Reachy", instructions="Be brief.", tools=tools)
    runner = RealtimeRunner(agent, config={"tracing_disabled": True})
    where: Any = {
        "url": f"{plan.url}?model={report.turn}",
        "api_key": "unused",
        "initial_model_settings": settings,
    }
    async with await runner.run(model_config=where) as session:
        talk = Talk(session, report)
        following = asyncio.create_task(talk.follow())
        await talk.configured.wait()
        yield talk
    await following


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.responses(1))
        report.history = talk.history()


async def push_to_talk(report: Report, plan: Plan) -> None:
    async with talking(report, plan, turn_detection=None) as talk:
        done = talk.responses(1)
        await talk.send(plan.tone("time", 0.5))
        await talk.session.send_audio(silence(0.1), commit=True)
        await talk.request_response()
        await done.wait()


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        done = talk.responses(1)
        await talk.session.send_message("What time is it?")
        await done.wait()
        report.history = talk.history()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("weather", 0.5), talk.send, talk.responses(2))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await talk.session.send_message("Tell me a long story.")
        await speaking.wait()
        # When the user speaks, the SDK truncates by itself and retrieves the rest.
        both = talk.when(
            lambda: len(report.statuses) >= 2 and "conversation.item.retrieved" in report.events
        )
        await stream(plan.tone("wait", 0.5), talk.send, both)
        report.history = talk.history()


hold(voice, push_to_talk, text, tool, barge_in)
