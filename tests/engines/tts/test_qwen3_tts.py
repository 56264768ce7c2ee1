"""Qwen3-TTS, the real code on a tiny model: pieces that are the whole, stopping, faults."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm, from_float
from pipeline.engines.contract import NotSpeech
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, most_frames
from pipeline.engines.tts.qwen3_tts import Qwen3Tts, build
from pipeline.errors import ConfigError, EngineError, WeightsError
from pipeline.messages import SpeechRequest
from pipeline.work import Cancelled
from tests.support.recordings import Uncancelled
from tests.support.tiny_models.qwen3_tts import CODES, VOICES
from tests.support.tiny_qwen import (
    ENDING,
    TEXT,
    directory,
    engine,
    joined,
    needs_qwen,
    official,
    options,
)

# torch and transformers warn about each other while they are imported, which takes a minute on a
# busy machine.
pytestmark = [
    pytest.mark.qwen,
    needs_qwen,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]


def say(tts: Qwen3Tts, text: str = TEXT, voice: str = "", take: int = 0) -> Pcm:
    return joined(tts.synthesize(SpeechRequest(text, voice, take=take), Uncancelled()))


def beginning(tts: Qwen3Tts, take: int = 0, language: str = "") -> Pcm:
    """The first frames, which do not depend on whether the model ends."""
    asked = SpeechRequest(TEXT, language=language, take=take)
    stream: Any = tts.synthesize(asked, Uncancelled())
    with closing(stream):
        return joined(islice(stream, 8))


def same(one: Pcm, other: Pcm) -> bool:
    """Of two copies of a model, which round otherwise where their weights lie otherwise."""
    return one.shape == other.shape and np.abs(one.astype(int) - other).max() < 100


def batch(tts: Qwen3Tts, seed: int) -> Pcm:
    """The package's own output for ``TEXT``, all at once."""
    import torch

    torch.manual_seed(seed)
    (samples,), rate = official(tts).model.generate_custom_voice(
        TEXT, speaker="ryan", language="english", max_new_tokens=most_frames(TEXT)
    )
    assert rate == tts.rate == 24_000
    return from_float(samples)


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ENDING)
def test_the_pieces_are_what_the_package_makes_at_once(seed: int) -> None:
    tts = engine(seed=seed)
    chunks = [
        c for c in tts.synthesize(SpeechRequest(TEXT, "ryan"), Uncancelled()) if c is not None
    ]
    assert all(chunk.dtype == np.int16 and chunk.ndim == 1 for chunk in chunks)
    sizes = [len(chunk) / FRAME_SAMPLES for chunk in chunks]
    assert sizes[:4] == [1, 1, 1, 1][: len(sizes)]
    assert max(sizes) <= 8
    streamed, whole = joined(chunks), batch(tts, seed)
    assert len(streamed) == len(whole)
    assert int(np.abs(streamed.astype(int) - whole.astype(int)).max()) <= 1
    assert np.abs(whole).max() > 1000


def test_the_pieces_of_long_speech_are_the_whole() -> None:
    """Also where the codec has long forgotten the beginning."""
    import torch

    backend = official(engine())
    codes = list(torch.randint(0, CODES, (200, 1, 16), generator=torch.manual_seed(1)))
    pieces = [backend.decode(codes, at, at + 8) for at in range(0, 200, 8)]
    with torch.inference_mode():
        decoder = backend.model.model.speech_tokenizer.model.decoder
        whole = decoder(torch.stack(codes, dim=-1))[0, 0].numpy()
    differ = np.concatenate(pieces).astype(int) - from_float(whole).astype(int)
    assert len(differ) == 200 * FRAME_SAMPLES
    assert np.abs(differ).max() <= 1
    assert np.abs(whole).max() > 0.3


def test_voices_are_asked_of_the_model() -> None:
    tts = engine(seed=4)
    assert list(tts.voices) == sorted(VOICES)
    ryan, serena = say(tts, voice="ryan"), say(tts, voice="serena")
    assert not np.array_equal(ryan, serena)
    assert np.array_equal(say(tts, voice="Serena"), serena)
    assert np.array_equal(say(tts, voice="alloy"), ryan)
    assert np.array_equal(say(engine(seed=4, voice="Serena"), voice="alloy"), serena)


def test_takes_differ_and_seeds_make_the_same_again() -> None:
    tts, free = engine(seed=4), engine()
    first = beginning(tts)
    assert np.array_equal(beginning(tts), first)
    assert not np.array_equal(beginning(tts, take=1), first)
    assert not np.array_equal(beginning(free), beginning(free))


def test_an_urgent_clause_between_two_frames_changes_nothing() -> None:
    tts = engine(seed=4)
    alone = say(tts, voice="ryan"), say(tts, voice="serena")
    first = tts.synthesize(SpeechRequest(TEXT, "ryan"), Uncancelled())
    begun = [next(first) for _ in range(3)]
    urgent = tts.synthesize(SpeechRequest(TEXT, "serena"), Uncancelled())
    between = [next(urgent) for _ in range(2)]
    begun += [next(first)]
    assert np.array_equal(joined(between + list(urgent)), alone[1])
    assert np.array_equal(joined(begun + list(first)), alone[0])


def test_instructions_are_part_of_the_prompt_where_the_model_takes_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, told = engine(seed=4), engine(seed=4, instruct="Whisper.")
    assert not np.array_equal(beginning(told), beginning(plain))
    small = str(directory(size="0b6"))
    with caplog.at_level(logging.WARNING, "reachy_voice.tts"):
        silent = build(options(seed=4, instruct="Whisper.", model_dir=small), None)
    assert "takes no tts.instruct" in caplog.text
    assert same(beginning(silent), beginning(plain))


def test_the_language_of_a_text_goes_before_the_usual_one() -> None:
    tts, german = engine(seed=4), engine(seed=4, language="de")
    assert {"de", "en", "zh"} <= set(tts.languages)
    assert same(beginning(tts, language="de"), beginning(german))
    assert same(beginning(german, language="en"), beginning(tts))
    assert np.array_equal(beginning(german, language="pl"), beginning(german)), "it speaks none"


def test_it_has_one_pace_and_tells_so_once(caplog: pytest.LogCaptureFixture) -> None:
    tts = build(options(seed=4), None)
    with caplog.at_level(logging.WARNING, "reachy_voice.tts"):
        fast = [
            joined(tts.synthesize(SpeechRequest(TEXT, "", 1.5), Uncancelled())) for _ in range(2)
        ]
    assert np.array_equal(fast[0], say(tts))
    assert caplog.text.count("one pace") == 1


# --- stopping ----------------------------------------------------------------------------------


class StopsAfter:
    """A ``CancelToken`` that is cancelled after this many checks."""

    preempted = False

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def cancelled(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def threads() -> int:
    return sum(thread.name == "qwen3-tts" for thread in threading.enumerate())


@contextmanager
def counted(module: Any) -> Iterator[list[int]]:
    passes = [0]

    def count(*_: object) -> None:
        passes[0] += 1

    hook = module.register_forward_hook(count)
    try:
        yield passes
    finally:
        hook.remove()


@pytest.mark.parametrize("looks", [0, 1, 5, 19, 40])
def test_it_stops_within_a_frame(looks: int) -> None:
    """Each layer of the network looks before its pass: no pass follows the cancellation."""
    tts = engine(seed=4)
    layers = official(tts).layers
    before = say(tts)
    with counted(layers[0]) as first, counted(layers[-1]) as last, pytest.raises(Cancelled):
        joined(tts.synthesize(SpeechRequest(TEXT), StopsAfter(looks)))
    assert first[0] + last[0] <= looks
    assert threads() == 0
    assert np.array_equal(say(tts), before)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_clause_that_is_dropped_leaves_nothing_behind(steps: int) -> None:
    tts = engine(seed=4)
    stream: Any = tts.synthesize(SpeechRequest(TEXT), Uncancelled())
    for _ in range(steps):
        next(stream)
    assert threads() == 1
    stream.close()
    assert threads() == 0


# --- faults ------------------------------------------------------------------------------------


@contextmanager
def biased(tts: Qwen3Tts, **biases: float) -> Iterator[None]:
    """The talker's next codes with something added: ``code_5=99`` or ``end=-99``."""

    def add(module: Any, arguments: Any, logits: Any) -> Any:
        for name, bias in biases.items():
            logits[..., CODES if name == "end" else int(name.removeprefix("code_"))] += bias
        return logits

    hook = official(tts).model.model.talker.codec_head.register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()


def test_a_code_that_repeats_ends_the_clause_at_once() -> None:
    tts = engine(seed=4)
    made: list[Pcm | None] = []
    with biased(tts, code_5=99.0, end=-99.0), pytest.raises(NotSpeech) as caught:
        made.extend(tts.synthesize(SpeechRequest(TEXT), Uncancelled()))
    assert caught.value.fault == "repetition"
    assert len(joined(made)) <= 6 * FRAME_SAMPLES
    assert caught.value.since_s == 0
    assert threads() == 0
    assert len(say(tts)) > 0


def test_a_clause_without_an_end_is_cut_at_its_limit() -> None:
    tts = engine(seed=4)
    made: list[Pcm | None] = []
    with biased(tts, end=-99.0), pytest.raises(NotSpeech) as caught:
        made.extend(tts.synthesize(SpeechRequest(TEXT), Uncancelled()))
    assert caught.value.fault == "runaway"
    frames = len(joined(made)) // FRAME_SAMPLES
    assert most_frames(TEXT) - 9 <= frames < most_frames(TEXT)


def test_weights_that_are_damaged_are_refused(tmp_path: Any) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(directory(), broken)
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        build(options(model_dir=str(broken)), None)


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"voice": "nobody"}, ConfigError, "known are: aiden, ryan, serena"),
        ({"language": "sw"}, ConfigError, "known are: auto, chinese, english, german"),
        ({"device": "cuda:9"}, EngineError, "no device for tts.device 'cuda:9'"),
    ],
)
def test_an_option_the_model_lacks_is_an_error_with_a_fix(
    changed: dict[str, str], error: type[EngineError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        build(options(**changed), None)
    assert caught.value.fix
