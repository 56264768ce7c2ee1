"""Replacing an engine in a whole running server, with small engines and real sockets."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.compose import Assistant
from app.models import memory_room
from app.models.engine_set import EXCHANGED
from app.models.gpu import find_gpus, free_memory_mb
from app.models.memory_room import has_room
from app.models.weights import WeightsCache
from app.server import live_settings
from app.server.control import NotRunning, ask, socket_path
from app.server.discovery import PATH
from app.server.exchange import Exchange
from app.server.health import notes as notes_of
from app.server.live_settings import LiveSettings
from app.server.updates import UpdateFollower
from app.settings.load import load_settings
from app.settings.model import LoadedSettings
from pipeline.audio import LISTEN_RATE, Pcm, pcm_from_bytes
from pipeline.engines.registry import CORE, Kind
from pipeline.errors import (
    ConfigError,
    EngineError,
    MissingExtra,
    ReachyVoiceError,
    Unreachable,
    WeightsError,
)
from reachy_voice.testing import Noise
from tests.clients.robot_app import COMPLETED, DELTA, STARTED, RobotApp, robot_app
from tests.support.listening import listening
from tests.support.small_engines import GATE, install
from tests.support.watched_log import WatchedLog, watched_log

pytestmark = pytest.mark.engines

Start = Callable[..., AbstractAsyncContextManager["Running"]]
DONE = "response.done"
HEARD_OUT_S = 0.8
"""Pause after an answer that was played."""


@dataclass
class Running:
    url: str
    port: int
    assistant: Assistant
    live: LiveSettings
    steps: list[str] = field(default_factory=list)
    loading: asyncio.Event = field(default_factory=asyncio.Event)

    async def use(self, *assignments: str, unload_first: bool | None = None) -> None:
        self.steps.clear()
        await self.live.use(assignments, self._note, unload_first)

    def _note(self, step: str) -> None:
        self.steps.append(step)
        if step.startswith("loading"):
            self.loading.set()


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(monkeypatch)
    monkeypatch.setattr(live_settings, "STEP_MS", 100)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "my.yaml"
    engines = "\n".join(f"{kind}: {{engine: small}}" for kind in Kind)
    path.write_text(
        "server: {port: 0}\nconversation: {apology: ''}\nplayback: {watch_voice: false}\n" + engines
    )
    return path


@pytest.fixture
def logged() -> Iterator[WatchedLog]:
    with watched_log("reachy_voice.settings") as log:
        yield log


@asynccontextmanager
async def running(
    file: Path | None, cache: WeightsCache, *, room: bool = True, **follows: float
) -> AsyncIterator[Running]:
    def load(more: Sequence[str]) -> LoadedSettings:
        return load_settings(str(file) if file else None, later=more)

    loaded = await asyncio.to_thread(load, ())
    assistant = await asyncio.to_thread(Assistant, loaded.settings, cache)
    exchange = Exchange(assistant, lambda kind, options: room)
    live = await asyncio.to_thread(LiveSettings, loaded, load, assistant, exchange)
    updates = UpdateFollower(assistant, exchange, **follows)
    async with listening(assistant, live=live, updates=updates) as port:
        yield Running(f"ws://127.0.0.1:{port}{PATH}", port, assistant, live)


@pytest.fixture
def start(settings_file: Path, cache: WeightsCache) -> Start:
    """Starts a server with these settings."""
    return partial(running, settings_file, cache)


def speech() -> Pcm:
    """Noise; a constant level would resemble the answers' voice."""
    return np.concatenate((np.zeros(3200, np.int16), Noise(1)(3000, LISTEN_RATE * 6 // 10)))


def ended(app: RobotApp) -> list[dict[str, Any]]:
    """Finished responses that were not cut off."""
    responses: list[dict[str, Any]] = [event["response"] for event in app.all(DONE)]
    return [response for response in responses if response["status"] != "cancelled"]


async def answered(app: RobotApp, count: int) -> dict[str, Any]:
    """Speak when all audio has played; returns the ``count``-th finished response. If the machine
    stands still within a word, it becomes two turns, and the second cuts off the answer to the
    first."""
    if app.player.pcm_bytes:
        # One word over the end of an answer is a backchannel.
        await asyncio.sleep(app.player.queued_s + HEARD_OUT_S)
    app.hears(speech())
    await app.until(lambda: len(ended(app)) >= count)
    return ended(app)[count - 1]


async def turn(app: RobotApp, count: int) -> tuple[str, str, set[int]]:
    """Speak; returns the transcript, the answer, and its voices."""
    before = len(app.all(DELTA))
    response = await answered(app, count)
    assert response["status"] == "completed"
    heard = app.all(COMPLETED)[-1]["transcript"]
    said = response["output"][0]["content"][0]["transcript"]
    pcm = [pcm_from_bytes(base64.b64decode(event["delta"])) for event in app.all(DELTA)[before:]]
    levels = {round(int(np.median(chunk)), -2) for chunk in pcm}
    return heard, said, levels - {0}


@pytest.mark.parametrize(
    ("rtf", "notes"),
    [
        (0.0, {}),
        (0.7, {}),
        (2.5, {"tts": "slower than speech (2.5 s a second): answers begin late"}),
    ],
)
def test_the_owner_is_told_of_a_slow_voice(
    settings_file: Path, cache: WeightsCache, rtf: float, notes: dict[str, str]
) -> None:
    assistant = Assistant(load_settings(str(settings_file)).settings, cache)
    assert assistant.stages.notice_voice
    assistant.stages.notice_voice.rtf = rtf
    assert notes_of(assistant.stages) == notes


async def test_each_engine_is_replaced_without_a_disconnection(start: Start) -> None:
    async with start() as server, robot_app(server.url) as app:
        heard, said, levels = await turn(app, 1)
        assert (heard, levels) == ("one", {1000})
        assert said.startswith("This is one.")
        await server.use("tts.level=2000")
        await server.use("stt={engine: small, name: two}", "llm.name=two", "vad.level=1")
        assert len([step for step in server.steps if "in place" in step]) == 3
        heard, said, levels = await turn(app, 2)
        assert (heard, levels) == ("two", {2000})
        assert said.startswith("This is two.")
        assert server.assistant.settings.stt.name == "two"  # type: ignore[attr-defined]
        # Earlier requests stay in effect until the engine is named again.
        await server.use("tts.rate=24000")
        assert (await turn(app, 3))[2] == {2000}
        await server.use("tts=small")
        assert (await turn(app, 4))[2] == {1000}
        assert not app.errors


async def test_the_old_engine_is_closed_when_nothing_uses_it(start: Start) -> None:
    async with start() as server, robot_app(server.url) as app:
        old, life = server.assistant.engines[Kind.TTS], server.assistant.engines.life(Kind.TTS)
        app.hears(speech())
        await app.event(DELTA)
        using = asyncio.create_task(server.use("tts.level=2000"))
        await app.event(DONE)
        assert (await app.event(DONE))["response"]["status"] == "completed"
        await using
        await asyncio.wait({life})
        assert old.problem == "is closed"
        assert (await turn(app, 2))[2] == {2000}


async def test_without_room_a_notice_is_said_and_turns_wait(start: Start) -> None:
    async with start(room=False) as server, robot_app(server.url) as app:
        await turn(app, 1)
        using = asyncio.create_task(server.use("tts.level=2000"))
        notice = await app.event(DONE, 2)
        text = notice["response"]["output"][0]["content"][0]["transcript"]
        assert text == "One moment, please. I am changing one of my parts."
        await using
        assert server.steps[0].startswith("waiting")
        assert (await turn(app, 3))[2] == {2000}


async def test_a_failed_load_keeps_the_old_engine(start: Start) -> None:
    async with start() as server, robot_app(server.url) as app:
        for unload_first in (False, True):
            with pytest.raises(EngineError, match="no legs"):
                await server.use("tts={engine: small, fails: true}", unload_first=unload_first)
            assert all(why is None for why in server.assistant.readiness().values())
            await turn(app, 2 if unload_first else 1)  # no notice is said: no client waits
        with pytest.raises(ConfigError, match="audio windows of another size"):
            await server.use("vad.window_samples=256")
        async with asyncio.timeout(30):  # not the time-out of the start
            with pytest.raises(Unreachable, match="cannot be reached"):
                await server.use('tts={engine: openai-speech, url: "http://127.0.0.1:9/v1"}')
        # Which of the two is missing first depends on the installed packages.
        with pytest.raises((MissingExtra, WeightsError)):
            await server.use("stt=parakeet")
        with pytest.raises(ReachyVoiceError, match="no tts engine"):
            await server.use("tts=nonsense")
        with pytest.raises(ConfigError, match="cannot be changed"):
            await server.use("server.port=1")
        await server.use("tts=small")
        assert server.steps == ["nothing to do: that is already running"]
        assert server.assistant.readiness() == dict.fromkeys(map(str, CORE))


async def test_an_engine_can_be_replaced_after_none_was_left(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as server, robot_app(server.url) as app:
        await turn(app, 1)
        real = server.assistant.engines.build

        def only_what_fails(options: Any, kind: Kind, *_: Any) -> Any:
            return real(options.model_copy(update={"fails": True}), kind)

        with monkeypatch.context() as patched:
            patched.setattr(server.assistant.engines, "build", only_what_fails)
            with pytest.raises(EngineError, match="There is no tts engine now"):
                await server.use("tts.level=2000", unload_first=True)
        assert "no engine could be loaded" in (server.assistant.readiness()["tts"] or "")
        await app.event(DONE, 2)  # the notice of the pause
        assert (await answered(app, 3))["status"] == "failed"
        await server.use("tts.level=2000")
        assert (await turn(app, 4))[2] == {2000}


async def test_editing_the_file_replaces_the_changed_engines(
    start: Start, settings_file: Path, logged: WatchedLog
) -> None:
    async with start() as server, robot_app(server.url) as app:
        await turn(app, 1)
        await server.use("tts.level=500")
        await logged.until("in place")
        text = await asyncio.to_thread(settings_file.read_text)

        async def write(new: str) -> None:
            # As editors do: write another file and rename it.
            beside = settings_file.with_suffix(".new")
            await asyncio.to_thread(beside.write_text, new)
            await asyncio.to_thread(beside.rename, settings_file)

        def level() -> int:
            return int(server.assistant.settings.tts.level)  # type: ignore[attr-defined]

        await write(text.replace("tts: {engine: small}", "tts: {engine: small, level: 2000}"))
        await logged.until("in place")
        assert level() == 2000
        await write(text.replace("tts: {engine: small}", "tts: {engine: smal"))
        await logged.until("are not used")
        await write(text.replace("port: 0", "port: 1"))
        await logged.until("server was changed")
        await logged.until("in place")
        assert level() == 1000
        assert (await turn(app, 2))[2] == {1000}


async def test_a_file_that_comes_goes_and_comes_back_is_followed(
    settings_file: Path,
    cache: WeightsCache,
    logged: WatchedLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for kind in Kind:
        monkeypatch.setenv(f"REACHY_VOICE__{kind.upper()}__ENGINE", "small")
    file = tmp_path / "config/reachy-voice/settings.yaml"
    await asyncio.to_thread(file.parent.mkdir, parents=True)
    async with running(None, cache) as server:
        for level in (2000, 3000):
            await asyncio.to_thread(file.write_text, f"tts: {{engine: small, level: {level}}}")
            await logged.until("in place")
            assert server.assistant.settings.tts.level == level  # type: ignore[attr-defined]
            await asyncio.to_thread(file.unlink)
            await logged.until("in place")
            assert server.assistant.settings.tts.level == 1000  # type: ignore[attr-defined]


async def test_a_command_asks_the_running_server(start: Start) -> None:
    def use(port: int, *assignments: str) -> list[str]:
        steps: list[str] = []
        ask(socket_path(port, os.environ), {"assignments": assignments}, steps.append)
        return steps

    async with start() as server, robot_app(server.url) as app:
        steps = await asyncio.to_thread(use, server.port, "tts.level=2000")
        assert [step.partition(" ")[0] for step in steps] == ["loading", "small"]
        assert (await turn(app, 1))[2] == {2000}
        with pytest.raises(ReachyVoiceError, match="no legs") as refused:
            await asyncio.to_thread(use, server.port, "tts.fails=true")
        assert refused.value.exit_code == EngineError.exit_code
        path = await asyncio.to_thread(socket_path, server.port, os.environ)
        status = await asyncio.to_thread(path.stat)
        assert status.st_mode & 0o777 == 0o600
        await asyncio.to_thread(use, server.port, "tts.level=3000")
        with pytest.raises(NotRunning, match=f"server.port={server.port}"):
            await asyncio.to_thread(use, 1, "tts.level=3000")
        port = server.port
    with pytest.raises(NotRunning):
        await asyncio.to_thread(use, port, "tts.level=2000")
    assert not await asyncio.to_thread(path.exists)


async def test_a_client_that_connects_during_a_swap_is_answered_afterwards(start: Start) -> None:
    GATE.clear()
    async with start() as server:
        using = asyncio.create_task(
            server.use("tts={engine: small, level: 2000, waits: true}", unload_first=True)
        )
        await server.loading.wait()
        assert (server.assistant.readiness()["tts"] or "").startswith(EXCHANGED)
        async with robot_app(server.url) as app:
            speaking = asyncio.create_task(turn(app, 1))
            await app.event(STARTED)
            await asyncio.to_thread(GATE.set)
            assert (await speaking)[2] == {2000}
        await using


async def test_text_only_and_disconnected_clients_get_no_spoken_notice(start: Start) -> None:
    async with start(room=False) as server:
        async with robot_app(server.url) as app:
            await turn(app, 1)
        async with robot_app(server.url) as app:
            await app.update({"output_modalities": ["text"]})
            await app.event("session.updated", 2)
            await server.use("tts.level=2000")
            assert app.count(DONE) == 0
        assert server.assistant.readiness() == dict.fromkeys(map(str, CORE))


async def test_a_vad_is_never_taken_away(start: Start) -> None:
    async with start() as server, robot_app(server.url) as app:
        for number in range(5):
            await server.use(f"vad.level={number}", unload_first=True)
            assert "beside" in server.steps[0]
        await turn(app, 1)
        assert app.close_code is None


async def test_neither_requests_nor_file_errors_end_the_server(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used_up(*_: object, **__: object) -> None:
        raise RuntimeError("no inotify instances are left")

    monkeypatch.setattr("watchfiles.main.RustNotify", used_up)
    async with start() as server, robot_app(server.url) as app:
        path = await asyncio.to_thread(socket_path, server.port, os.environ)
        for request in (b"nonsense", b"[" * 60_000):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(request + b"\n")
            assert await reader.read() == b""
            writer.close()
        await turn(app, 1)


async def test_one_failing_section_does_not_block_the_others(
    start: Start, settings_file: Path, logged: WatchedLog
) -> None:
    async with start() as server:
        text = await asyncio.to_thread(settings_file.read_text)
        failing = text.replace("stt: {engine: small}", "stt: {engine: small, fails: true}")
        both = failing.replace("tts: {engine: small}", "tts: {engine: small, level: 2000}")
        await asyncio.to_thread(settings_file.write_text, both)
        await logged.until("stt cannot be changed")
        await logged.until("in place")
        assert server.assistant.settings.tts.level == 2000  # type: ignore[attr-defined]


def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "reachy-voice").mkdir(mode=0o755)
    (tmp_path / "reachy-voice").chmod(0o755)
    with pytest.raises(ConfigError, match="cannot be used"):
        socket_path(1, {"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_runtime_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"Not a directory.* Set XDG_RUNTIME_DIR to a folder"):
        socket_path(1, {"XDG_RUNTIME_DIR": str(tmp_path / "file")})
    with pytest.raises(NotRunning, match="path too long"):
        ask(tmp_path / ("x" * 110) / "1.sock", {}, print)


def test_memory_is_checked_on_the_engines_device(
    cache: WeightsCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(*overrides: str) -> Any:
        return load_settings(None, overrides).settings

    (tmp_path / "big.nemo").write_bytes(bytes(5_000_000))
    own = f"engine: parakeet, weights: null, model_file: {tmp_path / 'big.nemo'}"
    on_gpu = options(f"stt={{{own}}}").stt
    on_cpu = options(f"stt={{{own}, device: cpu}}").stt
    monkeypatch.setattr(memory_room, "_free_mb", lambda: 5 + 2400 + 500)
    assert has_room(cache, Kind.STT, on_gpu, lambda: [5 + 400 + 500])
    assert not has_room(cache, Kind.STT, on_gpu, lambda: [5 + 400 + 499])
    monkeypatch.setattr(memory_room, "_free_mb", lambda: 5 + 800 + 500)
    assert has_room(cache, Kind.STT, on_cpu, lambda: [0])
    assert has_room(cache, Kind.STT, on_gpu, list)
    monkeypatch.setattr(memory_room, "_free_mb", lambda: 5 + 800 + 499)
    assert not has_room(cache, Kind.STT, on_cpu, lambda: [10_000])
    assert not has_room(cache, Kind.STT, on_gpu, list)
    second = options(f"stt={{{own}, device: 'cuda:1'}}").stt
    monkeypatch.setattr(memory_room, "_free_mb", lambda: 2400 + 5 + 500)
    assert has_room(cache, Kind.STT, second, lambda: [0, 5 + 400 + 500])
    assert not has_room(cache, Kind.STT, second, lambda: [10_000, 0])
    assert not has_room(cache, Kind.STT, second, lambda: [10_000]), "there is no second one"
    monkeypatch.setattr(memory_room, "_free_mb", lambda: 800 + 5 + 499)
    assert not has_room(cache, Kind.STT, on_gpu, lambda: [10_000]), "it is read before it is there"
    far = options("llm={engine: openai-chat, url: 'http://127.0.0.1:1/v1'}").llm
    assert has_room(cache, Kind.LLM, far, lambda: [0])


def test_free_gpu_memory() -> None:
    def run(output: str, status: int = 0) -> list[int]:
        return free_memory_mb(find_gpus(lambda _: (status, output), lambda _: "nvidia-smi", {}))

    small, large = "T400, 8192, 580.65, 7.5, 8000\n", "RTX 4090, 24564, 580.65, 8.9, 23000\n"
    assert run(large) == [24_117]
    assert run(small + large) == [24_117, 8_388], "the faster one is the first of CUDA's"
    assert run("GB10, [N/A], 580.95, 12.1, [N/A]\n") == []
    assert run("NVIDIA-SMI has failed\n", 9) == []
