"""``reachy-voice talk``: plug in a microphone and talk."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.options import ConfigOption, SetOption
from app.cli.record import RecordOption, recording
from app.compose import Assistant
from app.models.weights import open_cache
from app.settings.load import load_settings
from app.settings.model import Settings
from app.talk.keys import has_keys, key_presses
from app.talk.realtime_client import realtime_url
from pipeline.errors import one_error

UrlArgument = Annotated[
    str | None,
    typer.Argument(metavar="[URL]", help="A running server, HOST:PORT. Default: run engines here."),
]
MicrophoneOption = Annotated[
    str | None, typer.Option("--microphone", help="Short for --set sound.microphone=...")
]
SpeakerOption = Annotated[
    str | None, typer.Option("--speaker", help="Short for --set sound.speaker=...")
]
PushOption = Annotated[
    bool, typer.Option("--push-to-talk", help="Short for --set sound.push_to_talk=true.")
]
PlainOption = Annotated[bool, typer.Option("--plain", help="Print lines instead of a live view.")]


class _Console(Console):
    """Calls ``on_gone`` when the reader of our output stops (``talk --plain | head``)."""

    on_gone: Callable[[], None] = staticmethod(lambda: None)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for output that Python has buffered
        os.close(nowhere)
        self.on_gone()


def talk(
    url: UrlArgument = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    microphone: MicrophoneOption = None,
    speaker: SpeakerOption = None,
    push_to_talk: PushOption = False,
    plain: PlainOption = False,
    record: RecordOption = None,
) -> None:
    """Talk to the assistant through this machine's microphone and loudspeaker, until Ctrl-C."""
    if url and record:
        raise typer.BadParameter("cannot be used with URL", param_hint="--record")
    sets = list(overrides or ())
    sets += [f"sound.microphone={microphone}"] if microphone else []
    sets += [f"sound.speaker={speaker}"] if speaker else []
    sets += ["sound.push_to_talk=true"] if push_to_talk else []
    settings = load_settings(config, sets).settings
    console = _Console(highlight=False, emoji=False)
    if settings.sound.push_to_talk and not has_keys():
        raise typer.BadParameter("needs a terminal with a keyboard", param_hint="--push-to-talk")
    if url:
        realtime_url(url)  # reject a bad address before searching devices
    assistant = None if url else Assistant(settings, open_cache(settings))

    def tell(line: str) -> None:
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)

    with ExitStack() as stack:
        if assistant:
            stack.enter_context(recording(assistant, record, tell))
        live = not plain and console.is_terminal
        try:
            asyncio.run(_talk(settings, assistant, url, console, live))
        except KeyboardInterrupt:
            console.print("Bye.")


async def _talk(
    settings: Settings, assistant: Assistant | None, url: str | None, console: _Console, live: bool
) -> None:
    # Imported only here: other verbs do not need sound, USB or the robot.
    from app.talk.state import TalkState
    from app.talk.talk_app import TalkApp
    from app.talk.view import PlainView, live_view, warnings_in
    from hardware.sound.stderr import quiet_stderr

    state = TalkState()
    app = TalkApp(settings, state, assistant, url, settings.paths.cache(os.environ))
    end = asyncio.Event()

    def key(character: str) -> None:
        if character in ("q", "\x04"):
            end.set()
        else:
            app.key(character)

    with suppress(NotImplementedError, AttributeError):  # Windows
        # When killed, or when the terminal closes, end as after q: restore the terminal, park the
        # robot and save what was learnt about the room.
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end.set)

    console.on_gone = end.set

    with ExitStack() as stack:
        # PortAudio writes to stderr when a device disappears, which would garble the view.
        stack.enter_context(quiet_stderr())
        if live:
            stack.enter_context(live_view(state, console, _keys(settings)))
        else:
            state.on_change = PlainView(state, console).changed
        stack.enter_context(warnings_in(state))
        if has_keys():
            stack.enter_context(key_presses(key))
        with one_error():
            async with asyncio.TaskGroup() as group:
                talking = group.create_task(app.run())
                await end.wait()
                talking.cancel()


def _keys(settings: Settings) -> str:
    push = "[space] speak, and again when done   " if settings.sound.push_to_talk else ""
    wake = "" if settings.wake.mode == "always" else "[w] wake   "
    return f"{push}{wake}[m] mute   [q] quit" if has_keys() else ""
