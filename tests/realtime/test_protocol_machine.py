"""Random clients against the real protocol and session, with scripted engines in virtual time.

Whatever clients do in whatever order: the conformance recorder finds no fault, a refused message is
one error with its ``event_id``, everything opened is closed in the end, and the session then
answers normally.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from reachy_voice.testing import SPEECH_LEVEL, Cast, VirtualLoop
from tests.realtime.hostile import Hostile
from tests.support.protocol_client import text_item
from tests.support.wired import wired

pytestmark = pytest.mark.quick

TOOL = {"type": "function", "name": "wave", "description": "Wave.", "parameters": {}}
CALL = ToolCall("wave", '{"times": 2}')
ANSWERS = (
    ("Yes. ", "No, ", "perhaps."),
    (CALL,),
    ("I wave. ", CALL),
    (CALL, CALL),
    ("One. " * 40,),
    (),
    ("\U0001f916",),
)
MODALITIES = st.sampled_from((["audio"], ["text"]))
FORMATS = st.sampled_from(
    (
        {"type": "audio/pcm", "rate": 24_000},
        {"type": "audio/pcm", "rate": 16_000},
        {"type": "audio/pcmu"},
        {"type": "audio/pcma"},
    )
)
TURN_DETECTIONS = st.none() | st.fixed_dictionaries(
    {"type": st.just("server_vad")},
    optional={
        "create_response": st.booleans(),
        "interrupt_response": st.booleans(),
        "silence_duration_ms": st.sampled_from((100, 500, 1_500)),
        "prefix_padding_ms": st.sampled_from((0, 300)),
        "idle_timeout_ms": st.sampled_from((None, 5_000)),
    },
)
TOOL_CHOICES = st.sampled_from(("auto", "none", "required"))
RESPONSES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "conversation": st.sampled_from(("auto", "none")),
        "output_modalities": MODALITIES,
        "input": st.just([]),
        "instructions": st.just("Say yes."),
        "max_output_tokens": st.sampled_from((1, 2, "inf")),
        "metadata": st.just({"topic": "x"}),
        "tools": st.just([TOOL]),
        "tool_choice": TOOL_CHOICES,
        "audio": st.fixed_dictionaries({"output": st.fixed_dictionaries({"format": FORMATS})}),
    },
)
"""``audio`` in a text response has no effect and is allowed."""

ITEM_KINDS = st.sampled_from(("user", "system", "assistant", "call", "output"))
MILLISECONDS = st.integers(0, 150).map(lambda number: number * 20)
SESSIONS = st.fixed_dictionaries(
    {},
    optional={
        "instructions": st.sampled_from(("Be brief.", "Be kind.")),
        "output_modalities": MODALITIES,
        "tools": st.sampled_from(([], [TOOL])),
        "tool_choice": st.sampled_from(("auto", "none")),
        "max_output_tokens": st.sampled_from((3, "inf")),
    },
)
INPUTS = st.fixed_dictionaries(
    {},
    optional={
        "turn_detection": TURN_DETECTIONS,
        "transcription": st.sampled_from(({"model": "whisper-1"}, None)),
        "format": FORMATS,
    },
)


class Clients(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.stack = AsyncExitStack()
        self.cast = Cast()
        self.client = self.run(self.stack.enter_async_context(wired(self.cast)))
        self.sent = 0
        transcribed = {"input": {"transcription": {"model": "whisper-1"}}}
        self.send("session.update", session={"type": "realtime", "audio": transcribed})

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def send(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Send one message; returns the errors that name it."""
        self.sent += 1
        event_id = f"client_{self.sent}"

        async def sent() -> None:
            await self.client.send(kind, event_id=event_id, **fields)
            await self.client.settle()

        self.run(sent())
        errors = [event["error"] for event in self.client.events("error")]
        return [error for error in errors if error["event_id"] == event_id]

    def item_id(self, number: int) -> str:
        """The id of a present or former item, or an unknown one."""
        known = [event["item"]["id"] for event in self.client.events("conversation.item.added")]
        return str(known[number % len(known)]) if known and number % 5 else f"nobody_{number}"

    # --- the microphone ----------------------------------------------------------------------

    @rule(milliseconds=MILLISECONDS)
    def say(self, milliseconds: int) -> None:
        self.run(self.client.say(milliseconds))

    @rule(milliseconds=MILLISECONDS)
    def keep_quiet(self, milliseconds: int) -> None:
        self.run(self.client.hear(milliseconds))

    @rule(level=st.sampled_from((0, SPEECH_LEVEL)), milliseconds=MILLISECONDS)
    def append_at_once(self, level: int, milliseconds: int) -> None:
        async def append() -> None:
            await self.client.append(level, milliseconds)
            for _ in range(5):
                await self.client.settle()

        self.run(append())

    @rule(milliseconds=MILLISECONDS)
    def send_nothing(self, milliseconds: int) -> None:
        self.run(asyncio.sleep(milliseconds / 1000))

    @rule()
    def send_nothing_for_long(self) -> None:
        self.run(asyncio.sleep(7))

    @rule()
    def commit(self) -> None:
        self.send("input_audio_buffer.commit")

    @rule()
    def clear(self) -> None:
        assert self.send("input_audio_buffer.clear") == []
        assert self.client.recorder.types.count("input_audio_buffer.cleared") > 0

    # --- the conversation --------------------------------------------------------------------

    @rule(kind=ITEM_KINDS, after=st.none() | st.just("root") | st.integers(0, 40))
    def create_item(self, kind: str, after: int | str | None) -> None:
        item: dict[str, Any] = {"type": "function_call_output", "call_id": "c", "output": "done"}
        if kind == "call":
            item = {"type": "function_call", "name": "wave", "call_id": "c", "arguments": "{}"}
        elif kind != "output":
            text = "output_text" if kind == "assistant" else "input_text"
            item = {"type": "message", "role": kind, "content": [{"type": text, "text": "So."}]}
        place = self.item_id(after) if isinstance(after, int) else after
        self.send("conversation.item.create", item=item, previous_item_id=place)

    @rule(number=st.integers(0, 40))
    def create_item_twice(self, number: int) -> None:
        item = {**text_item("Me again."), "id": self.item_id(number)}
        self.send("conversation.item.create", item=item)
        (error,) = self.send("conversation.item.create", item=item)
        assert error["code"] == "item_create_duplicate_item_id"

    @rule(number=st.integers(0, 40))
    def delete(self, number: int) -> None:
        item_id = self.item_id(number)
        self.send("conversation.item.delete", item_id=item_id)
        assert len(self.send("conversation.item.delete", item_id=item_id)) == 1

    @rule(number=st.integers(0, 40))
    def retrieve(self, number: int) -> None:
        self.send("conversation.item.retrieve", item_id=self.item_id(number))

    @rule(number=st.integers(0, 40), audio_end_ms=MILLISECONDS)
    def truncate(self, number: int, audio_end_ms: int) -> None:
        where = {"item_id": self.item_id(number), "content_index": 0}
        self.send("conversation.item.truncate", **where, audio_end_ms=audio_end_ms)

    # --- responses ---------------------------------------------------------------------------

    @rule(response=RESPONSES)
    def respond(self, response: dict[str, Any] | None) -> None:
        self.send("response.create", response=response)

    @rule(number=st.integers(0, 40))
    def respond_to_one_item(self, number: int) -> None:
        given = [{"type": "item_reference", "id": self.item_id(number)}]
        self.send("response.create", response={"conversation": "none", "input": given})

    @rule()
    def cancel(self) -> None:
        self.send("response.cancel")
        (error,) = self.send("response.cancel")
        assert error["code"] == "response_cancel_not_active"

    @rule(number=st.integers(0, 20))
    def cancel_by_id(self, number: int) -> None:
        begun = self.client.events("response.created")
        response_id = begun[number % len(begun)]["response"]["id"] if begun else "nobody"
        self.send("response.cancel", response_id=response_id)

    # --- settings, and the engines -----------------------------------------------------------

    @rule(session=SESSIONS, audio_input=INPUTS, audio_output=st.none() | FORMATS)
    def update(
        self, session: dict[str, Any], audio_input: Any, audio_output: dict[str, Any] | None
    ) -> None:
        audio_fields = {"input": audio_input}
        if audio_output:
            audio_fields["output"] = {"format": audio_output}
        fields = {"type": "realtime", "audio": audio_fields, **session}
        assert self.send("session.update", session=fields) == []

    @rule(answer=st.sampled_from(ANSWERS))
    def think_of(self, answer: tuple[str | ToolCall, ...]) -> None:
        self.cast.llm.answers.append(answer)

    @rule()
    def fail_to_think(self) -> None:
        self.cast.llm.errors.append(EngineError("The model broke"))

    @rule(text=st.sampled_from(("", "hello", "hello there")), fails=st.booleans())
    def hear_as(self, text: str, fails: bool) -> None:
        self.cast.stt.texts = (text,)
        self.cast.stt.error = EngineError("The recogniser broke") if fails else None

    @rule(fails=st.booleans())
    def speak_or_fail(self, fails: bool) -> None:
        self.cast.tts.error = EngineError("The voice broke") if fails else None

    @rule(seed=st.integers(0, 2**32))
    def attack(self, seed: int) -> None:
        attack = next(iter(Hostile(seed)))
        if not attack.bad:
            return  # setting changes are left to the rules above
        before = self.client.recorder.types.count("error")
        self.run(self.client.send_text(attack.frame))
        assert self.client.recorder.types.count("error") == before + 1

    # --- the end -----------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.cast.llm.errors.clear()
            self.cast.llm.answers.clear()
            self.cast.stt.error = self.cast.tts.error = None
            self.run(self.come_to_rest())
            self.client.recorder.finish()
            self.hold_a_turn()
        finally:
            self.run(self.stack.aclose())
            left = asyncio.all_tasks(self.loop)
            self.loop.close()
        assert not left, f"leaked tasks: {left}"
        assert self.cast.llm.opened == 0
        assert self.cast.stt.opened == 0

    async def come_to_rest(self) -> None:
        audio = {"input": {"turn_detection": None}}
        plain: dict[str, Any] = {"type": "realtime", "output_modalities": ["audio"], "tools": []}
        plain |= {"tool_choice": "auto", "max_output_tokens": "inf", "audio": audio}
        await self.client.send("session.update", session=plain)
        await asyncio.sleep(300)

    def hold_a_turn(self) -> None:
        self.send("response.create", response={"metadata": {"last": "yes"}})
        self.run(asyncio.sleep(60))
        done = [event["response"] for event in self.client.events("response.done")]
        assert done[-1]["metadata"]["last"] == "yes", json.dumps(done[-1])
        assert done[-1]["status"] == "completed"


def test_random_clients_break_no_promise() -> None:
    run_state_machine_as_test(
        Clients,
        settings=settings(max_examples=40, stateful_step_count=30, derandomize=True),
    )
