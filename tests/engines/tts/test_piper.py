"""Piper, the real voice: it is intelligible and stops when told to."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.wer import total, word_errors
from pipeline.audio import Pcm
from pipeline.engines.registry import Kind, engine_spec
from pipeline.engines.stt import moonshine
from pipeline.engines.tts.piper import Piper, PiperOptions, build, find_models
from pipeline.errors import ConfigError, WeightsError
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER, Cancelled
from tests.support.places import Weights
from tests.support.recordings import QUESTIONS, Token, heard, spoken, synthesize

pytestmark = [pytest.mark.engines, pytest.mark.real]

TWO_SENTENCES = "The light is red. Please wait here."


@pytest.fixture(scope="module")
def piper(weights: Weights) -> Piper:
    return build(PiperOptions(), weights("piper-joe"))


@pytest.fixture(scope="module")
def stt(weights: Weights) -> moonshine.Moonshine:
    return moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))


def test_its_speech_is_intelligible(piper: Piper, stt: moonshine.Moonshine) -> None:
    clips = spoken(piper, "joe", QUESTIONS)
    assert all(clip.synthetic for clip in clips)
    texts = {clip.text: heard(stt, clip.pcm).text for clip in clips}
    assert total(word_errors(*pair) for pair in texts.items()).rate <= 0.08, texts


def whole(piper: Piper, text: str, voice: str = "") -> Pcm:
    """The speech for ``text``, at the voice's rate."""
    chunks = piper.synthesize(SpeechRequest(text, voice), NEVER)
    return np.concatenate([chunk for chunk in chunks if chunk is not None])


def test_a_sentence_begins_before_it_is_complete(piper: Piper, stt: moonshine.Moonshine) -> None:
    said = piper.synthesize(SpeechRequest(TWO_SENTENCES, "joe"), NEVER)
    chunks = [chunk for chunk in said if chunk is not None]
    assert {chunk.dtype for chunk in chunks} == {np.dtype(np.int16)}
    assert len(chunks) >= 4
    assert piper.rate == 22_050
    assert 0.1 < len(chunks[0]) / piper.rate < 0.8
    assert word_errors(TWO_SENTENCES, heard(stt, synthesize(piper, TWO_SENTENCES)).text).errors <= 1


@pytest.mark.parametrize("text", ["", "   ", "...", "!?", "* # _", "😀", "—"])
def test_text_without_words_is_silent(piper: Piper, text: str) -> None:
    assert list(piper.synthesize(SpeechRequest(text, "joe"), NEVER)) == []


@pytest.mark.parametrize("text", ["日本語", "[[hello]]", "a\0b", "x" * 300, "<speak>hi</speak>"])
def test_odd_text_makes_some_sound(piper: Piper, text: str) -> None:
    assert len(synthesize(piper, text)) > 0


def test_brackets_are_not_phonemes(piper: Piper, stt: moonshine.Moonshine) -> None:
    text = "The [[green]] light is on."
    assert word_errors(text, heard(stt, synthesize(piper, text)).text).errors <= 1


def test_short_and_long_sentences_are_equally_loud(piper: Piper) -> None:
    """If each were normalised to full level, short ones would be louder."""
    levels = []
    for text in ("Yes.", "Stop!", "The weather is fine today, and it will stay so for a while."):
        pcm = whole(piper, text).astype(float)
        assert np.abs(pcm).max() < 32767
        levels.append(float(np.sqrt((pcm[np.abs(pcm) > 300] ** 2).mean())))
    assert max(levels) < 2.5 * min(levels)


def test_cancel_stops_within_a_sentence(piper: Piper) -> None:
    switch = Token()
    chunks = piper.synthesize(SpeechRequest(TWO_SENTENCES, "joe"), switch)
    assert next(chunks) is not None
    switch.cancel_after = 0
    with pytest.raises(Cancelled):
        next(chunks)


def test_speed(piper: Piper, weights: Weights) -> None:
    quick = build(PiperOptions(speed=2.0), weights("piper-joe"))
    text = "The weather is fine today."
    assert 0.35 < len(whole(quick, text)) / len(whole(piper, text)) < 0.7


def test_voices_are_named_after_their_files(tmp_path: Path) -> None:
    stems = ["en_US-amy-low", "en_US-joe-high", "en_US-joe-medium", "mine"]
    for stem in stems:
        (tmp_path / f"{stem}.onnx").touch()
    assert {name: path.stem for name, path in find_models(tmp_path).items()} == {
        "amy": "en_US-amy-low",
        "en_US-joe-high": "en_US-joe-high",
        "en_US-joe-medium": "en_US-joe-medium",
        "mine": "mine",
    }


def test_a_voice_with_another_rate_comes_at_the_engines_rate(
    tmp_path: Path, weights: Weights
) -> None:
    """The second voice's description claims half the rate, so its audio lasts twice as long."""
    model = weights("piper-joe") / "en_US-joe-medium.onnx"
    description = Path(f"{model}.json").read_text(encoding="utf-8")
    for stem, rate in (("en_US-joe-medium", "22050"), ("en_US-slow-medium", "11025")):
        shutil.copy(model, tmp_path / f"{stem}.onnx")
        written = description.replace("22050", rate)
        (tmp_path / f"{stem}.onnx.json").write_text(written, encoding="utf-8")
    piper = build(PiperOptions(), tmp_path)
    text = "The weather is fine today."
    usual, slow = whole(piper, text, "joe"), whole(piper, text, "slow")
    assert 1.5 < len(slow) / len(usual) < 2.6


def test_an_unknown_default_voice_is_an_error_that_names_the_others(weights: Weights) -> None:
    with pytest.raises(ConfigError, match="known are: joe"):
        build(PiperOptions(voice="jo"), weights("piper-joe"))


def test_absent_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="models pull"):
        build(PiperOptions(), tmp_path)


def test_damaged_weights_are_refused(tmp_path: Path, weights: Weights) -> None:
    (tmp_path / "en_US-joe-medium.onnx").write_bytes(b"no network")
    with pytest.raises(WeightsError, match=r"joe-medium\.onnx\.json is missing"):
        build(PiperOptions(), tmp_path)
    (tmp_path / "en_US-joe-medium.onnx.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"\.json cannot be loaded"):
        build(PiperOptions(), tmp_path)


def test_spoken_text_is_not_logged(piper: Piper, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        synthesize(piper, "My secret is safe.")
    assert "secret" not in caplog.text


def test_the_server_does_not_import_gpl_code() -> None:
    check = "import sys, pipeline.engines.tts.piper; sys.exit('piper' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
    assert engine_spec(Kind.TTS, "piper").run_in == "process"
