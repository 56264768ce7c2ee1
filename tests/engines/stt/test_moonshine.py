"""Moonshine, the real model, on people's speech: transcripts, however the audio arrives."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import psutil
import pytest

from app.clock.phrases import Phrases
from app.root import ROOT
from app.settings.languages import read_clock
from benchmarks.wer import word_errors, words
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import Transcript
from pipeline.engines.stt.moonshine import Moonshine, MoonshineOptions, build
from pipeline.engines.stt.moonshine_phrases import (
    FREE_NATS,
    NATS_PER_TOKEN,
    SHIFT_SAMPLES,
    PhraseEar,
)
from pipeline.errors import EngineError, WeightsError
from pipeline.work import NEVER, Cancelled
from tests.support.pico import spoken_by_pico
from tests.support.places import Weights
from tests.support.recordings import Token, heard, recording

pytestmark = [pytest.mark.engines, pytest.mark.real]

GO_FORWARD = "Go forward ten meters."


@pytest.fixture(scope="module")
def stt(weights: Weights) -> Moonshine:
    return build(MoonshineOptions(), weights("moonshine-tiny-en"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith's 21 cold-hearted dogs!", "mister smiths twenty one cold hearted dogs"),
        ("I'll — go; 310 metres, café", "ill go three hundred ten metres cafe"),
        ("0 7 100 2026", "zero seven one hundred two zero two six"),
        ("…", ""),
    ],
)
def test_texts_are_compared_by_what_is_said(text: str, expected: str) -> None:
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    ("said", "errors"),
    [("a b c", 0), ("a x c", 1), ("a c", 1), ("a b b c", 1), ("", 3), ("x y z u", 4)],
)
def test_word_errors_are_substitutions_deletions_and_insertions(said: str, errors: int) -> None:
    found = word_errors("a b c", said)
    assert (found.errors, found.words) == (errors, 3)
    assert found.rate == pytest.approx(errors / 3)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Hey Reachy.", True),
        ("Hey Reachy, turn to the left.", True),
        ("Here we go again.", False),
        ("Hey everybody, listen.", False),
        ("Turn to the left, please.", False),
    ],
)
@pytest.mark.parametrize("pitch", [0.8, 1.0])
def test_a_name_is_found_by_its_sound(
    stt: Moonshine, text: str, begins: bool, pitch: float
) -> None:
    """The transcripts are "Aichi" and "I'm reaching"."""
    pcm = spoken_by_pico(text, "en", pitch=pitch)[: 2 * LISTEN_RATE]
    pcm = np.pad(pcm, (LISTEN_RATE // 5, 2 * LISTEN_RATE - len(pcm)))
    assert stt.begins_with(pcm, "Hey Reachy") == begins
    assert stt.begins_with(pcm, "ჰეი რობოტო") is None, "there are no tokens for it"


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Set a timer for five minutes.", ("set_timer", '{"seconds": 300}')),
        ("How much time is left?", ("list_timers", "{}")),
        ("Cancel the timer.", ("cancel_timer", '{"kind": "timer"}')),
        ("What time is it?", ("now", "{}")),
    ],
)
def test_plain_requests_are_understood_as_they_are_heard(
    stt: Moonshine, text: str, call: tuple[str, str]
) -> None:
    pcm = np.pad(spoken_by_pico(text, "en"), LISTEN_RATE // 4)
    rule = Phrases("en", read_clock(ROOT / "config" / "languages")["en"])
    assert rule.call(heard(stt, pcm).text, datetime(2026, 11, 28, 13)) == call


@pytest.mark.parametrize(
    ("above_nats", "begins"),
    [
        ([9.0], True),
        ([-9.0], False),
        ([2.0, -1.0, -3.0, -1.0], False),  # likely only where the first look begins
        ([-1.0, 2.0, 1.0, 0.0], True),
    ],
)
def test_a_doubtful_phrase_is_looked_for_from_several_starts(
    stt: Moonshine, monkeypatch: pytest.MonkeyPatch, above_nats: list[float], begins: bool
) -> None:
    looks = list[int]()

    def log_probability(ear: PhraseEar, pcm: Pcm, texts: list[list[int]]) -> float:
        looks.append(len(pcm))
        least = -FREE_NATS - NATS_PER_TOKEN * min(map(len, texts))
        return least + above_nats[len(looks) - 1]

    monkeypatch.setattr(PhraseEar, "_log_probability", log_probability)
    assert stt.begins_with(np.zeros(2 * LISTEN_RATE, np.int16), "Hey Reachy") is begins
    assert looks == [2 * LISTEN_RATE - n * SHIFT_SAMPLES for n in range(len(above_nats))]


def test_the_longest_utterances_come_out_whole(stt: Moonshine) -> None:
    clip = recording("two_cities")
    twice = np.concatenate((clip.pcm, clip.pcm))
    transcript = heard(stt, twice)
    assert word_errors(f"{clip.text} {clip.text}", transcript.text).rate <= 0.05
    assert heard(stt, *np.split(twice, range(5_000, len(twice), 5_000))) == transcript


SPLITS = {
    "20 ms": list(range(320, 44_000, 320)),
    "one by one at first": [*range(1, 20), 5000],
    "any": sorted(np.random.default_rng(11).integers(0, 44_000, 25).tolist()),
    "empty pieces": [0, 0, 9000, 9000],
}
"""Ends of the pieces of a 2.8 s recording, in samples."""


@pytest.mark.parametrize("name", list(SPLITS))
def test_any_framing_gives_the_same_text(stt: Moonshine, name: str) -> None:
    pieces = np.split(recording("goforward").pcm, SPLITS[name])
    whole = heard(stt, recording("goforward").pcm)
    assert heard(stt, *pieces) == whole
    assert whole.text == GO_FORWARD


def test_an_utterance_continues_after_finish(stt: Moonshine) -> None:
    clip = recording("librivox-0870")
    utterance = stt.open("en", False)
    utterance.feed(clip.pcm[: len(clip.pcm) // 2])
    early = utterance.finish(NEVER)
    assert utterance.finish(NEVER) == early
    utterance.feed(clip.pcm[len(clip.pcm) // 2 :])
    assert utterance.finish(NEVER) == heard(stt, clip.pcm)
    assert len(words(early.text)) < len(words(clip.text))


def test_audio_that_was_fed_may_be_overwritten(stt: Moonshine) -> None:
    borrowed = recording("goforward").pcm.copy()
    utterance = stt.open("en", False)
    utterance.feed(borrowed)
    borrowed[:] = 0
    assert utterance.finish(NEVER).text == GO_FORWARD


def test_an_empty_utterance_has_no_text(stt: Moonshine) -> None:
    assert heard(stt) == Transcript("", 0.0)
    assert heard(stt, EMPTY) == Transcript("", 0.0)


def coughs(count: int) -> Pcm:
    rng = np.random.default_rng(5)
    burst = rng.standard_normal(4000) * np.exp(-np.arange(4000) / 1200) * 12_000
    silence = np.zeros(3200)
    return np.concatenate([silence, *[burst, silence] * count]).astype(np.int16)


def not_speech() -> dict[str, Pcm]:
    noise = np.random.default_rng(5).standard_normal(2 * LISTEN_RATE)
    hum = np.sin(np.arange(2 * LISTEN_RATE) * 2 * np.pi * 120 / LISTEN_RATE)
    return {
        "one sample": np.ones(1, dtype=np.int16),
        "10 ms": np.zeros(160, dtype=np.int16),
        "60 ms": np.zeros(960, dtype=np.int16),
        "5 s of silence": np.zeros(5 * LISTEN_RATE, dtype=np.int16),
        "loud noise": (noise * 3000).astype(np.int16),
        "hum": (hum * 3000).astype(np.int16),
        "a cough": coughs(1),
        "three coughs": coughs(3),
    }


@pytest.mark.parametrize("name", list(not_speech()))
def test_most_non_speech_has_no_text(stt: Moonshine, name: str) -> None:
    """Not all: the model turns quiet noise into sentences. Keeping noise away is the VAD's task."""
    pcm = not_speech()[name]
    assert heard(stt, pcm) == Transcript("", len(pcm) / LISTEN_RATE)


def test_partials_come_at_the_interval_that_was_set(weights: Weights) -> None:
    stt = build(MoonshineOptions(partial_interval_ms=1000), weights("moonshine-tiny-en"))
    clip = recording("librivox-0870")
    utterance = stt.open("en", True)
    texts = [
        utterance.feed(piece).text for piece in np.split(clip.pcm, range(320, 7 * 16_000, 320))
    ]
    seen = [text for text in texts if text]
    assert not any(texts[:49])
    assert texts[49] != "", "after exactly one second"
    assert texts[50] == "", "the same text twice would pass for two passes"
    assert len(seen) == 7
    assert word_errors(clip.text, seen[-1]).rate < 0.2
    assert utterance.finish(NEVER) == heard(stt, clip.pcm)


def test_a_cancelled_finish_does_no_work(stt: Moonshine) -> None:
    utterance = stt.open("en", False)
    utterance.feed(recording("goforward").pcm)
    with pytest.raises(Cancelled):
        utterance.finish(Token(0))
    assert utterance.finish(NEVER).text == GO_FORWARD


def test_another_language_is_an_error_with_a_fix(stt: Moonshine) -> None:
    with pytest.raises(EngineError, match="Set the language to en"):
        stt.open("de", False)


def test_absent_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"encoder_model\.ort is missing"):
        build(MoonshineOptions(), tmp_path)


def test_damaged_weights_are_refused(tmp_path: Path, weights: Weights) -> None:
    for file in weights("moonshine-tiny-en").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot be loaded"):
        build(MoonshineOptions(), tmp_path)


def test_repeated_calls_keep_no_memory(stt: Moonshine) -> None:
    pcm = recording("goforward").pcm

    def work() -> None:
        for samples in range(10_000, 30_000, 1000):
            heard(stt, pcm[:samples])

    work()
    before = psutil.Process().memory_info().rss
    work()
    work()
    assert psutil.Process().memory_info().rss - before < 10e6
