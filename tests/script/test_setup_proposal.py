"""The first start proposes a profile: the real ``script/serve`` in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from app.setup import proposal
from app.setup.failures import INTERRUPTED
from app.setup.place import Place
from app.setup.plan import Fetch
from app.setup.steps import base_steps, llama
from tests.support.checkout import copied, program
from tests.support.places import ROOT

pytestmark = pytest.mark.machine

OFFER = {
    "profile": "cpu-plus",
    "summary": "A better assistant.",
    "machine": "8 cores, 16 GB",
    "hosts": "hub.example",
}


class Checkout:
    """A checkout with its base set up and its program replaced: the proposal is a larger machine's;
    ``models pull`` and ``serve`` record their calls."""

    def __init__(self, directory: Path, offer: dict[str, str]) -> None:
        self.root = copied(directory, "config", "app")
        self.owners = directory / "own" / "reachy-voice" / "settings.yaml"
        told = {**offer, "file": str(self.owners)} if offer else {}
        (directory / "told.json").write_text(json.dumps(told))
        programs = self.root / ".venv" / "bin"
        program(
            programs / "python",
            f'[ "$*" = "-I -m app.doctor.profile_offer" ] && exec cat {directory}/told.json\n'
            '[ "$1" = -I ] && shift\n'
            f'PYTHONPATH={ROOT} exec {sys.executable} "$@"',
        )
        program(programs / "reachy-voice", f'echo "$*" >> {directory}/ran')
        self.ran = directory / "ran"
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory / "own"),
            "XDG_CACHE_HOME": str(directory / "cache"),
        }
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        place = Place(self.root, directory / "cache" / "reachy-voice", python)
        for step in (*base_steps(place, with_tests=False), llama(place)):
            place.stamps.write(step.name, step.inputs())

    def serve(self, typed: bytes, *arguments: str) -> tuple[int, str]:
        """Run in a terminal and type when asked; returns exit code and output."""
        child, terminal = pty.fork()
        if child == 0:
            os.execve(self.root / "script" / "serve", ["serve", *arguments], self.env)
        shown = b""
        with suppress(OSError):  # Linux: EIO at the end
            while new := os.read(terminal, 4096):
                shown += new
                if typed and b"[Y/n]" in shown:
                    os.write(terminal, typed)
                    typed = b""
        os.close(terminal)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")

    def served(self) -> bool:
        return self.ran.exists() and "serve" in self.ran.read_text().split()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path, OFFER)


def test_yes_is_kept_and_serves(checkout: Checkout) -> None:
    code, shown = checkout.serve(b"\n")
    assert code == 0, shown
    assert "8 cores, 16 GB, and hub.example can be reached: the profile cpu-plus fits." in shown
    assert "A better assistant." in shown
    assert shown.count("[Y/n]") == 1, "it is not asked again before the download"
    assert "qwen3-1.7b" in shown, "the plan is that of the profile"
    assert checkout.owners.read_text().endswith("extends: cpu-plus\n")
    assert "--config default" in shown
    assert checkout.served()


@pytest.mark.parametrize(("key", "ends"), [(b"\x04", 0), (b"\x03", INTERRUPTED)])
def test_the_end_of_input_and_an_interrupt_are_no_answer(
    checkout: Checkout, key: bytes, ends: int
) -> None:
    """The end of the input serves the default."""
    code, shown = checkout.serve(key)
    assert code == ends, shown
    assert not checkout.owners.exists()
    assert bool(checkout.served()) == (ends == 0)


@pytest.mark.parametrize(
    ("typed", "profile", "asks_again"),
    [
        (b"what\xff?\nYes\n", "cpu-plus", True),
        (b"?\nno\n", "default", True),
        (b"n\n", "default", False),
    ],
)
def test_a_clear_answer_is_kept_and_an_unclear_one_asked_again(
    checkout: Checkout, typed: bytes, profile: str, asks_again: bool
) -> None:
    """Nobody is asked twice: once the file exists, the program proposes nothing."""
    code, shown = checkout.serve(typed)
    assert code == 0, shown
    assert ("Please answer y or n." in shown) == asks_again
    assert checkout.owners.read_text().endswith(f"extends: {profile}\n")
    assert ("qwen3-1.7b" in shown) == (profile == "cpu-plus")
    assert checkout.served()


def test_an_answer_that_cannot_be_kept_starts_the_default(checkout: Checkout) -> None:
    checkout.owners.parent.parent.write_text("in the way")
    code, shown = checkout.serve(b"y\n")
    assert code == 0, shown
    assert "cannot be kept" in shown
    assert "--config cpu-plus" in shown
    assert "qwen3-1.7b" not in shown
    assert checkout.served()


def test_nobody_is_asked_without_a_terminal(checkout: Checkout) -> None:
    done = subprocess.run(
        [checkout.root / "script" / "serve"],
        env=checkout.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[Y/n]" not in done.stderr
    assert not checkout.owners.exists()
    assert checkout.served()


@pytest.mark.parametrize("choice", ["--config cpu", "--set server.port=0", "--plan", ""])
def test_nobody_is_asked_after_a_choice(checkout: Checkout, choice: str) -> None:
    checkout.env |= {} if choice else {"REACHY_VOICE__TTS__ENGINE": "espeak-ng"}
    code, shown = checkout.serve(b"", *choice.split())
    assert code == 0, shown
    assert "Take it?" not in shown
    assert not checkout.owners.exists()


def test_without_a_proposal_the_default_is_served(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, {})
    code, shown = checkout.serve(b"")
    assert code == 0, shown
    assert "Take it?" not in shown
    assert checkout.served()


def test_settings_of_the_owner_are_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# mine\n")
    offer = proposal.Proposal(**OFFER, file=str(file))
    assert offer.keep(taken=True)
    assert file.read_text() == "# mine\n"


def test_the_text_sums_downloads_and_compile_time() -> None:
    offer = proposal.Proposal(**OFFER, file="")
    text = offer.text([Fetch("weights", "a hub", 1500, 1500), Fetch("llama", "pip", 77, 130, 240)])
    assert "1.6 GB, about 9 minutes" in text
