"""``reachy-voice serve``: listen for the robot's app or any OpenAI Realtime client."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from app.access.file import AccessFile, AccessList
from app.access.policy import in_url, is_loopback, parse_network, shown_network
from app.cli.config import settings_warnings
from app.cli.models import catalogue_rows
from app.cli.options import ConfigOption, SetOption
from app.cli.record import RecordOption, recording
from app.compose import Assistant
from app.console.choices import Choices
from app.console.running import ConsoleServer
from app.doctor.checks import examine
from app.doctor.installed import setup_command
from app.doctor.processor import check_compiled_for
from app.doctor.profile_fit import judge, profile_summary, this_machine
from app.models.download import Progress, megabytes
from app.models.memory_room import has_room
from app.models.pull import pull as pull_weights
from app.models.weights import WeightsCache, open_cache
from app.server.discovery import PATH
from app.server.exchange import Exchange
from app.server.gate import access_for, typed_command
from app.server.live_settings import LiveSettings
from app.server.serving import browser_tls_for, lan_addresses, run_server, tls_for
from app.server.tls import ServerTls
from app.server.updates import UpdateFollower
from app.settings.load import load_settings
from app.settings.model import LoadedSettings, ServerSettings, Settings
from app.setup.progress import open_in_browser, open_running
from pipeline.engines.registry import Kind

LanOption = Annotated[
    bool, typer.Option("--lan", help="Listen on all interfaces, so that a robot can connect.")
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Short for --set server.port=..."),
]
WyomingOption = Annotated[
    bool, typer.Option("--wyoming", help="Serve Home Assistant, too, at port 10300.")
]

WYOMING_PORT = 10300
"""What other speech servers for Home Assistant use."""

_WHAT = {
    Kind.VAD: "voice activity",
    Kind.TURN: "turn detection",
    Kind.STT: "speech to text",
    Kind.LLM: "language model",
    Kind.TTS: "text to speech",
}


def serve(
    config: ConfigOption = None,
    overrides: SetOption = None,
    lan: LanOption = False,
    port: PortOption = None,
    record: RecordOption = None,
    opens: Annotated[
        bool, typer.Option("--open", help="Open the console in this machine's browser.")
    ] = False,
    wyoming: WyomingOption = False,
) -> None:
    """Serve the OpenAI Realtime API at ws://HOST:PORT/v1/realtime until Ctrl-C or SIGTERM."""
    sets = list(overrides or ())
    if lan:
        sets.append("server.host=0.0.0.0")
    if port is not None:
        sets.append(f"server.port={port}")
    if wyoming:
        sets.append(f"server.wyoming_port={WYOMING_PORT}")

    def load(more: Sequence[str]) -> LoadedSettings:
        return load_settings(config, sets, later=more)

    loaded = load(())
    settings = loaded.settings
    opens = opens and settings.server.console
    if opens and open_running(settings.server.console_url(settings.server.port)):
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    console = Console(stderr=True, highlight=False, emoji=False)  # :CD: is part of a fingerprint

    def tell(line: str) -> None:
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)

    cache = open_cache(settings)
    for line in settings_warnings(loaded, cache.catalogue):
        tell(line)
    if any(options.engine == "llama-cpp" for _, options in settings.engines()):
        for check in check_compiled_for(setup_command(config, sets)):
            tell(f"{check.name}: {check.detail}. {check.fix}")
    access = access_for(settings, os.environ, tell)
    tls = tls_for(settings, os.environ)
    browser_tls = browser_tls_for(settings, os.environ, tls)
    assistant = Assistant(settings, cache)
    exchange = Exchange(assistant, partial(has_room, cache))
    live = LiveSettings(loaded, load, assistant, exchange)
    began = time.monotonic()

    def engine_ready(kind: Kind) -> None:
        seconds = time.monotonic() - began
        name = f"{_WHAT[kind]:<15} {assistant.describe(kind)}"
        console.print(f"  [green]ready[/] {name} [dim]{seconds:.1f} s[/]")

    admission = Admission.of(settings, AccessFile(settings.paths.access(os.environ)).read())

    def ready(real_port: int) -> None:
        command = typed_command(settings, "allow ADDRESS")
        for line in banner(settings.server, real_port, admission, tls, command, browser_tls):
            console.print(line, soft_wrap=True)
        if opens:
            open_in_browser(settings.server.console_url(real_port))

    with recording(assistant, record, tell):
        console.print("Warming the engines:")
        running = run_server(
            assistant,
            on_engine_ready=engine_ready,
            on_ready=ready,
            access=access,
            tls=tls,
            live=live,
            updates=UpdateFollower(assistant, exchange),
            console=_console(config, sets, cache, assistant),
            browser_tls=browser_tls,
            without_servers=True,
        )
        asyncio.run(running)
    console.print("Stopped.")


def _console(
    config: str | None, sets: Sequence[str], cache: WeightsCache, assistant: Assistant
) -> ConsoleServer:
    """The functions of ``doctor`` and ``models``, for a browser."""

    def pull(name: str, tell: Callable[[str], None]) -> None:
        def report(now: Progress) -> None:
            whole = f" of {megabytes(now.total)}" if now.total else ""
            tell(f"{now.label}: {megabytes(now.done)}{whole}")

        pull_weights(cache, [name], report)

    def profiles() -> list[dict[str, Any]]:
        return [
            {**asdict(verdict), "summary": profile_summary(verdict.name)}
            for verdict in judge(this_machine())
        ]

    def load(profile: str) -> Settings:
        loaded = load_settings(profile) if profile else load_settings(config, sets)
        return loaded.settings

    return ConsoleServer(
        profiles=profiles,
        doctor=lambda: [asdict(check) for check in examine(config, sets)],
        models=lambda: catalogue_rows(cache, assistant.settings),
        choices=Choices(assistant, cache, load),
        pull=pull,
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may connect, for the banner."""

    loopback: bool = True
    addresses: tuple[str, ...] = ()
    keys: int = 0

    @classmethod
    def of(cls, settings: Settings, access: AccessList) -> Admission:
        """Combine the settings with the list of ``allow`` and ``key``."""
        own = settings.access
        networks = [*own.addresses, *(entry.network for entry in access.addresses)]
        addresses = dict.fromkeys(shown_network(parse_network(text)) for text in networks)
        return cls(settings.trusts_loopback, tuple(addresses), len(own.keys) + len(access.keys))

    def __str__(self) -> str:
        who = ["programs on this machine"] if self.loopback else []
        who += [", ".join(self.addresses)] if self.addresses else []
        if self.keys:
            keys = "the API key" if self.keys == 1 else f"{self.keys} API keys"
            who.append(f"holders of {keys}")
        return "; ".join(who) or "no one"


def banner(
    server: ServerSettings,
    port: int,
    admission: Admission | None = None,
    tls: ServerTls | None = None,
    command: str = "reachy-voice allow ADDRESS",
    browser_tls: ServerTls | None = None,
) -> list[str]:
    """What the user needs to know once the server is up. ``command`` admits a client;
    ``browser_tls`` belongs to the port for browsers."""
    admission = admission or Admission()
    host = server.host
    everywhere = host in ("0.0.0.0", "::", "")
    scheme = "ws" if tls is None else "wss"
    place = "127.0.0.1" if everywhere else in_url(host)
    lines = [f"[bold]Ready.[/] {scheme}://{escape(place)}:{port}{PATH}"]
    if tls is not None:
        lines.append(f"Encrypted, with the certificate {escape(str(tls.certificate))}")
        lines.append(f"    SHA-256 {tls.fingerprint}")
    if server.console and admission.loopback and (everywhere or is_loopback(host)):
        lines.append(f"In a browser on this machine: {server.console_url(port)}")
        lines.append("""    Say, for example: "What's your name?" or "Tell me a joke." """.rstrip())
    if not everywhere and is_loopback(host):
        lines.append("Only this machine can connect. For a robot: reachy-voice serve --lan")
        if not admission.loopback:
            here = [text for text in admission.addresses if parse_network(text).is_loopback]
            admission = replace(admission, addresses=tuple(here))  # no other client gets this far
            lines.append(f"A key is needed here, too (access.loopback). May connect: {admission}")
        return lines
    if addresses := lan_addresses() if everywhere else [host]:
        lines += _for_the_robot(addresses, port, tls)
        if server.console and browser_tls is not None:
            there = f"https://{addresses[0]}:{server.browser_port}/console/"
            lines.append(f"In a browser on another machine, with an admin key: {there}")
            lines.append(f"    SHA-256 {browser_tls.fingerprint}")
    else:
        lines.append("[yellow]This machine has no IPv4 address that a robot could reach.[/]")
    return [*lines, *_who(admission, tls, command)]


def _for_the_robot(addresses: list[str], port: int, tls: ServerTls | None) -> list[str]:
    if tls is not None:
        lines = [f"Clients: https://{addresses[0]}:{port}/v1, trusting that certificate"]
        lines.append("[yellow]The Reachy Mini app cannot connect: it does not speak TLS.[/]")
    else:
        lines = ["In the robot's conversation app: Settings -> Connection -> Local, then"]
        lines.append(f"    host [bold cyan]{addresses[0]}[/]   port [bold cyan]{port}[/]")
    if len(addresses) > 1:
        lines.append(f"    (this machine also has {', '.join(addresses[1:])})")
    return lines


def _who(admission: Admission, tls: ServerTls | None, command: str) -> list[str]:
    lines = [f"May connect: {admission}. All others are refused."]
    if tls is None and not admission.addresses:
        lines.append("The robot's app has no password, so allow its address. Its first attempt is")
        lines.append("refused, and its address is shown here. If you know it already:")
        lines.append(f"    [bold cyan]{escape(command)}[/]")
    if tls is None:
        lines.append("[yellow]Not encrypted: others in this network can listen in, or forge an[/]")
        lines.append("[yellow]allowed address. README, 'Who may connect', says what to do.[/]")
    return lines
