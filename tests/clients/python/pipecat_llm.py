"""pipecat: its OpenAI Realtime service in a pipeline with the usual context aggregators.

The service treats any ``error`` except three as the end of the connection, and validates events.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common import Moment, Plan, Report, Watch, hold, silence, stream
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner

WEATHER = FunctionSchema(
    name="get_weather",
    description="The weather in a city.",
    properties={"city": {"type": "string"}},
    required=["city"],
)


class Speaker(FrameProcessor):
    """Downstream of the service: what would be played, and what the rest of the pipeline is
    told."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report
        self.words = ""
        self.watch = Watch(report)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.report.audio_bytes += len(frame.audio)
        elif isinstance(frame, TTSTextFrame):
            self.words += frame.text
        elif isinstance(frame, LLMFullResponseEndFrame) and self.words:
            self.report.said.append(self.words)
            self.words = ""
        elif isinstance(frame, InterruptionFrame | TTSStartedFrame | TTSStoppedFrame):
            self.report.events.append(type(frame).__name__)
        self.watch.look()
        await self.push_frame(frame, direction)


class Hearing(FrameProcessor):
    """Upstream of the service, which sends the user's words there."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            self.report.heard += frame.text
        await self.push_frame(frame, direction)


class Talk:
    """A running pipeline and its events."""

    def __init__(self, worker: PipelineWorker, speaker: Speaker) -> None:
        self.worker = worker
        self.when = speaker.watch.when
        self.report = speaker.report

    def said(self, words: str) -> Moment:
        """Wait until an answer with these words is over."""
        return self.when(lambda: any(words in said for said in self.report.said))

    async def send(self, pcm: bytes) -> None:
        await self.worker.queue_frame(InputAudioRawFrame(pcm, sample_rate=24_000, num_channels=1))


@asynccontextmanager
async def talking(
    report: Report, plan: Plan, *, asks: str = "", manual_turns: bool = False
) -> AsyncIterator[Talk]:
    """``asks``: text from the user, answered as soon as the session is ready."""
    llm = service(report, plan, manual_turns)
    tools = ToolsSchema(standard_tools=[WEATHER] if report.turn == "tool" else [])
    context = LLMContext([{"role": "user", "content": asks}] if asks else [], tools)
    turns = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
    pair = LLMContextAggregatorPair(context, user_params=turns)
    speaker, hearing = Speaker(report), Hearing(report)
    whole: list[FrameProcessor] = [pair.user(), hearing, llm, speaker, pair.assistant()]
    # An application with its own turn detection announces turns only to the service.
    pipeline = Pipeline([hearing, llm, speaker] if manual_turns else whole)
    worker = PipelineWorker(pipeline, cancel_on_idle_timeout=False, enable_rtvi=False)
    started = asyncio.Event()

    async def on_started(worker: PipelineWorker, frame: Frame) -> None:
        started.set()

    async def on_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
        report.errors.append(frame.error)

    worker.add_event_handler("on_pipeline_started", on_started)
    worker.add_event_handler("on_pipeline_error", on_error)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    if asks:
        await worker.queue_frame(LLMContextFrame(context) if manual_turns else LLMRunFrame())
    try:
        yield Talk(worker, speaker)
    finally:
        await worker.cancel()
        await running
    report.history = [
        {"role": str(message["role"]), "text": str(message["content"])}
        for message in context.get_messages()
        if isinstance(message, dict) and isinstance(message.get("content"), str)
    ]


def service(report: Report, plan: Plan, manual_turns: bool) -> OpenAIRealtimeLLMService:
    audio = events.AudioConfiguration(
        input=events.AudioInput(
            transcription=events.InputAudioTranscription(),
            turn_detection=False if manual_turns else None,
        )
    )
    properties = events.SessionProperties(audio=audio, instructions="Be brief.")
    settings = OpenAIRealtimeLLMService.Settings(model=report.turn, session_properties=properties)
    llm = OpenAIRealtimeLLMService(api_key="unused", base_url=plan.url, settings=settings)

    async def get_weather(params: FunctionCallParams) -> None:
        given = {"name": params.function_name, "arguments": json.dumps(dict(params.arguments))}
        report.tool_calls.append(given)
        await params.result_callback({"weather": "sunny"})

    llm.register_function("get_weather", get_weather)
    return llm


async def greeted(talk: Talk, report: Report) -> None:
    """The service answers its first context and is set up from then on."""
    await talk.said("Hello").wait()
    report.said, report.audio_bytes = [], 0


async def voice(report: Report, plan: Plan) -> None:
    async with talking(report, plan, asks="Hello.") as talk:
        await greeted(talk, report)
        await stream(plan.tone("time", 0.5), talk.send, talk.said("noon"))


async def push_to_talk(report: Report, plan: Plan) -> None:
    async with talking(report, plan, asks="Hello.", manual_turns=True) as talk:
        await greeted(talk, report)
        done = talk.said("noon")
        # On an interruption the service clears the buffer and cancels any running response.
        await talk.worker.queue_frame(InterruptionFrame())
        await talk.worker.queue_frame(UserStartedSpeakingFrame())
        await talk.send(plan.tone("time", 0.5))
        await talk.send(silence(0.1))
        await talk.worker.queue_frame(UserStoppedSpeakingFrame())
        await done.wait()


async def text(report: Report, plan: Plan) -> None:
    async with talking(report, plan, asks="What time is it?") as talk:
        await talk.said("noon").wait()


async def tool(report: Report, plan: Plan) -> None:
    async with talking(report, plan, asks="What is the weather in Paris?") as talk:
        await talk.said("sunny").wait()


async def barge_in(report: Report, plan: Plan) -> None:
    async with talking(report, plan, asks="Tell me a long story.") as talk:
        await talk.when(lambda: report.audio_bytes > 0).wait()
        await stream(plan.tone("wait", 0.5), talk.send, talk.said("I wait"))


logger.remove()
logger.add(sys.stderr, level="WARNING")
hold(voice, push_to_talk, text, tool, barge_in)
