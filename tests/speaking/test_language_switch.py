"""With ``language: auto``, answer, voice, words of turn-taking and notices follow the user."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pipeline.commands import CancelResponse, Configure, CreateResponse, TurnDetection
from pipeline.errors import EngineError
from pipeline.events import TurnJudged
from pipeline.settings import Filler, SessionSettings
from pipeline.speaking.notices import KeptSentences
from reachy_voice.testing import (
    VOICE,
    Act,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    play,
    run_virtual,
    say,
    scene,
    silence,
    wait,
    write,
)
from reachy_voice.testing.words import NOTICES

pytestmark = pytest.mark.quick

AUTO = replace(VOICE, language="")
SETTINGS = SessionSettings(notices=NOTICES)
LONG = ("Eins, ", "zwei, ", "drei, ", "vier, ", "fünf, ", "sechs, ", "sieben, ", "acht, ", "neun.")


def asked(voice: ScriptedTts) -> list[tuple[str, str]]:
    return [(request.language, request.text) for request in voice.requests]


TURN = (say(1.0), silence(5.0))
GERMAN = "Wie spät ist es?"


@pytest.mark.parametrize(
    ("said", "told", "probability", "spoken"),
    [
        (
            (GERMAN, "Quelle heure est-il ?", "D'accord.", "Tu es où ?", "¿Y tú?"),
            "es",
            1.0,
            ["de", "fr", "fr", "fr", "es"],
        ),
        (("Berlin.",), "de", 1.0, ["de"]),  # the text shows no language
        (("Ja.",), "de", 0.7, ["de"]),  # the first language needs no more certainty
        # A word or two change the language only if the recogniser is sure.
        ((GERMAN, "Ja."), "nl", 0.8, ["de", "de"]),  # misheard
        ((GERMAN, "OK."), "en", 0.93, ["de", "de"]),
        ((GERMAN, "Stop it."), "en", 0.9, ["de", "de"]),
        ((GERMAN, "Buenos días."), "es", 0.97, ["de", "es"]),  # the recogniser is sure
        ((GERMAN, "Guten Morgen."), "de", 0.71, ["de", "de"]),  # no change
        ((GERMAN, "¿Cómo estás?"), "es", 0.75, ["de", "es"]),  # the words show it
        ((GERMAN, "Cuéntame un chiste"), "es", 0.75, ["de", "es"]),  # long enough
    ],
)
def test_the_voice_follows_the_user_from_turn_to_turn(
    said: tuple[str, ...], told: str, probability: float, spoken: list[str]
) -> None:
    """``told``: the language that the recogniser reports for the last words."""
    stt = ScriptedStt(texts=said, reported={said[-1]: told}, language_probability=probability)
    voice = ScriptedTts()
    play(*TURN * len(said), config=AUTO, stt=stt, llm=ScriptedLlm(["Okay."]), tts=voice)
    assert asked(voice) == [(language, "Okay.") for language in spoken]


SPANISH = "¿Cómo estás?"
IDLE = replace(AUTO, turn_detection=TurnDetection(idle_timeout_ms=3000))


@pytest.mark.parametrize(
    ("acts", "options", "spoken"),
    [
        pytest.param((say(1), silence(9)), {"config": IDLE}, ["de", "de"], id="after a silence"),
        pytest.param(
            (say(1), silence(4)) * 2,
            {"settings": SessionSettings(clock=count(1.8e9, 100).__next__)},
            ["de", "de"],
            id="and the time in the prompt",
        ),
        pytest.param(
            (write("Qu'est-ce que tu fais à la maison ?"), CreateResponse(), CancelResponse(),
             write(SPANISH, "item_y"), CreateResponse(), wait(3)), {}, ["es"],
            id="after a question without an answer",
        ),
    ],
)  # fmt: skip
def test_only_the_users_newest_words_count(
    acts: tuple[Act, ...], options: dict[str, Any], spoken: list[str]
) -> None:
    voice, stt = ScriptedTts(), ScriptedStt((GERMAN, "Und jetzt?"))
    options = {"config": AUTO, **options}
    play(*acts, stt=stt, llm=ScriptedLlm(["Okay."]), tts=voice, **options)
    assert [language for language, _ in asked(voice)][: len(spoken)] == spoken


@pytest.mark.parametrize(
    ("over", "status"),
    [
        ("Ja, genau.", "completed"),
        ("Warte!", "cancelled"),
        ("Attends !", "cancelled"),  # a command of another language
        ("Oui, d'accord, très bien.", "cancelled"),  # agrees, but in another language
    ],
)
def test_words_over_an_answer_count_in_the_users_language(over: str, status: str) -> None:
    stt = ScriptedStt(texts=("Zähl bitte für mich bis zehn.", over))
    acts = (say(1.0), silence(2.0), say(0.5), silence(9.0))
    it = play(*acts, config=AUTO, stt=stt, llm=ScriptedLlm(LONG))
    assert it.statuses[0] == status


def test_the_end_of_a_turn_is_judged_by_the_words_of_its_own_language() -> None:
    """German "die" needs a word after it, English "die" does not."""
    for text, reason in (
        ("Ich glaube, es ist die", "leaning word"),
        ("I think that it is the day we die", "unfinished"),
    ):
        it = play(*TURN, config=AUTO, stt=ScriptedStt(texts=(text,)))
        assert it.events(TurnJudged)[-1].reasons == ("sound", reason)


@in_virtual_time
async def test_the_apology_is_in_the_users_language() -> None:
    llm, voice = ScriptedLlm(["Okay."]), ScriptedTts()
    stt = ScriptedStt(texts=("Wie spät ist es?", "¿Y tú, dónde estás?", "OK."))
    async with scene(config=AUTO, settings=SETTINGS, stt=stt, llm=llm, tts=voice) as it:
        await it.act(*TURN)
        for _ in range(2):
            llm.errors = [EngineError("It broke")] * 2
            await it.act(*TURN)
        stt.error = EngineError("no ears")
        await it.act(*TURN)
    sorry = SETTINGS.notices_in("es").apology
    assert asked(voice) == [("de", "Okay."), *([("es", sorry)] * 3)]


@in_virtual_time
async def test_the_apology_follows_the_language_that_the_client_sets() -> None:
    llm, voice = ScriptedLlm(), ScriptedTts()
    async with scene(settings=SETTINGS, llm=llm, tts=voice) as it:
        for language in ("en", "it", "pl"):
            await it.do(Configure(replace(VOICE, language=language)))
            llm.errors = [EngineError("It broke")] * 2
            await it.act(*TURN)
    english = SETTINGS.notices_in("en").apology
    italian = SETTINGS.notices_in("it").apology
    assert asked(voice) == [("en", english), ("it", italian), ("en", english)], "no Polish is known"


def test_a_kept_apology_in_another_language_is_not_said() -> None:
    voice, german = ScriptedTts(), SETTINGS.notices_in("de").apology
    kept = KeptSentences(voice, {german: "de", SETTINGS.notices_in("fr").apology: "fr"})
    run_virtual(kept.keep())
    voice.error = EngineError("no mouth")
    stt = ScriptedStt(texts=("Wie spät ist es?", "Che ore sono e come stai?"))
    it = play(*TURN * 2, config=AUTO, settings=SETTINGS, stt=stt, tts=voice, kept=kept)
    assert german in it.words
    assert SETTINGS.notices_in("it").apology not in it.words, "it has no sound"


def test_the_filler_is_in_the_users_language() -> None:
    settings = replace(SETTINGS, filler=Filler(after_ms=1000))
    stt = ScriptedStt(texts=("Wie spät ist es?", "Quelle heure est-il ?"))
    llm = ScriptedLlm(["Okay."], first_s=3.0)
    it = play(*TURN * 2, config=AUTO, settings=settings, stt=stt, llm=llm)
    assert it.words[0].strip() == "Hm, mal sehen."
    assert "Un instant." in " ".join(it.words)


@in_virtual_time
async def test_the_notice_of_an_exchange_is_in_the_users_language() -> None:
    voice = ScriptedTts()
    stt = ScriptedStt(texts=("Che ore sono e come stai?",))
    async with scene(config=AUTO, settings=SETTINGS, stt=stt, tts=voice) as it:
        assert it.session.notices.language == "en", "nobody has spoken"
        await it.act(*TURN)
        notice = it.session.notices.exchange_notice
        assert it.session.notify(notice)
        await asyncio.sleep(3)
    assert asked(voice)[-1] == ("it", notice)
    assert notice.startswith("Un momento, per favore")
