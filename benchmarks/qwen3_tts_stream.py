"""How soon Qwen3-TTS speaks and stops: n, P50 and P95 of each figure, in milliseconds.

    python -m benchmarks.qwen3_tts_stream [--model-dir DIRECTORY | --size 0.6b] [--clauses 20]

Without a directory it makes the tiny model of the tests: then the figures are what the package,
our hooks and steps cost, without what a real network does. ``--size 0.6b`` makes one with random
weights of the true dimensions: what a real network costs, saying noise. ``cpu`` is the processor's
own time, which a busy machine does not change.

- ``first audio``: from the call to the first samples;
- ``frame``: between two frames, over whole clauses (80 ms is real time);
- ``cancel``: from the cancellation, anywhere within a frame, until the engine is free again;
- ``codec``: one piece of eight frames, after 100 others.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.engines.tts.not_speech import NotSpeech
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES
from pipeline.engines.tts.qwen3_official import Official
from pipeline.engines.tts.qwen3_tts import Qwen3Tts, Qwen3TtsOptions, build
from pipeline.messages import SpeechRequest
from pipeline.work import Cancelled

TEXT = "The light is red, so please wait here until it is green."


@dataclass
class Figures:
    """Milliseconds on the clock, and of the processor."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_ms.append((time.perf_counter() - wall) * 1000)
        self.cpu_ms.append((time.process_time() - cpu) * 1000)

    def __str__(self) -> str:
        wall, cpu = (np.percentile(each, (50, 95)) for each in (self.wall_ms, self.cpu_ms))
        return (
            f"n {len(self.wall_ms):4}   P50 {wall[0]:8.1f}   P95 {wall[1]:8.1f}   "
            f"cpu P50 {cpu[0]:8.1f}   P95 {cpu[1]:8.1f}"
        )


class Told:
    """A ``CancelToken`` that notes when it was cancelled."""

    preempted = False

    def __init__(self) -> None:
        self.at: float | None = None

    def cancel(self) -> None:
        self.at = time.perf_counter()

    @property
    def cancelled(self) -> bool:
        return self.at is not None


def first_and_frames(tts: Qwen3Tts, clauses: int) -> tuple[Figures, Figures]:
    first, frame = Figures(), Figures()
    for _ in range(clauses):
        steps = tts.synthesize(SpeechRequest(TEXT), Told())
        with first.timed():
            while next(steps) is None:
                pass
        try:
            while True:
                with frame.timed():
                    next(steps)
        except (StopIteration, NotSpeech):
            pass
    return first, frame


def cancels(tts: Qwen3Tts, clauses: int, frame_ms: float) -> Figures:
    """Each at a random moment of the first eight frames."""
    found = Figures()
    moments = random.Random(1)
    for _ in range(clauses):
        token = Told()
        timer = threading.Timer(moments.uniform(0.5, 8) * frame_ms / 1000, token.cancel)
        timer.start()
        cpu = time.process_time()
        try:
            for _ in tts.synthesize(SpeechRequest(TEXT), token):
                cpu = time.process_time()
        except Cancelled:
            assert token.at is not None
            found.wall_ms.append((time.perf_counter() - token.at) * 1000)
            found.cpu_ms.append((time.process_time() - cpu) * 1000)
        except NotSpeech:
            pass
        timer.join()
    return found


def codec(tts: Qwen3Tts, pieces: int) -> Figures:
    import torch

    assert isinstance(tts.backend, Official)
    groups = tts.backend.model.model.config.talker_config.num_code_groups
    values = tts.backend.model.model.config.talker_config.code_predictor_config.vocab_size
    device = tts.backend.model.device
    codes = list(torch.randint(0, values, (108, 1, groups), device=device))
    found = Figures()
    for _ in range(pieces):
        with found.timed():
            assert len(tts.backend.decode(codes, 100, 108)) == 8 * FRAME_SAMPLES
    return found


def measure(options: dict[str, Any], clauses: int) -> None:
    began = time.perf_counter()
    tts = build(Qwen3TtsOptions.model_validate({"weights": None} | options), None)
    print(f"loaded and warmed up in {time.perf_counter() - began:.1f} s")
    first, frame = first_and_frames(tts, clauses)
    print(f"first audio {first}")
    print(f"frame       {frame}")
    print(f"cancel      {cancels(tts, clauses, float(np.median(frame.wall_ms)))}")
    if isinstance(tts.backend, Official):
        print(f"codec       {codec(tts, clauses)}")


def make_random(directory: Path, size: str) -> None:
    """Random weights; those of a true size in bfloat16, which is how they are published."""
    import torch

    from tests.support.tiny_models.qwen3_tts import LARGER, SMALLER, make

    if size == "tiny":
        make(directory)
        return
    smaller = size == "0.6b"
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        make(directory, "0b6" if smaller else "1b7", of=SMALLER if smaller else LARGER)
    finally:
        torch.set_default_dtype(usual)
    mb = (directory / "model.safetensors").stat().st_size / 1e6
    print(f"random weights of {size}: {mb:.1f} MB in bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-dir", help="a CustomVoice model; by default a tiny one is made")
    parser.add_argument("--size", choices=("tiny", "0.6b", "1.7b"), default="tiny")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--clauses", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        directory = asked.model_dir
        if directory is None:
            make_random(Path(made), asked.size)
            directory = made
        where = {"device": asked.device, "precision": asked.precision}
        measure({"model_dir": str(Path(directory).resolve())} | where, asked.clauses)


if __name__ == "__main__":
    main()
