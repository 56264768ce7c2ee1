"""Conversations that wait for their clients in a folder which several servers share.

Each file is sealed with ``access.shared_key`` and holds words and calls, no sound and no pictures.
A locked file marks a connected client. Two clients connected under one identity, at one server or
two, cannot be told apart, so neither ever resumes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.access.seal import Seal
from app.server.identity import Identity
from app.write_whole import write_whole
from pipeline.conversation.chat import Chat
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    MessageItem,
    Part,
    ServerCall,
    TextPart,
    ToolServerItem,
)
from pipeline.messages import Tool

FORGOTTEN_S = 86_400.0
"""After a day without a connection, an identity no longer counts as shared."""

_KINDS = (
    *(MessageItem, FunctionCallItem, FunctionOutputItem, ToolServerItem),
    *(TextPart, AudioPart, ImagePart),
)
_BY_NAME: Mapping[str, type[Any]] = {kind.__name__: kind for kind in _KINDS}


class ConversationFolder:
    """All calls block, and raise ``OSError``. ``now`` is the wall clock in seconds."""

    def __init__(
        self, folder: Path, key: str, keep_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._key = key
        self._seal = Seal(key, "conversation")
        self._keep_s = keep_s
        self._now = now

    def claim(self, who: Identity) -> int | None:
        """Mark ``who`` as connected until ``release``. ``None`` if it already is, at any server."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(who, "lock")
        while (handle := _locked(path)) is not None:
            if _is_at(handle, path):
                os.utime(handle)
                return handle
            os.close(handle)  # deleted before it was locked
        return None

    def release(self, claim: int) -> None:
        os.close(claim)

    def shared(self, who: Identity) -> None:
        """Record that several clients have this identity: nothing is kept for it any more."""
        self._path(who, "shared").touch(0o600)
        self.forget(who)

    def write(self, who: Identity, chat: Chat, tools: Sequence[Tool]) -> None:
        """Keep the conversation of ``who``, in place of an earlier one."""
        self._sweep()
        if self._path(who, "shared").exists():
            return
        items = [_packed(item) for item in chat.items]
        forgotten = len(chat.items) - len(chat.context)
        sealed = self._seal.close([self._now(), list(map(asdict, tools)), items, forgotten])
        write_whole(self._path(who, "conversation"), sealed, 0o600)

    def read(self, who: Identity) -> tuple[Chat, tuple[Tool, ...]] | None:
        """The conversation of ``who``, unless it has waited too long."""
        if self._path(who, "shared").exists():
            return None
        try:
            sealed = self._path(who, "conversation").read_bytes()
        except FileNotFoundError:
            return None
        opened = self._seal.open(sealed)
        if opened is None or self._now() - opened[0] >= self._keep_s:
            return None
        _, tools, items, forgotten = opened
        chat = Chat()
        try:
            for item in items:
                chat.add(_unpacked(item))
            if forgotten:
                chat.forget_before(chat.items[forgotten].id)
            return chat, tuple(Tool(**tool) for tool in tools)
        except (KeyError, TypeError):  # written by another version
            return None

    def forget(self, who: Identity) -> None:
        self._path(who, "conversation").unlink(missing_ok=True)

    def _path(self, who: Identity, kind: str) -> Path:
        """A file whose name reveals the client only to holders of the key."""
        text = f"{self._key}\0{who.key.hex()}\0{who.address}"
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.{kind}"

    def _sweep(self) -> None:
        """Delete expired files."""
        for path in self._folder.iterdir():
            lasts_s = self._keep_s if path.suffix == ".conversation" else FORGOTTEN_S
            with contextlib.suppress(FileNotFoundError):  # another server was quicker
                if self._now() - path.stat().st_mtime < lasts_s:
                    continue
                if path.suffix != ".lock":
                    path.unlink()
                elif (handle := _locked(path)) is not None:  # its client is gone
                    path.unlink()
                    os.close(handle)


def _locked(path: Path) -> int | None:
    """A handle of the file with a lock on it; ``None`` if it is already locked."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if not isinstance(error, BlockingIOError):
            raise
        return None
    return handle


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _packed(item: Item) -> dict[str, Any]:
    fields = {"kind": type(item).__name__, **asdict(item)}
    if isinstance(item, MessageItem):
        fields["parts"] = [_packed_part(part) for part in item.parts]
    return fields


def _packed_part(part: Part) -> dict[str, Any]:
    match part:
        case AudioPart():
            part = replace(part, audio=None)
        case ImagePart():
            part = replace(part, url=None)
    return {"kind": type(part).__name__, **asdict(part)}


def _unpacked(fields: dict[str, Any]) -> Any:
    """Rebuild an item, or a part of one."""
    kind = _BY_NAME[fields.pop("kind")]
    if "parts" in fields:
        fields["parts"] = tuple(map(_unpacked, fields["parts"]))
    if "clauses" in fields:
        fields["clauses"] = tuple(map(tuple, fields["clauses"]))
    if fields.get("server"):
        fields["server"] = ServerCall(**fields["server"])
    return kind(**fields)
