"""``reachy-voice say``, over a real socket, to ``talk``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer

from app.announcing.announcer import AnnouncementError, Announcer, UnknownConversation
from app.cli.say import say
from app.server.control import NotRunning, ask
from app.talk.talk_app import take_announcements
from pipeline.errors import ReachyVoiceError
from pipeline.speaking.announcements import Outcome
from tests.support.scripted_speaker import ScriptedSpeaker

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


async def say_to_talk(*outcomes: Outcome, to: str = "all", keep_s: float = 0.0) -> None:
    speakers = [ScriptedSpeaker("", outcomes)] if outcomes else []
    announcer = Announcer(lambda: [(each, each.place) for each in speakers])
    listening = asyncio.Event()
    jobs = announcer.run(), take_announcements(announcer, listening.set)
    running = [asyncio.create_task(each) for each in jobs]
    try:
        await listening.wait()
        await asyncio.to_thread(say, "Dinner.", to, 1.0, keep_s, None, ["server.port=1"])
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


@pytest.mark.parametrize(
    ("outcomes", "keep_s", "printed"),
    [
        (("said",), 0, "talk: said\n"),
        ((), 60, "Nobody is connected. Kept for 60 s.\n"),
    ],
)
async def test_what_is_printed(
    outcomes: Sequence[Outcome], keep_s: float, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await say_to_talk(*outcomes, keep_s=keep_s)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("outcomes", "to", "kind", "printed"),
    [
        (("busy",), "all", AnnouncementError, "talk: not said: there was no pause\n"),
        ((), "all", AnnouncementError, ""),
        (("said",), "garage", UnknownConversation, ""),
    ],
)
async def test_what_fails(
    outcomes: Sequence[Outcome],
    to: str,
    kind: type[AnnouncementError | UnknownConversation],
    printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ReachyVoiceError) as failed:
        await say_to_talk(*outcomes, to=to)
    assert failed.value.exit_code == kind.exit_code
    assert capsys.readouterr().out == printed


def test_without_a_server_or_a_text_that_fits() -> None:
    with pytest.raises(NotRunning):
        say("Dinner.", overrides=["server.port=1"])
    with pytest.raises(typer.BadParameter, match="1000 characters"):
        say("x" * 1001)


def test_only_a_server_that_runs_is_named(tmp_path: Path) -> None:
    """Not one that was killed, and not ``talk``, which has no port."""
    with ExitStack() as stack:
        for name in ("1", "2", "talk"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(tmp_path / f"{name}.sock"))
            if name != "1":
                listener.listen()
        with pytest.raises(NotRunning) as refusal:
            ask(tmp_path / "8765.sock", {}, print)
    assert refusal.value.fix == "One runs at port 2: add --set server.port=2"
