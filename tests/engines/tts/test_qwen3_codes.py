"""Qwen3-TTS without its network: limits, codes that say nothing, steps, options, directories."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.engines.contract import NotSpeech
from pipeline.engines.tts.qwen3_codes import (
    FRAME_SAMPLES,
    RATE,
    CodeWatch,
    chunk_frames,
    language_name,
    most_frames,
    spoken,
)
from pipeline.engines.tts.qwen3_fast import Fast
from pipeline.engines.tts.qwen3_official import Clause
from pipeline.engines.tts.qwen3_stepping import Stepped, current
from pipeline.engines.tts.qwen3_tts import Qwen3TtsOptions, build, check_directory
from pipeline.errors import ConfigError, ReachyVoiceError, WeightsError
from pipeline.work import Cancelled
from tests.support.recordings import Uncancelled

LADDER = {2: 64, 5: 50, 10: 100, 20: 160}
"""Words, and the tokens that others have found to be enough."""


@pytest.mark.parametrize("words", LADDER)
def test_a_clause_may_be_as_long_as_others_found_to_be_enough(words: int) -> None:
    text = " ".join(itertools.islice(itertools.cycle(("listen", "to", "their", "story")), words))
    assert LADDER[words] <= most_frames(text) <= 2.5 * LADDER[words]


def test_pieces_grow_with_what_was_sent() -> None:
    sizes, done = [], 0
    while done < 60:
        sizes.append(chunk_frames(done, 1, 8))
        done += sizes[-1]
    assert sizes == [1, 1, 1, 1, 2, 3, 4, 6, 8, 8, 8, 8, 8, 8]


def test_the_same_code_again_and_again_is_no_speech() -> None:
    watch = CodeWatch(100)
    for code in (1, 2, 3, *[4] * 11, 5, *[4] * 11):
        watch.take(code)
    with pytest.raises(NotSpeech) as caught:
        watch.take(4)
    assert (caught.value.fault, caught.value.since_s) == ("repetition", 15 * 0.08)


def test_codes_that_may_not_be_speech_are_held_back() -> None:
    watch = CodeWatch(100)
    held = []
    for code in (1, *[2] * 9, 3):
        watch.take(code)
        held.append(watch.suspicious)
    assert held == [0, *[0] * 6, 7, 8, 9, 0]


def test_speech_that_was_cut_off_by_the_limit_is_a_runaway() -> None:
    watch = CodeWatch(3)
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
    assert spoken("Hi<|im_end|>\n<|im_start|>user  you <tts_text_eod>!") == "Hi user you !"
    assert spoken("1 < 2 | 3 > 2") == "1 < 2 | 3 > 2"
    names = [language_name(code) for code in ("de", "EN", "auto", "Chinese")]
    assert names == ["german", "english", "auto", "chinese"]


# --- steps -------------------------------------------------------------------------------------


class Told:
    """A ``CancelToken`` that can be set."""

    cancelled = False
    preempted = False


def counting(steps: list[Stepped[int]], log: list[str]) -> Callable[[], None]:
    def work() -> None:
        try:
            for value in range(3):
                log.append(f"make {value}")
                assert current() is steps[0]
                steps[0].give(value)
            log.append("end")
        finally:
            log.append("out")

    return work


def threads() -> int:
    return sum(thread.name == "qwen3-tts" for thread in threading.enumerate())


def test_work_moves_only_when_a_value_is_wanted() -> None:
    steps: list[Stepped[int]] = []
    log: list[str] = []
    steps.append(Stepped(counting(steps, log), Told()))
    assert steps[0].next() == 0
    assert log == ["make 0"]
    assert [steps[0].next() for _ in range(3)] == [1, 2, None]
    assert log[-2:] == ["end", "out"]
    steps[0].close()
    assert threads() == 0
    assert current() is None


def test_errors_are_raised_to_the_caller() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Stepped[int](fail, Told()).next()
    assert threads() == 0


# --- the fast backend, over a stand-in for the package -----------------------------------------


class Graphs:
    """Like ``FasterQwen3TTS``: clauses of noise, which must not be mixed in one cache."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._busy = 0
        self.asked: list[dict[str, Any]] = []

    def generate_custom_voice_streaming(
        self, **named: Any
    ) -> Iterator[tuple[Any, int, dict[str, float]]]:
        self.asked.append(named)
        self._busy += 1
        assert self._busy == 1, "two clauses in one cache"
        try:
            level = len(self.asked) / 10
            for _ in range(0, self._frames, named["chunk_size"]):
                yield np.full(named["chunk_size"] * FRAME_SAMPLES, level, np.float32), RATE, {}
        finally:
            self._busy -= 1


def clause(limit: int = 100) -> Clause:
    return Clause("Hello.", "ryan", "english", "", limit, None)


def levels(pieces: list[Pcm | None]) -> list[int]:
    return [round(float(pcm[0]) / 3276.7) for pcm in pieces if pcm is not None]


def test_a_fast_clause_is_finished_before_the_next_one_begins() -> None:
    graphs = Graphs(8)
    fast = Fast(graphs)
    first = fast.say(clause(), Told())
    early = [next(first)]
    second = list(fast.say(clause(), Told()))
    assert levels(early + list(first)) == [1] * 4
    assert levels(second) == [2] * 4
    assert graphs.asked[0] == {
        "text": "Hello.",
        "speaker": "ryan",
        "language": "english",
        "instruct": None,
        "max_new_tokens": 100,
        "chunk_size": 2,
    }


def test_a_fast_clause_that_is_not_wanted_is_not_finished() -> None:
    fast = Fast(Graphs(1000))
    told = Told()
    first: Generator[Pcm | None] = fast.say(clause(2000), told)
    next(first)
    told.cancelled = True
    second = fast.say(clause(2000), Told())
    assert levels([next(second)]) == [2]
    with pytest.raises(Cancelled):
        next(first)
    second.close()


def test_a_fast_clause_that_does_not_end_is_a_runaway() -> None:
    with pytest.raises(NotSpeech, match="runaway"):
        list(Fast(Graphs(100)).say(clause(100), Uncancelled()))
    assert len(list(Fast(Graphs(98)).say(clause(100), Uncancelled()))) == 49


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
def test_a_directory_that_is_no_custom_voice_is_refused(
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
