"""The plan printed before setup: what will be fetched and compiled, from where, how long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.setup.commands import clock, tell

LINE_MBIT_S = 50
ASK_FROM_MB = 1000
"""At a terminal, ask the user before fetching more than this."""
INDEX = "pip's package index"


@dataclass(frozen=True)
class Fetch:
    """One download. MB are 10^6 bytes."""

    what: str
    source: str
    download_mb: int
    disk_mb: int
    """Its size on disk."""
    compile_s: float = 0


def locked_size(root: Path, name: str, already: str = "") -> tuple[int, int]:
    """Download size and size on disk, in MB, of a lock file's packages (script/sizes.json).

    ``already``: a lock file whose packages are part of this one and already installed.
    """
    sizes = json.loads((root / "script" / "sizes.json").read_text())
    here = sizes[already] if already else {"download_mb": 0, "disk_mb": 0}
    whole = sizes[name]
    return whole["download_mb"] - here["download_mb"], whole["disk_mb"] - here["disk_mb"]


def seconds(download_mb: int) -> float:
    return download_mb * 8 / LINE_MBIT_S


def total_mb(fetches: Sequence[Fetch]) -> int:
    return sum(fetch.download_mb for fetch in fetches)


def whole_s(fetches: Sequence[Fetch]) -> float:
    """Seconds to fetch and compile them."""
    return seconds(total_mb(fetches)) + sum(fetch.compile_s for fetch in fetches)


def lines(fetches: Sequence[Fetch], where: Sequence[str]) -> list[str]:
    """A table with one row each, and the totals. ``where``: the target directories."""
    if not fetches:
        return []
    rows = [("", "fetch", "disk", "time", "from")]
    for fetch in fetches:
        took = clock(seconds(fetch.download_mb))
        if fetch.compile_s:
            took += f" + about {clock(fetch.compile_s)} to compile"
        rows.append(
            (fetch.what, megabytes(fetch.download_mb), megabytes(fetch.disk_mb), took, fetch.source)
        )
    disk_mb = sum(fetch.disk_mb for fetch in fetches)
    took = clock(whole_s(fetches))
    rows.append(("total", megabytes(total_mb(fetches)), megabytes(disk_mb), took, ""))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = [
        f"  {what:<{widths[0]}}  {fetch:>{widths[1]}}  {disk:>{widths[2]}}  {took:<{widths[3]}}  "
        f"{source}".rstrip()
        for what, fetch, disk, took, source in rows
    ]
    return [
        f"To be set up (times at {LINE_MBIT_S} Mbit/s):",
        *table,
        f"  into {' and '.join(where)}",
        "  Sizes of packages: measured on Linux x86-64 (script/sizes.json).",
    ]


def megabytes(size: int) -> str:
    return f"{size / 1000:.1f} GB" if size >= 1000 else f"{size} MB"


def confirm(fetches: Sequence[Fetch]) -> bool:
    """Ask the user, at a terminal and before a large download. The end of input is no."""
    if total_mb(fetches) < ASK_FROM_MB or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    tell("Continue? [Y/n] ", end="")
    answer = sys.stdin.readline()
    return bool(answer) and answer.strip().lower() in ("", "y", "yes")
