"""Speech over an answer: held back at once, weighed by its words, and then it stops or goes on."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from pipeline.commands import ClearAudio, CommitAudio, CreateResponse, TurnDetection
from pipeline.errors import EngineError
from pipeline.events import (
    InputCommitted,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechIgnored,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TranscriptReady,
)
from pipeline.settings import BargeIn, PolicyName, SessionSettings
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    scene,
)

pytestmark = pytest.mark.quick

_WORDS = """
    once upon a time there was a small robot who lived on a wooden desk and talked all day long with
    nice people that came by to drink their tea.
"""
STORY = tuple(f"{word} " for word in _WORDS.split())
"""9 s of speech."""
QUESTION_S = 1.024
HEARD_S = 3.0
"""The user speaks over the answer this long after the question."""
BEGAN_S = QUESTION_S + HEARD_S


def story() -> ScriptedLlm:
    return ScriptedLlm(deltas=STORY)


async def over_the_answer(played: Scene, seconds: float) -> None:
    await played.say(QUESTION_S)
    await played.hear(HEARD_S)
    await played.say(seconds)


def audio(played: Scene) -> list[tuple[float, ReplyAudio]]:
    return [(at, event) for at, event in played.log if isinstance(event, ReplyAudio)]


def sent_s(played: Scene) -> float:
    return sum(len(event.pcm) / event.rate for _, event in audio(played))


def first_answer(played: Scene) -> ReplyFinished:
    return played.events(ReplyFinished)[0]


def wire(played: Scene) -> list[str]:
    """The speech events that a client receives."""
    kinds = (SpeechStarted, SpeechStopped, InputCommitted, TranscriptReady)
    return [type(event).__name__ for _, event in played.log if isinstance(event, kinds)]


TURN = ["SpeechStarted", "SpeechStopped", "InputCommitted", "TranscriptReady"]


@pytest.mark.parametrize(
    ("heard", "reason"),
    [("Mm-hmm.", "backchannel"), ("", "no words"), ("there was a small", "echo")],
)
@in_virtual_time
async def test_what_is_no_interruption_changes_nothing(heard: str, reason: str) -> None:
    stt = ScriptedStt(texts=("Tell me a story.", heard))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.4)
        await played.hear(9.0)
    assert wire(played) == TURN
    assert first_answer(played).status == "completed"
    assert sent_s(played) == pytest.approx(9.0)
    samples = np.concatenate([event.pcm for _, event in audio(played)])
    assert len(samples) == 9 * 16_000
    [ignored] = played.events(SpeechIgnored)
    assert (ignored.reason, ignored.said) == (reason, heard)
    assert ignored.audio_ms == pytest.approx(BEGAN_S * 1000, abs=40)
    [record] = played.events(TurnRecord)
    assert [(each.reason, each.text) for each in record.ignored] == [(reason, heard)]


@pytest.mark.parametrize(
    ("language", "heard", "status"),
    [
        ("de", "Warte!", "cancelled"),
        ("de", "Ja, genau.", "completed"),
        ("fr", "Attends !", "cancelled"),
        ("fr", "Oui, d'accord.", "completed"),
        ("es", "¡Espera!", "cancelled"),
        ("nl", "Ja, precies.", "completed"),
        ("", "Warte!", "cancelled"),
        ("", "Ja, genau.", "completed"),
    ],
)
@in_virtual_time
async def test_commands_and_backchannels_of_the_conversations_language(
    language: str, heard: str, status: str
) -> None:
    stt = ScriptedStt(texts=("Erzähl mir eine Geschichte.", heard))
    config = replace(VOICE, language=language)
    async with scene(stt=stt, llm=story(), config=config) as played:
        await over_the_answer(played, 0.4)
        await played.hear(9.0)
    assert first_answer(played).status == status


@in_virtual_time
async def test_the_first_foreign_words_are_judged_by_the_words_of_their_language() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Kannst du", "Kannst du", "Kannst du tanzen?"))
    async with scene(stt=stt, llm=story(), config=replace(VOICE, language="")) as played:
        await over_the_answer(played, 1.0)
        await played.hear(1.0)
    assert [each.interrupts for each in played.events(SpeechStarted)] == [None, "question"]


@in_virtual_time
async def test_nothing_is_sent_from_the_onset_to_the_verdict() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.4)
        await played.hear(9.0)
    times = [at for at, _ in audio(played)]
    gaps = [(after - at, at) for at, after in itertools.pairwise(times)]
    longest, since = max(gaps)
    # The first window is enough; the end of "mm-hm" is known after one more and a pass.
    assert since == pytest.approx(BEGAN_S, abs=0.05)
    assert longest == pytest.approx(0.4 + 0.032 + 0.06, abs=0.06)


@in_virtual_time
async def test_what_earlier_looks_read_counts_at_the_end() -> None:
    looks = (*["Very well."] * 3, "Very well, you heard.")
    stt = ScriptedStt(texts=("Tell me a story.", *looks))
    async with scene(config=VOICE, stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.42)
        await played.hear(9.0)
    assert first_answer(played).status == "completed"
    assert [each.reason for each in played.events(SpeechIgnored)] == ["too short"]


@in_virtual_time
async def test_an_interruption_is_published_from_its_beginning() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "What", "What about tea?"))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 1.0)
        await played.hear(2.0)
    assert wire(played) == [*TURN, *TURN]
    started = played.events(SpeechStarted)[1]
    assert started.audio_ms == pytest.approx(BEGAN_S * 1000 - 300, abs=40)
    told_at = [at for at, event in played.log if isinstance(event, SpeechStarted)][1]
    # Two looks, the second after 224 ms of speech in whole windows, and a pass.
    assert told_at - BEGAN_S == pytest.approx(0.224 + 0.06, abs=0.06)
    cut = first_answer(played)
    assert (cut.status, cut.reason) == ("cancelled", "turn_detected")
    assert not [at for at, _ in audio(played) if BEGAN_S + 0.1 < at < told_at + 0.5]
    assert played.events(TranscriptReady)[-1].text == "What about tea?"


@in_virtual_time
async def test_a_short_interruption_is_published_in_the_pause_after_it() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Stop."))
    settings = SessionSettings(barge_in=BargeIn(first_look_ms=1000))
    async with scene(stt=stt, llm=story(), settings=settings) as played:
        await over_the_answer(played, 0.3)
        await played.hear(2.0)
    assert wire(played) == [*TURN, *TURN]
    names = [type(event) for _, event in played.log if isinstance(event, SpeechPaused)]
    assert len(names) == 2
    assert first_answer(played).status == "cancelled"


@in_virtual_time
async def test_a_backchannel_that_becomes_a_question_interrupts_whole() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Yeah.", "Yeah. But why?"))
    settings = SessionSettings(barge_in=BargeIn(first_look_ms=1000))
    async with scene(stt=stt, llm=story(), settings=settings) as played:
        await over_the_answer(played, 0.3)
        await played.hear(0.12)
        await played.say(0.5)
        await played.hear(2.0)
    assert wire(played) == [*TURN, *TURN]
    assert not played.events(SpeechIgnored)
    assert not played.events(SpeechResumed)
    started = played.events(SpeechStarted)[1]
    assert started.audio_ms == pytest.approx(BEGAN_S * 1000 - 300, abs=40)
    assert played.events(TranscriptReady)[-1].text == "Yeah. But why?"


@in_virtual_time
async def test_any_speech_interrupts_at_once_where_that_is_wanted() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story(), settings=AT_ONCE) as played:
        await over_the_answer(played, 0.4)
    told_at = [at for at, event in played.log if isinstance(event, SpeechStarted)][1]
    assert told_at - BEGAN_S == pytest.approx(0.064, abs=0.04)
    assert first_answer(played).status == "cancelled"


@pytest.mark.parametrize("heard_s", [0.9, 9.9])
@in_virtual_time
async def test_an_answer_just_begun_or_about_to_end_stops_at_once(
    heard_s: float,
) -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story()) as played:
        await played.say(QUESTION_S)
        await played.hear(heard_s)
        await played.say(0.3)
    assert len(played.events(SpeechStarted)) == 2


@in_virtual_time
async def test_without_interruption_nothing_is_held_back() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "What about tea?"))
    config = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))
    async with scene(stt=stt, llm=story(), config=config) as played:
        await over_the_answer(played, 0.5)
        await played.hear(1.0)
    assert wire(played) == [*TURN, *TURN]
    assert sent_s(played) > 3.0


@in_virtual_time
async def test_speech_that_cannot_be_read_interrupts_by_its_length() -> None:
    stt = ScriptedStt(texts=("Tell me a story.",))
    async with scene(stt=stt, llm=story()) as played:
        await played.say(QUESTION_S)
        await played.hear(HEARD_S)
        stt.error = EngineError("broken")
        await played.say(0.3)
        await played.hear(1.0)
        assert [each.reason for each in played.events(SpeechIgnored)] == ["no words"]
        await played.say(1.0)
        await played.hear(1.0)
    assert len(played.events(SpeechStarted)) == 2
    assert first_answer(played).status == "cancelled"


@in_virtual_time
async def test_a_client_that_commits_says_that_it_is_speech() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.2)
        await played.do(CommitAudio())
        await played.hear(1.0)
    assert wire(played) == [*TURN, *TURN]


@pytest.mark.parametrize("silence_s", [0.0, 0.1])
@in_virtual_time
async def test_after_a_clear_the_answer_goes_on_unseen(
    silence_s: float,
) -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.14)
        await played.hear(silence_s)
        await played.do(ClearAudio())
        await played.hear(9.0)
    assert wire(played) == TURN
    assert sent_s(played) == pytest.approx(9.0)


@in_virtual_time
async def test_a_client_that_stalls_in_the_middle_does_not_keep_the_answer_back() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Mm-hmm."))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.3)
        await played.session.quiet()
    assert wire(played) == TURN
    assert sent_s(played) == pytest.approx(9.0)


@pytest.mark.parametrize("told", ["Number six is another.", "Number 6 is a number"])
@in_virtual_time
async def test_the_answers_own_numbers_are_its_echo_however_they_are_written(told: str) -> None:
    words = ("Number ", "6 ", "is ", "a ", "number ", "that ", "people ", "like. ") * 4
    stt = ScriptedStt(texts=("Tell me a story.", told))
    async with scene(config=VOICE, stt=stt, llm=ScriptedLlm(deltas=words)) as played:
        await over_the_answer(played, 1.0)
        await played.hear(15.0)
    assert first_answer(played).status == "completed"


@in_virtual_time
async def test_words_are_looked_at_ever_more_rarely() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", ""))
    async with scene(stt=stt, llm=ScriptedLlm(deltas=STORY * 3)) as played:
        await over_the_answer(played, 10.0)
        assert wire(played) == TURN
        assert 10 < len(stt.finished) < 36


@pytest.mark.parametrize("clears", [False, True])
@in_virtual_time
async def test_a_loud_moment_and_then_nothing_does_not_keep_the_answer_back(clears: bool) -> None:
    stt = ScriptedStt(texts=("Tell me a story.", ""))
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.04)
        assert played.session._turns.suspecting
        if clears:
            await played.do(ClearAudio())
            assert not played.session._turns.suspecting
        async with asyncio.timeout(30):
            await played.session.quiet()
    assert wire(played) == TURN
    assert sent_s(played) == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("said", "seconds", "policy", "why"),
    [
        ("stop", 1.0, "words", "command"),
        ("how are you today", 1.0, "words", "question"),
        ("my name is Anna Maria", 1.0, "words", "words"),
        ("robot", 1.0, "words", "words"),
        ("my friend is", 0.32, "words", "words"),
        ("mm-hm", 0.32, "any-speech", "any speech"),
    ],
)
@in_virtual_time
async def test_events_say_why_an_answer_was_cut(
    said: str, seconds: float, policy: PolicyName, why: str
) -> None:
    settings = SessionSettings(barge_in=BargeIn(policy=policy))
    stt = ScriptedStt(texts=("Tell me a story.", said))
    async with scene(config=VOICE, llm=story(), stt=stt, settings=settings) as played:
        await over_the_answer(played, seconds)
        await played.hear(3.0)
    assert played.events(SpeechStarted)[1].interrupts == why
    assert played.events(SpeechStopped)[1].why == "silence"
    cut = [record for record in played.events(TurnRecord) if record.cut_by]
    assert [(record.outcome, record.cut_by) for record in cut] == [("interrupted", why)]


@in_virtual_time
async def test_a_commit_by_the_client_is_why_a_turn_is_over() -> None:
    async with scene(config=VOICE, llm=story()) as played:
        await played.say(QUESTION_S)
        await played.do(CommitAudio())
        await played.hear(1.0)
    assert played.events(SpeechStopped)[0].why == "client"


@pytest.mark.parametrize(
    ("asked", "final", "answers"),
    [("story?", "Yes.", 2), ("story.", "Yes.", 1), ("story?", "Mm-hm.", 1)],
)
@in_virtual_time
async def test_a_question_may_be_answered_before_its_last_words(
    asked: str, final: str, answers: int
) -> None:
    llm = ScriptedLlm(deltas=("Would ", "you ", "like ", "to ", "hear ", "a ", asked))
    stt = ScriptedStt(texts=("Hello there.", final, final))
    async with scene(config=VOICE, stt=stt, llm=llm) as played:
        await played.say(QUESTION_S)
        while not played.events(ReplyAudio):
            await played.hear(0.02)
        await played.hear(1.3)
        await played.say(0.3)
        await played.hear(8.0)
    started = played.events(ReplyStarted)
    assert [event.continues for event in started] == [""] * answers


@in_virtual_time
async def test_a_commit_over_an_answer_that_has_just_begun_is_answered_by_the_client() -> None:
    """The answer is not given again before the client's own response."""
    stt = ScriptedStt(texts=("What time is it?", "No I meant in Paris please"), takes_s=0.3)
    async with scene(stt=stt, llm=story()) as played:
        await played.say(QUESTION_S)
        while not played.events(ReplyAudio):
            await played.hear(0.02)
        await played.hear(1.3)
        await played.hear(0.3, level=3000)
        await played.do(CommitAudio(), CreateResponse())
        await played.hear(3.0)
        llm = cast(ScriptedLlm, played.stages.llm)
    assert not played.events(Refused)
    kinds = [type(e) for _, e in played.log if isinstance(e, InputCommitted | ReplyStarted)]
    assert kinds == [InputCommitted, ReplyStarted] * 2
    assert [m.content for m in llm.prompts[-1] if m.role == "user"][-1].endswith("Paris please")
