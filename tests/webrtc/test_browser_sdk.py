"""OpenAI's Agents SDK for browsers, unmodified, in real Chromium: talk, tool, interruption, mute,
and a second call. Its page has another origin than the server, and a client secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from app.models.weights import WeightsCache
from pipeline.audio import LISTEN_RATE
from reachy_voice.testing import ScriptedStt
from tests.clients.engines import NOON, TALE, TIME, phrase_cast
from tests.clients.installed import node_modules
from tests.support.browser import browsing
from tests.support.file_server import file_server
from tests.support.recordings import recording
from tests.support.scripted_server import Serve, Served
from tests.support.staged_server import StagedAssistant

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

SDK = "openai-realtime-agents.umd.js"
PAGE = f'<!doctype html><title>Call</title><script src="/{SDK}"></script>'
SLOW_MS = 60_000
"""The machine may be busy."""

START = """async ([url, apiKey]) => {
  const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebRTC, tool } = OpenAIAgentsRealtime;
  window.seen = [];
  window.calls = 0;
  const weather = tool({
    name: 'get_weather',
    description: 'The weather in a city.',
    strict: false,
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
                  additionalProperties: true },
    execute: async () => { calls += 1; return 'sunny'; },
  });
  const agent = new RealtimeAgent({ name: 'Reachy', instructions: 'Be brief.', tools: [weather] });
  window.session = new RealtimeSession(agent, { transport: new OpenAIRealtimeWebRTC() });
  const told = (error) => JSON.stringify(error?.error ?? `${error}`);
  session.on('error', ({ error }) => seen.push(['error', told(error)]));
  session.transport.on('*', (event) => seen.push([event.type, event.transcript ?? '']));
  await session.connect({ apiKey, url });
}"""
ENERGY = """async () => {
  const { peerConnection } = session.transport.connectionState;
  const stats = [...(await peerConnection.getStats()).values()];
  return stats.find((each) => each.type === 'inbound-rtp').totalAudioEnergy;
}"""


@pytest.fixture
def sdk(cache: WeightsCache) -> Path:
    return node_modules(cache.directory) / "@openai" / "agents-realtime" / "dist" / "bundle"


async def start(page: Page, served: Served) -> None:
    made = await served.post("/v1/realtime/client_secrets")
    url = f"http://127.0.0.1:{served.port}/v1/realtime/calls"
    await page.evaluate(START, [url, made.json()["value"]])


async def until(page: Page, type: str, count: int = 1) -> list[Any]:
    """The events seen, once ``count`` of that type have arrived."""
    so_many = "([type, count]) => seen.filter(([each]) => each === type).length >= count"
    try:
        await page.wait_for_function(so_many, arg=[type, count])
    except PlaywrightTimeout:
        raise AssertionError(await page.evaluate("[session.transport.status, seen]")) from None
    seen: list[Any] = await page.evaluate("seen")
    assert [text for kind, text in seen if kind == "error"] == []
    return seen


def said(seen: list[Any]) -> list[str]:
    return [text for kind, text in seen if kind == "response.output_audio_transcript.done"]


async def test_the_browser_sdk_completes_every_turn(
    serving: Serve, sdk: Path, tmp_path: Path
) -> None:
    cast = phrase_cast()
    cast.stt = ScriptedStt((TIME,) * 9)
    served = await serving(StagedAssistant(cast=cast), webrtc=True)
    pause = np.zeros(4 * LISTEN_RATE, np.int16)
    voice = np.concatenate((pause, recording("goforward").pcm, pause))
    with file_server() as pages:
        pages.files = {
            "/": PAGE.encode(),
            f"/{SDK}": await asyncio.to_thread((sdk / SDK).read_bytes),
        }
        async with browsing(tmp_path, voice) as visit:
            visit.page.set_default_timeout(SLOW_MS)
            await visit.page.goto(f"{pages.url}/")
            await hold_turns(visit.page, served)


async def hold_turns(page: Page, served: Served) -> None:
    await start(page, served)

    seen = await until(page, "output_audio_buffer.stopped")
    assert said(seen)[0] == NOON
    await page.wait_for_function(ENERGY)  # the browser may play it later than the server thinks

    await page.evaluate("session.mute(true)")
    before = seen.count(["response.done", ""])
    await page.evaluate("session.sendMessage('What is the weather in Paris?')")
    seen = await until(page, "response.done", before + 2)
    assert await page.evaluate("calls") == 1
    assert said(seen)[-1] == "The tool says sunny."

    await until(page, "output_audio_buffer.stopped", 2)
    await page.evaluate("session.sendMessage('Tell me a long story.')")
    await until(page, "output_audio_buffer.started", 3)
    await page.evaluate("session.interrupt()")
    seen = await until(page, "output_audio_buffer.cleared")
    seen = await until(page, "response.done", before + 3)
    assert len(said(seen)[-1]) < len(TALE)

    await page.evaluate("session.close()")
    await served.clients.empty()
    await start(page, served)
    await page.evaluate("session.sendMessage('What time is it?')")
    assert said(await until(page, "response.done"))[-1] == NOON
