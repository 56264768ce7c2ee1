"""Plain requests in seven languages, and the calls that are made of them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from app.clock.phrases import Phrases, plain
from app.root import ROOT
from app.settings.languages import read_clock

pytestmark = pytest.mark.quick

TABLES = read_clock(ROOT / "config" / "languages")
PHRASES = {language: Phrases(language, tables) for language, tables in TABLES.items()}
NOW = datetime(2026, 11, 28, 13, 0)  # a Saturday


def at(time: str, day: int = 28) -> dict[str, Any]:
    return {"time": time, "date": f"2026-11-{day}"}


def timer(seconds: float) -> tuple[str, dict[str, Any]]:
    return "set_timer", {"seconds": seconds}


def alarm(time: str, day: int = 29) -> tuple[str, dict[str, Any]]:
    return "set_alarm", at(time, day)


def remind(text: str, **when: Any) -> tuple[str, dict[str, Any]]:
    return "set_reminder", {"text": text, **when}


def cancel(kind: str) -> tuple[str, dict[str, Any]]:
    return "cancel_timer", {"kind": kind}


LIST: tuple[str, dict[str, Any]] = ("list_timers", {})
TIME: tuple[str, dict[str, Any]] = ("now", {})

ASKED: dict[str, dict[str, tuple[str, dict[str, Any]] | None]] = {
    "en": {
        "Set a timer for five minutes.": timer(300),
        "Can you please set a 10-minute timer?": timer(600),
        "Reachy, start a timer for an hour and a half, please.": timer(5400),
        "Set a timer for two and a half minutes": timer(150),
        "Set a timer for one hour, twenty-five minutes and 10 seconds.": timer(5110),
        "Half an hour timer.": timer(1800),
        "Timer for 1.5 hours": timer(5400),
        "Wake me up in a quarter of an hour": timer(900),
        "Set an alarm for 7:30.": alarm("19:30", 28),
        "Set an alarm for 7:30 a.m.": alarm("07:30"),
        "Set an alarm for seven thirty tomorrow morning": alarm("07:30"),
        "Wake me up at seven.": alarm("07:00"),
        "Wake me tomorrow at half past six": alarm("06:30"),
        "Wake me up at quarter to eight": alarm("07:45"),
        "Set an alarm for noon": alarm("12:00"),
        "Remind me to call my mother at three.": remind("call my mother", **at("15:00")),
        "Remind me in twenty minutes to look at the oven": remind("look at the oven", seconds=1200),
        "Remind me to look at the sky at nine in the evening": remind(
            "look at the sky", **at("21:00")
        ),
        "Remind me to call my mother tomorrow morning at nine": remind(
            "call my mother", **at("09:00", 29)
        ),
        "How much time is left on the timer?": LIST,
        "What timers are set?": LIST,
        "Cancel the timer": cancel("timer"),
        "Stop all alarms, please.": cancel("alarm"),
        "Delete my reminder": cancel("reminder"),
        "What time is it?": TIME,
        "What's the time?": TIME,
        "What day is it today?": TIME,
        "Set a timer for minutes.": None,
        "Set a timer for 99999999999999999 hours.": None,
        "Set a timer for my grandmother's birthday": None,
        "Set an alarm for twenty-six o'clock": None,
        "What time is it in Tokyo?": None,
        "What is a timer?": None,
        "Tell me about the time when you were young": None,
        "": None,
    },
    "de": {
        "Stell einen Timer auf fünf Minuten.": timer(300),
        "Kannst du bitte einen Timer für 10 Minuten stellen?": timer(600),
        "Stelle einen Timer auf eine Stunde und zwanzig Minuten": timer(4800),
        "Timer für anderthalb Stunden": timer(5400),
        "Stell den Timer auf eine halbe Stunde": timer(1800),
        "Weck mich in einer Viertelstunde": timer(900),
        "Stell den Wecker auf sieben Uhr.": alarm("07:00"),
        "Stell den Wecker auf 7:30 Uhr": alarm("07:30"),
        "Weck mich morgen früh um halb sieben": alarm("06:30"),
        "Weck mich um Viertel vor acht": alarm("07:45"),
        "Erinnere mich in zwanzig Minuten an den Kuchen": remind("den kuchen", seconds=1200),
        "Erinnere mich um drei an den Anruf": remind("den anruf", **at("15:00")),
        "Wie lange läuft der Timer noch?": LIST,
        "Lösch den Timer": cancel("timer"),
        "Brich den Timer ab": cancel("timer"),
        "Schalte den Wecker aus": cancel("alarm"),
        "Wie spät ist es?": TIME,
        "Wie viel Uhr ist es?": TIME,
        "Welcher Tag ist heute?": TIME,
        "Wie spät ist es in Tokio?": None,
    },
    "fr": {
        "Mets un minuteur de cinq minutes.": timer(300),
        "Peux-tu régler un minuteur sur dix minutes, s'il te plaît ?": timer(600),
        "Minuteur de une heure et demie": timer(5400),
        "Lance un minuteur de un quart d'heure": timer(900),
        "Mets une alarme à 7h30": alarm("07:30"),
        "Mets le réveil à sept heures.": alarm("07:00"),
        "Réveille-moi demain matin à six heures et demie": alarm("06:30"),
        "Réveille-moi à huit heures moins le quart": alarm("07:45"),
        "Rappelle-moi dans vingt minutes de sortir le gâteau": remind(
            "sortir le gâteau", seconds=1200
        ),
        "Rappelle-moi d'appeler Paul à trois heures": remind("appeler paul", **at("15:00")),
        "Combien de temps reste-t-il ?": LIST,
        "Annule le minuteur": cancel("timer"),
        "Annule l'alarme": cancel("alarm"),
        "Quelle heure est-il ?": TIME,
        "Quel jour sommes-nous ?": TIME,
    },
    "es": {
        "Pon un temporizador de cinco minutos.": timer(300),
        "¿Puedes poner un temporizador de media hora, por favor?": timer(1800),
        "Temporizador de una hora y media": timer(5400),
        "Pon una alarma a las siete.": alarm("07:00"),
        "Pon una alarma para las 7:30": alarm("07:30"),
        "Despiértame mañana a las siete y media": alarm("07:30"),
        "Despiértame a las ocho menos cuarto": alarm("07:45"),
        "Recuérdame en veinte minutos que saque el pastel": remind("saque el pastel", seconds=1200),
        "Recuérdame llamar a Paula a las tres": remind("llamar a paula", **at("15:00")),
        "¿Cuánto tiempo queda?": LIST,
        "Cancela el temporizador": cancel("timer"),
        "Quita la alarma": cancel("alarm"),
        "¿Qué hora es?": TIME,
        "¿Qué día es hoy?": TIME,
    },
    "it": {
        "Imposta un timer di cinque minuti.": timer(300),
        "Puoi mettere un timer di mezz'ora, per favore?": timer(1800),
        "Timer di un'ora e mezza": timer(5400),
        "Imposta una sveglia alle sette.": alarm("07:00"),
        "Svegliami domani alle sette e mezza": alarm("07:30"),
        "Svegliami alle otto meno un quarto": alarm("07:45"),
        "Ricordami tra venti minuti di togliere la torta": remind(
            "togliere la torta", seconds=1200
        ),
        "Ricordami di chiamare Paola alle tre": remind("chiamare paola", **at("15:00")),
        "Quanto tempo manca?": LIST,
        "Annulla il timer": cancel("timer"),
        "Spegni la sveglia": cancel("alarm"),
        "Che ore sono?": TIME,
        "Che giorno è oggi?": TIME,
    },
    "nl": {
        "Zet een timer op vijf minuten.": timer(300),
        "Kun je een timer voor een half uur zetten, alsjeblieft?": timer(1800),
        "Zet een timer van anderhalf uur, alsjeblieft": timer(5400),
        "Timer voor anderhalf uur": timer(5400),
        "Zet een timer van een kwartier": timer(900),
        "Zet de wekker op zeven uur.": alarm("07:00"),
        "Maak me morgen om half acht wakker": alarm("07:30"),
        "Wek me om kwart voor acht": alarm("07:45"),
        "Herinner me over twintig minuten aan de taart": remind("de taart", seconds=1200),
        "Herinner me om drie uur aan het telefoontje": remind("het telefoontje", **at("15:00")),
        "Hoe lang loopt de timer nog?": LIST,
        "Annuleer de timer": cancel("timer"),
        "Zet de wekker uit": cancel("alarm"),
        "Hoe laat is het?": TIME,
        "Welke dag is het vandaag?": TIME,
    },
    "pt": {
        "Põe um temporizador de cinco minutos.": timer(300),
        "Podes pôr um temporizador de meia hora, por favor?": timer(1800),
        "Temporizador de uma hora e meia": timer(5400),
        "Põe um alarme para as sete.": alarm("07:00"),
        "Acorda-me amanhã às sete e meia": alarm("07:30"),
        "Me acorde às sete horas": alarm("07:00"),
        "Lembra-me daqui a vinte minutos de tirar o bolo": remind("tirar o bolo", seconds=1200),
        "Lembra-me de ligar à Paula às três": remind("ligar à paula", **at("15:00")),
        "Quanto tempo falta?": LIST,
        "Cancela o temporizador": cancel("timer"),
        "Desliga o alarme": cancel("alarm"),
        "Que horas são?": TIME,
        "Que dia é hoje?": TIME,
    },
}


@pytest.mark.parametrize(
    ("language", "said"),
    [(language, said) for language, rows in ASKED.items() for said in rows],
)
def test_what_is_asked_for(language: str, said: str) -> None:
    call = PHRASES[language].call(said, NOW)
    assert (call and (call[0], json.loads(call[1]))) == ASKED[language][said]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("7:30 p.m.", "7 30 pm"),
        ("7h30", "7 30"),
        ("7 h", "7 h"),
        ("1,5 Stunden.", "1.5 stunden"),
        ("Réveille-moi d’ici", "réveille moi d' ici"),
        ("19.30 Uhr", "19 30 uhr"),
    ],
)
def test_plain_words(said: str, words: str) -> None:
    assert plain(said) == words


def test_every_language_has_the_same_tables_and_sentences() -> None:
    assert set(TABLES) == set(ASKED)
    names = {
        language: [line.split(" = ")[0] for line in tables["clock_sentences"].splitlines()]
        for language, tables in TABLES.items()
    }
    assert all(each == names["en"] for each in names.values())


def test_a_text_of_any_length_is_judged_at_once() -> None:
    for language, phrases in PHRASES.items():
        assert phrases.call("remind me to " + "look at " * 5000, NOW) is None, language
        assert phrases.call("remind me to " + "look at " * 30 + "at", NOW) is None, language
