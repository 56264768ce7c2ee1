"""A transducer of NeMo's: samples in, tokens out, whole utterances or windows of a stream.

The only module that knows NeMo and torch, but for ``nemo_attention``. Import it where the engine
runs, for both take half a minute to import on a busy machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import unreadable
from pipeline.engines.stt.nemo_attention import Attention
from pipeline.engines.stt.nemo_streaming import Decoded
from pipeline.engines.stt.token_words import Tokens
from pipeline.errors import EngineError
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.stt")

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a stream. ``pcm``: 16 kHz, whole frames. ``skip`` frames are left context, ``take``
    more are decoded for good behind ``state`` (``None``: at the beginning), the rest for now."""

    pcm: Pcm
    skip: int
    take: int
    state: Any


class NemoModel:
    """One network. Not thread-safe."""

    def __init__(self, model: Any, device: Any, precision: Precision, local: Local) -> None:
        """``model``: a restored ``EncDecRNNTBPEModel`` in evaluation mode, on ``device``."""
        import torch

        self._torch = torch
        self._model = model
        self._device = device
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._local = local
        self._stop: Callable[[], bool] = _never
        self._computer = model.decoding.decoding.decoding_computer
        # NeMo 3.0's decoder for CPUs returns other rows' durations in a batch (its inner loop
        # overwrites those of rows that are done). One row at a time takes no longer there.
        self.decodes_rows_alone = device.type == "cpu"
        stride_s = float(model.cfg.preprocessor.window_stride)
        self.frame_samples = round(model.encoder.subsampling_factor * stride_s * LISTEN_RATE)
        """Samples per frame of the encoder's output."""
        reach = max(1, round(local.reach_samples / self.frame_samples))
        self._attention = Attention(model.encoder, reach)
        self.device = str(device)
        self.precision = precision
        self._watch()

    # -- what it can do

    def transcribe(self, utterances: Sequence[Pcm], stop: Callable[[], bool]) -> list[Tokens]:
        """Each whole utterance from one full-context pass, or local attention where it is long.

        Raises ``Cancelled`` soon after ``stop()`` is true, and ``EngineError``.
        """
        longest = max(len(pcm) for pcm in utterances)
        if longest > self._local.above_samples:
            with self._attention.local():
                return self._transcribe(utterances, stop)
        return self._transcribe(utterances, stop)

    def advance(self, pieces: Sequence[Piece], stop: Callable[[], bool]) -> list[Decoded]:
        """The next part of each stream. Raises as ``transcribe`` does."""
        with self._running(stop):
            encoded, lengths = self._encode([piece.pcm for piece in pieces])
            ends = [int(length) for length in lengths]
            takes = [
                (piece.skip, min(piece.skip + piece.take, end))
                for piece, end in zip(pieces, ends, strict=True)
            ]
            states = [piece.state for piece in pieces]
            sure, states = self._decode(encoded, takes, states)
            rest = [(take[1], end) for take, end in zip(takes, ends, strict=True)]
            unsure, _ = self._decode(encoded, rest, states)
        return [Decoded(*each) for each in zip(sure, unsure, states, strict=True)]

    def text(self, ids: Sequence[int]) -> str:
        """What tokens say, as NeMo's own transcripts have it."""
        text = self._model.decoding.decode_tokens_to_str_with_strip_punctuation(list(ids))
        return str(text)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """How each token is spelled."""
        return [str(piece) for piece in self._model.tokenizer.ids_to_tokens(list(ids))]

    # -- passes

    def _transcribe(self, utterances: Sequence[Pcm], stop: Callable[[], bool]) -> list[Tokens]:
        with self._running(stop):
            encoded, lengths = self._encode(utterances)
            whole = [(0, int(length)) for length in lengths]
            tokens, _ = self._decode(encoded, whole, [None] * len(whole))
        return tokens

    @contextmanager
    def _running(self, stop: Callable[[], bool]) -> Iterator[None]:
        self._stop = stop
        try:
            with self._torch.inference_mode():
                yield
        except self._torch.OutOfMemoryError as error:
            self._torch.cuda.empty_cache()
            raise EngineError(
                "Speech recognition ran out of GPU memory",
                why=str(error).splitlines()[0],
                fix="Set stt.batch_s lower, or use a smaller language model or voice",
            ) from error
        finally:
            self._stop = _never

    def _encode(self, utterances: Sequence[Pcm]) -> tuple[Any, Any]:
        """float32 of shape ``(batch, frames, width)``, and how many frames are real."""
        torch = self._torch
        lengths = [len(pcm) for pcm in utterances]
        signal = torch.zeros(len(utterances), max(lengths), dtype=torch.float32)
        for row, pcm in enumerate(utterances):
            signal[row, : len(pcm)] = torch.from_numpy(to_float(pcm))
        features, counts = self._model.preprocessor(
            input_signal=signal.to(self._device),
            length=torch.tensor(lengths, device=self._device),
        )
        encoded, frames = self._model.encoder(audio_signal=features.to(self._dtype), length=counts)
        return encoded.transpose(1, 2).float(), frames

    def _decode(
        self, encoded: Any, ranges: Sequence[tuple[int, int]], states: Sequence[Any]
    ) -> tuple[list[Tokens], list[Any]]:
        """Frames ``ranges`` of each row, each from its own state (``None``: the beginning), and the
        states behind them."""
        tokens, after = [Tokens()] * len(ranges), list(states)
        rows = [row for row, (begin, end) in enumerate(ranges) if end > begin]
        groups = [[row] for row in rows] if self.decodes_rows_alone else [rows] if rows else []
        for group in groups:
            parts = [encoded[row, slice(*ranges[row])] for row in group]
            found = self._decode_group(parts, [states[row] for row in group])
            for row, (each, state) in zip(group, found, strict=True):
                tokens[row], after[row] = each, state
        return tokens, after

    def _decode_group(
        self, parts: Sequence[Any], states: Sequence[Any]
    ) -> list[tuple[Tokens, Any]]:
        torch, computer = self._torch, self._computer
        padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        lengths = torch.tensor([len(part) for part in parts], device=self._device)
        known = any(state is not None for state in states)
        before = computer.merge_to_batched_state(list(states)) if known else None
        result = computer(x=padded, out_len=lengths, prev_batched_state=before)
        # A GPU's graph may have more rows than this batch; they are at the end.
        after = computer.split_batched_state(result[-1])[: len(parts)]
        return list(zip(_tokens(result[0], len(parts)), after, strict=True))

    # -- stopping

    def _watch(self) -> None:
        """Look at ``stop`` before each layer, and on a CPU before each decoded token too (a GPU
        runs those as one graph)."""
        watched = list(self._model.encoder.layers)
        if self._device.type == "cpu":
            watched.append(self._model.decoder.prediction["dec_rnn"])
        for module in watched:
            module.register_forward_pre_hook(self._look)

    def _look(self, module: Any, arguments: Any) -> None:
        if self._stop():
            raise Cancelled


@dataclass(frozen=True, slots=True)
class Local:
    """When attention is local, and how far it sees to each side then."""

    above_samples: int
    reach_samples: int


def _tokens(found: Any, rows: int) -> list[Tokens]:
    """The first ``rows`` of NeMo's ``BatchedHyps``."""
    counts = found.current_lengths.tolist()[:rows]
    ids, frames = found.transcript.tolist(), found.timestamps.tolist()
    # Transducers without durations: a token lasts one frame.
    durations = found.token_durations.tolist() if found.with_durations else None
    return [
        Tokens(
            tuple(ids[row][:count]),
            tuple(frames[row][:count]),
            tuple(durations[row][:count]) if durations else (1,) * count,
        )
        for row, count in enumerate(counts)
    ]


def _never() -> bool:
    return False


# --- loading -----------------------------------------------------------------------------------


def load(path: Path, device: str, precision: str, threads: int, local: Local) -> NemoModel:
    """Load a ``.nemo`` file. ``device``: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``. ``precision``:
    ``auto``, ``fp32`` or ``bf16``, of the encoder. ``threads``: on a CPU.

    Raises ``WeightsError`` for a file that NeMo refuses or that is no transducer of 16 kHz, and
    ``EngineError`` for a device that is not there.
    """
    # Threads of OpenMP that wait must not spin on cores that other engines need; it is read once.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    place = _place(device)
    if place.type == "cpu":
        torch.set_num_threads(threads)
    chosen = _precision(precision, place)
    model = _restore(path)
    # The decoder stays in float32: it is small, and its decisions are what the words are.
    model.encoder.to(torch.bfloat16 if chosen == "bf16" else torch.float32)
    model.to(place)
    log.info("%s runs on %s in %s", path.name, place, chosen)
    return NemoModel(model, place, chosen, local)


def _join_our_log(nemo_log: logging.Logger) -> None:
    # It has handlers of its own, which its methods turn up and down, with all that others added.
    for handler in list(nemo_log.handlers):
        nemo_log.removeHandler(handler)
    nemo_log.propagate = True
    nemo_log.setLevel(logging.ERROR)


def _restore(path: Path) -> Any:
    # It reports that it sends no telemetry.
    logging.getLogger("nv_one_logger").setLevel(logging.ERROR)
    from nemo.collections.asr.models import ASRModel, EncDecRNNTBPEModel
    from omegaconf import open_dict

    _join_our_log(logging.getLogger("nemo_logger"))
    try:
        model = ASRModel.restore_from(str(path), map_location="cpu")
    except Exception as error:  # NeMo raises many kinds
        raise unreadable(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(model, EncDecRNNTBPEModel):
        raise unreadable(path, f"it is a {type(model).__name__}, and no transducer")
    if model.cfg.sample_rate != LISTEN_RATE:
        raise unreadable(path, f"it hears at {model.cfg.sample_rate} Hz, not at {LISTEN_RATE}")
    decoding = model.cfg.decoding.copy()
    with open_dict(decoding):
        decoding.strategy = "greedy_batch"
        decoding.fused_batch_size = -1
        decoding.tdt_include_token_duration = True
        decoding.greedy = {"max_symbols": 10, "loop_labels": True}
    model.change_decoding_strategy(decoding, verbose=False)
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.freeze()
    return model.eval()


def _place(device: str) -> Any:
    import torch

    there = torch.cuda.is_available()
    if device.startswith("cuda") and not there:
        raise EngineError(
            f"There is no GPU for stt.device {device!r}",
            why=f"torch {torch.__version__} finds no CUDA device",
            fix="Set stt.device to cpu, or install a driver and a torch that fit (see doctor)",
        )
    if device == "auto":
        device = "cuda" if there else "cpu"
    return torch.device(device)


def _precision(asked: str, place: Any) -> Precision:
    import torch

    if asked == "fp32":
        return "fp32"
    if asked == "bf16":
        return "bf16"
    if place.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    able = torch.cpu.get_capabilities()
    return "bf16" if able.get("avx512_bf16") or able.get("amx_bf16") else "fp32"
