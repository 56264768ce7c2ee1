"""Parakeet-TDT and other transducers of NeMo's: speech to text in 25 languages, made for a GPU.

During speech, windows of the newest audio are decoded
(``pipeline.engines.stt.nemo_streaming``). The final text is one pass over the whole utterance, with
every word's time. Utterances that wait for the model at the same time share a pass
(``pipeline.engines.stt.gathering``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import Partial, Transcript, Word
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.stt.gathering import Gathering
from pipeline.engines.stt.nemo_streaming import Context, Decoded, Stream
from pipeline.engines.stt.token_words import Tokens, settled, timed_words
from pipeline.errors import EngineError, WeightsError
from pipeline.work import Cancelled, CancelToken

V3_LANGUAGES = (
    *("bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hr", "hu", "it"),
    *("lt", "lv", "mt", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "uk"),
)
"""What nvidia/parakeet-tdt-0.6b-v3 knows, by its model card."""
LEAST_SAMPLES = LISTEN_RATE
"""Shorter utterances get silence on both sides, up to one second, as NeMo's ``transcribe`` does."""
CATCH_UP_S = 20.0
"""New audio in one pass of a stream at most, where more than a chunk waits."""
WARM_ROWS = 8
"""Utterances in one pass that a GPU is ready for."""

Got = TypeVar("Got")


class ParakeetOptions(EngineOptions):
    engine: Literal["parakeet"] = "parakeet"
    weights: str | None = "parakeet-tdt-0.6b-v3"
    """Catalogue entry with a ``.nemo`` file; null if ``model_file`` is a whole path."""
    model_file: str | None = None
    """Which ``*.nemo``, where the weights have several; or the absolute path of your own."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """``cuda``, ``cuda:1``, ``cpu``; ``auto``: the first GPU, or else the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the encoder. ``auto``: bf16 where the GPU or the CPU (AVX512_BF16, AMX) computes in it."""
    threads: int = Field(default=1, ge=1)
    """On a CPU. More only help on cores that nothing else uses."""
    languages: tuple[str, ...] = V3_LANGUAGES
    """ISO 639-1: what the weights know. The model finds out which of them is spoken."""
    partials: bool | None = None
    """Transcribe during speech; null: on a GPU (each pass costs a CPU 0.2 to 1 s)."""
    left_s: float = Field(default=10.0, ge=0, le=30)
    """How much audio that was decoded before is looked at again in each pass of a stream."""
    chunk_s: float = Field(default=0.32, ge=0.08, le=10)
    """Audio between two passes of a stream. Tentative words are as late as that."""
    right_s: float = Field(default=0.96, ge=0, le=10)
    """Audio that must follow words before they are committed; with less, more of them are wrong."""
    local_attention_above_s: float = Field(default=30.0, ge=1)
    """Utterances longer than this are transcribed with local attention, which costs less memory."""
    local_attention_s: float = Field(default=10.24, ge=0.08)
    """How far local attention looks to each side."""
    batch_s: float = Field(default=120.0, ge=0)
    """Utterances that wait at the same time share a pass of so much audio; 0: never."""


# --- the engine --------------------------------------------------------------------------------


class Parakeet:
    """The engine; utterances share one model."""

    rate = LISTEN_RATE
    batches = True

    def __init__(self, model: Any, options: ParakeetOptions) -> None:
        """``model``: a ``pipeline.engines.stt.nemo_model.NemoModel``."""
        on_gpu = not model.device.startswith("cpu")
        self.streams = on_gpu if options.partials is None else options.partials
        self._languages = options.languages
        self._shared = Shared(model, options)

    def open(self, language: str, partials: bool) -> ParakeetUtterance:
        """``language`` is checked and not used: these models take no hint. Raises ``EngineError``
        for one that they do not know."""
        if language and language.split("-")[0].lower() not in self._languages:
            raise EngineError(
                f"Parakeet cannot recognise the language {language!r}",
                why=f"its weights know {', '.join(self._languages)}",
                fix="Leave the language out, or choose another stt.engine",
            )
        return ParakeetUtterance(self._shared, partials and self.streams)


class Shared:
    """What all utterances of one engine use."""

    def __init__(self, model: Any, options: ParakeetOptions) -> None:
        from pipeline.engines.stt.nemo_model import Piece

        self.model = model
        self.context = _context(options, model.frame_samples)
        batch_samples = round(options.batch_s * LISTEN_RATE)

        def fits(utterances: Sequence[Pcm]) -> bool:
            longest = max(map(len, utterances))
            return longest * len(utterances) <= batch_samples

        self.finals: Gathering[Pcm, Tokens] = Gathering(model.transcribe, fits)
        self.windows: Gathering[Piece, Decoded] = Gathering(
            model.advance, lambda pieces: fits([piece.pcm for piece in pieces])
        )


def _context(options: ParakeetOptions, frame_samples: int) -> Context:
    def frames(seconds: float) -> int:
        return round(seconds * LISTEN_RATE / frame_samples)

    return Context(
        left=frames(options.left_s),
        chunk=max(1, frames(options.chunk_s)),
        right=frames(options.right_s),
        most=frames(CATCH_UP_S),
    )


# --- an utterance ------------------------------------------------------------------------------


class ParakeetUtterance:
    """One utterance. It may be finished, fed on, and finished again."""

    def __init__(self, shared: Shared, partials: bool) -> None:
        self._shared = shared
        self._stream = Stream(shared.context) if partials else None
        self._pieces: list[Pcm] = []
        self._samples = 0
        self._final = Transcript("", 0.0)
        self._final_samples = 0
        """Of the last final text, with their times."""

    def feed(self, pcm: Pcm) -> Partial:
        """Take more audio. Nothing is returned where no pass has run: who reads the same text twice
        takes it that two passes agree. Raises ``EngineError``."""
        return _last(self.feed_steps(pcm, _Uncancelled()))

    def finish(self, cancel: CancelToken) -> Transcript:
        """One pass over everything fed so far; free if nothing was fed since the last one. Raises
        ``Cancelled``, ``EngineError``."""
        return _last(self.finish_steps(cancel))

    def feed_steps(self, pcm: Pcm, cancel: CancelToken) -> Iterator[Partial | None]:
        """``feed``, with ``None`` where others may join the pass."""
        self._pieces.append(pcm.copy())
        self._samples += len(pcm)
        newest = Partial()
        if self._stream:
            newest = yield from self._advance(self._stream, cancel)
        yield newest

    def finish_steps(self, cancel: CancelToken) -> Iterator[Transcript | None]:
        """``finish``, with ``None`` where others may join the pass."""
        if cancel.cancelled:
            raise Cancelled
        if self._samples != self._final_samples:
            whole = self._whole()
            before = silence_before(len(whole))
            audio = np.pad(whole, (before, max(0, LEAST_SAMPLES - before - len(whole))))
            for tokens in self._shared.finals.ask(audio, cancel):
                if tokens is None:
                    yield None
                else:
                    self._conclude(tokens, before, len(whole))
        yield self._final

    @property
    def _frame_samples(self) -> int:
        return int(self._shared.model.frame_samples)

    def _advance(self, stream: Stream, cancel: CancelToken) -> Generator[None, None, Partial]:
        from pipeline.engines.stt.nemo_model import Piece

        shared, frame = self._shared, self._frame_samples
        newest = Partial()
        while window := stream.due(self._samples // frame):
            pcm = self._whole()[window.start * frame : window.end * frame]
            piece = Piece(pcm, window.skip, window.take, stream.state)
            for decoded in shared.windows.ask(piece, cancel):
                if decoded is None:
                    yield None
                else:
                    stream.took(window, decoded)
            newest = settled(shared.model.text, stream.sure, stream.unsure)
        return newest

    def _conclude(self, tokens: Tokens, before: int, samples: int) -> None:
        model = self._shared.model
        text = model.text(tokens.ids).strip()
        frame_s = self._frame_samples / LISTEN_RATE
        words = timed_words(tokens, model.pieces(tokens.ids), frame_s)
        seconds = samples / LISTEN_RATE
        within = tuple(_within(word, before / LISTEN_RATE, seconds) for word in words)
        self._final = Transcript(text, seconds, within)
        self._final_samples = samples

    def _whole(self) -> Pcm:
        if len(self._pieces) != 1:
            self._pieces = [np.concatenate((EMPTY, *self._pieces))]
        return self._pieces[0]


def silence_before(samples: int) -> int:
    """How many zeros go before an utterance of so many samples (and as many behind it)."""
    return max(0, LEAST_SAMPLES - samples) // 2


def _within(word: Word, before_s: float, seconds: float) -> Word:
    """Its time in the utterance itself."""
    start_s, end_s = word.start_s - before_s, word.end_s - before_s
    return Word(word.text, min(max(0.0, start_s), seconds), min(max(0.0, end_s), seconds))


@dataclass(frozen=True, slots=True)
class _Uncancelled:
    cancelled: bool = False
    preempted: bool = False


def _last(steps: Iterator[Got | None]) -> Got:
    """The result of a call that is not shared."""
    results = [result for result in steps if result is not None]
    return results[-1]


# --- building ----------------------------------------------------------------------------------


def build(options: ParakeetOptions, weights: Path | None) -> Parakeet:
    """Load the model and run it. Raises ``WeightsError``, ``EngineError``."""
    path = _model_path(options, weights)
    from pipeline.engines.stt.nemo_model import Local, load

    local = Local(
        above_samples=round(options.local_attention_above_s * LISTEN_RATE),
        reach_samples=round(options.local_attention_s * LISTEN_RATE),
    )
    model = load(path, options.device, options.precision, options.threads, local)
    engine = Parakeet(model, options)
    _warm_up(engine, model)
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
    found = sorted(weights.glob("*.nemo")) if weights is not None else []
    if not found:
        raise WeightsError(
            "The speech recogniser's .nemo file is missing",
            why=f"there is none in {weights}" if weights else "no weights were given",
            fix="Run: reachy-voice models pull, or set stt.model_file to the path of one",
        )
    if len(found) > 1:
        raise WeightsError(
            "It is not clear which .nemo file to load",
            why=f"{weights} has {', '.join(path.name for path in found)}",
            fix="Set stt.model_file to one of them",
        )
    return found[0]


def _warm_up(engine: Parakeet, model: Any) -> None:
    """A partial and a final of noise, so that the first of a person is as fast as any other."""
    noise = (np.random.default_rng(0).standard_normal(2 * LISTEN_RATE) * 300).astype(np.int16)
    utterance = engine.open("", True)
    utterance.feed(noise)
    utterance.finish(_Uncancelled())
    if not model.device.startswith("cpu"):
        # A GPU's decoder is one graph for a number of rows, and is made anew for more of them.
        model.transcribe([noise] * WARM_ROWS, lambda: False)


SPEC = EngineSpec(
    name="parakeet",
    kind=Kind.STT,
    options=ParakeetOptions,
    build=build,
    summary="Parakeet-TDT 0.6B v3 through NeMo: 25 European languages, for a GPU",
    extra="nemo",
    modules=("nemo", "torch"),
    run_in="process",
    longest_step_s=60.0,  # the last pass over a long utterance, on a processor
)
