"""An adapter trained with torch has the same effect in llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engines.llm.llama_context import LlamaContext
from pipeline.engines.llm.llama_cpp import _shape
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions, LoraAdapter
from pipeline.work import NEVER
from tests.support import tiny_gguf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")
lora: Any = pytest.importorskip("training.lora")

pytestmark = pytest.mark.engines

TOKENS = [101, 2002, 303, 4004, 505]


def llama_logits(base: Path, *adapters: LoraAdapter) -> np.ndarray[Any, Any]:
    options = LlamaCppOptions(threads=1, context_tokens=512, kv_type="f16", adapters=adapters)
    model = Model(base, options)
    context = LlamaContext(model, _shape(options, model))
    context.decode(TOKENS, 0, 0, logits=True, by=NEVER)
    return context.logits().copy()


@pytest.mark.filterwarnings("ignore")
def test_file_and_layers_compute_the_same(weights: Any, tmp_path: Path) -> None:
    packaged = next(weights("smollm2-135m-instruct").glob("*.gguf"))
    base = tiny_gguf.language_model(tmp_path / "tiny.gguf", tiny_gguf.tokenizer(packaged))
    network = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=base.name, dtype=torch.float32
    ).eval()
    adapters = lora.attach(network, rank=4, alpha=8.0, dropout=0.1)
    torch.manual_seed(0)
    for each in adapters.values():
        torch.nn.init.normal_(each.b, std=0.2)
    out = tmp_path / "adapter.gguf"
    network.eval()
    lora.write(out, adapters, heads=tiny_gguf.HEADS, kv_heads=1, alpha=8.0, notes={"a.b": "c"})
    assert tiny_gguf.metadata(out)["a.b"] == "c"
    with torch.no_grad():
        expected = network(torch.tensor([TOKENS])).logits[0, -1].numpy()
    found, without = llama_logits(base, LoraAdapter(path=out)), llama_logits(base)
    assert np.corrcoef(found, expected)[0, 1] > 0.999
    assert np.corrcoef(without, expected)[0, 1] < 0.9


def test_rows_of_a_head_are_interleaved_from_halves() -> None:
    rows = np.arange(8)[:, None]
    assert lora.permute(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_reading_restores_the_order_of_rows() -> None:
    rows = np.arange(24).reshape(12, 2)
    assert np.array_equal(lora.restore_order(lora.permute(rows, 3), 3), rows)
