"""Writes each figure of a run as a line of JSON, and shows all of them in a table."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from app.cli.measuring import percentile
from benchmarks.harness.program import load

LEAST_VALUES = {"p50": 1, "p95": 20, "p99": 100}
"""With fewer values a percentile is left out."""

AIMS: Mapping[str, Mapping[str, float]] = {
    "a clause of 9 words: first sound": {"p50": 100},
    "a clause of 22 words: RTF": {"p50": 0.4},
    "4 clauses at once: clauses with a hole": {"max": 0},
    "ready": {"max": 15},
    "1 robot: first audio": {"p50": 280, "p95": 480},
    "1 robot: holes": {"max": 0},
    "4 robots at once: holes": {"max": 0},
    "first audio P95, 4 robots to 1": {"max": 1.5},
    "barge-in: last sound after the onset": {"p50": 60},
}
"""Upper limits that figures should meet on a large card (an H100)."""

WIDTH = 150
"""Characters of the table."""


@dataclass(frozen=True)
class Report:
    """The figures of one stage; ``file`` is shared by all stages."""

    file: Path
    stage: str

    def figure(self, name: str, unit: str, *values: float | None) -> None:
        some = [value for value in values if value is not None]
        if not some:
            self.note(name, "no value")
            return
        spread = {
            key: percentile(some, float(key[1:])) if len(some) >= least else None
            for key, least in LEAST_VALUES.items()
        }
        self._write(figure=name, unit=unit, n=len(some), **spread, min=min(some), max=max(some))

    def note(self, name: str, text: object) -> None:
        self._write(figure=name, note=str(text))

    def gpu_memory(self, before: int | None) -> None:
        """Report the memory used on the whole card, less what was used before."""
        memory_mb = gpu_mb()
        if memory_mb is not None and before is not None:
            self.figure("GPU memory", "MB", memory_mb - before)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Note a failure in this part instead of raising, so that the other parts still run."""
        try:
            yield
        except Exception as error:
            self.note(name, f"failed: {type(error).__name__}: {error}"[:600])

    def _write(self, **fields: Any) -> None:
        row = {"stage": self.stage, "load": load()} | {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in fields.items()
        }
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def gpu_mb() -> int | None:
    """Memory used on the first card by all programs; ``None`` without an NVIDIA driver."""
    answer = _nvidia_smi("memory.used")
    return int(answer) if answer else None


def card() -> str:
    return _nvidia_smi("name,driver_version") or "no NVIDIA card"


def _nvidia_smi(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.partition("\n")[0].strip()


def show(rows: Sequence[dict[str, Any]]) -> None:
    console = Console(highlight=False, emoji=False, soft_wrap=True, width=WIDTH)
    columns = "stage", "figure", "n", "P50", "P95", "P99", "min", "max", "load", "aim"
    table = Table(*columns, box=None)
    for row in rows:
        if "note" not in row:
            name = f"{row['figure']}, {row['unit']}" if row["unit"] else row["figure"]
            cells = [_number(row[key]) for key in ("p50", "p95", "p99", "min", "max")]
            table.add_row(row["stage"], name, str(row["n"]), *cells, str(row["load"]), verdict(row))
    console.print(table)
    for row in rows:
        if "note" in row:
            console.print(f"{row['stage']}: {row['figure']}: {row['note']}", markup=False)


def verdict(row: Mapping[str, Any]) -> str:
    """The aim for a figure and whether it is met; empty if ``AIMS`` has none."""
    if (aims := AIMS.get(row["figure"])) is None:
        return ""
    wanted = ", ".join(f"{key.upper() if key != 'max' else key} ≤ {aims[key]:g}" for key in aims)
    if any(row[key] is None for key in aims):
        return f"{wanted}: too few values"
    met = all(row[key] <= most for key, most in aims.items())
    return f"{wanted}: {'met' if met else 'not met'}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
