"""A conversation that switches languages, with the real recogniser, turn detector and server."""

from __future__ import annotations

import os

import pytest

from app.models.weights import WeightsCache
from benchmarks.dialogues import AUTO, TURNS, lines_of, server, talk
from pipeline.engines.stt.whisper import Whisper, WhisperOptions, build
from pipeline.errors import ReachyVoiceError
from tests.support.whisper_weights import whisper_weights

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def stt(cache: WeightsCache) -> Whisper:
    try:
        return build(WhisperOptions(), whisper_weights(cache))
    except ReachyVoiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"whisper-base cannot be had: {error}")


def test_each_dialogue_has_the_same_turns() -> None:
    assert {len(turns) for turns in TURNS.values()} == {3}
    assert [language for language, *_ in lines_of(AUTO)] == [*TURNS, *TURNS]


@pytest.mark.real
async def test_a_german_and_then_a_spanish_question(cache: WeightsCache, stt: Whisper) -> None:
    lines = [lines_of(AUTO)[4], lines_of(AUTO)[6]]
    async with server(AUTO, "pico", [line[2] for line in lines], cache) as url:
        turns = await talk(url, lines, stt)
    assert [turn.language for turn in turns] == ["de", "es"]
    for turn in turns:
        assert turn.hearing_errors.rate <= 0.35, turn
        assert turn.answered
        # In the voice of another language, hardly a word would be recognised.
        assert turn.speech_errors.rate <= 0.35, turn
