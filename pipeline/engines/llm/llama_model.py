"""One GGUF: its weights, its vocabulary and its metadata."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.engines.llm.llama_adapters import load_adapters, merge
from pipeline.engines.llm.llama_api import library, recent_problems, version
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.errors import WeightsError

log = logging.getLogger("reachy_voice.llm")

_MAGIC = b"GGUF"
_Q4_1_FILE, _Q8_0_FILE = 3, 7
"""``enum llama_ftype``: files whose tensors are mostly Q4_1, or mostly Q8_0."""
_REQUANTIZE_MAX_BYTES = 512 * 2**20
_UNKNOWN, _CONTROL, _LSTRIP = 1, 8, 128
"""``enum llama_token_attr``: the first two mark tokens that text must not spell, the third tokens
that absorb preceding spaces."""
_SAMPLED_BLOCKS, _BLOCK_BYTES = 16, 65_536


_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
"""``enum llama_split_mode``."""


class Model:
    """Weights in memory, on the GPUs that ``options`` name.

    Raises ``WeightsError`` if ``path`` is not a GGUF that llama.cpp reads.
    """

    def __init__(self, path: Path, options: LlamaCppOptions) -> None:
        check_magic(path)
        self._api = library()
        self._options = options
        self.path = path
        self.handle = self._load(path)
        self.adapters = load_adapters(self.handle, path, options.adapters)
        """Adapters that each context must be told to use."""
        self._learnt = "".join(f"{each.digest} {each.scale}" for each in self.adapters)
        if options.requantize and options.gpu_layers == 0 and self._is_slow_here(path):
            try:
                self._load_faster(path)
            except OSError as problem:  # no directory for temporary files: a full disk has none
                log.warning("Reading prompts will be slow: no Q8_0 copy: %s", problem)
        self.vocab = self._api.llama_model_get_vocab(self.handle)
        self.vocab_tokens = int(self._api.llama_vocab_n_tokens(self.vocab))
        self.trained_tokens = int(self._api.llama_model_n_ctx_train(self.handle))

    def _load(self, path: Path) -> Any:
        recent_problems()
        options = self._options
        params = self._api.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        params.main_gpu = options.main_gpu
        params.split_mode = _SPLIT_MODES[options.split_mode]
        if options.tensor_split:
            # llama.cpp reads one number per possible device.
            shares = [*options.tensor_split, *[0.0] * self._api.llama_max_devices()]
            params.tensor_split = (ctypes.c_float * len(shares))(*shares)
        handle = self._api.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            raise unusable(path, recent_problems() or "llama.cpp cannot load it")
        self._free = weakref.finalize(self, self._api.llama_model_free, handle)
        self._free.atexit = False
        return handle

    # --- speed

    def _is_slow_here(self, path: Path) -> bool:
        """Whether the model is small and in Q4_1, for which llama.cpp has no matrix kernels on
        CPUs; it has fast ones for Q8_0."""
        small = path.stat().st_size <= _REQUANTIZE_MAX_BYTES
        return small and self._api.llama_model_ftype(self.handle) == _Q4_1_FILE

    def _load_faster(self, path: Path) -> None:
        """Switch to a Q8_0 copy: doubles prefill speed and takes 0.4 s (135M, measured).

        The copy matches the original to within 0.4 % of each block's largest number. Adapters are
        merged into it; applied separately, they cost a quarter of the tokens per second. The file
        is unlinked once it is loaded, so it disappears with the process.
        """
        with tempfile.TemporaryDirectory(prefix="reachy-voice-") as directory:
            copy = Path(directory) / "q8_0.gguf"
            params = self._api.llama_model_quantize_default_params()
            params.ftype = _Q8_0_FILE
            params.allow_requantize = True
            source, target = os.fsencode(path), os.fsencode(copy)
            if self._api.llama_model_quantize(source, target, ctypes.byref(params)) == 0:
                merged = merge(self.adapters, copy)
                slow = self._free
                self.handle = self._load(copy)
                slow()
                adapters = () if merged else self._options.adapters
                self.adapters = load_adapters(self.handle, path, adapters)
            else:
                why = recent_problems() or "quantizing failed"
                log.warning("Reading prompts will be slow: no Q8_0 copy in %s: %s", directory, why)

    # --- metadata

    def chat_template(self, name: str | None = None) -> str | None:
        """The GGUF's jinja source, or its variant ``name``; ``None`` if it has no such template.

        Hermes 2 and 3 have a variant called "tool_use".
        """
        variant = name.encode() if name else None
        source = self._api.llama_model_chat_template(self.handle, variant)
        return source.decode() if source else None

    def number(self, key: str) -> int | None:
        """An integer from the GGUF's metadata. ``key``: without the architecture's prefix."""
        architecture = self._metadata("general.architecture")
        text = self._metadata(f"{architecture}.{key}")
        return int(text) if text.isdecimal() else None

    def _metadata(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(128)
        api = self._api
        length = api.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode() if length >= 0 else ""

    @functools.cached_property
    def head_sizes(self) -> frozenset[int]:
        """Sizes of the keys and values of one attention head, over all kinds of layers."""
        api = self._api
        even = int(api.llama_model_n_embd(self.handle) // api.llama_model_n_head(self.handle))
        names = ("key_length", "value_length", "key_length_swa", "value_length_swa")
        sizes = {self.number(f"attention.{name}") for name in names} - {None}
        return frozenset(size for size in sizes if size) or frozenset({even})

    @property
    def window_tokens(self) -> int:
        """Size of the sliding window of some layers; 0: all layers see everything."""
        return int(self._api.llama_model_n_swa(self.handle))

    @functools.cached_property
    def forgets_partly(self) -> bool:
        """Whether a sequence can drop its newest tokens, which recurrent state cannot."""
        recurrent = self._api.llama_model_is_recurrent(self.handle)
        return not (recurrent or self._api.llama_model_is_hybrid(self.handle))

    @functools.cached_property
    def identity(self) -> bytes:
        """A digest of the library version, the adapters, and the file's size, time, type and
        blocks spread over it. The time is needed as an update may miss all of those blocks."""
        status = self.path.stat()
        size = status.st_size
        kind = self._api.llama_model_ftype(self.handle)
        digest = hashlib.sha256(f"{version()} {size} {status.st_mtime_ns} {kind}".encode())
        digest.update(self._learnt.encode())
        with self.path.open("rb") as file:
            for block in range(_SAMPLED_BLOCKS):
                file.seek(max(0, size - _BLOCK_BYTES) * block // (_SAMPLED_BLOCKS - 1))
                digest.update(file.read(_BLOCK_BYTES))
        return digest.digest()

    # --- tokens

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Tokens of ``text``; ``special``: control tokens spelled in it become control tokens."""
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._api.llama_tokenize(self.vocab, data, len(data), tokens, room, False, special)
        return list(tokens[:count])

    @property
    def starts_with_bos(self) -> bool:
        return bool(self._api.llama_vocab_get_add_bos(self.vocab))

    @property
    def bos(self) -> int:
        """Token id, negative if the vocabulary has none."""
        return int(self._api.llama_vocab_bos(self.vocab))

    @property
    def eos(self) -> int:
        return int(self._api.llama_vocab_eos(self.vocab))

    def ends(self, token: int) -> bool:
        """Whether the token ends the model's answer."""
        return bool(self._api.llama_vocab_is_eog(self.vocab, token))

    def text(self, token: int) -> str:
        """How a token is spelled in the vocabulary; empty for a negative id."""
        return self._api.llama_vocab_get_text(self.vocab, token).decode() if token >= 0 else ""

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The UTF-8 text of a token, perhaps only part of a character. Empty for control tokens,
        unless ``special``."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = self._api.llama_token_to_piece(self.vocab, token, buffer, room, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            room = -n

    @functools.cached_property
    def control_tokens(self) -> Mapping[int, str]:
        """Tokens that are not text, each with the spelling that ``tokenize`` turns into it if
        ``special``."""
        attributes = self._api.llama_vocab_get_attr
        tokens = range(self.vocab_tokens)
        control = [t for t in tokens if attributes(self.vocab, t) & (_UNKNOWN | _CONTROL)]
        return {token: self.text(token) for token in control}

    @functools.cached_property
    def border_texts(self) -> frozenset[str]:
        """Spellings of control tokens before which a text can be cut without changing its
        tokens."""
        attributes = self._api.llama_vocab_get_attr
        tokens = self.control_tokens.items()
        return frozenset(
            text
            for token, text in tokens
            if attributes(self.vocab, token) & (_CONTROL | _LSTRIP) == _CONTROL
        )


def check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as problem:
        raise unusable(path, problem.strerror or str(problem)) from problem
    if magic != _MAGIC:
        raise unusable(path, "it is not a GGUF: it does not begin with the letters GGUF")


def unusable(path: Path, why: str) -> WeightsError:
    return WeightsError(
        f"The language model {path.name} cannot be loaded",
        why=why,
        fix="Run: reachy-voice models verify (and pull, to fetch what is missing), "
        "or choose another GGUF with llm.model_file",
    )
