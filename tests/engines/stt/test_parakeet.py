"""Parakeet, NeMo's real code on a tiny model: exact words, stopping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.wer import total, word_errors
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Transcript
from pipeline.engines.stt.parakeet import Parakeet, build
from pipeline.errors import EngineError, WeightsError
from pipeline.work import Cancelled
from tests.support.recordings import Uncancelled
from tests.support.tiny_models.parakeet import FILE, PHRASES, VOICES
from tests.support.tiny_parakeet import GAP, engine, needs_nemo, options, reference, say, talk

# NeMo and what it imports warn about each other while they are imported, which takes a minute on a
# busy machine.
pytestmark = [
    pytest.mark.nemo,
    needs_nemo,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]

SPEECH = [(phrase, voice) for phrase in PHRASES for voice in VOICES]


def transcribe(stt: Parakeet, *pieces: Pcm) -> Transcript:
    utterance = stt.open("en", False)
    for piece in pieces:
        utterance.feed(piece)
    return utterance.finish(Uncancelled())


def batch_texts(clips: list[Pcm]) -> list[str]:
    found = reference().transcribe([to_float(pcm) for pcm in clips], batch_size=1, verbose=False)
    return [hypothesis.text.strip() for hypothesis in found]


# --- final texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_phrase_by_every_voice_is_exact(precision: str) -> None:
    stt = engine(precision=precision)
    heard = {each: transcribe(stt, say(*each)).text for each in SPEECH}
    assert heard == {each: each[0] for each in SPEECH}


def test_the_final_text_is_the_batch_text() -> None:
    """Of the same samples, cut anywhere: also where it is not what was said."""
    rng = np.random.default_rng(3)
    clips = [
        pcm[: rng.integers(len(pcm) // 4, len(pcm))] for pcm in (say(*each) for each in SPEECH)
    ]
    clips += [talk(*PHRASES[at : at + 3])[0] for at in range(0, 9, 3)]
    finals = [transcribe(engine(), *np.array_split(clip, 7)).text for clip in clips]
    batch = batch_texts(clips)
    assert total(word_errors(*pair) for pair in zip(batch, finals, strict=True)).rate == 0.0
    assert finals == batch


def test_an_utterance_goes_on_after_it_was_finished() -> None:
    pcm, text = talk("Stop, please.", "What time is it?")
    half = len(GAP) + len(say("Stop, please.", "en-us+m3")) + len(GAP) // 2
    utterance = engine().open("en", False)
    utterance.feed(pcm[:half])
    assert utterance.finish(Uncancelled()).text == "Stop, please."
    utterance.feed(pcm[half:])
    assert utterance.finish(Uncancelled()) == Transcript(text, len(pcm) / LISTEN_RATE)


def test_a_second_finish_of_the_same_audio_is_free() -> None:
    stt = engine()
    utterance = stt.open("en", False)
    utterance.feed(say("Look at me."))
    first = utterance.finish(Uncancelled())
    passes = stt.model.passes
    assert utterance.finish(Uncancelled()) == first
    assert stt.model.passes == passes


def test_audio_that_was_fed_may_be_overwritten() -> None:
    borrowed = say("What do you see?").copy()
    utterance = engine().open("en", False)
    utterance.feed(borrowed)
    borrowed[:] = 0
    assert utterance.finish(Uncancelled()).text == "What do you see?"


@pytest.mark.parametrize("samples", [0, 1, 159, 160, 1279, 1280, 3000, LISTEN_RATE])
def test_silence_of_any_length_has_no_text(samples: int) -> None:
    pcm = np.zeros(samples, dtype=np.int16)
    assert transcribe(engine(), pcm) == Transcript("", samples / LISTEN_RATE)
    assert transcribe(engine(), EMPTY, pcm) == Transcript("", samples / LISTEN_RATE)


# --- stopping ----------------------------------------------------------------------------------


class Impatient:
    """A token that is pulled when it is looked at for the ``after``-th time."""

    preempted = False

    def __init__(self, after: int) -> None:
        self.looks = 0
        self._after = after

    @property
    def cancelled(self) -> bool:
        self.looks += 1
        return self.looks > self._after


@pytest.mark.parametrize("after", [0, 1, 3, 6, 12])
def test_a_final_pass_stops_where_it_is(after: int) -> None:
    """Before it begins, in each layer of the encoder, and while words are decoded."""
    utterance = engine().open("en", False)
    utterance.feed(say("Tell me a short story."))
    token = Impatient(after)
    with pytest.raises(Cancelled):
        utterance.finish(token)
    assert token.looks == after + 1, "it stops at the first look"
    assert utterance.finish(Uncancelled()).text == "Tell me a short story."


# --- options and errors ------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["", "en", "EN", "de", "uk", "pt-BR"])
def test_a_language_that_it_knows_needs_no_hint(language: str) -> None:
    utterance = engine().open(language, False)
    utterance.feed(say("What time is it?"))
    assert utterance.finish(Uncancelled()).text == "What time is it?"


def test_a_language_that_it_does_not_know_is_an_error() -> None:
    with pytest.raises(EngineError, match="cannot recognise the language 'ja'"):
        engine().open("ja", False)


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(EngineError, match="no device"):
        build(options(device="cuda"), None)


def test_a_file_not_from_nemo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.nemo").write_bytes(FILE.read_bytes()[:5000])
    with pytest.raises(WeightsError, match="cannot be loaded"):
        build(options(model_file=None, weights="x"), tmp_path)
