"""What the images are built from is here, and is all that the wheel needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support.places import ROOT

FOLDER = ROOT / "containers"


def copied(containerfile: Path) -> list[str]:
    """The paths that it takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", containerfile.read_text(), re.MULTILINE)
    return [word for line in lines for word in line.split()]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.cuda"])
def test_it_takes_all_that_the_wheel_contains(name: str) -> None:
    taken = copied(FOLDER / name)
    files = {path for pattern in taken for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in taken)
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert set(taken) <= set(allowed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for needed in [*wheel["packages"], *wheel["force-include"], project["project"]["readme"]]:
        path = ROOT / needed
        assert files & {path, *path.parents}, f"{needed} is not copied"


def test_the_gpu_is_added_to_the_same_service() -> None:
    plain, cuda = (
        YAML(typ="safe").load((FOLDER / name).read_text())
        for name in ("compose.yaml", "compose.cuda.yaml")
    )
    assert list(plain["services"]) == list(cuda["services"]) == ["voice"]
    for each in (plain, cuda):
        file = each["services"]["voice"]["build"]["dockerfile"]
        assert (ROOT / file).is_file()
