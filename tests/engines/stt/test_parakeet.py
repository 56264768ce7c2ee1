"""Parakeet: NeMo's real code on a tiny model. Exact words, partials, stopping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.wer import total, word_errors
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.stt.parakeet import TAIL_SAMPLES, Parakeet, ParakeetOptions, build
from pipeline.errors import EngineError, WeightsError
from pipeline.work import NEVER, Cancelled
from tests.support.recordings import Token, heard
from tests.support.tiny_models.parakeet import FILE, PHRASES, VOICES
from tests.support.tiny_parakeet import (
    GAP,
    engine,
    needs_nemo,
    options,
    random_model,
    reference,
    say,
    talk,
)

# NeMo and what it imports warn about each other while they are imported, which takes a minute on a
# busy machine.
pytestmark = [
    pytest.mark.engines,
    pytest.mark.nemo,
    needs_nemo,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]

SILENCE = 100
"""Samples up to this level are no speech."""
SPEECH = [(phrase, voice) for phrase in PHRASES for voice in VOICES]


def batch_texts(clips: list[Pcm]) -> list[str]:
    padded = [to_float(np.pad(pcm, (0, TAIL_SAMPLES))) for pcm in clips]
    found = reference().transcribe(padded, batch_size=1, verbose=False)
    return [hypothesis.text.strip() for hypothesis in found]


# --- final texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pause_ms", [0, 400])
def test_every_phrase_by_every_voice_is_exact(precision: str, pause_ms: int) -> None:
    """Also at the start of the pause, when an early pass may begin."""
    stt, pause = engine(precision=precision), np.zeros(pause_ms * LISTEN_RATE // 1000, np.int16)
    texts = {each: heard(stt, GAP, without_pause(say(*each)), pause).text for each in SPEECH}
    assert texts == {each: each[0] for each in SPEECH}


def without_pause(pcm: Pcm) -> Pcm:
    """Without the 0.2 to 0.4 s of silence that espeak-ng adds."""
    return pcm[: np.flatnonzero(abs(pcm) > SILENCE)[-1] + 1]


def test_the_final_text_is_the_batch_text() -> None:
    """For the same samples, cut anywhere, even where the text is wrong."""
    rng = np.random.default_rng(3)
    clips = [
        pcm[: rng.integers(len(pcm) // 4, len(pcm))] for pcm in (say(*each) for each in SPEECH)
    ]
    clips += [talk(*PHRASES[at : at + 3])[0] for at in range(0, 9, 3)]
    finals = [heard(engine(), *np.array_split(clip, 7)).text for clip in clips]
    batch = batch_texts(clips)
    assert total(word_errors(*pair) for pair in zip(batch, finals, strict=True)).rate == 0.0
    assert finals == batch


def test_an_utterance_continues_after_finish() -> None:
    pcm, text = talk("Stop, please.", "What time is it?")
    half = len(GAP) + len(say("Stop, please.", "en-us+m3")) + len(GAP) // 2
    utterance = engine().open("en", False)
    utterance.feed(pcm[:half])
    assert utterance.finish(NEVER).text == "Stop, please."
    utterance.feed(pcm[half:])
    assert utterance.finish(NEVER) == Transcript(text, len(pcm) / LISTEN_RATE)


def test_a_second_finish_of_the_same_audio_is_free() -> None:
    stt = engine()
    utterance = stt.open("en", False)
    utterance.feed(say("Look at me."))
    first = utterance.finish(NEVER)
    passes = stt.model.passes
    assert utterance.finish(NEVER) == first
    assert stt.model.passes == passes


def test_audio_that_was_fed_may_be_overwritten() -> None:
    borrowed = say("What do you see?").copy()
    utterance = engine().open("en", False)
    utterance.feed(borrowed)
    borrowed[:] = 0
    assert utterance.finish(NEVER).text == "What do you see?"


@pytest.mark.parametrize("samples", [0, 1, 159, 160, 1279, 1280, 3000, LISTEN_RATE])
def test_silence_of_any_length_has_no_text(samples: int) -> None:
    pcm = np.zeros(samples, dtype=np.int16)
    assert heard(engine(), pcm) == Transcript("", samples / LISTEN_RATE)
    assert heard(engine(), EMPTY, pcm) == Transcript("", samples / LISTEN_RATE)


# --- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 3, 6, 12])
def test_a_cancelled_final_pass_stops_at_once(after: int) -> None:
    """Before it begins, in each layer of the encoder, and while words are decoded."""
    utterance = engine().open("en", False)
    utterance.feed(say("Tell me a short story."))
    token = Token(after)
    with pytest.raises(Cancelled):
        utterance.finish(token)
    assert token.looks == after + 1, "it stops at the first look"
    assert utterance.finish(NEVER).text == "Tell me a short story."


# --- options and errors ------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["", "en", "EN", "de", "uk", "pt-BR"])
def test_a_known_language_needs_no_hint(language: str) -> None:
    pcm = say("What time is it?")
    assert heard(engine(), pcm, language=language).text == "What time is it?"


def test_an_unknown_language_is_an_error() -> None:
    with pytest.raises(EngineError, match="cannot recognise the language 'ja'"):
        engine().open("ja", False)


def test_a_missing_gpu_is_an_error() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(EngineError, match="no device"):
        build(options(device="cuda"), None)


def test_several_models_are_loaded_in_one_process(tmp_path: Path) -> None:
    """In both orders, on a GPU if there is one, where a second model once failed to load."""
    files = [random_model(tmp_path), FILE] * 2
    *_, stt = [build(options(model_file=str(file), device="auto"), None) for file in files]
    assert heard(stt, say("Look at me.")).text == "Look at me."


def test_a_file_not_from_nemo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.nemo").write_bytes(FILE.read_bytes()[:5000])
    with pytest.raises(WeightsError, match="cannot be loaded"):
        build(options(model_file=None, weights="x"), tmp_path)


# --- while somebody speaks ---------------------------------------------------------------------


def partials(stt: Parakeet, pcm: Pcm, cuts: list[int]) -> list[tuple[int, Partial]]:
    """Each piece's partial, with the number of samples fed by then."""
    utterance = stt.open("en", True)
    pieces = np.split(pcm, cuts)
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    newest, seen = Partial(), []
    for end, piece in zip(ends, pieces, strict=True):
        partial = utterance.feed(piece)
        newest = partial if partial.text else newest
        seen.append((end, newest))
    return seen


def test_each_pass_reports_one_partial() -> None:
    """Two equal partials in a row mean that two passes agree."""
    stt = engine()
    pcm, _ = talk("Go forward ten meters.")
    utterance, passes = stt.open("en", True), stt.model.passes
    told = [utterance.feed(piece) for piece in np.split(pcm, range(512, len(pcm), 512))]
    assert 3 < sum(bool(each.text) for each in told) <= stt.model.passes - passes


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 100_000), max_size=25).map(sorted))
def test_committed_words_never_change(cuts: list[int]) -> None:
    pcm, text = talk(*PHRASES[3:7])
    before: list[str] = []
    for _, partial in partials(engine(), pcm, cuts):
        words = partial.committed.split()
        assert words[: len(before)] == before
        assert partial.text.split()[: len(words)] == words
        before = words
    # On this speech they also equal the final text.
    assert before == text.split()[: len(before)]


@pytest.mark.parametrize("piece_ms", [20, 32, 100])
def test_partials_come_in_time(piece_ms: int) -> None:
    """In seconds of audio: tentative words counted from their end, committed ones from the end of
    the next word, which shows that the word is complete."""
    stt, chosen = engine(), options()
    pcm, text = talk(*PHRASES[:6])
    cuts = list(range(0, len(pcm), piece_ms * LISTEN_RATE // 1000))[1:]
    seen = [(end / LISTEN_RATE, partial) for end, partial in partials(stt, pcm, cuts)]
    (found,) = reference().transcribe([to_float(pcm)], timestamps=True, verbose=False)
    times = [(word["word"], float(word["end"])) for word in found.timestamp["word"]]
    words, checked = [word for word, _ in times], 0
    assert " ".join(words) == text
    bar_s = chosen.chunk_s + chosen.right_s + 0.150
    for count, (_, end_s) in enumerate(times, 1):
        if end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=False) - end_s <= bar_s
            checked += 1
    for count, (_, end_s) in enumerate(times[1:], 1):
        if end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=True) - end_s <= bar_s
    assert checked > 15


def _first(seen: list[tuple[float, Partial]], words: list[str], committed: bool) -> float:
    """When the transcript began with ``words`` for good."""
    since = float("inf")
    for time_s, partial in seen:
        text = partial.committed if committed else partial.text
        right = text.split()[: len(words)] == words
        since = min(since, time_s) if right else float("inf")
    return since


def test_no_partials_unless_asked_for() -> None:
    for stt, wanted in ((engine(), False), (engine(partials=False), True)):
        passes = stt.model.passes
        assert stt.open("en", wanted).feed(talk(*PHRASES[:2])[0]) == Partial()
        assert stt.model.passes == passes
    assert engine().streams
    assert not engine(partials=False).streams


def test_partials_need_a_gpu_unless_set() -> None:
    assert ParakeetOptions().partials is None
    assert not engine(partials=None, device="cpu").streams
