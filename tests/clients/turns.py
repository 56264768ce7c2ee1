"""Checks of each turn, the same for every client."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from tests.clients.engines import CALM, NOON, STORY, TALE, TIME, WAIT, WEATHER, WEATHER_ARGUMENTS
from tests.clients.programs import Held, Report
from tests.clients.serving import Served, Wire

NOON_BYTES = round(0.3 * 24_000) * 2
"""Three words at 0.1 s each, as 16-bit samples at 24 kHz."""

SPEECH = ("input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped")
COMMITTED = (
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
)
SPOKEN = (
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
)
WRITTEN = ("conversation.item.added", "conversation.item.done")


def check(served: Served, held: Held, turn: str) -> None:
    """Fails unless the client completed this turn and the server sent everything in order."""
    report = held.report(turn)
    (wire,) = [wire for wire in held.wires if f"model={turn}" in wire.query]
    _clean(report, wire)
    served.conformed()
    checks = {
        "voice": _voice,
        "push_to_talk": _push_to_talk,
        "text": _text,
        "tool": _tool,
        "barge_in": _barge_in,
    }
    checks[turn](report, wire)
    if turn == "barge_in":
        _truncated_and_retrieved(wire)
    if report.history is not None and turn in _HISTORY:
        _history(report.history, turn)
    if turn == "barge_in":
        _prompt_after_barge_in(served)


def _clean(report: Report, wire: Wire) -> None:
    assert report.errors == []
    codes = [event["error"]["code"] for event in wire.sent if event["type"] == "error"]
    # pipecat cancels before each turn that it detects itself, and expects this error.
    assert codes in ([], ["response_cancel_not_active"]), wire.sent
    assert wire.count("response.created") == wire.count("response.done")
    assert wire.count(SPEECH[0]) == wire.count(SPEECH[1])


def _voice(report: Report, wire: Wire) -> None:
    assert report.heard == TIME
    _said_noon(report)
    _in_order(wire, (*SPEECH, *COMMITTED, *SPOKEN))


def _push_to_talk(report: Report, wire: Wire) -> None:
    assert report.heard == TIME
    _said_noon(report)
    _in_order(wire, (*COMMITTED, *SPOKEN))
    assert wire.count(SPEECH[0]) == 0


def _text(report: Report, wire: Wire) -> None:
    assert report.said == [NOON]
    (done,) = _all(wire, "response.done")
    if done["response"]["output_modalities"] == ["text"]:
        assert report.audio_bytes == 0
        _in_order(wire, (*WRITTEN, "response.output_text.delta", "response.done"))
    else:
        _said_noon(report)
        _in_order(wire, (*WRITTEN, *SPOKEN))


def _tool(report: Report, wire: Wire) -> None:
    (call,) = report.tool_calls
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"]) == WEATHER_ARGUMENTS
    assert "sunny" in report.said[-1]
    assert report.audio_bytes > 0
    call_order = (
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    )
    _in_order(wire, call_order)
    # The client may answer the call before its response is done.
    _in_order(wire, (*call_order[:-1], *WRITTEN, *SPOKEN))
    first, second = _all(wire, "response.done")
    (item,) = first["response"]["output"]
    assert (item["type"], item["status"]) == ("function_call", "completed")
    assert second["response"]["status"] == "completed"
    if report.heard:
        assert report.heard == WEATHER
        completed = "conversation.item.input_audio_transcription.completed"
        types = wire.recorder.types
        assert types.index(completed) < types.index("response.function_call_arguments.done")


def _barge_in(report: Report, wire: Wire) -> None:
    assert report.heard == WAIT
    assert report.late_audio_bytes == 0
    cut, after = report.said
    assert after == CALM
    assert TALE.startswith(cut)
    assert len(cut) < len(TALE) / 2
    first, second = _all(wire, "response.done")
    assert first["response"]["status"] == "cancelled"
    assert first["response"]["status_details"]["reason"] == "turn_detected"
    assert second["response"]["status"] == "completed"
    started = max(i for i, kind in enumerate(wire.recorder.types) if kind == SPEECH[0])
    stale = first["response"]["id"]
    late = [e for e in wire.sent[started:] if e["type"].endswith("audio.delta")]
    assert all(event["response_id"] != stale for event in late)


def _truncated_and_retrieved(wire: Wire) -> None:
    """A client that retrieves an item after truncating it gets the rest, with its audio."""
    (asked,) = [e for e in wire.received if e["type"] == "conversation.item.truncate"]
    (truncated,) = _all(wire, "conversation.item.truncated")
    assert truncated["item_id"] == asked["item_id"]
    assert truncated["audio_end_ms"] == asked["audio_end_ms"]
    retrieved = [
        event["item"]
        for event in _all(wire, "conversation.item.retrieved")
        if event["item"]["id"] == asked["item_id"]
    ]
    wanted = [e for e in wire.received if e["type"] == "conversation.item.retrieve"]
    assert bool(retrieved) == any(each["item_id"] == asked["item_id"] for each in wanted)
    for item in retrieved:
        (part,) = item["content"]
        milliseconds = len(base64.b64decode(part["audio"])) / 2 / 24
        assert milliseconds <= asked["audio_end_ms"] + 1


_HISTORY = {
    "voice": [("user", TIME), ("assistant", NOON)],
    "text": [("user", TIME), ("assistant", NOON)],
    "barge_in": [("user", STORY), ("assistant", TALE), ("user", WAIT), ("assistant", CALM)],
}


def _history(history: list[dict[str, str]], turn: str) -> None:
    """The client's history: every word that was heard."""
    expected = _HISTORY[turn]
    told = [(item["role"], item["text"]) for item in history[-len(expected) :]]
    if turn == "barge_in":
        role, cut = told[1]
        assert TALE.startswith(cut)
        assert len(cut) < len(TALE) / 2
        told[1] = (role, TALE)
    assert told == expected


def _prompt_after_barge_in(served: Served) -> None:
    prompts = [prompt for prompt in served.cast.llm.prompts if WAIT in prompt[-1].content]
    assert prompts
    for message in prompts[-1]:
        assert message.role != "assistant" or len(message.content) < len(TALE) / 2


def _said_noon(report: Report) -> None:
    assert report.said == [NOON]
    assert report.audio_bytes == NOON_BYTES


def _all(wire: Wire, kind: str) -> list[dict[str, Any]]:
    return [event for event in wire.sent if event["type"] == kind]


def _in_order(wire: Wire, kinds: Iterable[str]) -> None:
    """The kinds must occur in this order, with anything in between."""
    types = iter(wire.recorder.types)
    for kind in kinds:
        assert any(kind == each for each in types), f"no {kind} in place: {wire.recorder.types}"
