"""The engines that only take their time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from app.settings.load import load_settings
from benchmarks.harness.scripted_engines import (
    NAME,
    Said,
    ScriptedLlm,
    ScriptedOptions,
    ScriptedStt,
    ScriptedTts,
    heard_words,
    installed,
    write_cue,
)
from pipeline.audio import LISTEN_RATE
from pipeline.engines.contract import Finished, TextDelta
from pipeline.engines.registry import Kind, engine_spec
from pipeline.messages import Message, Sampling, SpeechRequest, ToolChoice
from tests.support.recordings import Uncancelled


def test_words_are_heard_when_they_have_been_said() -> None:
    said = [Said(10.0, 11.0, "one two"), Said(12.0, 13.0, "three four")]
    assert heard_words(said, 9.9, 10.3) == ""
    assert heard_words(said, 9.9, 10.4) == "one"
    assert heard_words(said, 9.9, 11.06) == "one two"
    assert heard_words(said, 9.9, 13.06) == "one two three four"
    assert heard_words(said, 12.1, 13.06) == "three four"


def test_they_hear_answer_and_speak(tmp_path: Path) -> None:
    options = ScriptedOptions(cue=tmp_path / "cue", engine=NAME)
    utterance = ScriptedStt(options).open("en", False)
    write_cue(tmp_path / "cue", [Said(0.0, utterance._opened_at, "hello there")])
    utterance.feed(np.zeros(LISTEN_RATE, np.int16))
    assert utterance.finish(Uncancelled()).text == "there."
    asked = [Message("user", "hello there.")]
    reply = ScriptedLlm(options).open().reply(asked, (), ToolChoice(), Sampling(), Uncancelled())
    *deltas, end = [delta for delta in reply if delta]
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert isinstance(end, Finished)
    assert end.usage.prompt == len(["user", "hello", "there."])
    tts = ScriptedTts(options)
    pieces = list(tts.synthesize(SpeechRequest("one two three four"), Uncancelled()))
    assert sum(len(piece) for piece in pieces if piece is not None) == 4 * 0.3 * tts.rate


def test_the_registry_finds_them_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    installed(tmp_path / "plugin")
    for kind in (Kind.STT, Kind.LLM, Kind.TTS):
        spec = engine_spec(kind, NAME)
        assert (spec.kind, spec.name) == (kind, NAME)
        assert spec.build(ScriptedOptions(engine=NAME), None)
    sets = [f"{kind}={{engine: {NAME}, seed: 3}}" for kind in ("stt", "llm", "tts")]
    settings = load_settings(None, sets).settings
    assert settings.tts == ScriptedOptions(engine=NAME, seed=3)
