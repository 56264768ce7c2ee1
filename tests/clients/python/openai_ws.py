"""The official Python client, ``openai``: ``realtime.connect``, raw events."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from common import Plan, Report, Watch, hold, note, silence, stream
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

TRANSCRIBED = {"transcription": {"model": "gpt-4o-mini-transcribe"}}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Talk(Watch):
    """One connection and its events."""

    def __init__(self, connection: AsyncRealtimeConnection, report: Report) -> None:
        super().__init__(report)
        self.connection = connection
        self.on_event: Callable[[Any], Any] = lambda event: None
        """Called with each event; may return something to await."""

    async def follow(self) -> None:
        async for event in self.connection:
            self._note(event)
            if (more := self.on_event(event)) is not None:
                await more
            self.look()

    def _note(self, event: Any) -> None:
        report = self.report
        note(report, event.to_dict())
        if event.type == "response.output_audio.delta":
            report.audio_bytes += len(base64.b64decode(event.delta))
        elif event.type == "response.output_text.done":
            report.said.append(event.text)
        elif event.type == "response.function_call_arguments.done":
            report.tool_calls.append({"name": event.name, "arguments": event.arguments})
        elif event.type == "error":
            report.errors.append(event.error.message)

    async def send(self, pcm: bytes) -> None:
        audio = base64.b64encode(pcm).decode()
        await self.connection.input_audio_buffer.append(audio=audio)

    async def write(self, text: str) -> None:
        item: Any = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        await self.connection.conversation.item.create(item=item)
        await self.connection.response.create()


@asynccontextmanager
async def talking(report: Report, plan: Plan, **session: Any) -> AsyncIterator[Talk]:
    base = plan.url.replace("ws://", "http://").removesuffix("/realtime")
    client = AsyncOpenAI(base_url=base, api_key="unused")
    async with client, client.realtime.connect(model=report.turn) as connection:
        talk = Talk(connection, report)
        following = asyncio.create_task(talk.follow())
        updated = talk.event("session.updated")
        asked: Any = {"type": "realtime", **session}
        await connection.session.update(session=asked)
        await updated.wait()
        yield talk
    await following


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan, audio={"input": TRANSCRIBED}) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.responses(1))


async def push_to_talk(report: Report, plan: Plan) -> None:
    manual = {**TRANSCRIBED, "turn_detection": None}
    async with talking(report, plan, audio={"input": manual}) as talk:
        done = talk.responses(1)
        await talk.send(plan.tone("time", 0.5))
        await talk.send(silence(0.1))
        await talk.connection.input_audio_buffer.commit()
        await talk.connection.response.create()
        await done.wait()


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan, output_modalities=["text"]) as talk:
        done = talk.responses(1)
        await talk.write("What time is it?")
        await done.wait()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan, tools=[WEATHER], audio={"input": TRANSCRIBED}) as talk:
        call_ids: list[str] = []

        async def answer() -> None:
            item: Any = {
                "type": "function_call_output",
                "call_id": call_ids.pop(),
                "output": "sunny",
            }
            await talk.connection.conversation.item.create(item=item)
            await talk.connection.response.create()

        def on_event(event: Any) -> Any:
            if event.type == "response.function_call_arguments.done":
                call_ids.append(event.call_id)
            return answer() if event.type == "response.done" and call_ids else None

        talk.on_event = on_event
        await stream(plan.tone("weather", 0.5), talk.send, talk.responses(2))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan, audio={"input": TRANSCRIBED}) as talk:
        cut: dict[str, str] = {}
        item = talk.connection.conversation.item

        def on_event(event: Any) -> Any:
            if event.type == "response.output_audio.delta":
                if not cut:
                    cut.update(item_id=event.item_id, response_id=event.response_id)
                elif "interrupted" in cut and event.response_id == cut["response_id"]:
                    report.late_audio_bytes += len(event.delta)
            elif event.type == "input_audio_buffer.speech_started":
                cut["interrupted"] = "yes"
                return item.truncate(item_id=cut["item_id"], content_index=0, audio_end_ms=60)
            elif event.type == "conversation.item.truncated":
                return item.retrieve(item_id=cut["item_id"])
            return None

        talk.on_event = on_event
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await talk.write("Tell me a long story.")
        await speaking.wait()
        both = talk.when(
            lambda: len(report.statuses) >= 2 and "conversation.item.retrieved" in report.events
        )
        await stream(plan.tone("wait", 0.5), talk.send, both)


hold(voice, push_to_talk, text, tool, barge_in)
