"""Clauses whose speech fails are cut, said again or left out, and the reply goes on; silence
between clauses. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import EMPTY, Pcm
from pipeline.commands import CancelResponse, CreateResponse
from pipeline.engines.contract import NotSpeech, Wrong
from pipeline.errors import EngineError
from pipeline.events import ClauseFault, ReplyAudio, ReplyFinished, SpeechStopped
from pipeline.items import MessageItem
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.speaking.clause_speech import Joint, _rest_of
from pipeline.speaking.tuning import (
    CLAUSE_LEAST_PATIENCE_S,
    JOINT_KEPT_BEFORE_MS,
    JOINT_MOST_BEFORE_MS,
)
from pipeline.spoken.borders import Border
from pipeline.turn_record import TurnRecord
from pipeline.work import Cancelled, Work
from reachy_voice.testing import (
    VOICE,
    Scene,
    ScriptedLlm,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    wait,
    write,
)
from tests.support.moody_voice import S_PER_CHAR, Mood, MoodyTts
from tests.support.stories import hesitant

pytestmark = pytest.mark.quick

WATCHED = SessionSettings(watched=True)
ANSWER = (
    "I know a good story. ",
    "There was once a robot who lived near the sea. ",
    "Every evening it went out to look at the stars. ",
    "And so it does today.",
)
WORDS = "".join(ANSWER)


def brain() -> ScriptedLlm:
    """A model that writes so slowly that each sentence is a clause."""
    return ScriptedLlm(ANSWER, per_token_s=1.5)


HI = (write("Hi", "u"), CreateResponse())


def ask(tts: MoodyTts, settings: SessionSettings = WATCHED, **changes: Any) -> Scene:
    return play(*HI, wait(40.0), **{"settings": settings, "llm": brain(), "tts": tts, **changes})


def written(played: Scene) -> str:
    return "".join(played.words)


def faults(played: Scene) -> list[tuple[str, int, bool]]:
    return [(e.fault, e.take, e.left_out) for e in played.events(ClauseFault)]


def finished(played: Scene) -> ReplyFinished:
    (event,) = played.events(ReplyFinished)
    return event


def test_good_speech_is_not_repeated() -> None:
    tts = MoodyTts()
    it = ask(tts)
    assert faults(it) == []
    assert [attempt for _, attempt in tts.said] == [0] * len(tts.said)
    assert written(it) == WORDS
    assert it.audio_s == pytest.approx(len("".join(t for t, _ in tts.said)) * S_PER_CHAR, 0.1)
    assert finished(it).status == "completed"


KINDS: dict[Mood, str] = {
    "hum": "gibberish",
    "hiss": "gibberish",
    "silent": "silence",
    "empty": "silence",
    "loop": "repetition",
    "endless": "runaway",
}


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("mood", KINDS)
def test_a_faulty_clause_is_said_again_and_the_unsent_rest_dropped(mood: Mood, at: int) -> None:
    usual_s = ask(MoodyTts()).audio_s
    tts = MoodyTts([*["fine"] * at, mood])
    it = ask(tts)
    assert faults(it) == [(KINDS[mood], 0, False)]
    if mood != "endless":  # the whole clause is heard before the fault is known
        assert [attempt for _, attempt in tts.said].count(1) == 1
    assert written(it) == WORDS
    assert finished(it).status == "completed"
    assert tts.running == 0
    # The voice works far ahead of the listener, so hardly any faulty sound is sent.
    lead_s = 0.25 if at == 0 else 0.0
    endless_s = 6.0 if mood == "endless" else 0.0
    assert usual_s - 0.2 <= it.audio_s <= usual_s + lead_s + 0.9 + endless_s
    (record,) = it.events(TurnRecord)
    assert (record.clause_faults, record.clauses_left_out) == (1, 0)


def test_a_clause_that_fails_twice_is_left_out_and_the_reply_goes_on() -> None:
    tts = MoodyTts(["fine", "silent", "hum"])
    it = ask(tts)
    (first, *_), (lost, attempt), (again, second) = tts.said[:3]
    assert (lost, attempt, again, second) == (lost, 0, lost, 1)
    assert lost != first
    assert faults(it) == [("silence", 0, False), ("gibberish", 1, True)]
    assert finished(it).status == "completed"
    assert tts.said[-1][0] == "And so it does today."
    (record,) = it.events(TurnRecord)
    assert (record.clause_faults, record.clauses_left_out) == (2, 1)


def test_unpublished_words_that_cannot_be_said_are_never_published() -> None:
    tts = MoodyTts(["fine", "empty", "empty"])
    # While the first clause is heard, the second one fails twice.
    llm = ScriptedLlm((ANSWER[1], *ANSWER[:1], ANSWER[2]), per_token_s=0.6)
    it = ask(tts, llm=llm)
    lost = tts.said[1][0]
    assert lost == tts.said[2][0]
    assert lost not in written(it)
    assert finished(it).status == "completed"
    item = finished(it).items[0]
    assert isinstance(item, MessageItem)
    assert item.text == written(it)


def test_only_unheard_words_are_said_again() -> None:
    tts = MoodyTts(["fine", "hum"], fine_s=1.5, rtf=0.95)
    it = ask(tts)
    (whole, _), (rest, attempt) = tts.said[1:3]
    assert attempt == 1
    assert whole.endswith(rest)
    assert 0 < len(rest) < len(whole)
    assert written(it) == WORDS
    assert finished(it).status == "completed"


def test_a_voice_that_never_speaks_fails_the_reply() -> None:
    tts = MoodyTts(["hum", "silent"] * 20)
    it = ask(tts)
    assert finished(it).status == "failed"
    assert len(tts.said) == 6  # three clauses, twice each
    assert tts.running == 0


def test_a_short_answer_that_was_not_said_fails() -> None:
    tts = MoodyTts(["empty", "empty"])
    it = ask(tts, llm=ScriptedLlm(["Yes."]))
    assert finished(it).status == "failed"


def test_a_voice_that_is_stuck_is_asked_again_and_goes_on() -> None:
    tts = MoodyTts(["fine", "stuck"])
    it = ask(tts)
    assert faults(it) == [("late", 0, False)]
    assert written(it) == WORDS
    assert finished(it).status == "completed"


def test_a_voice_that_stays_stuck_fails_the_reply_in_time() -> None:
    tts = MoodyTts(["stuck"] * 9)
    it = ask(tts, SessionSettings())
    took_s = it.time_of(ReplyFinished)
    assert took_s == pytest.approx(2 * CLAUSE_LEAST_PATIENCE_S + 0.12, abs=0.05)
    assert finished(it).status == "failed"
    assert "in time" in (finished(it).error or "")
    assert tts.running == 0


def test_no_timeout_while_the_user_does_not_wait() -> None:
    """A speculative reply may wait behind more urgent work for any time."""
    tts = MoodyTts(["stuck"])
    it = play(say(1.0), silence(30.0), llm=brain(), tts=tts, **hesitant(WATCHED))
    opened_s = it.time_of(SpeechStopped)
    assert opened_s > 8.0
    assert it.times_of(ClauseFault) == [pytest.approx(opened_s + CLAUSE_LEAST_PATIENCE_S, abs=0.1)]
    assert tts.said[0][0] == tts.said[1][0]


@pytest.mark.parametrize("after_s", [0.6, 0.9, 1.2, 1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("mood", ["hum", "silent", "loop", "stuck"])
@in_virtual_time
async def test_a_barge_in_during_a_second_take_leaves_nothing(mood: Mood, after_s: float) -> None:
    tts = MoodyTts(["fine", mood, mood, mood], rtf=0.7)
    async with scene(config=VOICE, settings=WATCHED, llm=brain(), tts=tts) as it:
        await it.act(*HI, silence(after_s), say(1.5))
        ended_at = it.time_of(ReplyFinished)
        assert tts.running == 0
        assert not [at for at, e in it.log if isinstance(e, ReplyAudio) and at > ended_at]
        assert it.statuses == ["cancelled"]
        told = len(it.events(ClauseFault))
        await it.settle()
        assert len(it.events(ClauseFault)) == told


@in_virtual_time
async def test_a_client_that_cancels_while_a_clause_is_said_again_hears_no_more() -> None:
    tts = MoodyTts(["hum", "hum"], rtf=0.5)
    config = replace(VOICE, turn_detection=None)
    async with scene(config=config, settings=WATCHED, llm=brain(), tts=tts) as it:
        await it.act(*HI, wait(1.0))
        assert [attempt for _, attempt in tts.said] == [0, 1]
        await it.do(CancelResponse())
        count = len(it.events(ReplyAudio))
        await asyncio.sleep(20)
    assert tts.running == 0
    assert len(it.events(ReplyAudio)) == count
    assert finished(it).status == "cancelled"


@pytest.mark.parametrize("error", [EngineError("The voice broke"), Cancelled()])
def test_an_engine_that_breaks_while_a_clause_is_said_again_fails_the_reply(
    error: Exception,
) -> None:
    tts = MoodyTts(["fine", "hum", "broken"], error=error)
    it = ask(tts)
    assert finished(it).status == "failed"
    assert tts.running == 0


def test_nothing_is_cut_without_the_watch() -> None:
    tts = MoodyTts(["hum"])
    it = ask(tts, SessionSettings(), llm=ScriptedLlm(["Yes."]))
    assert faults(it) == []
    assert it.audio_s == pytest.approx(30.0)


LONG = tuple(
    f"{who} {does} {what}. "
    for who in ("The robot", "My old grandmother", "A small grey cat", "Nobody in this town")
    for does in ("remembers", "will never forget", "is looking for", "dreams about")
    for what in (
        "the way to the station",
        "an old letter from a friend in Lisbon",
        "everything that you have told us yesterday",
        "a rather long story about a lighthouse, its keeper, and the sea",
    )
)


@pytest.mark.machine
@pytest.mark.parametrize("fine_s", [0.0, 1.3])
def test_no_clause_is_lost_when_one_in_ten_fails(fine_s: float) -> None:
    """As fast as Qwen3-TTS on an RTX 4090: 0.21 s for each second of speech."""
    draw = random.Random(1)
    kinds: list[Mood] = [*KINDS]
    moods: list[Mood] = []
    for _ in range(400):
        moods += [draw.choice(kinds), "fine"] if draw.random() < 0.1 else ["fine"]
    tts = MoodyTts(["fine", *moods], fine_s=fine_s, rtf=0.21)
    rounds = 3
    acts = [(write("Hi", f"u{number}"), CreateResponse(), wait(400)) for number in range(rounds)]
    llm = ScriptedLlm(LONG, per_token_s=0.3)
    it = play(*sum(acts, ()), settings=WATCHED, llm=llm, tts=tts)
    assert it.statuses == ["completed"] * rounds
    assert written(it) == "".join(LONG).strip() * rounds
    told = it.events(ClauseFault)
    assert len(told) > 5
    assert not any(event.left_out for event in told)
    assert len(tts.faulty_s) == len(told)
    assert max(tts.faulty_s) <= 1.0
    assert tts.running == 0
    assert it.audio_s >= 0.97 * len(written(it)) * S_PER_CHAR


TEXT = "First the dog ran, then it sat down. The cat slept."


@pytest.mark.parametrize(
    ("share", "left"),
    [
        (0.0, TEXT),
        (0.05, TEXT),
        (0.2, "dog ran, then it sat down. The cat slept."),
        (0.3, "then it sat down. The cat slept."),
        (0.4, "then it sat down. The cat slept."),
        (0.7, "The cat slept."),
        (0.95, ""),
        (1.5, ""),
    ],
)
def test_the_rest_of_a_clause_begins_at_a_word_or_mark(share: float, left: str) -> None:
    assert _rest_of(TEXT, share * 3.0, 3.0) == left


def test_some_last_words_are_always_said_again() -> None:
    for share in np.linspace(0, 0.92, 200):
        left = _rest_of(TEXT, float(share), 1.0)
        assert left
        assert TEXT.endswith(left)


# --- a voice that tells by itself that a clause goes wrong ---------------------------------------


class SelfAwareTts(MoodyTts):
    """Speaks well, except that it gives up its first ``times`` takes of the second clause after a
    chunk."""

    def __init__(self, wrong: Wrong, times: int) -> None:
        super().__init__()
        self._wrong: Wrong = wrong
        self._times = times

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        fails = "robot" in request.text and request.take < self._times
        async for chunk in super().synthesize(request, work):
            yield chunk
            if fails:
                raise NotSpeech(self._wrong, 0.0)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("wrong", ["runaway", "repetition"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_clause_the_voice_gives_up_is_said_again_then_left_out(
    wrong: Wrong, times: int, watched: bool
) -> None:
    tts = SelfAwareTts(wrong, times)
    it = ask(tts, SessionSettings(watched=watched))
    assert faults(it) == [(wrong, at, at == 1) for at in range(times)]
    again = [take for text, take in tts.said if "robot" in text]
    assert again[-1] == 1
    assert written(it) == WORDS
    assert finished(it).status == "completed"


# --- silence between pieces of speech: as much as the text asks for ------------------------------


RATE = 1000
"""A sample is a millisecond."""


def quiet(ms: int) -> Pcm:
    return np.zeros(ms, dtype=np.int16)


def sound(ms: int) -> Pcm:
    return np.full(ms, 3000, dtype=np.int16)


def trimmed(border: Border, *chunks: Pcm) -> list[tuple[bool, int]]:
    """Runs of the played audio: whether it is sound, and its ms."""
    joint = Joint(RATE, border)
    played = np.concatenate([EMPTY, *(joint.feed(chunk) for chunk in chunks)])
    return [(loud, len(list(run))) for loud, run in itertools.groupby(played > 0)]


KEPT = (False, JOINT_KEPT_BEFORE_MS)


@pytest.mark.parametrize(
    ("border", "chunks", "played"),
    [
        # The first sound comes at once.
        (Border.SENTENCE, [quiet(50), sound(100)], [KEPT, (True, 100)]),
        (Border.SENTENCE, [np.concatenate((quiet(50), sound(100)))], [KEPT, (True, 100)]),
        # A sentence keeps the pause that the voice makes; within a sentence it is shortened.
        (Border.SENTENCE, [sound(100), quiet(400)], [(True, 100), (False, 400)]),
        (Border.WORD, [sound(100), quiet(90), quiet(90)], [(True, 100), (False, 20)]),
        (Border.CLAUSE, [sound(100), quiet(290)], [(True, 100), (False, 200)]),
        # Pauses within a piece stay.
        (
            Border.WORD,
            [sound(10), quiet(300), quiet(100), sound(10), quiet(300)],
            [(True, 10), (False, 400), (True, 10), (False, 20)],
        ),
        (Border.WORD, [quiet(100)], []),
        (Border.WORD, [], []),
    ],
)
def test_silence_around_a_piece(
    border: Border, chunks: list[Pcm], played: list[tuple[bool, int]]
) -> None:
    assert trimmed(border, *chunks) == played


def test_a_long_leading_silence_is_kept() -> None:
    ((loud, played_ms),) = trimmed(Border.SENTENCE, quiet(2 * JOINT_MOST_BEFORE_MS))
    assert not loud
    assert played_ms == JOINT_KEPT_BEFORE_MS
    (_, front_ms), _ = trimmed(Border.SENTENCE, *[quiet(100)] * 10, sound(10))
    assert front_ms >= 1000 - JOINT_MOST_BEFORE_MS - 100


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
    st.sampled_from(list(Border)),
)
def test_chunks_make_no_difference_and_no_sound_is_lost(
    runs: list[tuple[bool, int]], cuts: list[int], border: Border
) -> None:
    # Full silence or loud sound only; leading silence is short enough to be removed entirely.
    runs = [(loud, ms if loud else min(ms, 40)) for loud, ms in runs]
    whole = np.concatenate([EMPTY, *(sound(ms) if loud else quiet(ms) for loud, ms in runs)])
    at = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[a:b] for a, b in itertools.pairwise(at)]
    played = trimmed(border, *chunks)
    assert played == trimmed(border, whole)
    assert sum(ms for loud, ms in played if loud) == int((whole > 0).sum())
