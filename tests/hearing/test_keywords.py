"""Names and rare words replace words that sound like them, in partial and final texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline.hearing import tuning
from pipeline.hearing.keywords import Keywords
from pipeline.settings import SessionSettings, lexicon_of
from reachy_voice.testing import ScriptedSpeaker, ScriptedStt, in_virtual_time, people
from reachy_voice.testing.words import LEXICONS
from tests.support.protocol_client import DEFAULTS
from tests.support.wired import Cast, wired

pytestmark = pytest.mark.quick

ENGLISH = lexicon_of(LEXICONS, "en")


@pytest.mark.parametrize(
    ("keywords", "heard", "text"),
    [
        ("Reachy", "Hey Richie, what time is it?", "Hey Reachy, what time is it?"),
        ("Reachy", "Ritchie. Turn your head.", "Reachy. Turn your head."),
        ("Reachy", "Is that Richie's head?", "Is that Reachy's head?"),
        ("Reachy", "hey richie what time is it", "hey Reachy what time is it"),
        ("Reachy", "Reachy, stop.", "Reachy, stop."),
        ("Reachy", "I reach it and teach it.", "I reach it and teach it."),
        ("Anneliese", "Tell Ann Llease that I am late.", "Tell Anneliese that I am late."),
        ("Anneliese", "Ask Anna, Lisa and Bob.", "Ask Anna, Lisa and Bob."),
        ("Ottokar", "I met Otakar and Otto Kar.", "I met Ottokar and Ottokar."),
        ("Zoë Müller", "Call Zoe Muller.", "Call Zoë Müller."),
        ("Xanthe", "This is Zanth.", "This is Xanthe."),
        ("ill-disposed", "He was ill-sposed to it.", "He was ill-disposed to it."),
        ("Home Assistant", "Ask home asistent, please.", "Ask Home Assistant, please."),
        ("Al", "All of Ali's oil.", "All of Ali's oil."),
        ("Jürgen,Jörg", "Hallo Jorg!", "Hallo Jörg!"),
        ("Рома", "Richie and Roma", "Richie and Roma"),
        ("", "Hey Richie.", "Hey Richie."),
        ("Reachy", "", ""),
        ("Reachy", "Can you hear me? Reiki.", "Can you hear me? Reachy."),
        ("Reachy", "Hello Reiki, are you there?", "Hello Reachy, are you there?"),
        ("Reachy", "What is your name? Ricky, I know.", "What is your name? Ricky, I know."),
        ("O'Neill", "Call Mr O'Neil or O\u2019Neal's son.", "Call Mr O'Neill or O'Neill's son."),
        ("John", "Ask Jon. Jon is here.", "Ask John. Jon is here."),
        ("John,Jon", "Ask Jon and John.", "Ask Jon and John."),
        ("Reachy,Richie", "Hey Richie.", "Hey Richie."),
        ("Sonos 2,Route 66", "Play it on Sonos 2. Root 66?", "Play it on Sonos 2. Root 66?"),
        (" Jokari! ", "Play Jokary! Jokari!", "Play Jokari! Jokari!"),
        ("Søren,Łukasz", "Call Soren or Lukasz.", "Call Søren or Łukasz."),
        ("Strauß", "Call Strauss.", "Call Strauß."),
        ("Reachy", "richie", "Reachy"),
        ("Reachy", "Can you hear me? reiki", "Can you hear me? Reachy"),
        ("Reachy", "HEY RICHIE, LOOK", "HEY Reachy, LOOK"),
        ("Nextcloud,Isabel", "Is Abel in Next Cloud?", "Is Abel in Nextcloud?"),
    ],
)
def test_a_near_miss_becomes_the_keyword(keywords: str, heard: str, text: str) -> None:
    assert Keywords(keywords.split(","), ENGLISH).put_into(heard) == text


@pytest.mark.parametrize(
    ("language", "heard", "text"),
    [
        ("fr", "C'est l'amie d'Annelise.", "C'est l'amie d'Anneliese."),
        ("it", "La casa dell\u2019Annelise.", "La casa dell\u2019Anneliese."),
        ("en", "It's Annelise's.", "It's Anneliese's."),
    ],
)
def test_a_name_may_stand_behind_an_apostrophe(language: str, heard: str, text: str) -> None:
    words = Keywords(["Anneliese", "Sanneliese"], lexicon_of(LEXICONS, language))
    assert words.put_into(heard) == text


@pytest.mark.parametrize(
    ("language", "keywords", "texts"),
    [
        ("en", "Reachy", "My name is Ricky.|Ricky, and yours?|Call Rocky.|Is Rich there?|Rishi."),
        ("en", "Reachy", "I saw Rico in Riga.|The Roche is a Rookie.|It is me, Ricky.|Hi, Rich."),
        ("de", "Reachy", "Es riecht nach Rauch.|Die Rache im Reich.|Ist Ricky da?|Das ist Rosi."),
        ("de", "Lena,Tom", "Die Lina und das Team.|Das ist ein Lohn.|Tim!"),
        ("es", "Reachy,Blanca", "Es la Rocha de Rosi.|No es blanco.|Ricky, ven."),
        ("fr", "Reachy,Luc", "C'est la Roche.|Il est riche.|Le lac est la.|Un look."),
        ("it", "Reachy,Bianca", "Non sono ricchi.|Il vino bianco.|Sono Rossi."),
        ("nl", "Reachy,Roos", "De ruzie is van Ricky.|Het is roze."),
        ("pt", "Reachy,Rita", "Ela é rica.|O riacho do Rocha.|Na rota."),
        ("", "Reachy", "My name is Ricky.|Es riecht nach Rauch.|Call Rocky.|La Roche."),
        ("en", "Tom,Luke,Paul,Ben", "What time is it?|Look at me.|Pull up.|A bin. Look, a bin!"),
        ("en", "Kate,Harry,Carrie", "A cat, a hairy one.|Hairy cats.|Carry it.|We carry it."),
        ("en", "Sandy,John,Mark", "See you on Sunday.|It was in June.|Until March."),
        ("en", "Tom,Ben", "WHAT IS IN THE BIN WITH THE TEAM"),
        ("en", "Stop,Wait,Look", "One step at a time.|A white cat.|What luck!"),
    ],
)
def test_ordinary_words_and_other_names_stay(language: str, keywords: str, texts: str) -> None:
    words = Keywords(keywords.split(","), lexicon_of(LEXICONS, language))
    assert [words.put_into(text) for text in texts.split("|")] == texts.split("|")


@pytest.mark.parametrize("lexicon", LEXICONS, ids=lambda each: each.language)
def test_words_of_turn_taking_neither_vanish_nor_appear(lexicon: Any) -> None:
    words = [*lexicon.commands, *lexicon.backchannels, *lexicon.answers, *lexicon.fillers]
    near = [f"{word[:-1]}{'aeiou'[number % 5]}".title() for number, word in enumerate(words)]
    assert [Keywords(near, lexicon).put_into(word) for word in words] == words
    shown = [word for word in words if word != "reachy"]
    assert Keywords(shown, lexicon).put_into("A big step, a stob, hald.") == (
        "A big step, a stob, hald."
    )


def test_too_many_or_too_long_keywords_have_no_effect() -> None:
    others = [f"Bert{number}" for number in range(tuning.MOST_KEYWORDS - 1)]
    for keywords, text in (
        ([*others, "Reachy"], "Hey Reachy."),
        ([*others, "Anna", "Reachy"], "Hey Richie."),
        (["Reachy" * 20, "x" * 100_000], "Hey Richie."),
    ):
        assert Keywords(keywords, ENGLISH).put_into("Hey Richie.") == text


HEARD = "Is Jokin there, Richie?"
PUT = "Is Joaquin there, Reachy?"


@pytest.mark.parametrize(
    ("transcription", "words", "known", "text"),
    [
        ({"keywords": ["Reachy", "Joaquin"]}, (), {}, PUT),
        ({"keywords": ["Joaquin"]}, ("Reachy",), {}, PUT),
        ({}, ("Reachy", "Joaquin"), {}, PUT),
        ({}, ("Reachy",), {"Joaquin": 20_000}, PUT),
        ({"keywords": None}, (), {}, HEARD),
        ({"keywords": []}, (), {}, HEARD),
    ],
)
@pytest.mark.parametrize("answers", [True, False])
@in_virtual_time
async def test_a_session_corrects_partial_and_final_texts(
    transcription: dict[str, Any],
    words: Sequence[str],
    known: dict[str, int],
    text: str,
    answers: bool,
) -> None:
    stt = ScriptedStt(texts=(HEARD,), partials=[HEARD] * 3)
    cast = Cast(stt=stt, people=people(**known), speaker=ScriptedSpeaker())
    settings = SessionSettings(words=tuple(words))
    defaults = replace(DEFAULTS, transcription=not answers)
    async with wired(cast, defaults=defaults, settings=settings) as client:
        asked = {"model": "any", "delay": "low", **transcription}
        kind = "realtime" if answers else "transcription"
        session = {"type": kind, "audio": {"input": {"transcription": asked}}}
        await client.send("session.update", session=session)
        await client.say(1000)
        await client.hear(4000)
    event = "conversation.item.input_audio_transcription"
    deltas = "".join(each["delta"] for each in client.events(f"{event}.delta"))
    assert [each["transcript"] for each in client.events(f"{event}.completed")] == [text]
    assert deltas
    assert text.startswith(deltas.rstrip("?"))
