"""espeak-ng, the real program: intelligible, stoppable, with a clear message if absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.wer import total, word_errors
from pipeline.audio import LISTEN_RATE
from pipeline.engines.stt import moonshine
from pipeline.engines.tts.espeak_ng import CHUNK_SAMPLES, Espeak, EspeakOptions, build
from pipeline.errors import EngineError
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER, Cancelled
from tests.support.places import Weights
from tests.support.recordings import QUESTIONS, Token, heard, spoken, synthesize

pytestmark = pytest.mark.engines

LONG = "This is a rather long sentence, said only to be interrupted. " * 60

needs_espeak = pytest.mark.skipif(
    shutil.which("espeak-ng") is None and not os.environ.get("CI"),
    reason="espeak-ng is absent; run: apt-get install espeak-ng",
)


@pytest.fixture(scope="module")
def espeak() -> Espeak:
    return build(EspeakOptions(), None)


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if each.name() == "espeak-ng"]


@pytest.mark.real
@needs_espeak
def test_its_speech_is_intelligible(espeak: Espeak, weights: Weights) -> None:
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    clips = spoken(espeak, "en-us", QUESTIONS)
    texts = {clip.text: heard(stt, clip.pcm).text for clip in clips}
    assert total(word_errors(*pair) for pair in texts.items()).rate <= 0.2, texts


@needs_espeak
def test_chunks_are_small_whole_samples(espeak: Espeak) -> None:
    chunks = list(espeak.synthesize(SpeechRequest("Hello there."), NEVER))
    assert chunks
    for chunk in chunks:
        assert chunk is not None
        assert chunk.dtype == np.int16
        assert 0 < len(chunk) <= CHUNK_SAMPLES + 1


@needs_espeak
@pytest.mark.parametrize("text", ["", "  ", "?!", "***", "😀"])
def test_text_without_words_is_silent(espeak: Espeak, text: str) -> None:
    assert list(espeak.synthesize(SpeechRequest(text), NEVER)) == []


@needs_espeak
@pytest.mark.parametrize(
    "text", ["-v de", "[[hello", "a\0b", "日本語", "<b>bold</b>", "$(id) `id`"]
)
def test_odd_text_is_only_text(espeak: Espeak, text: str) -> None:
    assert len(synthesize(espeak, text)) > LISTEN_RATE // 10


@needs_espeak
def test_a_text_larger_than_the_pipes_is_spoken_whole(espeak: Espeak) -> None:
    half = synthesize(espeak, LONG)
    whole = synthesize(espeak, LONG + LONG)
    assert len(LONG) * 2 > 7000
    assert 1.9 < len(whole) / len(half) < 2.1


@needs_espeak
def test_cancel_kills_the_program(espeak: Espeak) -> None:
    switch = Token()
    chunks = espeak.synthesize(SpeechRequest(LONG), switch)
    assert next(chunks) is not None
    assert len(children()) == 1
    switch.cancel_after = 0
    with pytest.raises(Cancelled):
        next(chunks)
    assert children() == []


@needs_espeak
def test_voices_speed_and_the_fallback() -> None:
    text = "Twenty one green bottles."
    usual = synthesize(build(EspeakOptions(), None), text)
    quick = build(EspeakOptions(words_per_minute=330), None)
    assert {"en-us", "de", "fr-fr"} <= set(quick.voices)
    assert len(synthesize(quick, text)) < 0.75 * len(usual)
    np.testing.assert_array_equal(
        synthesize(quick, text, "no-such-voice"), synthesize(quick, text, "en-us")
    )
    german, female = synthesize(quick, text, "de"), synthesize(quick, text, "en-us+f3")
    assert not np.array_equal(german, female)


@needs_espeak
def test_an_unknown_default_voice_is_an_error() -> None:
    with pytest.raises(EngineError, match="espeak-ng --voices"):
        build(EspeakOptions(voice="klingon"), None)


def test_an_absent_program_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="apt-get install espeak-ng"):
        build(EspeakOptions(), None)


def test_a_program_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "espeak-ng"
    fake.write_text("#!/bin/sh\ncat > /dev/null\nexit 3\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EngineError, match="exit status 3"):
        list(Espeak(EspeakOptions(), ["en-us"]).synthesize(SpeechRequest("Hello."), NEVER))


@needs_espeak
def test_the_wav_header_is_not_played(espeak: Espeak) -> None:
    """Read as samples, "RIFF" is a loud click where there should be silence."""
    first = next(espeak.synthesize(SpeechRequest("Hello there."), NEVER))
    assert first is not None
    assert np.abs(first[:10].astype(int)).max() < 200
