"""The console in a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiortc  # noqa: F401  (a server would import it in the middle of a test)
import numpy as np
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, Route, WebSocket, expect

from app.access.file import AccessFile
from app.access.policy import Rules
from app.announcing.announcer import AnnouncementRequest
from app.clock.clock import Clock
from app.clock.clock_tools import ClockTools, WithClock
from app.clock.phrases import PlainRequests
from app.clock.sentences import Sentences
from app.compose import Assistant
from app.console.choices import Choices
from app.console.running import ConsoleServer, TlsPort
from app.models.catalogue import Catalogue
from app.models.weights import WeightsCache
from app.people.file import PeopleFile, PeopleList
from app.people.household import Household
from app.root import ROOT
from app.server.gate import Access
from app.server.listening import BoundPort, bind
from app.server.serving import local_server
from app.server.tls import tls_generated
from app.settings.languages import read_clock
from app.settings.load import load_settings
from benchmarks.wer import measure
from pipeline import audio
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import ToolCall
from pipeline.engines.registry import AnyEngineSpec
from pipeline.engines.stt import moonshine
from pipeline.errors import MissingExtra, WeightsError
from pipeline.events import ItemAdded
from pipeline.items import AudioPart, MessageItem
from pipeline.recording.writing import Recorder
from pipeline.settings import SessionSettings, Wake
from pipeline.tools.contract import NoToolServers
from pipeline.turn_record import Doubt, IgnoredSpeech, Judgement, Pause, TurnRecord
from pipeline.waking.calls import Calls
from reachy_voice.testing import ScriptedSpeaker, ScriptedStt, ScriptedTts, people
from tests.clients.engines import NOON, STORY, TIME, phrase_cast
from tests.clock.test_timers import MemoryFile
from tests.support.beside import beside
from tests.support.browser import Visit, browsing
from tests.support.recordings import Recording, recording
from tests.support.relay import relayed
from tests.support.scripted_server import Serve, Served, talking
from tests.support.staged_server import StagedAssistant, quick_cast, quick_llm

pytestmark = pytest.mark.engines

SLOW_MS = 30_000
expect.set_options(timeout=15_000)  # two browsers and the engines may share two cores
ROBOT = "192.0.2.9"
CLOCK_WORDS = read_clock(ROOT / "config" / "languages")
TIMER_RULE = PlainRequests(CLOCK_WORDS, ("en",), Calls((), ()), lambda: 0.0)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MEND = "Run: reachy-voice setup"
PAUSE = np.zeros(LISTEN_RATE, dtype=np.int16)

SPOKEN = TurnRecord(
    "voice",
    "interrupted",
    "item_1",
    text="What is the time?",
    heard="It is",
    speech_start_sample=16_000,
    speech_end_sample=44_000,
    pauses=(
        Pause(24_000, 400, (Judgement(120.0, 0.31, 640, ("words",)),)),
        Pause(40_000, None, (Judgement(130.0, 0.94, 128, ("sound", "words")),)),
    ),
    background_db=17.4,
    endpoint_ms=190.0,
    transcript_ms=150.0,
    first_token_ms=260.0,
    first_clause_ms=300.0,
    first_audio_ms=410.0,
    last_audio_ms=1_600.0,
    ended_ms=1_700.0,
    cut_by="question",
    ignored=(IgnoredSpeech(60_000, 300, "mm-hm", "backchannel"),),
    speculations_begun=2,
    speculations_discarded=1,
    engine_used_s=0.4,
    engine_wasted_s=0.1,
)


Console = Callable[..., AbstractAsyncContextManager[Page]]


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Opens a page of a server, or of the relay before it. The browser must not complain, unless it
    ``complains`` of a lost connection or a refusal. ``before``: is given the empty page.
    ``options``: as for ``browsing``."""

    @asynccontextmanager
    async def opened(
        place: Any,
        page: str = "talk",
        *,
        script: str = "",
        before: Callable[[Page], Any] = lambda page: None,
        complains: bool = False,
        **options: Any,
    ) -> AsyncIterator[Page]:
        async with browsing(tmp_path, **options) as visit:
            await visit.page.add_init_script(script)
            if (preparing := before(visit.page)) is not None:
                await preparing
            await visit.page.goto(f"http://localhost:{place.port}/console/#{page}")
            yield visit.page
            assert complains or visit.complaints == []

    return opened


def frames(note: Callable[[dict[str, Any]], object], *ways: str) -> Callable[[Page], None]:
    """For ``before``: passes on the events of the page's WebSockets that are ``sent`` or
    ``received``."""

    def follow(socket: WebSocket) -> None:
        for way in ways:
            socket.on(f"frame{way}", lambda text: note(json.loads(text)))

    return lambda page: page.on("websocket", follow)


def changing(file: str, old: str, new: str) -> Callable[[Page], Awaitable[None]]:
    """For ``before``: gives the page a script with this change, so that it waits less."""

    async def changed(route: Route) -> None:
        script = await (await route.fetch()).text()
        assert old in script
        await route.fulfill(body=script.replace(old, new), content_type="text/javascript")

    return lambda page: page.route(f"**/{file}", changed)


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "access.json")


@pytest.fixture
def able(file: AccessFile, tmp_path: Path) -> ConsoleServer:
    """A server that supports every action and does it at once."""
    weights = {"kind": "tts", "size_bytes": 63_000_000, "memory_mb": 90, "licence": "MIT"}
    row = {"name": "piper-joe", "summary": "A voice.", "used": True, "state": "absent", **weights}
    assistant = SimpleNamespace(
        settings=load_settings("default").settings, stages=quick_cast().stages()
    )

    async def use(assignments: Sequence[str], tell: Callable[[str], None]) -> None:
        tell("loading")
        loaded = await asyncio.to_thread(load_settings, "default", assignments)
        assistant.settings = loaded.settings
        tell("in place")

    def pull(name: str, tell: Callable[[str], None]) -> None:
        row["state"] = "present"

    check = {"name": "weights", "state": "fail", "detail": "absent", "fix": MEND}
    profiles = [
        {"name": "reachy", "summary": "A GPU.", "why": "needs a GPU", "fetches": "gemma"},
        {"name": "espeak", "summary": "Tiny.", "why": "", "fetches": ""},
    ]
    return ConsoleServer(
        access_file=file,
        use=use,
        pull=pull,
        doctor=lambda: [check],
        array=lambda: {
            "url": "http://robot:8000",
            "problem": None,
            "azimuth_deg": 30.4,
            "speech": True,
        },
        models=lambda: [row],
        profiles=lambda: profiles,
        household=cast(Household, SimpleNamespace(file=PeopleFile(tmp_path / "people.json"))),
        choices=Choices(
            cast(Assistant, assistant),
            WeightsCache(tmp_path / "cache", Catalogue.load()),
            lambda profile: load_settings(profile or "default").settings,
        ),
    )


@pytest.fixture
async def staged(serving: Serve) -> Served:
    return await serving(StagedAssistant())


@pytest.fixture
async def owned(serving: Serve, file: AccessFile, able: ConsoleServer) -> Served:
    return await serving(StagedAssistant(), access=Access(file=file), console=able)


async def write(page: Page, words: str) -> None:
    await page.get_by_label("Write to Reachy").fill(words)
    await page.keyboard.press("Enter")


# --- every page --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1200, 768, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_accessible(
    owned: Served, console: Console, width: int, scheme: str
) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    async with console(owned, **options) as page, talking(owned) as talk:
        await talk.send("input_audio_buffer.clear")
        for name in ("talk", "turns", "server", "models"):
            await page.goto(f"http://localhost:{owned.port}/console/#{name}")
            link = page.locator(f'nav a[href="#{name}"]')
            await expect(link).to_have_attribute("aria-current", "page")
            await expect(page.locator("main h2, main button").first).to_be_visible()
            if name == "server":
                await page.get_by_role("button", name="Check this machine").click()
                await expect(page.get_by_text("reachy-voice setup")).to_be_visible()
                labels = "speech from 30°", "^Memory: [0-9]+ MiB of", "^Busy cores: [0-9.]+ of"
                for label in labels:
                    await expect(page.get_by_label(re.compile(label))).to_be_visible()
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            sideways = "document.documentElement.scrollWidth - innerWidth"
            for size in ("200%", "100%"):
                await page.evaluate(f"document.documentElement.style.fontSize = '{size}'")
                assert await page.evaluate(sideways) <= 0, f"{name} scrolls sideways"


async def test_forced_colours_keep_what_is_chosen_apart(staged: Served, console: Console) -> None:
    async with console(staged, "turns", forced_colors="active") as page:
        colour = "(each, name) => getComputedStyle(each)[name]"
        chosen, other = page.get_by_role("button", name="all"), page.get_by_role("button").last
        assert await chosen.evaluate(colour, "color") != await other.evaluate(colour, "color")
        here, there = page.locator('nav a[href="#turns"]'), page.locator('nav a[href="#talk"]')
        line = "borderBottomColor"
        assert await here.evaluate(colour, line) != await there.evaluate(colour, line)
        speech, answer = page.locator(".key.speech"), page.locator(".key.voice")
        fill = "backgroundColor"
        assert await speech.evaluate(colour, fill) != await answer.evaluate(colour, fill)


# --- running it --------------------------------------------------------------------------------


async def test_a_click_admits_a_refused_robot(
    owned: Served, file: AccessFile, console: Console
) -> None:
    for _ in range(3):
        owned.clients.callers.refuse(ROBOT, 401)
    async with console(owned, "server") as page:
        await page.get_by_role("button", name=f"Allow {ROBOT}").click()
        await expect(page.get_by_role("button", name=f"Remove {ROBOT}")).to_be_visible()
        await expect(page.get_by_text("3 times")).to_have_count(0)
        assert [each.network for each in (await asyncio.to_thread(file.read)).addresses]
        await page.get_by_label("Name of the new key").fill("laptop")
        await page.get_by_role("button", name="Make a key").click()
        await expect(page.get_by_text("The new key, shown once: rv_")).to_be_visible()
        await expect(page.get_by_role("button", name="Remove laptop")).to_be_visible()


def without_packages(spec: AnyEngineSpec) -> None:
    if spec.name == "qwen3-tts":
        raise MissingExtra("It needs packages", why="cannot import torch", fix="Run: setup")


PLAYED = """
HTMLMediaElement.prototype.play = async function () {
  this.onloadedmetadata = () => console.log([this.duration]);
};
"""


async def test_a_profile_can_be_applied_and_undone(
    owned: Served,
    able: ConsoleServer,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with console(owned, "models") as page:
        back = page.get_by_role("button", name="Go back to my settings")
        status = page.get_by_role("status")
        await page.get_by_role("button", name="Put espeak in place").click()
        await expect(status).to_contain_text("The profile espeak: done. in place")
        await expect(page.get_by_text("Its engines are in place.")).to_be_visible()
        await back.click()
        await expect(status).to_contain_text("Your settings: done")
        await expect(back).to_have_count(0)
        await page.get_by_text("All profiles, best first").click()
        await expect(page.get_by_text("needs a GPUFirst")).to_be_visible()
        cast(dict[str, str], able.profiles()[0])["why"] = ""
        monkeypatch.setattr("app.console.choices.require_modules", without_packages)
        await page.reload()
        await expect(page.get_by_text("reachy-voice setup --config reachy")).to_be_visible()
        await expect(page.get_by_role("button", name=re.compile("in place"))).to_have_count(0)


async def test_a_job_is_still_shown_after_a_reload(
    serving: Serve, file: AccessFile, able: ConsoleServer, console: Console
) -> None:
    go = threading.Event()

    def pull(name: str, tell: Callable[[str], None]) -> None:
        tell("1 of 2 MB")
        go.wait(SLOW_MS / 1000)
        raise WeightsError("The download failed", why="the disk is full", fix="Make room")

    served = await serving(access=Access(file=file), console=replace(able, pull=pull))
    async with console(served, "models") as page:
        fetch = page.get_by_role("button", name="Fetch piper-joe", exact=True)
        await page.get_by_text("All weights").click()
        await fetch.click()
        await expect(page.get_by_role("status")).to_contain_text("Fetching piper-joe … 1 of 2 MB")
        await page.reload()
        await expect(page.get_by_role("status")).to_contain_text("1 of 2 MB")
        await page.get_by_text("All weights").click()
        await expect(fetch).to_be_disabled()
        go.set()
        await expect(page.get_by_role("alert")).to_contain_text("the disk is full. Make room")
        await expect(fetch).to_be_enabled()


async def test_an_engine_is_chosen_from_a_list_and_its_voice_tried(
    owned: Served, console: Console
) -> None:
    async with console(owned, "models", script=PLAYED) as page:
        row = page.get_by_role("listitem").filter(has_text="piper-ljspeech-high")
        await expect(row).to_contain_text("speaks English · 280 MB of memory · 114 MB to fetch")
        await page.get_by_role("button", name="Use espeak-ng").click()
        chosen = page.locator(".choices li.running").filter(has_text="espeak-ng")
        await expect(chosen).to_contain_text("in use")
        async with page.expect_console_message() as told:
            await page.get_by_role("button", name="Try the voice espeak-ng").click()
        (seconds,) = await (await told.value).args[0].json_value()
        assert seconds > 0.3
        await page.get_by_text("All weights").click()
        await page.get_by_role("button", name="Fetch piper-joe", exact=True).click()
        table = page.get_by_role("row", name="piper-joe")
        await expect(table.locator("td").nth(1)).to_have_text("yes")


async def test_the_voice_that_is_shown_is_tried(
    serving: Serve, file: AccessFile, able: ConsoleServer, console: Console
) -> None:
    assistant = StagedAssistant()
    served = await serving(assistant, access=Access(file=file), console=able)
    async with console(served, "models", script=PLAYED) as page:
        choice = page.get_by_label("Voice to try")
        await page.get_by_role("button", name="Use espeak-ng").click()
        await expect(page.get_by_role("status")).to_contain_text("done")
        for voices, chosen in ((["amy", "bob"], "bob"), (["kim", "lee"], "lee")):
            assistant.tts.voices = voices
            await page.goto(f"http://localhost:{served.port}/console/#talk")
            await page.goto(f"http://localhost:{served.port}/console/#models")
            for voice in ("", chosen):
                await expect(choice.locator("option")).to_have_text(["as configured", *voices])
                await choice.select_option(voice)
                async with page.expect_request("**/models/try") as asked:
                    await page.get_by_role("button", name="Try the voice espeak-ng").click()
                assert (await asked.value).post_data_json["voice"] == voice
                await expect(page.get_by_role("status")).to_contain_text("done")


async def test_the_languages_of_an_own_speech_server_are_shown(
    serving: Serve, file: AccessFile, able: ConsoleServer, tmp_path: Path, console: Console
) -> None:
    languages = {"en": "English", "zh_CN": "Mandarin"}
    options = {"engine": "openai-speech", "url": "http://127.0.0.1:9/v1", "model": "x"}
    own = f"tts={json.dumps({**options, 'languages': languages})}"
    running = (await asyncio.to_thread(load_settings, "default")).settings
    catalogue = await asyncio.to_thread(Catalogue.load)
    choices = Choices(
        cast(Assistant, SimpleNamespace(settings=running)),
        WeightsCache(tmp_path / "cache", catalogue),
        lambda profile: load_settings(profile or "default", () if profile else (own,)).settings,
    )
    served = await serving(access=Access(file=file), console=replace(able, choices=choices))
    async with console(served, "models") as page:
        row = page.get_by_role("listitem").filter(has_text="http://127.0.0.1:9/v1")
        await expect(row).to_contain_text("speaks English, zh_CN")


async def test_without_access_only_the_key_field_is_shown(
    serving: Serve, file: AccessFile, able: ConsoleServer, console: Console
) -> None:
    key = "the-key-of-an-admin"
    await asyncio.to_thread(file.change, lambda known: known.with_key("me", key, admin=True))
    closed = Access(Rules(loopback=False), file)
    served = await serving(StagedAssistant(), access=closed, console=able)
    async with console(served, "turns", complains=True) as page:
        field = page.get_by_label("Admin key")
        await expect(field).to_be_visible()
        await expect(page.locator("main button")).to_have_count(1)
        for wrong in ("wrong", "“the-key-of-an-admin”"):
            await field.fill(wrong)
            await page.get_by_role("button", name="Open").click()
            status = page.get_by_role("status")
            await expect(status).to_contain_text("That key was not accepted.")
        await expect(status).to_contain_text("It has signs that no key has.")
        await field.fill(key)
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("status")).to_have_text("0 of 0 turns")
        await page.get_by_role("navigation").get_by_role("link", name="Talk").click()
        await expect(page.get_by_role("status")).to_contain_text("Connected")


async def secure_port(tmp_path: Path) -> tuple[BoundPort, TlsPort]:
    tls = await asyncio.to_thread(tls_generated, tmp_path / "tls", ["box.test", "localhost"])
    bound = BoundPort(bind("127.0.0.1", 0), tls.context)
    port = bound.socket.getsockname()[1]
    return bound, TlsPort(port, tls.fingerprint, tls.certificate)


async def test_an_unencrypted_page_links_to_an_encrypted_one(
    serving: Serve, file: AccessFile, able: ConsoleServer, tmp_path: Path
) -> None:
    key = "the-key-of-an-admin"
    await asyncio.to_thread(file.change, lambda known: known.with_key("me", key, admin=True))
    second, secure = await secure_port(tmp_path)
    closed = Access(Rules(loopback=False, hosts=frozenset({"box.test"})), file)
    served = await serving(
        StagedAssistant(),
        access=closed,
        console=replace(able, secure=secure),
        beside=[second],
    )
    here = ["--host-resolver-rules=MAP box.test 127.0.0.1"]
    async with browsing(tmp_path, more=here, ignore_https_errors=True) as visit:
        page = visit.page
        await page.goto(f"http://box.test:{served.port}/console/")
        await expect(page.get_by_role("alert")).to_contain_text(secure.fingerprint)
        async with page.expect_download() as download:
            await page.get_by_role("link", name="the server's authority").click()
        kept = await (await download.value).path()
        texts = [await asyncio.to_thread(path.read_text) for path in (kept, secure.authority)]
        assert texts[0] == texts[1]
        await page.get_by_label("Admin key").fill(f"“{key}”")
        await page.get_by_role("button", name="Open").click()
        await page.reload()
        await expect(page.get_by_role("status")).to_contain_text("It has signs that no key has.")
        await expect(page.get_by_role("alert")).to_contain_text(secure.fingerprint)
        await page.get_by_label("Admin key").fill(key)
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_text("You can write; the answers come as text.")).to_be_visible()
        await page.get_by_role("button", name="Tell me a joke.").click()
        lines = page.locator(".captions li")
        await expect(lines.nth(0)).to_contain_text("Tell me a joke.")
        await expect(lines.nth(1)).to_contain_text("Reachy")
        await page.get_by_role("link", name="Server", exact=True).click()
        await page.get_by_label("Name of the person").fill("Tom")
        await page.get_by_role("button", name="Learn a voice").click()
        await expect(page.get_by_role("alert").last).to_have_text(
            "The microphone cannot be used: this page is not encrypted"
        )
        await page.get_by_role("link", name=f"https://box.test:{secure.port}/console/").click()
        await page.get_by_label("Admin key").fill(key)
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.get_by_role("button", name="Start talking").click()
        await expect(page.get_by_role("status")).to_contain_text("the microphone is on")


# --- turns -------------------------------------------------------------------------------------


async def test_turns_show_the_reasons_for_their_timing(served: Served, console: Console) -> None:
    async with talking(served) as talk, console(served, "turns") as page:
        session = await served.session_of(talk)
        await expect(page.get_by_role("status")).to_have_text("0 of 0 turns")
        said = audio.Recording(np.full(28_000, 8_192, np.int16), LISTEN_RATE)
        item = MessageItem("item_1", "user", (AudioPart(None, 1.75, said),))
        session.bus.publish(ItemAdded(item, None))
        session.bus.publish(SPOKEN)
        row = page.locator("ol.turns > li:visible")
        await expect(row).to_contain_text("What is the time?")
        await expect(row).to_contain_text("interrupted: question · first audio after 410 ms")
        bar = row.get_by_role("slider")
        summary = re.compile("1500 ms of speech.*turn over at 190 ms.*first audio at 410 ms")
        await expect(bar).to_have_attribute("aria-label", summary)
        await expect(row.locator("svg path")).to_have_attribute("d", re.compile("^M[0-9.L -]+Z$"))
        await expect(row.get_by_role("button", name="Listen")).to_have_count(0)
        why = row.locator("summary")
        await expect(why).to_have_text(
            "Over with probability 0.94: waited 128 ms (sound, words)"
            "; ended: what went on was 17 dB below the speaker"
        )
        await why.click()
        await expect(row.locator("tbody tr").first).to_contain_text("1 (lasted 400 ms)")
        await expect(row).to_contain_text("Not an interruption (backchannel, 300 ms): mm-hm")
        await expect(row).to_contain_text("1 discarded unused, 0.10 s of engine time")
        explanation = row.locator(".bar + .note")
        await bar.focus()
        await expect(explanation).to_have_text("Speech, 500 ms.")
        await page.keyboard.press("ArrowRight")
        await expect(explanation).to_contain_text("A pause of 400 ms, over with probability 0.31")
        await expect(bar).to_have_attribute("aria-valuetext", re.compile("^A pause of 400 ms"))
        await row.locator("rect.fill-think").hover()
        await expect(explanation).to_contain_text("410 ms from the end of the speech: transcript")
        await row.locator("rect.fill-bad").hover()
        await expect(explanation).to_have_text("Interrupted after 1700 ms, by a question.")
        session.bus.publish(TurnRecord("text", "answered", text="Slow.", first_audio_ms=1_400.0))
        await expect(row).to_have_count(2)
        await expect(row.nth(1).get_by_role("slider")).to_be_focused()
        await expect(row.nth(1).locator("details")).to_have_attribute("open", "")
        await expect(row.first.locator("svg path")).to_have_count(0)
        await expect(row.first.get_by_role("slider")).to_have_attribute(
            "aria-label", re.compile("a written turn, first audio at 1400 ms")
        )
        session.bus.publish(TurnRecord("text", "answered", text="Only words."))
        await expect(row).to_have_count(3)
        await expect(row.first.locator("svg")).to_have_count(0)
        doubt = Doubt("Thanks for watching!", 0.55, 1.4)
        session.bus.publish(TurnRecord("voice", "rejected", exclusion="credits", doubt=doubt))
        await expect(row.first).to_contain_text("(voice)")
        await expect(row.first).to_contain_text("rejected · does not count: credits")
        await expect(row.first).to_contain_text("Thanks for watching! (certainty 0.55, 1.4 s)")
        for name, shown in {
            "slow": 1,
            "cut off": 0,
            "interrupted": 1,
            "failed": 0,
            "all": 4,
        }.items():
            await page.get_by_role("button", name=name, exact=True).click()
            await expect(row).to_have_count(shown)


async def test_a_page_keeps_the_last_200_turns(served: Served, console: Console) -> None:
    async with talking(served) as talk, console(served, "turns") as page:
        session = await served.session_of(talk)
        await expect(page.get_by_role("status")).to_have_text("0 of 0 turns")
        for number in range(250):
            session.bus.publish(TurnRecord("text", "answered", text=f"turn {number}"))
            await asyncio.sleep(0)
        await expect(page.get_by_role("status")).to_have_text("200 of 200 turns")
        rows = page.locator("ol.turns > li")
        await expect(rows).to_have_count(200)
        await expect(rows.first).to_contain_text("turn 249")


async def test_a_server_that_keeps_no_turns_is_called_so(serving: Serve, console: Console) -> None:
    served = await serving(turns_kept=0)
    async with console(served, "turns") as page:
        await expect(page.get_by_text("This server keeps no turns")).to_be_visible()
        await expect(page.get_by_text("Nothing has been said yet")).to_have_count(0)


async def test_a_page_reconnects_to_a_restarted_server(serving: Serve, console: Console) -> None:
    served = await serving(console=ConsoleServer(doctor=list))
    async with relayed(served.port) as cable, console(cable, "turns", complains=True) as page:
        status = page.get_by_role("status")
        await expect(status).to_have_text("0 of 0 turns")
        cable.pull()
        await expect(status).to_contain_text("cannot be reached", timeout=SLOW_MS)
        cable.plugged = True
        await expect(status).to_have_text("0 of 0 turns", timeout=SLOW_MS)
        await page.get_by_role("link", name="Server", exact=True).click()
        engines = page.get_by_role("heading", name="Engines")
        await expect(engines).to_be_visible()
        cable.pull()
        await page.get_by_role("button", name="Check this machine").click()
        alert = page.get_by_role("alert")
        await expect(alert).to_have_text("The server cannot be reached.", timeout=SLOW_MS)
        await expect(engines).to_have_count(0)
        cable.plugged = True
        await expect(engines).to_be_visible(timeout=SLOW_MS)
        await expect(alert).to_have_count(0)


# --- talk --------------------------------------------------------------------------------------


async def test_written_words_are_answered(serving: Serve, console: Console) -> None:
    assistant = StagedAssistant()
    served = await serving(assistant)
    async with console(served) as page:
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await write(page, "Hello there.")
        lines = page.locator(".captions li")
        await expect(lines.nth(0)).to_contain_text("Hello there.")
        await expect(lines.nth(1)).to_contain_text("Reachy")
        await expect(page.locator(".hidden[aria-live]")).to_contain_text("Reachy: ")


async def test_stop_names_its_answer_whose_time_then_no_longer_counts(
    serving: Serve, console: Console
) -> None:
    assistant = StagedAssistant(quick_llm(deltas=(60.0, "Hello.")))
    served = await serving(assistant)
    created, cancelled = asyncio.Queue[str](), asyncio.Queue[str]()

    def note(event: dict[str, Any]) -> None:
        if event["type"] == "response.created":
            created.put_nowait(event["response"]["id"])
        if event["type"] == "response.cancel":
            cancelled.put_nowait(event.get("response_id"))

    async with console(served, before=frames(note, "sent", "received")) as page:
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await write(page, "Hello?")
        await page.get_by_role("button", name="Stop").click()
        assert await cancelled.get() == await created.get()
        await expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        await assistant.announcer.say("Dinner is ready.", lambda place: True, 10)
        await expect(page.locator(".captions .assistant").last).to_contain_text("Dinner is ready.")
        await expect(page.locator(".quiet").first).to_have_text("")  # it answers no question


SLOW_SOUND = """
const add = AudioWorklet.prototype.addModule;
window.adding = new Promise((resolve) => { window.added = resolve; });
AudioWorklet.prototype.addModule = async function (url) {
  await adding;
  return add.call(this, url);
};
"""


async def test_words_that_could_not_be_sent_stay_in_their_field(
    staged: Served, console: Console
) -> None:
    async with (
        relayed(staged.port) as cable,
        console(cable, script=SLOW_SOUND, complains=True) as page,
    ):
        field = page.get_by_label("Write to Reachy")
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await write(page, "Are you there?")
        await expect(field).to_have_value("")
        cable.pull()
        await expect(page.get_by_role("status")).to_contain_text("Connection lost")
        await page.evaluate("added()")
        await expect(field).to_have_value("Are you there?")


async def test_captions_keep_lines_and_the_direction_of_their_script(
    staged: Served, console: Console
) -> None:
    async with console(staged) as page:
        texts = page.locator(".captions p")
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        direction = "each => getComputedStyle(each).direction"
        for at, (text, expected) in enumerate({"1. Tea": "ltr", "شاي (أخضر).": "rtl"}.items()):
            await write(page, text)
            await expect(texts.nth(2 * at)).to_have_text(text)
            assert await texts.nth(2 * at).evaluate(direction) == expected
        assert await texts.first.evaluate("each => getComputedStyle(each).whiteSpace") == "pre-wrap"


async def test_a_button_wakes_a_sleeping_robot(serving: Serve, console: Console) -> None:
    wake = Wake(mode="touch", follow_up_s=1)
    served = await serving(StagedAssistant(settings=SessionSettings(wake=wake)))
    async with console(served) as page:
        state, button = page.locator(".state"), page.get_by_text("Wake it up")
        await expect(state).to_have_text("Asleep")
        await button.click()
        await expect(state).to_have_text("Ready")
        await expect(button).to_have_count(0)
        await expect(state).to_have_text("Asleep")  # after a second


async def test_a_robot_that_sleeps_is_shown_so_after_a_lost_connection(
    serving: Serve, console: Console
) -> None:
    served = await serving(StagedAssistant(settings=SessionSettings(wake=Wake(mode="touch"))))
    async with relayed(served.port) as cable, console(cable, complains=True) as page:
        state = page.locator(".state")
        await expect(state).to_have_text("Asleep")
        cable.pull()
        await expect(state).to_contain_text("Connection lost")
        cable.plugged = True
        await expect(state).to_have_text("Asleep")
        await page.get_by_text("Wake it up").click()
        await expect(state).to_have_text("Ready")
        await expect(page.get_by_role("button", name="Start talking")).to_be_focused()


async def test_an_announcement_and_a_timer_are_shown(serving: Serve, console: Console) -> None:
    assistant = StagedAssistant(settings=SessionSettings(rule=TIMER_RULE))
    clock = Clock(MemoryFile(), assistant.announcer, Sentences(CLOCK_WORDS))
    tools = ClockTools(clock, "127.0.0.1", lambda: "en", offered=False)
    assistant.tool_servers = WithClock(tools, NoToolServers())
    served = await serving(assistant)
    async with beside(clock.run()), console(served) as page:
        await write(page, "Set a timer for one second.")
        said = page.locator(".captions li")
        await expect(said.nth(1)).to_contain_text("The timer is set for 1 s.")
        await expect(said.last).to_contain_text("The timer for 1 s is up.")
        dinner = AnnouncementRequest(text="Dinner is ready.")
        told = (await assistant.announcer.announce(dinner))["conversations"]
        assert [each["outcome"] for each in told] == ["said"]
        await expect(said.last).to_contain_text("Dinner is ready.")


async def test_engines_that_are_exchanged_meanwhile_are_shown(
    serving: Serve, console: Console
) -> None:
    models, voices = {"tts": "piper"}, ["joe", "kim"]
    assistant = StagedAssistant()
    assistant.tts.voices = voices
    served = await serving(assistant, console=ConsoleServer(in_use=lambda: models))
    async with console(served) as page:
        quiet, choice = page.locator(".quiet").first, page.locator(".options select").first
        await expect(quiet).to_have_text("piper")
        await page.get_by_text("Voice, language, pictures, tools").click()
        await choice.select_option("kim")
        models["tts"], voices[:] = "espeak-ng", ["amy", "bob"]
        await write(page, "Hello.")
        await expect(quiet).to_contain_text("espeak-ng")
        await expect(choice.locator("option")).to_have_text(["as configured", "amy", "bob"])
        await expect(choice).to_have_value("")


async def test_captions_that_are_read_stay_where_they_are(serving: Serve, console: Console) -> None:
    tts = ScriptedTts(first_s=0.0, seconds_per_word=0.02)
    assistant = StagedAssistant(quick_llm(deltas=("A line.\n",) * 40), tts)
    served = await serving(assistant)
    async with console(served) as page:
        captions = page.locator(".captions")
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        for reading in (False, True):
            await page.get_by_role("textbox").fill("Tell me.")
            await page.keyboard.press("Enter")
            if reading:
                await expect(page.get_by_role("img", name="Reachy: speaking")).to_be_visible()
                await captions.evaluate("each => each.scrollTo(0, 0)")
            await expect(page.locator(".captions .assistant")).to_have_count(1 + reading)
            await expect(page.get_by_role("button", name="Stop")).to_be_disabled()
            assert (await captions.evaluate("each => each.scrollTop") == 0) is reading


TWICE = "[1, 2].forEach(() => document.activeElement.click())"


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        ("prompt", "Reachy needs your microphone to hear you, so the browser will ask you."),
        ("denied", "The microphone is blocked for this page."),
    ],
)
async def test_a_first_visit_explains_what_to_say_and_the_microphone(
    staged: Served, console: Console, leave: str, reason: str
) -> None:
    asked = f"Permissions.prototype.query = async () => ({{ state: '{leave}' }})"
    async with console(staged, script=asked) as page:
        await expect(page.get_by_role("heading", name="Say something to Reachy")).to_be_visible()
        await expect(page.get_by_text(reason)).to_be_visible()
        await page.get_by_role("button", name="What can you do?").focus()
        await page.evaluate(TWICE)
        await expect(page.locator(".captions li").nth(0)).to_contain_text("What can you do?")
        await expect(page.locator(".captions li").nth(1)).to_contain_text("Reachy")
        await expect(page.get_by_text("Say something to Reachy")).to_have_count(0)
        await expect(page.get_by_role("button", name="Start talking")).to_be_focused()


DRAWINGS = """async () => {
  const { Being, WORDS } = await import("./being.js");
  const being = new Being({});
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const drawn = {};
  for (const state of Object.keys(WORDS)) {
    being.show(state);
    for (let count = 0; count < 3; count += 1) await frame();
    drawn[state] = [...being.element.children].map((part) => part.outerHTML).join("");
  }
  const last = being.element.innerHTML;
  await new Promise((resolve) => setTimeout(resolve, 100));
  return [drawn, last === being.element.innerHTML];
}"""


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
async def test_each_state_has_its_own_shape_and_respects_reduced_motion(
    staged: Served, console: Console, motion: str
) -> None:
    async with console(staged, reduced_motion=motion) as page:
        drawn, still = await page.evaluate(DRAWINGS)
        assert len(drawn) == len(set(drawn.values())) == 7
        assert still is (motion == "reduce")


STATES = [
    ({"playing": True}, "away"),
    ({"open": True}, "resting"),
    ({"open": True, "listening": True}, "listening"),
    ({"open": True, "listening": True, "asleep": True}, "asleep"),
    ({"open": True, "listening": True, "awaited": True}, "thinking"),
    ({"open": True, "listening": True, "awaited": True, "playing": True}, "speaking"),
    ({"open": True, "listening": True, "playing": True, "cut": 1}, "interrupted"),
]


async def test_one_of_several_states_is_shown(staged: Served, console: Console) -> None:
    async with console(staged) as page:
        shown = 'async (rows) => rows.map((await import("./being.js")).stateOf)'
        facts, states = zip(*STATES, strict=True)
        assert await page.evaluate(shown, facts) == list(states)


CONVERSE = """async (events) => {
  const { Conversation } = await import("./conversation.js");
  const sent = [];
  const talk = new Conversation((type) => sent.push(type));
  const states = events.map((event) => {
    if (event.type === "lost") talk.lost();
    else talk.hear(event);
    return talk.problem || talk.awaited;
  });
  return [states, [...talk.items.values()], sent, talk.spoken];
}"""
ANSWER = {"type": "message", "id": "a", "role": "assistant"}
CREATED = {"type": "response.created", "response": {"id": "r"}}


def interrupted(heard: str, rest: str) -> list[object]:
    """The events of an answer of which only ``heard`` was heard, told in two pieces."""
    said = {"type": "output_audio", "transcript": heard}
    piece = {"type": "conversation.item.retrieved", "item": {**ANSWER, "content": [said]}}
    transcript = "conversation.item.input_audio_transcription.completed"
    delta = {"item_id": "a", "delta": heard + rest}
    return [
        {"type": "error", "error": {"code": "invalid_value", "message": "No."}},
        {"type": "input_audio_buffer.committed"},
        CREATED,
        {"type": "response.output_audio_transcript.delta", **delta},
        {"type": "input_audio_buffer.speech_started"},
        {"type": "response.done", "response": {"status": "cancelled", "output": [ANSWER]}},
        piece,
        piece,
        {"type": "input_audio_buffer.committed"},
        {"type": transcript, "item_id": "u", "transcript": ""},
    ]


@pytest.mark.parametrize(
    ("heard", "rest"),
    [("The sea is", " wide and deep."), ("你好。", "今天\n天气很好。"), ("", "No.")],
)
async def test_the_unheard_part_of_an_answer_is_shown_separately(
    staged: Served, console: Console, heard: str, rest: str
) -> None:
    async with console(staged) as page:
        script = interrupted(heard, rest)
        states, lines, sent, spoken = await page.evaluate(CONVERSE, script)
        assert states == [*["No."] * 4, False, False, False, False, True, False]
        assert lines[0] == {"role": "assistant", "text": heard, "rest": rest, "cut": True}
        assert sent == ["conversation.item.retrieve"]
        assert spoken == f"Reachy, interrupted: {heard}"


@pytest.mark.parametrize("end", ["completed", "incomplete"])
async def test_words_written_as_speech_is_answered_are_answered_after_it(
    staged: Served, console: Console, end: str
) -> None:
    async with console(staged) as page:
        refused = {"code": "conversation_already_has_active_response", "message": "Wait."}
        done = {"type": "response.done", "response": {"status": end, "output": []}}
        script = [CREATED, {"type": "error", "error": refused}, done]
        states, _, sent, _ = await page.evaluate(CONVERSE, script)
        assert states == [True, True, False]
        assert sent == ["response.create"]


CALLED = {
    "type": "response.function_call_arguments.done",
    "call_id": "c",
    "name": "dice",
    "arguments": "{}",
}


@pytest.mark.parametrize("end", ["completed", "cancelled", "lost"])
async def test_only_a_whole_answer_with_a_tool_call_is_followed_by_another(
    staged: Served, console: Console, end: str
) -> None:
    async with console(staged) as page:
        done = {"type": "response.done", "response": {"status": end, "output": []}}
        whole = {"type": "response.done", "response": {"status": "completed", "output": []}}
        script = [CREATED, CALLED, {"type": "lost"} if end == "lost" else done, CREATED, whole]
        _, _, sent, _ = await page.evaluate(CONVERSE, script)
        assert sent == ["conversation.item.create"] + ["response.create"] * (end == "completed")


MICROPHONES = """
const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
window.microphones = [];
navigator.mediaDevices.getUserMedia = async (wish) => {
  await allowed;
  const stream = await ask(wish);
  microphones.push(stream.getTracks()[0]);
  return stream;
};
window.asked = () => { window.allowed = new Promise((resolve) => { window.allow = resolve; }); };
asked();
"""
NEW_MICROPHONE = """
() => {
  const { mediaDevices } = navigator, list = mediaDevices.enumerateDevices.bind(mediaDevices);
  const array = { kind: "audioinput", deviceId: "array", label: "Array" };
  mediaDevices.enumerateDevices = async () => [...(await list()), array];
  mediaDevices.dispatchEvent(new Event("devicechange"));
}
"""
OPENED = "count => microphones.length === count"
LIVE = "microphones.filter(({ readyState }) => readyState === 'live').length"


async def test_the_microphone_is_open_only_while_shown_as_open(
    owned: Served, console: Console
) -> None:
    async with console(owned, script=MICROPHONES) as page:
        start = page.get_by_role("button", name="Start talking")
        mute = page.get_by_role("button", name="Mute the microphone")
        await page.evaluate("allow()")
        await start.click()
        await mute.click()
        await page.evaluate("asked()")
        await start.dblclick()
        await page.evaluate("allow()")
        await page.wait_for_function(OPENED, arg=3)
        await expect(mute).to_be_visible()
        assert await page.evaluate(LIVE) == 1
        # What the browser does when the device disappears.
        await page.evaluate("microphones.at(-1).dispatchEvent(new Event('ended'))")
        await expect(page.get_by_role("alert")).to_contain_text("unplugged or blocked")
        await expect(start).to_be_visible()
        assert await page.evaluate(LIVE) == 0
        await page.evaluate("asked()")
        await start.click()
        await page.get_by_role("link", name="Server", exact=True).click()
        await page.get_by_label("Name of the person").fill("Tom")
        await page.evaluate("allow()")
        await page.wait_for_function(OPENED, arg=4)
        assert await page.evaluate(LIVE) == 0
        await page.evaluate("asked()")
        await page.get_by_role("button", name="Learn a voice").dblclick()
        await page.evaluate("allow()")
        await expect(page.get_by_text("Read this aloud")).to_be_visible()
        assert await page.evaluate(LIVE) == 1
        await page.evaluate("microphones.at(-1).dispatchEvent(new Event('ended'))")
        await expect(page.get_by_role("alert")).to_contain_text("unplugged or blocked")
        assert await page.evaluate(LIVE) == 0


async def test_a_microphone_may_go_and_another_come(staged: Served, console: Console) -> None:
    async with console(staged, script=MICROPHONES) as page:
        await page.evaluate("allow()")
        await page.get_by_role("button", name="Start talking").click()
        await page.get_by_text("Voice, language, pictures, tools").click()
        choice = page.locator("label", has_text="Microphone").locator("select")
        await expect(choice).to_be_visible()
        *_, last = await choice.locator("option").evaluate_all("all => all.map((o) => o.value)")
        await choice.select_option(last)
        await page.wait_for_function(OPENED, arg=2)
        assert await page.evaluate("microphones.at(-1).getSettings().deviceId") == last
        await choice.locator("option").last.evaluate("option => { option.value = 'gone'; }")
        await choice.dispatch_event("change")
        await page.wait_for_function(OPENED, arg=3)
        await expect(page.get_by_role("status")).to_contain_text("the microphone is on")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.evaluate(NEW_MICROPHONE)
        await expect(choice.locator("option").last).to_have_text("Array")


WIDER = "([name, width]) => document.querySelector(name).getBBox().width > width"


async def test_sound_moves_the_ring_and_the_head(staged: Served, console: Console) -> None:
    said = np.tile(recording("goforward").pcm, 3)
    async with console(staged, said=said) as page:
        await page.get_by_role("button", name="Start talking").click()
        await expect(page.get_by_role("img", name="Reachy: listening")).to_be_visible()
        await page.wait_for_function(WIDER, arg=[".being .ring", 2 * 84 + 8])
        await page.get_by_role("button", name="Mute the microphone").click()
        await write(page, "Are you there?")
        await page.wait_for_function(WIDER, arg=[".being .head", 2 * 62 + 8])


async def test_whose_voice_was_heard_is_shown(serving: Serve, console: Console) -> None:
    cast = phrase_cast()
    cast.stt, cast.speaker = ScriptedStt((TIME,)), ScriptedSpeaker()
    cast.people = people(**{f"Tom {number}": 1000 * number for number in range(33)})  # any level
    served = await serving(StagedAssistant(cast=cast))
    said = np.concatenate((PAUSE, recording("goforward").pcm, PAUSE))
    async with console(served, said=said) as page:
        await page.get_by_role("button", name="Start talking").click()
        await expect(page.locator(".captions .user .who").first).to_contain_text("Tom ")


class SmallHousehold:
    """Learns every voice at once."""

    def __init__(self, file: PeopleFile) -> None:
        self.file = file
        self.heard_s: list[float] = []

    def missing_weights(self) -> list[str]:
        return []

    async def add(self, name: str, pcm: Pcm) -> PeopleList:
        self.heard_s.append(len(pcm) / LISTEN_RATE)
        voice = np.eye(8, dtype=np.float32)[0]
        return await asyncio.to_thread(
            self.file.change, lambda known: known.with_person(name, voice, "a" * 64)
        )

    async def remove(self, name: str) -> PeopleList:
        return await asyncio.to_thread(self.file.change, lambda known: known.without(name))


async def test_a_voice_is_learned_and_forgotten(
    serving: Serve, tmp_path: Path, console: Console
) -> None:
    household = SmallHousehold(PeopleFile(tmp_path / "access.json"))
    server = ConsoleServer(household=cast(Household, household))
    served = await serving(StagedAssistant(), console=server)

    said = np.concatenate([recording("goforward").pcm] * 4)
    shorten = changing("people.js", "RECORD_S = 32", "RECORD_S = 2")
    async with console(served, "server", said=said, before=shorten, complains=True) as page:
        await page.get_by_label("Name of the person").fill("Tom")
        await page.get_by_role("button", name="Learn a voice").click()
        await expect(page.get_by_text("Read this aloud")).to_be_visible()
        await expect(page.get_by_text("Tom is known now.")).to_be_visible()
        assert household.heard_s == [pytest.approx(2, abs=0.1)]
        for name, why in (
            ("-Tom", "Nobody can be called '-Tom'"),
            ("TOM", "somebody called 'TOM' already"),
        ):
            await page.get_by_label("Name of the person").fill(name)
            await page.get_by_role("button", name="Learn a voice").click()
            await expect(page.get_by_role("alert")).to_contain_text(why)
            await expect(page.get_by_text("Read this aloud")).to_have_count(0)
        await expect(page.get_by_label("Name of the person")).to_have_value("TOM")
        await page.get_by_role("button", name="Forget Tom").click()
        await expect(page.get_by_text("Nobody's voice is known.")).to_be_visible()
        assert not household.file.path.exists()


TAP = "button => ['down', 'up'].map(way => button.dispatchEvent(new Event(`pointer${way}`)))"


async def test_a_tap_on_push_to_talk_sends_nothing(staged: Served, console: Console) -> None:
    sent: asyncio.Queue[str] = asyncio.Queue()
    note = frames(lambda event: sent.put_nowait(event["type"]), "sent")
    async with console(staged, before=note) as page:
        await page.get_by_text("Voice, language, pictures, tools").click()
        await page.get_by_label("Push to talk").check()
        await page.get_by_role("button", name="Start talking").click()
        hold = page.get_by_role("button", name="Hold to talk")
        await expect(hold).to_be_enabled()
        await hold.evaluate(TAP)
        while await sent.get() != "input_audio_buffer.commit":
            pass
        await hold.dispatch_event("pointerdown")
        for _ in range(20):  # of 20 ms
            while (each := await sent.get()) != "input_audio_buffer.append":
                assert each != "response.create"
        await expect(page.get_by_role("alert")).to_have_count(0)
        await hold.dispatch_event("pointerup")
        while await sent.get() != "response.create":
            pass
        await hold.focus()
        await page.keyboard.down(" ")
        await expect(hold).to_have_attribute("aria-pressed", "true")
        await page.keyboard.press("Tab")
        await expect(hold).to_have_attribute("aria-pressed", "false")


async def test_voice_and_language_go_back_to_the_configured_ones(
    serving: Serve, console: Console
) -> None:
    assistant = StagedAssistant()
    assistant.tts.voices = ("joe", "kim")
    served = await serving(assistant)
    told: asyncio.Queue[object] = asyncio.Queue()

    def note(event: dict[str, Any]) -> None:
        if event["type"] == "session.updated":
            audio = event["session"]["audio"]
            chosen = audio["output"]["voice"], audio["input"]["transcription"].get("language")
            told.put_nowait(chosen)

    async with console(served, before=frames(note, "received")) as page:
        await page.get_by_text("Voice, language, pictures, tools").click()
        assert await told.get() == ("joe", None)
        for voice, language in (("kim", "de"), ("", "")):
            await page.locator(".options select").first.select_option(voice)
            await told.get()
            await page.get_by_label("You speak").select_option(language)
            assert await told.get() == (voice or "joe", language or None)


async def test_tools_voices_and_pictures_can_be_tried(serving: Serve, console: Console) -> None:
    assistant = StagedAssistant()
    assistant.llm.answers += [[ToolCall("dice", '{"count": 2}')], ["You ", "have ", "thrown."]]
    served = await serving(assistant)
    async with console(served) as page:
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await page.get_by_text("Voice, language, pictures, tools").click()
        await page.get_by_label("Tools: clock, dice").check()
        await page.get_by_label("You speak").select_option("de")
        picture = {"name": "x.png", "mimeType": "image/png", "buffer": PNG}
        await page.get_by_label("Picture", exact=True).set_input_files(picture)
        await expect(page.get_by_alt_text("The picture you sent")).to_be_visible()
        await write(page, "Throw two dice.")
        await expect(page.locator(".captions .tool")).to_contain_text(
            'dice({"count": 2}) → {"dice":['
        )
        await expect(page.locator(".captions .assistant")).to_contain_text("You have thrown")
        tools, _ = assistant.llm.offered[-1]
        assert [tool.name for tool in tools] == ["clock", "dice"]


DRAWN = """([width, height]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  return canvas.toDataURL("image/png").split(",")[1];
}"""
FIRST_PIXEL = """async (image) => {
  await image.decode();
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.drawImage(image, 0, 0);
  return [image.naturalWidth, image.naturalHeight, ...canvas.getImageData(0, 0, 1, 1).data];
}"""


async def test_a_picture_is_sent_or_it_is_said_why_not(staged: Served, console: Console) -> None:
    async with relayed(staged.port) as cable, console(cable, complains=True) as page:
        shown = page.get_by_alt_text("The picture you sent")
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await page.get_by_text("Voice, language, pictures, tools").click()
        field, alert = page.get_by_label("Picture", exact=True), page.get_by_role("alert")
        for count, size in enumerate(((20, 10), (4000, 2))):
            drawn = base64.b64decode(await page.evaluate(DRAWN, size))
            transparent = {"name": "x.png", "mimeType": "image/png", "buffer": drawn}
            await field.set_input_files(transparent)
            await expect(shown).to_have_count(count + 1)
            pixel = await shown.last.evaluate(FIRST_PIXEL)
            assert pixel == [min(size[0], 768), [10, 1][count], 255, 255, 255, 255]
        cable.pull()
        await expect(page.get_by_role("status")).to_contain_text("Connection lost")
        await field.set_input_files(transparent)
        await expect(alert).to_have_text("The picture cannot be sent: there is no connection.")
        await expect(shown).to_have_count(2)


async def test_a_lost_connection_resumes_its_conversation(serving: Serve, console: Console) -> None:
    assistant = StagedAssistant()
    served = await serving(assistant)
    async with relayed(served.port) as cable, console(cable, complains=True) as page:
        lines = page.locator(".captions li")
        await write(page, "My name is Ada.")
        await expect(lines).to_have_count(2)
        await expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        cable.pull()
        await expect(page.get_by_role("status")).to_contain_text("Connection lost")
        cable.plugged = True
        await expect(page.get_by_role("status")).to_contain_text("Connected", timeout=SLOW_MS)
        await write(page, "What is my name?")
        await expect(lines).to_have_count(4)
        assert any("My name is Ada." in each.content for each in assistant.llm.prompts[-1])


async def test_a_full_server_is_called_so_until_it_has_room(serving: Serve, tmp_path: Path) -> None:
    served = await serving(StagedAssistant(), max_sessions=1)
    async with browsing(tmp_path) as visit:
        status, alert = visit.page.get_by_role("status"), visit.page.get_by_role("alert")
        async with talking(served):
            await visit.page.goto(f"http://localhost:{served.port}/console/")
            await expect(status).to_contain_text("Connection lost")
            await expect(alert).to_have_text("All places are taken. Try again later.")
        await expect(status).to_contain_text("Connected", timeout=SLOW_MS)
        await expect(alert).to_have_count(0)
        assert visit.complaints == []


async def without_addresses(route: Route) -> None:
    answer = await route.fetch()
    await route.fulfill(response=answer, body=re.sub("a=candidate.*\r\n", "", await answer.text()))


@asynccontextmanager
async def offering_calls(
    serving: Serve, tmp_path: Path, said: Pcm, *, reachable: bool = True
) -> AsyncIterator[tuple[Visit, list[object], Served]]:
    """The encrypted page Talk of a server that takes calls, and the sockets that it opens."""
    cast = phrase_cast()
    cast.stt = ScriptedStt((TIME,) * 9)
    second, secure = await secure_port(tmp_path)
    served = await serving(StagedAssistant(cast=cast), webrtc=True, beside=[second])
    async with browsing(tmp_path, said, ignore_https_errors=True) as visit:
        sockets: list[object] = []
        visit.page.on("websocket", lambda socket: sockets.append(socket))
        if not reachable:
            await visit.page.route("**/v1/realtime/calls*", without_addresses)
            await changing("realtime.js", "CALL_MS = 5000", "CALL_MS = 500")(visit.page)
        await visit.page.goto(f"https://localhost:{secure.port}/console/")
        await expect(visit.page.get_by_role("status")).to_contain_text("Connected")
        yield visit, sockets, served
        assert visit.complaints == []


async def test_an_encrypted_page_calls_by_webrtc(serving: Serve, tmp_path: Path) -> None:
    said = np.concatenate((PAUSE, recording("goforward").pcm, PAUSE))
    async with offering_calls(serving, tmp_path, said) as (visit, sockets, served):
        page, lines = visit.page, visit.page.locator(".captions li")
        speaks = page.get_by_role("img", name="Reachy: speaking")
        await page.get_by_role("button", name="Start talking").click()
        await page.wait_for_function(WIDER, arg=[".being .ring", 2 * 84 + 8])
        await expect(lines.nth(0)).to_contain_text(TIME)
        await expect(lines.nth(1)).to_contain_text(NOON)
        await expect(page.locator(".quiet").first).to_contain_text("s to the first sound")
        await page.get_by_role("button", name="Mute the microphone").click()
        await expect(speaks).to_have_count(0)
        await write(page, STORY)
        await expect(speaks).to_be_visible()
        await page.wait_for_function(WIDER, arg=[".being .head", 2 * 62 + 6])
        await page.get_by_role("button", name="Stop").click()
        await expect(lines.nth(3)).to_contain_text("Reachy, interrupted")
        await expect(lines.nth(3).locator(".unheard")).to_contain_text("not heard: ")
        await expect(speaks).to_have_count(0)
        assert sockets == []
        (link,) = served.clients.open
        served.assistant.reasons["llm"] = "loading"
        link.close(1001, "restart")
        await expect(page.get_by_role("status")).to_contain_text("Connection lost")
        await expect(page.get_by_role("alert")).to_contain_text("llm: loading")
        served.assistant.reasons["llm"] = None
        await expect(page.get_by_role("status")).to_contain_text("Connected")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await write(page, STORY)
        await expect(speaks).to_be_visible()
        assert sockets == []
        visit.complaints.clear()  # the browser complains of an answer 503


async def test_a_call_that_cannot_connect_falls_back_to_a_socket(
    serving: Serve, tmp_path: Path
) -> None:
    async with offering_calls(serving, tmp_path, PAUSE, reachable=False) as (visit, sockets, _):
        page = visit.page
        await expect(page.get_by_text("A call by WebRTC did not connect")).to_be_visible()
        assert len(sockets) == 1
        await write(page, TIME)
        await expect(page.locator(".captions .assistant")).to_contain_text(NOON)
        await expect(page.locator(".quiet").first).to_contain_text("s to the first sound")


@asynccontextmanager
async def really_talking(
    weights: Callable[[str], Path], cache: WeightsCache, tmp_path: Path, said: Pcm, *sets: str
) -> AsyncIterator[Visit]:
    """The page Talk of a server with the real engines; the microphone hears ``said``."""
    loaded = await asyncio.to_thread(
        load_settings, None, ("conversation.sampling.temperature=0", *sets)
    )
    for name in loaded.settings.weights():
        await asyncio.to_thread(weights, name)
    assistant = await asyncio.to_thread(Assistant, loaded.settings, cache)
    assistant.recorder = await asyncio.to_thread(Recorder, tmp_path / "recorded", {})
    async with local_server(assistant) as url, browsing(tmp_path, said) as visit:
        await visit.page.goto(url.replace("ws:", "http:").replace("v1/realtime", "console/"))
        yield visit
        assert visit.complaints == []
    await asyncio.to_thread(assistant.recorder.close)


@pytest.mark.real
async def test_a_spoken_question_is_answered_aloud_by_the_real_engines(
    weights: Callable[[str], Path], cache: WeightsCache, tmp_path: Path
) -> None:
    said = np.concatenate((PAUSE, recording("goforward").pcm, PAUSE))
    async with really_talking(
        weights, cache, tmp_path, said, "conversation.sampling.max_tokens=24"
    ) as visit:
        page = visit.page
        await page.get_by_role("button", name="Start talking").click()
        lines = page.locator(".captions li")
        await expect(lines.nth(0)).to_contain_text(re.compile("go forward", re.I), timeout=SLOW_MS)
        latency = page.locator(".quiet")
        await expect(latency).to_contain_text("s to the first sound", timeout=SLOW_MS)
        await expect(page.get_by_role("button", name="Stop")).to_be_disabled(timeout=60_000)
        answer = (await lines.nth(1).inner_text()).partition("\n")[2]
        heard = Recording("answer", await visit.tape("played"), answer, "synthetic: joe")
        path = await asyncio.to_thread(weights, "moonshine-tiny-en")
        stt = await asyncio.to_thread(moonshine.build, moonshine.MoonshineOptions(), path)
        told = (await asyncio.to_thread(measure, stt, [heard]))[0].errors
        assert told.errors <= 1 + told.words // 3
        await page.get_by_role("link", name="Turns").click()
        await page.get_by_role("button", name="Listen").click()
        player = page.get_by_label("You left, Reachy right")
        await expect(player).to_have_js_property("error", None)
        await expect(player).to_have_js_property("readyState", 4)
        assert await player.evaluate("player => player.duration") > 2


@pytest.mark.real
async def test_speech_over_the_answer_stops_it(
    weights: Callable[[str], Path], cache: WeightsCache, tmp_path: Path
) -> None:
    said = np.concatenate((PAUSE, recording("something").pcm, PAUSE))
    # As packaged, the model tells long stories.
    sets = ("conversation.sampling.max_tokens=120", "llm.adapters=[]")
    async with really_talking(weights, cache, tmp_path, said, *sets) as visit:
        page = visit.page
        lines = page.locator(".captions li")
        await write(page, "Tell me a long story about the sea.")
        await expect(page.get_by_role("img", name="Reachy: speaking")).to_be_visible(
            timeout=SLOW_MS
        )
        await page.wait_for_function(WIDER, arg=[".being .head", 2 * 62 + 6])
        await page.get_by_role("button", name="Start talking").click()
        await expect(lines.nth(1)).to_contain_text("Reachy, interrupted", timeout=SLOW_MS)
        await expect(lines.nth(1).locator(".unheard")).to_contain_text("not heard: ")
        again = re.compile("somewhere", re.I)
        await expect(lines.nth(2)).to_contain_text(again, timeout=SLOW_MS)
