"""A new patch release of Python keeps the environment; a rebuild keeps the owner's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.setup import flow, steps
from app.setup.commands import Log
from app.setup.owner_packages import OwnerPackages
from app.setup.place import Place, digest
from tests.support.checkout import answer_pip, called, program

pytestmark = pytest.mark.machine

ABI, BASE = steps.ABI, "/opt/python/3.11.2/bin/python3.11"
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


def add_package(place: Place, name: str, version: str, origin: object = None) -> None:
    site = place.venv / "lib" / f"python{MINOR}" / "site-packages"
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin))


def owned(place: Place) -> None:
    """Some packages that setup installs, and the owner's."""
    for name in ("numpy", "pip", "Jinja2", "llama_cpp_python", "reachy-voice", "torch"):
        add_package(place, name, "1.0")
    add_package(place, "robot-voices", "0.3")
    add_package(
        place,
        "fork",
        "2",
        {"url": "https://x/y", "vcs_info": {"vcs": "git", "commit_id": "c0"}, "subdirectory": "z"},
    )
    add_package(
        place, "mine", "1", {"url": "file:///home/me/my%20voice", "dir_info": {"editable": True}}
    )


REQUIREMENTS = [
    ["-e", "/home/me/my voice"],
    ["fork @ git+https://x/y@c0#subdirectory=z"],
    ["robot-voices==0.3"],
]


@pytest.fixture
def base(place: Place) -> Place:
    """A base whose Python records how it is called."""
    python = place.root / "base-python"
    program(python, f'echo "$*" >> {place.root}/made')
    return Place(place.root, place.cache, str(python))


def make(place: Place) -> str:
    step = steps.environment(place)
    assert not step.is_done(place)
    step.run(Log(place.build / "step.log", os.environ))
    made = place.root / "made"
    return made.read_text() if made.exists() else ""


@pytest.mark.parametrize(
    ("stamp", "config", "kept"),
    [
        (f"{ABI}\n{BASE}\n{{venv}}", "", True),
        (f"cpython-39-{ABI}\n{BASE}\n{{venv}}", "", False),
        (f"{ABI}\n{BASE}\n/elsewhere/.venv", "", False),
        (digest("3.11.2"), f"version = {MINOR}.2\ncommand = p -m venv --clear {{venv}}\n", True),
        (digest("3.11.2"), f"version = {MINOR}1.2\ncommand = p -m venv {{venv}}\n", False),
        (digest("3.11.2"), f"version = {MINOR}.2\ncommand = p -m venv /elsewhere/.venv\n", False),
        (digest("3.11.2"), "", False),
    ],
)
def test_a_patch_release_keeps_it(base: Place, stamp: str, config: str, kept: bool) -> None:
    owned(base)
    base.stamps.write("environment", stamp.format(venv=base.venv))
    base.stamps.write("bootstrap", steps.pip_and_setuptools(base).inputs())
    (base.venv / "pyvenv.cfg").write_text(config.format(venv=base.venv))
    todo = [step.name for step in flow.to_do(base, steps.base_steps(base, with_tests=False))]
    assert ("bootstrap" in todo, "owner-packages" in todo) == (not kept, not kept)
    made = make(base)
    assert ("--upgrade" in made, "--clear" in made) == (kept, not kept)
    assert OwnerPackages(base).is_kept() == (not kept)


def test_the_owners_packages_are_named_and_put_back(
    base: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    owned(base)
    owners = OwnerPackages(base)
    assert owners.requirements() == REQUIREMENTS
    owners.keep()
    told = capsys.readouterr().err
    assert "/home/me/my voice, fork @ git+https://x/y@c0#subdirectory=z, robot-voices==0.3" in told
    answer_pip(base, 'case "$*" in *fork*) echo Connection refused; exit 1;; esac')
    (step,) = [s for s in steps.base_steps(base, with_tests=False) if s.name == "owner-packages"]
    step.run(Log(base.build / "step.log", os.environ))
    assert [line.split("--no-deps ")[1] for line in called(base)] == [
        " ".join(words) for words in REQUIREMENTS
    ]
    told = capsys.readouterr().err
    missing = "packages fork @ git+https://x/y@c0#subdirectory=z are missing"
    assert f"{missing}. Run: {base.python} -m pip install" in told
    assert not owners.is_kept()


def test_sources_in_the_environment_survive_it(base: Place) -> None:
    """Those of ``pip install -e git+URL``."""
    source = base.venv / "src" / "fork"
    source.mkdir(parents=True)
    (source / "voice.py").write_text("mine")
    add_package(base, "fork", "1", {"url": source.as_uri(), "dir_info": {"editable": True}})
    OwnerPackages(base).keep()
    subprocess.run(["rm", "-r", str(base.venv)], check=True)
    base.venv.mkdir()
    answer_pip(base, "exit 0")
    OwnerPackages(base).put_back(Log(base.build / "step.log", os.environ))
    assert (source / "voice.py").read_text() == "mine"
    assert called(base)[-1].endswith(f"-e {source}")


def test_an_interrupted_setup_puts_them_back_later(base: Place) -> None:
    owned(base)
    OwnerPackages(base).keep()
    subprocess.run(["rm", "-r", str(base.venv)], check=True)
    OwnerPackages(base).keep()
    for step in steps.base_steps(base, with_tests=False)[:-1]:
        base.stamps.write(step.name, step.inputs())
    (due,) = flow.to_do(base, steps.base_steps(base, with_tests=False))
    assert due.name == "owner-packages"


def test_without_owners_packages_there_is_no_step(base: Place) -> None:
    add_package(base, "numpy", "1.0")
    assert len(steps.base_steps(base, with_tests=False)) == 4


def test_a_real_environment_gets_the_new_interpreter(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path / "cache", os.path.realpath(sys.executable))
    subprocess.run(
        [place.base_python, "-I", "-m", "venv", "--without-pip", str(place.venv)], check=True
    )
    add_package(place, "robot-voices", "0.3")
    for link in (place.venv / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/gone/python3")
    place.stamps.write("environment", f"{ABI}\n{BASE}\n{place.venv}")
    make(place)
    script = "from importlib.metadata import version; print(version('robot-voices'))"
    found = subprocess.check_output([str(place.python), "-I", "-c", script], text=True)
    assert found == "0.3\n"
