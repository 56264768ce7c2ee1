"""Every finding of the doctor, good and bad, and that each failure says what to do."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.doctor import checks as doctor
from app.doctor.checks import examine
from app.doctor.memory import check_memory
from app.models.catalogue import Catalogue
from app.models.weights import WeightsCache
from app.setup.finding import Check
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from tests.support.file_server import FileServer, file_server


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture
def empty_cache(tmp_path: Path) -> dict[str, str]:
    """An environment whose cache has nothing in it, and a port that is free."""
    return {"XDG_CACHE_HOME": str(tmp_path), "REACHY_VOICE__SERVER__PORT": "0"}


def port_of(server: FileServer) -> int:
    return int(server.url.rpartition(":")[2])


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def assert_fails(check: Check, detail: str, fix: str) -> None:
    assert check.state == "fail"
    assert detail in check.detail
    assert fix in check.fix


def test_examines_everything(empty_cache: dict[str, str]) -> None:
    checks = by_name(examine(environ=empty_cache))
    assert checks["settings"].state == checks["Python"].state == "ok"
    engines = {f"{kind} engine" for kind in Kind}
    others = {
        "Python",
        "settings",
        "weights",
        "disk",
        "memory",
        "processor",
        "port",
    }
    assert engines | others <= set(checks)
    assert_fails(checks["weights"], "silero-vad (absent)", "models pull")
    assert all(check.fix for check in checks.values() if check.state == "fail")


def test_broken_settings_are_one_finding_among_the_others(empty_cache: dict[str, str]) -> None:
    checks = by_name(examine(None, ["server.prot=1"], empty_cache))
    assert_fails(checks["settings"], "did you mean server.port?", "config explain")
    assert checks["Python"].state == "ok"
    assert "weights" in checks


def test_settings_without_weights_need_none(empty_cache: dict[str, str]) -> None:
    swaps = ["turn.engine=silence", "tts.engine=espeak-ng"]
    detail = by_name(examine(None, swaps, empty_cache))["weights"].detail
    assert "smart-turn" not in detail
    assert "piper" not in detail


def test_an_unknown_catalogue_entry(empty_cache: dict[str, str]) -> None:
    checks = by_name(examine(None, ["vad.weights=silero-vda"], empty_cache))
    assert_fails(checks["weights"], "silero-vda", "silero-vad")


def test_a_missing_extra() -> None:
    build: Any = None
    spec = EngineSpec(
        "x", Kind.TTS, EngineOptions, build, extra="fancy", modules=("no_such_thing",)
    )
    assert_fails(doctor.check_engine(spec), "no_such_thing", "its makers")


def test_the_word_judge_is_one_engine_that_a_server_can_do_without(
    empty_cache: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llama_cpp" else find(name)
    )
    checks = examine("remote", (), empty_cache)
    assert [check.detail for check in checks if check.name == "llm engine"] == ["openai-chat"]
    judge = by_name(checks)["word judge"]
    assert (judge.state, judge.fix) == ("warn", "Run: reachy-voice setup --config remote")


@pytest.mark.parametrize(("needed", "state"), [((), "warn"), (("smollm2-135m-instruct",), "fail")])
def test_weights_that_are_not_here(tmp_path: Path, needed: tuple[str, ...], state: str) -> None:
    cache = WeightsCache(tmp_path, Catalogue.load())
    found = doctor.check_weights(cache, ["smollm2-135m-instruct"], needed)
    assert (found.state, found.fix) == (
        state,
        "Run: reachy-voice models pull smollm2-135m-instruct",
    )


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    (enough,) = doctor.check_room({tmp_path / "not" / "yet": 5 * 10**8})
    assert enough.state == "ok"
    (both,) = doctor.check_room({tmp_path: 5 * 10**8, tmp_path / "not" / "yet": 5 * 10**8})
    assert_fails(both, "1.1 GB needed", "paths.cache_dir")


def test_memory() -> None:
    assert check_memory(900, 8000, 4000).state == "ok"
    assert check_memory(900, 8000, 400).state == "warn"
    assert_fails(check_memory(900, 512, 400), "about 900 MB", "smaller")


def test_processor() -> None:
    assert doctor.check_cpu(frozenset({"avx2"}), 2).state == "ok"
    assert doctor.check_cpu(frozenset({"sse2"}), 8).state == "warn"
    assert doctor.check_cpu(frozenset(), 4).state == "ok", "not an x86"
    assert doctor.check_cpu(frozenset(), 1).state == "warn"


def test_a_free_port() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert doctor.check_port("127.0.0.1", port).detail.endswith("is free")
    assert doctor.check_port("127.0.0.1", 0).state == "ok"


def test_a_port_of_our_own_server(server: FileServer) -> None:
    server.files["/v1/models"] = json.dumps({"data": [{"owned_by": "reachy-voice"}]}).encode()
    check = doctor.check_port("127.0.0.1", port_of(server))
    assert check.state == "ok"
    assert "already serving" in check.detail


@pytest.mark.parametrize("answer", [None, b"<html>reachy-voice", b'{"status": "ok"}'])
def test_a_port_in_use(server: FileServer, answer: bytes | None) -> None:
    if answer is not None:
        server.files["/v1/models"] = answer
    port = port_of(server)
    assert_fails(doctor.check_port("127.0.0.1", port), "in use", f"server.port={port + 1}")


def test_an_address_that_is_not_ours() -> None:
    check = doctor.check_port("203.0.113.1", 8765)
    assert_fails(check, "203.0.113.1:8765", "server.host")
