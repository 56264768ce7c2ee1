"""Writes script/sizes.json: how much each lock file makes pip fetch, and how large it is unpacked.

script/lock runs it. pip chooses the files as it would for this machine (run it on Linux x86-64 with
the oldest Python), from its default index; of a wheel only the table of contents is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

ROOT = Path(__file__).resolve().parent.parent
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-workstation.lock",
    "requirements-workstation-fast.lock",
    "requirements-cuda.lock",
)
MEASURED = {
    # torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl: the file, and du of what it installed.
    "torch-cpu": {"download": 191_794_682, "disk": 798_000_000},
    # The source archive of 0.3.36; what is installed of it is counted by its step.
    "script/llama-cpp.lock": {"download": 76_589_250, "disk": 0},
}
SDIST_RATIO = 5
"""Unpacked size of a source archive, as a multiple; a rough guess for what is small here."""


BLOCK = 4096


class Remote(io.RawIOBase):
    """A file on a web server, read in ranges."""

    def __init__(self, url: str) -> None:
        self.url = url
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.size = int(answer.headers["Content-Length"])
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        self.position = start + offset
        return self.position

    def readinto(self, buffer: Buffer) -> int:
        with memoryview(buffer) as view:
            end = min(self.size, self.position + len(view))
            if end <= self.position:
                return 0
            span = {"Range": f"bytes={self.position}-{end - 1}"}
            request = urllib.request.Request(self.url, headers=span)
            with urllib.request.urlopen(request, timeout=60) as answer:
                content: bytes = answer.read(len(view))
            view[: len(content)] = content
        self.position += len(content)
        return len(content)


def sizes_of(url: str) -> tuple[int, int]:
    """Bytes of the file, and of what is in it."""
    remote = Remote(url)
    if not url.endswith(".whl"):
        return remote.size, SDIST_RATIO * remote.size
    with zipfile.ZipFile(io.BufferedReader(remote, 2**16)) as wheel:
        return remote.size, sum(map(on_disk, wheel.infolist()))


def on_disk(entry: zipfile.ZipInfo) -> int:
    """Bytes in whole blocks; pip compiles a .py into a file of about its size."""
    blocks = -(-entry.file_size // BLOCK) * BLOCK
    return 2 * blocks if entry.filename.endswith(".py") else blocks


def chosen_files(lock: str) -> list[str]:
    """URLs of what pip would fetch for a lock file."""
    # Without hashes, because with them pip would fetch every file to check it.
    lines = [line.rstrip("\\ \n") for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        environ.pop(name, None)
    with tempfile.TemporaryDirectory() as scratch:
        listed, report = Path(scratch, "list.txt"), Path(scratch, "report.json")
        listed.write_text("\n".join(lines))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
        command += ["--no-deps", "--report", str(report), "-r", str(listed)]
        subprocess.run(command, check=True, env=environ)
        found = json.loads(report.read_text())["install"]
    return [item["download_info"]["url"] for item in found]


def measure(lock: Path, before: Mapping[str, Any]) -> Mapping[str, Any]:
    """``before``: what was found last time, which is kept if the lock file is the same."""
    text = lock.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    if before.get("sha256") == digest:
        return before
    print(f"sizes of {lock.name}", flush=True)
    urls = chosen_files(text)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(sizes_of, urls))
    return {
        "sha256": digest,
        "packages": len(urls),
        "download": sum(size for size, _ in found),
        "disk": sum(unpacked for _, unpacked in found),
    }


def main() -> None:
    place = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    file = ROOT / "script" / "sizes.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    sizes: dict[str, object] = {"computed for": place, **MEASURED}
    for name in LOCKS:
        sizes[name] = measure(ROOT / name, before.get(name, {}))
    file.write_text(json.dumps(sizes, indent=2) + "\n")


if __name__ == "__main__":
    main()
