"""People on a running server, enrolled by the console and by a command, with small engines."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.compose import Assistant
from app.console.running import HEADER, PAGE_RATE, ConsoleServer
from app.models.weights import WeightsCache
from app.people.file import PeopleFile, WrongPerson
from app.server.control import answer_requests, ask
from app.settings.load import load_settings
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import Kind
from pipeline.engines.voices import EnrolmentError
from tests.support.beside import beside
from tests.support.scripted_server import Serve
from tests.support.small_engines import install

pytestmark = pytest.mark.quick


def voice(level: int, seconds: float = 22.0) -> Pcm:
    rng = np.random.default_rng(level)
    return rng.choice([-level, level], round(seconds * LISTEN_RATE)).astype(np.int16)


@asynccontextmanager
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Assistant]:
    install(monkeypatch)
    monkeypatch.setenv("REACHY_VOICE__PATHS__ACCESS_FILE", str(tmp_path / "access.json"))
    sets = [f"{kind}={{engine: small}}" for kind in Kind]

    def build() -> Assistant:
        settings = load_settings(None, [*sets, "conversation.apology=''"]).settings
        return Assistant(settings, WeightsCache(tmp_path))

    assistant = await asyncio.to_thread(build)
    task = asyncio.create_task(assistant.run())
    await assistant.ready.wait()
    try:
        yield assistant
    finally:
        assistant.close()
        await task


def known(assistant: Assistant) -> list[str]:
    assert (assistant.stages.speaker is not None) is bool(assistant.stages.people)
    return [each.name for each in assistant.stages.people]


async def test_the_engine_runs_while_somebody_is_enrolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as assistant:
        assert known(assistant) == []
        assert "speaker" not in assistant.readiness()
        await assistant.household.add("Tom", voice(3_000))
        await assistant.household.add("Anna", voice(6_000))
        assert known(assistant) == ["Tom", "Anna"]
        await assistant.household.remove("Tom")
        assert known(assistant) == ["Anna"]
        await assistant.household.remove("anna")
        assert known(assistant) == []
        assert not (tmp_path / "people.json").exists()


@pytest.mark.parametrize(
    ("name", "pcm", "error"),
    [
        ("TOM", voice(6_000), WrongPerson),
        ("Anna", voice(6_000, 10.0), EnrolmentError),
        ("Anna", np.concatenate((voice(6_000, 11.0), voice(9_000, 11.0))), EnrolmentError),
        ("Anna", np.zeros(0, np.int16), EnrolmentError),
    ],
)
async def test_invalid_enrolments_are_refused(
    name: str,
    pcm: Pcm,
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(tmp_path, monkeypatch) as assistant:
        await assistant.household.add("Tom", voice(3_000))
        with pytest.raises(error):
            await assistant.household.add(name, pcm)
        assert known(assistant) == ["Tom"]


async def test_a_command_updates_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as assistant:
        await assistant.household.add("Tom", voice(3_000))
        await assistant.household.refresh()  # after the one at the start, which waits meanwhile
        socket, listening = tmp_path / "control.sock", asyncio.Event()

        async def carry(asked: Mapping[str, Any], tell: object) -> Mapping[str, Any]:
            assert "people" in asked
            await assistant.household.refresh()
            return {}

        async with beside(answer_requests(socket, carry, listening.set)):
            await listening.wait()
            file = PeopleFile(tmp_path / "access.json")
            await asyncio.to_thread(file.change, lambda people: people.without("Tom"))
            assert known(assistant) == ["Tom"]
            await asyncio.to_thread(ask, socket, {"people": "changed"}, print)
            assert known(assistant) == []


@pytest.mark.parametrize(
    "change",
    [
        ("small", "x"),
        ('"model": "', '"model": "0'),
        ('"voice": "', '"voice": "' + 16 * "A"),  # three more numbers
        ("{", "["),
    ],
)
async def test_a_bad_file_is_reported_and_nobody_is_known(
    change: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(tmp_path, monkeypatch) as assistant:
        await assistant.household.add("Tom", voice(3_000))
        path = tmp_path / "people.json"
        before = await asyncio.to_thread(path.read_text)
        after = before.replace(*change, 1)
        await asyncio.to_thread(path.write_text, after)
        await assistant.household.refresh()
        if after == before:
            assert known(assistant) == ["Tom"]
        else:
            assert known(assistant) == []
            assert "nobody's voice is known" in caplog.text
        assert await asyncio.to_thread(path.read_text) == after


@pytest.mark.machine
async def test_the_console_enrols_and_forgets(
    serving: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as assistant:
        served = await serving(console=ConsoleServer(household=assistant.household))
        url = f"http://127.0.0.1:{served.port}/console/api/people"
        tone = np.sin(2 * np.pi * 200 / PAGE_RATE * np.arange(22 * PAGE_RATE)) > 0
        pcm = base64.b64encode(np.where(tone, 3_500, -3_500).astype("<i2").tobytes()).decode()
        write = {HEADER: "console"}
        async with httpx.AsyncClient(headers=write, timeout=60) as client:
            answer = await client.post(f"{url}/add", json={"name": "Tom", "pcm": pcm})
            assert [each["name"] for each in answer.json()["people"]] == ["Tom"]
            assert known(assistant) == ["Tom"]
            for wrong in ("no base64", "AAA=", pcm[:4000]):
                refused = await client.post(f"{url}/add", json={"name": "Anna", "pcm": wrong})
                assert refused.status_code == 400
            listed = (await client.get(url)).json()["people"]
            assert [set(each) for each in listed] == [{"name", "added"}], "and not the voice"
            assert (await client.post(f"{url}/remove", json={"name": "Tom"})).status_code == 200
            assert (await client.get(url)).json() == {"people": []}
        assert known(assistant) == []
