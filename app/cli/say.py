"""``reachy-voice say``: the robot speaks first."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.announcing.announcer import (
    EVERYBODY,
    TALK,
    AnnouncementError,
    AnnouncementRequest,
)
from app.cli.options import ConfigOption, JsonOption, SetOption
from app.server.control import (
    NotRunning,
    answer_to,
    ask,
    request,
    socket_path,
    talk_socket_path,
)
from app.settings.load import load_settings
from pipeline.errors import ReachyVoiceError

TEXTS = {
    "interrupted": "interrupted after: {heard}",
    "busy": "not said: there was no pause",
    "failed": "not said: the voice failed",
    "gone": "not said: the conversation has ended",
    "full": "not said: too many announcements wait there",
}


def say(
    text: Annotated[str, typer.Argument(help="What the robot says, in its own name.")],
    to: Annotated[
        str, typer.Option("--to", metavar="NAME|all", help="An address, or the note of one.")
    ] = EVERYBODY,
    within_s: Annotated[
        float, typer.Option("--within", min=1, max=600, help="Seconds to wait for a pause.")
    ] = 60.0,
    keep_s: Annotated[
        float,
        typer.Option("--keep", min=0, max=86_400, help="Seconds to wait for somebody to connect."),
    ] = 600.0,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something in the conversations that run on this machine, in the next pause of each."""
    settings = load_settings(config, overrides or ()).settings
    try:
        wish = AnnouncementRequest(text=text, to=to, within_s=within_s, keep_s=keep_s)
    except ValidationError as errors:
        first = errors.errors()[0]
        raise typer.BadParameter(first["msg"], param_hint=str(first["loc"][0])) from None
    server, talk = socket_path(settings.server.port, os.environ), talk_socket_path(os.environ)
    paths = {EVERYBODY: (server, talk), TALK: (talk,)}.get(to.casefold(), (server,))
    answer = _ask(paths, wish)
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False))
    else:
        _print(answer)
    heard = [each for each in answer["conversations"] if each["heard"]]
    if not heard and not answer["kept_s"]:
        raise AnnouncementError("Nobody heard it", fix="Try again with a longer --within")


def _ask(paths: Sequence[Path], wish: AnnouncementRequest) -> dict[str, Any]:
    """Say it in every conversation of these processes; without any, the first process keeps it.
    Raises why it did not, or ``NotRunning`` if none of them runs."""
    at_once = {"say": wish.model_dump() | {"keep_s": 0.0}}
    conversations: list[dict[str, Any]] = []
    absent: list[NotRunning] = []
    refusals: list[tuple[Path, ReachyVoiceError]] = []
    with ExitStack() as stack:
        running: list[tuple[Path, socket.socket]] = []
        for path in paths:
            try:
                running.append((path, stack.enter_context(request(path, at_once))))
            except NotRunning as error:
                absent.append(error)
        for path, connection in running:
            try:
                conversations += answer_to(connection, typer.echo)["conversations"]
            except ReachyVoiceError as error:
                refusals.append((path, error))
    if conversations:
        return {"conversations": conversations, "kept_s": 0.0}
    if not refusals:
        raise absent[0]
    path, refusal = refusals[0]
    if wish.keep_s and refusal.exit_code == AnnouncementError.exit_code:
        return ask(path, {"say": wish.model_dump()}, typer.echo)
    raise refusal


def _print(answer: dict[str, Any]) -> None:
    for each in answer["conversations"]:
        what = TEXTS.get(each["outcome"], "said").format(heard=each["heard"])
        typer.echo(f"{each['name']}: {what}")
    if answer["kept_s"]:
        typer.echo(f"Nobody is connected. Kept for {answer['kept_s']:g} s.")
