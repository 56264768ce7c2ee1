"""Where speech begins: traced back from the certain window over scores that rose before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.harness.acoustics import noise
from benchmarks.harness.heard_speech import bounds
from benchmarks.harness.virtual_engines import InlineVad
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE, AudioFrame, Framer, Pcm, Resampler
from pipeline.commands import MAX_PREFIX_PADDING_MS, AppendAudio, ClearAudio, CreateResponse
from pipeline.engines.stages import Stages
from pipeline.engines.stt.moonshine import MoonshineOptions
from pipeline.engines.stt.moonshine import build as build_moonshine
from pipeline.engines.vad.noise import SecondOpinion
from pipeline.engines.vad.silero import SileroVad
from pipeline.events import ReplyAudio, ReplyFinished, SpeechStarted, SpeechStopped
from pipeline.hearing.client import ClientHearing
from pipeline.hearing.listening import Listener
from pipeline.hearing.onset import RecentScores
from pipeline.hearing.tuning import GAP_MS, MAX_BACK_MS
from pipeline.hearing.turn_taker import TurnEnd, TurnStart, TurnTaker
from pipeline.settings import Echo, Endpointing
from pipeline.work import NEVER, Work
from reachy_voice.testing import (
    AT_ONCE,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    run_virtual,
    scene,
)
from tests.support.recordings import recording

pytestmark = pytest.mark.engines

WINDOW = 512
QUIET, LOUD = 10, 3000
ROOM = [0.01] * 60


def frame(number: int, level: int = LOUD) -> AudioFrame:
    return AudioFrame(np.full(WINDOW, level, np.int16), LISTEN_RATE, number * WINDOW)


def begin(scores: Sequence[float], levels: Sequence[int] | None = None) -> int | None:
    """The frame in which a ``TurnTaker`` begins the first turn."""
    taker = TurnTaker(Endpointing())
    for number, score in enumerate(scores):
        level = levels[number] if levels else LOUD
        for signal in taker.feed(score, frame(number, level)):
            if isinstance(signal, TurnStart):
                assert signal.start % WINDOW == 0
                return signal.start // WINDOW
    return None


# --- one score list each -----------------------------------------------------------------------


PAUSE = [0.02] * (400 // 32)
LONG_SILENCE = [0.01] * (GAP_MS // 32 + 1)
NOISY = [0.14] * 300


@pytest.mark.parametrize(
    ("scores", "begins"),
    [
        pytest.param([*ROOM, 0.9, 0.9], 60, id="a sharp onset"),
        pytest.param([*ROOM, 0.1, 0.2, 0.4, 0.9, 0.9], 60, id="scores that climb"),
        pytest.param([*ROOM, 0.3, 0.8, 0.4, *PAUSE, 0.9, 0.9], 60, id="a word, then a pause"),
        pytest.param([*ROOM, 0.6, 0.4, 0.6, 0.4, 0.6, 0.6], 60, id="a word that dips"),
        pytest.param(
            [*ROOM, 0.4, 0.4, *LONG_SILENCE, 0.9, 0.9], 62 + len(LONG_SILENCE), id="long silence"
        ),
        pytest.param([*NOISY, 0.9, 0.9], 300, id="a noisy room"),
        pytest.param([*NOISY, 0.35, 0.35, 0.9, 0.9], 300, id="a soft onset in a noisy room"),
        pytest.param([*ROOM, *[0.4] * 8, 0.9, 0.9], 60, id="a loud moment is not the room"),
        pytest.param([0.9, 0.9], 0, id="the first frames"),
        pytest.param([0.2, 0.9, 0.9], 0, id="the first frames, climbing"),
        pytest.param([*ROOM, *[0.3] * 100, 0.9, 0.9], 160 - MAX_BACK_MS // 32, id="the bound"),
    ],
)
def test_a_turn_begins_where_scores_rise(scores: list[float], begins: int) -> None:
    assert begin(scores) == begins


def test_a_far_weaker_sound_is_not_the_speakers_onset() -> None:
    scores = [*ROOM, *[0.4] * 10, 0.9, 0.9]
    levels = [QUIET] * 60 + [LOUD // 10] * 10 + [LOUD] * 2
    assert begin(scores, levels) == 70
    assert begin(scores, [QUIET] * 60 + [LOUD // 3] * 10 + [LOUD] * 2) == 60


def test_a_turn_does_not_reach_into_the_speech_of_the_turn_before() -> None:
    taker = TurnTaker(Endpointing(max_utterance_s=1.0))
    signals = [signal for n in range(100) for signal in taker.feed(0.9, frame(n))]
    starts = [signal.start for signal in signals if isinstance(signal, TurnStart)]
    ends = [signal.speech_end for signal in signals if isinstance(signal, TurnEnd)]
    assert starts == [0, *ends[: len(starts) - 1]]
    assert np.diff(ends).min() >= LISTEN_RATE


# --- whatever the scores -----------------------------------------------------------------------


SHORT = Endpointing(clear_wait_ms=64, likely_wait_ms=64, unsure_wait_ms=64)


@given(st.lists(st.floats(0, 1), max_size=150), st.sampled_from([SHORT, Endpointing()]))
def test_a_turn_begins_after_the_previous_one(scores: list[float], waits: Endpointing) -> None:
    """The oracle: two frames in a row reach the threshold while no turn is open."""
    taker = TurnTaker(waits)
    above, open_, closed_to = 0, False, 0
    for number, score in enumerate(scores):
        signals = taker.feed(score, frame(number))
        started = [signal for signal in signals if isinstance(signal, TurnStart)]
        above = above + 1 if score >= 0.5 and not open_ else 0
        assert bool(started) == (above >= 2)
        for signal in signals:
            if isinstance(signal, TurnStart):
                open_, above, noticed = True, 0, (number - 1) * WINDOW
                assert max(closed_to, noticed - MAX_BACK_MS * 16) <= signal.start <= noticed
            if isinstance(signal, TurnEnd):
                open_, above, closed_to = False, 0, signal.speech_end


# --- the listener ------------------------------------------------------------------------------


class ScoresByLevel:
    """A VAD whose score grows with the amplitude: 10,000 scores 1."""

    window_samples = WINDOW
    least_movement_db = 0.0

    async def open(self, work: Work) -> ScoresByLevel:
        return self

    async def score(self, pcm: Pcm) -> float:
        return float(min(1.0, np.abs(pcm.astype(np.int32)).max() / 10_000))

    def close(self) -> None:
        pass


def listener_with(history_seconds: float) -> Listener:
    hearing = ClientHearing(WINDOW, Echo())
    turn = ScriptedTurn(history_seconds=history_seconds)
    stages = Stages(ScoresByLevel(), turn, ScriptedStt(), ScriptedLlm(), ScriptedTts())
    return Listener(stages, hearing, Endpointing())


def soft_word_then_loud() -> Pcm:
    """1 s of room, 0.2 s at a score of 0.3, 0.2 s of room, 0.4 s at 0.9."""
    parts = ((16_000, 10), (3200, 3000), (3200, 10), (6400, 9000))
    return np.concatenate([np.full(count, level, np.int16) for count, level in parts])


@given(st.lists(st.integers(0, 28_800), max_size=12))
async def test_any_split_gives_the_same_signals(cuts: list[int]) -> None:
    whole = soft_word_then_loud()

    async def heard(pieces: Sequence[Pcm]) -> list[object]:
        listener = listener_with(8.0)
        return [s for piece in pieces async for signals in listener.hear(piece) for s in signals]

    at_once = await heard([whole])
    assert await heard(np.split(whole, sorted(cuts))) == at_once
    assert at_once[0] == TurnStart(16_000 // WINDOW * WINDOW)


@pytest.mark.parametrize("history_seconds", [0.0, 8.0])
async def test_the_history_holds_any_padding_and_onset(
    history_seconds: float,
) -> None:
    listener = listener_with(history_seconds)
    asked = Endpointing(prefix_padding_ms=MAX_PREFIX_PADDING_MS, onset_ms=1000)
    listener.configure(asked)
    room = np.full(6 * LISTEN_RATE, 10, np.int16)
    async for _ in listener.hear(room):
        pass
    slow = np.full(MAX_BACK_MS * 16, 3000, np.int16)
    loud = np.full(2 * LISTEN_RATE, 9000, np.int16)
    started = None
    async for signals in listener.hear(np.concatenate((slow, loud))):
        if signals and started is None:
            started = signals[0]
            assert isinstance(started, TurnStart)
            start = started.start - MAX_PREFIX_PADDING_MS * 16
            assert len(listener.read(start, listener.heard_end)) == listener.heard_end - start
    assert started


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100, 48_000])
def test_resampled_sound_keeps_its_place(rate: int) -> None:
    """In 20 ms pieces, a click at 1 s is at sample 16,000, within half a millisecond."""
    pcm = np.zeros(2 * rate, np.int16)
    pcm[rate] = 30_000
    resampler = Resampler(rate, LISTEN_RATE)
    pieces = [resampler.feed(piece) for piece in np.split(pcm, 100)]
    heard = np.concatenate(pieces)
    assert abs(int(np.abs(heard.astype(int)).argmax()) - LISTEN_RATE) <= 8


# --- a whole session ---------------------------------------------------------------------------


@in_virtual_time
async def test_padding_is_counted_from_the_found_onset() -> None:
    async with scene() as played:
        await played.hear(2.0)
        await played.hear(0.02, level=LOUD)  # a word too short to count
        await played.hear(0.3)
        await played.say(0.5)
        await played.hear(1.5)
    assert played.events(SpeechStarted)[0].audio_ms == pytest.approx(1700, abs=33)


@in_virtual_time
async def test_cleared_audio_never_comes_back() -> None:
    async with scene() as played:
        await played.hear(1.0)
        await played.hear(0.02, level=LOUD)
        await played.hear(0.1)
        await played.do(ClearAudio())
        await played.say(0.5)
        await played.hear(1.5)
    # Audio that does not fill a 32 ms window when cleared is never scored.
    assert played.events(SpeechStarted)[0].audio_ms >= 1140 - 32


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=10))
@in_virtual_time
async def test_no_range_begins_in_closed_audio(
    pieces: list[tuple[int, bool, bool]],
) -> None:
    """Pieces of sound, loud or not; after some, the client clears its audio."""
    closed_ms, sent_ms, seen = 0, 0, 0
    async with scene() as played:
        for chunks, loud, clears in pieces:
            await played.hear(chunks / 50, level=LOUD if loud else 0)
            sent_ms += chunks * 20
            if clears:
                await played.do(ClearAudio())
            await played.settle()
            for _, event in played.log[seen:]:
                if isinstance(event, SpeechStarted):
                    assert closed_ms <= event.audio_ms <= sent_ms
                if isinstance(event, SpeechStopped):
                    closed_ms = event.audio_ms
            seen = len(played.log)
            if clears:  # all whole windows of it
                closed_ms = max(closed_ms, sent_ms // 32 * 32)


@in_virtual_time
async def test_speech_over_an_answer_is_heard_from_the_first_word() -> None:
    async with scene(llm=ScriptedLlm(deltas=("And then I went on. ",) * 20)) as played:
        await played.do(CreateResponse())
        await played.hear(2.0)
        assert played.events(ReplyAudio)
        assert not played.events(ReplyFinished), "it is still speaking"
        await played.hear(0.02, level=LOUD)
        await played.hear(0.3)
        await played.say(0.5)
        await played.hear(1.5)
    heard = cast(ScriptedStt, played.stages.stt).finished[-1]
    # 300 ms of padding, the short word, and everything after it.
    assert np.flatnonzero(heard)[0] == pytest.approx(300 * 16, abs=WINDOW)
    assert np.count_nonzero(heard) >= 0.5 * LISTEN_RATE


# --- the real network --------------------------------------------------------------------------


def started_at(vad: SileroVad, pcm: Pcm) -> int | None:
    stream, taker = vad.open(), TurnTaker(Endpointing())
    for each in Framer(WINDOW).feed(pcm):
        for signal in taker.feed(stream.score(each.pcm), each):
            if isinstance(signal, TurnStart):
                return signal.start
    return None


def pink(count: int, seed: int) -> NDArray[np.float64]:
    """Pink noise with a level of 1."""
    return noise("pink", count, np.random.default_rng(seed)).astype(np.float64)


@pytest.mark.real
@pytest.mark.parametrize("snr_db", [0, 10, 20])
@pytest.mark.parametrize("name", ["goforward", "something", "librivox-0880", "beckett"])
def test_soft_onsets_in_noise_are_within_the_padding(
    vad: SileroVad, name: str, snr_db: int
) -> None:
    """The voice fades in from -12 dB within 120 ms; the reference is the clean clip's energy."""
    clip = recording(name).pcm
    onset, _ = bounds(clip)
    said = clip[onset : onset + 2 * LISTEN_RATE].astype(np.float64)
    voice = np.concatenate((np.zeros(LISTEN_RATE), said))
    level = float(np.std(voice[LISTEN_RATE:]))
    fade = 120 * 16
    voice[LISTEN_RATE : LISTEN_RATE + fade] *= np.linspace(0.25, 1, fade)
    for seed in range(3):
        mixed = voice + pink(len(voice), seed) * level * 10 ** (-snr_db / 20)
        started = started_at(vad, np.clip(mixed, -32768, 32767).astype(np.int16))
        assert started is not None
        assert LISTEN_RATE - MAX_BACK_MS * 16 <= started - 300 * 16 <= LISTEN_RATE


@pytest.mark.real
@pytest.mark.parametrize("seed", range(4))
def test_a_short_first_word_that_silero_does_not_count_is_kept(vad: SileroVad, seed: int) -> None:
    """180 ms of speech in as much noise, 400 ms of nothing, then the rest."""
    clip = recording("librivox-0880").pcm
    onset, _ = bounds(clip)
    word, rest = np.split(clip[onset : onset + 1700 * 16], [180 * 16])
    voice = np.concatenate((np.zeros(LISTEN_RATE), word, np.zeros(400 * 16), rest))
    mixed = voice + pink(len(voice), seed) * np.sqrt(np.mean(rest.astype(float) ** 2))
    pcm = np.clip(mixed, -32768, 32767).astype(np.int16)
    with (
        patch.object(RecentScores, "beginning", lambda recent, noticed, threshold: noticed),
        patch.object(SecondOpinion, "together", lambda opinion, plain, *others: plain),
    ):
        alone = started_at(vad, pcm)
    assert alone is None or alone - 300 * 16 > LISTEN_RATE, "padding alone would not reach it"
    started = started_at(vad, pcm)
    assert started is not None
    assert started - 300 * 16 <= LISTEN_RATE


@pytest.mark.real
@pytest.mark.parametrize("name", ["goforward", "librivox-0870", "beckett"])
def test_speech_over_the_robot_is_recognised_from_the_first_phoneme(
    vad: SileroVad, weights: Callable[[str], Path], name: str
) -> None:
    """The range is the same as in silence: playback mutes nothing."""
    clip = recording(name)
    onset, end = bounds(clip.pcm)
    voice = clip.pcm[onset:end].astype(np.float64)
    room = np.random.default_rng(3).normal(0, 10, len(voice) + 4 * LISTEN_RATE)
    room[2 * LISTEN_RATE : 2 * LISTEN_RATE + len(voice)] += voice
    pcm = np.clip(room, -32768, 32767).astype(np.int16)

    async def heard(playing: bool) -> Pcm:
        stt, llm = ScriptedStt(), ScriptedLlm(deltas=("Then I went on. ",) * 30)
        async with scene(settings=AT_ONCE, vad=InlineVad(vad), stt=stt, llm=llm) as played:
            if playing:
                await played.do(CreateResponse())
            for chunk in np.array_split(pcm, len(pcm) * 50 // LISTEN_RATE):
                await asyncio.sleep(0.02)
                await played.session.submit(AppendAudio(chunk, LISTEN_RATE))
        started = played.time_of(SpeechStarted)
        assert playing == any(at < started for at in played.times_of(ReplyAudio))
        assert played.events(SpeechStarted)[0].audio_ms <= 2000
        return stt.finished[0]

    over_it = run_virtual(heard(True))
    assert np.array_equal(over_it, run_virtual(heard(False)))
    moonshine = build_moonshine(MoonshineOptions(), weights("moonshine-tiny-en"))
    utterance = moonshine.open("en", False)
    utterance.feed(over_it)
    read = words(utterance.finish(NEVER).text)
    assert read[:1] == words(clip.text)[:1]
