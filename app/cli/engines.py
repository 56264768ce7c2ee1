"""``reachy-voice engines check``: for authors of engines."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import ConfigOption, SetOption
from app.models.weights import open_cache
from app.settings.load import load_settings
from pipeline.engines.contract_check import faults
from pipeline.engines.registry import EngineSpec, Kind, engine_names, engine_spec
from pipeline.errors import ConfigError, EngineError
from pipeline.workers.host import build_engine

app = typer.Typer(no_args_is_help=True, help="For authors of engines.")


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As the settings name it.")],
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Load an engine and try whether it keeps its contract (docs/engines.md)."""
    kinds = [kind for kind in Kind if name in engine_names(kind)]
    specs = [spec for kind in kinds if isinstance(spec := engine_spec(kind, name), EngineSpec)]
    if not specs:
        raise ConfigError(
            f"The engine {name!r} cannot be checked",
            why="it is reached by URL" if kinds else "no entry point has that name",
            fix="Run: reachy-voice doctor" if kinds else "Install its package here",
        )
    for spec in specs:
        sets = (f"{spec.kind}.engine={name}", *(overrides or ()))
        settings = load_settings(config, sets).settings
        options = settings.engine(spec.kind)
        engine, _ = build_engine(spec, options, open_cache(settings).of(options))
        if wrong := list(faults(spec.kind, engine)):
            raise EngineError(
                f"The {spec.kind} engine {name!r} does not keep its contract",
                why="; ".join(wrong),
                fix='See "What the engine has" in docs/engines.md, then check again',
            )
        typer.echo(f"OK: the {spec.kind} engine {name!r} keeps its contract")
