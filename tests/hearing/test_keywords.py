"""Names and odd words take the place of what sounds like them, in partial and final texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline.hearing import tuning
from pipeline.hearing.keywords import Keywords
from pipeline.settings import SessionSettings, lexicon_of
from reachy_voice.testing import ScriptedStt, in_virtual_time
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
    ],
)
def test_a_near_miss_becomes_the_keyword(keywords: str, heard: str, text: str) -> None:
    assert Keywords(keywords.split(","), ENGLISH).put_into(heard) == text


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
    ("transcription", "words", "text"),
    [
        ({"keywords": ["Reachy", "Joaquin"]}, (), PUT),
        ({"keywords": ["Joaquin"]}, ("Reachy",), PUT),
        ({}, ("Reachy", "Joaquin"), PUT),
        ({"keywords": None}, (), HEARD),
        ({"keywords": []}, (), HEARD),
    ],
)
@pytest.mark.parametrize("answers", [True, False])
@in_virtual_time
async def test_a_session_puts_them_into_partial_and_final_texts(
    transcription: dict[str, Any], words: Sequence[str], text: str, answers: bool
) -> None:
    stt = ScriptedStt(texts=(HEARD,), partials=[HEARD] * 3)
    settings = SessionSettings(words=tuple(words))
    defaults = replace(DEFAULTS, transcription=not answers)
    async with wired(Cast(stt=stt), defaults=defaults, settings=settings) as client:
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
