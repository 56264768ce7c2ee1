"""Do the engines run on this processor? A library built for another one ends its process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from app.models.memory_room import has_room
from app.models.weights import WeightsCache
from app.settings.model import Settings
from app.setup.computer import own_instructions
from app.setup.finding import Check
from app.setup.llama import PROCESSOR_STAMP
from app.setup.place import Stamps
from app.setup.ran_here import RanHere
from pipeline.engines.registry import EngineSpec, engine_spec
from pipeline.errors import EngineCrashed, ReachyVoiceError
from pipeline.workers.process_worker import ProcessWorker


def check_compiled_for(setup: str, environment: Path | None = None) -> Iterator[Check]:
    """Report instructions that llama.cpp was compiled with and this processor lacks."""
    stamps = Stamps((environment or Path(sys.prefix)) / ".setup")
    compiled_with = (stamps.read(PROCESSOR_STAMP) or "").split()
    here = set(own_instructions().split())
    if absent := [name for name in compiled_with if name not in here]:
        detail = f"llama.cpp was compiled on one with {', '.join(absent)}, which this one lacks"
        yield Check("processor", "warn", detail, f"Run: {setup}, which compiles it for this one")


def check_trials(settings: Settings, cache: WeightsCache) -> Iterator[Check]:
    """Try each engine that has not run on this processor yet and would run in the server's own
    process, which it could crash."""
    ran = RanHere(cache.directory)
    for kind, options in settings.engines():
        spec = engine_spec(kind, options.engine)
        if not isinstance(spec, EngineSpec) or (options.run_in or spec.run_in) == "process":
            continue
        name = options.weights_name
        part = f"{spec.kind}-{spec.name}"
        if ran.has(part, spec.modules) or cache.missing([name] if name else []):
            continue
        if not has_room(cache, kind, options):
            continue
        trial = ProcessWorker(spec, options, cache.of(options))
        try:
            asyncio.run(trial.run(trial.close))
        except EngineCrashed as error:
            yield Check("processor", "fail", error.account, error.fix)
        except ReachyVoiceError:
            continue  # other checks and the server itself explain it
        else:
            ran.add(part, spec.modules)
