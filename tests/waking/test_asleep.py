"""Sessions that sleep until they are called, in virtual time: what is heard, told, kept and
answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline import commands, events
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import AppendAudio, SessionConfig, TurnDetection
from pipeline.engines.contract import Embedding, ToolCall
from pipeline.errors import EngineError
from pipeline.messages import Tool
from pipeline.settings import Echo, SessionSettings, Wake
from pipeline.work import Work
from reachy_voice.testing import (
    ScriptedLlm,
    ScriptedSpeaker,
    ScriptedStt,
    people,
    scene,
)
from reachy_voice.testing.scene import VOICE, Scene
from reachy_voice.testing.tape import Tape
from reachy_voice.testing.virtual_time import run_virtual
from tests.support.scripted_tool_servers import ScriptedToolServer, ScriptedToolServers

pytestmark = pytest.mark.quick

WORD = SessionSettings(wake=Wake(mode="word"), echo=Echo(cancel="never"))
TOUCH = SessionSettings(wake=Wake(mode="touch"), echo=Echo(cancel="never"))
ANSWER_S = 1.2
"""Of "It is noon." by ``ScriptedTts``, with what it takes to begin."""

Speech = tuple[int, str, int]
"""At which ms, what, for how long."""
Deed = Callable[[Scene], Awaitable[None] | None]


@dataclass
class Told:
    """What came of a tape."""

    scene: Scene
    heard: list[list[str]] = field(default_factory=list)

    @property
    def changes(self) -> list[tuple[str, float]]:
        """Why it fell asleep or woke, and when."""
        times = [
            (at, e) for at, e in self.scene.log if isinstance(e, events.FellAsleep | events.Woke)
        ]
        return [(event.why, round(at - self.scene.began, 1)) for at, event in times]

    @property
    def reasons(self) -> list[str]:
        return [why for why, _ in self.changes]

    @property
    def asides(self) -> list[str | None]:
        return [event.exclusion for event in self.scene.events(events.SpeechRejected)]


def listen(
    *speeches: Speech,
    until_s: float = 20.0,
    deeds: Sequence[tuple[int, Deed]] = (),
    settings: SessionSettings = WORD,
    config: SessionConfig = VOICE,
    stt: ScriptedStt | None = None,
    ears: type[ScriptedStt] = ScriptedStt,
    llm: ScriptedLlm | None = None,
    **options: object,
) -> Told:
    """Play the tape; ``deeds`` happen at their ms."""
    tape = Tape()
    for speech in speeches:
        tape.say(*speech)
    stt = stt or ears()
    stt.tape = tape
    llm = llm or ScriptedLlm(("It ", "is ", "noon."))

    async def main() -> Told:
        async with scene(settings=settings, config=config, stt=stt, llm=llm, **options) as played:
            for at_ms, deed in deeds:
                await played.hear(at_ms / 1000 - played.played / LISTEN_RATE)
                await played.act(deed)
            await played.hear(until_s - played.played / LISTEN_RATE)
        return Told(played, [tape.words_in(pcm) for pcm in stt.finished])

    told: Told = run_virtual(main())
    return told


def do(*asked: commands.Command) -> Deed:
    return lambda played: played.do(*asked)


# --- asleep ---------------------------------------------------------------------------------------


def test_asleep_nothing_is_published_and_the_first_words_are_dropped() -> None:
    told = listen((1000, "the train was late because of snow today", 5000), (9000, "yes", 400))
    published = {type(event) for _, event in told.scene.log}
    assert published == {events.FellAsleep}
    assert told.scene.chat == []
    first = told.heard[0]
    assert len(told.heard) == 2  # one look for each utterance
    assert first[:3] == ["the", "train", "was"]  # its first two seconds
    assert len(first) <= 4


def test_before_a_touch_the_recogniser_hears_nothing() -> None:
    told = listen((1000, "what time is it", 1000), settings=TOUCH)
    assert {type(event) for _, event in told.scene.log} == {events.FellAsleep}
    assert told.heard == []


def test_asleep_no_voice_is_compared_and_no_model_reads() -> None:
    speaker, llm = ScriptedSpeaker(), ScriptedLlm()
    home = people(Tom=3_000)
    talk, asked = (1000, "the train was late today", 2000), (6000, "hey Reachy what now", 1600)
    told = listen(talk, speaker=speaker, people=home, llm=llm)
    assert (speaker.heard, llm.prompts) == ([], [])
    told = listen(talk, asked, speaker=speaker, people=home, llm=llm)
    assert told.scene.transcripts == [asked[1]]
    assert (bool(speaker.heard), len(llm.prompts)) == (True, 1)


@pytest.mark.parametrize(
    ("speeches", "transcripts"),
    [
        ([(2000, "hey Reachy what time is it", 1600)], ["hey Reachy what time is it"]),
        ([(2000, "uh hey Richie what time is it", 1800)], ["uh hey Richie what time is it"]),
        # A long question: the call is known before it is over.
        (
            [(2000, "hey reach he tell me all about the history of Rome please", 5000)],
            ["hey reach he tell me all about the history of Rome please"],
        ),
        # Other speech, a short silence, and the call.
        (
            [(1000, "pass me the salt", 1200), (2700, "hey Reachy what time is it", 1600)],
            ["hey Reachy what time is it"],
        ),
        # The call, a pause for breath, and the question.
        (
            [(2000, "hey Reachy", 600), (3000, "what time is it", 900)],
            ["what time is it"],
        ),
        # It has just been sent to sleep.
        (
            [
                (1000, "hey Reachy", 600),
                (4000, "go to sleep", 900),
                (5300, "hey Reachy what time is it", 1500),
            ],
            ["hey Reachy what time is it"],
        ),
        # The call, and the question after a while.
        ([(2000, "hey Reachy", 600), (7000, "what time is it", 900)], ["what time is it"]),
    ],
    ids=["one breath", "misheard", "long", "after others", "pause", "sent to sleep", "later"],
)
def test_after_the_call_no_word_is_lost(speeches: list[Speech], transcripts: list[str]) -> None:
    told = listen(*speeches, until_s=9.5)
    assert told.scene.transcripts == transcripts
    assert told.scene.statuses == ["completed"]
    assert told.reasons[:2] == ["start", "word"]


class PhraseEars(ScriptedStt):
    """Knows the call by its sound, however it spells it."""

    calls = 0

    async def begins_with(self, pcm: Pcm, phrase: str, work: Work) -> bool | None:
        self.calls += 1
        if self.calls == 1:  # ahead of the first words, to load its network
            assert not pcm.any()
            raise EngineError("it is not ready")
        assert self.tape
        assert phrase == "Hey Reachy"
        words = self.tape.words_in(pcm)
        return words[:2] == ["here", "you"] or words[:3] == ["uh", "hey", "Reachy"]


@pytest.mark.parametrize(
    ("speeches", "transcripts"),
    [
        ([(2000, "here you see what time is it", 1600)], ["Hey Reachy what time is it"]),
        ([(2000, "here you see", 600), (7000, "here you are", 900)], ["here you are"]),
        ([(2000, "here they are again", 1600)], []),
        ([(2000, "uh hey Reachy what now", 1600)], ["uh hey Reachy what now"]),
        ([(2000, "with a Richie what now", 1600)], []),
    ],
    ids=["one breath", "later", "other words", "behind a word", "alike behind words"],
)
def test_the_sound_decides_unless_the_first_words_are_the_call(
    speeches: list[Speech], transcripts: list[str]
) -> None:
    told = listen(*speeches, until_s=9.5, ears=PhraseEars)
    assert told.scene.transcripts == transcripts
    assert told.reasons[:2] == (["start", "word"] if transcripts else ["start"])


@pytest.mark.parametrize("command", [commands.ClearAudio(), commands.CommitAudio()])
def test_a_misheard_call_that_the_client_ends_changes_no_later_words(
    command: commands.Command,
) -> None:
    told = listen(
        (2000, "here you see what time is it oh well", 3200),
        (9000, "the blue one please", 1200),
        deeds=[(5200, do(command))],
        ears=PhraseEars,
        until_s=13,
    )
    assert told.reasons == ["start", "word"]
    assert told.scene.transcripts[-1] == "the blue one please"


def test_the_call_alone_is_neither_answered_nor_kept() -> None:
    told = listen((2000, "hey Reachy", 600))
    assert told.asides == ["call"]
    assert told.scene.events(events.ReplyStarted) == []
    assert told.scene.chat == []
    assert told.reasons == ["start", "word", "silence"]


@pytest.mark.parametrize(
    "text", ["hey Peter what time is it", "reach for the stars", "the weather is fine", "hey"]
)
def test_other_words_do_not_wake_it(text: str) -> None:
    assert listen((2000, text, 1500)).reasons == ["start"]


def test_several_calls_in_several_languages() -> None:
    wake = Wake(mode="word", words=("Hey Reachy", "Robot, wach auf", "Ok Computer"))
    settings = replace(WORD, wake=wake)
    for text in ("Robot wach auf wie spät ist es", "okay komputer wie spät ist es"):
        told = listen((1000, text, 2000), settings=settings, until_s=5)
        assert told.scene.transcripts == [text]


# --- how long it stays awake ----------------------------------------------------------------------


@pytest.mark.parametrize(("gap_ms", "answered"), [(7600, True), (8600, False)])
def test_the_window_begins_when_the_answer_was_heard(gap_ms: int, answered: bool) -> None:
    asked = (1000, "hey Reachy what time is it", 1600)
    first = listen(asked, until_s=6)
    heard_at = max(at for at, _ in first.scene.log if at) - first.scene.began
    again = (round((heard_at + 0.2) * 1000) + gap_ms, "and in Rome", 900)
    told = listen(asked, again, until_s=26)
    assert ("and in Rome" in told.scene.transcripts) is answered
    assert told.reasons == ["start", "word", "silence"]


def test_each_turn_renews_the_window() -> None:
    speeches = [(2000 + 8000 * n, "what time is it", 1000) for n in range(1, 5)]
    told = listen((2000, "hey Reachy what time is it", 1500), *speeches, until_s=50)
    assert len(told.scene.transcripts) == 5
    assert told.reasons == ["start", "word", "silence"]


def test_noise_renews_nothing() -> None:
    noises = [(8000 + 2000 * n, "~", 700) for n in range(8)]
    told = listen((2000, "hey Reachy what time is it", 1500), *noises, until_s=25)
    (_, _), (_, _), (why, at) = told.changes
    assert why == "silence"
    assert at < 16


def test_a_turn_that_begins_in_the_window_is_heard_to_its_end() -> None:
    long = (9000, "tell me all that you know of the history of the city of Rome", 9000)
    told = listen((2000, "hey Reachy", 700), long, until_s=30)
    assert told.scene.transcripts == [long[1]]


def test_a_client_that_sends_nothing_falls_asleep_by_the_clock() -> None:
    told = listen((1000, "hey Reachy", 700), until_s=4, deeds=[])
    assert told.reasons == ["start", "word"]
    silent = (4000, lambda played: played.sleep_until(15.0))
    told = listen((1000, "hey Reachy", 700), until_s=4, deeds=[silent])
    assert told.reasons == ["start", "word", "silence"]


def test_a_silence_is_broken_once_before_it_falls_asleep() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))
    asked, again = (1000, "hey Reachy what time is it", 1600), (12_000, "and in Rome", 900)
    told = listen(asked, config=config, until_s=40)
    assert len(told.scene.events(events.IdleTimeout)) == 1
    assert told.reasons == ["start", "word", "silence"]
    told = listen(asked, again, config=config, until_s=40)
    assert len(told.scene.events(events.IdleTimeout)) == 2
    assert told.reasons == ["start", "word", "silence"]


def test_the_window_waits_for_the_result_of_a_clients_function() -> None:
    call = ToolCall("weather", "{}")
    llm = ScriptedLlm(answers=[("Wait. ", call), ("Rain.",)])
    config = replace(VOICE, tools=(Tool("weather", "", {}),))
    result = do(commands.CreateResponse())
    told = listen(
        (1000, "hey Reachy how is the weather", 1700),
        (22_000, "and tomorrow", 900),
        deeds=[(18_000, result)],
        llm=llm,
        config=config,
        until_s=26,
    )
    assert told.scene.transcripts == ["hey Reachy how is the weather", "and tomorrow"]


@pytest.mark.parametrize(
    "words",
    [
        *("go to sleep", "hey Reachy go to sleep", "geh schlafen", "vete a dormir", "va dormir"),
        *("vai a dormire", "ga slapen", "vai dormir", "gute nacht"),
    ],
)
def test_a_farewell_ends_it(words: str) -> None:
    speeches = [(2000, "hey Reachy", 600), (4500, words, 1200), (9000, "what time is it", 1000)]
    told = listen(*speeches)
    assert told.asides == ["call", "farewell"]
    assert told.reasons == ["start", "word", "farewell"]
    assert told.scene.events(events.ReplyStarted) == []


@pytest.mark.parametrize("words", ["okay Reachy go to sleep please", "stop go to sleep now"])
def test_a_farewell_stops_the_answer_that_it_cuts(words: str) -> None:
    llm = ScriptedLlm(tuple(f"word{n} " for n in range(60)))
    told = listen((1000, "hey Reachy what time is it", 1600), (6000, words, 1500), llm=llm)
    assert told.scene.statuses == ["cancelled"]
    assert told.reasons == ["start", "word", "farewell"]


@pytest.mark.parametrize(
    ("later", "answered"),
    [([], False), ([(7500, "no wait tell me more", 1200)], True)],
    ids=["alone", "taken back"],
)
def test_after_a_farewell_what_is_under_way_keeps_it_awake_no_longer(
    later: list[Speech], answered: bool
) -> None:
    llm = ScriptedLlm(answers=[(ToolCall("forecast", "{}"),)], deltas=("It rains.",))
    told = listen(
        (1000, "hey Reachy how is the weather", 1700),
        (5500, "go to sleep", 900),
        *later,
        (16_500, "did you see my keys", 1200),
        llm=llm,
        tool_servers=ScriptedToolServers((ScriptedToolServer(takes_s=9.0),)),
    )
    assert told.asides == ["farewell"]
    assert "It rains." in told.scene.words
    assert ("did you see my keys" in told.scene.transcripts) is answered


def test_going_to_sleep_in_a_sentence_is_no_farewell() -> None:
    told = listen((2000, "hey Reachy when do cats go to sleep", 2000))
    assert told.scene.statuses == ["completed"]


# --- whose words they are -------------------------------------------------------------------------


def face(*places: tuple[int, int, float]) -> list[tuple[int, Deed]]:
    """The array hears speech from there, in each stretch of time in ms."""
    reports = [
        (at_ms, commands.NoteDirection(commands.Direction(deg, speech=True)))
        for begin_ms, end_ms, deg in places
        for at_ms in range(begin_ms, end_ms, 100)
    ]
    return [(at_ms, do(report)) for at_ms, report in reports]


@pytest.mark.parametrize(
    ("words", "deg", "answered"),
    [
        ("and in Rome", 100.0, True),  # the caller has moved a little
        ("did you see my keys", 20.0, False),  # somebody else, to somebody else
        ("good night", 20.0, False),
        ("hey Reachy and in Rome", 20.0, True),  # somebody else has called
        ("did you see my keys", None, True),  # no array
    ],
)
def test_others_must_call_before_they_are_answered(
    words: str, deg: float | None, answered: bool
) -> None:
    places = [(1000, 2700, 80.0), *([] if deg is None else [(7000, 8300, deg)])]
    speeches = [(1000, "hey Reachy what time is it", 1600), (7000, words, 1200)]
    told = listen(*speeches, deeds=face(*places), until_s=12)
    assert (words in told.scene.transcripts) is answered
    assert told.asides == ([] if answered else ["elsewhere"])


def test_who_has_only_called_is_the_caller() -> None:
    deeds = face((1000, 1700, 80.0), (4500, 5800, 20.0), (7500, 8800, 80.0))
    told = listen(
        (1000, "hey Reachy", 600),
        (4500, "did you see my keys", 1200),
        (7500, "what time is it", 1200),
        deeds=deeds,
        until_s=12,
    )
    assert told.asides == ["call", "elsewhere"]
    assert "what time is it" in told.scene.transcripts


TOM, ANNA, STRANGER = 3_000, 6_000, 9_000


@dataclass
class VoiceByTurn(ScriptedSpeaker):
    """Hears the voice of ``people(now=level)``."""

    level: int = TOM

    async def embed(self, pcm: Pcm, work: Work) -> Embedding:
        await super().embed(pcm, work)
        return people(now=self.level)[0].voice

    def becomes(self, level: int) -> Deed:
        return lambda _: setattr(self, "level", level)


@pytest.mark.parametrize(
    ("words", "voice", "aside"),
    [
        ("and in Rome", TOM, None),  # the caller, wherever he is now
        ("did you see my keys", ANNA, "not called"),
        ("breaking news tonight", STRANGER, "not called"),
        ("hey Reachy and in Rome", ANNA, None),
    ],
)
def test_where_voices_are_known_others_must_call(words: str, voice: int, aside: str | None) -> None:
    speaker = VoiceByTurn()
    deeds = [*face((1000, 2700, 80.0), (7000, 8300, 20.0)), (6000, speaker.becomes(voice))]
    told = listen(
        (1000, "hey Reachy what time is it", 1600),
        (7000, words, 1200),
        deeds=sorted(deeds, key=lambda deed: deed[0]),
        until_s=12,
        speaker=speaker,
        people=people(Tom=TOM, Anna=ANNA),
    )
    assert (words in told.scene.transcripts) is (aside is None)
    assert told.asides == ([aside] if aside else [])


def test_a_bare_call_by_an_unknown_voice_forgets_who_called_before() -> None:
    speaker = VoiceByTurn()
    told = listen(
        (1000, "hey Reachy what time is it", 1600),
        (7000, "hey Reachy", 600),
        (9500, "and in Rome", 1200),
        deeds=[(6000, speaker.becomes(STRANGER)), (9000, speaker.becomes(ANNA))],
        until_s=14,
        speaker=speaker,
        people=people(Tom=TOM, Anna=ANNA),
    )
    assert told.asides == ["call"]
    assert "and in Rome" in told.scene.transcripts


# --- touch ----------------------------------------------------------------------------------------


def test_a_touch_wakes_it_also_for_what_has_just_begun() -> None:
    touch = (2400, do(commands.WakeUp()))
    told = listen((2000, "what time is it", 1000), settings=TOUCH, deeds=[touch])
    assert told.scene.transcripts == ["what time is it"]
    assert told.reasons == ["start", "touch", "silence"]


def test_what_was_said_long_before_a_touch_is_left_out() -> None:
    touch = (6000, do(commands.WakeUp()))
    told = listen(
        (1000, "a b c d e f g h i j k l m n o p q r s t", 10_000), settings=TOUCH, deeds=[touch]
    )
    assert told.scene.transcripts[0].split()[-1] == "t"
    assert len(told.scene.transcripts[0].split()) < 16


def test_a_touch_of_a_robot_that_is_awake_gives_it_more_time() -> None:
    touches = [(at_ms, do(commands.WakeUp())) for at_ms in (1000, 7000)]
    told = listen(settings=TOUCH, deeds=touches)
    assert told.changes == [("start", 0.0), ("touch", 1.0), ("silence", 15.0)]


def test_a_touch_in_the_middle_of_a_turn_drops_nothing() -> None:
    touch = (5000, do(commands.WakeUp()))
    told = listen((1000, "hey Reachy", 600), (4500, "what time is it", 1200), deeds=[touch])
    assert told.scene.transcripts == ["what time is it"]


def announce(played: Scene) -> None:
    task = asyncio.create_task(played.session.announce("Dinner.", played.loop.time() + 30.0))
    task.add_done_callback(lambda done: done.cancelled() or done.result())


# --- answers while it sleeps ----------------------------------------------------------------------


def test_an_answer_wakes_nobody() -> None:
    answer = (1000, do(commands.CreateResponse()))
    told = listen((4000, "what time is it", 1000), deeds=[answer])
    assert told.scene.statuses == ["completed"]
    assert told.reasons == ["start"]


def test_noise_does_not_hold_an_answer_while_it_sleeps() -> None:
    llm = ScriptedLlm(tuple(f"word{n} " for n in range(20)))
    answer = (1000, do(commands.CreateResponse()))
    speech = (3000, "talk of others in this room", 3000)
    told = listen(speech, deeds=[answer], llm=llm)
    quiet = listen(deeds=[answer], llm=ScriptedLlm(llm.deltas))
    ends = [each.scene.time_of(type(each.scene.reply)) for each in (told, quiet)]
    assert ends[0] == pytest.approx(ends[1])


@pytest.mark.parametrize("settings", [WORD, TOUCH], ids=["word", "touch"])
def test_an_announcement_waits_until_nobody_speaks(settings: SessionSettings) -> None:
    talk = (2000, "a b c d e f g h i j k l m n o p q r", 9000)
    told = listen(talk, deeds=[(4000, announce)], settings=settings, until_s=20)
    began_s = told.scene.time_of(events.ReplyStarted) - told.scene.began
    assert 11.5 <= began_s <= 12.5
    assert told.scene.words == ["Dinner."]
    assert told.reasons == ["start"]


def test_the_call_interrupts_an_answer_that_was_given_asleep() -> None:
    llm = ScriptedLlm(tuple(f"word{n} " for n in range(40)))
    answer = (1000, do(commands.CreateResponse()))
    told = listen((4000, "hey Reachy what time is it", 1600), deeds=[answer], llm=llm)
    assert told.scene.statuses[0] == "cancelled"
    assert told.scene.transcripts == ["hey Reachy what time is it"]


# --- clients --------------------------------------------------------------------------------------


def test_push_to_talk_and_transcription_never_sleep() -> None:
    for config in (replace(VOICE, turn_detection=None), replace(VOICE, answers=False)):
        told = listen((1000, "go to sleep", 1000), config=config, until_s=4)
        assert told.reasons == []
        assert told.scene.transcripts == ([] if config.answers else ["go to sleep"])


def test_a_client_that_changes_to_push_to_talk_and_back() -> None:
    by_hand = do(commands.Configure(replace(VOICE, turn_detection=None)))
    by_server = do(commands.Configure(VOICE))
    told = listen(deeds=[(1000, by_hand), (12_000, by_server)])
    assert told.changes == [("start", 0.0), ("client", 1.0), ("client", 12.0)]


@pytest.mark.parametrize("command", [commands.ClearAudio(), commands.CommitAudio()])
def test_a_client_that_clears_or_commits_meanwhile(command: commands.Command) -> None:
    """What was heard asleep is neither committed nor a call."""
    told = listen((2000, "hey Reachy what time is it", 1600), deeds=[(3000, do(command))])
    assert told.scene.chat == []
    assert told.scene.events(events.TranscriptReady) == []


def test_a_client_that_stops_sending_after_the_call_is_answered() -> None:
    silent = (3600, lambda played: played.sleep_until(12.0))
    told = listen((2000, "hey Reachy what time is it", 1600), until_s=3.6, deeds=[silent])
    assert told.scene.transcripts == ["hey Reachy what time is it"]
    assert told.scene.statuses == ["completed"]


def test_a_client_that_answers_for_itself() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(create_response=False))
    told = listen((2000, "hey Reachy what time is it", 1600), config=config)
    assert told.scene.transcripts == ["hey Reachy what time is it"]
    assert told.reasons == ["start", "word", "silence"]


@pytest.mark.parametrize(("left_s", "reasons"), [(5.0, ["resumed"]), (-5.0, ["start"])])
def test_a_conversation_that_is_resumed(left_s: float, reasons: list[str]) -> None:
    async def main() -> list[str]:
        llm = ScriptedLlm()
        async with scene(settings=WORD, llm=llm) as before:
            memory = before.session.release()
            assert memory.awake_until < 0
        memory.awake_until = before.loop.time() + left_s
        async with scene(settings=WORD, llm=llm, memory=memory) as after:
            await after.hear(0.1)
        return [e.why for _, e in after.log if isinstance(e, events.FellAsleep | events.Woke)]

    assert run_virtual(main()) == reasons


# --- engines --------------------------------------------------------------------------------------


def test_while_the_recogniser_fails_nobody_is_heard_and_it_recovers() -> None:
    stt = ScriptedStt(corrections={"a b": "hey Reachy"}, error=EngineError("no"))
    recovers = (5000, lambda played: setattr(stt, "error", None))
    told = listen((2000, "a b", 800), (6000, "a b", 800), stt=stt, deeds=[recovers])
    assert told.changes[1] == ("word", pytest.approx(7.0, abs=0.3))


class Bell:
    """A wake word engine that is called by one level of sound."""

    calls = ("Ding",)

    def __init__(self) -> None:
        self.opened = 0

    def open(self) -> Bell:
        self.opened += 1
        return self

    def called(self, pcm: Pcm) -> bool:
        return bool(np.any(pcm == 2000))


def test_a_model_hears_the_call_in_the_middle_of_speech() -> None:
    tape_order = [
        (6000, "ding", 500),
        (1000, "we had a long talk", 5000),
        (6500, "time please", 800),
    ]
    told = listen(*tape_order, wake_word=Bell())
    assert told.scene.transcripts[0].endswith("ding time please")
    assert "we" not in told.scene.transcripts[0].split()
    assert len(told.heard) == 1  # of what came before, the recogniser heard nothing


class LateBell(Bell):
    """Notices the call when its last sound, the fourth on the tape, is over."""

    calls = ("Okay Nabu",)
    rings = False

    def called(self, pcm: Pcm) -> bool:
        rang, self.rings = self.rings, bool(np.any(pcm == 2003))
        return rang and not self.rings


@pytest.mark.parametrize(
    ("words", "asides", "transcripts"),
    [
        ("bill came not due", ["call"], []),
        ("oh kay na due time please", [], ["Okay Nabu time please"]),
    ],
)
def test_a_call_that_a_model_hears_may_be_spelled_otherwise(
    words: str, asides: list[str], transcripts: list[str]
) -> None:
    told = listen((2000, words, 250 * len(words.split())), wake_word=LateBell())
    assert told.reasons[:2] == ["start", "word"]
    assert told.asides == asides
    assert told.scene.transcripts == transcripts


def test_partial_transcripts_begin_with_the_call() -> None:
    settings = replace(WORD, partials=True)
    told = listen((2000, "hey Reachy what time is it", 1600), settings=settings, until_s=6)
    words = "".join(event.text for event in told.scene.events(events.TranscriptPartial))
    assert "hey Reachy what time is it".startswith(words)
    assert told.scene.events(events.SpeechStarted)[0].audio_ms == pytest.approx(1700, abs=64)


def test_recordings_have_silence_for_what_is_heard_asleep(tmp_path: Path) -> None:
    kept: list[events.Event | commands.Command] = []

    class Observer:
        def command(self, command: commands.Command) -> None:
            kept.append(command)

        def end(self) -> None:
            pass

    watch = (0, lambda played: setattr(played.session, "_recording", Observer()))
    speeches = [(1000, "private talk", 800), (4000, "hey Reachy", 800), (6000, "time please", 800)]
    listen(*speeches, until_s=9, deeds=[watch])
    sound = np.concatenate([each.pcm for each in kept if isinstance(each, AppendAudio)])
    assert len(sound) == 9 * LISTEN_RATE
    assert not np.any(sound[: 4 * LISTEN_RATE])
    assert np.any(sound[6 * LISTEN_RATE :])


def test_always_has_no_gate() -> None:
    async def main() -> bool:
        async with scene() as played:
            return played.session._waking is None and not played.session.asleep

    assert run_virtual(main())
