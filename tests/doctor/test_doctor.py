"""Every finding of the doctor, good and bad; each failure says what to do."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.doctor import checks as doctor
from app.doctor import processor
from app.doctor.checks import check_sound, chosen_sound, examine
from app.doctor.machine import check_memory
from app.doctor.processor import check_compiled_for, check_trials
from app.models.catalogue import Catalogue
from app.models.weights import WeightsCache
from app.settings.model import ServerSettings
from app.setup.finding import Check
from app.setup.llama import PROCESSOR_STAMP
from app.setup.place import Stamps
from hardware.settings import Sound
from hardware.sound.errors import SoundError
from pipeline.engines.registry import (
    CORE,
    EngineOptions,
    EngineSpec,
    Kind,
    require_modules,
)
from pipeline.engines.registry import engine_spec as find_spec
from pipeline.errors import MissingExtra
from tests.support.far_server import free_port
from tests.support.file_server import FileServer, file_server
from tests.support.places import ROOT
from tests.support.toy_engine import Options, build, build_broken, build_for_another_processor
from tests.support.virtual_sound import NAME, VirtualSound

pytestmark = pytest.mark.machine


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture
def empty_cache(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache and a free port."""
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
    engines = {f"{kind} engine" for kind in CORE}
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


def test_broken_settings_are_one_finding_among_others(empty_cache: dict[str, str]) -> None:
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


def test_a_catalogue_that_cannot_be_read_is_one_finding(empty_cache: dict[str, str]) -> None:
    checks = by_name(examine(None, ["paths.catalogue=/no.yaml"], empty_cache))
    assert_fails(checks["weights"], "/no.yaml does not exist", "Check the path")
    assert "port" in checks


def test_what_keeps_all_clients_out(empty_cache: dict[str, str], tmp_path: Path) -> None:
    tls = "server.tls={certificate: /no.pem, key: /no.key}"
    check = by_name(examine(None, [tls], empty_cache))["access"]
    assert_fails(check, "TLS cannot use /no.pem", "Set server.tls")
    (tmp_path / "access.json").write_text("{")
    file = f"paths.access_file={tmp_path}/access.json"
    check = by_name(examine(None, [file], empty_cache))["access"]
    assert_fails(check, "The list of who may connect cannot be understood", "access.json")


@pytest.mark.parametrize(
    ("extra", "fix"),
    [
        ("fancy", "Install the packages that its makers list into this environment"),
        ("nemo", "Run: reachy-voice setup --config mine.yaml"),
    ],
)
def test_a_missing_extra(extra: str, fix: str) -> None:
    build: Any = None
    spec = EngineSpec("x", Kind.TTS, EngineOptions, build, extra=extra, modules=("no_such_thing",))
    check = doctor.check_engine(spec, "reachy-voice setup --config mine.yaml")
    assert (check.state, check.fix) == ("fail", fix)
    assert "no_such_thing" in check.detail


def test_the_word_judge_is_optional(
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


def test_a_voice_that_our_own_server_measured_as_slow(server: FileServer) -> None:
    server.files["/v1/models"] = json.dumps({"data": [{"owned_by": "reachy-voice"}]}).encode()
    port = ServerSettings(host="127.0.0.1", port=port_of(server))
    for body, rows in (
        ({"ready": False, "reasons": {"llm": "loading"}}, []),
        ({"ready": True, "notes": {}}, []),
        ({"ready": True, "notes": {"tts": "slower than speech (2.4 s a second)"}}, ["tts"]),
    ):
        server.files["/ready"] = json.dumps(body).encode()
        _, *notes = doctor.check_ports(port)
        assert [check.name for check in notes] == rows
        assert all("2.4 s" in c.detail and "tts.device" in c.fix for c in notes)


@pytest.mark.parametrize("answer", [None, b"<html>reachy-voice", b'{"status": "ok"}'])
def test_a_port_in_use(server: FileServer, answer: bytes | None) -> None:
    if answer is not None:
        server.files["/v1/models"] = answer
    port = port_of(server)
    check = doctor.check_port("127.0.0.1", port)
    assert_fails(check, "listens there already", f"server.port={port + 1}")


@pytest.mark.parametrize("is_installed", [True, False])
def test_webrtc(
    empty_cache: dict[str, str], monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    assert "WebRTC" not in by_name(examine(environ=empty_cache))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: is_installed or None if name == "aiortc" else find(name),
    )
    check = by_name(examine(None, ["server.webrtc=true"], empty_cache))["WebRTC"]
    if is_installed:
        assert (check.state, check.fix) == ("ok", "")
    else:
        assert_fails(check, "aiortc", "reachy-voice setup --set server.webrtc=true")


def test_an_endless_answer_at_the_port_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip() -> None:
        client, _ = taken.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                client.sendall(b" ")
                time.sleep(0.01)

    monkeypatch.setattr(doctor, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dripping = threading.Thread(target=drip)
        dripping.start()
        assert doctor.check_port("127.0.0.1", taken.getsockname()[1]).state == "fail"
        dripping.join()


def test_the_port_for_home_assistant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ANSWER_S", 0.2)

    def found(**server: Any) -> list[tuple[str, str]]:
        return [(c.name, c.state) for c in doctor.check_ports(ServerSettings(port=0, **server))]

    assert found() == [("port", "ok")]
    assert found(wyoming_port=0) == [("port", "ok"), ("Home Assistant", "warn")]
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        free = ServerSettings(host="0.0.0.0", port=free_port(), wyoming_port=port)
        assert [c.state for c in doctor.check_ports(free)] == ["ok", "fail"]


def test_an_address_that_is_not_ours() -> None:
    check = doctor.check_port("203.0.113.1", 8765)
    assert_fails(check, "203.0.113.1:8765", "server.host")


# --- the doctor's words on microphone and loudspeaker ------------------------------------------


def test_a_machine_without_sound_is_fine() -> None:
    check = check_sound(Sound(), SoundError("There is none", why="no card", fix="Plug one in"))
    assert (check.state, check.fix) == ("ok", "")
    assert "only `talk` needs it: Plug one in" in check.detail


def test_a_device_that_was_named_should_be_there() -> None:
    check = check_sound(Sound(microphone="Jabra"), SoundError("It is not here", fix="Look"))
    assert (check.state, check.detail, check.fix) == ("warn", "It is not here", "Look")


def test_the_chosen_devices_are_named(tmp_path: Path) -> None:
    with VirtualSound(tmp_path / "pulse"):
        sound = Sound(microphone=NAME, speaker=NAME)
        check = check_sound(sound, chosen_sound(sound))
        assert (check.state, check.detail) == ("ok", f"{NAME} -> {NAME}")
        missing = Sound(microphone="Jabra")
        assert check_sound(missing, chosen_sound(missing)).state == "warn"


# --- what is told where an engine's packages are not installed ---------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.STT, "parakeet"), (Kind.TTS, "qwen3-tts"), (Kind.LLM, "llama-cpp")]
)
def test_setup_is_suggested_for_our_engines(
    kind: Kind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        require_modules(find_spec(kind, name))
    assert caught.value.fix.startswith(f"Run: reachy-voice setup --set {kind}.engine={name} ")


def test_packages_on_no_index_are_not_suggested() -> None:
    """Otherwise a stranger could register the name and be installed."""
    told = [
        path
        for folder in ("app", "hardware", "pipeline", "script")
        for path in (ROOT / folder).rglob("*.py")
        if "pip install 'reachy-voice" in path.read_text()
    ]
    assert told == []


# --- whether the engines run on this processor -------------------------------------------------


def test_instructions_that_are_gone_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "own_instructions", lambda: "avx avx2 sse4_2")
    assert not list(check_compiled_for("setup", tmp_path)), "nothing is known"
    stamps = Stamps(tmp_path / ".setup")
    stamps.write(PROCESSOR_STAMP, "avx avx2")
    assert not list(check_compiled_for("setup", tmp_path))
    stamps.write(PROCESSOR_STAMP, "avx avx2 avx512bw avx512f")
    (check,) = check_compiled_for("reachy-voice setup --config x", tmp_path)
    assert check.state == "warn"
    assert "avx512bw, avx512f" in check.detail
    assert "reachy-voice setup --config x" in check.fix


@pytest.mark.parametrize(
    ("builder", "findings"),
    [(build_for_another_processor, ["fail"]), (build_broken, []), (build, [])],
)
def test_an_engine_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: Any, findings: list[str]
) -> None:
    spec = EngineSpec("toy", Kind.TTS, Options, builder, modules=("json",))
    monkeypatch.setattr(processor, "engine_spec", lambda kind, name: spec)
    monkeypatch.setattr(processor, "has_room", lambda *which: True)
    settings: Any = SimpleNamespace(engines=lambda: [(Kind.TTS, Options())])
    cache = WeightsCache(tmp_path, Catalogue({}))
    checks = list(check_trials(settings, cache))
    assert [check.state for check in checks] == findings
    if checks:
        assert "tts toy engine does not run on this processor" in checks[0].detail
        assert "Set up again" in checks[0].fix
    assert processor.RanHere(tmp_path).has("tts-toy", spec.modules) == (builder is build)
