"""The engines that only take their time."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.settings.load import load_settings
from benchmarks.harness import scripted_engines
from benchmarks.harness.scripted_engines import (
    LLM_COLD_FACTOR,
    LLM_FIRST_TOKEN_S,
    NAME,
    STT_FINAL_S,
    TTS_START_S,
    TTS_STEP_AUDIO_S,
    TTS_STEP_S,
    Delays,
    Said,
    ScriptedOptions,
    heard_words,
    installed,
    write_cue,
)
from benchmarks.harness.scripted_engines import (
    ScriptedLlm as SlowLlm,
)
from benchmarks.harness.scripted_engines import (
    ScriptedStt as SlowStt,
)
from benchmarks.harness.scripted_engines import (
    ScriptedTts as SlowTts,
)
from pipeline.audio import LISTEN_RATE
from pipeline.engines.contract import Finished, TextDelta
from pipeline.engines.registry import Kind, engine_spec
from pipeline.messages import Message, Sampling, SpeechRequest, ToolChoice, Usage
from pipeline.work import Cancelled

# --- engines -----------------------------------------------------------------------------------


class Clock:
    """Time that only sleeping passes; 1.05 times as long as asked, as on a real machine."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds * 1.05


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scripted_engines, "time", clock)
    steady = types.SimpleNamespace(
        lognormvariate=lambda mean, deviation: 1.0, uniform=lambda low, high: low
    )
    monkeypatch.setattr(scripted_engines.random, "Random", lambda seed: steady)
    monkeypatch.setattr(Delays.__init__, "__defaults__", (clock.sleep,))
    return clock


class Token:
    preempted = False

    def __init__(self, cancelled_after: int = 10**9) -> None:
        self._left = cancelled_after

    @property
    def cancelled(self) -> bool:
        self._left -= 1
        return self._left < 0


def test_words_are_heard_when_they_have_been_said() -> None:
    said = [Said(10.0, 11.0, "one two"), Said(12.0, 13.0, "three four")]
    assert heard_words(said, 9.9, 10.3) == ""
    assert heard_words(said, 9.9, 10.4) == "one"
    assert heard_words(said, 9.9, 11.06) == "one two"
    assert heard_words(said, 9.9, 13.06) == "one two three four"
    assert heard_words(said, 12.1, 13.06) == "three four"


def test_the_recogniser_takes_its_time_and_knows_what_was_said(
    clock: Clock, tmp_path: Path
) -> None:
    options = ScriptedOptions(cue=tmp_path / "cue", engine=NAME)
    write_cue(tmp_path / "cue", [Said(100.0, 100.5, "hello there")])
    stt = SlowStt(options)
    utterance = stt.open("en", False)
    clock.now = 100.5
    utterance.feed(np.zeros(LISTEN_RATE, np.int16))
    transcript = utterance.finish(Token())
    assert (transcript.text, transcript.seconds) == ("hello there.", 1.0)
    assert clock.now - 100.5 == pytest.approx(STT_FINAL_S, abs=0.002)
    with pytest.raises(Cancelled):
        utterance.finish(Token(cancelled_after=1))


def reply(session: Any, *said: str, cancel: Token | None = None) -> tuple[str, Usage]:
    roles = itertools.cycle(("user", "assistant"))
    messages = [Message(role, text) for role, text in zip(roles, said, strict=False)]
    deltas = list(session.reply(messages, (), ToolChoice(), Sampling(), cancel or Token()))
    assert isinstance(deltas[-1], Finished)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    return text, deltas[-1].usage


def test_a_prompt_that_was_read_before_takes_a_fraction(clock: Clock) -> None:
    session = SlowLlm(ScriptedOptions(engine=NAME)).open()
    long = "word " * 100
    began = clock.now
    answer, usage = reply(session, long)
    words = len(answer.split())
    token_s = 1 / scripted_engines.LLM_TOKENS_PER_S[0]
    cold_s = clock.now - began - (words - 1) * token_s
    assert cold_s == pytest.approx(LLM_FIRST_TOKEN_S * LLM_COLD_FACTOR, rel=0.1)
    assert (usage.cached, usage.prompt) == (0, 101)
    began = clock.now
    answer, usage = reply(session, long, answer, "And now?")
    warm_s = clock.now - began - (len(answer.split()) - 1) * token_s
    assert warm_s == pytest.approx(LLM_FIRST_TOKEN_S, rel=0.2)
    assert usage.evaluated == len(["user", "And", "now?"]) + 1 + words  # the role before the answer


def test_the_first_speech_comes_after_two_steps(clock: Clock) -> None:
    tts = SlowTts(ScriptedOptions(engine=NAME))
    began = clock.now
    pieces = tts.synthesize(SpeechRequest("one two three four"), Token())
    slices = list(itertools.takewhile(lambda piece: piece is None, pieces))
    assert slices == [None]
    assert clock.now - began == pytest.approx(TTS_START_S + 2 * TTS_STEP_S, rel=0.1)
    rest = sum(len(piece) for piece in pieces if piece is not None) / tts.rate
    assert rest == pytest.approx(4 * scripted_engines.SECONDS_PER_WORD - 2 * TTS_STEP_AUDIO_S)


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
