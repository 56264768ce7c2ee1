"""``reachy-voice config``: check, explain, profiles, personas, schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.doctor.choices import choice_warnings, language_warnings
from app.doctor.profile_fit import advice, judge, profile_summary, this_machine
from app.models.catalogue import Catalogue
from app.settings.load import config_dir, display_name, load_settings, profile_names
from app.settings.model import LoadedSettings
from app.settings.personas import persona_names, read_persona, unused_persona
from pipeline.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Check and explain the settings.")

FileArgument = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A YAML file or a profile; the default without it."),
]


@app.command()
def check(
    file: FileArgument = None, config: ConfigOption = None, overrides: SetOption = None
) -> None:
    """Read the settings as the server would, and report problems."""
    loaded = load_settings(file or config, overrides or ())
    files = " < ".join(display_name(path) for path in loaded.files)
    typer.echo(f"OK: {files}")
    catalogue = Catalogue.load(loaded.settings.paths.catalogue)
    for warning in settings_warnings(loaded, catalogue):
        typer.echo(f"but: {warning}")


@app.command()
def explain(
    file: FileArgument = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting with its value and where it comes from."""
    rows = setting_rows(load_settings(file or config, overrides or ()))
    if as_json:
        table = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        typer.echo(json.dumps(table, indent=2, ensure_ascii=False))
        return
    lines = [
        (f"{key}: {json.dumps(value, ensure_ascii=False)}", origin) for key, value, origin in rows
    ]
    width = max(len(line) for line, _ in lines if len(line) <= 60)
    for line, origin in lines:
        typer.echo(f"{line:<{width}}  # {origin}")


@app.command()
def personas() -> None:
    """List the personas that `conversation.persona` takes."""
    directory = config_dir() / "personas"
    names = persona_names(directory)
    width = max(map(len, names))
    for name in names:
        typer.echo(f"{name:<{width}}  {read_persona(directory, name)['summary'].value}")


@app.command()
def profiles(as_json: JsonOption = False) -> None:
    """List the profiles, and say which of them this machine can run."""
    verdicts = judge(this_machine())
    fits = {verdict.name: verdict.why or "fits" for verdict in verdicts}
    rows = [(name, profile_summary(name), fits.get(name, "")) for name in profile_names()]
    if as_json:
        table = {name: {"summary": summary, "fit": fit} for name, summary, fit in rows}
        typer.echo(json.dumps(table, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for name, _, _ in rows)
    for name, summary, fit in rows:
        typer.echo(f"{name:<{width}}  {summary}" + (f" [{fit}]" if fit else ""))
    typer.echo(advice(verdicts))


@app.command()
def schema(
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if the file is out of date.")
    ] = False,
) -> None:
    """Write config/schema.json, which editors use for completion and validation."""
    from app.settings.schema import schema_path, schema_text

    path = schema_path()
    name = display_name(path.resolve())
    text = schema_text()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        typer.echo(f"{name} is up to date")
    elif only_check:
        raise ConfigError(
            f"{name} is out of date",
            why="the settings or an engine's options have changed",
            fix="Run: reachy-voice config schema",
        )
    else:
        path.write_text(text, encoding="utf-8")
        typer.echo(f"{name} written")


def settings_warnings(loaded: LoadedSettings, catalogue: Catalogue) -> list[str]:
    """Valid settings that will not work as intended; one line each."""
    persona = loaded.settings.conversation.persona
    warning = unused_persona(persona, loaded.origins.get("conversation.instructions", ""))
    return [
        *filter(None, [warning]),
        *choice_warnings(loaded.settings, catalogue),
        *language_warnings(loaded.settings, catalogue),
    ]


def setting_rows(loaded: LoadedSettings) -> list[tuple[str, Any, str]]:
    """Key, value and origin of every setting, in the order of the sections."""
    values = loaded.settings.model_dump(mode="json")
    return [(key, value, _origin(loaded, key)) for key, value in _flat(values)]


def _origin(loaded: LoadedSettings, key: str) -> str:
    """A setting that is not written anywhere is the engine's (or our own) default."""
    if key in loaded.origins:
        return loaded.origins[key]
    section = getattr(loaded.settings, key.partition(".")[0])
    engine = getattr(section, "engine", None)
    return f"default of {engine}" if engine else "built-in default"


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
