"""A recogniser that writes words for noise: nothing is answered, and no answer is stopped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline import events
from pipeline.audio import Pcm
from pipeline.commands import AddItem, AppendAudio, CommitAudio
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.items import FunctionCallItem, FunctionOutputItem
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    PUSH_TO_TALK,
    SPEECH_LEVEL,
    VOICE,
    Act,
    LevelVad,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    play,
    say,
    scene,
    silence,
    text_item,
)
from tests.support.far_server import FarServer, serving
from tests.support.overlap import HEARD_S, QUESTION, over
from tests.support.turn_records import records_of
from tests.support.url_engines import running

pytestmark = pytest.mark.quick

MOTOR = 1500
"""Level of a noise that the VAD half takes for a voice."""
NOISE_S = 1.5
INVENTED = {
    "Thank you.": "hardly speech",
    "Yeah.": "hardly speech",
    "Uh-huh": "hum",
    "이이이": "letters",
    "Thanks for watching!": "credits",
    "Untertitel von Stephanie Geiges": "credits",
    "you you you you": "repetition",
    "Thank you very much. " * 12: "too fast",
}


class HalfSureVad(LevelVad):
    async def score(self, pcm: Pcm) -> float:
        loud = np.abs(pcm.astype(int)).mean()
        return 0.55 if 500 < loud < 2000 else await super().score(pcm)


class DoubtingVad(LevelVad):
    """Never quite takes the motor for a voice."""

    async def score(self, pcm: Pcm) -> float:
        loud = np.abs(pcm.astype(int)).mean()
        return 0.4 if 500 < loud < 2000 else await super().score(pcm)


class BuzzingVad(LevelVad):
    """Sure of any loud sound, but it is the buzz of a motor."""

    least_movement_db = 1.4


def inventing(text: str) -> ScriptedStt:
    return ScriptedStt(texts=("Tell me a story.", text), languages=("en",))


@pytest.mark.parametrize(("text", "reason"), INVENTED.items())
def test_an_invention_is_not_answered(text: str, reason: str) -> None:
    stt = ScriptedStt(texts=(text,), languages=("en",))
    played = play(say(NOISE_S, MOTOR), silence(3.0), stt=stt, vad=HalfSureVad())
    assert not played.events(events.ReplyStarted)
    assert not played.events(events.InputCommitted)
    assert [each.exclusion for each in played.events(events.SpeechRejected)] == [reason]
    [record] = played.events(TurnRecord)
    assert (record.outcome, record.exclusion, record.text) == ("rejected", reason, "")
    assert record.doubt
    assert record.doubt.text == text
    assert record.doubt.certainty == pytest.approx(0.55)
    assert record.doubt.speech_s == pytest.approx(NOISE_S, abs=0.1)


@pytest.mark.parametrize(("text", "reason"), INVENTED.items())
def test_an_invention_does_not_stop_an_answer(text: str, reason: str) -> None:
    played = over(say(NOISE_S, MOTOR), silence(9.0), stt=inventing(text), vad=HalfSureVad())
    assert played.reply.status == "completed"
    assert len(played.events(events.SpeechStarted)) == 1
    ignored = played.events(events.SpeechIgnored)
    assert [(each.reason, each.said) for each in ignored] == [(reason, text)]


@pytest.mark.parametrize("seconds", [NOISE_S, 30.0])
def test_whatever_is_read_in_the_buzz_of_a_motor_is_not_answered(seconds: float) -> None:
    stt = ScriptedStt(texts=("And in a different direction.",))
    acts = (silence(1.0), say(seconds, MOTOR), silence(3.0))
    played = play(*acts, stt=stt, vad=BuzzingVad())
    assert [each.exclusion for each in played.events(events.SpeechRejected)] == ["hardly speech"]
    assert not played.events(events.ReplyStarted)


def test_a_noise_that_cannot_be_recognised_gets_no_apology() -> None:
    stt = ScriptedStt(error=EngineError("no ears"))
    played = play(
        say(NOISE_S, MOTOR), silence(3.0), say(1.0), silence(3.0), stt=stt, vad=HalfSureVad()
    )
    assert [each.exclusion for each in played.events(events.SpeechRejected)] == ["hardly speech"]
    assert played.ends == [("failed", "no ears")], "but speech does"


def test_a_noise_that_cannot_be_recognised_takes_no_answer_away() -> None:
    def then_fail(played: Scene) -> None:
        played.stages.stt.error = EngineError("no ears")  # type: ignore[attr-defined]

    played = over(then_fail, say(NOISE_S, MOTOR), silence(9.0), vad=HalfSureVad())
    assert played.statuses == ["completed"]


@pytest.mark.parametrize("takes_s", [1.0, 3.0])
def test_a_slow_recogniser_does_not_make_a_noise_stop_an_answer(takes_s: float) -> None:
    stt = ScriptedStt(hears=lambda pcm: "Yeah." if MOTOR in np.abs(pcm) else QUESTION)
    stt.takes_s = takes_s
    acts = (say(2.5, MOTOR), silence(14.0))
    played = over(*acts, stt=stt, vad=HalfSureVad(), heard_s=HEARD_S + takes_s)
    assert played.statuses == ["completed"]


@pytest.mark.parametrize("text", ["Stop.", "No.", "no no no no no", "Be quiet! " * 4])
def test_a_command_by_a_voice_stops_the_answer(text: str) -> None:
    voice = say(0.5 if len(text) < 20 else 1.5)
    played = over(voice, silence(1.0), stt=inventing(text), vad=HalfSureVad())
    assert played.ends[0] == ("cancelled", "turn_detected")


def test_a_command_behind_a_noise_stops_the_answer() -> None:
    acts = (say(3.0, MOTOR), say(0.4), silence(1.0))
    played = over(*acts, stt=inventing("Stop."), vad=DoubtingVad())
    assert played.ends[0] == ("cancelled", "turn_detected")


def test_an_answer_stays_stopped_although_a_noise_follows_the_command() -> None:
    stt, acts = inventing("Stop."), (say(0.4), say(5.0, MOTOR), silence(9.0))
    played = over(*acts, stt=stt, vad=HalfSureVad())
    assert played.ends == [("cancelled", "turn_detected")]
    assert [each.exclusion for each in played.events(events.SpeechRejected)] == ["hardly speech"]


def test_an_invention_that_the_client_commits_has_an_empty_transcript() -> None:
    stt = ScriptedStt(texts=("Thanks for watching!",))
    acts = (silence(1.0), CommitAudio(), silence(1.0))
    assert play(*acts, stt=stt, config=PUSH_TO_TALK).transcripts == [""]


@pytest.mark.parametrize("text", INVENTED)
def test_noise_that_the_client_commits_is_scored_if_turns_are_detected(text: str) -> None:
    stt = ScriptedStt(texts=(text,), languages=("en",))
    acts = (say(NOISE_S, MOTOR), CommitAudio(), silence(1.0))
    played = play(*acts, stt=stt, vad=HalfSureVad())
    assert played.transcripts == [""]
    [record] = records_of(played)
    assert record.exclusion == INVENTED[text]
    assert record.doubt
    assert record.doubt.text == text


@pytest.mark.parametrize("text", ["Thank you.", "Mm-hmm.", "Yes."])
def test_a_voice_that_the_client_commits_is_heard(text: str) -> None:
    stt = ScriptedStt(texts=(text,), languages=("en",))
    played = play(say(0.8), CommitAudio(), silence(1.0), stt=stt, vad=HalfSureVad())
    assert played.transcripts == [text]


@pytest.mark.parametrize(("level", "waits_as_long"), [(MOTOR, True), (SPEECH_LEVEL, False)])
def test_pauses_of_a_noise_are_not_the_users(level: int, waits_as_long: bool) -> None:
    def waited(*before: Act) -> int:
        stt = ScriptedStt(hears=lambda pcm: "Yeah." if MOTOR in np.abs(pcm) else "I think so.")
        acts, turn = (*before, say(1.2), silence(3.0)), ScriptedTurn(probability=0.7)
        played = play(*acts, stt=stt, turn=turn, vad=HalfSureVad())
        return played.events(events.TurnJudged)[-1].wait_ms

    flickering = (say(0.2, level), silence(0.12)) * 12
    assert (waited(*flickering, silence(3.0)) == waited()) == waits_as_long


@pytest.mark.parametrize("speech_s", [0.3, 0.5])
def test_the_language_of_words_that_came_to_nothing_is_forgotten(speech_s: float) -> None:
    look = "Danke dir für diese"
    stt = ScriptedStt((QUESTION, look, look, ""), reported={QUESTION: "en", look: "de"})
    auto = replace(VOICE, language="")
    played = over(say(speech_s), silence(12.0), stt=stt, config=auto)
    assert played.session.language == "en"


@pytest.mark.parametrize("end", ["on?", "on? 😊", "on？", "on؟", 'on?"', "**on?**", "λες;", "on?!"])
def test_a_hum_answers_a_question_however_it_is_written(end: str) -> None:
    stt, llm = ScriptedStt((QUESTION, "Mm-hmm.")), ScriptedLlm(("Shall ", "I ", "go ", end))
    played = play(say(1.0), silence(4.0), say(0.6), silence(1.0), stt=stt, llm=llm)
    assert played.transcripts == [QUESTION, "Mm-hmm."]


def test_a_hum_answers_a_question_although_other_items_follow_it() -> None:
    stt, llm = ScriptedStt((QUESTION, "Mm-hmm.")), ScriptedLlm(("Shall ", "I ", "go ", "on?"))
    call = AddItem(FunctionCallItem("item_a", "call_1", "nod", "{}"))
    output = AddItem(FunctionOutputItem("item_b", "call_1", "done"))
    seen = AddItem(text_item("item_c", "The user smiles.", "system"))
    acts = (silence(4.0), call, output, seen, say(0.6), silence(1.0))
    played = play(say(1.0), *acts, stt=stt, llm=llm)
    assert played.transcripts == [QUESTION, "Mm-hmm."]


@pytest.mark.parametrize("text", ["Thank you.", "Thanks for watching!", "you you you you"])
async def test_a_recogniser_by_url_that_invents(text: str) -> None:
    far = FarServer("speech", models=("whisper",), transcript=text)
    async with (
        serving(far),
        running(Kind.STT, "openai-transcriptions", far.url) as engine,
        scene(stt=engine, vad=HalfSureVad()) as played,
    ):
        for level, seconds in ((MOTOR, NOISE_S), (0, 3.0)):
            for _ in range(round(seconds / 0.02)):
                await played.session.submit(AppendAudio(played.noise(level, 320), 16_000))
        await played.until(events.SpeechRejected)
    assert not played.events(events.ReplyStarted)
