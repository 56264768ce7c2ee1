"""What Parakeet costs at its real size: random weights with the dimensions of v3.

    python -m benchmarks.parakeet_size [--device cpu] [--precision bf16] [--seconds 1.28 10.64 30]

The words are noise, the work is real: 627 million parameters, 24 layers of 1024, 128 mel bins. For
each length: a final pass, and the longest stretch of it in which nobody looks whether it is
cancelled; and one pass of a stream. Needs NeMo and 6 GB of memory. The file that it makes (2.5 GB)
is deleted again unless ``--keep`` names it.

The decoder is made to find a token every third frame, 4.2 a second, as speech has them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pipeline.audio import LISTEN_RATE, Pcm
from tests.support.tiny_models.parakeet import V3, new_model, tokenizer

VOCABULARY = 8192
"""Tokens of v3; the random model's are made-up words."""
RUNS = 3


def made_up_words(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(count)]


def make(file: Path) -> None:
    """Write a random model of the real size."""
    import torch

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        words = tokenizer(Path(directory), made_up_words(30_000), VOCABULARY)
        model = new_model(words, V3)
        count = sum(parameter.numel() for parameter in model.parameters())
        say(f"{count / 1e6:.0f} million parameters")
        model.save_to(str(file))


def noise(seconds: float) -> Pcm:
    samples = np.random.default_rng(1).standard_normal(round(seconds * LISTEN_RATE)) * 1000
    return samples.astype(np.int16)


def speak(engine: Any) -> None:
    """Let every token last three frames of 80 ms; at random, it would be ten tokens a frame."""
    import torch

    bias = engine._shared.model._model.joint.joint_net[-1].bias
    with torch.no_grad():
        bias[-2] = 100.0


# --- measuring ---------------------------------------------------------------------------------


class Looks:
    """A ``CancelToken`` that is never pulled, and knows how long nobody looked at it."""

    preempted = False

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last = time.process_time()

    @property
    def cancelled(self) -> bool:
        now = time.process_time()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        return False


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call. ``cpu_s`` is what it would take on a core of its own, with one thread."""

    wall_s: float
    cpu_s: float


def cost_of(call: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def median_cost(call: Callable[[], object]) -> Cost:
    costs = [cost_of(call) for _ in range(RUNS)]
    return Cost(
        float(np.median([cost.wall_s for cost in costs])),
        float(np.median([cost.cpu_s for cost in costs])),
    )


def final_row(engine: Any, seconds: float) -> str:
    """One line of the table: a final of so much audio."""
    pcm, model, looks = noise(seconds), engine._shared.model, Looks()
    tokens = model.transcribe([pcm], lambda: looks.cancelled)[0].ids
    whole = median_cost(lambda: model.transcribe([pcm], lambda: False))

    def encode() -> None:
        with model._running(lambda: False):
            model._encode([pcm])

    encoder = median_cost(encode)
    cells = (
        f"{seconds:g} s",
        f"{whole.wall_s * 1e3:.0f} ms",
        f"{whole.cpu_s * 1e3:.0f} ms",
        f"{encoder.cpu_s * 1e3:.0f} ms",
        f"{whole.cpu_s / seconds:.3f}",
        str(len(tokens)),
        f"{looks.longest_s * 1e3:.0f} ms",
    )
    return f"| {' | '.join(cells)} |"


def stream_line(engine: Any, seconds: float) -> str:
    """What a pass of a stream takes when all its left context is there."""
    context, frame = engine._shared.context, engine._shared.model.frame_samples
    utterance, pcm, step = engine.open("", True), noise(seconds), context.chunk * frame
    costs = []
    for begin in range(0, len(pcm) - step + 1, step):
        piece = pcm[begin : begin + step]
        cost = cost_of(partial(utterance.feed, piece))
        if begin > context.left * frame:
            costs.append(cost)
    cpu_ms = [cost.cpu_s * 1e3 for cost in costs]
    wall_ms = [cost.wall_s * 1e3 for cost in costs]
    return (
        f"CPU median {np.median(cpu_ms):.0f} ms, worst {max(cpu_ms):.0f} ms; "
        f"wall median {np.median(wall_ms):.0f} ms, worst {max(wall_ms):.0f} ms"
    )


def conditions(options: Any, engine: Any) -> str:
    import torch

    model = engine._shared.model
    where = torch.cuda.get_device_name() if model.device != "cpu" else "CPU"
    load = os.getloadavg()[0]
    memory = psutil.Process().memory_info().rss / 2**30
    return (
        f"{where}, {model.precision}, {options.threads} thread(s) of {os.cpu_count()} cores, "
        f"load average {load:.1f}, torch {torch.__version__}, {memory:.1f} GB resident"
    )


def report(engine: Any, options: Any, lengths: list[float]) -> None:
    say(conditions(options, engine))
    say("| audio | final, wall | final, CPU | encoder, CPU | RTF of CPU | tokens | no look for |")
    say("|---|---|---|---|---|---|---|")
    for seconds in lengths:
        say(final_row(engine, seconds))
    shape = f"{options.left_s:g}/{options.chunk_s:g}/{options.right_s:g} s"
    say(f"a pass of a stream, {shape}: {stream_line(engine, options.left_s + 4)}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    from pipeline.engines.stt.parakeet import ParakeetOptions, build

    parser = argparse.ArgumentParser(description="Parakeet at its real size, with random weights.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--left", type=float, default=2.0, help="left context of a stream, s")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.28, 2.56, 10.64, 30])
    parser.add_argument("--keep", type=Path, help="make the model here, or use it if it is there")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory() as directory:
        file = arguments.keep or Path(directory) / "random.nemo"
        if not file.exists():
            make(file)
        options = ParakeetOptions(
            weights=None,
            model_file=str(file),
            device=arguments.device,
            precision=arguments.precision,
            threads=arguments.threads,
            left_s=arguments.left,
            partials=True,
        )
        began = time.perf_counter()
        engine = build(options, None)
        say(f"loaded and warm after {time.perf_counter() - began:.0f} s")
        speak(engine)
        report(engine, options, arguments.seconds)


if __name__ == "__main__":
    main()
