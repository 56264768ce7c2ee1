"""Debian's Chromium, headless, whose microphone plays a file and whose loudspeaker is recorded.

Playback and microphone are recorded on one clock by a script of ours that taps the audio graph.
(The page's own policy forbids that to everyone else.)
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from playwright.async_api import BrowserContext, Page, async_playwright

from pipeline.audio import LISTEN_RATE, Pcm

_OPTIONS = (
    *("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"),
    *("--autoplay-policy=no-user-gesture-required", "--disable-gpu", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

_TAP = """
(() => {
  const connect = AudioNode.prototype.connect;
  const bytes = (floats) => {
    const view = new Uint8Array(floats.buffer.slice(0));
    let text = "";
    for (let at = 0; at < view.length; at += 8192)
      text += String.fromCharCode(...view.subarray(at, at + 8192));
    return btoa(text);
  };
  window.tapes = { played: [], spoken: [] };
  const tap = (node, name) => {
    const recorder = node.context.createScriptProcessor(2048, 1, 1);
    recorder.onaudioprocess = ({ inputBuffer, playbackTime }) => {
      tapes[name].push([playbackTime, bytes(inputBuffer.getChannelData(0))]);
    };
    connect.call(node, recorder);
    connect.call(recorder, node.context.destination);
    window.rate = node.context.sampleRate;
  };
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) tap(this, "played");
    if (this instanceof MediaStreamAudioSourceNode) tap(this, "spoken");
    return connect.call(this, target, ...rest);
  };
})();
"""


@dataclass
class Visit:
    """A page and every complaint in its console."""

    page: Page
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)

    async def tape(self, name: str) -> Pcm:
        """The audio ``played`` or ``spoken`` so far: int16 at 16 kHz, both starting at the same
        moment."""
        rate = await self.page.evaluate("window.rate")
        pieces: list[Any] = await self.page.evaluate(f"tapes.{name}")
        begun = await self.page.evaluate("Math.min(...Object.values(tapes).flat().map(([t]) => t))")
        last = max(at for at, _ in pieces) - begun
        whole = np.zeros(round(last * rate) + 4096, dtype=np.float32)
        for at, text in pieces:
            piece = np.frombuffer(base64.b64decode(text), dtype=np.float32)
            start = round((at - begun) * rate)
            whole[start : start + len(piece)] = piece
        pcm = soxr.resample(whole, rate, LISTEN_RATE)
        return np.asarray(np.clip(pcm, -1, 1) * 32767, dtype=np.int16)


@asynccontextmanager
async def browsing(
    tmp_path: Path, said: Pcm | None = None, *, more: Sequence[str] = (), **options: Any
) -> AsyncIterator[Visit]:
    """``said``: played into the microphone once, at 16 kHz; silence if omitted. ``options``: for
    the browser context."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium; run: apt-get install chromium")
    voice = tmp_path / "microphone.wav"
    silence = np.zeros(LISTEN_RATE, dtype=np.int16)
    soundfile.write(voice, silence if said is None else said, LISTEN_RATE)
    spoken = f"--use-file-for-fake-audio-capture={voice}%noloop"
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=[*_OPTIONS, spoken, *root, *more]
        )
        context = await browser.new_context(**options)
        await context.grant_permissions(["microphone"])
        await context.add_init_script(_TAP)
        page = await context.new_page()
        visit = Visit(page, context)
        page.on(
            "console",
            lambda each: visit.complaints.append(each.text) if each.type == "error" else None,
        )
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        yield visit
        await browser.close()
