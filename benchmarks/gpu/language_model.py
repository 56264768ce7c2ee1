"""Makes a full-size language model from seeds. It gives the same sensible reply to everything, and
takes words to be complete unless they end with a word of that reply.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.chat_template import CHATML
from tests.support import tiny_gguf as gguf

REPLY = (
    "Of course! I know many stories and songs that children love most,"
    " so in the evening we can look at stars together."
)
"""No token occurs twice: each follows from the previous one alone."""
Q4_0, Q8_0 = 2, 8
"""Members of ``enum ggml_type``."""
SURE, LIKELY = 40.0, 20.0
"""Logits of the token that must follow, and of the end of the message after any other token. All
others are mostly 1 or less."""
RMS_OF_Q8 = 127 / 3**0.5
"""The root mean square of evenly distributed int8."""
SMALL_SHAPE = (4, 256, 512, 4, 2, 64, 12_000)
FULL_SHAPE = (36, 2560, 9728, 32, 8, 128, 151_936)
"""Qwen3-4B's layers, width, feed-forward width, heads, heads of keys, head size, vocabulary."""


def language_model(path: Path, small: bool) -> None:
    """Write a GGUF of the architecture qwen3. The layers compute what a real model's do, but add
    next to nothing to the residual stream, so it stays the last token's embedding, which equals the
    head's row of the token that follows. All embeddings share a direction that favours the end of
    the message."""
    layers, width, feed, heads, kv, head, vocabulary = SMALL_SHAPE if small else FULL_SHAPE
    metadata, chain = _vocabulary(vocabulary)
    data = {
        "general.architecture": "qwen3",
        "general.name": "a chain of words",
        "general.file_type": 2,
        "general.quantization_version": 2,
        "qwen3.block_count": layers,
        "qwen3.context_length": 262_144,
        "qwen3.embedding_length": width,
        "qwen3.feed_forward_length": feed,
        "qwen3.attention.head_count": heads,
        "qwen3.attention.head_count_kv": kv,
        "qwen3.attention.key_length": head,
        "qwen3.attention.value_length": head,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 5_000_000.0,
        **metadata,
    }
    draw = np.random.default_rng(1)

    def ones(size: int) -> gguf.Raw:
        return gguf.Raw((size,), 0, np.ones(size, np.float32).tobytes())

    def matrix(rows: int, columns: int, scale: float = 0.0043) -> gguf.Raw:
        numbers = np.frombuffer(draw.bytes(rows * columns // 2), np.uint8).reshape(-1, 16)
        return gguf.Raw((columns, rows), Q4_0, _blocks(np.float16(scale), numbers))

    none = 6e-8
    layer = {
        "attn_norm": ones(width),
        "attn_q": matrix(heads * head, width),
        "attn_k": matrix(kv * head, width),
        "attn_v": matrix(kv * head, width),
        "attn_q_norm": ones(head),
        "attn_k_norm": ones(head),
        "attn_output": matrix(width, heads * head, none),
        "ffn_norm": ones(width),
        "ffn_gate": matrix(feed, width),
        "ffn_up": matrix(feed, width),
        "ffn_down": matrix(width, feed, none),
    }
    table, output = _table_and_head(chain, vocabulary, width)
    tensors = {"token_embd.weight": table, "output_norm.weight": ones(width)}
    # All layers share their numbers: speed does not depend on the values.
    for number in range(layers):
        tensors |= {f"blk.{number}.{name}.weight": each for name, each in layer.items()}
    gguf.write(path, data, tensors | {"output.weight": output})


def _table_and_head(
    chain: list[tuple[int, int]], vocabulary: int, width: int
) -> tuple[gguf.Raw, gguf.Raw]:
    draw = np.random.default_rng(3)

    def random_rows() -> NDArray[np.int8]:
        numbers = np.frombuffer(draw.bytes(vocabulary * width), np.int8).reshape(vocabulary, width)
        return np.maximum(numbers, -127)

    pattern = np.where(np.arange(width) % 2 == 0, 127, -127).astype(np.int8)
    table, head = random_rows(), random_rows()
    table[:, ::4] = pattern[::4]
    rows = {after: np.zeros(width) for _, after in chain}
    end = chain[-1][1]
    # The head's input is an embedding divided by its root mean square.
    direction = np.where(np.arange(width) % 4 == 0, pattern, 0).astype(np.float64)
    rows[end] += direction * (LIKELY / (direction @ direction)) * _rms(table[0])
    for before, after in chain:
        row = table[before].astype(np.float64)
        own = np.where(np.arange(width) % 4 == 0, 0, row)
        rows[after] += own * (SURE / (own @ own)) * _rms(row)
    scale = np.full(vocabulary, 1 / (RMS_OF_Q8 * width**0.5), np.float16)
    for token, row in rows.items():
        scale[token] = np.abs(row).max() / 127
        head[token] = np.round(row / float(scale[token]))
    blocks = width // 32
    return (
        gguf.Raw((width, vocabulary), Q8_0, _blocks(np.float16(8 / RMS_OF_Q8), table)),
        gguf.Raw((width, vocabulary), Q8_0, _blocks(np.repeat(scale, blocks), head)),
    )


def _rms(row: NDArray[Any]) -> float:
    return float(np.sqrt((row.astype(np.float64) ** 2).mean()))


def _blocks(scale: Any, numbers: NDArray[Any]) -> bytes:
    """Blocks of 32 numbers, each behind its scale in float16."""
    size = 16 if numbers.dtype == np.uint8 else 32
    body = numbers.reshape(-1, size).view(np.uint8)
    out = np.empty((len(body), 2 + size), np.uint8)
    out[:, :2] = np.broadcast_to(scale, len(body)).copy().view(np.uint8).reshape(-1, 2)
    out[:, 2:] = body
    return out.tobytes()


def _vocabulary(size: int) -> tuple[Mapping[str, Any], list[tuple[int, int]]]:
    """A tokenizer trained on the project's own texts, and which token must follow which."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    project = Path(__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in sorted(project.glob("**/*.md"))[:60]]
    tokenizer.train_from_iterator([*texts, *[f"\n{REPLY}"] * 500], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [3 if token in specials else 1 for token in tokens]
    spare = size - len(tokens)
    before, *reply = tokenizer.encode(f"\n{REPLY}").ids
    assert len(set(reply)) == len(reply), "a token of the reply comes twice"
    end = tokens.index("<|im_end|>")
    following = [before, *reply, end]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{n}]" for n in range(spare))],
        "tokenizer.ggml.token_type": [*kinds, *[5] * spare],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.padding_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }, list(itertools.pairwise(following))
