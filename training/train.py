"""Teach SmolLM2-135M-Instruct, as packaged, to be Reachy: a LoRA adapter from ``dialogues/``.

    pip install torch transformers accelerate gguf
    python -m training.train --out adapter.gguf [--begin ADAPTER [--average]] [--steps 660]
                             [--seed N] [--threads 2]

Starts from scratch, or with ``--begin`` from what an earlier adapter has learnt. ``--average``: the
result is the mean of both, which forgets less. The same data,
begin and seed give the same adapter, within the noise of parallel sums. An interrupted run resumes
from its last checkpoint (``--checkpoint``, every 30 steps).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.harness.program import weights
from pipeline.engines.llm.llama_files import model_path
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions
from training import lora
from training.dialogues import Dialogue, Renderer, Sample, digest, read, tool_offer, varied

BASE = "smollm2-135m-instruct"
RANK, ALPHA, DROPOUT = 16, 32.0, 0.05
"""The adapter is 9.8 MB in 16 bits."""
BATCH = 6
LEARNING_RATE = 6e-4
"""At 3e-4 two passes teach less; from 1e-3 on, the model forgets facts."""
STEPS = 660
"""One pass and a tenth."""
WARM_UP_STEPS = 20
COOL_DOWN = 0.3
"""The learning rate falls to zero over the last steps, this share of them. Until then it is
constant, so that a run can resume from a checkpoint with more steps than it began with."""
HELD_OUT = 40
"""Dialogues left out of training; their loss is printed."""
EVERY = 30
"""Steps between two checkpoints."""


@dataclass
class Run:
    network: Any
    adapters: dict[str, lora.LoraLinear]
    renderer: Renderer
    optimizer: torch.optim.Optimizer
    steps: int
    step: int = 0

    @property
    def heads(self) -> dict[str, int]:
        config = self.network.config
        return {"heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads}

    # --- one step

    def loss(self, samples: Sequence[Sample]) -> Tensor:
        """The weighted mean loss of the tokens. The samples' common prefix is read once, without
        gradients: with tools, it is far longer than the dialogues."""
        common = _common(samples)
        cache = self._read(samples[0].tokens[:common], len(samples))
        length = max(len(sample.tokens) for sample in samples) - common
        tokens = torch.zeros(len(samples), length, dtype=torch.long)
        factors = torch.zeros(len(samples), length)
        mask = torch.zeros(len(samples), common + length, dtype=torch.long)
        for row, sample in enumerate(samples):
            own = len(sample.tokens) - common
            tokens[row, :own] = torch.tensor(sample.tokens[common:])
            factors[row, :own] = torch.tensor(sample.weights[common:])
            mask[row, : common + own] = 1
        hidden = self.network.model(
            input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True
        ).last_hidden_state[:, :-1]
        factors = factors[:, 1:]
        places = factors > 0
        logits = self.network.lm_head(hidden[places]).float()
        losses = torch.nn.functional.cross_entropy(logits, tokens[:, 1:][places], reduction="none")
        return (losses * factors[places]).sum() / factors.sum()

    def _read(self, tokens: list[int], rows: int) -> DynamicCache:
        cache = DynamicCache(config=self.network.config)
        with torch.no_grad():
            self.network.model(
                input_ids=torch.tensor([tokens]), past_key_values=cache, use_cache=True
            )
        cache.batch_repeat_interleave(rows)
        return cache

    def learn(self, samples: Sequence[Sample]) -> float:
        loss = self.loss(samples)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)
        rest = (self.steps - self.step) / (self.steps * COOL_DOWN)
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (self.step + 1) / WARM_UP_STEPS, rest)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return float(loss)

    def test(self, batches: Sequence[Sequence[Sample]]) -> float:
        self.network.eval()
        with torch.no_grad():
            losses = [self.loss(batch).item() for batch in batches]
        self.network.train()
        return float(sum(losses) / len(losses))

    def average(self, begin: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Replace what was learned by its mean with ``begin``, by adapter."""
        with torch.no_grad():
            for name, own in begin.items():
                for key, value in self.adapters[name].own_state().items():
                    value.copy_((value + own[key]) / 2)

    # --- checkpoints

    def save(self, path: Path) -> None:
        state = {
            "step": self.step,
            "optimizer": self.optimizer.state_dict(),
            "adapters": {name: each.own_state() for name, each in self.adapters.items()},
            "random": torch.get_rng_state(),
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        part.replace(path)

    def restore(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.step = state["step"]
        self.optimizer.load_state_dict(state["optimizer"])
        for name, own in state["adapters"].items():
            self.adapters[name].load_state_dict(own, strict=False)
        torch.set_rng_state(state["random"])


def _common(samples: Sequence[Sample]) -> int:
    """The length of the samples' common prefix, without the token before the first that counts: its
    state predicts that one."""
    most = min(next(at for at, w in enumerate(each.weights) if w) for each in samples) - 1
    rows = [each.tokens for each in samples]
    return next((at for at in range(most) if len({row[at] for row in rows}) > 1), most)


# --- batches -----------------------------------------------------------------------------------


def batches(
    dialogues: Sequence[Dialogue], renderer: Renderer, rng: random.Random
) -> list[list[Sample]]:
    """One pass, in batches of dialogues of similar length with a common beginning."""
    result = []
    groups: dict[Any, list[Dialogue]] = {}
    for each in varied(dialogues, rng):
        groups.setdefault("own" if each.system else each.tools, []).append(each)
    for group in groups.values():
        group.sort(key=lambda each: len(str(each.turns)) * rng.uniform(0.93, 1.07))
        for start in range(0, len(group), BATCH):
            batch = group[start : start + BATCH]
            calls = set().union(*(each.called for each in batch))
            tools = tool_offer(calls, rng) if batch[0].tools else []
            result.append([renderer.sample(each, tools, rng) for each in batch])
    rng.shuffle(result)
    return result


def _passes(dialogues: Sequence[Dialogue], renderer: Renderer, seed: int) -> Iterator[list[Sample]]:
    """One pass after the other, each varied differently."""
    for number in itertools.count():
        yield from batches(dialogues, renderer, random.Random(f"{seed} {number}"))


# --- program -----------------------------------------------------------------------------------


def start(base: Path, steps: int, seed: int) -> tuple[Run, list[list[Sample]], list[list[Sample]]]:
    """A run, its training batches, and its test batches."""
    torch.manual_seed(seed)
    renderer = Renderer(Model(base, LlamaCppOptions(requantize=False)))
    dialogues = read()
    random.Random(seed).shuffle(dialogues)
    held_out, others = dialogues[:HELD_OUT], dialogues[HELD_OUT:]
    work = list(itertools.islice(_passes(others, renderer, seed), steps))
    network = AutoModelForCausalLM.from_pretrained(
        base.parent, gguf_file=base.name, dtype=torch.bfloat16
    )
    adapters = lora.attach(network, RANK, ALPHA, DROPOUT)
    own = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=LEARNING_RATE, weight_decay=0.01)
    network.train()
    run = Run(network, adapters, renderer, optimizer, steps)
    return run, work, batches(held_out, renderer, random.Random(seed))


def finish(run: Run, out: Path, command: str) -> None:
    notes = {
        "general.name": "Reachy for SmolLM2-135M-Instruct",
        "general.license": "apache-2.0",
        "general.basename": BASE,
        "reachy.dialogues_sha256": digest(),
        "reachy.command": command,
    }
    lora.write(out, run.adapters, **run.heads, alpha=ALPHA, notes=notes)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--begin", type=Path, help="an earlier adapter of the same base and rank")
    parser.add_argument("--average", action="store_true", help="with --begin")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, help="default: beside --out")
    args = parser.parse_args()
    if args.average and not args.begin:
        parser.error("--average needs --begin")
    torch.set_num_threads(args.threads)
    checkpoint = args.checkpoint or args.out.with_suffix(".checkpoint")
    run, work, tests = start(model_path(LlamaCppOptions(), weights(BASE)), args.steps, args.seed)
    begin = ""
    if args.begin:
        lora.read(args.begin, run.adapters, **run.heads)
        begin = f" --begin {hashlib.sha256(args.begin.read_bytes()).hexdigest()}"
    earlier = {
        name: {key: value.clone() for key, value in each.own_state().items()}
        for name, each in run.adapters.items()
    }
    if checkpoint.exists():
        run.restore(checkpoint)
    tokens = sum(len(sample.tokens) for batch in work for sample in batch)
    print(f"{len(work)} steps, {tokens} tokens", flush=True)
    began = time.monotonic()
    for batch in work[run.step :]:
        loss = run.learn(batch)
        if run.step % 5 == 0:
            print(
                f"{time.monotonic() - began:.0f} s, step {run.step}, loss {loss:.3f}",
                time.process_time(),
                flush=True,
            )
        if run.step % EVERY == 0:
            run.save(checkpoint)
    run.save(checkpoint)
    if args.average:
        begin += " --average"
        run.average(earlier)
    print(f"held-out loss {run.test(tests):.3f}", flush=True)
    command = f"python -m training.train{begin} --steps {args.steps} --seed {args.seed}"
    finish(run, args.out, command)


if __name__ == "__main__":
    main()
