"""Speech over an answer: held back at once, weighed by its words, and then it stops or goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import commands
from pipeline.audio import LISTEN_RATE
from pipeline.errors import EngineError
from pipeline.events import (
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    ReplyHeld,
    ReplyStarted,
    ReplyWentOn,
    SpeechIgnored,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TranscriptPartial,
    TranscriptReady,
)
from pipeline.settings import BargeIn, PolicyName, SessionSettings
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    VOICE,
    Act,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    text_item,
)
from tests.support.overlap import BEGAN_S, HEARD_S, QUESTION, QUESTION_S, STORY, over, story

pytestmark = pytest.mark.quick

DEAF = replace(VOICE, turn_detection=commands.TurnDetection(interrupt_response=False))
LATE = SessionSettings(barge_in=BargeIn(first_look_ms=1000))
"""The first look at words is in the pause after them."""
TURN = ["SpeechStarted", "SpeechStopped", "InputCommitted", "TranscriptReady"]


def wire(played: Scene) -> list[str]:
    """The speech events that a client receives."""
    kinds = (SpeechStarted, SpeechStopped, InputCommitted, TranscriptReady)
    return [type(event).__name__ for _, event in played.log if isinstance(event, kinds)]


def ignored(played: Scene) -> list[str]:
    return [event.reason for event in played.events(SpeechIgnored)]


def then(name: str, value: object) -> Act:
    """From now on the recogniser is so."""
    return lambda played: setattr(played.stages.stt, name, value)


async def first_sound(played: Scene) -> None:
    while not played.events(ReplyAudio):
        await played.hear(0.02)


def test_a_word_like_a_backchannel_that_contradicts_stops_the_answer() -> None:
    played = over(say(0.7), silence(2.0), texts=("Untrue!",))
    assert played.ends[0] == ("cancelled", "turn_detected")
    assert played.transcripts == [QUESTION, "Untrue!"]


@pytest.mark.parametrize(
    ("heard", "reason"),
    [("Mm-hmm.", "backchannel"), ("", "no words"), ("there was a small", "echo")],
)
def test_what_is_no_interruption_changes_nothing(heard: str, reason: str) -> None:
    played = over(say(0.4), silence(9.0), texts=(heard,))
    assert wire(played) == TURN
    assert played.reply.status == "completed"
    samples = np.concatenate([event.pcm for event in played.events(ReplyAudio)])
    assert len(samples) == 9 * 16_000
    [event] = played.events(SpeechIgnored)
    assert (event.reason, event.said) == (reason, heard)
    assert event.audio_ms == pytest.approx(BEGAN_S * 1000, abs=40)
    [record] = played.events(TurnRecord)
    assert [(each.reason, each.text) for each in record.ignored] == [(reason, heard)]


NUMBERS = ("Number ", "6 ", "is ", "a ", "number ", "that ", "people ", "like. ") * 4


@pytest.mark.parametrize(
    ("acts", "texts", "options", "status", "why", "turns"),
    [
        pytest.param(
            [say(0.42), silence(9.0)], (*["Very well."] * 3, "Very well, you heard."), {},
            "completed", ["too short"], 1, id="what earlier looks read counts at the end",
        ),
        pytest.param(
            [say(0.3), silence(2.0)], ("Stop.",), {"settings": LATE},
            "cancelled", [], 2, id="a short interruption, known in the pause after it",
        ),
        pytest.param(
            [say(0.2), commands.CommitAudio(), silence(1.0)], ("Mm-hmm.",), {},
            "cancelled", [], 2, id="a client that commits says that it is speech",
        ),
        pytest.param(
            [say(0.14), commands.ClearAudio(), silence(9.0)], ("Mm-hmm.",), {},
            "completed", [], 1, id="cleared in the middle, the answer goes on unseen",
        ),
        pytest.param(
            [say(0.14), silence(0.1), commands.ClearAudio(), silence(9.0)], ("Mm-hmm.",), {},
            "completed", None, 1, id="cleared in the pause, the answer goes on unseen",
        ),
        pytest.param(
            [say(0.3), lambda played: played.session.quiet()], ("Mm-hmm.",), {},
            "completed", None, 1, id="a client that stalls does not keep the answer back",
        ),
        pytest.param(
            [say(1.0), silence(15.0)], ("Number six is another.",), {"llm": ScriptedLlm(NUMBERS)},
            "completed", ["echo"], 1, id="the answer's own number, written as a word",
        ),
        pytest.param(
            [say(1.0), silence(15.0)], ("Number 6 is a number",), {"llm": ScriptedLlm(NUMBERS)},
            "completed", ["echo"], 1, id="the answer's own number",
        ),
        pytest.param(
            [say(0.3), commands.CancelResponse(), silence(2.5)], ("okay",), {},
            "cancelled", [], 2, id="what is said while the client ends the answer is a turn",
        ),
        pytest.param(
            [say(0.16), commands.Configure(DEAF), say(0.6), silence(25.0)],
            ("What about tea?",), {}, "completed", [], 2,
            id="an answer that may not be interrupted any more goes on",
        ),
    ],
)  # fmt: skip
def test_the_answer(  # type: ignore[no-untyped-def]
    acts, texts, options, status: str, why: list[str] | None, turns: int
) -> None:
    played = over(*acts, texts=texts, **options)
    assert played.reply.status == status
    assert wire(played) == TURN * turns
    assert why is None or ignored(played) == why
    assert played.transcripts == [QUESTION, *texts[-1:]][:turns]
    if turns == 1 and "llm" not in options:
        assert played.audio_s == pytest.approx(9.0)


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
def test_commands_and_backchannels_of_the_conversations_language(
    language: str, heard: str, status: str
) -> None:
    stt = ScriptedStt(texts=("Erzähl mir eine Geschichte.", heard))
    config = replace(VOICE, language=language)
    assert over(say(0.4), silence(9.0), stt=stt, config=config).reply.status == status


def test_the_first_foreign_words_are_judged_by_the_words_of_their_language() -> None:
    texts = ("Kannst du", "Kannst du", "Kannst du tanzen?")
    played = over(say(1.0), silence(1.0), texts=texts, config=replace(VOICE, language=""))
    assert [each.interrupts for each in played.events(SpeechStarted)] == [None, "question"]


def test_nothing_is_sent_from_the_onset_to_the_verdict() -> None:
    played = over(say(0.4), silence(9.0), texts=("Mm-hmm.",))
    times = played.times_of(ReplyAudio)
    longest, since = max((after - at, at) for at, after in itertools.pairwise(times))
    # The first window is enough; the end of "mm-hm" is known after one more and a pass.
    assert since == pytest.approx(BEGAN_S, abs=0.05)
    assert longest == pytest.approx(0.4 + 0.032 + 0.06, abs=0.06)


def test_an_interruption_is_published_from_its_beginning() -> None:
    played = over(say(1.0), silence(2.0), texts=("What", "What about tea?"))
    assert wire(played) == TURN * 2
    assert played.events(SpeechStarted)[1].audio_ms == pytest.approx(BEGAN_S * 1000 - 300, abs=40)
    told_at = played.times_of(SpeechStarted)[1]
    # Two looks, the second after 224 ms of speech in whole windows, and a pass.
    assert told_at - BEGAN_S == pytest.approx(0.224 + 0.06, abs=0.06)
    assert played.ends[0] == ("cancelled", "turn_detected")
    assert not [at for at in played.times_of(ReplyAudio) if BEGAN_S + 0.1 < at < told_at + 0.5]
    assert played.transcripts[-1] == "What about tea?"


def test_a_short_interruption_is_known_in_the_pause_after_it() -> None:
    played = over(say(0.3), silence(2.0), texts=("Stop.",), settings=LATE)
    assert len(played.events(SpeechPaused)) == 2


def test_a_backchannel_that_becomes_a_question_interrupts_whole() -> None:
    acts = (say(0.3), silence(0.12), say(0.5), silence(2.0))
    played = over(*acts, texts=("Yeah.", "Yeah. But why?"), settings=LATE)
    assert wire(played) == TURN * 2
    assert not ignored(played)
    assert not played.events(SpeechResumed)
    assert played.events(SpeechStarted)[1].audio_ms == pytest.approx(BEGAN_S * 1000 - 300, abs=40)
    assert played.transcripts[-1] == "Yeah. But why?"


def test_any_speech_interrupts_at_once_where_that_is_wanted() -> None:
    played = over(say(0.4), texts=("Mm-hmm.",), settings=AT_ONCE)
    assert played.times_of(SpeechStarted)[1] - BEGAN_S == pytest.approx(0.064, abs=0.04)
    assert played.reply.status == "cancelled"


@pytest.mark.parametrize("heard_s", [0.9, 9.9])
def test_an_answer_just_begun_or_about_to_end_stops_at_once(heard_s: float) -> None:
    played = over(say(0.3), texts=("Mm-hmm.",), heard_s=heard_s)
    assert len(played.events(SpeechStarted)) == 2


def test_without_interruption_nothing_is_held_back() -> None:
    played = over(say(0.5), silence(1.0), texts=("What about tea?",), config=DEAF)
    assert wire(played) == TURN * 2
    assert played.audio_s > 3.0


@in_virtual_time
async def test_speech_that_cannot_be_read_interrupts_by_its_length() -> None:
    async with scene(stt=ScriptedStt((QUESTION,)), llm=story()) as played:
        broken = then("error", EngineError("broken"))
        await played.act(say(QUESTION_S), silence(HEARD_S), broken, say(0.3), silence(1.0))
        assert ignored(played) == ["no words"]
        await played.act(say(1.0), silence(1.0))
    assert len(played.events(SpeechStarted)) == 2
    assert played.reply.status == "cancelled"


def test_words_are_looked_at_ever_more_rarely() -> None:
    stt = ScriptedStt((QUESTION, ""))
    played = over(say(10.0), stt=stt, llm=ScriptedLlm(deltas=STORY * 3))
    assert wire(played) == TURN
    assert 10 < len(stt.finished) < 36


@pytest.mark.parametrize("clears", [False, True])
@in_virtual_time
async def test_a_loud_moment_and_then_nothing_does_not_keep_the_answer_back(clears: bool) -> None:
    async with scene(stt=ScriptedStt((QUESTION, "")), llm=story()) as played:
        await played.act(say(QUESTION_S), silence(HEARD_S), say(0.04))
        assert played.session._turns.awaits_sound
        if clears:
            await played.do(commands.ClearAudio())
            assert not played.session._turns.awaits_sound
        async with asyncio.timeout(30):
            await played.session.quiet()
    assert wire(played) == TURN
    assert played.audio_s == pytest.approx(9.0)


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
def test_events_say_why_an_answer_was_cut(
    said: str, seconds: float, policy: PolicyName, why: str
) -> None:
    settings = SessionSettings(barge_in=BargeIn(policy=policy))
    played = over(say(seconds), silence(3.0), texts=(said,), settings=settings)
    assert played.events(SpeechStarted)[1].interrupts == why
    assert played.events(SpeechStopped)[1].why == "silence"
    cut = [record for record in played.events(TurnRecord) if record.cut_by]
    assert [(record.outcome, record.cut_by) for record in cut] == [("interrupted", why)]


def test_a_commit_by_the_client_is_why_a_turn_is_over() -> None:
    played = play(say(QUESTION_S), commands.CommitAudio(), silence(1.0), llm=story())
    assert played.events(SpeechStopped)[0].why == "client"


@pytest.mark.parametrize(
    ("asked", "final", "answers"),
    [("story?", "Yes.", 2), ("story.", "Yes.", 1), ("story?", "Mm-hm.", 1)],
)
def test_a_question_may_be_answered_before_its_last_words(
    asked: str, final: str, answers: int
) -> None:
    llm = ScriptedLlm(deltas=("Would ", "you ", "like ", "to ", "hear ", "a ", asked))
    stt = ScriptedStt(texts=("Hello there.", final, final))
    acts = (say(QUESTION_S), first_sound, silence(1.3), say(0.3), silence(8.0))
    played = play(*acts, stt=stt, llm=llm)
    assert [event.continues for event in played.events(ReplyStarted)] == [""] * answers


def test_a_commit_over_an_answer_that_has_just_begun_is_answered_by_the_client() -> None:
    """The answer is not given again before the client's own response."""
    stt = ScriptedStt(texts=("What time is it?", "No I meant in Paris please"), takes_s=0.3)
    ask = (commands.CommitAudio(), commands.CreateResponse(), silence(3.0))
    played = play(say(QUESTION_S), first_sound, silence(1.3), say(0.3), *ask, stt=stt, llm=story())
    assert not played.refusals
    kinds = [type(e) for _, e in played.log if isinstance(e, InputCommitted | ReplyStarted)]
    assert kinds == [InputCommitted, ReplyStarted] * 2
    [*_, last] = [text for role, text in played.prompts[-1] if role == "user"]
    assert last.endswith("Paris please")


# --- where something changes before it is known ------------------------------------------------


@pytest.mark.parametrize(
    ("said", "statuses"), [("Mm-hmm.", ["completed"]), ("What about tea?", ["cancelled"])]
)
def test_an_answer_to_given_input_can_be_interrupted(said: str, statuses: Sequence[str]) -> None:
    ask = commands.CreateResponse(
        options=commands.ResponseOptions(input=(text_item("x", QUESTION),))
    )
    acts = (ask, silence(3.0), say(0.6), silence(8.0))
    played = play(*acts, stt=ScriptedStt(texts=(said,)), llm=story())
    assert played.statuses[:1] == statuses
    if said == "Mm-hmm.":
        assert played.audio_s == pytest.approx(9.0)
        assert not played.events(SpeechStarted)


def test_words_recognised_while_weighed_are_published_with_the_rest() -> None:
    words = ["what", "about", "some", "tea", "please", "now", "or", "later", "my", "friend"]
    growing = then("partials", tuple(" ".join(words[: n // 4 + 1]) for n in range(60)))
    acts = (growing, say(1.2), silence(2.0))
    played = over(*acts, texts=(" ".join(words),), config=replace(VOICE, partials=True))
    item_id = played.events(SpeechStarted)[1].item_id
    told = [event.text for event in played.events(TranscriptPartial) if event.item_id == item_id]
    assert " ".join(words).startswith("".join(told))
    assert len(told) > 3


def test_a_recogniser_that_hangs_does_not_hold_everything_up() -> None:
    acts = (then("takes_s", 10.0), say(2.0), silence(12.0))
    played = over(*acts, texts=("Stop it now, please.",))
    assert played.reply.reason == "turn_detected"
    assert played.time_of(ReplyFinished) - BEGAN_S < 1.3
    assert played.transcripts[-1] == "Stop it now, please."
    assert played.events(ReplyAudio)


class GrowingStt(ScriptedStt):
    """Hears more of it after a second."""

    def text(self) -> str:
        if len(self.finished) == 1:
            return QUESTION
        longer = len(self.finished[-1]) > 1.2 * LISTEN_RATE
        return "Mm-hmm. What about tea?" if longer else "Mm-hmm."


def test_speech_that_goes_on_after_a_backchannel_holds_the_answer_at_once() -> None:
    engines: dict[str, Any] = {"stt": GrowingStt(), "turn": ScriptedTurn(probability=0.02)}
    played = over(say(0.36), silence(0.3), say(1.2), silence(2.0), **engines)
    resumed_s = BEGAN_S + 0.36 + 0.3
    ended_at = played.time_of(ReplyFinished)
    sent = [at for at in played.times_of(ReplyAudio) if resumed_s - 0.3 < at < ended_at]
    assert sent  # in the pause it went on
    assert max(sent) < resumed_s + 0.1
    assert resumed_s + 0.3 < ended_at < resumed_s + 0.9
    assert played.transcripts[-1] == "Mm-hmm. What about tea?"


def test_speech_still_weighed_is_published_before_the_next() -> None:
    """The recogniser is slow: the first words are not read yet when others interrupt."""
    acts = (then("takes_s", 4.0), say(0.2), silence(2.7), say(1.5), silence(9.0))
    played = over(*acts, texts=("what about tea",))
    spoken = [
        (type(event).__name__, event.item_id)
        for _, event in played.log
        if isinstance(event, SpeechStarted | SpeechStopped)
    ]
    ids = list(dict.fromkeys(item_id for _, item_id in spoken))
    assert len(ids) == 3
    kinds = ("SpeechStarted", "SpeechStopped")
    assert spoken == [(kind, item_id) for item_id in ids for kind in kinds]


@in_virtual_time
async def test_noise_releases_no_answer_that_ended_speech_still_holds() -> None:
    async with scene(stt=ScriptedStt((QUESTION, "Stop.")), llm=story()) as played:
        longer_than_any_pause = then("takes_s", 4.0)
        await played.act(say(QUESTION_S), silence(HEARD_S), say(0.1), longer_than_any_pause)
        await played.act(silence(3.0))
        assert len(played.events(ReplyHeld)) == 1
        await played.act(say(0.02), silence(0.3))
        assert not played.events(ReplyWentOn)
        await played.act(silence(4.0))
    assert played.reply.status == "cancelled"
    assert not played.events(ReplyWentOn)
