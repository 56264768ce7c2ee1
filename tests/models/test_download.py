"""Downloads over a real loopback connection that fails in every way."""

from __future__ import annotations

import errno
import hashlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.models.download import Fetcher, Progress, RemoteFile, SourceRefusal
from pipeline.errors import WeightsError
from tests.support.file_server import FileServer, file_server

pytestmark = pytest.mark.machine

CONTENT = random.Random(1).randbytes(700_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        server.files["/model.bin"] = CONTENT
        yield server


@pytest.fixture
def waits() -> list[float]:
    """Every pause that a fetcher would have made."""
    return []


@pytest.fixture
def fetcher(waits: list[float]) -> Iterator[Fetcher]:
    with Fetcher(sleep=waits.append) as fetcher:
        yield fetcher


def remote(server: FileServer, **changes: Any) -> RemoteFile:
    known = {"label": "model.bin", "size": len(CONTENT), "sha256": SHA256}
    return RemoteFile(f"{server.url}/model.bin", **{**known, **changes})


def left_behind(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_reports_progress_up_to_the_whole(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    target = fetcher.fetch(remote(server), tmp_path / "m", seen.append)
    assert target.read_bytes() == CONTENT
    assert [seen[0].done, seen[-1].done, seen[-1].total] == [0, len(CONTENT), len(CONTENT)]
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert left_behind(tmp_path) == ["m"]


def test_resumes_where_the_connection_broke(
    server: FileServer, fetcher: Fetcher, waits: list[float], tmp_path: Path
) -> None:
    server.hang_up_after = [300_000, 200_000]
    assert fetcher.fetch(remote(server), tmp_path / "m").read_bytes() == CONTENT
    assert server.ranges == ["", "bytes=300000-", "bytes=500000-"]
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("part", "ranges"),
    [
        (CONTENT[:123_456], ["bytes=123456-"]),
        (CONTENT + b"tail", [f"bytes={len(CONTENT) + 4}-", ""]),
        (b"of another version", ["bytes=18-", ""]),
    ],
)
def test_a_partial_file_of_an_earlier_process_is_resumed_or_dropped(
    server: FileServer, fetcher: Fetcher, tmp_path: Path, part: bytes, ranges: list[str]
) -> None:
    (tmp_path / "m.part").write_bytes(part)
    assert fetcher.fetch(remote(server), tmp_path / "m").read_bytes() == CONTENT
    assert server.ranges == ranges


def test_starts_over_when_the_server_cannot_resume(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    server.resumes = False
    (tmp_path / "m.part").write_bytes(CONTENT[:5])
    assert fetcher.fetch(remote(server), tmp_path / "m").read_bytes() == CONTENT


class Lie(NamedTuple):
    content: bytes
    size: int | None


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(Lie(b"X" + CONTENT[1:], len(CONTENT)), id="other bytes"),
        pytest.param(Lie(CONTENT[:-1], len(CONTENT)), id="shorter"),
        pytest.param(Lie(CONTENT + b"!", len(CONTENT)), id="longer"),
        pytest.param(Lie(CONTENT[:-1], None), id="size unknown"),
    ],
)
def test_a_wrong_file_leaves_nothing_behind(
    server: FileServer, fetcher: Fetcher, tmp_path: Path, lie: Lie
) -> None:
    server.files["/model.bin"] = lie.content
    with pytest.raises(WeightsError, match="not what the catalogue promises"):
        fetcher.fetch(remote(server, size=lie.size), tmp_path / "m")
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("is_page", [True, False])
def test_a_part_survives_the_login_page_of_a_network(
    server: FileServer, fetcher: Fetcher, tmp_path: Path, is_page: bool
) -> None:
    """As a page of unknown length, or of a length that the file does not have."""
    (tmp_path / "m.part").write_bytes(CONTENT[:123_456])
    server.redirects["/model.bin"] = "/login/" if is_page else "/login"
    server.files |= {"/login/": b"<html>Log in", "/login": b"<html>Log in"}
    server.resumes, server.lengths = False, not is_page
    with pytest.raises(WeightsError, match="wants you to log in"):
        fetcher.fetch(remote(server), tmp_path / "m")
    server.redirects.clear()
    server.resumes = True
    assert fetcher.fetch(remote(server), tmp_path / "m").read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=123456-"


def test_a_server_that_keeps_hanging_up_is_given_up_and_the_part_kept(
    server: FileServer, fetcher: Fetcher, waits: list[float], tmp_path: Path
) -> None:
    server.hang_up_after = [100_000] + [0] * 20
    with pytest.raises(WeightsError, match=r"0\.1 MB are kept.*resumes where it stopped") as raised:
        fetcher.fetch(remote(server), tmp_path / "m")
    assert not isinstance(raised.value, SourceRefusal)
    assert (tmp_path / "m.part").read_bytes() == CONTENT[:100_000]
    assert waits == sorted(waits), "each pause is longer than the one before"


def test_an_answer_of_unknown_length_that_ends_early_is_resumed(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    server.lengths = False
    server.hang_up_after = [300_000]
    assert fetcher.fetch(remote(server), tmp_path / "m").read_bytes() == CONTENT
    assert server.ranges == ["", "bytes=300000-"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_download_that_only_starts_over_is_given_up(
    server: FileServer, fetcher: Fetcher, tmp_path: Path, resumes: bool
) -> None:
    server.resumes, server.lengths = resumes, False
    server.files["/model.bin"] = CONTENT[:1000]
    server.hang_up_after = [1000, 900] * 20
    with pytest.raises(WeightsError, match="cannot be downloaded"):
        fetcher.fetch(remote(server), tmp_path / "m")
    assert len(server.requests) <= 6


def test_redirects_in_a_circle_are_an_error(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    server.redirects["/model.bin"] = "/model.bin"
    with pytest.raises(SourceRefusal, match="redirects"):
        fetcher.fetch(remote(server), tmp_path / "m")


def test_a_busy_server_is_retried(
    server: FileServer, fetcher: Fetcher, waits: list[float], tmp_path: Path
) -> None:
    server.statuses = [503, 429]
    assert fetcher.fetch(remote(server), tmp_path / "m").exists()
    assert len(waits) == 2


def test_a_missing_file_is_not_retried(
    server: FileServer, fetcher: Fetcher, waits: list[float], tmp_path: Path
) -> None:
    server.statuses = [404]
    with pytest.raises(WeightsError, match="HTTP 404 for http"):
        fetcher.fetch(remote(server), tmp_path / "m")
    assert waits == []
    assert left_behind(tmp_path) == []


def test_a_refusal_gives_advice_and_no_secret(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    server.statuses = [403]
    asked = RemoteFile(f"{server.url}/model.bin?sig=secret", "m", refusal_fix="Accept the licence")
    with pytest.raises(SourceRefusal, match="Accept the licence") as raised:
        fetcher.fetch(asked, tmp_path / "m")
    assert "secret" not in str(raised.value)


def test_no_network(fetcher: Fetcher, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/model.bin"
        with pytest.raises(SourceRefusal, match="Check the network"):
            fetcher.fetch(RemoteFile(url, "model.bin"), tmp_path / "m")
    assert left_behind(tmp_path) == []


def test_a_full_disk_removes_the_partial_file(
    server: FileServer, fetcher: Fetcher, tmp_path: Path
) -> None:
    def full(now: Progress) -> None:
        if now.done:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WeightsError, match="The disk is full"):
        fetcher.fetch(remote(server), tmp_path / "m", full)
    assert left_behind(tmp_path) == []
