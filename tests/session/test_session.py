"""The session in virtual time: events, their order and their times, to the millisecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline import commands, events
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.conversation.reply_prompts import SILENCE
from pipeline.errors import EngineError
from pipeline.items import AudioPart, MessageItem
from pipeline.messages import Message
from pipeline.settings import Endpointing, Policy, SessionSettings
from reachy_voice.testing import (
    AT_ONCE,
    GREETING,
    PUSH_TO_TALK,
    VOICE,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    wait,
)

pytestmark = pytest.mark.quick

INTERNAL = (
    *(events.SpeechPaused, events.SpeechRejected, events.SpeechResumed, events.TurnJudged),
    *(events.SpeculationDiscarded, events.Timeline, events.TurnUnderWay),
)
TURN = ["SpeechStarted", "SpeechStopped", "InputCommitted", "ItemAdded", "TranscriptReady"]
ANSWER = ["ReplyStarted", "ReplyItemStarted", "ReplyItemFinished", "ReplyFinished"]
GREETED = "Hello there, my friend. How are you?"


# --- a turn and its answer ---------------------------------------------------------------------


def test_a_spoken_question_gets_a_spoken_answer_in_the_order_of_the_wire() -> None:
    played = play(say(1.0), silence(6.0))
    assert played.names(*INTERNAL, events.ReplyText, events.ReplyAudio) == TURN + ANSWER
    [finished] = played.events(events.ReplyFinished)
    assert finished.status == "completed"
    assert finished.items[0].text == GREETED  # type: ignore[union-attr]
    assert played.chat[-1] == ("assistant", GREETED)
    assert played.audio_s == pytest.approx(2.1), "7 words of 0.3 s each, to the sample"


def test_barge_in_ends_the_reply_at_once_and_history_keeps_what_was_heard() -> None:
    played = play(say(1.0), silence(1.6), say(1.0), silence(0.1), settings=AT_ONCE)
    names = played.names(*INTERNAL, events.ReplyText)
    after = names[names.index("ReplyAudio") + 1 :]
    assert after[:3] == ["SpeechStarted", "ReplyItemFinished", "ReplyFinished"]
    assert "ReplyAudio" not in after[:3]
    assert played.ends[0] == ("cancelled", "turn_detected")
    item = played.session.chat.items[1]
    assert isinstance(item, MessageItem)
    assert item.status == "incomplete"
    assert GREETED.startswith(item.text)
    assert 0 < len(item.text) < len(GREETED)
    [part], [sent] = item.parts, played.reply.items[0].parts  # type: ignore[union-attr]
    assert isinstance(part, AudioPart)
    assert isinstance(sent, AudioPart)
    # Heard: what was sent less the lead that the client still held.
    assert sent.seconds - part.seconds == pytest.approx(0.06, abs=0.03)


@pytest.mark.parametrize(
    ("acts", "names"),
    [
        pytest.param((commands.CommitAudio(), wait(1.0)), TURN, id="the client commits"),
        pytest.param(
            (commands.Configure(PUSH_TO_TALK), silence(1.0)), TURN[:2], id="push to talk from now"
        ),
    ],
)
def test_an_open_turn_that_the_client_ends_is_closed_and_not_answered(acts, names) -> None:  # type: ignore[no-untyped-def]
    assert play(say(1.0), *acts).names(*INTERNAL) == names


def _spoken_seconds(pcm: Pcm) -> str:
    return f"{np.count_nonzero(pcm) / LISTEN_RATE:.1f}"


@pytest.mark.parametrize(
    ("acts", "texts"),
    [
        pytest.param((), ["1.5"], id="in speech"),
        pytest.param((silence(0.1),), ["1.5"], id="in a pause"),
        pytest.param(
            (commands.Configure(PUSH_TO_TALK), commands.ClearAudio()), ["0.5"], id="clear"
        ),
        pytest.param(
            (commands.Configure(PUSH_TO_TALK), commands.Configure(VOICE)),
            ["0.5"],
            id="and on again",
        ),
    ],
)
def test_what_was_said_before_push_to_talk_is_the_clients_to_commit(acts, texts) -> None:  # type: ignore[no-untyped-def]
    by_hand = commands.Configure(PUSH_TO_TALK)
    stt = ScriptedStt(hears=_spoken_seconds)
    played = play(say(1.0), *acts, by_hand, say(0.5), commands.CommitAudio(), wait(1.0), stt=stt)
    assert played.transcripts == texts
    assert not played.events(events.ReplyStarted)


@pytest.mark.parametrize("stt_s", [0.06, 3.0])
def test_nothing_is_answered_by_itself_once_the_user_pushes_to_talk(stt_s: float) -> None:
    """Neither the answer that the user has just cut off, nor an earlier breath."""
    by_hand = commands.Configure(PUSH_TO_TALK)
    stt = ScriptedStt(hears=_spoken_seconds, takes_s=stt_s)
    acts = say(1.0), silence(2.6 if stt_s > 1 else 1.2), say(0.9), by_hand, say(1.0), silence(5.0)
    began = play(*acts, stt=stt).times_of(events.ReplyStarted)
    assert len(began) == (stt_s < 1)
    assert all(at < 2.2 for at in began), "before the user went on"


def test_an_answer_goes_on_when_speech_over_it_becomes_push_to_talk() -> None:
    acts = say(1.0), silence(2.6), say(0.2), commands.Configure(PUSH_TO_TALK), say(0.5)
    stt = ScriptedStt(hears=_spoken_seconds)
    played = play(*acts, commands.CommitAudio(), wait(5.0), stt=stt, llm=ScriptedLlm(GREETING * 3))
    assert played.transcripts == ["1.0", "0.7"]
    assert played.statuses == ["completed"]


@pytest.mark.machine
@pytest.mark.parametrize("at_s", np.arange(0, 3, 0.03))
@in_virtual_time
async def test_cancel_sweep(at_s: float) -> None:
    """Barge in at every 30 ms: nothing is audible afterwards, and there is exactly one end."""
    llm = ScriptedLlm()
    async with scene(llm=llm) as played:
        await played.act(say(0.512), wait(at_s), say(0.3), silence(0.02))
        closed: dict[str, str] = {}
        started: set[str] = set()
        for _, event in played.log:
            if isinstance(event, events.ReplyStarted):
                started.add(event.reply_id)
            if isinstance(event, events.ReplyFinished):
                assert event.reply_id in started
                assert event.reply_id not in closed
                closed[event.reply_id] = event.status
            if isinstance(event, events.ReplyAudio | events.ReplyText | events.ReplyItemFinished):
                assert event.reply_id in started
                assert event.reply_id not in closed
        assert len(started) - len(closed) <= 1
        await played.act(silence(1.5), wait(6.5))
        assert played.session._replies.quiet.is_set()
        assert llm.running == 0


def test_ending_the_session_mid_reply_leaves_nothing_behind() -> None:
    llm, stt = ScriptedLlm(), ScriptedStt()
    played = play(say(1.0), silence(0.8), llm=llm, stt=stt)
    assert played.statuses == ["cancelled"]
    assert (llm.running, llm.opened, stt.opened) == (0, 0, 0)


# --- words that come late ----------------------------------------------------------------------


def test_stopped_and_committed_come_together_after_a_slow_transcript() -> None:
    played = play(say(1.0), silence(4.0), stt=ScriptedStt(takes_s=2.0))
    assert played.time_of(events.SpeechStopped) == played.time_of(events.InputCommitted)


def test_a_late_transcript_never_starts_an_answer_over_the_user() -> None:
    stt = ScriptedStt(texts=("first", "second"), takes_s=3.0)
    acts = (say(0.5), silence(2.6), say(1.5), silence(8))
    played = play(*acts, stt=stt, turn=ScriptedTurn(probability=0.1))
    pairs = [name for name in played.names() if name in ("SpeechStarted", "SpeechStopped")]
    assert pairs == ["SpeechStarted", "SpeechStopped"] * 2
    assert played.transcripts == ["first", "second"]
    assert len(played.events(events.InputCommitted)) == 2
    assert len(played.events(events.ReplyStarted)) == 1, "one answer, to both parts"
    assert played.prompts[-1][-1] == ("user", "first second")
    assert played.time_of(events.ReplyAudio) > 0.5 + 1.1 + 1.5, "and not while the user speaks"


def test_an_utterance_over_the_limit_is_cut_without_an_answer_in_between() -> None:
    settings = SessionSettings(endpointing=Endpointing(max_utterance_s=1.0))
    stt = ScriptedStt(texts=("one", "two", "three"))
    played = play(say(1.5), silence(5), stt=stt, settings=settings)
    assert played.statuses[-1] == "completed"
    pairs = [name for name in played.names() if name in ("SpeechStarted", "SpeechStopped")]
    assert pairs == ["SpeechStarted", "SpeechStopped"] * 2
    assert played.prompts[-1][-1] == ("user", "one two")


@in_virtual_time
async def test_clear_drops_a_turn_that_waits_for_its_transcript() -> None:
    stt = ScriptedStt(takes_s=4.0)
    async with scene(stt=stt) as played:
        await played.act(say(1.0), silence(2.7), commands.ClearAudio())
        assert len(played.events(events.SpeechStopped)) == 1
        await played.act(silence(5.0))
        assert stt.opened == 0
    assert not played.events(events.InputCommitted)
    assert not played.events(events.ReplyStarted)


@pytest.mark.parametrize("detection", [None, commands.TurnDetection(create_response=False)])
def test_a_waiting_turn_is_kept_but_not_answered_once_cancelled(
    detection: commands.TurnDetection | None,
) -> None:
    update = commands.Configure(replace(VOICE, turn_detection=detection))
    played = play(say(1.0), silence(2.7), update, silence(5.0), stt=ScriptedStt(takes_s=4.0))
    assert len(played.events(events.InputCommitted)) == 1
    assert not played.events(events.ReplyStarted)


def test_a_transcription_session_sends_stable_words_and_no_answer() -> None:
    hypotheses = ("go", "go for", "go forward", "go forward ten", "go forward ten meters")
    stt = ScriptedStt(texts=("go forward ten meters",), partials=hypotheses)
    llm = ScriptedLlm()
    config = replace(VOICE, answers=False, partials=True)
    played = play(say(1.0), silence(2.0), config=config, stt=stt, llm=llm)
    told = played.events(events.TranscriptPartial)
    assert "".join(event.text for event in told) == "go forward ten"
    assert {event.item_id for event in told} == {played.events(events.SpeechStarted)[0].item_id}
    names = played.names()
    assert names.index("TranscriptPartial") < names.index("InputCommitted")
    assert played.transcripts == ["go forward ten meters"]
    assert not llm.prompts
    assert not llm.warmed


def test_partials_cost_nothing_unless_asked_for() -> None:
    played = play(say(1.0), silence(2.0), stt=ScriptedStt(partials=("a", "a b", "a b c")))
    assert not played.events(events.TranscriptPartial)


# --- turn detection ----------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_threshold_at_the_end_of_its_range_still_finds_turns(threshold: float) -> None:
    config = replace(VOICE, turn_detection=commands.TurnDetection(threshold=threshold))
    assert len(play(say(1.0), silence(3.0), config=config).events(events.InputCommitted)) == 1


@pytest.mark.parametrize(
    ("policy", "asked", "probability", "wait_s"),
    [
        ("adaptive", commands.TurnDetection(), 0.98, 0.224),
        ("adaptive", commands.TurnDetection(silence_duration_ms=100), 0.98, 0.1),
        ("adaptive", commands.TurnDetection(silence_duration_ms=800), 0.98, 0.224),
        ("adaptive", commands.TurnDetection(silence_duration_ms=100), 0.02, 2.496),
        ("strict", commands.TurnDetection(silence_duration_ms=800), 0.98, 0.8),
        ("strict", commands.TurnDetection(silence_duration_ms=800), 0.02, 0.8),
        ("strict", commands.TurnDetection(), 0.98, 0.224),
        ("adaptive", commands.TurnDetection(eagerness="high"), 0.02, 1.248),
        ("adaptive", commands.TurnDetection(eagerness="medium"), 0.02, 2.496),
        ("adaptive", commands.TurnDetection(eagerness="low"), 0.02, 7.996),
        ("adaptive", commands.TurnDetection(eagerness="low"), 0.98, 0.448),
    ],
)
def test_silence_duration_and_eagerness_set_the_wait(
    policy: Policy, asked: commands.TurnDetection, probability: float, wait_s: float
) -> None:
    ours = Endpointing(policy=policy, clear_wait_ms=224, mean_pause_ms=3000, confidence=0.8)
    played = play(
        *(say(1.024), silence(11.0)),
        config=replace(VOICE, turn_detection=asked),
        settings=SessionSettings(endpointing=ours),
        turn=ScriptedTurn(probability=probability, takes_s=0.01),
        stt=ScriptedStt(texts=("I went to the big house.",), takes_s=0.01),
    )
    assert played.time_of(events.SpeechStopped) - 1.024 == pytest.approx(wait_s, abs=0.04)


# --- silence -----------------------------------------------------------------------------------

NAGGING = replace(VOICE, turn_detection=commands.TurnDetection(idle_timeout_ms=5000))
SLOWER = replace(VOICE, turn_detection=commands.TurnDetection(idle_timeout_ms=6000))
ASIDE = commands.CreateResponse(commands.ResponseOptions(modality="text", in_conversation=False))


@in_virtual_time
async def test_after_an_idle_timeout_the_server_speaks_again() -> None:
    llm = ScriptedLlm(answers=[("Hello.",)], deltas=("Still there?",))
    async with scene(config=NAGGING, llm=llm) as played:
        await played.act(silence(7.0))
        assert not played.events(events.IdleTimeout), "nothing has been answered yet"
        await played.act(say(1.0), silence(7.0))
    (idle,) = played.events(events.IdleTimeout)
    # 0.3 s of audio were played from when they were sent.
    played_out = played.time_of(events.ReplyAudio) + 0.3
    ended = max(played.time_of(events.ReplyFinished), played_out)
    assert played.time_of(events.IdleTimeout) == pytest.approx(ended + 5.0, abs=0.03)
    assert idle.audio_end_ms - idle.audio_start_ms == pytest.approx(5000, abs=40)
    names = played.names()
    at = names.index("IdleTimeout")
    assert names[at + 1 : at + 5] == [*TURN[2:], "ReplyStarted"]
    assert played.events(events.InputCommitted)[-1].item_id == idle.item_id
    assert llm.prompts[-1][-2:] == [Message("assistant", "Hello."), SILENCE]


@pytest.mark.parametrize(
    ("acts", "timeouts"),
    [
        pytest.param(
            (*(say(1.0), silence(4.0)) * 3, say(6.0), silence(1.0),
             commands.Configure(PUSH_TO_TALK), silence(11.0)), 0, id="speech ends it",
        ),
        pytest.param(
            (commands.CreateResponse(), silence(2.0), ASIDE, silence(4.0)), 1,
            id="a response out of band does not",
        ),
        pytest.param(
            (commands.CreateResponse(), silence(2.0), ASIDE, silence(6.0),
             commands.Configure(SLOWER), silence(6.5)), 2, id="nor does an update",
        ),
    ],
)  # fmt: skip
def test_only_speech_stops_the_idle_timeout(acts, timeouts) -> None:  # type: ignore[no-untyped-def]
    played = play(*acts, config=NAGGING, llm=ScriptedLlm(deltas=("Hello.",)))
    assert len(played.events(events.IdleTimeout)) == timeouts


def test_no_idle_timeout_follows_a_failed_answer() -> None:
    llm = ScriptedLlm(errors=[EngineError("broken")] * 9)
    played = play(commands.CreateResponse(), silence(20.0), config=NAGGING, llm=llm)
    assert len(played.events(events.ReplyFinished)) == 1
    assert not played.events(events.IdleTimeout)
