"""Turn records, right under whatever ends a turn."""

from __future__ import annotations

import pytest

from pipeline import events
from pipeline.commands import CancelResponse, ClearAudio, Configure, TruncateItem
from pipeline.errors import EngineError
from pipeline.items import MessageItem
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    PUSH_TO_TALK,
    VOICE,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    scene,
)
from tests.support.turn_records import records_of

pytestmark = pytest.mark.quick

# --- how else a turn can end -----------------------------------------------------------------


@in_virtual_time
async def test_an_interrupted_answer_tells_what_was_heard_and_when_it_ended() -> None:
    llm = ScriptedLlm(deltas=("Hello there, ", "my friend. ") * 4)
    async with scene(settings=AT_ONCE, llm=llm) as played:
        await played.say(1.024)
        await played.hear(3.0)
        await played.say(1.024)
        await played.hear(5.0)
    first, second = records_of(played)
    assert (first.outcome, first.status, first.reason) == (
        "interrupted",
        "cancelled",
        "turn_detected",
    )
    kept = played.session.chat.items[1]
    assert isinstance(kept, MessageItem)
    assert first.heard == kept.text != "".join(llm.deltas)
    assert first.heard_s == pytest.approx(kept.parts[0].seconds, abs=0.001)  # type: ignore[union-attr]
    assert first.sent_s > first.heard_s > 2.0
    cut_at = next(at for at, event in played.log if isinstance(event, events.ReplyFinished))
    assert first.ended_ms == pytest.approx((cut_at - 1.024) * 1000, abs=33)
    assert second.outcome == "answered"
    assert second.answers_also == ()


@in_virtual_time
async def test_who_goes_on_when_the_answer_has_hardly_begun_is_answered_together() -> None:
    async with scene(stt=ScriptedStt(texts=("Tell me", "about tea"))) as played:
        await played.say(1.024)
        await played.hear(0.6)
        await played.say(1.024)
        await played.hear(5.0)
    first, second = records_of(played)
    assert first.outcome == "interrupted"
    assert 0 < first.heard_s < 1.0
    assert second.answers_also == (first.item_id,)
    assert second.outcome == "answered"


@in_virtual_time
async def test_a_barge_in_before_the_first_audio_has_nothing_heard() -> None:
    async with scene(tts=ScriptedTts(first_s=2.0)) as played:
        await played.say(1.024)
        await played.hear(1.0)
        await played.say(1.024)
        await played.hear(8.0)
    first, second = records_of(played)
    assert first.outcome == "interrupted"
    assert (first.first_audio_ms, first.last_audio_ms) == (None, None)
    assert (first.heard, first.heard_s, first.sent_s) == ("", 0.0, 0.0)
    assert second.answers_also == (first.item_id,)


@in_virtual_time
async def test_two_utterances_that_are_answered_as_one_are_two_records() -> None:
    """The second begins while the first still waits for its transcript."""
    stt = ScriptedStt(texts=("Tell me", "about tea"), takes_s=3.0)

    async with scene(stt=stt) as played:
        await played.say(1.024)
        await played.hear(2.6)
        await played.say(1.024)
        await played.hear(9.0)
    first, second = records_of(played)
    assert (first.outcome, first.text) == ("merged", "Tell me")
    assert first.reply_id is None
    assert second.answers_also == (first.item_id,)
    assert second.text == "about tea"
    assert second.outcome == "answered"


@in_virtual_time
async def test_noise_tells_when_it_was_over_and_what_it_cost() -> None:
    stt = ScriptedStt(texts=("",), takes_s=0.125)
    async with scene(stt=stt) as played:
        await played.say(0.512)
        await played.hear(2.0)
    [record] = records_of(played)
    assert (record.origin, record.outcome, record.text) == ("voice", "rejected", "")
    assert record.engine_wasted_s == pytest.approx(0.125)
    stopped_at = next(at for at, e in played.log if isinstance(e, events.SpeechStopped))
    assert record.endpoint_ms == pytest.approx((stopped_at - 0.512) * 1000, abs=33)


@pytest.mark.parametrize("engine", ["stt", "llm", "tts"])
@in_virtual_time
async def test_a_failing_engine_is_a_failed_turn_that_says_why(engine: str) -> None:
    broken = EngineError(f"The {engine} broke")

    async with scene(
        stt=ScriptedStt(error=broken if engine == "stt" else None),
        llm=ScriptedLlm(errors=[broken, broken] if engine == "llm" else []),
        tts=ScriptedTts(error=broken if engine == "tts" else None),
    ) as played:
        await played.say(1.024)
        await played.hear(3.0)
    [record] = records_of(played)
    assert (record.outcome, record.status) == ("failed", "failed")
    assert record.error == f"The {engine} broke"
    assert record.text == (None if engine == "stt" else "hello")


@in_virtual_time
async def test_the_client_cancels() -> None:
    async with scene() as played:
        await played.say(1.024)
        await played.hear(1.0)
        await played.do(CancelResponse())
        await played.hear(1.0)
    [record] = records_of(played)
    assert (record.outcome, record.reason) == ("cancelled", "client_cancelled")


@in_virtual_time
async def test_a_client_that_truncates_while_the_answer_goes_on_is_believed() -> None:
    async with scene() as played:
        await played.say(1.024)
        await played.hear(1.5)
        item = played.events(events.ReplyItemStarted)[0].item
        await played.do(TruncateItem(item.id, 0, 300), CancelResponse())
    [record] = records_of(played)
    assert record.heard_s == 0.3
    assert record.heard == "Hello"


@in_virtual_time
async def test_speech_that_the_client_clears_is_dropped() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.do(ClearAudio())
        await played.say(1.0)
        await played.do(Configure(PUSH_TO_TALK), Configure(VOICE))
        await played.hear(0.5)
        await played.say(1.0)
        await played.hear(5.0)
    outcomes = [record.outcome for record in records_of(played)]
    assert outcomes == ["dropped", "dropped", "answered"]


@pytest.mark.parametrize(
    ("quiet_s", "text"), [(0.0, None), (0.06, None), (0.5, "hello"), (1.5, "hello")]
)
@in_virtual_time
async def test_a_session_that_ends_in_the_middle_leaves_a_record(
    quiet_s: float, text: str | None
) -> None:
    """While somebody speaks, in the first silent frames, before and after the first audio."""

    async with scene() as played:
        await played.say(1.024)
        await played.hear(quiet_s)
    [record] = records_of(played)
    assert (record.outcome, record.text) == ("shutdown", text)


# --- on the bus ------------------------------------------------------------------------------


@in_virtual_time
async def test_a_session_publishes_each_record_just_before_what_completed_it() -> None:
    async with scene() as played:
        await played.say(1.024)
        await played.hear(1.7)
        await played.say(1.024)
        await played.hear(0.1)
    published = [e for _, e in played.log if isinstance(e, TurnRecord)]
    assert published[:-1] == records_of(played)[:-1]
    assert [record.outcome for record in published] == ["interrupted", "shutdown"]
    at = next(n for n, (_, e) in enumerate(played.log) if isinstance(e, TurnRecord))
    assert isinstance(played.log[at + 1].event, events.ReplyFinished)
