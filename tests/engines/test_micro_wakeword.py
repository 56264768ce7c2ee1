"""The real wake word engine: calls by packaged voices, and invalid model files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.doctor.checks import check_wake
from app.models import wake_word as wake_words
from app.settings.load import load_settings
from benchmarks.harness.heard_speech import run_program
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE
from pipeline.commands import AppendAudio
from pipeline.engines.vad.silero import SileroVad
from pipeline.engines.wake import micro_wakeword
from pipeline.errors import ConfigError, MissingExtra, ReachyVoiceError, WeightsError
from pipeline.events import FellAsleep, Woke
from pipeline.settings import Echo, SessionSettings, Wake
from reachy_voice.testing import Scene, ScriptedStt, run_virtual, scene
from tests.support.recordings import recording

pytestmark = pytest.mark.engines
pytest.importorskip("pymicro_wakeword")

Spoil = Callable[[Path, Path], object]


def copy_model(folder: Path) -> tuple[Path, Path]:
    """A call's JSON file and its model."""
    (builtin,) = [micro_wakeword._config("okay_nabu")]
    model = folder / "okay_nabu.tflite"
    model.write_bytes((builtin.parent / model.name).read_bytes())
    config = folder / "mine.json"
    config.write_text(builtin.read_text())
    return config, model


@pytest.mark.parametrize("voice", ["flite slt", "espeak-ng en-us"])
def test_it_hears_its_call_and_nothing_else(voice: str, tmp_path: Path) -> None:
    engine = micro_wakeword.load(None)
    assert engine.calls == ["Okay Nabu"]
    second = np.zeros(LISTEN_RATE, np.int16)
    for text, called in (("Okay Nabu.", True), ("The weather is nice.", False)):
        stream = engine.open()
        pcm = np.concatenate((second, run_program(voice, text), second))
        heard = [stream.called(pcm[at : at + 512]) for at in range(0, len(pcm), 512)]
        assert any(heard) is called


@pytest.mark.parametrize(
    ("word", "call"),
    [("hey_jarvis", "Hey Jarvis."), ("hey_mycroft", "Hey Mycroft."), ("alexa", "Alexa.")],
)
def test_each_call_of_the_package_is_heard(word: str, call: str) -> None:
    second = np.zeros(LISTEN_RATE, np.int16)
    pcm = np.concatenate((second, run_program("flite awb", call), second))
    heard = [micro_wakeword.load([name]).open().called(pcm) for name in (word, "okay_nabu")]
    assert heard == [True, False]


def test_a_sleeping_session_answers_nobody_but_who_calls_it(vad: SileroVad) -> None:
    """Recordings of people, and then the call and a question in one breath."""
    talk = [recording(name).pcm for name in ("goforward", "something", "beckett")]
    asked = run_program("flite slt", "Okay Nabu, what time is it?")
    pause = np.zeros(LISTEN_RATE, np.int16)
    pcm = np.concatenate([*(each for pcm in talk for each in (pcm, pause)), asked, pause, pause])
    stt = ScriptedStt(("Okay Nabu, what time is it?",))
    settings = SessionSettings(wake=Wake(mode="word"), echo=Echo(cancel="never"))

    word = micro_wakeword.load(None)

    async def main() -> Scene:
        async with scene(settings=settings, stt=stt, vad=InlineVad(vad), wake_word=word) as played:
            played.began = played.loop.time()
            for at in range(0, len(pcm), 320):
                await played.session.submit(AppendAudio(pcm[at : at + 320], LISTEN_RATE))
                await played.sleep_until(at / LISTEN_RATE)
        return played

    played: Scene = run_virtual(main())
    told = [event for _, event in played.log]
    assert [type(event) for event in told[:2]] == [FellAsleep, Woke]
    assert played.time_of(Woke) - played.began > sum(map(len, talk)) / LISTEN_RATE + 3
    assert played.transcripts == ["Okay Nabu, what time is it?"]
    (heard,) = stt.finished
    assert len(asked) - len(heard) < 0.2 * LISTEN_RATE, "no word is lost"


def test_a_custom_model_is_loaded(tmp_path: Path) -> None:
    config, _ = copy_model(tmp_path)
    assert micro_wakeword.load([str(config), "alexa"]).calls == ["Okay Nabu", "Alexa"]


def _other_fields(config: Path, model: Path) -> None:
    config.write_text(json.dumps({"wake_word": "x"}))


def _with(**fields: object) -> Spoil:
    def spoil(config: Path, model: Path) -> None:
        described = json.loads(config.read_text())
        micro = described["micro"]
        micro |= {key: value for key, value in fields.items() if key in micro}
        config.write_text(json.dumps(described | {"micro": micro} | fields))

    return spoil


SPOILT: dict[str, Spoil] = {
    "no JSON": lambda config, model: config.write_text("{"),
    "other fields": _other_fields,
    "no model": lambda config, model: model.unlink(),
    "empty": lambda config, model: model.write_bytes(b""),
    "text": lambda config, model: model.write_bytes(b"hello" * 1000),
    "cut": lambda config, model: model.write_bytes(model.read_bytes()[:30_000]),
    "zeros": lambda config, model: model.write_bytes(model.read_bytes()[:8] + bytes(50_000)),
    "no window": _with(sliding_window_size=0),
    "window in quotes": _with(sliding_window_size="5"),
    "huge window": _with(sliding_window_size=10**30),
    "cutoff in quotes": _with(probability_cutoff="0.97"),
    "cutoff in percent": _with(probability_cutoff=97),
    "cutoff that is no number": _with(probability_cutoff=float("nan")),
    "no words": _with(wake_word=" "),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_an_invalid_model_file_is_reported(spoil: Spoil, tmp_path: Path) -> None:
    config, model = copy_model(tmp_path)
    spoil(config, model)
    with pytest.raises(WeightsError, match=r"mine\.json cannot be used"):
        micro_wakeword.load([str(config)])


def test_a_model_file_that_is_replaced_meanwhile_is_not_read_again(tmp_path: Path) -> None:
    config, model = copy_model(tmp_path)
    engine = micro_wakeword.load([str(config)])
    config.unlink()
    model.write_bytes(b"half a fi")
    pcm = np.pad(run_program("flite slt", "Okay Nabu."), LISTEN_RATE)
    assert engine.open().called(pcm)


@pytest.mark.parametrize("word", ["hey_reachy", "models/mine.json"])
def test_an_unknown_name_lists_the_known_ones(word: str) -> None:
    with pytest.raises(ConfigError, match="alexa") as refused:
        micro_wakeword.load([word])
    assert "phrase" in refused.value.fix


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_wakeword, "PACKAGE", "not_installed_here")
    with pytest.raises(MissingExtra, match="reachy-voice setup"):
        micro_wakeword.load(None)


@pytest.mark.parametrize(
    ("sets", "state"),
    [
        ([], None),
        (["wake.mode=touch"], None),
        (["wake.mode=word"], "ok"),
        (["wake.mode=word", "wake.words=[bob]"], "fail"),
        (["wake.mode=word", "wake.engine=phrase"], "ok"),
        (["wake.mode=word", "wake.engine=phrase", "wake.words=[Bob]"], "fail"),
    ],
)
def test_the_doctor_checks_the_wake_words(sets: list[str], state: str | None) -> None:
    settings = load_settings(None, sets, {}).settings
    assert [check.state for check in check_wake(settings)] == ([state] if state else [])
    if state == "fail":
        with pytest.raises(ReachyVoiceError):
            wake_words.wake_word(settings)
