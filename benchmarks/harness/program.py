"""Shared by all benchmark programs: options, weights, and saving of results."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.models.weights import WeightsCache
from app.settings.load import DEFAULT, load_settings


def arguments(doc: str, module: str, *, settings: bool = False) -> argparse.ArgumentParser:
    """A parser whose help is ``doc``, with ``--out``; ``settings`` adds ``--config``, ``--set``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="save the result there, as JSON")
    if settings:
        parser.add_argument("--config", default=DEFAULT, help="a profile or a file")
        parser.add_argument(
            "--set", action="append", default=[], metavar="K=V", dest="sets", help="a setting"
        )
    return parser


def load() -> float:
    """The machine's load average over the last minute."""
    return round(os.getloadavg()[0], 2)


def weights(name: str) -> Path:
    """The folder of the weights ``name`` in the cache. Raises ``WeightsError`` if missing."""
    return Path(weights_cache().path(name))


def weights_cache() -> WeightsCache:
    """The cache in which the default settings keep weights."""
    return WeightsCache(load_settings(DEFAULT).settings.paths.cache(os.environ))


def keep(data: Any, out: Path | None) -> None:
    """Write ``data`` as JSON, if an output file was given."""
    if out:
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f"{text}\n", encoding="utf-8")


def finish(
    data: Mapping[str, Any], out: Path | None, load_before: float, *, details: str | None = None
) -> None:
    """Print the result with the machine's load, without the field ``details``; save all of it."""
    whole = {**data, "load_average": [load_before, load()], "cores": os.cpu_count()}
    print(json.dumps({k: v for k, v in whole.items() if k != details}, indent=1))
    keep(whole, out)
