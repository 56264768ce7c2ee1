"""``reachy-voice serve``: listen for the robot's app or any OpenAI Realtime client."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated

import typer
from rich.console import Console

from app.commands.models import open_cache
from app.commands.options import ConfigOption, SetOption
from app.compose import Assistant
from app.serving import PATH, lan_addresses, run_server
from app.settings_load import load_settings
from pipeline.engines import Kind

LanOption = Annotated[
    bool, typer.Option("--lan", help="Listen on all interfaces, so that a robot can connect.")
]
PortOption = Annotated[int | None, typer.Option("--port", help="Short for --set server.port=...")]

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
) -> None:
    """Serve the OpenAI Realtime API at ws://HOST:PORT/v1/realtime until Ctrl-C or SIGTERM."""
    sets = list(overrides or ())
    if lan:
        sets.append("server.host=0.0.0.0")
    if port is not None:
        sets.append(f"server.port={port}")
    settings = load_settings(config, sets).settings
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    console = Console(stderr=True, highlight=False)
    assistant = Assistant(settings, open_cache(settings))
    began = time.monotonic()

    def engine_ready(kind: Kind) -> None:
        seconds = time.monotonic() - began
        name = f"{_WHAT[kind]:<15} {assistant.describe(kind)}"
        console.print(f"  [green]ready[/] {name} [dim]{seconds:.1f} s[/]")

    def ready(real_port: int) -> None:
        for line in banner(settings.server.host, real_port):
            console.print(line)

    console.print("Warming the engines:")
    asyncio.run(run_server(assistant, on_engine_ready=engine_ready, on_ready=ready))
    console.print("Stopped.")


def banner(host: str, port: int) -> list[str]:
    """What a person needs to know once the server is up."""
    everywhere = host in ("0.0.0.0", "::", "")
    lines = [f"[bold]Ready.[/] ws://{'127.0.0.1' if everywhere else host}:{port}{PATH}"]
    if not everywhere:
        lines.append("Only this machine can connect. For a robot: script/serve --lan")
        return lines
    addresses = lan_addresses()
    if not addresses:
        lines.append("[yellow]This machine has no network address that a robot could reach.[/]")
        return lines
    lines.append("In the robot's conversation app: Settings -> Connection -> Local, then")
    lines.append(f"    host [bold cyan]{addresses[0]}[/]   port [bold cyan]{port}[/]")
    if len(addresses) > 1:
        lines.append(f"    (this machine also has {', '.join(addresses[1:])})")
    lines.append("[yellow]Anybody in this network can connect; there is no password yet.[/]")
    return lines
