"""``reachy-voice say``, over a real socket, to ``talk``."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from app.announcing.announcer import (
    AnnouncementError,
    AnnouncementRequest,
    Announcer,
    UnknownConversation,
)
from app.cli.say import say
from app.server.control import NotRunning, answer_requests, ask, request, socket_path
from app.talk.talk_app import take_announcements
from pipeline.errors import ReachyVoiceError
from pipeline.speaking.announcements import Outcome
from tests.support.beside import beside
from tests.support.scripted_speaker import KITCHEN, ScriptedSpeaker

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


PLACES = {"talk": "", "server": KITCHEN}


async def run_say(outcomes: Mapping[str, Sequence[Outcome]], to: str, keep_s: float = 0.0) -> None:
    """``outcomes``: reported by each running process; empty: it has no conversation."""
    jobs: list[Coroutine[Any, Any, None]] = []
    listening: list[asyncio.Event] = []
    for name, each in outcomes.items():
        speakers = [ScriptedSpeaker(PLACES[name], each)] if each else []
        announcer = Announcer(partial(_sessions, speakers))
        listening.append(asyncio.Event())
        jobs += announcer.run(), answers(name, announcer, listening[-1])
    running = [asyncio.create_task(each) for each in jobs]
    try:
        for event in listening:
            await event.wait()
        await asyncio.to_thread(say, "Dinner.", to, 1.0, keep_s, None, ["server.port=1"])
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


def _sessions(speakers: Sequence[ScriptedSpeaker]) -> list[tuple[ScriptedSpeaker, str]]:
    return [(each, each.place) for each in speakers]


async def answers(name: str, announcer: Announcer, listening: asyncio.Event) -> None:
    if name == "talk":
        await take_announcements(announcer, listening.set)
        return

    async def carry(asked: Mapping[str, Any], tell: object) -> Mapping[str, Any]:
        return await announcer.announce(AnnouncementRequest(**asked["say"]))

    path = await asyncio.to_thread(socket_path, 1, os.environ)
    await answer_requests(path, carry, listening.set)


SAID: Sequence[Outcome] = ("said",)
KEPT = "Nobody is connected. Kept for 60 s.\n"
BOTH = f"{KITCHEN}: said\ntalk: said\n"


@pytest.mark.parametrize(
    ("outcomes", "to", "keep_s", "printed"),
    [
        ({"talk": SAID}, "all", 0, "talk: said\n"),
        ({"talk": SAID}, "Talk", 60, "talk: said\n"),
        ({"talk": ()}, "all", 60, KEPT),
        ({"server": SAID, "talk": SAID}, "all", 60, BOTH),
        ({"server": SAID, "talk": SAID}, "talk", 60, "talk: said\n"),
        ({"server": SAID, "talk": SAID}, KITCHEN, 60, f"{KITCHEN}: said\n"),
        ({"server": (), "talk": SAID}, "all", 60, "talk: said\n"),
        ({"server": (), "talk": ()}, "all", 60, KEPT),
        ({"server": (), "talk": ()}, "talk", 60, KEPT),
    ],
)
async def test_outcomes_are_printed(
    outcomes: Mapping[str, Sequence[Outcome]],
    to: str,
    keep_s: float,
    printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await run_say(outcomes, to, keep_s)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("outcomes", "to", "kind", "printed"),
    [
        ({"talk": ("busy",)}, "all", AnnouncementError, "talk: not said: there was no pause\n"),
        ({"talk": ()}, "all", AnnouncementError, ""),
        ({"server": SAID}, "garage", UnknownConversation, ""),
        ({"talk": SAID}, "garage", NotRunning, ""),
        ({"server": SAID}, "talk", NotRunning, ""),
    ],
)
async def test_a_failure_sets_the_exit_code(
    outcomes: Mapping[str, Sequence[Outcome]],
    to: str,
    kind: type[ReachyVoiceError],
    printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ReachyVoiceError) as failed:
        await run_say(outcomes, to)
    assert failed.value.exit_code == kind.exit_code
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("kind", "ends"), [("say", True), ("assignments", False)])
async def test_an_interrupted_command_cancels_its_announcement(
    kind: str, ends: bool, tmp_path: Path
) -> None:
    begun, ended, listening = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def carry(asked: Mapping[str, Any], tell: object) -> Mapping[str, Any]:
        try:
            begun.set()
            await asyncio.sleep(60 if ends else 0.05)
            assert not ends
        finally:
            ended.set()
        return {}

    def ask_and_leave() -> None:
        with request(path, {kind: {}}):
            asyncio.run_coroutine_threadsafe(begun.wait(), loop).result()

    path, loop = tmp_path / "1.sock", asyncio.get_running_loop()
    async with beside(answer_requests(path, carry, listening.set)):
        await listening.wait()
        await asyncio.to_thread(ask_and_leave)
        await asyncio.wait_for(ended.wait(), 30)


def test_without_a_server_or_a_text_that_fits() -> None:
    with pytest.raises(NotRunning):
        say("Dinner.", overrides=["server.port=1"])
    with pytest.raises(typer.BadParameter, match="1000 characters"):
        say("x" * 1001)


def test_only_a_running_server_is_named(tmp_path: Path) -> None:
    """Not a killed one, and not ``talk``, which has no port."""
    with ExitStack() as stack:
        for name in ("1", "2", "talk"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(tmp_path / f"{name}.sock"))
            if name != "1":
                listener.listen()
        with pytest.raises(NotRunning) as refusal:
            ask(tmp_path / "8765.sock", {}, print)
    assert refusal.value.fix == "One runs at port 2: add --set server.port=2"


@pytest.mark.parametrize(
    ("text", "to", "hint"),
    [("x" * 1001, "all", "text"), ("caf\udce9", "all", "text"), ("x", "k" * 101, "to")],
)
def test_what_cannot_be_said_is_refused_in_one_sentence(text: str, to: str, hint: str) -> None:
    with pytest.raises(typer.BadParameter) as refusal:
        say(text, to, 1.0, 0.0, None, ["server.port=1"])
    assert refusal.value.param_hint == hint
