"""``reachy-voice say``: the robot speaks first."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from app.announcing.announcer import EVERYBODY, MOST_CHARS, AnnouncementError, AnnouncementRequest
from app.cli.options import ConfigOption, JsonOption, SetOption
from app.server.control import NotRunning, ask, socket_path, talk_socket_path
from app.settings.load import load_settings

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
    if len(text) > MOST_CHARS:
        raise typer.BadParameter(f"has more than {MOST_CHARS} characters", param_hint="TEXT")
    announcement = AnnouncementRequest(
        text=text, to=to, within_s=within_s, keep_s=keep_s
    ).model_dump()
    try:
        answer = ask(
            socket_path(settings.server.port, os.environ), {"say": announcement}, typer.echo
        )
    except NotRunning:
        if not (talks := talk_socket_path(os.environ)).exists():
            raise
        answer = ask(talks, {"say": announcement}, typer.echo)
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False))
    else:
        _print(answer)
    heard = [each for each in answer["conversations"] if each["heard"]]
    if not heard and not answer["kept_s"]:
        raise AnnouncementError("Nobody heard it", fix="Try again with a longer --within")


def _print(answer: dict[str, Any]) -> None:
    for each in answer["conversations"]:
        what = TEXTS.get(each["outcome"], "said").format(heard=each["heard"])
        typer.echo(f"{each['name']}: {what}")
    if answer["kept_s"]:
        typer.echo(f"Nobody is connected. Kept for {answer['kept_s']:g} s.")
