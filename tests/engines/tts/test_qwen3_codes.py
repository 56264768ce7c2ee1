"""Qwen3-TTS without its network: limits, codes without speech, options, directories."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.contract import NotSpeech
from pipeline.engines.tts.qwen3_codes import CodeWatch, language_name, most_frames, without_controls
from pipeline.engines.tts.qwen3_tts import Qwen3TtsOptions, build, check_directory
from pipeline.errors import ConfigError, ReachyVoiceError, WeightsError

pytestmark = pytest.mark.quick

LADDER = {2: 64, 5: 50, 10: 100, 20: 160}
"""Words, and the token limits that other projects found sufficient."""


@pytest.mark.parametrize("words", LADDER)
def test_a_clause_may_have_the_usual_number_of_tokens(words: int) -> None:
    text = " ".join(itertools.islice(itertools.cycle(("listen", "to", "their", "story")), words))
    assert LADDER[words] <= most_frames(text) <= 2.5 * LADDER[words]


def test_a_repeated_code_is_not_speech() -> None:
    watch = CodeWatch()
    for code in (1, 2, 3, *[4] * 11, 5, *[4] * 11):
        watch.take(code)
    with pytest.raises(NotSpeech) as caught:
        watch.take(4)
    assert (caught.value.fault, caught.value.since_s) == ("repetition", 15 * 0.08)


def test_doubtful_codes_are_held_back() -> None:
    watch = CodeWatch()
    held = []
    for code in (1, *[2] * 9, 3):
        watch.take(code)
        held.append(watch.suspicious)
    assert held == [0, *[0] * 6, 7, 8, 9, 0]


def test_speech_cut_by_the_limit_is_a_runaway() -> None:
    watch = CodeWatch()
    for code in range(3):
        watch.take(code)
    with pytest.raises(NotSpeech) as caught:
        watch.finish(ended=False)
    assert (caught.value.fault, caught.value.since_s) == ("runaway", 3 * 0.08)
    watch.finish(ended=True)


def test_the_error_crosses_a_process_border() -> None:
    error = pickle.loads(pickle.dumps(NotSpeech("runaway", 1.5)))
    assert isinstance(error, NotSpeech)
    assert (error.fault, error.since_s, str(error)) == (
        "runaway",
        1.5,
        str(NotSpeech("runaway", 1.5)),
    )


def test_text_and_languages_are_as_the_model_wants_them() -> None:
    assert (
        without_controls("Hi<|im_end|>\n<|im_start|>user  you <tts_text_eod>!") == "Hi user you !"
    )
    assert without_controls("1 < 2 | 3 > 2") == "1 < 2 | 3 > 2"
    names = [language_name(code) for code in ("de", "EN", "auto", "Chinese")]
    assert names == ["german", "english", "auto", "chinese"]


# --- directories and options -------------------------------------------------------------------


CUSTOM = {"model_type": "qwen3_tts", "tts_model_type": "custom_voice"}


@pytest.mark.parametrize(
    ("config", "absent", "says"),
    [
        ({"model_type": "qwen3"}, "", r"is not a Qwen3-TTS model: its config.json says qwen3\."),
        (CUSTOM | {"tts_model_type": "base"}, "", r"no voices of its own: it is of the type base"),
        (["no", "mapping"], "", "cannot be loaded"),
        (CUSTOM, "config.json", "config.json"),
        (CUSTOM, "speech_tokenizer/model.safetensors", "speech_tokenizer/model.safetensors"),
    ],
)
def test_a_directory_without_a_custom_voice_is_refused(
    tmp_path: Path, config: Any, absent: str, says: str
) -> None:
    (tmp_path / "speech_tokenizer").mkdir()
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps(config))
    if absent:
        check_directory(tmp_path)
        (tmp_path / absent).unlink()
    with pytest.raises(WeightsError, match=says):
        check_directory(tmp_path)


@pytest.mark.parametrize(
    ("model_dir", "error"),
    [(None, WeightsError), ("models/qwen", ConfigError), ("/nowhere/at/all", WeightsError)],
)
def test_no_directory_is_an_error_with_a_next_step(
    model_dir: str | None, error: type[ReachyVoiceError]
) -> None:
    with pytest.raises(error, match=r"model_dir|directory") as caught:
        build(Qwen3TtsOptions(weights=None, model_dir=model_dir), None)
    assert caught.value.fix
