"""Downloads over a real loopback connection that fails in every way."""

from __future__ import annotations

import errno
import hashlib
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.models.download import (
    Fetcher,
    Progress,
    RemoteFile,
    Report,
    SourceRefusal,
    ignore_progress,
)
from pipeline.errors import WeightsError
from tests.support.file_server import FileServer, file_server

pytestmark = pytest.mark.machine

CONTENT = random.Random(1).randbytes(700_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Download:
    """A server with one file, and its download to ``target``."""

    server: FileServer
    fetcher: Fetcher
    target: Path
    waits: list[float]
    """Every pause that the fetcher would have made."""

    @property
    def part(self) -> Path:
        return self.target.with_name("m.part")

    def fetch(self, report: Report = ignore_progress, **changes: Any) -> bytes:
        known = {"label": "model.bin", "size": len(CONTENT), "sha256": SHA256}
        remote = RemoteFile(f"{self.server.url}/model.bin", **{**known, **changes})
        return self.fetcher.fetch(remote, self.target, report).read_bytes()

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir())


@pytest.fixture
def download(tmp_path: Path) -> Iterator[Download]:
    waits: list[float] = []
    with file_server() as server, Fetcher(sleep=waits.append) as fetcher:
        server.files["/model.bin"] = CONTENT
        yield Download(server, fetcher, tmp_path / "m", waits)


def test_reports_progress_up_to_the_whole(download: Download) -> None:
    seen: list[Progress] = []
    assert download.fetch(seen.append) == CONTENT
    assert [seen[0].done, seen[-1].done, seen[-1].total] == [0, len(CONTENT), len(CONTENT)]
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert download.left_behind() == ["m"]


def test_resumes_where_the_connection_broke(download: Download) -> None:
    download.server.hang_up_after = [300_000, 200_000]
    assert download.fetch() == CONTENT
    assert download.server.ranges == ["", "bytes=300000-", "bytes=500000-"]
    assert len(download.waits) == 2


@pytest.mark.parametrize(
    ("part", "ranges"),
    [
        (CONTENT[:123_456], ["bytes=123456-"]),
        (CONTENT + b"tail", [f"bytes={len(CONTENT) + 4}-", ""]),
        (b"of another version", ["bytes=18-", ""]),
    ],
)
def test_a_partial_file_of_an_earlier_process_is_resumed_or_dropped(
    download: Download, part: bytes, ranges: list[str]
) -> None:
    download.part.write_bytes(part)
    assert download.fetch() == CONTENT
    assert download.server.ranges == ranges


def test_starts_over_when_the_server_cannot_resume(download: Download) -> None:
    download.server.resumes = False
    download.part.write_bytes(CONTENT[:5])
    assert download.fetch() == CONTENT


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (b"X" + CONTENT[1:], len(CONTENT)),
        (CONTENT[:-1], len(CONTENT)),
        (CONTENT + b"!", len(CONTENT)),
        (CONTENT[:-1], None),
    ],
    ids=["other bytes", "shorter", "longer", "size unknown"],
)
def test_a_wrong_file_leaves_nothing_behind(
    download: Download, content: bytes, size: int | None
) -> None:
    download.server.files["/model.bin"] = content
    with pytest.raises(WeightsError, match="not what the catalogue promises"):
        download.fetch(size=size)
    assert download.left_behind() == []


@pytest.mark.parametrize("is_page", [True, False])
def test_a_part_survives_the_login_page_of_a_network(download: Download, is_page: bool) -> None:
    """As a page of unknown length, or of a length that the file does not have."""
    download.part.write_bytes(CONTENT[:123_456])
    download.server.redirects["/model.bin"] = "/login/" if is_page else "/login"
    download.server.files |= {"/login/": b"<html>Log in", "/login": b"<html>Log in"}
    download.server.resumes, download.server.lengths = False, not is_page
    with pytest.raises(WeightsError, match="wants you to log in"):
        download.fetch()
    download.server.redirects.clear()
    download.server.resumes = True
    assert download.fetch() == CONTENT
    assert download.server.ranges[-1] == "bytes=123456-"


def test_a_server_that_keeps_hanging_up_is_given_up_and_the_part_kept(download: Download) -> None:
    download.server.hang_up_after = [100_000] + [0] * 20
    with pytest.raises(WeightsError, match=r"0\.1 MB are kept.*resumes where it stopped") as raised:
        download.fetch()
    assert not isinstance(raised.value, SourceRefusal)
    assert download.part.read_bytes() == CONTENT[:100_000]
    assert download.waits == sorted(download.waits), "each pause is longer than the one before"


def test_an_answer_of_unknown_length_that_ends_early_is_resumed(download: Download) -> None:
    download.server.lengths = False
    download.server.hang_up_after = [300_000]
    assert download.fetch() == CONTENT
    assert download.server.ranges == ["", "bytes=300000-"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_download_that_only_starts_over_is_given_up(download: Download, resumes: bool) -> None:
    download.server.resumes, download.server.lengths = resumes, False
    download.server.files["/model.bin"] = CONTENT[:1000]
    download.server.hang_up_after = [1000, 900] * 20
    with pytest.raises(WeightsError, match="cannot be downloaded"):
        download.fetch()
    assert len(download.server.requests) <= 6


def test_redirects_in_a_circle_are_an_error(download: Download) -> None:
    download.server.redirects["/model.bin"] = "/model.bin"
    with pytest.raises(SourceRefusal, match="redirects"):
        download.fetch()


def test_a_busy_server_is_retried(download: Download) -> None:
    download.server.statuses = [503, 429]
    assert download.fetch() == CONTENT
    assert len(download.waits) == 2


def test_a_missing_file_is_not_retried(download: Download) -> None:
    download.server.statuses = [404]
    with pytest.raises(WeightsError, match="HTTP 404 for http"):
        download.fetch()
    assert download.waits == []
    assert download.left_behind() == []


def test_a_refusal_gives_advice_and_no_secret(download: Download) -> None:
    download.server.statuses = [403]
    asked = RemoteFile(
        f"{download.server.url}/model.bin?sig=secret", "m", refusal_fix="Accept the licence"
    )
    with pytest.raises(SourceRefusal, match="Accept the licence") as raised:
        download.fetcher.fetch(asked, download.target)
    assert "secret" not in str(raised.value)


def test_no_network(download: Download) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/model.bin"
        with pytest.raises(SourceRefusal, match="Check the network"):
            download.fetcher.fetch(RemoteFile(url, "model.bin"), download.target)
    assert download.left_behind() == []


def test_a_full_disk_removes_the_partial_file(download: Download) -> None:
    def full(now: Progress) -> None:
        if now.done:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WeightsError, match="The disk is full"):
        download.fetch(full)
    assert download.left_behind() == []
