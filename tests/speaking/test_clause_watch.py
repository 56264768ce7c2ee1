"""Whether sound is still speech: lists in, verdicts out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import EMPTY, Pcm
from pipeline.events import FaultKind
from pipeline.messages import SpeechRequest
from pipeline.speaking.clause_watch import ClauseWatch, Fault
from pipeline.work import NEVER
from tests.support.moody_voice import RATE, S_PER_CHAR, hiss, hum, loop, speechlike

pytestmark = pytest.mark.engines

TEXT = "I would like to tell you a story about a robot and a very small dog."


def watch(text: str = TEXT, *, rate: int = RATE, known: bool = True) -> ClauseWatch:
    return ClauseWatch(text, rate, S_PER_CHAR, measured=known)


def verdict(pcm: Pcm, text: str = TEXT, *, rate: int = RATE, known: bool = True) -> Fault | None:
    follows = watch(text, rate=rate, known=known)
    return follows.feed(pcm) or follows.finish()


def silence(seconds: float, rate: int = RATE) -> Pcm:
    return np.zeros(round(seconds * rate), np.int16)


def speech(text: str = TEXT, rate: int = RATE) -> Pcm:
    return speechlike(len(text) * S_PER_CHAR, 3, rate)


@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000, 48_000])
def test_speech_is_speech(rate: int) -> None:
    assert verdict(speech(rate=rate), rate=rate) is None


FAULTS: dict[str, tuple[FaultKind, Callable[[float, int], Pcm]]] = {
    "hum": ("gibberish", hum),
    "hiss": ("gibberish", hiss),
    "silence": ("silence", silence),
    "loop": ("repetition", loop),
}


@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000])
@pytest.mark.parametrize("fine_s", [0.0, 1.7])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_known_within_a_second(name: str, fine_s: float, rate: int) -> None:
    kind, make = FAULTS[name]
    fine = speech(rate=rate)[: round(fine_s * rate)]
    fault = verdict(np.concatenate((fine, make(5.0, rate))), rate=rate)
    assert fault
    assert fault.kind == kind
    # A loop is a fault from its second copy on.
    begins_s = fine_s + (0.9 if name == "loop" else 0.0)
    assert begins_s < fault.known_s <= begins_s + 1.0
    assert abs(fault.since_s - begins_s) <= 0.25


def test_speech_that_does_not_end_is_cut() -> None:
    fault = verdict(speechlike(60.0, 4))
    assert fault
    assert fault.kind == "runaway"
    expected_s = watch().expected_s
    assert expected_s == pytest.approx(len(TEXT) * S_PER_CHAR, rel=0.1)
    assert abs(fault.since_s - expected_s) < 0.1
    assert fault.known_s < 1.3 * expected_s + 1.0
    # The voice's pace is unknown: it may be set to a quarter.
    lenient = verdict(speechlike(60.0, 4), known=False)
    assert lenient
    assert lenient.known_s > 4 * expected_s


def test_numbers_and_units_may_take_longer() -> None:
    assert verdict(speechlike(6.0, 4), "XVF3800: 16000 Hz & 4 °C.") is None
    assert verdict(speechlike(6.0, 4), "An old man and a dog go.")


def test_a_repetitive_text_may_sound_repetitive() -> None:
    again = "no no no no no no no no no no no no no no no no."
    said = np.tile(speechlike(0.6, 5), 5)
    assert verdict(said, again) is None
    assert verdict(said) is not None


@pytest.mark.parametrize("word_s", [0.15, 0.2, 0.25])
def test_a_list_with_equal_pauses_is_not_a_repetition(word_s: float) -> None:
    """Different short words with equal pauses: only the loudness repeats."""
    text = "red, green, blue, black, white, brown, pink, grey, and gold."
    words = [np.concatenate((speechlike(word_s, 20 + n), silence(0.3))) for n in range(9)]
    assert verdict(np.concatenate(words), text) is None


def test_silence_is_a_fault_for_words_and_not_for_signs() -> None:
    for pcm in (EMPTY, silence(0.3)):
        fault = verdict(pcm)
        assert fault
        assert fault.kind == "silence"
        assert verdict(pcm, "… !") is None


def test_a_verdict_of_fault_is_final() -> None:
    follows = watch()
    first = follows.feed(hum(2.0))
    assert first
    assert follows.feed(speech()) is first


SOUNDS = (
    *(hum(0.5), hiss(0.5), silence(0.5), loop(2.2), speechlike(1.5, 8), speechlike(0.7, 9)),
    *(hum(1.2), silence(1.0)),
)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(range(len(SOUNDS))), min_size=1, max_size=5),
    st.lists(st.integers(1, 20_000), max_size=12),
)
def test_any_chunks_give_the_same_verdict(sounds: list[int], sizes: list[int]) -> None:
    pcm = np.concatenate([SOUNDS[n] for n in sounds])
    whole = verdict(pcm)
    follows, at = watch(), 0
    for size in (*sizes, len(pcm)):
        follows.feed(pcm[at : at + size])
        at += size
    assert (follows.fault or follows.finish()) == whole


@pytest.mark.real
def test_real_voices_speak(weights: Callable[[str], Path]) -> None:
    from pipeline.engines.tts.espeak_ng import EspeakOptions
    from pipeline.engines.tts.espeak_ng import build as build_espeak
    from pipeline.engines.tts.piper import PiperOptions
    from pipeline.engines.tts.piper import build as build_piper

    piper = build_piper(PiperOptions(), weights("piper-joe"))
    espeak = build_espeak(EspeakOptions(), None)
    for text in (
        TEXT,
        "Yes.",
        "Hmm, let me think.",
        "No, no, no, no!",
        "Tick tock, tick tock, tick tock, says the old clock.",
        "One, two, three, four, five, six, seven.",
    ):
        for tts in (piper, espeak):
            chunks = tts.synthesize(SpeechRequest(text), NEVER)
            pcm = np.concatenate((EMPTY, *(each for each in chunks if each is not None)))
            assert verdict(pcm, text, rate=tts.rate) is None, text
            at = min(len(pcm) // 2, tts.rate)
            hummed = np.concatenate((pcm[:at], hum(3.0, tts.rate)))
            fault = verdict(hummed, text, rate=tts.rate)
            assert fault
            assert fault.kind == "gibberish"
            assert fault.known_s <= at / tts.rate + 1.0
