"""How small are the updates of a model that is trained on?

    python -m benchmarks.updates [--steps N] [--out FILE]

A small Llama is trained here for some steps with AdamW, in bfloat16 and with float32 weights that
are rounded to bfloat16, at the learning rates of reinforcement learning (1e-6) and of plain
fine-tuning (2e-5): for each step the share of weights that changed and the size of the delta. This
decides the format of deltas (``app/models/delta.py``). Needs torch and transformers.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.models.delta import SUFFIX
from app.models.delta_making import make_delta
from benchmarks.harness.program import arguments, finish, load
from tests.support.tensors import write_safetensors

RATES = (1e-6, 2e-5)
WARM_STEPS = 20
WIDTH, LAYERS, TOKENS, ROWS = 384, 8, 128, 2


def train(folder: Path, steps: int) -> Iterator[dict[str, Any]]:
    """The figures of each step's delta, for each way to train."""
    import torch

    torch.set_num_threads(1)
    for rate in RATES:
        for bfloat16 in (True, False):
            torch.manual_seed(0)
            net, step = _llama(torch)
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
            for _ in range(WARM_STEPS):
                step(optimizer)
            if bfloat16:
                net.to(torch.bfloat16)
            optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
            step(optimizer)  # not measured: the optimizer has no history yet
            old = _save(torch, net, folder / "old.safetensors")
            for number in range(steps):
                step(optimizer)
                new = _save(torch, net, folder / "new.safetensors")
                out = folder / f"update{SUFFIX}"
                changed, items = make_delta(old, new, out).changed
                size = new.stat().st_size
                yield {
                    "rate": rate,
                    "weights": "bfloat16" if bfloat16 else "float32, rounded",
                    "step": number + 1,
                    "changed_percent": round(100 * changed / items, 3),
                    "payload_percent": round(100 * out.stat().st_size / size, 3),
                    "bytes": size,
                }
                new.replace(old)


def _llama(torch: Any) -> tuple[Any, Any]:
    """The net, and a function that trains it for one step on the text of this repository."""
    from transformers import LlamaConfig, LlamaForCausalLM

    net = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=WIDTH,
            intermediate_size=1024,
            num_hidden_layers=LAYERS,
            num_attention_heads=6,
            max_position_embeddings=TOKENS,
        )
    )
    pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    text = torch.tensor(list(b"".join(page.read_bytes() for page in pages)))
    draw = random.Random(0)

    def step(optimizer: Any) -> None:
        starts = [draw.randrange(len(text) - TOKENS) for _ in range(ROWS)]
        batch = torch.stack([text[start : start + TOKENS] for start in starts])
        net(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return net, step


def _save(torch: Any, net: Any, path: Path) -> Path:
    tensors = {
        name: ("BF16", value.to(torch.bfloat16).view(torch.uint16).numpy())
        for name, value in net.state_dict().items()
    }
    return write_safetensors(path, tensors)


def main() -> None:
    parser = arguments(__doc__, "benchmarks.updates")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        steps = list(train(Path(folder), args.steps))
    finish({"steps": steps}, args.out, before)


if __name__ == "__main__":
    main()
