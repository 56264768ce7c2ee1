"""Parakeet-TDT and other NeMo transducers: speech to text in 25 languages, made for a GPU.

During speech, windows of the newest audio are decoded
(``pipeline.engines.stt.nemo_streaming``). The final text comes from one pass over the whole
utterance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.registry import EngineSpec, Kind, SttOptions
from pipeline.engines.stt.nemo_streaming import ContextSize, Stream, settled
from pipeline.errors import EngineError, WeightsError
from pipeline.work import NEVER, Cancelled, CancelToken

V3_LANGUAGES = (
    *("bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hr", "hu", "it"),
    *("lt", "lv", "mt", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "uk"),
)
"""Languages of nvidia/parakeet-tdt-0.6b-v3, from its model card."""
LEAST_SAMPLES = LISTEN_RATE
"""Shorter utterances are padded with silence on both sides, as by NeMo's ``transcribe``."""
TAIL_SAMPLES = LISTEN_RATE * 240 // 1000
"""Silence appended to every utterance, three encoder frames: an early pass gets little of the
pause, and would lose the last full stop or word. Of 80 phrases, each after 400 ms of silence, the
tests' tiny model lost 34, 29, 20, 3 and 0 with 0, 20, 40, 80 and 160 ms appended."""
CATCH_UP_S = 20.0
"""Most new audio per pass of a stream, if more than a chunk is waiting."""


class ParakeetOptions(SttOptions):
    retired: ClassVar = ("local_attention_above_s", "local_attention_s", "batch_s")

    engine: Literal["parakeet"] = "parakeet"
    weights: str | None = "parakeet-tdt-0.6b-v3"
    """Catalogue entry with a ``.nemo`` file; null if ``model_file`` is a whole path."""
    model_file: str | None = None
    """Which ``*.nemo``, if the weights have several; or the absolute path of any such file."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """``cuda``, ``cuda:1``, ``cpu``; ``auto``: the first GPU, or else the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the encoder. ``auto``: bf16 if the GPU or the CPU (AVX512_BF16, AMX) supports it."""
    threads: int = Field(default=1, ge=1)
    """CPU threads. More only help on cores that nothing else uses."""
    languages: tuple[str, ...] = V3_LANGUAGES
    """ISO 639-1: languages that the weights know. The model detects which one is spoken."""
    partials: bool | None = None
    """Transcribe during speech; null: on a GPU (each pass costs a CPU 0.2 to 1 s)."""
    left_s: float = Field(default=10.0, ge=0, le=30)
    """How much earlier audio each pass of a stream encodes again."""
    chunk_s: float = Field(default=0.32, ge=0.08, le=10)
    """Audio between two passes of a stream. Delays tentative words by as much."""
    right_s: float = Field(default=0.96, ge=0, le=10)
    """Audio that must follow words before they are committed; less makes more of them wrong."""


# --- the engine --------------------------------------------------------------------------------


class Parakeet:
    """The engine. Utterances share one model."""

    rate = LISTEN_RATE

    def __init__(self, model: Any, options: ParakeetOptions) -> None:
        """``model``: a ``pipeline.engines.stt.nemo_model.NemoModel``."""
        on_gpu = not model.where.device.startswith("cpu")
        self.streams = on_gpu if options.partials is None else options.partials
        self.model = model
        self.languages: Sequence[str] = options.languages
        self._context = _context(options, model.frame_samples)

    def open(self, language: str, partials: bool) -> ParakeetUtterance:
        """``language`` is only checked, as these models take no hint. Raises ``EngineError`` for an
        unknown language."""
        if language and language.split("-")[0].lower() not in self.languages:
            raise EngineError(
                f"Parakeet cannot recognise the language {language!r}",
                why=f"its weights know {', '.join(self.languages)}",
                fix="Leave the language out, or choose another stt.engine",
            )
        stream = Stream(self._context) if partials and self.streams else None
        return ParakeetUtterance(self.model, stream)


def _context(options: ParakeetOptions, frame_samples: int) -> ContextSize:
    def frames(seconds: float) -> int:
        return round(seconds * LISTEN_RATE / frame_samples)

    return ContextSize(
        left=frames(options.left_s),
        chunk=max(1, frames(options.chunk_s)),
        right=frames(options.right_s),
        most=frames(CATCH_UP_S),
    )


# --- an utterance ------------------------------------------------------------------------------


class ParakeetUtterance:
    """One utterance. After ``finish`` it may be fed again, and finished again."""

    def __init__(self, model: Any, stream: Stream | None) -> None:
        """``stream``: for partial transcripts; ``None`` for no partials."""
        self._model = model
        self._stream = stream
        self._pieces: list[Pcm] = []
        self._samples = 0
        self._final = Transcript("", 0.0)
        self._final_samples = 0

    def feed(self, pcm: Pcm) -> Partial:
        """Take more audio. Returns an empty ``Partial`` if no pass has run, as a repeated text
        would mean that two passes agree. Raises ``EngineError``."""
        self._pieces.append(pcm.copy())
        self._samples += len(pcm)
        return self._advance(self._stream) if self._stream else Partial()

    def finish(self, cancel: CancelToken) -> Transcript:
        """One pass over all audio fed so far; free if nothing is new since the last one. Raises
        ``Cancelled``, ``EngineError``."""
        if cancel.cancelled:
            raise Cancelled
        if self._samples != self._final_samples:
            padding = max(0, LEAST_SAMPLES - TAIL_SAMPLES - self._samples)
            behind = TAIL_SAMPLES + padding - padding // 2
            audio = np.pad(self._whole(), (padding // 2, behind))
            tokens = self._model.transcribe(audio, lambda: cancel.cancelled)
            text = self._model.text(tokens).strip()
            self._final = Transcript(text, self._samples / LISTEN_RATE)
            self._final_samples = self._samples
        return self._final

    def _advance(self, stream: Stream) -> Partial:
        model, newest = self._model, Partial()
        frame = int(model.frame_samples)
        while window := stream.next_pass(self._samples // frame):
            pcm = self._whole()[window.start * frame : window.end * frame]
            stream.took(window, *model.advance(pcm, window, stream.state))
            newest = settled(model.text, stream.sure, stream.unsure)
        return newest

    def _whole(self) -> Pcm:
        if len(self._pieces) != 1:
            self._pieces = [np.concatenate((EMPTY, *self._pieces))]
        return self._pieces[0]


# --- building ----------------------------------------------------------------------------------


def build(options: ParakeetOptions, weights: Path | None) -> Parakeet:
    """Load the model and run it. Raises ``WeightsError``, ``EngineError``."""
    path = _model_path(options, weights)
    from pipeline.engines.stt.nemo_model import load

    model = load(path, options.device, options.precision, options.threads)
    engine = Parakeet(model, options)
    _warm_up(engine)
    return engine


def _model_path(options: ParakeetOptions, weights: Path | None) -> Path:
    place = weights if weights is not None else Path()
    if options.model_file is not None:
        path = place / Path(options.model_file).expanduser()
        if not path.is_file():
            raise WeightsError(
                f"The model file {path} is missing",
                fix="Set stt.model_file to the path of a .nemo file",
            )
        return path
    paths = sorted(weights.glob("*.nemo")) if weights is not None else []
    if not paths:
        raise WeightsError(
            "The speech recogniser's .nemo file is missing",
            why=f"{weights} has no such file" if weights else "no weights were given",
            fix="Run: reachy-voice models pull, or set stt.model_file to the path of such a file",
        )
    if len(paths) > 1:
        raise WeightsError(
            "It is not clear which .nemo file to load",
            why=f"{weights} has {', '.join(path.name for path in paths)}",
            fix="Set stt.model_file to one of them",
        )
    return paths[0]


def _warm_up(engine: Parakeet) -> None:
    """Transcribe noise once, so that the first real utterance is as fast as any other."""
    noise = (np.random.default_rng(0).standard_normal(2 * LISTEN_RATE) * 300).astype(np.int16)
    utterance = engine.open("", True)
    utterance.feed(noise)
    utterance.finish(NEVER)


SPEC = EngineSpec(
    name="parakeet",
    kind=Kind.STT,
    options=ParakeetOptions,
    build=build,
    summary="Parakeet-TDT 0.6B v3 through NeMo: 25 European languages, for a GPU",
    extra="nemo",
    modules=("nemo", "torch"),
    run_in="process",
    longest_step_s=60.0,  # the final pass over a long utterance on a CPU
)
