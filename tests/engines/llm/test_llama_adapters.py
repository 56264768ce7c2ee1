"""LoRA adapters on the small real model: applied, merged, refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.settings.load import DEFAULT, load_settings
from pipeline.engines.llm import llama_model
from pipeline.engines.llm.llama_context import LlamaContext
from pipeline.engines.llm.llama_cpp import _shape
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions, LoraAdapter
from pipeline.errors import EngineError, WeightsError
from pipeline.work import NEVER
from tests.support import tiny_gguf

pytestmark = [pytest.mark.engines, pytest.mark.real]

RANK, WIDTH, KV_WIDTH, INNER = 2, 576, 192, 1536
SHAPES = {
    "blk.0.attn_k.weight": (KV_WIDTH, WIDTH),
    "blk.29.ffn_down.weight": (WIDTH, INNER),
}
SCALE = 3.0


def written(path: Path, matrices: Sequence[str] = tuple(SHAPES), kind: str = "lora") -> Path:
    """A random adapter with a large effect."""
    draw = np.random.default_rng(0)
    tensors: dict[str, NDArray[Any]] = {}
    for name in matrices:
        rows, columns = SHAPES[name]
        tensors[f"{name}.lora_a"] = draw.standard_normal((RANK, columns)).astype(np.float16)
        tensors[f"{name}.lora_b"] = draw.standard_normal((rows, RANK)).astype(np.float32) / 30
    data = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": kind,
        "adapter.lora.alpha": 2.0 * RANK,
    }
    return tiny_gguf.write(path, data, tensors)


def logits(path: Path, *adapters: LoraAdapter, **how: Any) -> NDArray[np.float32]:
    """The logits after a few words."""
    options = LlamaCppOptions(threads=1, context_tokens=512, adapters=adapters, **how)
    model = Model(path, options)
    context = LlamaContext(model, _shape(options, model))
    context.decode(model.tokenize("Paris is", special=False), 0, 0, logits=True, by=NEVER)
    return context.logits().copy()


@pytest.fixture
def base(directory: Path) -> Path:
    return next(directory.glob("*.gguf"))


def test_merged_or_not_an_adapter_changes_the_model_alike(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = LoraAdapter(path=written(tmp_path / "one.gguf"), scale=SCALE)
    plain, merged = logits(base), logits(base, adapter)
    monkeypatch.setattr(llama_model, "merge", lambda *_: False)
    beside = logits(base, adapter)
    assert np.abs(beside - plain).mean() > 5 * np.abs(beside - merged).mean()
    slow = logits(base, adapter, requantize=False)
    assert np.abs(slow - plain).mean() > 5 * np.abs(slow - beside).mean()


def test_the_shipped_adapter_costs_no_speed(base: Path) -> None:
    options = load_settings(DEFAULT).settings.llm
    assert isinstance(options, LlamaCppOptions)
    assert options.adapters
    assert not Model(base, options).adapters, "it is merged"


def test_without_room_for_a_copy_the_weights_are_used_as_they_are(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_is_usable(prefix: str) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    adapter = LoraAdapter(path=written(tmp_path / "one.gguf"), scale=SCALE)
    slow = logits(base, adapter, requantize=False)
    monkeypatch.setattr(llama_model.tempfile, "TemporaryDirectory", none_is_usable)
    assert np.array_equal(logits(base, adapter), slow)


def test_two_adapters_add_up(base: Path, tmp_path: Path) -> None:
    whole = LoraAdapter(path=written(tmp_path / "one.gguf"), scale=SCALE)
    half = whole.model_copy(update={"scale": SCALE / 2})
    for how in ({}, {"requantize": False}):
        one, two, plain = logits(base, whole, **how), logits(base, half, half, **how), logits(base)
        assert np.abs(one - plain).mean() > 5 * np.abs(one - two).mean()


def test_an_adapter_changes_the_identity(base: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "one.gguf")
    choices = [(), (LoraAdapter(path=path),), (LoraAdapter(path=path, scale=0.5),)]
    models = [Model(base, LlamaCppOptions(adapters=each, requantize=False)) for each in choices]
    assert len({model.identity for model in models}) == 3


def test_other_weights_are_refused(base: Path, tmp_path: Path) -> None:
    other = tiny_gguf.language_model(tmp_path / "other.gguf", tiny_gguf.tokenizer(base))
    adapter = LoraAdapter(path=written(tmp_path / "one.gguf"))
    with pytest.raises(EngineError, match="does not fit the language model") as raised:
        Model(other, LlamaCppOptions(adapters=(adapter,)))
    assert "other.gguf" in raised.value.what
    assert "failed to apply lora adapter" in raised.value.why
    assert "set llm.adapters to []" in raised.value.fix


@pytest.mark.parametrize(
    ("data", "sha256", "what", "why"),
    [
        (None, None, "cannot be read", "No such file"),
        (b"no GGUF", None, "does not fit", "invalid magic characters"),
        (b"", "0" * 64, "is not the one", "not 0000"),
    ],
)
def test_other_files_are_refused(
    base: Path, tmp_path: Path, data: bytes | None, sha256: str | None, what: str, why: str
) -> None:
    path = tmp_path / "one.gguf"
    if data is not None:
        path.write_bytes(data)
    adapter = LoraAdapter(path=path, sha256=sha256)
    with pytest.raises((EngineError, WeightsError), match=what) as raised:
        Model(base, LlamaCppOptions(adapters=(adapter,), requantize=False))
    assert why in raised.value.why
    assert "set llm.adapters to []" in raised.value.fix
