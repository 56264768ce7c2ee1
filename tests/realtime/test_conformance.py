"""The recorder finds every fault: good streams, corrupted in every way, are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.engines.contract import ToolCall
from tests.support.conformance import Recorder
from tests.support.scripted import ScriptedLlm
from tests.support.virtual_time import run_virtual
from tests.support.wired import Cast, wired

Event = dict[str, Any]

ANSWER = ("One moment. ", ToolCall("wave", "{}"))
HARMLESS = frozenset(
    {
        "session.updated",
        "rate_limits.updated",
        "conversation.item.input_audio_transcription.delta",
        "response.output_audio.delta",
        "response.function_call_arguments.delta",
    }
)
"""Nobody can know that one of these is missing."""


def stream() -> list[Event]:
    """Events of a voice turn that is answered with speech and a call, and of a barge-in."""
    events: list[Event] = []

    async def main() -> None:
        cast = Cast(llm=ScriptedLlm(answers=[ANSWER]))
        async with wired(cast) as client:
            transcription = {"input": {"transcription": {"model": "whisper-1"}}}
            await client.send(
                "session.update", session={"type": "realtime", "audio": transcription}
            )
            await client.say(600)
            await client.hear(2_000)
            await client.send("response.create")
            await client.hear(1_000)
            await client.say(600)
            await client.hear(5_000)
            client.recorder.finish()
            events.extend(client.recorder.events)

    run_virtual(main())
    return events


STREAM = stream()


def record(events: list[Event]) -> None:
    recorder = Recorder(whole=True)
    for event in events:
        recorder.record(json.dumps(event))
    recorder.finish()


def place_of(kind: str, number: int = 0) -> int:
    return [at for at, event in enumerate(STREAM) if event["type"] == kind][number]


def refused(events: list[Event]) -> bool:
    try:
        record(events)
    except (AssertionError, ValueError):
        return True
    return False


def test_the_stream_itself_is_good() -> None:
    record(STREAM)
    statuses = [e["response"]["status"] for e in STREAM if e["type"] == "response.done"]
    assert statuses == ["completed", "cancelled", "completed"]


def test_nothing_may_be_missing() -> None:
    unnoticed = {
        event["type"]
        for at, event in enumerate(STREAM)
        if event["type"] not in HARMLESS and not refused([*STREAM[:at], *STREAM[at + 1 :]])
    }
    # The end of an answer's transcript is known by its deltas only.
    assert unnoticed <= {"conversation.item.input_audio_transcription.completed"}


def spoil(at: int, change: Callable[[Event], None]) -> list[Event]:
    event = json.loads(json.dumps(STREAM[at]))
    change(event)
    return [*STREAM[:at], event, *STREAM[at + 1 :]]


SPOILT: dict[str, tuple[str, Callable[[Event], None]]] = {
    "a field nobody knows": ("response.done", lambda e: e.update(colour="red")),
    "a number as text": ("response.output_item.added", lambda e: e.update(output_index="0")),
    "an unknown item": ("conversation.item.added", lambda e: e.update(previous_item_id="nobody")),
    "half a sample": ("response.output_audio.delta", lambda e: e.update(delta="AAAA")),
    "no base64": ("response.output_audio.delta", lambda e: e.update(delta="!!!!")),
    "another text": ("response.output_audio_transcript.done", lambda e: e.update(transcript="x")),
    "another call": ("response.function_call_arguments.done", lambda e: e.update(name="x")),
    "other arguments": ("response.function_call_arguments.done", lambda e: e.update(arguments="x")),
    "a wrong index": ("response.output_audio.done", lambda e: e.update(output_index=1)),
    "an end in progress": ("response.done", lambda e: e["response"].update(status="in_progress")),
    "no usage": ("response.done", lambda e: e["response"].update(usage=None)),
    "no output": ("response.done", lambda e: e["response"].update(output=[])),
    "another speech": ("input_audio_buffer.speech_stopped", lambda e: e.update(item_id="x")),
    "a huge frame": ("response.output_audio.delta", lambda e: e.update(delta="A" * 2**20)),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_event(name: str) -> None:
    kind, change = SPOILT[name]
    assert refused(spoil(place_of(kind), change))


def test_audio_after_a_barge_in_is_stale() -> None:
    speech = place_of("input_audio_buffer.speech_started", 1)
    delta = next(
        event for event in reversed(STREAM[:speech]) if event["type"].endswith("audio.delta")
    )
    stale = {**delta, "event_id": "event_stale"}
    assert not refused([*STREAM[:speech], stale, *STREAM[speech:]])
    assert refused([*STREAM[: speech + 1], stale, *STREAM[speech + 1 :]])


def test_two_responses_do_not_share_the_speaker() -> None:
    begun = json.loads(json.dumps(STREAM[place_of("response.created")]))
    begun["event_id"], begun["response"]["id"] = "event_second", "resp_second"
    assert refused([*STREAM[: place_of("response.created") + 1], begun])


def test_one_error_for_each_bad_event() -> None:
    error = {"type": "invalid_request_error", "code": "x", "message": "No.", "param": None}
    refusal = {"type": "error", "error": {**error, "event_id": "mine"}}
    recorder = Recorder()
    recorder.sent(json.dumps({"type": "nonsense", "event_id": "mine"}))
    recorder.record(json.dumps({**refusal, "event_id": "event_1"}))
    with pytest.raises(AssertionError, match="one error"):
        recorder.record(json.dumps({**refusal, "event_id": "event_2"}))
