"""Conversations that move between servers with a shared folder."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.server import conversation_folder
from app.server.conversation_folder import FORGOTTEN_S, ConversationFolder
from app.server.identity import Identity
from app.server.load import MOST_BUSY, Load
from app.server.reconnect import ParkedConversations
from app.server.serving import _folder
from app.settings.load import load_settings
from pipeline import items
from pipeline.audio import Recording
from pipeline.conversation.chat import Chat
from pipeline.conversation.prompt import prompt
from pipeline.errors import ConfigError
from pipeline.messages import Message, Tool
from tests.server.test_coming_back import Home, abort, ask, at_home
from tests.support.scripted_server import Serve, Talk
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

KEY = "a key that all servers of a fleet share"
WHO, OTHER = Identity(b"digest", "192.168.1.7"), Identity(b"digest", "192.168.1.8")
TOOLS = (Tool("dance", "Dance.", {"type": "object"}),)
SPEECH = items.AudioPart("I am Ada.", 1.0, Recording(np.zeros(16_000, np.int16), 16_000))


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def a_chat() -> Chat:
    chat = Chat()
    chat.add(items.MessageItem("1", "user", (items.TextPart("Long ago."),)))
    chat.add(
        items.MessageItem("2", "user", (SPEECH, items.ImagePart("data:image/png;base64,AAAA")))
    )
    called = items.ServerCall("house", "dance", output="Danced.")
    chat.add(items.FunctionCallItem("3", "call", "dance", '{"how": "well"}', server=called))
    chat.add(items.ToolServerItem("list", "mcp_list_tools", {"server_label": "house", "tools": []}))
    chat.add(items.FunctionOutputItem("4", "call", "done"))
    answer = items.AudioPart("Hello, Ada.", 1.2, None, (("Hello, ", 0.5), ("Ada.", 0.7)), 1.2)
    chat.add(items.MessageItem("5", "assistant", (answer,), "incomplete"))
    chat.add(items.MessageItem("6", "assistant", (items.TextPart("Sorry."),), notice=True))
    chat.forget_before("2")
    return chat


def read_by_the_model(chat: Chat) -> list[Message]:
    """The prompt without its pictures, which are not saved."""
    return [replace(message, images=()) for message in prompt("Be kind.", chat.context)]


def test_another_server_reads_a_written_conversation(tmp_path: Path) -> None:
    here, there = (ConversationFolder(tmp_path, KEY, 120) for _ in range(2))
    before = a_chat()
    here.write(WHO, before, TOOLS)
    found = there.read(WHO)
    assert found
    chat, tools = found
    assert tools == TOOLS
    assert read_by_the_model(chat) == read_by_the_model(before)
    assert [item.id for item in chat.context] == ["2", "3", "list", "4", "5", "6"]
    chat.truncate("5", 0.6)
    assert isinstance(answer := chat.get("5"), items.MessageItem)
    assert answer.text.strip() == "Hello,"
    assert there.read(OTHER) is None
    there.forget(WHO)
    assert here.read(WHO) is None


def test_files_are_encrypted(tmp_path: Path) -> None:
    ConversationFolder(tmp_path, KEY, 120).write(WHO, a_chat(), TOOLS)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert b"Ada" not in file.read_bytes()
    assert "192" not in file.name
    stranger = ConversationFolder(tmp_path, KEY[::-1], 120)
    assert stranger.read(WHO) is None
    file.rename(stranger._path(WHO, "conversation"))
    assert stranger.read(WHO) is None


def test_a_conversation_expires(tmp_path: Path) -> None:
    clock = Clock()
    folder = ConversationFolder(tmp_path, KEY, 120, clock)
    folder.write(WHO, a_chat(), TOOLS)
    clock.now += 119
    assert folder.read(WHO)
    clock.now += 1
    assert folder.read(WHO) is None


def test_two_clients_under_one_identity_never_resume(tmp_path: Path) -> None:
    here, there = (ConversationFolder(tmp_path, KEY, 120) for _ in range(2))
    here.write(WHO, a_chat(), TOOLS)
    claim = here.claim(WHO)
    assert claim is not None
    assert there.claim(WHO) is None
    there.shared(WHO)
    assert there.read(WHO) is None
    here.write(WHO, a_chat(), TOOLS)
    here.release(claim)
    assert there.claim(WHO) is not None
    assert there.read(WHO) is None
    assert there.claim(OTHER) is not None


def test_a_conversation_of_another_version_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(conversation_folder, "_packed", lambda item: {"kind": "DreamItem"})
        ConversationFolder(tmp_path, KEY, 120).write(WHO, a_chat(), TOOLS)
    assert ConversationFolder(tmp_path, KEY, 120).read(WHO) is None


def test_a_folder_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(conversation_folder.fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        ConversationFolder(tmp_path, KEY, 120).claim(WHO)


def test_old_files_are_deleted(tmp_path: Path) -> None:
    now = Path(tmp_path).stat().st_mtime
    clock = Clock()
    clock.now = now
    folder = ConversationFolder(tmp_path, KEY, 120, clock)
    folder.write(WHO, a_chat(), TOOLS)
    folder.shared(OTHER)
    clock.now = now + 130
    folder.write(OTHER, a_chat(), TOOLS)
    assert {path.suffix for path in tmp_path.iterdir()} == {".shared"}
    clock.now = now + FORGOTTEN_S + 10
    folder.write(WHO, a_chat(), TOOLS)
    assert {path.suffix for path in tmp_path.iterdir()} == {".conversation"}


def test_a_client_that_stays_for_days_is_still_connected(tmp_path: Path) -> None:
    now = tmp_path.stat().st_mtime
    clock = Clock()
    clock.now = now
    here, there = (ConversationFolder(tmp_path, KEY, 120, clock) for _ in range(2))
    claim = here.claim(WHO)
    assert claim is not None
    clock.now = now + 3 * FORGOTTEN_S
    there.write(OTHER, a_chat(), TOOLS)
    assert there.claim(WHO) is None
    here.release(claim)


def test_a_lock_deleted_before_it_was_taken_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server sweeps the folder after the file is opened and before it is locked."""
    folder = ConversationFolder(tmp_path, KEY, 120)
    lock, locked = conversation_folder.fcntl.flock, []

    def deleted_first(handle: int, how: int) -> None:
        if not locked:
            folder._path(WHO, "lock").unlink()
        locked.append(handle)
        lock(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr(conversation_folder.fcntl, "flock", deleted_first)
        claim = folder.claim(WHO)
    assert claim is not None
    assert len(locked) == 2
    assert ConversationFolder(tmp_path, KEY, 120).claim(WHO) is None
    folder.release(claim)


async def test_a_client_that_leaves_during_its_claim_leaves_none(tmp_path: Path) -> None:
    folder = ConversationFolder(tmp_path, KEY, 120)
    claiming, go_on = threading.Event(), threading.Event()
    claim, release, released = folder.claim, folder.release, asyncio.Event()

    def slow_claim(who: Identity) -> int | None:
        claiming.set()
        go_on.wait()
        return claim(who)

    def noted_release(handle: int) -> None:
        release(handle)
        released.set()

    folder.claim, folder.release = slow_claim, noted_release  # type: ignore[method-assign]
    parked = ParkedConversations(120, folder)

    async def come() -> None:
        with parked.present(WHO):
            await parked.fetch(WHO, StagedAssistant().memory)

    coming = asyncio.create_task(come())
    await asyncio.to_thread(claiming.wait)
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming
    go_on.set()
    await released.wait()
    other = ConversationFolder(tmp_path, KEY, 120)
    assert await asyncio.to_thread(other.claim, WHO) is not None


async def test_a_claim_waits_for_the_last_servers_release(
    tmp_path: Path,
) -> None:
    last, folder = (ConversationFolder(tmp_path, KEY, 120) for _ in range(2))
    held = await asyncio.to_thread(last.claim, WHO)
    assert held is not None
    claim = folder.claim

    def let_go(who: Identity) -> int | None:
        """Release the claim after the first attempt."""
        found = claim(who)
        if found is None:
            last.write(who, a_chat(), TOOLS)
            last.release(held)
        return found

    folder.claim = let_go  # type: ignore[method-assign]
    parked = ParkedConversations(120, folder)
    with parked.present(WHO):
        await parked.fetch(WHO, StagedAssistant().memory)
        assert parked.waits_for(WHO)
    parked.close()


def test_a_folder_needs_the_key(tmp_path: Path) -> None:
    settings = load_settings(None, [f"server.conversations_dir={tmp_path}"], environ={}).settings
    with pytest.raises(ConfigError) as missing:
        _folder(settings)
    assert "SHARED_KEY" in missing.value.fix


# --- servers -----------------------------------------------------------------------------------


async def fleet(serving: Serve, folder: Path, count: int) -> list[Home]:
    """Servers that share one folder."""
    shared = [ConversationFolder(folder, KEY, 120) for _ in range(count)]
    return [await at_home(serving, folder=each) for each in shared]


async def cut(home: Home, talk: Talk) -> None:
    """Cut the connection and wait until the server notices."""
    await abort(talk)
    await home.served.clients.empty()


async def test_a_client_that_lost_its_connection_continues_at_another(
    serving: Serve, tmp_path: Path
) -> None:
    for number, home in enumerate(await fleet(serving, tmp_path, 3)):
        async with home.robot() as talk:
            assert all([await home.remembers(talk, f"Here is {n}.") for n in range(number)])
            await ask(talk, f"Here is {number}.")
            await cut(home, talk)


async def test_a_client_that_left_or_has_other_tools_starts_anew(
    serving: Serve, tmp_path: Path
) -> None:
    first, second = await fleet(serving, tmp_path, 2)
    async with first.robot() as talk:
        await ask(talk, "I am Ada.")
    await first.served.clients.empty()
    async with second.robot() as again:
        assert not await second.remembers(again, "I am Ada.")
        await cut(second, again)
    async with first.robot(tools=[]) as other:
        assert not await first.remembers(other, "I am Ada.")


async def test_robots_are_served_if_the_folder_fails(
    serving: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    (home,) = await fleet(serving, tmp_path / "file" / "folder", 1)
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
    await home.served.clients.empty()
    assert home.assistant.llm.opened == 0
    assert "Not a directory" in caplog.text


async def test_a_conversation_ends_cleanly_on_a_full_disk(
    serving: Serve,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    (home,) = await fleet(serving, tmp_path, 1)
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        monkeypatch.setattr(Path, "replace", full)
        await cut(home, talk)
    assert home.assistant.llm.opened == 0
    assert "No space" in caplog.text
    assert all(name.endswith(".lock") for name in os.listdir(tmp_path))


async def test_two_identical_robots_never_share_a_conversation(
    serving: Serve, tmp_path: Path
) -> None:
    homes = await fleet(serving, tmp_path, 2)
    async with homes[0].robot() as one, homes[1].robot() as two:
        await ask(one, "I am Ada.")
        await ask(two, "I am Bea.")
        await cut(homes[0], one)
        await cut(homes[1], two)
    for home in homes:
        async with home.robot() as again:
            assert not await home.remembers(again, "Ada")
            assert not await home.remembers(again, "Bea")


# --- load --------------------------------------------------------------------------------------


def test_a_server_is_too_busy_if_late_too_often() -> None:
    """Other programs use the core; the server's own share stays small."""
    load, careless = Load(late_s=0.04), Load()
    for late in (4, 6, 5):
        for each in (load, careless):
            for number in range(100):
                each.note(0.05 if number < late else 0.01)
            each.look(100.0, 50.0)
        assert not careless.too_high
        assert load.too_high == (late > 5)


def test_a_loop_that_takes_most_of_its_core_is_too_busy() -> None:
    load = Load()
    load.look(100.0, 50.0)
    assert not load.too_high
    load.look(105.0, 50.0 + 5 * MOST_BUSY + 0.1)
    assert load.too_high
    load.look(110.0, 54.0)
    assert not load.too_high
