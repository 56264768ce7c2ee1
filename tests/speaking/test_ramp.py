"""Answers have few joints, and no gap that the voice's speed could avoid.

Whole sessions in virtual time: the real chunker, ramp, reply and pacing, over a language model and
a voice of many speeds.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.audio import Pcm
from pipeline.commands import CreateResponse
from pipeline.events import ReplyAudio, ReplyFinished, ReplyText
from pipeline.messages import SpeechRequest
from pipeline.speaking.notices import KeptSentences
from pipeline.speaking.ramp import Ramp, VoiceTiming
from pipeline.speaking.tuning import RAMP_MARGIN_S
from pipeline.work import Work
from reachy_voice.testing import (
    Scene,
    ScriptedLlm,
    ScriptedTts,
    run_virtual,
    scene,
)

pytestmark = pytest.mark.quick

ANSWER = (
    "That is a good question. The old clock in the hall, which nobody had wound for many years, "
    "began to strike one evening in November when the whole family sat at dinner. My grandfather "
    "put down his spoon and counted: one, two, three, and so on, up to thirteen. Nobody said a "
    "word. Then he got up, opened the glass door and looked inside, but there was nothing to be "
    "seen except dust and a small brass key that hung on a nail. He took the key and went up to "
    "the attic, where a box had stood under the window since before my mother was born. It was "
    "locked, of course. The key fitted! What he found in there I will tell you another time, "
    "because it is late, and you should have been in bed an hour ago."
)
SECONDS_PER_CHAR = 0.065


@dataclass
class PacedTts(ScriptedTts):
    """A voice of a given speed."""

    fixed_s: float = 0.08
    rtf: float = 0.1
    chunk_s: float = 0.0
    """Seconds of audio that it yields at once; 0: a whole piece."""
    stalls: Iterator[float] = field(default_factory=lambda: iter(()))
    """Extra seconds of each step, one by one."""

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.said.append(request.text)
        await asyncio.sleep(self.fixed_s)
        left_s = SECONDS_PER_CHAR * len(request.text)
        while left_s > 1e-6:
            now_s = min(self.chunk_s or left_s, left_s)
            await asyncio.sleep(now_s * self.rtf + next(self.stalls, 0.0))
            left_s -= now_s
            yield np.full(round(now_s * self.rate), 1000, np.int16)


@dataclass
class Told:
    """How an answer turned out."""

    said: list[str]
    first_s: float
    gaps: list[tuple[float, float]]

    @property
    def gaps_s(self) -> list[float]:
        return [gap_s for _, gap_s in self.gaps]

    @property
    def joints(self) -> int:
        """Number of borders between pieces within a sentence."""
        return sum(text[-1] not in ".!?" for text in self.said)


def gaps_of(played: Scene) -> list[tuple[float, float]]:
    """Silences that the listener hears because audio is late: seconds of sound before each, and its
    length."""
    plays_until, heard_s, gaps = 0.0, 0.0, []
    for at, event in played.log:
        if isinstance(event, ReplyAudio):
            if plays_until and at > plays_until + 0.001:
                gaps.append((heard_s, at - plays_until))
            seconds = len(event.pcm) / event.rate
            plays_until = max(at, plays_until) + seconds
            heard_s += seconds
    return gaps


def told(
    tts: PacedTts, *, token_s: float = 0.02, answer: str = ANSWER, measured: bool = False
) -> Told:
    """One answer, with a word every ``token_s``, played with the usual lead. ``measured``: the
    voice was measured at the start, as a server does."""

    async def play() -> Told:
        deltas = tuple(re.findall(r"\s*\S+", answer))
        llm = ScriptedLlm(deltas, first_s=0.1, per_token_s=token_s)
        kept = KeptSentences(tts, {}) if measured else None
        if kept:
            await kept.keep()
            tts.said.clear()
        async with scene(llm=llm, tts=tts, kept=kept) as played:
            await played.do(CreateResponse())
            await asyncio.sleep(200)
            assert played.events(ReplyFinished)
            assert "".join(e.text for e in played.events(ReplyText)) == answer
            return Told(tts.said, played.time_of(ReplyAudio), gaps_of(played))

    result: Told = run_virtual(play())
    return result


@pytest.mark.parametrize("token_s", [0.005, 0.05, 0.25])
@pytest.mark.parametrize(("rtf", "joints"), [(0.05, 1), (0.2, 1), (0.5, 10), (0.8, 20)])
def test_no_avoidable_gap(rtf: float, joints: int, token_s: float) -> None:
    """A voice that yields whole pieces; the faster it is, the longer they are."""
    result = told(PacedTts(rtf=rtf), token_s=token_s)
    if token_s < 0.25:
        assert result.gaps_s == []
        assert result.joints <= joints
    else:
        # Four words a second are hardly faster than speech: the text is late, not the voice.
        assert sum(result.gaps_s) < 0.05


@pytest.mark.parametrize("rtf", [0.05, 0.5, 0.9])
def test_a_voice_that_streams_gets_whole_sentences(rtf: float) -> None:
    result = told(PacedTts(rtf=rtf, chunk_s=0.2))
    assert result.gaps_s == []
    assert result.joints == 0
    assert len(result.said) <= 7


def test_a_voice_that_is_too_slow_makes_short_pieces_and_short_gaps() -> None:
    result = told(PacedTts(rtf=1.2))
    text_s = SECONDS_PER_CHAR * len(ANSWER)
    assert 0 < sum(result.gaps_s) < 0.35 * text_s
    assert max(result.gaps_s) < 2.0
    assert all(len(text) >= 9 for text in result.said)


@pytest.mark.parametrize("rtf", [1.0, 2.0, 3.0])
def test_a_slow_streaming_voice_waits_between_pieces_only(rtf: float) -> None:
    result = told(PacedTts(rtf=rtf, chunk_s=0.08), measured=True)
    first_s = SECONDS_PER_CHAR * len(result.said[0])
    assert all(heard_s > first_s - 0.001 for heard_s, _ in result.gaps), "none within the first"
    assert len(result.gaps) <= len(result.said), "a wait before each of the others"


@pytest.mark.parametrize(
    ("before", "learned", "held_s"),
    [(0.0, None, 0.0), (0.9, None, 0.0), (1.9, None, 2.0), (0.2, 1.9, 2.0), (3.2, 0.2, 0.0)],
)
def test_how_much_of_a_piece_is_held_back(
    before: float, learned: float | None, held_s: float
) -> None:
    ramp = Ramp()
    ramp.of("a voice", before)
    if learned:
        ramp.learn(VoiceTiming(60, 4.0, 4.0 * learned, 0.1, 0.1))
    letters = round(4.0 / ramp.s_per_letter)
    reserve, rate = ramp.reserve(letters), 1000
    given = [len(reserve.take(np.zeros(100, np.int16), rate)) for _ in range(40)]
    first = next(number for number, pieces in enumerate(given) if pieces)
    assert 0.1 * first == pytest.approx(max(0.0, held_s - 0.1), abs=0.11)
    assert sum(given) == 40


@pytest.mark.parametrize("seed", range(4))
def test_stalls_are_covered_by_the_lead(seed: int) -> None:
    """Every third step takes 0.3 s longer. After the first pieces the lead covers that."""
    draw = random.Random(seed)
    stalls = iter([0.0, 0.0] + [draw.choice([0.0, 0.0, 0.3]) for _ in range(100)])
    result = told(PacedTts(rtf=0.1, stalls=stalls))
    assert result.gaps_s == []


def test_a_stalled_model_does_not_hold_back_its_text() -> None:
    """The text stops for three seconds within a long sentence: the part so far is spoken before the
    listener runs out."""

    async def play() -> tuple[list[str], list[tuple[float, float]]]:
        deltas = re.findall(r"\s*\S+", "Hello there, my friend. " + ANSWER[24:])
        tts = PacedTts(rtf=0.05)
        llm = ScriptedLlm((*deltas[:30], 3.0, *deltas[30:]))
        async with scene(llm=llm, tts=tts) as played:
            await played.do(CreateResponse())
            await asyncio.sleep(60)
            assert played.events(ReplyFinished)
            return tts.said, gaps_of(played)

    said, gaps = run_virtual(play())
    assert gaps == []
    assert any(text.endswith("evening in November,") or "strike" in text for text in said)


def test_the_first_piece_is_the_shortest_that_sounds_well() -> None:
    slow = told(
        PacedTts(rtf=0.5), answer="The capital of France is Paris, which lies on the Seine."
    )
    assert slow.said[0] == "The capital of France,"


def test_the_next_answer_uses_the_learned_speed() -> None:
    ramp = Ramp()
    before = ramp.longest_letters(1.0)
    for _ in range(5):
        ramp.learn(VoiceTiming(letters=40, audio_s=2.6, work_s=0.1, first_chunk_s=2.6, first_s=0.1))
    assert ramp.longest_letters(1.0) > 2 * before
    for _ in range(12):
        ramp.learn(VoiceTiming(letters=40, audio_s=2.6, work_s=2.0, first_chunk_s=2.6, first_s=2.0))
    assert ramp.longest_letters(1.0) < before / 2


def test_the_fixed_cost_is_separated_from_the_cost_per_second() -> None:
    ramp = Ramp()
    for chars in (10, 80, 20, 60, 40, 15, 70):
        audio_s = chars * SECONDS_PER_CHAR
        work_s = 0.2 + 0.3 * audio_s
        ramp.learn(VoiceTiming(chars, audio_s, work_s, audio_s, work_s))
    expected = 0.2 + 0.3 * 50 * SECONDS_PER_CHAR
    assert expected < ramp.ready_s(50) < 1.5 * expected
    assert ramp.longest_letters(ramp.ready_s(50)) in (49, 50)


@example(
    past=[
        VoiceTiming(1, 7, 38.1953125, 1, 0),
        VoiceTiming(1, 5, 1, 1, 0),
        VoiceTiming(1, 16, 52.224609375, 1, 0),
    ],
    buffered_s=0.0,
)
@given(
    st.lists(
        st.builds(
            VoiceTiming,
            st.integers(0, 500),
            st.floats(0, 30),
            st.floats(0, 60),
            st.floats(0, 30),
            st.floats(0, 60),
        ),
        max_size=20,
    ),
    st.floats(0, 100),
)
def test_any_history_gives_a_sane_length(past: list[VoiceTiming], buffered_s: float) -> None:
    ramp = Ramp()
    for spoken in past:
        ramp.learn(spoken)
    longest = ramp.longest_letters(buffered_s)
    assert longest >= 0
    assert ramp.longest_letters(buffered_s + 1) >= longest
    assert ramp.patience_s(buffered_s, longest) <= buffered_s
    assert ramp.ready_s(longest) >= RAMP_MARGIN_S
