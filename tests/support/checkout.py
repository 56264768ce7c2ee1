"""Checkouts for the tests of setup, and programs that replace those it runs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from app.setup.commands import Log
from app.setup.needs import Cuda
from app.setup.place import Place
from app.setup.steps import Step
from tests.support.places import ROOT

CUDA = Cuda("/usr/local/cuda/bin/nvcc", "13.0.88", "8.9")


def copied(directory: Path, *folders: str) -> Path:
    """A checkout with ``script``, these folders, the lock files and ``pyproject.toml``."""
    root = directory / "checkout"
    for folder in ("script", *folders):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for file in (*ROOT.glob("requirements*.lock"), ROOT / "pyproject.toml"):
        shutil.copy(file, root)
    return root


def place_in(directory: Path) -> Place:
    """A checkout that has no program; its pip records its arguments, and succeeds."""
    place = Place(copied(directory), directory / "cache", sys.executable)
    place.scratch.mkdir(parents=True)
    answer_pip(place, "exit 0")
    return place


def program(path: Path, shell: str) -> None:
    """Write a program, which runs ``shell``; ``$*`` are its arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{shell}\n")
    path.chmod(0o755)


def answer_pip(place: Place, shell: str) -> None:
    """``shell`` runs for each call of pip."""
    program(place.python, f'echo "$*" >> {place.root}/calls\n{shell}')


def called(place: Place) -> list[str]:
    """pip's arguments in each call."""
    lines = (place.root / "calls").read_text().splitlines()
    # The real pip fails at an option that a command does not have.
    assert not [line for line in lines if " uninstall " in line and "--progress-bar" in line]
    for line in lines:
        assert (" install " in line) == (" --target= --root=/ --prefix=" in line)
    return [line.removeprefix("-I -m pip ").partition(" --progress-bar=off")[0] for line in lines]


def do(place: Place, step: Step) -> None:
    step.run(Log(place.build / "step.log", os.environ))
    place.stamps.write(step.name, step.inputs())
