"""The llama.cpp engine's own numbers: reading 17 tools, aborting, generating.

    python -m benchmarks.llama_engine [--weights DIRECTORY] [--gpu-layers N] [-n TIMES]

Prints medians with their spread, and the machine's load before and after.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline.engines.contract import LlmSession, TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from pipeline.work import Cancelled

_DEFAULT_WEIGHTS = Path("~/.cache/reachy-voice/weights/smollm2-135m-instruct")
_SYSTEM = Message("system", "You are a small robot. Answer in one or two short sentences.")
_LONG = Sampling(temperature=0, max_tokens=160)


class Token:
    """A cancel token that remembers when it was pulled."""

    def __init__(self) -> None:
        self.cancelled = False
        self.preempted = False
        self.pulled = 0.0

    def pull(self, after_s: float, what: str) -> None:
        """Set ``what`` from another thread, as a worker would."""

        def now() -> None:
            self.pulled = time.perf_counter()
            setattr(self, what, True)

        threading.Timer(after_s, now).start()


def main() -> None:
    options = _arguments()
    tools: list[Tool] = importlib.import_module("tests.support.robot_tools").robot_tools()
    weights = options.weights.expanduser()
    print(f"load average before: {_load()}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory:
        settings = LlamaCppOptions(
            saved_prefix_dir=Path(directory), gpu_layers=options.gpu_layers, threads=options.threads
        )
        engine = _timed("build", lambda: build(settings, weights))
        _show_generation("short prompt, nothing else cached", engine, [])
        _show_warm("17 tools, cold, with saving", engine, tools)
        _show_warm("17 tools again, another session", engine, tools)
        engine = _timed("build", lambda: build(settings, weights))
        _show_warm("17 tools after a restart, from disk", engine, tools)
    for what in ("cancelled", "preempted"):
        _show_ms(f"{what} inside prefill -> returns", _abort_prefill(engine, what, options.times))
    _show_ms("cancelled while generating -> returns", _abort_tokens(engine, options.times))
    _show_generation("behind 17 tools", engine, tools)
    print(f"load average after: {_load()}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=_DEFAULT_WEIGHTS)
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("-n", "--times", type=int, default=50)
    return parser.parse_args()


def _timed(name: str, work: Callable[[], LlamaCpp]) -> LlamaCpp:
    began = time.perf_counter()
    engine = work()
    print(f"{name}: {time.perf_counter() - began:.2f} s")
    return engine


def _show_warm(name: str, engine: LlamaCpp, tools: Sequence[Tool]) -> None:
    session = engine.open()
    slices = [0.0]
    began = last = time.perf_counter()
    usage = None
    for item in session.warm([_SYSTEM], tools, "", Token()):
        now = time.perf_counter()
        slices.append(now - last)
        last = now
        usage = item.usage if item else usage
    took = time.perf_counter() - began
    print(f"{name}: {took:.2f} s, longest slice {1000 * max(slices):.0f} ms, {usage}")
    session.close()


def _abort_prefill(engine: LlamaCpp, what: str, times: int) -> list[float]:
    """Milliseconds from the pull until the step returns, at different depths of a slice."""
    found = []
    for i in range(times):
        session = engine.open()
        token = Token()
        # A text of its own each time, so that nothing is cached.
        text = f"{i} " + " ".join(f"word{i}x{k}" for k in range(300))
        steps = session.warm([_SYSTEM, Message("user", text)], [], "", token)
        next(steps)
        token.pull(0.01 + 0.002 * (i % 50), what)
        found.append(_wait_for_return(steps, token))
        session.close()
    return found


def _wait_for_return(steps: Iterator[object], token: Token) -> float:
    """Work until the step that was under way when the token was pulled has ended."""
    try:
        while token.cancelled or not token.pulled:
            next(steps)
    except Cancelled:
        pass
    return 1000 * (time.perf_counter() - token.pulled)


def _abort_tokens(engine: LlamaCpp, times: int) -> list[float]:
    found = []
    for i in range(times):
        session = engine.open()
        token = Token()
        question = Message("user", "Tell me a very long story about the sea.")
        steps = session.reply([_SYSTEM, question], [], ToolChoice(), _LONG, token)
        next(item for item in steps if isinstance(item, TextDelta))
        token.pull(0.02 + 0.001 * (i % 20), "cancelled")
        found.append(_wait_for_return(steps, token))
        session.close()
    return found


def _show_generation(name: str, engine: LlamaCpp, tools: Sequence[Tool]) -> None:
    session: LlmSession = engine.open()
    question = Message("user", "Tell me a very long story about the sea.")
    moments = []
    for item in session.reply([_SYSTEM, question], tools, ToolChoice(), _LONG, Token()):
        if isinstance(item, TextDelta):
            moments.append(time.perf_counter())
    rate = (len(moments) - 1) / (moments[-1] - moments[0])
    print(f"generating, {name}: {rate:.0f} tokens/s over {len(moments)} tokens")
    session.close()


def _show_ms(name: str, values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=20)
    print(
        f"{name}: n {len(values)}, P50 {statistics.median(values):.1f}, "
        f"P95 {cuts[18]:.1f}, max {max(values):.1f} ms"
    )


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


if __name__ == "__main__":
    main()
