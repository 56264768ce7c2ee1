"""Tells whether sound begins with given words, by Moonshine's own network.

The recogniser writes likely words, and a robot's name is none ("Hey Ricky", "Here you see"). So the
decoder is given the words, and says how likely each of their tokens is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, open_session

FREE_NATS, NATS_PER_TOKEN = 4.0, 4.0
"""The least log probability of words that count as heard: minus the first, and minus the second for
each of their tokens. ``python -m benchmarks.wake`` measures them."""
DOUBT_NATS = 8.0
"""Within so much of it, the sound is looked at again from later starts, and the mean decides: the
likelihood of the right words hardly depends on the start, that of others does."""
SHIFT_SAMPLES, SHIFTS = LISTEN_RATE // 20, 3
"""How much later each other start is, and how many there are."""
MOST_TOKENS = 16
"""Of a phrase; longer ones are not looked for."""
SPELLINGS = 2
"""How many ways to divide a text into tokens are tried."""
_BEGIN = 1  # the token before each text
_SPACE = "▁"


class PhraseEar:
    """Looks for words in sound. Not thread-safe. It loads the network again (45 MB), because the
    recogniser's runtime does not tell probabilities."""

    def __init__(self, directory: Path) -> None:
        """``directory``: Moonshine's weights. Raises ``WeightsError``."""
        self._encoder = open_session(model_file(directory, "encoder_model.ort"))
        self._decoder = open_session(model_file(directory, "decoder_model_merged.ort"))
        inputs = ((each.name, each.shape) for each in self._decoder.get_inputs())
        self._caches = {name: shape for name, shape in inputs if name.startswith("past_key_values")}
        self._tokens = _tokens(model_file(directory, "tokenizer.bin").read_bytes())

    def begins_with(self, pcm: Pcm, phrase: str) -> bool | None:
        """Whether up to some seconds of sound (16 kHz) begin with ``phrase``; ``None``: there
        are no tokens for it."""
        texts = [text for form in _forms(phrase) for text in _divided(form, self._tokens)]
        if not texts:
            return None
        least = -FREE_NATS - NATS_PER_TOKEN * min(map(len, texts))
        above = [self._log_probability(pcm, texts) - least]
        if abs(above[0]) < DOUBT_NATS:
            starts = range(SHIFT_SAMPLES, SHIFTS * SHIFT_SAMPLES + 1, SHIFT_SAMPLES)
            above += [self._log_probability(pcm[at:], texts) - least for at in starts]
        return sum(above) >= 0

    def _log_probability(self, pcm: Pcm, texts: list[list[int]]) -> float:
        """Of the likeliest of ``texts``, in nats."""
        sound = to_float(pcm)[None]
        whole = np.ones(sound.shape, np.int64)
        (heard,) = self._encoder.run(None, {"input_values": sound, "attention_mask": whole})
        ids = np.zeros((len(texts), max(map(len, texts)) + 1), np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text) + 1] = [_BEGIN, *text]
        heard = np.repeat(heard, len(texts), axis=0)
        feed = {
            "input_ids": ids,
            "encoder_hidden_states": heard,
            "encoder_attention_mask": np.ones(heard.shape[:2], np.int64),
            "use_cache_branch": np.array([False]),
        }
        for name, (_, heads, _, size) in self._caches.items():
            feed[name] = np.zeros((len(texts), heads, 0, size), np.float32)
        (logits,) = self._decoder.run(["logits"], feed)
        nats = _log_softmax(logits)
        return max(
            float(nats[row, np.arange(len(text)), text].sum()) for row, text in enumerate(texts)
        )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _tokens(data: bytes) -> Mapping[str, int]:
    """The tokens' texts and numbers. Before each text stands its length in bytes, in one byte, or
    from 128 on in two, the first of them with 128 added to the lower seven bits."""
    texts, at = list[str](), 0
    while at < len(data):
        size, at = data[at], at + 1
        if size >= 128:
            size, at = data[at] * 128 + size - 128, at + 1
        texts.append(data[at : at + size].decode(errors="replace"))
        at += size
    return {text: number for number, text in enumerate(texts) if text}


def _forms(phrase: str) -> list[str]:
    """How a recogniser may write it: with and without commas, or with small letters."""
    words = phrase.replace(",", " ").split()
    forms = (
        " ".join(words),
        ", ".join(words),
        ", ".join((" ".join(words[:1]), " ".join(words[1:]))),
    )
    return [*dict.fromkeys((*forms, " ".join(words).lower()))]


def _divided(text: str, tokens: Mapping[str, int]) -> list[list[int]]:
    """The ways to divide ``text`` into fewest tokens, at most ``SPELLINGS``."""
    text = _SPACE + text.replace(" ", _SPACE)
    found: list[list[int]] = []
    begun: deque[tuple[int, list[int]]] = deque([(0, [])])
    while begun and len(found) < SPELLINGS:
        at, before = begun.popleft()
        if at == len(text):
            found.append(before)
        elif len(before) < MOST_TOKENS:
            ends = (end for end in range(len(text), at, -1) if text[at:end] in tokens)
            begun.extend((end, [*before, tokens[text[at:end]]]) for end in ends)
    return found
