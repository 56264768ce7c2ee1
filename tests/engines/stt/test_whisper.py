"""Whisper, the real model: several languages, and what is not speech."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from app.models.weights import WeightsCache
from benchmarks.wer import measure, total, word_errors
from pipeline.audio import LISTEN_RATE
from pipeline.engines.contract import Transcript
from pipeline.engines.stt.whisper import (
    SHORTEST_WINDOW_SAMPLES,
    Whisper,
    WhisperOptions,
    build,
    text_of,
)
from pipeline.errors import EngineError, ReachyVoiceError, WeightsError
from pipeline.work import Cancelled
from tests.support.pico import spoken_by_pico
from tests.support.recordings import Token, heard, real_recordings, recording
from tests.support.whisper_weights import whisper_weights

pytestmark = [pytest.mark.engines, pytest.mark.real]

SPOKEN = {
    "de": "Kannst du mir sagen, wie das Wetter morgen in Berlin wird?",
    "en": "Can you tell me what the weather will be like tomorrow?",
    "es": "Cuéntame algo sobre la historia de Madrid.",
    "fr": "Où est la gare, s'il te plaît ?",
    "it": "Dimmi qualcosa sulla storia di Roma.",
}


@pytest.fixture(scope="module")
def folder(cache: WeightsCache) -> Path:
    try:
        return whisper_weights(cache)
    except ReachyVoiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"whisper-base cannot be had: {error}")


@pytest.fixture(scope="module")
def stt(folder: Path) -> Whisper:
    return build(WhisperOptions(), folder)


def test_tokens_are_bytes() -> None:
    assert text_of(["<|startoftranscript|>", "ĠWie", "Ġsp", "Ã", "¤", "t", "?"]) == "Wie spät?"
    assert text_of(["Ã"]) == "", "half a letter"


@pytest.mark.parametrize(("language", "text"), SPOKEN.items())
def test_each_language_is_recognised_and_reported(stt: Whisper, language: str, text: str) -> None:
    pcm = np.pad(spoken_by_pico(text, language), 4000)
    for given in ("", language):
        found = heard(stt, pcm, language=given)
        assert word_errors(text, found.text).rate <= 0.2, found
        assert found.language == language
        assert found.seconds == len(pcm) / LISTEN_RATE


def test_people_are_understood(stt: Whisper) -> None:
    results = measure(stt, real_recordings())
    assert total(each.errors for each in results).rate <= 0.06


def test_a_long_utterance_comes_out_whole(stt: Whisper) -> None:
    clip = recording("two_cities")
    assert len(clip.pcm) > 3 * SHORTEST_WINDOW_SAMPLES
    assert word_errors(clip.text, heard(stt, clip.pcm).text).rate <= 0.1


@pytest.mark.parametrize("level", [0, 300, 3000])
def test_noise_is_no_speech(stt: Whisper, level: int) -> None:
    noise = np.random.default_rng(1).normal(0, level, 2 * LISTEN_RATE).astype(np.int16)
    assert heard(stt, noise, language="") == Transcript("", 2.0)
    assert heard(stt, noise[:0], language="") == Transcript("", 0.0)


def test_an_unsure_language_is_not_reported(stt: Whisper) -> None:
    hum = (3000 * np.sin(np.arange(LISTEN_RATE) / 20)).astype(np.int16)
    assert heard(stt, hum, language="").language == ""


def test_cancelled_passes_and_unknown_languages_are_errors(stt: Whisper) -> None:
    with pytest.raises(Cancelled):
        stt.open("de", False).finish(Token(0))
    stt.open("pl", False)
    with pytest.raises(EngineError, match="cannot recognise the language 'tlh'"):
        stt.open("tlh-QO", False)


def test_options_and_files_are_checked(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not know tlh"):
        build(WhisperOptions(languages=("de", "tlh")), folder)
    for name in ("config.json", "vocabulary.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(WeightsError):
        build(WhisperOptions(), tmp_path)
    (tmp_path / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(WeightsError):
        build(WhisperOptions(), tmp_path)
