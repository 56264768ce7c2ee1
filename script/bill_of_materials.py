"""Write docs/bill-of-materials.cdx.json (CycloneDX) from what is installed; --check only compares.

.venv/bin/python script/bill_of_materials.py [--check]

The CPU profiles on Linux x86-64 with Python 3.11: packages of requirements.lock, Whisper and
WebRTC, llama.cpp, and all weights of the catalogue. Not the packages of Parakeet and Qwen3-TTS.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, metadata, version
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "bill-of-materials.cdx.json"
LOCKS = (
    *("requirements.lock", "script/llama-cpp.lock"),
    *(f"requirements-{extra}.lock" for extra in ("languages", "webrtc", "mcp", "wake")),
)
APART = "separate program: started by the server, never part of its process"
PROGRAMS = {"piper-tts": APART}
OTHERS = (
    ("library", "lit-html", "3.3.3", "BSD-3-Clause", "app/console/static"),
    ("application", "espeak-ng", "", "GPL-3.0-or-later", f"{APART}; yours, if an engine uses it"),
)
OSI = "License :: OSI Approved :: "


def bill() -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "reachy-voice",
                "version": project_version(),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [*packages(), *(component(*each) for each in OTHERS), *weights()],
    }


def project_version() -> str:
    match = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def packages() -> Iterator[dict[str, Any]]:
    for lock in LOCKS:
        for line in (ROOT / lock).read_text().splitlines():
            pin = re.match(r"([A-Za-z0-9][\w.\-]*)==([^\s;]+)(?:\s*;\s*(.*?))?\s*\\?$", line)
            if pin is None or (pin[3] and not Marker(pin[3]).evaluate()):
                continue
            name, number = pin[1], pin[2]
            assert version(name) == number, f"{name} {version(name)} is installed, not {number}"
            what = PROGRAMS.get(name, "Python package")
            kind = "application" if name in PROGRAMS else "library"
            part = component(kind, name, number, licence_of(metadata(name)), what)
            yield {**part, "purl": f"pkg:pypi/{name}@{number}"}


def licence_of(package: PackageMetadata) -> str:
    if expression := package["License-Expression"]:
        return expression
    licence = package["License"]
    if licence and "\n" not in licence:
        return licence
    classes = [each for each in package.get_all("Classifier") or () if each.startswith(OSI)]
    assert classes, f"{package['Name']} states no licence"
    return " AND ".join(each.removeprefix(OSI) for each in classes)


def weights() -> Iterator[dict[str, Any]]:
    catalogue = YAML(typ="safe").load((ROOT / "config" / "weights.yaml").read_text())
    for name, entry in catalogue.items():
        what = "weights, fetched where an engine is chosen that uses them"
        yield component("machine-learning-model", name, "", entry["licence"], what)


def component(kind: str, name: str, number: str, licence: str, what: str) -> dict[str, Any]:
    part = {"type": kind, "name": name, "version": number, "description": what}
    part["licenses"] = [{"license": {"name": licence}}]  # type: ignore[assignment]
    return {key: value for key, value in part.items() if value}


def main() -> int:
    text = json.dumps(bill(), indent=1, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        print("docs/bill-of-materials.cdx.json is old. Run: script/bill_of_materials.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
