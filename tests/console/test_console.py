"""The console's pages and its JSON: access and contents."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest

from app.access.policy import Rules, digest, parse_network
from app.console.console import STATIC
from app.console.recent_turns import WAITING, RecentTurn, RecentTurns, RecordingSpan, _Session
from app.console.running import ConsoleServer
from app.server.gate import Access
from app.server.load import LoadHistory
from app.server.process_usage import ProcessUsage
from pipeline.audio import Recording
from pipeline.bus import Bus, Published
from pipeline.events import ItemAdded, RecordingBegun, TurnUnderWay
from pipeline.items import AudioPart, MessageItem
from pipeline.turn_record import TurnRecord
from tests.support.scripted_server import ScriptedAssistant, Serve, Served, appear_from, talking

pytestmark = pytest.mark.machine

LIT_SHA256 = "22115ca1002e4afc0dd2cb208f28d9c71a577a8989d4185028e26b29676e7842"
"""lit-html 3.3.3 from npm without its last line, which names a source map (with it:
b878e7f9...)."""
MOST_BYTES = 150_000


# --- the files ---------------------------------------------------------------------------------


def test_the_vendored_library_is_the_published_one() -> None:
    text = (STATIC / "lit-html.js").read_bytes()
    assert hashlib.sha256(text).hexdigest() == LIT_SHA256
    assert "BSD 3-Clause" in (STATIC / "lit-html.LICENSE").read_text()


def test_the_whole_page_is_small_and_loads_nothing_from_elsewhere() -> None:
    own = [path for path in STATIC.iterdir() if not path.name.startswith("lit-html")]
    assert sum(path.stat().st_size for path in STATIC.iterdir()) <= MOST_BYTES
    for path in own:
        text = path.read_text()
        assert not re.search(r"(src|href|from|import|fetch\(|url\()\s*[=(]?\s*[\"'`]https?:", text)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("colour", ["edge", "speech", "think", "accent", "ink"])
def test_information_shown_only_by_colour_has_contrast(colour: str, scheme: int) -> None:
    """https://www.w3.org/TR/WCAG22/#non-text-contrast"""
    style = (STATIC / "style.css").read_text()
    pairs = re.findall(r"--(\w+): light-dark\(#(\w{6}), #(\w{6})\)", style)
    colours = {name: bytes.fromhex(pair[scheme]) for name, *pair in pairs}

    def luminance(name: str) -> float:
        parts = np.frombuffer(colours[name], np.uint8) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    for behind in ("ground", "panel"):
        darker, lighter = sorted((luminance(colour), luminance(behind)))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, behind


async def test_every_file_that_a_page_names_is_served(served: Served) -> None:
    names = set[str]()
    for path in STATIC.glob("*.*"):
        text = path.read_text()
        names |= set(re.findall(r'(?:from "\./|href="|src="|Module\(")([\w-]+\.\w+)"', text))
    assert {"console.js", "talk.js", "style.css", "lit-html.js", "capture-worklet.js"} <= names
    for name in names:
        answer = await served.get(f"/console/{name}")
        assert answer.status_code == 200, name
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        assert answer.headers["content-type"].startswith(kind)
    page = await served.get("/console/")
    assert page.headers["content-type"].startswith("text/html")
    moved = await served.get("/console")
    assert (moved.status_code, moved.headers["location"]) == (307, "/console/")


async def test_a_page_may_run_no_inline_code_and_be_framed_by_no_one(served: Served) -> None:
    for path in ("/console/", "/console/console.js", "/console/api/state"):
        headers = (await served.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


# --- recorded turns ----------------------------------------------------------------------------

SPOKEN = TurnRecord(
    *("voice", "answered", "item_1"),
    speech_start_sample=16_000,
    speech_end_sample=40_000,
    ended_ms=2_000.0,
)


async def test_a_recorded_turn_is_found_in_its_session() -> None:
    notes: list[Callable[[Published], None]] = []
    turns = RecentTurns()
    turns.watch(cast(Bus, SimpleNamespace(tap=notes.append)), "127.0.0.1")
    [note] = notes
    note(Published(100.0, TurnRecord("text", "answered")))
    note(Published(100.0, RecordingBegun("/tmp/session")))
    note(Published(110.0, SPOKEN))
    assert turns.sound_of(1) is None
    # Half a second, 1.5 s of speech, an answer that ended 2 s after it, and half a second.
    assert turns.sound_of(2) == RecordingSpan(Path("/tmp/session"), 6.0, 10.5)


async def test_speech_without_a_record_is_not_kept_for_ever() -> None:
    told: list[RecentTurn] = []
    session = _Session(1, "127.0.0.1", told.append)
    said = AudioPart(None, 1.0, Recording(np.full(320, 8_192, np.int16), 16_000))
    for number in range(17):
        item = MessageItem(f"item_{number}", "user", (said,))
        session.note(Published(0.0, ItemAdded(item, None)), itertools.count(1), 0.0)
    for number in (0, 16):
        record = TurnRecord("voice", "answered", f"item_{number}")
        session.note(Published(0.0, record), itertools.count(1), 0.0)
    assert [turn.levels for turn in told] == [(), (25,)]


async def test_a_recorded_turn_can_be_listened_to(serving: Serve, tmp_path: Path) -> None:
    """The user, here in telephone quality, on the left, the answer on the right."""
    for name, rate, level in (("heard-8000.wav", 8_000, 1_000), ("sent-24000.wav", 24_000, -2_000)):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(np.full(20 * rate, level, np.int16).tobytes())
    said = Recording(np.full(24_000, 8_192, np.int16), 16_000)
    item = MessageItem("item_1", "user", (AudioPart(None, 1.5, said),))
    served = await serving()
    async with talking(served) as talk:
        session = await served.session_of(talk)
        for event in (RecordingBegun(str(tmp_path)), ItemAdded(item, None), SPOKEN):
            session.bus.publish(event)
        async with reading(served) as told:
            await anext(told)
            turn = await anext(told)
    assert (turn["recorded"], turn["levels"]) == (True, [25] * 75)
    answer = await served.get(f"/console/api/turns/{turn['number']}/sound")
    assert answer.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getnchannels(), file.getframerate()) == (2, 24_000)
        both = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
    assert 0.5 <= len(both) / 24_000 < 1
    assert np.abs(both[100:-1_000] - (1_000, -2_000)).max() < 20
    assert (await served.get("/console/api/turns/99/sound")).status_code == 404
    await asyncio.to_thread(shutil.rmtree, tmp_path)
    gone = await served.get(f"/console/api/turns/{turn['number']}/sound")
    assert (gone.status_code, "it has no sound" in gone.text) == (400, True)


# --- who may -----------------------------------------------------------------------------------

PAGES = ["/console/", "/console/talk.js"]
NEVER = [
    "/console/api/turns",
    "/console/api/turns/1/sound",
    "/console/api/state",
    "/console/api/load",
    "/console/api/access",
    "/console/api/models",
]


async def status(served: Served, path: str, **headers: str) -> int:
    return (await served.get(path, **headers)).status_code


async def test_an_allowed_address_and_a_key_see_no_console(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "a-key-of-an-ordinary-client"
    rules = Rules().extended([parse_network("192.0.2.0/24")], [digest(key.encode())])
    served = await serving(access=Access(rules))
    appear_from(monkeypatch, "192.0.2.9")
    for path in NEVER:
        answer = await served.get(path)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "console_forbidden"
        assert await status(served, path, Authorization=f"Bearer {key}") == 403
    appear_from(monkeypatch, "198.51.100.4")
    for path in NEVER:
        assert await status(served, path) == 401


async def test_no_other_page_and_no_proxy_reads_it(served: Served) -> None:
    for path in NEVER:
        assert await status(served, path, Origin="https://evil.example") == 403
        assert await status(served, path, Host="evil.example") == 403
        assert await status(served, path, **{"X-Forwarded-For": "203.0.113.9"}) == 401


async def test_an_allowed_origin_may_link_to_it_and_load_none_of_it(serving: Serve) -> None:
    origin = "http://localhost:3000"
    served = await serving(access=Access(Rules(origins=frozenset({origin}))))
    page = {"Origin": origin, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    for path in NEVER:
        assert await status(served, path, **page) == 403
        assert await status(served, path, **script) == 403
    assert await status(served, "/console/", **script) == 200, "a link to it"


async def test_it_can_be_switched_off(serving: Serve) -> None:
    served = await serving(console=None)
    for path in (*PAGES, *NEVER):
        assert await status(served, path) == 404


async def test_if_loopback_needs_a_key_only_the_pages_are_open(serving: Serve) -> None:
    key = "a-key-of-an-ordinary-client"
    rules = Rules(loopback=False, keys=(digest(key.encode()),))
    served = await serving(access=Access(rules))
    for path in PAGES:
        assert await status(served, path) == 200
    for path in NEVER:
        assert await status(served, path) == 401
        assert await status(served, path, Authorization=f"Bearer {key}") == 403


# --- turns -------------------------------------------------------------------------------------


@asynccontextmanager
async def reading(served: Served) -> AsyncIterator[AsyncGenerator[dict[str, Any], None]]:
    """The server-sent events of ``/console/api/turns``; ``begin`` says how many are kept."""
    async with (
        httpx.AsyncClient() as client,
        client.stream("GET", f"http://127.0.0.1:{served.port}/console/api/turns") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncGenerator[dict[str, Any], None]:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        async with aclosing(events()) as told:
            yield told


async def test_turns_of_all_sessions_are_sent_with_their_words_as_they_end(serving: Serve) -> None:
    served = await serving(ScriptedAssistant())
    async with talking(served) as one, talking(served) as other:
        first, second = await served.session_of(one), await served.session_of(other)
        first.bus.publish(TurnRecord("voice", "answered", text="Hello.", first_audio_ms=410.0))
        async with reading(served) as told:
            assert await anext(told) == {"kept": 200}
            kept = await anext(told)
            assert (kept["text"], kept["session"], kept["place"]) == ("Hello.", 1, "127.0.0.1")
            assert kept["first_audio_ms"] == 410.0
            second.bus.publish(TurnRecord("text", "cancelled", text="Stop."))
            live = await anext(told)
            assert (live["text"], live["session"], live["number"]) == ("Stop.", 2, 2)
        async with reading(served) as again:
            assert [(await anext(again)).get("text") for _ in range(3)] == [None, "Hello.", "Stop."]


async def test_a_turn_is_sent_at_its_first_audio_and_completed_under_the_same_number(
    served: Served,
) -> None:
    async with talking(served) as talk, reading(served) as told:
        session = await served.session_of(talk)
        glance = TurnRecord("voice", "answered", reply_id="resp_1", first_audio_ms=410.0)
        assert await anext(told) == {"kept": 200}
        session.bus.publish(TurnUnderWay(glance))
        first = await anext(told)
        session.bus.publish(TurnRecord("text", "answered"))
        session.bus.publish(replace(glance, heard="It is noon."))
        other, whole = await anext(told), await anext(told)
        assert (first["under_way"], whole["under_way"]) == (True, False)
        assert first["number"] == whole["number"] != other["number"]
        assert whole["heard"] == "It is noon."
        async with reading(served) as again:
            assert len([await anext(again) for _ in range(3)]) == 3, "the glance is not kept"


async def test_a_stopping_server_ends_the_streams(serving: Serve) -> None:
    served = await serving(drain_s=30.0)
    async with reading(served) as told:
        assert await anext(told) == {"kept": 200}
        os.kill(os.getpid(), signal.SIGTERM)
        assert [each async for each in told] == []


async def test_no_more_turns_are_kept_than_asked_for(serving: Serve) -> None:
    served = await serving(turns_kept=3)
    async with talking(served) as talk:
        session = await served.session_of(talk)
        for number in range(10):
            session.bus.publish(TurnRecord("text", "answered", text=str(number)))
        async with reading(served) as told:
            assert [(await anext(told)).get("text") for _ in range(4)] == [None, "7", "8", "9"]


async def test_keeping_turns_can_be_switched_off() -> None:
    turns, bus = RecentTurns(0), Bus()
    turns.watch(bus, "127.0.0.1")
    bus.publish(TurnRecord("text", "answered"))
    async with aclosing(turns.follow()) as followed:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(followed)


async def test_a_reader_that_falls_behind_is_dropped() -> None:
    turns, bus = RecentTurns(2), Bus()
    turns.watch(bus, "127.0.0.1")
    bus.publish(TurnRecord("text", "answered", text="kept"))
    async with aclosing(turns.follow()) as followed:
        assert (await anext(followed)).record.text == "kept"
        for _ in range(WAITING + 1):
            bus.publish(TurnRecord("text", "answered"))
        with pytest.raises(StopAsyncIteration):
            await anext(followed)


async def test_the_state_lists_engines_and_clients(serving: Serve) -> None:
    assistant = ScriptedAssistant()
    served = await serving(
        assistant, console=ConsoleServer(in_use=lambda: {"tts": "piper (piper-joe)"})
    )
    async with talking(served) as talk:
        await served.session_of(talk)
        assistant.reasons["llm"] = "is starting"
        state = (await served.get("/console/api/state")).json()
    assert state["engines"] == {"stt": None, "llm": "is starting", "tts": None}
    assert state["models"] == {"tts": "piper (piper-joe)"}
    assert state["sessions"] == 1


async def test_load_is_never_negative_when_a_process_ends(
    serving: Serve,
) -> None:
    history = LoadHistory()
    for seconds, mib, at in ((10.0, 500.0, 100.0), (15.0, 600.4, 110.0), (3.0, 300.0, 120.0)):
        history.note(ProcessUsage(seconds, mib), at)
    assert history.shown()["samples"] == [(100.0, 500, 0.0), (110.0, 600, 0.5), (120.0, 300, 0.0)]
    served = await serving()
    kept = (await served.get("/console/api/load")).json()
    assert kept["cores"] >= 1
    assert kept["memory_mib"] > 100
    assert all(len(sample) == 3 for sample in kept["samples"])
