"""Moonshine: English speech-to-text for CPUs, with moonshine-voice's own runtime.

The final text comes from one pass over the whole utterance. Long utterances are split where they
are quietest, with one pass per part, as the model invents sentences after 30 s. The session does
the endpointing, so the runtime's own VAD is off: on leading silence it splits the audio and invents
a word.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, unreadable
from pipeline.engines.registry import EngineSpec, Kind, SttOptions
from pipeline.engines.stt.moonshine_phrases import PhraseEar
from pipeline.engines.stt.whole_passes import PassResult, WholeUtterance
from pipeline.errors import EngineError
from pipeline.messages import has_words

MIN_SAMPLES = LISTEN_RATE // 10
"""The encoder fails on less than about 70 ms; shorter audio is padded with silence to this."""
NO_SPEECH = "You"
"""What the model writes for silence, a cough or a hum. A spoken "you" gets punctuation or another
spelling."""
_FILES = ("encoder_model.ort", "decoder_model_merged.ort", "tokenizer.bin")


class MoonshineOptions(SttOptions):
    retired: ClassVar = ("vad_threshold", "single_thread")

    engine: Literal["moonshine"] = "moonshine"
    weights: str = "moonshine-tiny-en"
    """Catalogue entry with the encoder, the merged decoder and the tokenizer."""
    size: Literal["tiny", "base"] = "tiny"
    """Size of the network in the weights."""
    language: str = "en"
    """ISO 639-1: the only language that the weights know."""
    partial_interval_ms: int = Field(default=700, ge=0)
    """Audio between two partial transcripts, if a client reads them; 0 turns them off. Each one
    costs a whole pass."""

    @property
    def languages(self) -> tuple[str, ...]:
        return (self.language,)


class MoonshineRecogniser:
    """The runtime: samples in, text out. Not thread-safe."""

    def __init__(self, directory: Path, options: MoonshineOptions) -> None:
        """Load the model. Raises ``WeightsError`` if the runtime cannot."""
        # One thread takes half the CPU time, and is no slower even with two idle cores. The runtime
        # has no other switch for this, and reads it when it opens its sessions.
        os.environ["MOONSHINE_ORT_SINGLE_THREAD"] = "1"
        from moonshine_voice.errors import MoonshineError, check_error
        from moonshine_voice.moonshine_api import ModelArch, TranscriptC
        from moonshine_voice.transcriber import Transcriber

        self._check_error = check_error
        self._transcript_pointer = ctypes.POINTER(TranscriptC)
        self._runtime_error = MoonshineError
        settings = {"vad_threshold": 0.0, "return_audio_data": "false"}
        try:
            self._transcriber = Transcriber(directory, ModelArch[options.size.upper()], 0, settings)
        except MoonshineError as error:
            raise unreadable(directory, error) from error

    def transcribe(self, pcm: Pcm) -> str:
        """Text of 16 kHz audio of any length. Raises ``EngineError``."""
        if not len(pcm):
            return ""
        samples = to_float(np.pad(pcm, (0, max(0, MIN_SAMPLES - len(pcm)))))
        try:
            text = " ".join(line.strip() for line in self._lines(samples)).strip()
        except self._runtime_error as error:
            raise EngineError("Speech recognition failed", why=str(error)) from error
        return text if is_speech(text) else ""

    def _lines(self, samples: Any) -> list[str]:
        # The package's own method copies the audio sample by sample while holding the GIL, which
        # blocks the server's event loop for 0.1 s per 44 s of audio. This passes the array.
        pointer = self._transcript_pointer()
        self._check_error(
            self._transcriber._lib.moonshine_transcribe_without_streaming(
                self._transcriber._handle,
                samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                len(samples),
                LISTEN_RATE,
                0,
                ctypes.byref(pointer),
            )
        )
        if not pointer:
            return []
        transcript = pointer.contents
        texts = (transcript.lines[i].text for i in range(transcript.line_count))
        return [ctypes.string_at(text).decode("utf-8", "ignore") for text in texts if text]


def is_speech(text: str) -> bool:
    """Whether ``text`` has spoken words; for a hum the model writes notes instead."""
    return text != NO_SPEECH and has_words(text)


class Moonshine:
    """The engine. Utterances share one recogniser and take turns."""

    rate = LISTEN_RATE
    streams = False

    def __init__(
        self, recogniser: MoonshineRecogniser, options: MoonshineOptions, directory: Path
    ) -> None:
        """``directory``: the weights."""
        self._recogniser = recogniser
        self._directory = directory
        self._phrases: PhraseEar | None = None
        self._options = options
        self.languages: Sequence[str] = options.languages

    def open(self, language: str, partials: bool) -> WholeUtterance:
        """Raises ``EngineError`` for a language that the weights do not know."""
        if language and language.split("-")[0].lower() != self._options.language:
            raise EngineError(
                f"Moonshine cannot recognise the language {language!r}",
                why=f"its weights {self._options.weights} only know {self._options.language!r}",
                fix=f"Set the language to {self._options.language}, or choose another stt.engine",
            )
        interval_ms = self._options.partial_interval_ms if partials else 0
        return WholeUtterance(lambda pcm: PassResult(self._recogniser.transcribe(pcm)), interval_ms)

    def begins_with(self, pcm: Pcm, phrase: str) -> bool | None:
        """See ``contract.PhraseListener``. The first call loads the network once more."""
        self._phrases = self._phrases or PhraseEar(self._directory)
        return self._phrases.begins_with(pcm, phrase)


def build(options: MoonshineOptions, weights: Path | None) -> Moonshine:
    """Load the model and run it once. Raises ``WeightsError``."""
    files = [model_file(weights, name) for name in _FILES]
    recogniser = MoonshineRecogniser(files[0].parent, options)
    recogniser.transcribe(np.zeros(LISTEN_RATE, dtype=np.int16))
    return Moonshine(recogniser, options, files[0].parent)


SPEC = EngineSpec(
    name="moonshine",
    kind=Kind.STT,
    options=MoonshineOptions,
    build=build,
    summary="Moonshine tiny, English, 0.05 to 0.25 s per utterance on one core",
    extra="embedded",
    modules=("moonshine_voice",),
    run_in="thread",
)
