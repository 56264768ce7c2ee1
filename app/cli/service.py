"""``reachy-voice service``: let the system start the server, watch it and restart it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from app.cli.options import ConfigOption, SetOption
from app.cli.serve import LanOption, PortOption, WyomingOption
from app.root import IS_INSTALLED
from app.service.systemd import ServiceError, ServiceStart, SystemdService
from app.settings.load import ENVIRONMENT_PREFIX, load_settings, profile_names, resolve
from app.setup.options import settings_options
from app.setup.place import Place
from pipeline.errors import ConfigError

VARIABLES = ("PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""The service gets them as they are now: the system's own may differ."""
NOT_FOR_THE_SERVICE = f"""\
The service does not see {ENVIRONMENT_PREFIX}... of this shell: write them to its file environment
(docs/install.md)."""
AGENT = "~/Library/LaunchAgents/reachy-voice.plist"
STOP_S = 60
"""For the engines to end."""

app = typer.Typer(no_args_is_help=True, help="Let the system start the server, and restart it.")


@app.command()
def install(
    config: ConfigOption = None,
    overrides: SetOption = None,
    lan: LanOption = False,
    port: PortOption = None,
    wyoming: WyomingOption = False,
) -> None:
    """Start the server now and with the machine, with these options of `serve`; also after an
    upgrade."""
    service = _service()
    named = config if config is None or config in profile_names() else str(resolve(config))
    command = [str(_program()), "serve", *settings_options(named, overrides or ())]
    command += ["--lan"] if lan else []
    command += ["--port", str(port)] if port is not None else []
    command += ["--wyoming"] if wyoming else []
    settings = load_settings(config, overrides or ()).settings
    server, paths = settings.server, settings.paths
    prefixes: Path | None = getattr(settings.llm, "saved_prefix_dir", None)
    own = paths.cache(os.environ), paths.access(os.environ).parent
    more = server.conversations_dir, prefixes
    writable = [folder.expanduser().absolute() for folder in (*own, *more) if folder]
    start = ServiceStart(
        command,
        Path.cwd(),
        {name: os.environ[name] for name in VARIABLES if os.environ.get(name)},
        [*writable, Path("~/.nv").expanduser()],
        stop_s=int(server.finish_s + server.drain_s) + STOP_S,
    )
    try:
        for folder in writable:
            folder.mkdir(parents=True, exist_ok=True)
        _say(service.install(start))
    except OSError as error:
        what, fix = "The service cannot be installed", "Check who owns that file or folder"
        raise ServiceError(what, why=str(error), fix=fix) from error
    if any(name.startswith(ENVIRONMENT_PREFIX) for name in os.environ):
        _say([NOT_FOR_THE_SERVICE])


@app.command()
def status() -> None:
    """Say whether the service runs."""
    _say(_service().status())


@app.command()
def remove() -> None:
    """Stop the server, and do not start it again. Keys, settings and weights stay."""
    _say(_service().remove())


def _service() -> SystemdService:
    if sys.platform == "darwin":
        what, why = "There is no service on a Mac", "this command writes units for systemd"
        fix = "Run `reachy-voice serve` by a login item or a launch agent of your own"
        if Path(AGENT).expanduser().exists():
            fix += f". Version 0.2 wrote one: `launchctl bootout gui/$UID/reachy-voice; rm {AGENT}`"
        raise ServiceError(what, why=why, fix=fix)
    return SystemdService(os.environ)


def _program() -> Path:
    """This program, where it stays. Raises ``ConfigError`` if that is not set up yet."""
    place = Place.of(os.environ)
    if IS_INSTALLED and Path(sys.prefix).resolve() != place.venv.resolve():
        raise ConfigError("This version is not set up yet", fix="Run: reachy-voice setup")
    return place.program


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)
