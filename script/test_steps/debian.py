"""Debian packages for tests: install them as root, otherwise name them and the skipped tests."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DebianPackage:
    """``probe``: a program or an absolute path that the package provides."""

    name: str
    probe: str
    tests: str

    def is_here(self) -> bool:
        if self.probe.startswith("/"):
            return Path(self.probe).exists()
        return shutil.which(self.probe) is not None


MULTIARCH = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
"""Where Debian puts libraries."""

PACKAGES = (
    DebianPackage("espeak-ng", "espeak-ng", "the espeak-ng voice"),
    DebianPackage(
        "pocketsphinx-testdata",
        "/usr/share/pocketsphinx/test/data/cards",
        "real recorded speech",
    ),
    DebianPackage("npm", "npm", "JavaScript clients"),
    DebianPackage("pulseaudio", "pulseaudio", "virtual sound cards"),
    DebianPackage("pulseaudio-utils", "pacat", "virtual sound cards"),
    DebianPackage(
        "libasound2-plugins",
        f"/usr/lib/{MULTIARCH}/alsa-lib/libasound_module_pcm_pulse.so",
        "virtual sound cards",
    ),
    DebianPackage(
        "libportaudio2", f"/usr/lib/{MULTIARCH}/libportaudio.so.2", "virtual sound cards"
    ),
    DebianPackage("openssl", "openssl", "our own certificates"),
    DebianPackage("haproxy", "/usr/sbin/haproxy", "robots behind a balancer"),
    DebianPackage("systemd", "systemd-analyze", "the service's unit"),
    DebianPackage("chromium", "chromium", "the console in a browser"),
)


def provide(environ: Mapping[str, str], packages: Sequence[DebianPackage] = PACKAGES) -> list[str]:
    """Install missing packages. Prints what follows from those still missing, and returns them."""
    missing = [package for package in packages if not package.is_here()]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        _install(environ, [package.name for package in missing])
        missing = [package for package in missing if not package.is_here()]
    for line in advice(missing):
        print(line, file=sys.stderr)
    return [package.name for package in missing]


def advice(missing: Sequence[DebianPackage]) -> list[str]:
    """Messages about missing packages."""
    if not missing:
        return []
    tests = ", ".join(f"{package.tests} ({package.name})" for package in missing)
    names = " ".join(package.name for package in missing)
    return [
        f"Tests of these are skipped: {tests}.",
        f"  To run them: sudo apt-get install {names}",
    ]


def _install(environ: Mapping[str, str], names: Sequence[str]) -> None:
    print(f"Installing the Debian packages {' '.join(names)}", file=sys.stderr, flush=True)
    env = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names]
    for command in (["apt-get", "update", "-q"], install):
        process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if process.returncode:
            print(f"{' '.join(command)} failed:\n{process.stderr}", file=sys.stderr)
