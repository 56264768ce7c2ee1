"""semantic-kernel: its OpenAI realtime service over a WebSocket, with a plugin for the tool.

The service sends a tool's output as soon as the arguments are done. It has no way to turn the
detection of turns off (settings that are None are not sent), so push-to-talk does that with the
connection that the service holds; and it leaves truncating to the application.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from common import Moment, Plan, Report, hold, note, silence, stream
from numpy import ndarray
from openai import AsyncOpenAI

# A template language that the package imports and no realtime session uses; pip would have to
# build it.
pybars: Any = ModuleType("pybars")
pybars.Compiler = pybars.PybarsError = Exception
sys.modules["pybars"] = pybars

from semantic_kernel.connectors.ai import FunctionChoiceBehavior  # noqa: E402
from semantic_kernel.connectors.ai.open_ai import (  # noqa: E402
    OpenAIRealtimeExecutionSettings,
    OpenAIRealtimeWebsocket,
    SendEvents,
)
from semantic_kernel.contents import (  # noqa: E402
    AudioContent,
    RealtimeAudioEvent,
    RealtimeEvent,
    RealtimeFunctionCallEvent,
    RealtimeTextEvent,
    TextContent,
)
from semantic_kernel.functions import kernel_function  # noqa: E402


class WeatherPlugin:
    @kernel_function(name="get_weather", description="The weather in a city.")
    async def get_weather(self, city: str) -> str:
        return "sunny"


class Talk:
    """One session and what it experiences."""

    def __init__(self, service: OpenAIRealtimeWebsocket, report: Report) -> None:
        self.service = service
        self.report = report
        self.moments: list[Moment] = []
        self.speaking = ("", "")
        """The response and the item whose audio came last."""
        self.interrupted = ""

    def when(self, happened: Callable[[], bool]) -> Moment:
        self.moments.append(Moment(happened))
        return self.moments[-1]

    def event(self, name: str, count: int = 1) -> Moment:
        return self.when(lambda: self.report.events.count(name) >= count)

    def responses(self, count: int) -> Moment:
        """When so many responses are done."""
        return self.when(lambda: len(self.report.statuses) >= count)

    async def follow(self) -> None:
        async for event in self.service.receive(self._hear):
            if event.service_event is not None:
                await self._note(event)
            for moment in self.moments:
                moment.look()

    async def _hear(self, pcm: ndarray) -> None:
        self.report.audio_bytes += pcm.nbytes

    async def _note(self, event: RealtimeEvent) -> None:
        server_event: Any = event.service_event
        note(self.report, server_event.to_dict())
        if isinstance(event, RealtimeFunctionCallEvent):
            call = event.function_call
            if server_event.type.endswith(".done"):
                given = {"name": str(call.function_name), "arguments": str(call.arguments)}
                self.report.tool_calls.append(given)
        elif isinstance(event, RealtimeAudioEvent):
            self.speaking = (server_event.response_id, server_event.item_id)
            if server_event.response_id == self.interrupted:
                self.report.late_audio_bytes += len(server_event.delta)
        elif server_event.type == "input_audio_buffer.speech_started" and self.speaking[0]:
            self.interrupted, item_id = self.speaking
            await self.tell(SendEvents.CONVERSATION_ITEM_TRUNCATE, item_id=item_id, audio_end_ms=60)
        elif server_event.type == "error":
            self.report.errors.append(server_event.error.message)

    async def tell(self, kind: SendEvents, **data: Any) -> None:
        await self.service.send(RealtimeEvent(service_type=kind, service_event=data))

    async def send(self, pcm: bytes) -> None:
        audio = AudioContent(data=base64.b64encode(pcm).decode())
        await self.service.send(RealtimeAudioEvent(audio=audio))

    async def write(self, text: str) -> None:
        await self.service.send(RealtimeTextEvent(text=TextContent(text=text)))
        await self.tell(SendEvents.RESPONSE_CREATE)


@asynccontextmanager
async def talking(report: Report, plan: Plan, **options: Any) -> AsyncIterator[Talk]:
    base = plan.url.replace("ws://", "http://").removesuffix("/realtime")
    client = AsyncOpenAI(base_url=base, api_key="unused")
    service = OpenAIRealtimeWebsocket(ai_model_id=report.turn, client=client)
    settings = OpenAIRealtimeExecutionSettings(
        instructions="Be brief.",
        voice="alloy",
        turn_detection={"type": "server_vad"},
        input_audio_transcription={"model": "whisper-1"},
        function_choice_behavior=FunctionChoiceBehavior.Auto() if options else None,
    )
    async with client, service(settings=settings, **options):
        talk = Talk(service, report)
        configured = talk.event("session.updated")
        following = asyncio.create_task(talk.follow())
        await configured.wait()
        yield talk
    await following


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        await stream(plan.tone("time", 0.5), talk.send, talk.responses(1))


async def push_to_talk(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        manual = talk.event("session.updated", 2)
        connection = talk.service.connection
        assert connection is not None
        await connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        )
        await manual.wait()
        done = talk.responses(1)
        await talk.send(plan.tone("time", 0.5))
        await talk.send(silence(0.1))
        await talk.tell(SendEvents.INPUT_AUDIO_BUFFER_COMMIT)
        await talk.tell(SendEvents.RESPONSE_CREATE)
        await done.wait()


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        done = talk.responses(1)
        await talk.write("What time is it?")
        await done.wait()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan, plugins={"weather": WeatherPlugin()}) as talk:
        await stream(plan.tone("weather", 0.5), talk.send, talk.responses(2))


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan) as talk:
        speaking = talk.when(lambda: report.audio_bytes > 0)
        await talk.write("Tell me a long story.")
        await speaking.wait()
        both = talk.when(
            lambda: len(report.statuses) >= 2 and "conversation.item.truncated" in report.events
        )
        await stream(plan.tone("wait", 0.5), talk.send, both)


hold(
    {
        "voice": voice,
        "push_to_talk": push_to_talk,
        "text": text,
        "tool": tool,
        "barge_in": barge_in,
    }
)
