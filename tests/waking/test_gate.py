"""The gate, and what is a call: lists in, lists out."""

from __future__ import annotations

import pytest

from pipeline.audio import samples_of
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import Memory
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart
from pipeline.settings import Lexicon
from pipeline.turn_record import Aside
from pipeline.waking import tuning
from pipeline.waking.calls import Calls, too_short
from pipeline.waking.gate import NOT_CALLED, WakeGate
from reachy_voice.testing import ScriptedLlm
from reachy_voice.testing.words import LEXICONS

pytestmark = pytest.mark.quick

S = samples_of(1000)
START, PAUSE, END = TurnStart(S), TurnPause(2 * S, 2 * S + 512), TurnEnd(2 * S)
FIRST_END = S + tuning.FIRST_WORDS_SAMPLES
LATER = TurnStart(10 * S)


def gate(*signals: Signal, reads: bool = True) -> WakeGate:
    made = WakeGate(Memory(Chat(), ScriptedLlm().open()), 8.0, reads)
    made.hear(signals)
    return made


@pytest.mark.parametrize(
    ("signals", "heard_end", "read_to"),
    [
        ([START], FIRST_END - 1, None),
        ([START], FIRST_END, FIRST_END),
        ([START, PAUSE], 2 * S + 512, 2 * S + 512),
        ([START, PAUSE, TurnResume(3 * S)], 3 * S - 1, None),
        ([START, TurnPause(9 * S, 9 * S)], 9 * S, FIRST_END),  # late: only the first two seconds
        ([START, PAUSE, END, LATER], 10 * S, 2 * S + 512),
    ],
)
def test_when_first_words_are_read(
    signals: list[Signal], heard_end: int, read_to: int | None
) -> None:
    utterance = gate(*signals).unread(heard_end)
    assert (utterance.read_to if utterance else None) == read_to


def test_an_utterance_that_pauses_early_is_read_again() -> None:
    made = gate(START, PAUSE)
    first = made.unread(3 * S)
    assert first is not None
    assert made.unread(3 * S) is None
    made.dismiss(first)
    made.hear([TurnResume(2 * S + 2048)])
    assert made.unread(FIRST_END) is first
    made.dismiss(first)
    made.hear([TurnPause(5 * S, 5 * S)])
    assert made.unread(9 * S) is None
    assert not made.awaits_call


def test_an_utterance_that_is_over_waits_for_its_verdict() -> None:
    made = gate(START, PAUSE)
    read = made.unread(3 * S)
    made.hear([END, LATER])
    assert read is not None
    assert made.call(read).signals == [START, PAUSE, END, LATER]
    made.dismiss(read)
    assert made.call(read) == ((), 0) or made.call(read).signals == []


@pytest.mark.parametrize(
    ("signals", "end", "start", "floor"),
    [
        ([START], 2 * S, S, 0),
        ([START], 20 * S, *[20 * S - tuning.LONGEST_CALL_SAMPLES] * 2),
        ([START, PAUSE, END, LATER], 11 * S, 10 * S, 2 * S),
    ],
)
def test_a_call_that_a_model_hears(signals: list[Signal], end: int, start: int, floor: int) -> None:
    call = gate(*signals, reads=False).call_at(end)
    assert (call.signals, call.floor) == ([TurnStart(start)], floor)


BACKGROUND = TurnStart(0)
"""Speech that turns out to be background when a nearer speaker begins."""


@pytest.mark.parametrize(
    "background", [[], [BACKGROUND], [BACKGROUND, TurnPause(S // 2, S // 2 + 512)]]
)
def test_a_call_after_the_speech_is_over(background: list[Signal]) -> None:
    assert gate(*background, START, PAUSE, END, reads=False).call_at(9 * S) == NOT_CALLED
    made = gate(*background, START, PAUSE, END)
    while read := made.unread(9 * S):
        made.dismiss(read)
    assert made.call_at(9 * S) == NOT_CALLED


def test_a_call_in_the_background_keeps_what_a_nearer_speaker_says() -> None:
    made = gate(BACKGROUND, START)
    read = made.unread(2 * S)
    assert read is not None
    assert made.call(read).signals == [BACKGROUND, TurnPause(S, S), TurnEnd(S), START]


def test_the_window() -> None:
    made = gate()
    made.renew(100.0)
    assert made.asleep
    assert made.until < 0
    made.wake(1.0)
    assert made.until == 9.0
    made.renew(5.0, patience_s=30.0)
    assert made.until == 35.0
    made.expire(6.0)
    made.renew(7.0)
    assert made.until == 6.0
    made.wake(8.0)
    assert made.until == 16.0
    made.sleep()
    assert made.asleep
    assert made.until < 0


REACHY = Calls(["Hey Reachy", "Robot, wach auf", "Привет Ричи", "小明"], LEXICONS)
NABU = Calls(["Okay Nabu"], LEXICONS)


@pytest.mark.parametrize(
    ("text", "called", "aside"),
    [
        ("Hey Reachy.", True, "call"),
        ("Hey Reachy! Hey, Richie?", True, "call"),
        ("Hey Reachy, what is hey Reachy?", True, None),
        ("Hey, Richie, what time is it?", True, None),
        ("Hey reach he, stop", True, None),
        ("Um, so, hey Reachy!", True, "call"),
        ("I told you already, hey Reachy", False, None),
        ("Robot wach auf und tanze", True, None),
        ("Привет, Ричи! Который час?", True, None),
        ("小明，现在几点了？", True, None),
        ("Go to sleep, please.", False, "farewell"),
        ("Hey Reachy, gute Nacht!", True, "farewell"),
        ("When do cats go to sleep?", False, None),
        ("Hey Peter, what time is it?", False, None),
        ("", False, None),
        ("Hey.", False, None),
    ],
)
def test_calls_and_farewells(text: str, called: bool, aside: Aside | None) -> None:
    assert (REACHY.begins(text), REACHY.aside(text)) == (called, aside)


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("Here you see, what time is it?", "Hey Reachy, what time is it?"),
        ("Hammerichi. Turn to the left.", "Hey Reachy. Turn to the left."),
        ("A. Ricky turned to the left.", "Hey Reachy turned to the left."),
        ("Thank you.", "Hey Reachy."),
        ("Hey Richie, stop.", "Hey Richie, stop."),
        ("What time is it, hey Richie?", "What time is it, hey Richie?"),
        ("", ""),
    ],
)
def test_a_misheard_call_is_put_right(text: str, corrected: str) -> None:
    assert REACHY.corrected(text) == corrected


@pytest.mark.parametrize(
    "text",
    [
        *("Good night, Reachy.", "Goodnight, Nabu.", "Okay Nabu, good night!", "Yes, good night."),
        *("Thank you, good night.", "That's all, thank you very much.", "Nabu, go to sleep now."),
        *("No, that's all.", "Great, thanks, that's all for today.", "Good night. Sleep well!"),
        *("Gute Nacht, Reachy.", "Also gut, danke, das war's dann.", "Nein, das ist alles, danke."),
        *("Gute Nacht, schlaf gut und bis morgen!", "Welterusten, Nabu.", "Nee, dat was het hoor."),
        *("Buenas noches, Reachy.", "Bueno, eso es todo por hoy, gracias.", "Olvídalo."),
        *("Bonne nuit, Reachy.", "Non, c'est tout, merci beaucoup.", "Allez, bonne nuit."),
        *("Bene, buonanotte, Reachy.", "No, grazie, è tutto per oggi.", "Goedenacht en tot morgen"),
        *("Okay, nevermind.", "You can stop listening now.", "That's it for today, thanks."),
        *("Das wäre alles, danke.", "Nada más, gracias.", "Non, oublie ça.", "Esquece."),
        *("Danke, das wär's.", "Gute Nacht, schlaf schön!", "Ga maar weer slapen, hoor."),
        *("Puoi tornare a dormire.", "Era só isso, obrigado.", "That will do for now, thanks."),
        *("C'est bon, merci, bonne nuit.", "Ya está, gracias, buenas noches."),
        *("Boa noite, Reachy.", "Não, obrigado, isso é tudo.", "Então é só isso, por favor."),
        *(
            "I'm done, go to sleep.",
            "Thanks, that's all I needed.",
            "You can go back to sleep now.",
        ),
        *("Gute Nacht zusammen!", "Du kannst jetzt wieder schlafen.", "Bonne nuit à tous."),
        *("Tu peux te rendormir.", "Buenas noches a todos.", "No, nada más, gracias."),
        *("Buonanotte a tutti.", "Welterusten allemaal.", "Boa noite a todos."),
    ],
)
def test_what_stands_around_a_farewell(text: str) -> None:
    assert NABU.aside(text) == "farewell"


@pytest.mark.parametrize(
    "text",
    [
        *("That's all right.", "No, that's all wrong!", "That's all okay.", "Why never mind?"),
        *("That's it!", "We're done.", "Don't forget it.", "Forget it, tell me a joke."),
        *("Never go to sleep.", "Don't stop listening, please.", "When is good night?"),
        *("Das ist alles falsch.", "Das ist alles richtig.", "Das ist alles gut."),
        *("C'est bon.", "Ya está.", "That will do nicely with rice."),
        *("C'est tout bon.", "C'est tout faux.", "Ne va jamais dormir.", "Eso es todo mentira."),
        *("No puedes dormir.", "No dejes de escuchar.", "È tutto giusto?", "È tutto ok?"),
        *("Non è tutto.", "Dat is alles goed.", "Dat was alles fout.", "Hij zegt welterusten"),
        *("É tudo certo.", "Não é tudo.", "Não durma agora.", "Não pare de ouvir."),
        *("That's all?", "C'est tout ?", "¿Eso es todo?", "È tutto?", "É tudo?"),
        *("Quando vai dormir?", "Para de falar.", "Okay, Reachy.", "Thank you.", ""),
    ],
)
def test_what_is_no_farewell(text: str) -> None:
    assert NABU.aside(text) is None


@pytest.mark.parametrize("lexicon", LEXICONS, ids=[each.language for each in LEXICONS])
def test_each_farewell_may_name_the_robot(lexicon: Lexicon) -> None:
    for calls, name in ((REACHY, "Reachy"), (NABU, "Reachy"), (NABU, "Nabu")):
        assert {calls.aside(f"{each}, {name}") for each in lexicon.farewells} == {"farewell"}


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Hey, Richie, set it to 1.5 hours.", ", set it to 1.5 hours."),
        ("Um, hey Reachy! It's 7:30", "! It's 7:30"),
        ("Hey Reachy, hey Richie, stop", ", stop"),
        ("Hey Reachy.", "Hey Reachy."),
        ("Hey Peter", "Hey Peter"),
    ],
)
def test_words_without_the_call(text: str, rest: str) -> None:
    assert REACHY.without(text) == rest


@pytest.mark.parametrize(
    ("call", "short"), [("Hi", True), ("Bob", True), ("Max", False), ("!", True), ("小明", False)]
)
def test_calls_that_are_too_short(call: str, short: bool) -> None:
    assert too_short(call) is short
