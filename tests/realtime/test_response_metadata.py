"""Figures of a turn record in ``response.done``, within the API's limits. All except those of the
latency panel are sent only on request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.server.session_address import protocol_for
from pipeline.turn_record import (
    LATENCY,
    MAX_METADATA_PAIRS,
    WANTED,
    Judgement,
    Origin,
    Pause,
    TurnRecord,
    turn_latency,
)
from reachy_voice.testing import in_virtual_time
from tests.support.protocol_client import DEFAULTS, Client, finished, started
from tests.support.wired import wired

pytestmark = pytest.mark.quick

JUDGED = Judgement(110.25, 0.93, 224, ("sound", "question"))
RECORD = TurnRecord(
    "voice",
    "answered",
    item_id="item_u",
    reply_id="resp_1",
    text="my secret",
    heard="a secret answer",
    pauses=(Pause(16_000, None, (JUDGED,)),),
    endpoint_ms=256.0,
    first_audio_ms=301.12345,
    engine_used_s=0.5,
    heard_s=2.0,
)
FIGURES = {
    "reachy_voice.origin": "voice",
    "reachy_voice.outcome": "answered",
    "reachy_voice.endpoint_ms": "256",
    "reachy_voice.first_audio_ms": "301.123",
    "reachy_voice.engine_used_s": "0.5",
    "reachy_voice.engine_wasted_s": "0",
    "reachy_voice.heard_s": "2",
    "reachy_voice.probability": "0.93",
    "reachy_voice.wait_ms": "224",
    "reachy_voice.reasons": "sound, question",
}


STAGES = turn_latency(RECORD)


def done(client: Client, metadata: dict[str, str] | None, *records: TurnRecord) -> Any:
    """The metadata in ``response.done``."""
    client.apply(started(metadata=metadata))
    sent = client.apply(*records, finished())
    [event] = [event for event in sent if event["type"] == "response.done"]
    return event["response"]["metadata"]


@pytest.mark.parametrize("query", [{}, {"turn_records": "true"}])
def test_the_url_may_request_figures_for_all_responses(query: dict[str, str]) -> None:
    protocol = protocol_for(DEFAULTS, query, {})
    for event in (started(), RECORD, finished()):
        protocol.apply(event)
    sent = [json.loads(text) for text in protocol.messages_to_send()]
    [end] = [message for message in sent if message["type"] == "response.done"]
    assert end["response"]["metadata"] == (FIGURES | STAGES if query else STAGES)


def test_only_clients_that_ask_get_figures() -> None:
    assert done(Client(), None, RECORD) == STAGES
    assert done(Client(), {"mine": "1"}, RECORD) == {"mine": "1", **STAGES}
    assert done(Client(), {WANTED: "false"}, RECORD) == {WANTED: "false", **STAGES}


def test_a_response_can_ask_for_its_record() -> None:
    asked = {WANTED: "true", "mine": "1"}
    assert done(Client(), asked, RECORD) == {**asked, **FIGURES, **STAGES}


def test_other_or_missing_records_change_nothing() -> None:
    asked = {WANTED: "true"}
    assert done(Client(), asked) == asked
    other = TurnRecord("voice", "rejected", text="")
    assert done(Client(), asked, other) == asked


def test_the_clients_pairs_come_first_and_the_limit_holds() -> None:
    asked = {WANTED: "true"} | {f"mine_{n}": "x" * 512 for n in range(12)}
    told = done(Client(), asked, RECORD)
    assert len(told) == MAX_METADATA_PAIRS
    assert told.items() >= asked.items()
    assert told["reachy_voice.outcome"] == "answered"
    full = {WANTED: "true"} | {f"mine_{n}": "" for n in range(15)}
    assert done(Client(), full, RECORD) == full
    same = {WANTED: "true", "reachy_voice.outcome": "mine"}
    assert done(Client(), same, RECORD)["reachy_voice.outcome"] == "mine"


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        (
            {"transcript_ms": 90.0, "first_clause_ms": 280.5},
            {"stt_s": 0.09, "llm_first_tts_s": 0.1905, "tts_ttfa_s": 0.020623},
        ),
        (
            {"transcript_ms": 90.0, "first_clause_ms": 200.0},
            {"stt_s": 0.09, "llm_first_tts_s": 0.11},
        ),
        ({"status": "cancelled", "transcript_ms": -4.0}, {"status": "cancelled", "stt_s": 0.0}),
    ],
)
def test_the_latency_panel_of_the_robot_app(
    changes: dict[str, Any], stages: dict[str, Any]
) -> None:
    told = done(Client(), None, replace(RECORD, **changes))
    assert list(told) == [LATENCY]
    assert len(told[LATENCY]) <= 512
    assert json.loads(told[LATENCY]) == {
        "version": 2,
        "turn_id": "item_u",
        "turn_revision": 0,
        "response_key": "resp_1",
        "e2e_s": 0.301123,
        "vad_decision_s": 0.256,
        "smart_status": "complete",
        **stages,
    }


def test_a_commit_has_no_decision_and_a_client_keeps_its_own_pair() -> None:
    told = done(Client(), None, replace(RECORD, origin="commit", pauses=()))
    assert not {"vad_decision_s", "smart_status"} & set(json.loads(told[LATENCY]))
    assert done(Client(), {LATENCY: "mine"}, RECORD) == {LATENCY: "mine"}
    full = {f"mine_{n}": "" for n in range(16)}
    assert done(Client(), full, RECORD) == full


@pytest.mark.parametrize("origin", ["text", "request", "silence", "again", "rest"])
def test_an_answer_to_no_speech_has_no_latency(origin: Origin) -> None:
    assert done(Client(), None, replace(RECORD, origin=origin)) is None


@in_virtual_time
async def test_a_whole_turn_sends_its_record() -> None:
    async with wired() as client:
        metadata = {WANTED: "true"}
        await client.send("response.create", response={"metadata": metadata})
        await client.hear(4000)
        [end] = client.events("response.done")
    told = end["response"]["metadata"]
    assert told[WANTED] == "true"
    assert told["reachy_voice.outcome"] == "answered"
    assert told["reachy_voice.origin"] == "request"
    assert float(told["reachy_voice.first_audio_ms"]) > 100
