"""The console's actions on a running server: access, answers, effects."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from app.access.file import AccessFile, AccessList
from app.access.policy import Rules, parse_network
from app.compose import Assistant
from app.console.choices import Choices
from app.console.running import MOST_BYTES, ConsoleServer
from app.models.catalogue import Catalogue
from app.models.weights import WeightsCache
from app.server.gate import Access
from app.settings.load import load_settings
from app.settings.model import Settings
from pipeline.engines.registry import AnyEngineSpec
from pipeline.errors import EngineError, MissingExtra
from tests.support.far_server import free_port
from tests.support.scripted_server import (
    Serve,
    Served,
    appear_from,
    refusal,
    talking,
)
from tests.support.staged_server import quick_cast

pytestmark = pytest.mark.machine

WRITE = {"X-Reachy-Voice": "console"}
ROBOT = "192.0.2.9"


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "access.json")


@pytest.fixture
async def served(serving: Serve, file: AccessFile) -> Served:
    return await serving(access=Access(Rules(), file), console=ConsoleServer(access_file=file))


async def post(served: Served, path: str, body: Any, **headers: str) -> httpx.Response:
    return await served.post(f"/console/api/{path}", json=body, headers={**WRITE, **headers})


async def get(served: Served, path: str, **headers: str) -> httpx.Response:
    return await served.get(f"/console/api/{path}", **headers)


# --- who may -----------------------------------------------------------------------------------


async def test_an_admin_key_gives_access_from_anywhere(
    serving: Serve, file: AccessFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serving(access=Access(Rules(loopback=False), file), console=ConsoleServer())

    def edit(known: AccessList) -> AccessList:
        known = known.with_key("mine", "k" * 20, admin=True).with_key("robot", "r" * 20)
        return known.with_address(parse_network(ROBOT), None)

    await asyncio.to_thread(file.change, edit)
    for address in ("127.0.0.1", ROBOT, "198.51.100.4"):
        appear_from(monkeypatch, address)
        mine = {"Authorization": f"Bearer {'k' * 20}"}
        assert (await get(served, "state", **mine)).status_code == 200
        proxied = {**mine, "X-Forwarded-For": "203.0.113.1"}
        assert (await get(served, "state", **proxied)).status_code == 200
        robots = {"Authorization": f"Bearer {'r' * 20}"}
        assert (await get(served, "state", **robots)).status_code == 403
        assert (await get(served, "state")).status_code in (401, 403)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"X-Forwarded-For": "203.0.113.1"}, 401),
        ({"Host": "evil.example"}, 403),
    ],
)
async def test_no_other_page_writes(
    served: Served, file: AccessFile, headers: dict[str, str], status: int
) -> None:
    answer = await post(served, "access/allow", {"address": ROBOT}, **headers)
    assert answer.status_code == status
    assert not (await asyncio.to_thread(file.read)).addresses


async def test_a_write_needs_our_header_and_a_post(served: Served, file: AccessFile) -> None:
    path = "/console/api/access/allow"
    assert (await served.post(path, json={"address": ROBOT})).status_code == 403
    assert (await served.get(path)).status_code == 405
    assert (await served.ask("OPTIONS", path)).status_code == 405, "no page may ask first"
    assert not (await asyncio.to_thread(file.read)).addresses


@pytest.mark.parametrize(
    "body", [{}, {"address": 7}, {"address": "robot"}, {"address": ROBOT, "x": 1}, [], "x"]
)
async def test_a_wrong_body_is_refused_and_changes_nothing(
    served: Served, file: AccessFile, body: Any
) -> None:
    answer = await post(served, "access/allow", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert not (await asyncio.to_thread(file.read)).addresses


async def test_the_body_size_is_limited(served: Served) -> None:
    answer = await post(served, "access/allow", {"address": "x" * MOST_BYTES})
    assert answer.status_code == 413


async def test_unsupported_functions_are_absent(serving: Serve) -> None:
    served = await serving(console=ConsoleServer())
    state = (await get(served, "state")).json()
    assert (state["can"], state["notes"]) == ([], {})
    for path in ("access", "doctor", "models"):
        assert (await get(served, path)).status_code == 404
    body = {"assignments": ["tts=espeak-ng"]}
    assert (await post(served, "models/use", body)).status_code == 404


# --- who may connect ---------------------------------------------------------------------------


async def test_allow_lets_a_refused_robot_in_at_once(
    serving: Serve, file: AccessFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = ConsoleServer(access_file=file)
    served = await serving(access=Access(Rules(), file), console=running)
    for address, status in ((ROBOT, 401), ("not an address", 401), ("192.0.2.20", 403)):
        served.clients.callers.refuse(address, status)
    who = (await get(served, "access")).json()
    assert [each["address"] for each in who["refused"]] == [ROBOT, "not an address"]
    appear_from(monkeypatch, ROBOT)
    assert (await refusal(served)).status_code == 401
    appear_from(monkeypatch, "127.0.0.1")
    who = (await post(served, "access/allow", {"address": ROBOT})).json()
    assert who["addresses"] == [{"address": ROBOT, "note": ""}]
    assert [each["address"] for each in who["refused"]] == ["not an address"]
    appear_from(monkeypatch, ROBOT)
    async with talking(served):
        pass
    appear_from(monkeypatch, "127.0.0.1")
    await post(served, "access/allow", {"address": ROBOT, "allowed": False})
    appear_from(monkeypatch, ROBOT)
    assert (await refusal(served)).status_code == 401


async def test_a_key_is_shown_once_works_and_can_be_removed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (await post(served, "access/key", {"name": "laptop"})).json()["key"]
    again = await post(served, "access/key", {"name": "laptop"})
    assert again.status_code == 400
    assert "There is a key called 'laptop' already" in again.json()["error"]["message"]
    who = (await get(served, "access")).text
    assert "laptop" in who
    assert key not in who
    bearer = {"Authorization": f"Bearer {key}"}
    appear_from(monkeypatch, "198.51.100.4")
    async with talking(served, additional_headers=bearer):
        pass
    appear_from(monkeypatch, "127.0.0.1")
    assert (await post(served, "access/remove-key", {"name": "laptop"})).status_code == 200
    assert (await post(served, "access/remove-key", {"name": "laptop"})).status_code == 400
    appear_from(monkeypatch, "198.51.100.4")
    assert (await refusal(served, additional_headers=bearer)).status_code == 401


# --- models and checks -------------------------------------------------------------------------


async def test_engine_swaps_report_their_steps_and_run_one_at_a_time(serving: Serve) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def use(assignments: Sequence[str], tell: Callable[[str], None]) -> None:
        tell(f"loading {assignments[0]}")
        begun.set()
        await go.wait()
        tell("in place")

    served = await serving(console=ConsoleServer(use=use))
    body = {"assignments": ["tts=espeak-ng"]}
    first = asyncio.create_task(post(served, "models/use", body))
    await begun.wait()
    assert (await get(served, "state")).json()["busy"] == ["loading tts=espeak-ng"]
    assert (await post(served, "models/use", body)).status_code == 409
    go.set()
    assert (await first).json() == {"steps": ["loading tts=espeak-ng", "in place"]}
    assert (await get(served, "state")).json()["busy"] == []


async def test_a_failed_engine_swap_reports_cause_and_fix(serving: Serve) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def use(assignments: Sequence[str], tell: Callable[[str], None]) -> None:
        begun.set()
        await go.wait()
        if assignments == ["llm=x"]:
            raise EngineError("It cannot be loaded", why="no room", fix="Choose a smaller one")

    served = await serving(console=ConsoleServer(use=use))
    first = asyncio.create_task(post(served, "models/use", {"assignments": ["llm=x"]}))
    await begun.wait()
    assert (await get(served, "state")).json()["busy"] == ["under way"], "it has told no step"
    go.set()
    answer = await first
    assert answer.status_code == 400
    message = "It cannot be loaded: no room. Choose a smaller one"
    assert message in answer.text
    state = (await get(served, "state")).json()
    assert (state["busy"], state["failed"]) == ([], [message])
    await post(served, "models/use", {"assignments": ["llm=y"]})
    assert (await get(served, "state")).json()["failed"] == []


async def test_weights_are_fetched_and_listed(serving: Serve) -> None:
    here: list[dict[str, Any]] = []

    def pull(name: str, tell: Callable[[str], None]) -> None:
        tell("1 of 2 MB")
        here.append({"name": name})

    served = await serving(console=ConsoleServer(pull=pull, models=lambda: list(here)))
    assert (await get(served, "models")).json() == {"models": [], "profiles": [], "choices": []}
    answer = await post(served, "models/pull", {"name": "piper"})
    assert answer.json()["models"] == [{"name": "piper"}]


async def test_the_doctor_is_asked(serving: Serve) -> None:
    served = await serving(
        console=ConsoleServer(doctor=lambda: [{"name": "python", "state": "ok"}])
    )
    told = (await get(served, "doctor")).json()
    assert told == {"checks": [{"name": "python", "state": "ok"}]}


# --- engines to choose from --------------------------------------------------------------------


class Offer:
    """A running server's engines, of which ``profile`` and ``path`` are asked for."""

    def __init__(self, folder: Path) -> None:
        self.settings = load_settings("default").settings
        self.stages = quick_cast().stages()
        self.fetched: list[str] = []
        choices = Choices(
            cast(Assistant, self),
            WeightsCache(folder, Catalogue.load()),
            lambda profile: load_settings(profile or "default").settings,
        )
        self.running = ConsoleServer(
            use=self._use, pull=self._pull, models=list, profiles=self._profiles, choices=choices
        )

    def _profiles(self) -> list[dict[str, Any]]:
        return [{"name": "cpu", "why": ""}, {"name": "languages", "why": ""}]

    def _pull(self, name: str, tell: Callable[[str], None]) -> None:
        self.fetched.append(name)

    async def _use(self, assignments: Sequence[str], tell: Callable[[str], None]) -> None:
        self.settings = (await asyncio.to_thread(load_settings, "default", assignments)).settings


@pytest.fixture
def offer(tmp_path: Path) -> Offer:
    return Offer(tmp_path)


@pytest.fixture
async def offered(serving: Serve, offer: Offer) -> Served:
    return await serving(console=offer.running)


async def of_profile(name: str) -> Settings:
    return (await asyncio.to_thread(load_settings, name)).settings


async def test_engines_of_profiles_can_be_applied_and_undone(offered: Served, offer: Offer) -> None:
    shown = (await get(offered, "models")).json()
    voices = {each["name"]: each for each in shown["choices"] if each["kind"] == "tts"}
    assert (voices["piper-joe"]["running"], voices["piper-joe"]["here"]) == (True, False)
    assert voices["piper-ljspeech-high"]["memory_mb"] == 280
    assert voices["piper-ljspeech-high"]["languages"] == ["en"]
    assert voices["qwen3-tts-0.6b-customvoice"]["needs"]
    assert ([each["in_place"] for each in shown["profiles"]], shown["changed"]) == (
        [True, False],
        False,
    )
    await post(offered, "models/choose", {"profile": "languages", "kind": "stt"})
    assert offer.fetched == ["whisper-base"]
    assert offer.settings.stt == (await of_profile("languages")).stt
    assert offer.settings.tts == (await of_profile("default")).tts
    await post(offered, "models/choose", {"profile": "languages"})
    shown = (await get(offered, "models")).json()
    assert ([each["in_place"] for each in shown["profiles"]], shown["changed"]) == (
        [False, True],
        True,
    )
    await post(offered, "models/choose", {})
    assert offer.settings == await of_profile("default")


async def test_settings_come_back_with_their_key_and_all_letters(
    offered: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = "engine: openai-chat, url: 'http://far/v1', api_key: sesame, extra: {prompt: '😀 \\t'}"
    monkeypatch.setenv("REACHY_VOICE__LLM", f"{{{llm}}}")
    offer = await asyncio.to_thread(Offer, tmp_path)
    before = offer.settings
    await post(offered, "models/choose", {"profile": "languages", "kind": "tts"})
    assert (await post(offered, "models/choose", {})).status_code == 200
    assert offer.settings == before


async def test_nothing_is_fetched_for_an_engine_whose_packages_are_missing(
    offered: Served, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def require_modules(spec: AnyEngineSpec) -> None:
        if spec.name == "whisper":
            raise MissingExtra("It needs packages", why="cannot import torch", fix="Run: setup")

    monkeypatch.setattr("app.console.choices.require_modules", require_modules)
    shown = (await get(offered, "models")).json()
    assert [each["needs_setup"] for each in shown["profiles"]] == [False, True]
    answer = await post(offered, "models/choose", {"profile": "languages"})
    assert (answer.status_code, offer.fetched) == (400, [])
    assert answer.json()["error"]["message"].endswith("cannot import torch. Run: setup")


@pytest.mark.parametrize("path", ["models/choose", "models/try"])
@pytest.mark.parametrize("profile", ["nobody", "/etc/passwd", "../x.yaml", "default.yaml"])
async def test_only_a_profile_can_be_asked_for(offered: Served, path: str, profile: str) -> None:
    answer = await post(offered, path, {"profile": profile})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_profile")


async def test_the_voice_in_use_says_a_sentence(offered: Served) -> None:
    answer = await post(offered, "models/try", {})
    with wave.open(io.BytesIO(base64.b64decode(answer.json()["wav"]))) as file:
        assert file.getnframes() > 0.3 * file.getframerate()


async def test_a_missing_voice_is_reported_with_advice(offered: Served) -> None:
    answer = await post(offered, "models/try", {"profile": "cpu-plus"})
    assert answer.status_code == 400
    assert "piper-ljspeech-high" in answer.json()["error"]["message"]


async def test_a_server_where_nobody_is_is_not_waited_for(
    offered: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{free_port()}/v1"
    monkeypatch.setenv("REACHY_VOICE__TTS", f"{{engine: openai-speech, url: '{address}'}}")
    answer = await post(offered, "models/try", {})
    assert answer.status_code == 400
    assert f"server at {address} cannot be reached" in answer.json()["error"]["message"]
