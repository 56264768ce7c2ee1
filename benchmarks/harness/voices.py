"""The speaker engine of the settings, and speech in pieces for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.settings.load import load_settings
from benchmarks.harness.program import weights_cache
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Embedding
from pipeline.engines.registry import EngineSpec, Kind, engine_spec
from pipeline.work import NEVER

Embed = Callable[[Pcm], Embedding]


def embedder(config: str | None, sets: tuple[str, ...]) -> Embed:
    """The speaker engine that the settings choose."""
    options = load_settings(config, sets).settings.engine(Kind.SPEAKER)
    spec = engine_spec(Kind.SPEAKER, options.engine)
    assert isinstance(spec, EngineSpec)
    engine = spec.build(options, weights_cache().of(options))
    return lambda pcm: engine.embed(pcm, NEVER)


def pieces(pcm: Pcm, seconds: float) -> Iterator[Pcm]:
    size = round(seconds * LISTEN_RATE)
    return (pcm[at : at + size] for at in range(0, len(pcm) - size + 1, size))
