"""A NeMo transducer: samples in, tokens out, for whole utterances or windows of a stream.

The only STT module that uses NeMo and torch. Import it only where the engine runs: importing both
takes half a minute on a busy machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import unreadable
from pipeline.engines.stt.nemo_streaming import Tokens, Window
from pipeline.engines.torch_place import TorchPlace, place
from pipeline.errors import EngineError
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.stt")


class NemoModel:
    """One network. Not thread-safe."""

    def __init__(self, model: Any, where: TorchPlace) -> None:
        """``model``: a restored ``EncDecRNNTBPEModel`` in evaluation mode, on its device."""
        import torch

        self.where = where
        self._torch = torch
        self._model = model
        self._stop: Callable[[], bool] = _never
        self._computer = model.decoding.decoding.decoding_computer
        stride_s = float(model.cfg.preprocessor.window_stride)
        self.frame_samples = round(model.encoder.subsampling_factor * stride_s * LISTEN_RATE)
        """Samples per frame of the encoder's output."""
        self.passes = 0
        """How many times the encoder ran."""
        self._watch()

    # -- what it can do

    def transcribe(self, pcm: Pcm, stop: Callable[[], bool]) -> Tokens:
        """A whole utterance, from one full-context pass.

        Raises ``Cancelled`` soon after ``stop()`` is true, and ``EngineError``.
        """
        with self._running(stop):
            tokens, _ = self._decode(self._encode(pcm), None)
        return tokens

    def advance(self, pcm: Pcm, window: Window, state: Any) -> tuple[Tokens, Tokens, Any]:
        """Decode the next part of a stream, the ``pcm`` of ``window``, from ``state`` (``None``:
        the beginning). Returns final tokens, tentative tokens, and the state after the final ones.
        Raises ``EngineError``."""
        with self._running(_never):
            encoded = self._encode(pcm)[window.skip :]
            sure, state = self._decode(encoded[: window.take], state)
            unsure, _ = self._decode(encoded[window.take :], state)
        return sure, unsure, state

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, as in NeMo's own transcripts."""
        text = self._model.decoding.decode_tokens_to_str_with_strip_punctuation(list(ids))
        return str(text)

    # -- passes

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
                fix="Use a smaller language model or voice",
            ) from error
        finally:
            self._stop = _never

    def _encode(self, pcm: Pcm) -> Any:
        """The encoder's output, float32 of shape ``(frames, width)``."""
        torch = self._torch
        self.passes += 1
        features, counts = self._model.preprocessor(
            input_signal=torch.from_numpy(to_float(pcm))[None].to(self.where.device),
            length=torch.tensor([len(pcm)], device=self.where.device),
        )
        encoded, frames = self._model.encoder(
            audio_signal=features.to(self.where.numbers), length=counts
        )
        return encoded[0, :, : int(frames[0])].T.float()

    def _decode(self, encoded: Any, state: Any) -> tuple[Tokens, Any]:
        """Tokens of ``encoded`` from ``state`` (``None``: the beginning), and the new state."""
        if not len(encoded):
            return (), state
        computer = self._computer
        before = computer.merge_to_batched_state([state]) if state is not None else None
        length = self._torch.tensor([len(encoded)], device=self.where.device)
        result = computer(x=encoded[None], out_len=length, prev_batched_state=before)
        count = int(result[0].current_lengths[0])
        tokens = tuple(result[0].transcript[0, :count].tolist())
        return tokens, computer.split_batched_state(result[-1])[0]

    # -- stopping

    def _watch(self) -> None:
        """Check ``stop`` before each layer and, on a CPU, before each decoded token (a GPU decodes
        in one graph)."""
        modules = list(self._model.encoder.layers)
        if self.where.device == "cpu":
            modules.append(self._model.decoder.prediction["dec_rnn"])
        for module in modules:
            module.register_forward_pre_hook(self._look)

    def _look(self, module: Any, arguments: Any) -> None:
        if self._stop():
            raise Cancelled


def _never() -> bool:
    return False


# --- loading -----------------------------------------------------------------------------------


def load(path: Path, device: str, precision: str, threads: int) -> NemoModel:
    """Load a ``.nemo`` file. ``device``: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``. ``precision``:
    ``auto``, ``fp32`` or ``bf16``, for the encoder. ``threads``: on a CPU.

    Raises ``WeightsError`` for a file that NeMo cannot load or that is not a 16 kHz transducer, and
    ``EngineError`` for a device that the machine lacks.
    """
    where = place("stt", device, precision, threads)
    model = _restore(path)
    # The decoder stays in float32: it is small, and it decides the words.
    model.encoder.to(where.numbers)
    model.to(where.device)
    log.info("%s runs on %s in %s", path.name, where.device, where.precision)
    return NemoModel(model, where)


def _join_our_log(nemo_log: logging.Logger) -> None:
    # Its methods would change the level of all handlers, those that others added included.
    for handler in list(nemo_log.handlers):
        nemo_log.removeHandler(handler)
    nemo_log.propagate = True
    nemo_log.setLevel(logging.ERROR)


def _restore(path: Path) -> Any:
    # Silence its message that it sends no telemetry.
    logging.getLogger("nv_one_logger").setLevel(logging.ERROR)
    from nemo.collections.asr.models import ASRModel, EncDecRNNTBPEModel

    _join_our_log(logging.getLogger("nemo_logger"))
    try:
        model = ASRModel.restore_from(str(path), map_location="cpu")
    except Exception as error:  # NeMo raises many kinds
        raise unreadable(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(model, EncDecRNNTBPEModel):
        raise unreadable(path, f"it is a {type(model).__name__}, not a transducer")
    if model.cfg.sample_rate != LISTEN_RATE:
        raise unreadable(path, f"it works at {model.cfg.sample_rate} Hz, not at {LISTEN_RATE}")
    return greedy(model)


def greedy(model: Any) -> Any:
    """Set up ``model`` for ``NemoModel``: greedy, deterministic decoding. Returns it."""
    from omegaconf import open_dict

    config = model.cfg.decoding.copy()
    with open_dict(config):
        config.strategy = "greedy_batch"
        config.fused_batch_size = -1
        config.greedy = {"max_symbols": 10, "loop_labels": True}
    model.change_decoding_strategy(config, verbose=False)
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.freeze()
    return model.eval()
