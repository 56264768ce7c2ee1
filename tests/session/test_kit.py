"""The test kit as other projects use it: the scene of docs/contributing.md, third-party engines."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.errors import EngineError
from reachy_voice.engines import Kind
from reachy_voice.testing import ScriptedStt, commands, events, play, say, silence, stage, write

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
QUESTION = (say(1.0), silence(3.0))


def example(path: str) -> Any:
    """A module from ``examples``, which is not on the path."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / path)))


def test_the_documented_scene_runs() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    names["test_a_question_is_answered"]()


def test_a_third_party_voice_speaks() -> None:
    chirping = example("chirping_voice/chirping_voice.py")
    voice = chirping.ChirpingVoice(chirping.Options())
    played = play(*QUESTION, silence(2.0), tts=stage(Kind.TTS, voice))
    assert played.statuses == ["completed"]
    pcm = np.concatenate([event.pcm for event in played.events(events.ReplyAudio)])
    assert np.abs(pcm.astype(int)).max() > 4000
    assert played.audio_s > 1.0


def test_a_third_party_model_answers() -> None:
    parrot = example("parrot/parrot.py").Parrot()
    stt = ScriptedStt(("I like crackers.",))
    played = play(*QUESTION, stt=stt, llm=stage(Kind.LLM, parrot))
    assert played.chat[-1] == ("assistant", "You said: I like crackers.")
    written = play(
        write("Polly?"), commands.CreateResponse(), silence(2.0), llm=stage(Kind.LLM, parrot)
    )
    assert "".join(written.words) == "You said: Polly?"


def test_a_third_party_recogniser_listens() -> None:
    claps = example("parrot/clap_counter.py")
    options = SimpleNamespace(loud=2000)
    played = play(*QUESTION, stt=stage(Kind.STT, claps.build(options, None)))
    assert played.transcripts == ["one"]


def test_an_incomplete_engine_is_refused() -> None:
    with pytest.raises(EngineError, match="could not be built"):
        stage(Kind.TTS, object())


class NumberlessTurn:
    """Divides by zero."""

    rate, history_seconds = 16_000, 8.0

    def score(self, pcm: Pcm, text: str) -> float:
        return math.nan


class NumberlessVad:
    """Divides by the level, which is 0 in digital silence."""

    rate, window_samples, least_movement_db = 16_000, 512, 0.0

    def open(self) -> NumberlessVad:
        return self

    def score(self, pcm: Pcm) -> float:
        return 1.0 if pcm.any() else math.nan


def test_engines_whose_scores_are_no_numbers_end_no_session() -> None:
    turn, vad = stage(Kind.TURN, NumberlessTurn()), stage(Kind.VAD, NumberlessVad())
    played = play(*[say(1.0), silence(3.0)] * 2, turn=turn, vad=vad)
    assert played.statuses == ["completed"] * 2
