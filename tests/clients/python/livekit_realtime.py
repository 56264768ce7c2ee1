"""livekit: its agents' realtime model, as a session without a room.

This program does by hand what an agent does: it plays the generated audio, runs the tools, and
interrupts and truncates when the user speaks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from common import RATE, Moment, Plan, Report, Watch, hold, note, silence, stream
from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai.realtime import RealtimeModel, RealtimeSession

SESSION_S = 3.0
"""When ``reconnect`` connects anew, in s; livekit's default is 20 minutes."""
HEARD_MS = 100
"""How much of the story plays before the interruption."""


@llm.function_tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


class Talk(Watch):
    """One session and its events."""

    def __init__(self, session: RealtimeSession, report: Report, playing: asyncio.TaskGroup):
        super().__init__(report)
        self.session = session
        self.playing = playing
        self.interrupted = ""
        """The response that the user has interrupted."""
        self.generation: llm.GenerationCreatedEvent | None = None
        self.message_id = ""
        session.on("openai_server_event_received", self._on_server_event)
        session.on("generation_created", self._on_generation)
        session.on("input_speech_started", self._on_speech)
        session.on("error", lambda error: report.errors.append(repr(error.error)))

    def said(self, count: int, responses: int) -> Moment:
        """Wait until this many answers have played out and this many responses are done."""
        report = self.report
        return self.when(lambda: len(report.said) >= count and len(report.statuses) >= responses)

    def _on_server_event(self, event: dict[str, Any]) -> None:
        # The words are taken from the session's own streams.
        if event["type"] != "response.output_audio_transcript.done":
            note(self.report, event)
        late = event["type"] == "response.output_audio.delta"
        if late and event["response_id"] == self.interrupted:
            self.report.late_audio_bytes += len(event["delta"])
        self.look()

    def _on_generation(self, generation: llm.GenerationCreatedEvent) -> None:
        self.generation = generation
        self.playing.create_task(self._play(generation))
        self.playing.create_task(self._call(generation))

    async def _play(self, generation: llm.GenerationCreatedEvent) -> None:
        async for message in generation.message_stream:
            self.message_id = message.message_id
            words, _ = await asyncio.gather(
                _joined(message.text_stream), self._hear(message.audio_stream)
            )
            self.report.said.append(words)
            self.look()

    async def _hear(self, frames: Any) -> None:
        async for frame in frames:
            self.report.audio_bytes += len(frame.data) * 2
            self.look()

    async def _call(self, generation: llm.GenerationCreatedEvent) -> None:
        outputs = []
        async for call in generation.function_stream:
            self.report.tool_calls.append({"name": call.name, "arguments": call.arguments})
            output = await get_weather(**json.loads(call.arguments))
            outputs.append(
                llm.FunctionCallOutput(
                    name=call.name, call_id=call.call_id, output=output, is_error=False
                )
            )
        if outputs:
            context = self.session.chat_ctx.copy()
            context.items.extend(outputs)
            await self.session.update_chat_ctx(context)
            await self.session.generate_reply()

    def _on_speech(self, event: llm.InputSpeechStartedEvent) -> None:
        if self.session.has_active_generation and self.generation and self.message_id:
            self.interrupted = self.generation.response_id or ""
            self.session.interrupt()
            self.session.truncate(
                message_id=self.message_id, modalities=["audio", "text"], audio_end_ms=HEARD_MS
            )

    async def send(self, pcm: bytes) -> None:
        self.session.push_audio(rtc.AudioFrame(pcm, RATE, 1, len(pcm) // 2))

    async def write(self, text: str) -> None:
        context = self.session.chat_ctx.copy()
        context.add_message(role="user", content=text)
        await self.session.update_chat_ctx(context)
        await self.session.generate_reply()

    def history(self) -> list[dict[str, str]]:
        """The conversation's words in the session's chat context."""
        return [
            {"role": item.role, "text": item.text_content or ""}
            for item in self.session.chat_ctx.items
            if item.type == "message"
        ]


async def _joined(texts: Any) -> str:
    return "".join([str(text) async for text in texts])


@asynccontextmanager
async def talking(report: Report, plan: Plan, **options: Any) -> AsyncIterator[Talk]:
    base = plan.url.replace("ws://", "http://").removesuffix("/realtime")
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as playing:
        model = RealtimeModel(
            model=report.turn, api_key="unused", base_url=base, http_session=http, **options
        )
        session = model.session()
        talk = Talk(session, report, playing)
        configured = talk.event("session.updated", 2)
        await session.update_instructions("Be brief.")
        await configured.wait()
        try:
            yield talk
            report.history = talk.history()
        finally:
            await session.aclose()


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.said(1, 1))


async def push_to_talk(report: Report, plan: Plan) -> None:
    async with talking(report, plan, turn_detection=None) as talk:
        done = talk.said(1, 1)
        await talk.send(plan.tone("time", 0.5))
        await talk.send(silence(0.1))
        talk.session.commit_audio()
        await talk.session.generate_reply()
        await done.wait()


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        done = talk.said(1, 1)
        await talk.write("What time is it?")
        await done.wait()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        known = talk.event("session.updated", 3)
        await talk.session.update_tools([get_weather])
        await known.wait()
        await stream(plan.tone("weather", 0.5), talk.send, talk.said(1, 2))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await talk.write("Tell me a long story.")
        await speaking.wait()
        await stream(plan.tone("wait", 0.5), talk.send, talk.said(2, 2))


async def reconnect(report: Report, plan: Plan) -> None:
    async with talking(report, plan, max_session_duration=SESSION_S) as talk:
        first, second = talk.said(1, 1), talk.said(2, 2)
        # One question and answer per connection. The session knows no item of the new
        # connection until the server has announced it.
        repeated = talk.event("conversation.item.added", 4)
        await talk.write("What time is it?")
        await first.wait()
        await repeated.wait()
        await talk.write("Tell me the time again.")
        await second.wait()


hold(voice, push_to_talk, text, tool, barge_in, reconnect)
