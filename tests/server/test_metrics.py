"""The metrics for Prometheus, and data that must not be in them."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.server.metrics import (
    CLUES,
    CONTENT_TYPE,
    LAG_PERIOD_S,
    STAGES,
    Ending,
    Metrics,
    Refusal,
    watch_lag,
)
from app.server.process_usage import ProcessUsage as ProcessUsage
from pipeline import events
from pipeline.bus import Bus
from pipeline.messages import Usage
from pipeline.turn_record import Ignored, Judgement, Origin, Outcome, Pause, TurnRecord
from reachy_voice.testing import VirtualLoop, in_virtual_time
from tests.support.protocol_client import text_item
from tests.support.scripted_server import Serve, Served, refusal, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One answer of ``/metrics``, parsed as Prometheus does."""

    def __init__(self, text: bytes | str) -> None:
        self.text = text if isinstance(text, str) else text.decode()
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples[f"reachy_voice_{name}", frozenset(labels.items())]

    def label_values(self) -> set[str]:
        return {value for _, labels in self._samples for name, value in labels if name != "le"}


def scrape(metrics: Metrics) -> Scrape:
    return Scrape(metrics.render({"stt": None, "llm": "is starting"}, 2, ProcessUsage(1.5, 100.0)))


async def observed(*published: events.Event) -> Scrape:
    metrics, bus = Metrics(), Bus()
    metrics.observe(bus)
    for event in published:
        bus.publish(event)
    return scrape(metrics)


# --- what a session does -----------------------------------------------------------------------


async def test_stages_are_histograms_in_seconds() -> None:
    seen = await observed(
        TurnRecord("voice", "answered", reply_id="resp_1", endpoint_ms=240.0, first_audio_ms=530.0),
        TurnRecord("voice", "answered", reply_id="resp_2", endpoint_ms=900.0),
        TurnRecord("text", "answered", reply_id="resp_3", first_audio_ms=100.0),
        TurnRecord("voice", "rejected", endpoint_ms=300.0),
    )
    spoken = {"origin": "voice"}
    assert seen("stage_seconds_count", stage="endpoint", **spoken) == 2
    assert seen("stage_seconds_sum", stage="endpoint", **spoken) == pytest.approx(1.14)
    assert seen("stage_seconds_bucket", stage="endpoint", le="0.25", **spoken) == 1
    assert seen("stage_seconds_bucket", stage="first_audio", le="0.5", **spoken) == 0
    assert seen("stage_seconds_bucket", stage="first_audio", le="0.6", **spoken) == 1
    for stage in ("transcript", "first_token", "first_clause"):
        assert seen("stage_seconds_count", stage=stage, **spoken) == 0
    assert seen("stage_seconds_count", stage="first_audio", origin="text") == 1


async def test_answers_are_counted() -> None:
    cut = ("cancelled", "turn_detected")
    seen = await observed(
        TurnRecord(
            *("voice", "answered"),
            reply_id="resp_1",
            status="completed",
            tool_calls=2,
            usage=Usage(100, 60, 40, 7),
            engine_used_s=1.5,
            engine_wasted_s=0.25,
            speculations_begun=3,
            speculations_discarded=2,
        ),
        *(
            TurnRecord(
                *("voice", "interrupted"), reply_id=id, status=cut[0], reason=cut[1], usage=usage
            )
            for id, usage in (("resp_2", Usage(10, 5, 5, 1)), ("resp_3", Usage()))
        ),
        TurnRecord("voice", "rejected", engine_wasted_s=0.5, speculations_begun=1),
    )
    assert seen("turns_total", origin="voice", outcome="answered") == 1
    assert seen("turns_total", origin="voice", outcome="interrupted") == 2
    assert seen("turns_total", origin="voice", outcome="rejected") == 1
    assert seen("responses_total", status="completed", reason="") == 1
    assert seen("responses_total", status="cancelled", reason="turn_detected") == 2
    assert seen("tool_calls_total") == 2
    assert [seen("tokens_total", kind=kind) for kind in ("prompt", "cached", "generated")] == [
        *(110, 65, 8)
    ]
    assert seen("engine_seconds_total", outcome="given") == 1.5
    assert seen("engine_seconds_total", outcome="discarded") == 0.75
    assert seen("speculations_total") == 4
    assert seen("speculations_discarded_total") == 2


async def test_pauses_are_counted_by_judgement_and_outcome() -> None:
    def judged(*reasons: str) -> tuple[Judgement, ...]:
        return Judgement(60.0, 0.5, 500, ("sound",)), Judgement(110.0, 0.5, 500, reasons)

    inner = Pause(1600, 400, judged("sound", "filler"))
    seen = await observed(
        TurnRecord("voice", "answered", pauses=(inner, Pause(3200, None, judged("question")))),
        TurnRecord("voice", "shutdown", pauses=(inner, Pause(3200))),
        TurnRecord("voice", "rejected", pauses=(Pause(3200, None, judged("a private word")),)),
    )
    assert seen("pauses_total", clue="filler", ended="no") == 2
    assert seen("pauses_total", clue="question", ended="yes") == 1
    assert seen("pauses_total", clue="none", ended="unknown") == 1
    assert seen("pauses_total", clue="other", ended="yes") == 1


async def test_silent_answers_are_counted_by_outcome() -> None:
    seen = await observed(
        events.SilentAnswer("resp_1", "asked_again"),
        events.SilentAnswer("resp_2", "asked_again"),
    )
    assert seen("silent_answers_total", outcome="asked_again") == 2
    assert seen("silent_answers_total", outcome="given_up") == 0


def test_sessions_engines_and_the_process() -> None:
    metrics = Metrics()
    metrics.note_refusal("full")
    metrics.note_end("lost")
    seen = scrape(metrics)
    assert seen("sessions_refused_total", reason="full") == 1
    assert seen("sessions_refused_total", reason="not_ready") == 0, "known before it happens"
    assert seen("sessions_ended_total", by="lost") == 1
    assert seen("sessions_parked") == 2
    assert (seen("engine_ready", engine="stt"), seen("engine_ready", engine="llm")) == (1, 0)
    assert seen("resident_bytes") == 100 * 2**20
    assert seen("cpu_seconds") == 1.5


# --- the event loop ----------------------------------------------------------------------------


@in_virtual_time
async def test_loop_lag_is_the_blocked_time() -> None:
    lags: list[float] = []

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    watching = asyncio.create_task(watch_lag(lags.append))
    await asyncio.sleep(2.5 * LAG_PERIOD_S)
    loop.now += 0.1  # something computes for 100 ms without an await
    await asyncio.sleep(LAG_PERIOD_S)
    watching.cancel()
    assert lags == pytest.approx([0, 0, 0.1 - 0.5 * LAG_PERIOD_S], abs=1e-6)


# --- over HTTP ---------------------------------------------------------------------------------


async def metrics_of(served: Served) -> Scrape:
    response = await served.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == CONTENT_TYPE
    return Scrape(response.text)


async def test_conversations_are_counted_without_their_words(serving: Serve) -> None:
    served = await serving(StagedAssistant(), max_sessions=1)
    async with talking(served) as talk:
        await talk.send("conversation.item.create", item=text_item("Psst"))
        await talk.send("response.create", response={"metadata": {"private": "tuesday"}})
        await talk.until("response.done")
        await talk.socket.send("nonsense")
        while (await talk.next())["type"] != "error":
            pass
        async with served.connect() as other:
            await other.recv()
        for path in ("/nowhere", "/v1/models"):
            assert (await refusal(served, f"/../..{path}")).status_code == 404
        assert (await served.get("", upgrade="websocket", connection="upgrade")).status_code == 400
        seen = await metrics_of(served)
        assert seen("sessions_open") == 1
        assert seen("responses_total", status="completed", reason="") == 1
        assert seen("client_errors_total", code="invalid_json") == 1
        assert seen("client_errors_total", code="session_limit_reached") == 1
        assert seen("sessions_refused_total", reason="full") == 1
        assert seen("sessions_refused_total", reason="other") == 3
        assert seen("stage_seconds_count", stage="first_audio", origin="text") == 1
        assert seen("turns_total", origin="text", outcome="answered") == 1
        assert seen("event_loop_lag_seconds_count") > 0
        assert seen("resident_bytes") > 2**20
    for word in ("Psst", "tuesday", "friend", "resp_", "item_", "127.0.0.1"):
        assert word not in seen.text
    known = {"", "completed", "prompt", "cached", "generated", "given", "discarded"}
    known |= {"stt", "llm", "tts", "invalid_json", "session_limit_reached", "other"}
    for labels in (Ending, Refusal, Ignored, events.SilenceOutcome, Origin, Outcome):
        known |= set(get_args(labels))
    known |= {*STAGES, *CLUES, "none", "yes", "no", "unknown"}
    assert seen.label_values() <= known


async def test_an_answer_that_its_client_did_not_wait_for_is_counted(serving: Serve) -> None:
    assistant = StagedAssistant()
    assistant.tts.first_s = 3600.0
    served = await serving(assistant)
    async with talking(served) as talk:
        await talk.send("response.create")
        await talk.until("response.created")
    while (seen := await metrics_of(served))("sessions_open"):
        pass
    assert seen("responses_total", status="cancelled", reason="shutdown") == 1
    assert seen("sessions_ended_total", by="client") == 1
