"""Plain requests in seven languages, and the calls that are made of them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.clock.notation import plain
from app.clock.phrases import Phrases
from app.root import ROOT
from app.settings.languages import read_clock

pytestmark = pytest.mark.quick

TABLES = read_clock(ROOT / "config" / "languages")
PHRASES = {language: Phrases(language, tables) for language, tables in TABLES.items()}
NOW = datetime(2026, 11, 28, 13, 0)  # a Saturday


def at(time: str, day: int = 28) -> dict[str, Any]:
    """``day``: of November; the 34th is 4 December."""
    return {"time": time, "date": str(NOW.date() + timedelta(days=day - 28))}


def timer(seconds: float, name: str = "") -> tuple[str, dict[str, Any]]:
    return "set_timer", {"seconds": seconds} | ({"text": name} if name else {})


def alarm(time: str, day: int = 29) -> tuple[str, dict[str, Any]]:
    return "set_alarm", at(time, day)


def remind(text: str, **when: Any) -> tuple[str, dict[str, Any]]:
    return "set_reminder", {"text": text, **when}


def cancel(kind: str, **which: Any) -> tuple[str, dict[str, Any]]:
    return "cancel_timer", {"kind": kind, **which}


LIST: tuple[str, dict[str, Any]] = ("list_timers", {})
TIME: tuple[str, dict[str, Any]] = ("now", {})
UNCLEAR: tuple[str, dict[str, Any]] = ("unclear", {})

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
        "Set a timer for minutes.": UNCLEAR,
        "Set a timer for 99999999999999999 hours.": UNCLEAR,
        "Set a timer for my grandmother's birthday": UNCLEAR,
        "Set an alarm for twenty-six o'clock": UNCLEAR,
        "Set an alarm for 1900 hours": alarm("19:00", 28),
        "Set a timer for 200 hours": UNCLEAR,
        "What time is it in Tokyo?": None,
        "What is a timer?": None,
        "Tell me about the time when you were young": None,
        "": None,
        "Remind me today at five to call mum": remind("call mum", **at("17:00")),
        "Set an alarm for five today": alarm("17:00", 28),
        "Set an alarm for 12:30 am": alarm("00:30"),
        "Set an alarm for 12:30 pm": alarm("12:30"),
        "Wake me at half past twelve tonight": alarm("00:30"),
        "Remind me tomorrow at three to call mum": remind("call mum", **at("15:00", 29)),
        "Remind me to call mum on Friday at nine": remind("call mum", **at("09:00", 34)),
        "Remind me to call mum every day at nine": UNCLEAR,
        "Remind me to call mum next week at nine": UNCLEAR,
        "Remind me at five to buy the tickets for Friday": UNCLEAR,
        "Remind me tomorrow at five to buy tickets for Friday": remind(
            "buy tickets for friday", **at("17:00", 29)
        ),
        "Remind me to call mum on December 24th at nine": UNCLEAR,
        "Remind me to call mum on the fifth at nine": UNCLEAR,
        "Set an alarm for tomorrow at seven": alarm("07:00"),
        "Turn off the timer": cancel("timer"),
        "I need a timer for ten minutes": timer(600),
        "timer ten minutes": timer(600),
        "Set a timer for a half hour": timer(1800),
        "Set a timer for 10 mins": timer(600),
        "Set a timer for a hundred minutes": timer(6000),
        "Set a reminder to call mum at five": remind("call mum", **at("17:00")),
        "When is my alarm": LIST,
        "How much time do I have left": LIST,
        "Um, set a timer for five minutes": timer(300),
        "So, what time is it?": TIME,
        "Cancel my ten minute timer": cancel("timer", seconds=600),
        "Set a pasta timer for ten minutes": timer(600, "pasta"),
        "Set a ten minute timer for the pasta": timer(600, "pasta"),
        "cancel the pasta timer": cancel("timer", text="pasta"),
        "how much time is left on the pasta timer": LIST,
        "Remind me to buy two apples at five please": remind("buy two apples", **at("17:00")),
        "Remind me to buy food for two": UNCLEAR,
        "Remind me what we talked about": None,
        "Set a timer": UNCLEAR,
        "Set an alarm": UNCLEAR,
        "Wake me when dinner is ready": UNCLEAR,
        "Remind me to buy milk": UNCLEAR,
        "Remind me at noon to eat": remind("eat", **at("12:00", 29)),
        "Remind me tonight at nine pm to eat": remind("eat", **at("21:00")),
        "Remind me at nine this evening to eat": remind("eat", **at("21:00")),
        "Set an alarm for 19:00 in the morning": UNCLEAR,
        "Set an alarm for Saturday at nine": alarm("09:00", 35),
        "Tell me about the alarm at five": None,
        "Set a timer for an hour and a half": timer(5400),
        "Set a timer for three quarters of an hour": timer(2700),
        "Remind me to look at nine at nine": UNCLEAR,
        "Remind me tomorrow at half past five to call 2 people": remind(
            "call 2 people", **at("17:30", 29)
        ),
        "I want to know how timers work": None,
        "Remind me on Friday at quarter to twelve at night to sleep": remind(
            "sleep", **at("23:45", 34)
        ),
        "Wake me today at seven in the evening": alarm("19:00", 28),
        "Remind me in two days at nine to call": UNCLEAR,
        "Remind me to call mum in two days at nine": UNCLEAR,
        "Remind me on Monday to eat": UNCLEAR,
        "Okay": None,
        "Stop the timer for five minutes": cancel("timer", seconds=300),
        "Set an alarm for 07:00": alarm("07:00"),
        "How much longer?": LIST,
        "Set a timer called pasta": UNCLEAR,
        "Stop talking about the timer": None,
        "Remind me at 5 to call at 6": remind("call at 6", **at("17:00")),
        "Wake me at seven on Monday and Tuesday": UNCLEAR,
        "Set a timer for five minutes and another for ten": UNCLEAR,
        "Set an alarm in ten minutes": timer(600),
        "Remind me after dinner to call": UNCLEAR,
        "Remind me to rest this Sunday at nine": remind("rest", **at("09:00", 29)),
        "Remind me at five to five to eat": remind("eat", **at("16:55")),
        "Delete the alarm for seven": UNCLEAR,
        "What time is my alarm set for?": LIST,
        "Add five minutes to the timer": UNCLEAR,
        "Set a timer for 1 hour 30": timer(5400),
        "Set an alarm for six in the evening on Sunday": alarm("18:00"),
        "Remind me to call mum at five and dad at six": UNCLEAR,
        "Remind me to leave at five, no, at six": UNCLEAR,
        "Remind me to heat soup in ten minutes and rice in twenty minutes": UNCLEAR,
        "Remind me about the call at three in ten minutes": remind(
            "the call at three", seconds=600
        ),
        "Remind me to eat at a restaurant at six": remind("eat at a restaurant", **at("18:00")),
        "Set a timer for, uh, ten minutes": timer(600),
        "Remind me please to um call mum at five": remind("call mum", **at("17:00")),
        "In ten minutes please remind me to eat": remind("eat", seconds=600),
        "Okay, tomorrow at eight can you wake me up": alarm("08:00"),
        "At six I set an alarm": None,
        "In five minutes stop the timer": UNCLEAR,
        "My alarm at seven": None,
        "The ten minute timer": None,
        "Set a second timer for five minutes": timer(300),
        "Set a second timer": UNCLEAR,
        "Set a three minute egg timer": timer(180, "egg"),
        "Set a timer for my tea four minutes": timer(240, "tea"),
        "All right, what time is it?": TIME,
        "Cancel the three minute egg timer": cancel("timer", text="egg", seconds=180),
        "Put five minutes on the timer": UNCLEAR,
        "Set an alarm for six seven": UNCLEAR,
        "Set an alarm for six oh seven": alarm("18:07", 28),
        "Wake me at 630": alarm("06:30"),
        "Set my alarm clock for half six tomorrow": alarm("06:30"),
        "Set a timer for thirty minutes from now": timer(1800),
        "Snooze for ten minutes": timer(600),
        "Snooze": UNCLEAR,
        "Silence the alarm": cancel("alarm"),
        "Delete the seven o'clock alarm": UNCLEAR,
        "Cancel all but the pasta timer": UNCLEAR,
        "Remind me tomorrow": UNCLEAR,
        "Do you know what time it is?": TIME,
        "Can you tell me what day of the week it is": TIME,
        "Tell me what time the shop closes": None,
        "What time is": None,
        "Tell me how many minutes are left on the timer": LIST,
        "When's my next alarm?": LIST,
        "Have I got any alarms set for tomorrow": LIST,
        "Is the timer still running": LIST,
        "How long until the pasta timer is done": LIST,
        "What are timers?": None,
        "Set a timer for five minutes, ten minutes": UNCLEAR,
        "Set a five minute and a ten minute timer": UNCLEAR,
        "Wake us at seven": alarm("07:00"),
        "Don't let me forget to call mum at five": remind("call mum", **at("17:00")),
        "Set a timer for ten minutes. Thank you very much.": timer(600),
        "Okay great, I'd like to set a timer for five minutes.": timer(300),
        "I want to know what time it is right now": TIME,
        "Let's cancel the timer": cancel("timer"),
        "Remind me at five to make the table look good": remind(
            "make the table look good", **at("17:00")
        ),
        "I need five minutes on the timer": timer(300),
        "Remind me tomorrow to call mum at ten": remind("call mum", **at("10:00", 29)),
        "Remind me tonight to eat at a restaurant at nine": remind(
            "eat at a restaurant", **at("21:00")
        ),
        "Remind me tomorrow to call mum at five and dad at six": UNCLEAR,
        "Remind me tomorrow to call mum on Monday at five": UNCLEAR,
        "Remind me tomorrow to call mum": UNCLEAR,
        "Set a timer for one hundred minutes": timer(6000),
        "Set a timer for an hour and a quarter": timer(4500),
        "No, cancel the timer.": cancel("timer"),
        "Um, no, no. Set an alarm for seven.": alarm("19:00", 28),
        "Wait, I said set a timer for ten minutes": timer(600),
        "No alarm at seven": None,
        "No, don't set an alarm for seven": None,
        "Start a ten minute countdown": timer(600),
        "Countdown from ten minutes": timer(600),
        "Cancel the countdown": cancel("timer"),
        "Start the final countdown": None,
        "Set a 2h timer": timer(7200),
        "Set a timer called pasta for ten minutes": timer(600, "pasta"),
        "Set a ten minute timer named pasta": timer(600, "pasta"),
        "Cancel the timer called pasta": cancel("timer", text="pasta"),
        "Stop the timer for Anna's eggs": cancel("timer", text="anna's eggs"),
        "How long is left on the timer named pasta?": LIST,
        "Cancel the timer for seven": UNCLEAR,
        "Add a reminder to call mum at five": remind("call mum", **at("17:00")),
        "Wake me up at 06h45": alarm("06:45"),
        "Remind me around four to call mum": UNCLEAR,
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
        "Erinnere mich heute um fünf an den Müll": remind("den müll", **at("17:00")),
        "Stell den Wecker heute auf fünf": alarm("17:00", 28),
        "Erinnere mich morgen um drei an den Anruf": remind("den anruf", **at("15:00", 29)),
        "Weck mich heute Nacht um halb eins": alarm("00:30"),
        "Erinnere mich am Freitag um neun an Mama": remind("mama", **at("09:00", 34)),
        "Erinnere mich an Mama am Freitag um neun": remind("mama", **at("09:00", 34)),
        "Erinnere mich an Mama jeden Tag um neun": UNCLEAR,
        "Stell den Wecker auf morgen um sieben": alarm("07:00"),
        "Stell einen Wecker für morgen früh um sieben": alarm("07:00"),
        "Stell mir bitte einen Timer auf fünf Minuten": timer(300),
        "Kannst du den Wecker auf sieben stellen?": alarm("07:00"),
        "Kannst du mich um sieben wecken?": alarm("07:00"),
        "Kannst du mich bitte morgen um sieben wecken?": alarm("07:00"),
        "Erinnere mich an den Müll um acht": remind("den müll", **at("20:00")),
        "Timer löschen": cancel("timer"),
        "Mach den Timer aus": cancel("timer"),
        "Lösch den Zehn-Minuten-Timer": cancel("timer", seconds=600),
        "Stell einen Nudel-Timer auf zehn Minuten": timer(600, "nudel"),
        "Lösch den Nudel-Timer": cancel("timer", text="nudel"),
        "Erinnere mich daran, morgen um neun Anna anzurufen": remind(
            "anna anzurufen", **at("09:00", 29)
        ),
        "Erinnere mich daran, Anna morgen um neun anzurufen": remind(
            "anna anzurufen", **at("09:00", 29)
        ),
        "Erinnere mich daran, in zehn Minuten den Ofen auszumachen": remind(
            "den ofen auszumachen", seconds=600
        ),
        "Erinnere mich um drei an die Sitzung morgen": UNCLEAR,
        "Erinnere mich Freitagabend um acht an zwei Karten": remind(
            "zwei karten", **at("20:00", 34)
        ),
        "Wann klingelt der Wecker?": LIST,
        "Wie viel Zeit habe ich noch?": LIST,
        "Wie lange noch?": LIST,
        "Also, wie spät ist es?": TIME,
        "Stell den Timer": UNCLEAR,
        "Weck mich um zwölf Uhr dreißig": alarm("12:30"),
        "Weck mich um 19 Uhr morgens": UNCLEAR,
        "Stell den Timer auf hundert Minuten": timer(6000),
        "Stell den Wecker auf 0:30 Uhr": alarm("00:30"),
        "Kannst du mich in zehn Minuten an die Pizza erinnern": remind("die pizza", seconds=600),
        "Erinnere mich am 24. Dezember um neun an Mama": UNCLEAR,
        "Erinnere mich an Mama am 24. Dezember um neun": UNCLEAR,
        "Was ist ein Wecker?": None,
        "Wecker auf sieben Uhr dreißig": alarm("07:30"),
        "Stell den Wecker für Montag auf Viertel nach sechs": alarm("06:15", 30),
        "Erinnere mich morgen Abend um zwölf an X": remind("x", **at("00:00", 30)),
        "Stell dir vor, der Wecker klingelt": None,
        "Weck mich montags um sieben": UNCLEAR,
        "Erinnere mich um fünf nach halb acht an den Zug": remind("den zug", **at("19:35")),
        "Erinnere mich an Oma in zwei Tagen um neun": UNCLEAR,
        "Erinnere mich morgen Mittag um eins an den Arzt": remind("den arzt", **at("13:00", 29)),
        "Erinnere mich um drei Uhr nachts an X": remind("x", **at("03:00", 29)),
        "Stell einen Timer auf eine Stunde dreißig": timer(5400),
        "Erinnere mich an Mama um fünf und an Papa um sechs": UNCLEAR,
        "Stell, äh, bitte den Wecker auf sieben": alarm("07:00"),
        "Morgen um acht weck mich bitte": alarm("08:00"),
        "Stell keinen Timer auf zehn Minuten": UNCLEAR,
        "Mach keine Witze": None,
        "Mein Wecker um sieben": None,
        "Weck mich um fünf, sieben": UNCLEAR,
        "Weck uns um sieben": alarm("07:00"),
        "Weckst du mich morgen um sieben?": alarm("07:00"),
        "Stell morgen den Wecker auf sieben": alarm("07:00"),
        "Was haben wir heute für ein Datum?": TIME,
        "Kannst du mich um fünf daran erinnern, Anna anzurufen?": remind(
            "anna anzurufen", **at("17:00")
        ),
        "Sag mir in zehn Minuten Bescheid": timer(600),
        "Kannst du mir sagen, wie spät es ist?": TIME,
        "Wieviel Uhr ist es denn?": TIME,
        "Ist mein Wecker gestellt?": LIST,
        "Kannst du den Timer um zehn Minuten verlängern": UNCLEAR,
        "Super, stell einen Timer auf zehn Minuten, vielen Dank!": timer(600),
        "Ich möchte wissen, wie spät es ist": TIME,
        "Wie lange noch auf dem Timer?": LIST,
        "Erinnere mich morgen daran, Oma um neun anzurufen": remind(
            "oma anzurufen", **at("09:00", 29)
        ),
        "Erinnere mich am Montag daran, um neun Oma anzurufen": remind(
            "oma anzurufen", **at("09:00", 30)
        ),
        "Nein, weck mich um acht.": alarm("08:00"),
        "Starte einen Countdown von zehn Minuten": timer(600),
        "Kein Timer auf zehn Minuten": None,
        "Stell zwei Timer auf zehn Minuten": UNCLEAR,
        "Lösch zwei Timer": UNCLEAR,
        "Stell einen Timer namens Nudeln auf zehn Minuten": timer(600, "nudeln"),
        "Lösch den Timer namens Nudeln": cancel("timer", text="nudeln"),
        "Erinnere mich daran, um acht Uhr zwei Tabletten zu nehmen": UNCLEAR,
        "Kannst du mich daran erinnern, dass ich um acht Uhr zwei Tabletten nehme": UNCLEAR,
        "Erinnere mich daran, um acht Uhr dreißig Anna anzurufen": remind(
            "anna anzurufen", **at("20:30")
        ),
        "Erinnere mich um acht Uhr zwei an den Zug": remind("den zug", **at("20:02")),
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
        "Rappelle-moi aujourd'hui à cinq heures d'appeler Paul": remind(
            "appeler paul", **at("17:00")
        ),
        "Rappelle-moi demain à trois heures d'appeler Paul": remind(
            "appeler paul", **at("15:00", 29)
        ),
        "Rappelle-moi d'appeler Paul lundi à neuf heures": remind(
            "appeler paul", **at("09:00", 30)
        ),
        "Rappelle-moi d'appeler Paul tous les jours à neuf heures": UNCLEAR,
        "Mets un réveil pour demain à sept heures": alarm("07:00"),
        "Réveille-moi cette nuit à minuit et demi": alarm("00:30"),
        "Réveille-moi à midi et demi": alarm("12:30"),
        "Mets un minuteur d'une minute": timer(60),
        "Mets un minuteur d'un quart d'heure": timer(900),
        "Lance un minuteur d'une heure": timer(3600),
        "Minuteur d'une demi-heure": timer(1800),
        "Éteins l'alarme": cancel("alarm"),
        "Peux-tu me réveiller à sept heures ?": alarm("07:00"),
        "Rappelle-moi la réunion demain à quinze heures trente": remind(
            "réunion", **at("15:30", 29)
        ),
        "Mets un minuteur pour les pâtes de dix minutes": timer(600, "pâtes"),
        "Mets un minuteur de dix minutes pour les pâtes": timer(600, "pâtes"),
        "Annule le minuteur des pâtes": cancel("timer", text="pâtes"),
        "Annule le minuteur de dix minutes": cancel("timer", seconds=600),
        "Combien de temps reste-t-il au minuteur des pâtes ?": LIST,
        "Euh, quelle heure est-il ?": TIME,
        "À quelle heure sonne mon réveil ?": LIST,
        "Rappelle-moi d'acheter deux pommes à cinq heures du soir": remind(
            "acheter deux pommes", **at("17:00")
        ),
        "Mets un minuteur de vingt et une minutes": timer(1260),
        "Mets le réveil à 7 h 30": alarm("07:30"),
        "Mets un minuteur de trois quarts d'heure": timer(2700),
        "Qu'est-ce qu'un minuteur ?": None,
        "Règle un minuteur": UNCLEAR,
        "Mets une alarme à une heure": alarm("01:00"),
        "Réveille-moi à sept heures demain": alarm("07:00"),
        "Arrête de parler du réveil": None,
        "Réveille-moi tous les jours à sept heures": UNCLEAR,
        "Rappelle-moi ce soir à huit heures de sortir la poubelle": remind(
            "sortir la poubelle", **at("20:00")
        ),
        "Rappelle-moi d'être à l'école à midi": remind("être à l'école", **at("12:00", 29)),
        "Mets un minuteur de 1 heure 30": timer(5400),
        "Rappelle-moi vendredi prochain à neuf heures d'appeler": UNCLEAR,
        "Rappelle-moi d'appeler Paul à cinq heures et Anne à six heures": UNCLEAR,
        "Rappelle-moi la réunion de demain à neuf heures": UNCLEAR,
        "Mets, euh, un minuteur de dix minutes": timer(600),
        "Dans dix minutes, rappelle-moi d'appeler Paul": remind("appeler paul", seconds=600),
        "Mets une alarme dans dix minutes": timer(600),
        "Tu peux me dire l'heure ?": TIME,
        "On est quel jour ?": TIME,
        "Tu me réveilles à sept heures ?": alarm("07:00"),
        "Quels sont mes rappels ?": LIST,
        "D'accord, je veux mettre un minuteur de dix minutes, merci beaucoup": timer(600),
        "Rappelle-moi demain d'appeler Paul à dix heures": remind(
            "appeler paul", **at("10:00", 29)
        ),
        "Mets un minuteur d'une heure et quart": timer(4500),
        "Non, annule le minuteur.": cancel("timer"),
        "Lance un chrono de deux minutes": timer(120),
        "Mets un minuteur de 1h30": timer(5400),
        "Mets un minuteur appelé pâtes de dix minutes": timer(600, "pâtes"),
        "Annule le minuteur nommé pâtes": cancel("timer", text="pâtes"),
        "Rappelle-moi dans 1h30 de sortir": remind("sortir", seconds=5400),
        "Rappelle-moi à 17h30 de sortir": remind("sortir", **at("17:30")),
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
        "Recuérdame hoy a las cinco llamar a mamá": remind("llamar a mamá", **at("17:00")),
        "Recuérdame mañana a las tres llamar a mamá": remind("llamar a mamá", **at("15:00", 29)),
        "Recuérdame a las tres y media llamar a mamá": remind("llamar a mamá", **at("15:30")),
        "Recuérdame a las ocho menos cuarto llamar a mamá": remind("llamar a mamá", **at("19:45")),
        "Recuérdame a las tres de la tarde llamar a mamá": remind("llamar a mamá", **at("15:00")),
        "Recuérdame llamar a mamá el lunes a las nueve": remind("llamar a mamá", **at("09:00", 30)),
        "Recuérdame llamar a mamá todos los días a las nueve": UNCLEAR,
        "Recuérdame llamar a mamá la semana que viene a las nueve": UNCLEAR,
        "Pon una alarma para mañana a las siete": alarm("07:00"),
        "Pon un temporizador de veintiún minutos": timer(1260),
        "Despiértame esta noche a las doce y media": alarm("00:30"),
        "Apaga la alarma": cancel("alarm"),
        "Temporizador de diez minutos": timer(600),
        "Pon un temporizador de diez minutos para la pasta": timer(600, "pasta"),
        "Pon un temporizador para la pasta de diez minutos": timer(600, "pasta"),
        "Cancela el temporizador de la pasta": cancel("timer", text="pasta"),
        "Cancela el temporizador de diez minutos": cancel("timer", seconds=600),
        "Cuánto queda en el temporizador de la pasta": LIST,
        "Necesito un temporizador de un cuarto de hora": timer(900),
        "¿A qué hora suena mi alarma?": LIST,
        "Bueno, ¿qué hora es?": TIME,
        "Ponme una alarma a las siete y cuarto de la mañana": alarm("07:15"),
        "Recuérdame comprar leche": UNCLEAR,
        "Pon una alarma a la una": alarm("01:00"),
        "Recuérdame mañana por la tarde a las cuatro que llame a Ana": remind(
            "llame a ana", **at("16:00", 29)
        ),
        "¿Cuánto falta para Navidad?": None,
        "Despiértame el viernes a las seis y media": alarm("06:30", 34),
        "¿Para qué sirve el temporizador?": None,
        "Recuérdame llamar el próximo viernes a las nueve": UNCLEAR,
        "Recuérdame a las dos dos cosas": remind("dos cosas", **at("14:00")),
        "Recuérdame a las tres de la madrugada salir": remind("salir", **at("03:00", 29)),
        "Pon una alarma a las doce de la noche": alarm("00:00"),
        "Pon una alarma a las siete treinta": alarm("07:30"),
        "¿Me puedes despertar a las siete?": alarm("07:00"),
        "Recuérdame llamar a Ana a las cinco y a Paula a las seis": UNCLEAR,
        "Pon, eh, por favor un temporizador de diez minutos": timer(600),
        "Mañana a las siete despiértame": alarm("07:00"),
        "Pon una alarma dentro de diez minutos": timer(600),
        "¿Puedes decirme qué hora es?": TIME,
        "¿Cuáles son mis alarmas?": LIST,
        "Recuérdame quién eres": None,
        "¿Me recuerdas a las cinco llamar a Ana?": remind("llamar a ana", **at("17:00")),
        "Me recuerdas a mi abuela": None,
        "Perfecto, pon un temporizador de diez minutos, muchas gracias": timer(600),
        "Quisiera saber qué hora es": TIME,
        "Recuérdame mañana llamar a Ana a las diez": remind("llamar a ana", **at("10:00", 29)),
        "No, cancela el temporizador.": cancel("timer"),
        "No pongas una alarma a las siete": None,
        "Recuérdame a las 17:30 comprar pan": remind("comprar pan", **at("17:30")),
        "Recuérdame mañana a las nueve quince llamar a Ana": remind(
            "llamar a ana", **at("09:15", 29)
        ),
        "Recuérdame a las 20:00 horas salir": remind("salir", **at("20:00")),
        "Pon una cuenta atrás de diez minutos": timer(600),
        "Pon un temporizador llamado pasta de diez minutos": timer(600, "pasta"),
        "Cancela el temporizador llamado pasta": cancel("timer", text="pasta"),
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
        "Ricordami oggi alle cinque di chiamare mamma": remind("chiamare mamma", **at("17:00")),
        "Ricordami domani alle tre di chiamare mamma": remind("chiamare mamma", **at("15:00", 29)),
        "Ricordami di chiamare mamma lunedì alle nove": remind("chiamare mamma", **at("09:00", 30)),
        "Ricordami di chiamare mamma ogni giorno alle nove": UNCLEAR,
        "Imposta una sveglia per domani alle sette": alarm("07:00"),
        "Svegliami stanotte a mezzanotte e mezza": alarm("00:30"),
        "Puoi svegliarmi alle sette?": alarm("07:00"),
        "Metti un timer di un'ora": timer(3600),
        "Metti un timer di ventun minuti": timer(1260),
        "Timer dieci minuti": timer(600),
        "Spegni il timer": cancel("timer"),
        "Imposta un timer per la pasta di dieci minuti": timer(600, "pasta"),
        "Annulla il timer della pasta": cancel("timer", text="pasta"),
        "Annulla il timer di dieci minuti": cancel("timer", seconds=600),
        "Quanto manca al timer della pasta?": LIST,
        "A che ora suona la sveglia?": LIST,
        "Allora, che ore sono?": TIME,
        "Svegliami all'una": alarm("01:00"),
        "Ricordami dell'appuntamento domani alle quindici": remind(
            "appuntamento", **at("15:00", 29)
        ),
        "Ricordami stasera alle otto di buttare la spazzatura": remind(
            "buttare la spazzatura", **at("20:00")
        ),
        "Imposta la sveglia alle 6:45": alarm("06:45"),
        "Quanto manca a Natale?": None,
        "Svegliami domattina alle sei e mezza": alarm("06:30"),
        "Ricordami venerdì prossimo alle nove di chiamare": UNCLEAR,
        "Mi puoi ricordare di uscire alle nove": remind("uscire", **at("21:00")),
        "Ricordami di chiamare Anna alle cinque e Paola alle sei": UNCLEAR,
        "Metti per favore un timer di dieci minuti": timer(600),
        "Alle cinque ricordami di chiamare Anna": remind("chiamare anna", **at("17:00")),
        "Ricordami alle nove un appuntamento": UNCLEAR,
        "Metti una sveglia tra dieci minuti": timer(600),
        "Scusa, mi puoi dire che ore sono?": TIME,
        "Che sveglie ho?": LIST,
        "Mi metti un timer di un'ora?": timer(3600),
        "Mi ricordi mia nonna": None,
        "Va bene, imposta un timer di dieci minuti, grazie mille": timer(600),
        "Ricordami domani di chiamare Anna alle dieci": remind("chiamare anna", **at("10:00", 29)),
        "Imposta un timer di un'ora e un quarto": timer(4500),
        "No, annulla il timer.": cancel("timer"),
        "Imposta un timer chiamato pasta di dieci minuti": timer(600, "pasta"),
        "Annulla il timer chiamato pasta": cancel("timer", text="pasta"),
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
        "Herinner me vandaag om vijf uur aan mama": remind("mama", **at("17:00")),
        "Herinner me morgen om drie uur aan mama": remind("mama", **at("15:00", 29)),
        "Herinner me vrijdag om negen uur aan mama": remind("mama", **at("09:00", 34)),
        "Herinner me aan mama elke dag om negen uur": UNCLEAR,
        "Zet een wekker voor morgen om zeven uur": alarm("07:00"),
        "Zet de wekker morgen op zeven uur": alarm("07:00"),
        "Maak me vannacht om half een wakker": alarm("00:30"),
        "Maak me morgen wakker om zeven uur": alarm("07:00"),
        "Kun je me om zeven uur wakker maken?": alarm("07:00"),
        "Kun je de wekker op zeven uur zetten?": alarm("07:00"),
        "Zet de timer uit": cancel("timer"),
        "Timer annuleren": cancel("timer"),
        "Zet een pastatimer op tien minuten": timer(600, "pastatimer"),
        "Zet een timer voor de pasta op tien minuten": timer(600, "pasta"),
        "Stop de timer voor de pasta": cancel("timer", text="pasta"),
        "Stop de timer van tien minuten": cancel("timer", seconds=600),
        "Herinner me eraan dat ik om negen uur Anna bel": remind("ik anna bel", **at("21:00")),
        "Herinner me eraan Anna om negen uur te bellen": remind("anna te bellen", **at("21:00")),
        "Dus hoe laat is het?": TIME,
        "Wanneer gaat de wekker?": LIST,
        "Wek me om vijf over half acht": alarm("07:35"),
        "Wek me vrijdagochtend om zes uur": alarm("06:00", 34),
        "Timer tien minuten": timer(600),
        "Wek me om twaalf uur 's middags": alarm("12:00"),
        "Stel de wekker in op zeven uur": alarm("07:00"),
        "Herinner me volgende vrijdag om negen uur aan oma": UNCLEAR,
        "Herinner me eraan om oma te bellen om negen uur": remind("oma te bellen", **at("21:00")),
        "Zet een timer van twee en een half uur": timer(9000),
        "Herinner me aan Anna om vijf uur en aan Tom om zes uur": UNCLEAR,
        "Herinner me eraan dat ik om negen uur een afspraak heb": remind(
            "ik een afspraak heb", **at("21:00")
        ),
        "Zet, eh, alsjeblieft een timer op tien minuten": timer(600),
        "Over tien minuten herinner me aan de pizza": remind("de pizza", seconds=600),
        "Zet geen pasta timer op tien minuten": UNCLEAR,
        "Zet een wekker over tien minuten": timer(600),
        "Kun je me eraan herinneren om vijf uur Anna te bellen": remind(
            "anna te bellen", **at("17:00")
        ),
        "Weet je hoe laat het is?": TIME,
        "Staat mijn wekker aan?": LIST,
        "Zet morgen de wekker om zeven uur": alarm("07:00"),
        "Wekker uit": cancel("alarm"),
        "Prima, zet een timer op tien minuten, dank je wel": timer(600),
        "Herinner me morgen eraan om tien uur oma te bellen": remind(
            "oma te bellen", **at("10:00", 29)
        ),
        "Herinner me morgen aan oma om tien uur": remind("oma", **at("10:00", 29)),
        "Nee, zet de wekker op acht uur": alarm("08:00"),
        "Zet een timer genaamd pasta op tien minuten": timer(600, "pasta"),
        "Stop de timer genaamd pasta": cancel("timer", text="pasta"),
        "Herinner me eraan om acht uur twee pillen te nemen": UNCLEAR,
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
        "Lembra-me hoje às cinco de ligar à mãe": remind("ligar à mãe", **at("17:00")),
        "Lembra-me amanhã às três de ligar à mãe": remind("ligar à mãe", **at("15:00", 29)),
        "Lembra-me de ligar à mãe na segunda às nove": remind("ligar à mãe", **at("09:00", 30)),
        "Lembra-me de ligar à mãe na sexta-feira às nove": remind("ligar à mãe", **at("09:00", 34)),
        "Lembra-me de ligar à mãe todos os dias às nove": UNCLEAR,
        "Põe um temporizador chamado massa de dez minutos": timer(600, "massa"),
        "Cancela o temporizador chamado massa": cancel("timer", text="massa"),
        "Põe um alarme para amanhã às sete": alarm("07:00"),
        "Acorda-me esta noite à meia-noite e meia": alarm("00:30"),
        "Podes acordar-me às sete?": alarm("07:00"),
        "Põe um temporizador de vinte e uma horas": timer(75600),
        "Desliga o temporizador": cancel("timer"),
        "Põe um temporizador para a massa de dez minutos": timer(600, "massa"),
        "Cancela o temporizador da massa": cancel("timer", text="massa"),
        "Cancela o temporizador de dez minutos": cancel("timer", seconds=600),
        "Quanto falta no temporizador da massa?": LIST,
        "A que horas toca o meu alarme?": LIST,
        "Então, que horas são?": TIME,
        "Acorda-me às dez para as oito": alarm("07:50"),
        "Lembra-me às três da tarde de ligar à mãe": remind("ligar à mãe", **at("15:00")),
        "Põe o despertador para as sete e meia": alarm("07:30"),
        "Temporizador dez minutos": timer(600),
        "Me acorde amanhã às seis e quinze": alarm("06:15"),
        "Lembra-me da reunião amanhã às quatro": remind("reunião", **at("16:00", 29)),
        "Para que serve o alarme?": None,
        "Lembra-me de ligar na próxima sexta às nove": UNCLEAR,
        "Lembra-me hoje à noite às nove de sair": remind("sair", **at("21:00")),
        "Me lembre de ligar para o João às 15h": remind("ligar para o joão", **at("15:00")),
        "Lembra-me de ligar à Ana às cinco e ao Rui às seis": UNCLEAR,
        "Põe, hum, um temporizador de dez minutos": timer(600),
        "Amanhã às sete menos dez acorda-me": alarm("06:50"),
        "Põe um alarme daqui a dez minutos": timer(600),
        "Temporizador de hora e meia": timer(5400),
        "Sabes que horas são?": TIME,
        "Quais são os meus alarmes?": LIST,
        "Ótimo, eu quero pôr um temporizador de dez minutos, muito obrigado": timer(600),
        "Lembra-me amanhã de ligar à Ana às dez": remind("ligar à ana", **at("10:00", 29)),
        "Põe um temporizador de uma hora e um quarto": timer(4500),
        "Não, cancela o temporizador.": cancel("timer"),
        "Inicia uma contagem regressiva de dez minutos": timer(600),
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
    ("said", "now", "due"),
    [
        ("Set an alarm for seven today", "28 04:00", "28 07:00"),
        ("Set an alarm for seven today", "28 13:00", "28 19:00"),
        ("Set an alarm for seven today", "28 20:00", "28 07:00"),  # which is past
        ("Wake me at seven", "28 04:00", "28 07:00"),
        ("Set an alarm for twelve", "28 13:00", "29 00:00"),
        ("Set an alarm for twelve", "28 08:00", "28 12:00"),
        ("Set an alarm for half past twelve tonight", "28 00:10", "28 00:30"),
        ("Set an alarm for two tonight", "28 22:00", "29 02:00"),
        ("Set an alarm for two at night", "28 01:00", "28 02:00"),
        ("Set an alarm for quarter to twelve pm", "28 13:00", "28 23:45"),
        ("Set an alarm for Saturday at nine", "28 08:00", "28 09:00"),
        ("Set an alarm for Saturday at nine", "21 10:00", "28 09:00"),
        ("Set an alarm for midnight", "28 13:00", "29 00:00"),
        ("Set an alarm for tomorrow at noon", "28 13:00", "29 12:00"),
    ],
)
def test_which_half_of_the_day(said: str, now: str, due: str) -> None:
    call = PHRASES["en"].call(said, datetime.fromisoformat(f"2026-11-{now}"))
    day, time = due.split()
    assert call == ("set_alarm", json.dumps({"time": time, "date": f"2026-11-{day}"}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("7:30 p.m.", "7 30 pm"),
        ("7h30", "7 h 30"),
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
    for phrases in PHRASES.values():
        assert phrases.call("remind me to " + "look at " * 5000, NOW) is None
        for text in (
            "remind me to " + "look at " * 30 + "at",
            "lembra-me de " + "às 7 e meia " * 20,
        ):
            assert phrases.call(text, NOW) in (None, ("unclear", "{}"))
