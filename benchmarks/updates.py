"""Updates of model weights: how small, how fast, how safe, and under a client that talks.

    python -m benchmarks.updates [PART...] [--mb N] [--steps N] [--kills N] [--updates N] [--out F]

1. A small Llama is trained here for some steps with AdamW, in bfloat16 and with float32 weights
   that are rounded to bfloat16, at the learning rates of reinforcement learning (1e-6) and of plain
   fine-tuning (2e-5): for each step the share of weights that changed and the size of the delta;
   for the last one also zstd and bsdiff, where ``zstandard`` and ``bsdiff4`` are installed.
2. A delta of 1 % of a file of N MB is made and applied in processes of their own: speed, peak
   memory, and the speed of a copy that is flushed to the disk.
3. Processes that apply it are killed at random moments while they write: what is left.
4. The real server with its language model: a client talks, and while it does, updates arrive, the
   last one bad. A turn is lost if it was not recognised or not answered. Exit code 1: a turn was
   lost, an update was not used, or a kill left neither the old model nor the new one.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from app.models.delta import SUFFIX, apply, read_delta
from app.models.delta_making import make_delta
from app.models.download import Progress, sha256_of
from app.models.tensor_file import pieces_of
from app.server.listening import bind
from app.server.serving import PATH
from benchmarks.exchanges import MAX_SECONDS, Turn, hold
from benchmarks.harness.program import arguments, finish, load, weights, weights_cache
from tests.clients.robot_app import robot_app
from tests.support.recordings import real_recordings
from tests.support.tensors import retrained, write_safetensors

PARTS = ("training", "apply", "talk")
RATES = (1e-6, 2e-5)
WARM_STEPS = 20
WIDTH, LAYERS, TOKENS, ROWS = 384, 8, 128, 2
READY_S, UPDATED_S = 120.0, 300.0


# --- 1: training -------------------------------------------------------------------------------


def trained(folder: Path, steps: int) -> Iterator[dict[str, Any]]:
    """A delta for each step of each way to train."""
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
            step(optimizer)  # its first step has no history
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
                    "sha256": sha256_of(new)[:16],
                    **(_others(old, new) if number + 1 == steps else {}),
                }
                new.replace(old)


def _llama(torch: Any) -> tuple[Any, Any]:
    """The net, and a function that trains one step, on the text of this repository."""
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


def _others(old: Path, new: Path) -> dict[str, Any]:
    """What other ways take, in percent of the file; only those that are installed."""
    before, after = old.read_bytes(), new.read_bytes()
    found: dict[str, Any] = {}
    ways: list[tuple[str, str, Callable[[Any], bytes]]] = [
        ("zstd_percent", "zstandard", lambda it: it.ZstdCompressor(level=10).compress(after)),
        ("bsdiff_percent", "bsdiff4", lambda it: it.diff(before, after)),
    ]
    for name, module, pack in ways:
        try:
            it = importlib.import_module(module)
        except ImportError:
            continue
        began = time.monotonic()
        found[name] = round(100 * len(pack(it)) / len(after), 3)
        found[name.replace("percent", "s")] = round(time.monotonic() - began, 1)
    return found


# --- 2 and 3: applying -------------------------------------------------------------------------


def large(folder: Path, megabytes: int) -> tuple[Path, Path, Path]:
    """A model, the next one, and the delta; drawn in parts, so that memory stays small."""
    rows = max(1, megabytes * 500_000 // 4096 // 16)
    draw = np.random.default_rng(0)
    old, new = folder / "large.safetensors", folder / "next.safetensors"
    one = {"w": ("BF16", draw.integers(0, 1 << 16, (rows, 4096), np.uint16))}
    other = retrained(one, 0.01)["w"]
    write_safetensors(old, {f"layer.{n}": one["w"] for n in range(16)})
    write_safetensors(new, {f"layer.{n}": other for n in range(16)})
    return old, new, folder / f"large{SUFFIX}"


def child(words: list[str]) -> dict[str, float]:
    """Run this module with ``words`` in a process of its own."""
    run = [sys.executable, "-m", "benchmarks.updates", *words]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def alone(what: str, paths: list[Path]) -> None:
    """Make or apply a delta, and print how long it took and the most memory."""
    began = time.monotonic()
    writes: list[int] = []

    def report(now: Progress) -> None:
        if what == "say" and not writes:
            print("it writes", flush=True)
        writes.append(now.done)

    if what == "make":
        make_delta(paths[0], paths[1], paths[2])
    else:
        apply(read_delta(paths[0]), paths[1], paths[2] if paths[2:] else None, report)
    seconds = time.monotonic() - began
    # Not ru_maxrss, which begins with the parent's memory.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = int(status["VmHWM"].split()[0]) * 1024 / 1e6
    print(json.dumps({"s": round(seconds, 2), "memory_mb": round(most)}))


def applied(folder: Path, megabytes: int, kills: int) -> dict[str, Any]:
    old, new, delta = large(folder, megabytes)
    size, wanted = new.stat().st_size, sha256_of(new)
    made = child(["--alone", "make", str(old), str(new), str(delta)])
    result = folder / "result.safetensors"
    runs = [child(["--alone", "apply", str(delta), str(old), str(result)]) for _ in range(3)]
    right = sha256_of(result) == wanted
    result.unlink()
    new.unlink()
    seconds = median(run["s"] for run in runs)
    copied = _copied(old, folder / "copy")
    return {
        "file_mb": round(size / 1e6),
        "delta_mb": round(delta.stat().st_size / 1e6, 1),
        "result_right": right,
        "make_s": made["s"],
        "make_memory_mb": made["memory_mb"],
        "apply_s": seconds,
        "apply_mb_per_s": round(size / 1e6 / seconds),
        "copy_mb_per_s": round(size / 1e6 / copied),
        "apply_memory_mb": max(run["memory_mb"] for run in runs),
        "kills": killed(old, delta, kills, seconds),
    }


def _copied(source: Path, target: Path) -> float:
    """Seconds of a copy that is on the disk."""
    began = time.monotonic()
    with source.open("rb") as read, target.open("wb") as write:
        while block := read.read(4 << 20):
            write.write(block)
        write.flush()
        os.fsync(write.fileno())
    seconds = time.monotonic() - began
    target.unlink()
    return seconds


def killed(model: Path, delta: Path, kills: int, seconds: float) -> dict[str, int]:
    """Apply it in place and kill that at a random moment, again and again."""
    draw, info = random.Random(0), read_delta(delta).info
    found = {"old": 0, "new": 0, "neither": 0}
    run = [sys.executable, "-m", "benchmarks.updates", "--alone", "say", str(delta), str(model)]
    kept = model.with_name("kept")
    model.replace(kept)
    for _ in range(kills):
        _restore(kept, model)
        with subprocess.Popen(run, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(draw.uniform(0, 1.1 * seconds))
            process.send_signal(signal.SIGKILL)
        digest = sha256_of(model)
        names = {info.base_sha256: "old", info.result_sha256: "new"}
        found[names.get(digest, "neither")] += 1
    _restore(kept, model)  # the last one may have come too late
    apply(read_delta(delta), model)
    found["neither"] += sha256_of(model) != info.result_sha256
    left = [path for path in model.parent.iterdir() if path.name.startswith(".")]
    return {**found, "files_left": len(left)}


def _restore(kept: Path, model: Path) -> None:
    model.unlink(missing_ok=True)
    os.link(kept, model)


# --- 4: a client talks -------------------------------------------------------------------------


class Publisher:
    """Makes slightly different models of the one in use, and deltas from each to the next."""

    def __init__(self, folder: Path) -> None:
        (self.first,) = weights("smollm2-135m-instruct").glob("*.gguf")
        self.folder = folder / "updates"
        self.folder.mkdir()
        self._models = folder
        self._last, self._count = self.first, 0

    def publish(self, bad: bool) -> dict[str, Any]:
        self._count += 1
        new, draw = self._models / f"{self._count}.gguf", np.random.default_rng(self._count)
        data = np.fromfile(self._last, np.uint8)
        for piece in pieces_of(self._last):
            tensor = data[piece.start : piece.start + piece.size]
            if bad and piece.name == "output_norm.weight":
                tensor[:] = 0
            if piece.item == 20:  # Q4_1: the lowest bit of one weight in a block
                blocks = tensor.reshape(-1, 20)
                blocks[draw.random(len(blocks)) < 0.01, 10] ^= 1
        data.tofile(new)
        made = make_delta(self._last, new, self._models / f"{self._count}{SUFFIX}")
        changed, items = made.changed
        size = made.path.stat().st_size
        made.path.replace(self.folder / made.path.name)
        if not bad:
            self._last = new
        return {
            "blocks_percent": round(100 * changed / items, 3),
            "payload_percent": round(100 * size / len(data), 3),
        }


async def talked(folder: Path, updates: int, seed: int) -> dict[str, Any]:
    publisher = Publisher(folder)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    settings = folder / "settings.yaml"
    cache = folder / "cache"  # its own record of updates
    cache.mkdir()
    (cache / "weights").symlink_to(weights_cache().directory / "weights")
    chosen = {
        "server": {"port": port},
        "paths": {"cache_dir": str(cache)},
        "llm": {"updates": str(publisher.folder)},
    }
    settings.write_text(json.dumps(chosen))
    run = [sys.executable, "-m", "app.cli", "serve", "--config", str(settings)]
    process = await asyncio.create_subprocess_exec(*run, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    log: asyncio.Queue[str] = asyncio.Queue()

    async def follow(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            log.put_nowait(line.decode(errors="replace"))
            sys.stderr.buffer.write(line)

    async def until(*texts: str) -> str:
        while True:
            line = await log.get()
            if found := next((text for text in texts if text in line), None):
                return found

    following = asyncio.create_task(follow(process.stderr))
    try:
        async with asyncio.timeout(READY_S):
            await until("Ready.")
        return await _hold(publisher, f"ws://127.0.0.1:{port}{PATH}", until, updates, seed)
    finally:
        process.terminate()
        await process.wait()
        await following


async def _hold(
    publisher: Publisher, url: str, until: Any, updates: int, seed: int
) -> dict[str, Any]:
    recordings = [each for each in real_recordings() if each.seconds <= MAX_SECONDS]
    draw = random.Random(seed)
    turns: list[Turn] = []
    found: list[dict[str, Any]] = []
    async with robot_app(url) as app:
        for number in range(updates):
            bad = number == updates - 1

            async def update(at_s: float = draw.uniform(0, 4), bad: bool = bad) -> None:
                await asyncio.sleep(at_s)
                made = await asyncio.to_thread(publisher.publish, bad)
                began = time.monotonic()
                async with asyncio.timeout(UPDATED_S):
                    outcome = await until("is updated", "is bad")
                took_s = round(time.monotonic() - began, 2)
                found.append({**made, "outcome": outcome, "took_s": took_s})

            async with asyncio.TaskGroup() as group:
                updating = group.create_task(update())
                while not updating.done():  # and one turn ends after it
                    spoken = recordings[len(turns) % len(recordings)]
                    turns.append(Turn(spoken.text, f"{'bad ' if bad else ''}{number}", 0))
                    await hold(app, spoken, turns[-1], "")
        failed = sum(e["response"]["status"] == "failed" for e in app.all("response.done"))
    wanted = ["is updated"] * (updates - 1) + ["is bad"]
    return {
        "updates": found,
        "as_wanted": [each["outcome"] for each in found] == wanted,
        "turns": len(turns),
        "lost_turns": sum(turn.lost for turn in turns),
        "failed_responses": failed,
        "details": [vars(turn) for turn in turns],
    }


# -----------------------------------------------------------------------------------------------


def exit_code(found: Mapping[str, Any]) -> int:
    bad = False
    if talk := found.get("talk"):
        bad = bool(talk["lost_turns"] or talk["failed_responses"] or not talk["as_wanted"])
    if large := found.get("apply"):
        bad = bad or bool(large["kills"]["neither"]) or not large["result_right"]
    return int(bad)


def main() -> None:
    parser = arguments(__doc__, "benchmarks.updates")
    parser.add_argument("--mb", type=int, default=1200, help="size of the large file")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        alone(given.alone[0], [Path(word) for word in given.alone[1:]])
        return
    before = load()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        measure: Mapping[str, Callable[[], Any]] = {
            "training": lambda: list(trained(folder, given.steps)),
            "apply": lambda: applied(folder, given.mb, given.kills),
            "talk": lambda: asyncio.run(talked(folder, given.updates, given.seed)),
        }
        found = {part: measure[part]() for part in given.parts}
    finish(found, given.out, before)
    sys.exit(exit_code(found))


if __name__ == "__main__":
    main()
