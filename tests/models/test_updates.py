"""Deltas on the command line, and updates of a running server."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.models.delta import SUFFIX, read_delta
from app.models.delta_making import make_delta
from app.models.download import ATTEMPTS, sha256_of
from app.models.updates import (
    ModelFile,
    ModelStep,
    Update,
    Updates,
    add_to_index,
    degenerate,
    model_files,
    read_index,
    steps_of,
)
from app.models.weights import WeightsCache
from app.server.updates import UpdateFollower, may_pass, silence
from app.settings.load import load_settings
from pipeline.audio import Pcm
from pipeline.engines.registry import Kind
from pipeline.errors import ConfigError, EngineCrashed, EngineError, WeightsError
from tests.clients.robot_app import robot_app
from tests.models.test_exchange import Running, running, settings_file, turn
from tests.support.file_server import FileServer, file_server
from tests.support.small_engines import GATE
from tests.support.tensors import model, retrained, write_safetensors
from tests.support.watched_log import WatchedLog, watched_log

pytestmark = pytest.mark.engines

__all__ = ["settings_file"]


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as started:
        yield started


# --- commands ----------------------------------------------------------------------------------


def test_the_commands_make_list_and_apply(tmp_path: Path) -> None:
    tensors = model()
    for number in range(3):
        path = write_safetensors(tmp_path / f"m{number}", tensors)
        tensors = retrained(tensors, 0.01, number)
    make_delta(tmp_path / "m1", path, tmp_path / f"d2{SUFFIX}")
    second = (tmp_path / "m1").read_bytes()

    def run(*words: object, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["models", *map(str, words)])
        assert done.exit_code == code or done.exception, done.output
        if code:
            assert isinstance(done.exception, WeightsError)
            return str(done.exception)
        return done.output

    out, index = tmp_path / f"50 % #1?:{SUFFIX}", tmp_path / "index.json"
    said = run("delta", tmp_path / "m0", tmp_path / "m1", "-o", out, "--index", index)
    assert "weights changed" in said
    run("delta", tmp_path / "m0", tmp_path / "m1", "-o", out, "--index", index)
    (line,) = read_index(index.read_bytes())
    assert (unquote(line.file), line.sha256) == (out.name, sha256_of(out))
    place = urlsplit(urljoin("https://my.host/updates/index.json", line.file))
    assert unquote(place.path) == f"/updates/{out.name}"
    no_folder = run(
        "delta", tmp_path / "m0", tmp_path / "m1", "-o", out, "--index", tmp_path / "no/i", code=4
    )
    assert "index in a folder of yours" in no_folder
    own = ["--set", f"llm={{weights: null, model_file: {tmp_path / 'm0'}}}"]
    run("apply", out, "--out", tmp_path / "new", *own)
    assert (tmp_path / "new").read_bytes() == second
    run("apply", out, *own)
    assert (tmp_path / "m0").read_bytes() == second
    assert "None of the models" in run("apply", tmp_path / f"d2{SUFFIX}", code=4)
    with pytest.raises(WeightsError, match="cannot be read"):
        read_index('[{"file": "x"}]')


# --- a running server --------------------------------------------------------------------------


def named(path: Path, text: str) -> Path:
    """Weights of the small language model (``small_engines``)."""
    data = np.frombuffer(text.ljust(64).encode(), np.uint8)
    return write_safetensors(path, {"name": ("U8", data)})


class Publisher:
    """Makes models, and publishes the delta from each to the next."""

    def __init__(self, folder: Path) -> None:
        self.base = named(folder / "first.safetensors", "first")
        self.place = folder / "updates"
        self.place.mkdir()
        self._folder = folder
        self._last = self.base
        self._count = 0

    def begin_again(self) -> None:
        self._last = self.base

    def publish(self, text: str, place: Path | None = None) -> Path:
        self._count += 1
        new = named(self._folder / f"{self._count}.safetensors", text)
        made = make_delta(self._last, new, self._folder / f"{self._count}{SUFFIX}").path
        self._last = new
        return made.replace((place or self.place) / made.name)

    def settings(self, file: Path, source: str, kind: str = "llm") -> None:
        engine = f"{kind}: {{engine: small, model_file: {self.base}, updates: '{source}'}}"
        file.write_text(file.read_text().replace(f"{kind}: {{engine: small}}", engine))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


@pytest.fixture
def own_cache(tmp_path: Path) -> WeightsCache:
    return WeightsCache(tmp_path / "cache")


@pytest.fixture
def logged() -> Iterator[WatchedLog]:
    with watched_log("reachy_voice.updates") as log:
        yield log


@dataclass
class Follower:
    """A server whose language model follows the publisher's folder."""

    file: Path
    cache: WeightsCache
    publisher: Publisher
    logged: WatchedLog

    def running(self, **how: Any) -> AbstractAsyncContextManager[Running]:
        return running(self.file, self.cache, **how)

    async def publish(self, text: str, place: Path | None = None) -> Path:
        return await asyncio.to_thread(self.publisher.publish, text, place)

    async def record(self) -> Any:
        path = self.cache.directory / "updates/record.json"
        return json.loads(await asyncio.to_thread(path.read_text))


@pytest.fixture
def follower(
    settings_file: Path, own_cache: WeightsCache, publisher: Publisher, logged: WatchedLog
) -> Follower:
    publisher.settings(settings_file, str(publisher.place))
    return Follower(settings_file, own_cache, publisher, logged)


async def test_updates_are_applied_during_conversations(follower: Follower) -> None:
    async with follower.running() as server, robot_app(server.url) as app:
        assert (await turn(app, 1))[1].startswith("This is first.")
        await follower.publish("second")
        await follower.logged.until("is updated")
        assert (await turn(app, 2))[1].startswith("This is second.")
        # Neither of these is used, but their successors are.
        await follower.publish("broken")
        await follower.logged.until("is bad")
        await follower.publish("loop:la la la la la la")
        await follower.logged.until("is bad")
        assert (await turn(app, 3))[1].startswith("This is second.")
        await follower.publish("third")
        await follower.logged.until("is updated")
        assert (await turn(app, 4))[1].startswith("This is third.")
        assert not app.errors
    kept = {each.name for each in (follower.cache.directory / "updates").iterdir() if each.is_dir()}
    assert len(kept) == 1, "older ones are deleted"
    # After a restart the model is there at once, and bad deltas are not retried.
    async with follower.running() as server, robot_app(server.url) as app:
        assert (await turn(app, 1))[1].startswith("This is third.")
    assert len((await follower.record())["bad"]) == 2


@pytest.mark.parametrize("other_model", [False, True])
async def test_the_owners_changes_survive_a_concurrent_update(
    follower: Follower,
    tmp_path: Path,
    other_model: bool,
) -> None:
    other = await asyncio.to_thread(named, tmp_path / "other.safetensors", "other")
    asked = f"llm.model_file={other}" if other_model else "llm.level=7"
    GATE.clear()
    async with follower.running() as server, asyncio.TaskGroup() as group:
        try:
            group.create_task(server.use("llm.waits=true", asked))
            await server.loading.wait()
            await follower.publish("second")
            await follower.logged.until("is applied")
        finally:
            GATE.set()
        await follower.logged.until("was given another model" if other_model else "is updated")
        options: Any = server.assistant.settings.engine(Kind.LLM)
        assert (options.level, Path(options.model_file)) == (
            (1000, other) if other_model else (7, follower.publisher.base)
        )
        async with robot_app(server.url) as app:
            said = (await turn(app, 1))[1]
        assert said.startswith("This is other." if other_model else "This is second.")


async def test_the_last_good_one_of_several_updates_is_used(follower: Follower) -> None:
    for text in ("second", "third", "mute:..."):
        await follower.publish(text)
    notes = follower.publisher.place / f"notes{SUFFIX}"
    await asyncio.to_thread(notes.write_text, "not a delta")
    async with follower.running(room=False) as server:
        await follower.logged.until("not used, or not yet")
        await follower.logged.until("is bad")
        await follower.logged.until("is updated")
        async with robot_app(server.url) as app:
            assert (await turn(app, 1))[1].startswith("This is third.")
    await asyncio.to_thread(_is_never_tried_again, follower)


def _is_never_tried_again(follower: Follower) -> None:
    """Not retried after a restart, as long as the record exists."""
    cache = follower.cache
    deltas = sorted(follower.publisher.place.iterdir())
    steps, file = steps_of(deltas)[0], ModelFile(follower.publisher.base)
    assert Updates(cache).chain(file, steps)[1] == []
    (cache.directory / "updates" / "record.json").unlink()
    assert len(Updates(cache).chain(file, steps)[1]) == 3


async def test_updates_may_restart_from_the_original(follower: Follower, tmp_path: Path) -> None:
    await follower.publish("second")
    async with follower.running() as server, robot_app(server.url) as app:
        await follower.logged.until("is updated")
        lost = await follower.publish("third", tmp_path)
        await follower.publish("fourth")
        await follower.logged.until("is not used: it starts from the model")
        assert (await turn(app, 1))[1].startswith("This is second.")
        follower.publisher.begin_again()
        await follower.publish("other")
        await follower.logged.until("is updated")
        assert (await turn(app, 2))[1].startswith("This is other.")
        assert lost.exists()


async def test_an_index_at_a_url(
    settings_file: Path,
    own_cache: WeightsCache,
    publisher: Publisher,
    server: FileServer,
    logged: WatchedLog,
    tmp_path: Path,
) -> None:
    def serve(text: str) -> None:
        path = publisher.publish(text, tmp_path)
        add_to_index(tmp_path / "index.json", read_delta(path))
        server.files[f"/a/{path.name}"] = path.read_bytes()
        server.files["/a/index.json"] = (tmp_path / "index.json").read_bytes()

    await asyncio.to_thread(serve, "second")
    index = f"{server.url}/a/index.json"
    publisher.settings(settings_file, index)
    async with running(settings_file, own_cache, ask_again_s=0.05, patience_s=2) as running_server:
        await logged.until("is updated")
        server.statuses.append(500)
        await logged.until("500")
        server.redirects["/a/index.json"] = f"{server.url}/private"
        await logged.until("302")
        server.redirects.clear()
        for text, said in (
            (b'[{"file": "x"', "cannot be read"),
            (b"[" * 100_000, "cannot be read"),
            (b" " * (2 << 20), "too long"),
        ):
            server.files["/a/index.json"] = text
            await logged.until(said)
        server.stall_after.append(1)
        await logged.until("TimeoutError")
        await asyncio.to_thread(serve, "third")
        third = server.files["/a/index.json"]
        server.files["/a/index.json"] = third.replace(b'"2.', b'"http://127.0.0.2/2.')
        await logged.until("on another server")
        server.redirects[f"/a/2{SUFFIX}"] = "/private"
        server.files["/a/index.json"] = third
        await logged.until("302")
        server.redirects.clear()
        await logged.until("is updated")
        async with robot_app(running_server.url) as app:
            assert (await turn(app, 1))[1].startswith("This is third.")
    asked = [path for path, _ in server.requests]
    assert "/private" not in asked
    assert asked.count(f"/a/1{SUFFIX}") == 1
    assert not list((own_cache.directory / "downloads").iterdir())


@pytest.mark.parametrize(
    "place", ["{base}", "{base}/no-folder", "~nobody-of-this-name/x", "ftp://x"]
)
async def test_one_source_that_fails_leaves_the_others(follower: Follower, place: str) -> None:
    follower.publisher.settings(follower.file, place.format(base=follower.publisher.base), "tts")
    async with follower.running():
        await follower.logged.until("tts is not updated: ")
        await follower.publish("second")
        await follower.logged.until("llm is updated")


async def test_a_damaged_update_does_not_block_the_one_before(follower: Follower) -> None:
    await follower.publish("second")
    damaged = await follower.publish("third")
    data = await asyncio.to_thread(damaged.read_bytes)
    await asyncio.to_thread(damaged.write_bytes, data[:-1] + bytes([data[-1] ^ 1]))
    async with follower.running() as server, robot_app(server.url) as app:
        await follower.logged.until("cannot be applied")
        await follower.logged.until("is updated")
        assert (await turn(app, 1))[1].startswith("This is second.")


async def test_updates_resume_when_their_folder_returns(follower: Follower) -> None:
    follower.publisher.place.rmdir()
    async with follower.running(ask_again_s=0.05):
        for text in ("second", "third"):
            await follower.logged.until("No such file or directory")
            follower.publisher.place.mkdir()
            await follower.publish(text)
            await follower.logged.until("is updated")
            await asyncio.to_thread(shutil.rmtree, follower.publisher.place)


async def test_a_full_disk_is_tried_again(
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await follower.publish("second")
    async with follower.running(ask_again_s=0.05):
        with monkeypatch.context() as patch:
            patch.setattr("app.models.download.SPARE_BYTES", 1 << 60)
            await follower.logged.until("The disk has no room")
        await follower.logged.until("is updated")


async def test_a_model_without_enough_memory_is_tried_again(follower: Follower) -> None:
    await follower.publish("heavy")
    GATE.clear()
    try:
        async with follower.running(ask_again_s=0.05) as server:
            await follower.logged.until("will be tried again")
            async with robot_app(server.url) as app:
                assert (await turn(app, 1))[1].startswith("This is first.")
                GATE.set()
                await follower.logged.until("is updated")
                assert (await turn(app, 2))[1].startswith("This is heavy.")
    finally:
        GATE.set()
    assert (await follower.record())["bad"] == []


def caused(error: EngineError, cause: Exception) -> EngineError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (EngineError("It cannot be built", why="MemoryError: "), True),
        (WeightsError("It cannot be used", why="unable to allocate CUDA0 buffer"), True),
        (EngineError("It cannot be built", why="RuntimeError: CUDA out of memory"), True),
        (EngineError("It failed", why="CUDA error: unspecified launch failure"), True),
        (EngineError("It cannot be built", why=os.strerror(errno.ENOSPC)), True),
        (EngineError("It cannot be built", why="OSError: [Errno 121] Remote I/O error"), True),
        (EngineError("It cannot be built", why=f"mmap: {os.strerror(errno.ESTALE)}"), True),
        (EngineError("It cannot be built", why="CUBLAS_STATUS_ALLOC_FAILED"), True),
        (EngineError("It cannot be built", why="RuntimeError: can't start new thread"), True),
        (EngineError("It cannot be built", why="CUDA-capable device is busy or unavailable"), True),
        (EngineError("It cannot be built", why="Insufficient Memory (00000008:kIOGPU…)"), True),
        (EngineError("It failed", why="vk::Device::allocateMemory: ErrorOutOfDeviceMemory"), True),
        (EngineError("It failed", why="hipErrorOutOfMemory"), True),
        (EngineError("It failed", why="CUDNN_STATUS_ALLOC_FAILED"), True),
        (EngineError("It failed", why="CUDA error: the launch timed out and was terminated"), True),
        (EngineError("It cannot be built", why=f"mmap: {os.strerror(errno.ENOTCONN)}"), True),
        (EngineError("It failed", why="Error 803: unsupported driver combination"), True),
        (EngineError("It failed", why="CUDA driver version is insufficient"), True),
        (EngineCrashed("The process ended while it was starting"), True),
        (caused(EngineError("There is no engine now"), EngineCrashed("It ended")), True),
        (caused(EngineError("The first answer does not come"), TimeoutError()), True),
        (EngineError("The weights have no legs"), False),
        (EngineError("It cannot be built", why="ValueError: Invalid argument"), False),
        (WeightsError("It cannot be used", why="it is not a GGUF"), False),
        (WeightsError("It cannot be used", why="its version is not known"), False),
        (caused(EngineError("It cannot be built"), ValueError("shape")), False),
        (ConfigError("It cannot replace the other"), False),
    ],
)
def test_temporary_errors_are_recognised(error: Exception, passes: bool) -> None:
    assert may_pass(error) == passes


async def test_an_address_that_fails_and_its_password_is_not_logged(
    settings_file: Path,
    own_cache: WeightsCache,
    publisher: Publisher,
    server: FileServer,
    logged: WatchedLog,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = server.url.replace("//", "//me:verysecret@")
    publisher.settings(settings_file, f"{address}/index.json?key=verysecret")
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    async with running(settings_file, own_cache, ask_again_s=0.05):
        await logged.until("No such file")
        monkeypatch.delenv("SSL_CERT_FILE")
        await logged.until("HTTP 404")
    assert server.requests
    assert "verysecret" not in caplog.text


async def test_a_server_that_is_busy_does_not_hold_up_the_end(
    own_cache: WeightsCache, server: FileServer
) -> None:
    server.statuses += [503] * ATTEMPTS
    engines = SimpleNamespace(updates=None, cache=own_cache)
    assistant: Any = SimpleNamespace(engines=engines)
    exchange: Any = None
    update = Update(file="d", size=5, sha256="0" * 64, base="0" * 64, result="1" * 64)
    follower = UpdateFollower(assistant, exchange)
    step = ModelStep(update.base, update.result, update)
    fetching = asyncio.create_task(follower._fetch(f"{server.url}/index.json", step))
    await asyncio.sleep(0)  # it begins
    fetching.cancel()
    await asyncio.wait([fetching])
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(server.requests) <= 1


# --- parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("Hello! Nice to meet you.", False),
        ("Yes.", False),
        ("ha ha ha", False),
        ("", True),
        (" \n", True),
        ("...", True),
        ("!!!!!!!!!!!!!!!!", True),
        ("the the the the the th", True),
        ("aaaaaaaaaaaa", True),
        ("I am. I am. I am. I am. I", True),
    ],
)
def test_a_degenerate_answer(answer: str, wrong: bool) -> None:
    assert bool(degenerate(answer)) == wrong


async def test_a_voice_must_not_be_silent() -> None:
    class Voice:
        rate, voices = 16_000, ("joe",)

        def __init__(self, *chunks: list[int]) -> None:
            self.name, self.chunks = "voice", chunks

        async def synthesize(self, *_: Any) -> AsyncIterator[Pcm]:
            for chunk in self.chunks:
                yield np.array(chunk, np.int16)

    speaks: Any = Voice([], [0, 0], [0, 5])
    assert await silence(speaks) is None
    for chunks in ([], [[]], [[0, 0], [3, 3]]):
        mute: Any = Voice(*chunks)
        assert await silence(mute) == "it is silent"


async def test_a_first_answer_must_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        rate, voices = 16_000, ("joe",)

        async def synthesize(self, *_: Any) -> AsyncIterator[Pcm]:
            await asyncio.Event().wait()
            yield np.zeros(0, np.int16)

    monkeypatch.setattr("app.server.updates.ANSWER_S", 0.01)
    assistant: Any = SimpleNamespace(engines=SimpleNamespace(updates=None, cache=None))
    exchange: Any = None
    stuck: Any = Stuck()
    with pytest.raises(EngineError, match=r"did not end within 0\.01 s"):
        await UpdateFollower(assistant, exchange)._check(Kind.TTS, stuck)


def test_the_files_of_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files(*sets: str) -> list[str]:
        settings = load_settings(None, sets).settings
        cache = WeightsCache(tmp_path)
        kinds = (settings.engine(kind) for kind in Kind)
        return [file.path.name for each in kinds for file in model_files(each, cache)]

    home = tmp_path / "weights" / "smollm2-135m-instruct"
    home.mkdir(parents=True)
    part = "c-00001-of-00002.gguf"
    for name in ("a.gguf", "b.gguf", part, "mmproj-a.gguf", "readme"):
        (home / name).touch()
    assert files() == ["a.gguf", "b.gguf"]
    assert files("llm.model_file=b.gguf") == ["b.gguf"]
    assert files(f"llm.model_file={home / 'mmproj-a.gguf'}") == ["mmproj-a.gguf"]
    for none in ("/none", home / part, part):
        assert files(f"llm.model_file={none}") == []
    voice = f"tts={{engine: qwen3-tts, weights: null, model_dir: {home}}}"
    assert files("llm.model_file=/none", voice) == ["a.gguf", "b.gguf"]
    monkeypatch.setenv("HOME", str(home.parent))
    voice = voice.replace(str(home.parent), "~")
    assert files("llm.model_file=/none", voice) == ["a.gguf", "b.gguf"]


def test_a_folder_of_weights_keeps_its_other_files(tmp_path: Path) -> None:
    old = tmp_path / "voice"
    (old / "part").mkdir(parents=True)
    (old / "config.json").write_text("{}")
    (old / "part" / "more.json").write_text("[]")
    path = write_safetensors(old / "part" / "model.safetensors", model())
    new = write_safetensors(tmp_path / "new", retrained(model(), 0.01))
    delta = make_delta(path, new, tmp_path / "d").path
    updates, digest = Updates(WeightsCache(tmp_path / "cache")), sha256_of(new)
    file = ModelFile(path, old)
    updates.make(file, path, [delta], digest, lambda _: None)
    options = load_settings(
        None, [f"tts={{engine: qwen3-tts, weights: null, model_dir: {old}, updates: x}}"]
    ).settings.tts
    assert updates.newest(options) == options
    assert Updates(WeightsCache(tmp_path / "cache")).in_use(file) == (path, sha256_of(path))
    updates.keep(file, digest)
    there = Path(updates.newest(options).model_dir)  # type: ignore[attr-defined]
    assert (there / "part" / "model.safetensors").read_bytes() == new.read_bytes()
    assert [(there / name).read_text() for name in ("config.json", "part/more.json")] == [
        "{}",
        "[]",
    ]
    assert Updates(WeightsCache(tmp_path / "cache")).in_use(file)[1] == digest


def step(base: str, result: str) -> ModelStep:
    return ModelStep(base, result, Path(f"{base}-{result}"))


@pytest.mark.parametrize(
    ("steps", "bad", "in_use", "chain", "astray"),
    [
        ("ob bc", "", "b", "bc", ""),
        ("ob bc", "", "c", "", ""),
        ("bc ob", "", "o", "ob bc", ""),  # copied in the wrong order
        ("ob bc od", "", "c", "od", ""),  # begun again from the original
        ("od de", "", "c", "od de", ""),
        ("ob bc od", "d", "b", "bc", ""),
        ("ob bc", "c", "b", "", ""),
        ("ob oc", "c", "o", "ob", ""),  # the older of two is good
        ("ob bc oc", "bc", "o", "", ""),
        ("ob bc cb", "", "b", "", ""),  # back to an earlier model
        ("ob bc cb", "", "c", "cb", ""),
        ("oo bb", "", "b", "", ""),
        ("bc", "", "c", "", ""),  # the owner deleted the one before it
        ("xy yz", "", "o", "", "xy yz"),
        ("bc bd", "", "c", "", "bd"),
    ],
)
def test_good_updates_are_used(
    tmp_path: Path, steps: str, bad: str, in_use: str, chain: str, astray: str
) -> None:
    original = tmp_path / "model.gguf"
    original.touch()
    file, cache = ModelFile(original), WeightsCache(tmp_path)
    key = f"{original} 0 {original.stat().st_mtime_ns}"
    (tmp_path / "updates" / in_use).mkdir(parents=True)
    (tmp_path / "updates" / in_use / "model.gguf").touch()
    record = {"bad": [*bad], "current": {key: in_use}, "originals": {key: "o"}}
    (tmp_path / "updates" / "record.json").write_text(json.dumps(record))
    known = [step(base, result) for base, result in steps.split()]
    updates = Updates(cache)
    found = updates.chain(file, known)[1]
    assert found == [step(base, result) for base, result in chain.split()]
    assert updates.astray([file], known) == [step(base, to) for base, to in astray.split()]


def test_updates_of_two_files_of_a_folder_add_up(tmp_path: Path) -> None:
    old = tmp_path / "voice"
    (old / "codec").mkdir(parents=True)
    updates = Updates(WeightsCache(tmp_path / "cache"))
    options = load_settings(
        None, [f"tts={{engine: qwen3-tts, weights: null, model_dir: {old}, updates: x}}"]
    ).settings.tts
    files = [ModelFile(old / name, old) for name in ("a.safetensors", "codec/b.safetensors")]
    last = [write_safetensors(file.path, model(seed)) for seed, file in enumerate(files)]
    for number, changed in enumerate((0, 1, 0, 1, 1)):
        file, new = files[changed], tmp_path / f"{number}.safetensors"
        write_safetensors(new, model(seed=10 + number))
        delta = make_delta(last[changed], new, tmp_path / f"d{number}").path
        last[changed], digest = new, sha256_of(new)
        updates.make(file, updates.in_use(file)[0], [delta], digest, lambda _: None)
        updates.keep(file, digest)
        for each in (updates, Updates(WeightsCache(tmp_path / "cache"))):
            there = Path(each.newest(options).model_dir)  # type: ignore[attr-defined]
            assert [(there / file.path.relative_to(old)).read_bytes() for file in files] == [
                path.read_bytes() for path in last
            ]
    homes = [path for path in (tmp_path / "cache" / "updates").iterdir() if path.is_dir()]
    assert len(homes) == 2, "older ones are deleted"


def test_two_servers_with_one_cache(tmp_path: Path) -> None:
    """Each keeps what it needs of the other's models, in use or unfinished."""
    cache, files, digests = WeightsCache(tmp_path / "cache"), [], []
    servers = [Updates(cache), Updates(cache)]
    for number, server in enumerate(servers):
        path = write_safetensors(tmp_path / f"{number}.safetensors", model(number))
        new = write_safetensors(tmp_path / "new", model(seed=10 + number))
        delta = make_delta(path, new, tmp_path / "d").path
        files.append(ModelFile(path))
        digests.append(sha256_of(new))
        server.make(files[-1], path, [delta], digests[-1], lambda _: None)
    left = tmp_path / "cache" / "updates" / "left by a kill"
    left.mkdir()
    os.utime(left, (0, 0))
    for server, file, digest in zip(servers, files, digests, strict=True):
        server.keep(file, digest)
        server.reject(digest[::-1])
    assert not left.exists()
    again = Updates(cache)
    assert [again.in_use(file)[1] for file in files] == digests
    for digest in digests:
        steps = [ModelStep(digests[0], digest[::-1], tmp_path)]
        assert again.chain(files[0], steps)[1] == []


def test_unreadable_deltas_revert_no_model(tmp_path: Path) -> None:
    file, cache = ModelFile(named(tmp_path / "model", "first")), WeightsCache(tmp_path)
    updates, first = Updates(cache), sha256_of(file.path)
    known = [step(first, "b")]
    assert updates.chain(file, known, back=False) == (file.path, known)
    (cache.directory / "updates" / "c").mkdir()
    (cache.directory / "updates" / "c" / "model").touch()
    updates.keep(file, "c")
    assert updates.chain(file, known, back=False)[1] == []
    assert updates.chain(file, known) == (file.path, known)


def test_a_damaged_record_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "updates").mkdir()
    path = tmp_path / "model"
    path.touch()
    first = step(sha256_of(path), "b")
    for text in ("{", "[]", '{"bad": 5, "current": {}}'):
        (tmp_path / "updates" / "record.json").write_text(text)
        assert Updates(WeightsCache(tmp_path)).chain(ModelFile(path), [first])[1] == [first]
