"""Whisper: speech to text in 99 languages on a CPU, through CTranslate2.

Whisper was made for windows of 30 s. Here the window is only a little longer than the utterance,
which takes a sixth of the time and changes few words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, unreadable
from pipeline.engines.registry import EngineSpec, Kind, SttOptions
from pipeline.engines.stt.sound_notes import without_notes
from pipeline.engines.stt.whole_passes import PassResult, WholeUtterance
from pipeline.engines.turn.log_mel import log_mel
from pipeline.errors import EngineError

SHORTEST_WINDOW_SAMPLES = 10 * LISTEN_RATE
SILENCE_SAMPLES = 2 * LISTEN_RATE
"""Silence after the utterance in its window; without any, the model makes up an ending."""
SURE = 0.7
"""Least probability among ``languages`` for the language to be reported."""
NO_SPEECH = 0.6
UNLIKELY = -1.0
"""Mean log probability of the words. Audio above ``NO_SPEECH`` with words below this is not speech;
both are Whisper's defaults."""
MOST_TOKENS_PER_S = 12
"""Fast speech takes 6. Without a limit, a model that repeats itself goes on until its window is
full."""
_FILES = ("model.bin", "config.json", "vocabulary.txt")


class WhisperOptions(SttOptions):
    engine: Literal["whisper"] = "whisper"
    weights: str = "whisper-base"
    """Catalogue entry with a model in CTranslate2's format."""
    languages: tuple[str, ...] = ("de", "en", "es", "fr", "it", "nl", "pt")
    """ISO 639-1: languages that may be spoken, if the conversation has none of its own. Fewer are
    easier to tell apart."""
    beam_size: int = Field(default=5, ge=1, le=10)
    """How many texts compete; 1 is a little faster and hears a little less."""
    threads: int = Field(default=1, ge=1)
    """More than the machine has idle cores make it slower."""
    partial_interval_ms: int = Field(default=1000, ge=0)
    """Audio between two partial transcripts, if a client reads them; 0 turns them off. Each one
    costs a whole pass."""


class WhisperRecogniser:
    """The model: samples in, words out. Not thread-safe."""

    def __init__(self, directory: Path, options: WhisperOptions) -> None:
        """Load the model. Raises ``WeightsError`` if it cannot be used."""
        from ctranslate2 import StorageView
        from ctranslate2.models import Whisper

        self._storage = StorageView.from_array
        self._options = options
        try:
            self._model = Whisper(
                str(directory),
                device="cpu",
                compute_type="int8",
                intra_threads=options.threads,
                inter_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            raise unreadable(directory, error) from error
        self.languages = {code for code, _ in self._odds(self._encode(np.zeros(1, np.int16)))}

    def read(self, pcm: Pcm, language: str) -> PassResult:
        """Words of at most 28 s of audio. ``language``: empty to detect it."""
        if not len(pcm):
            return PassResult()
        encoded = self._encode(pcm)
        sure, share = language, 1.0
        if not language:
            language, share = self._detect_language(encoded)
            sure = language if share >= SURE else ""
        (result,) = self._model.generate(
            encoded,
            [["<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>"]],
            beam_size=self._options.beam_size,
            max_length=20 + len(pcm) * MOST_TOKENS_PER_S // LISTEN_RATE,
            return_scores=True,
            return_no_speech_prob=True,
        )
        if result.no_speech_prob > NO_SPEECH and result.scores[0] < UNLIKELY:
            return PassResult()
        text = without_notes(text_of(result.sequences[0]))
        return PassResult(text, sure if text else "", share)

    def _encode(self, pcm: Pcm) -> Any:
        size = max(SHORTEST_WINDOW_SAMPLES, len(pcm) + SILENCE_SAMPLES)
        features = log_mel(np.pad(to_float(pcm), (0, size - len(pcm))), self._model.n_mels)
        return self._model.encode(self._storage(features[None]))

    def _detect_language(self, encoded: Any) -> tuple[str, float]:
        """The likeliest language, and its share among those that may be spoken."""
        odds = {code: odds for code, odds in self._odds(encoded) if code in self._options.languages}
        best = max(odds, key=odds.__getitem__)
        return best, odds[best] / max(sum(odds.values()), 1e-9)

    def _odds(self, encoded: Any) -> list[tuple[str, float]]:
        (shares,) = self._model.detect_language(encoded)
        return [(token.strip("<|>"), share) for token, share in shares]


class Whisper:
    """The engine. Utterances share one recogniser and take turns."""

    rate = LISTEN_RATE
    streams = False

    def __init__(self, recogniser: WhisperRecogniser, options: WhisperOptions) -> None:
        self._recogniser = recogniser
        self._options = options
        self.languages: Sequence[str] = sorted(recogniser.languages)

    def open(self, language: str, partials: bool) -> WholeUtterance:
        """Raises ``EngineError`` for a language that the model does not know."""
        language = language.split("-")[0].lower()
        if language and language not in self._recogniser.languages:
            raise EngineError(
                f"Whisper cannot recognise the language {language!r}",
                why=f"its weights {self._options.weights} do not know it",
                fix="Leave the language out, or choose another stt.engine",
            )
        interval_ms = self._options.partial_interval_ms if partials else 0
        return WholeUtterance(lambda pcm: self._recogniser.read(pcm, language), interval_ms)


def _byte_signs() -> dict[str, int]:
    """The character that stands for each byte in the vocabulary, as in GPT-2's tokeniser: printable
    bytes stand for themselves, the others are numbered from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    signs = {chr(byte): byte for byte in printable}
    return signs | {chr(256 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_signs()


def text_of(tokens: list[str]) -> str:
    """The text that ``tokens`` of the vocabulary spell."""
    signs = "".join(token for token in tokens if not token.startswith("<|"))
    return bytes(_BYTES[sign] for sign in signs).decode("utf-8", "ignore").strip()


def build(options: WhisperOptions, weights: Path | None) -> Whisper:
    """Load the model and run it once. Raises ``WeightsError``, ``EngineError``."""
    files = [model_file(weights, name) for name in _FILES]
    recogniser = WhisperRecogniser(files[0].parent, options)
    if unknown := set(options.languages) - recogniser.languages:
        raise EngineError(
            f"Whisper does not know {', '.join(sorted(unknown))}",
            why=f"stt.languages names it, but {options.weights} does not",
            fix=f"Known are: {', '.join(sorted(recogniser.languages))}",
        )
    recogniser.read(np.zeros(LISTEN_RATE, np.int16), options.languages[0])
    return Whisper(recogniser, options)


SPEC = EngineSpec(
    name="whisper",
    kind=Kind.STT,
    options=WhisperOptions,
    build=build,
    summary="Whisper through CTranslate2: 99 languages, 0.3 s per utterance on one core (base)",
    extra="languages",
    modules=("ctranslate2",),
    run_in="thread",
)
