"""What a GGUF file tells of its model's context."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from app.models.catalogue import Catalogue
from app.models.gguf import context_values_of

UINT32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", UINT32, value)


def strings(name: str, *values: str) -> bytes:
    head = struct.pack("<IIQ", ARRAY, STRING, len(values))
    return text(name) + head + b"".join(map(text, values))


def numbers(name: str, *values: int) -> bytes:
    head = struct.pack("<IIQ", ARRAY, UINT32, len(values))
    return text(name) + head + struct.pack(f"<{len(values)}I", *values)


def gguf(*values: bytes) -> bytes:
    family = text("general.architecture") + struct.pack("<I", STRING) + text("qwen3")
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values) + 1) + family + b"".join(values)


def gguf_of_qwen3_1_7b() -> bytes:
    """Its dimensions, behind a vocabulary."""
    return gguf(
        strings("tokenizer.ggml.tokens", "a", "b"),
        number("qwen3.block_count", 28),
        number("qwen3.embedding_length", 2048),
        number("qwen3.attention.head_count", 16),
        number("qwen3.attention.head_count_kv", 8),
        number("qwen3.attention.key_length", 128),
        number("qwen3.attention.value_length", 128),
    )


def values_of(content: bytes, tmp_path: Path) -> int:
    (tmp_path / "own.gguf").write_bytes(content)
    return context_values_of(tmp_path / "own.gguf")


def test_it_is_what_the_catalogue_says_of_the_same_model(tmp_path: Path) -> None:
    known = Catalogue.load()["qwen3-1.7b"].context_values
    assert values_of(gguf_of_qwen3_1_7b(), tmp_path) == known


def test_heads_that_differ_from_layer_to_layer(tmp_path: Path) -> None:
    content = gguf(
        number("qwen3.block_count", 3),
        number("qwen3.embedding_length", 512),
        number("qwen3.attention.head_count", 8),
        numbers("qwen3.attention.head_count_kv", 0, 2, 4),
    )
    assert values_of(content, tmp_path) == 6 * (64 + 64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGML",
        b"GGUF",
        gguf_of_qwen3_1_7b()[:60],
        gguf(number("qwen3.block_count", 3)),
        gguf(text("x") + struct.pack("<I", 99)),
        gguf(text("x") + struct.pack("<IIQ", ARRAY, ARRAY, 1)),
        gguf(text("x") + struct.pack("<IIQ", ARRAY, UINT32, 2**60)),
        gguf(struct.pack("<Q", 2**60)),
    ],
)
def test_a_file_that_does_not_tell_counts_none(content: bytes, tmp_path: Path) -> None:
    assert values_of(content, tmp_path) == 0
    assert context_values_of(tmp_path / "absent.gguf") == 0
