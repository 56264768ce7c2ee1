"""Draw a conversation as it happens: a question, its answer, a "yeah" and a "stop" over it.

    python -m benchmarks.picture docs/images/conversation.svg [--config PROFILE|FILE]

A server of its own is asked over the WebSocket, in real time. What is drawn is what a client
hears: its microphone above, its loudspeaker below, and the moments between them.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import websockets.asyncio.client

from app.cli.measuring import spawned_server
from app.talk.realtime_client import RATE, room_tone
from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.energy import speech_span
from benchmarks.harness.heard_speech import run_program
from benchmarks.harness.program import arguments
from pipeline.audio import LISTEN_RATE, Pcm, Resampler, pcm_from_bytes, pcm_to_bytes
from pipeline.speaking.playback import PlaybackClock

VOICE = "flite slt"
QUESTION, BACKCHANNEL, COMMAND = "Why is the sky blue?", "Yeah.", "Stop."
BACKCHANNEL_S, COMMAND_S, END_S = 2.0, 4.5, 2.0
"""After the answer's first sample; and after the command's onset."""
CHUNK_MS, BAR_MS = 20, 40
WIDTH, LEFT, LANE, HEIGHT = 960, 76, 52, 250
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.a{fill:#0969da}.b{fill:#8250df}"
    ".m{stroke:#57606a;stroke-dasharray:3 3}.n{font-size:12px;fill:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.a{fill:#58a6ff}.b{fill:#bc8cff}"
    ".m{stroke:#8b949e}.n{fill:#8b949e}}"
)


@dataclass(frozen=True, slots=True)
class Caption:
    """What was said from ``start_s`` to ``end_s`` of the picture."""

    text: str
    start_s: float
    end_s: float


@dataclass(slots=True)
class Dialogue:
    """What the client said and heard, in seconds since it began to listen; int16 at ``RATE``."""

    microphone: list[Pcm] = field(default_factory=list)
    words: list[Caption] = field(default_factory=list)
    answer: list[tuple[float, Pcm]] = field(default_factory=list)
    """When each part is played, and its sound."""
    transcript: str = ""
    first_audio_s: float = 0.0
    silent_s: float = 0.0


class Client:
    """Speaks and listens as a person at a headset would."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection) -> None:
        self.heard = Dialogue()
        self._socket = socket
        self._player = PlaybackClock()
        self._answering = asyncio.Event()
        self._began = 0.0

    async def converse(self) -> Dialogue:
        """The whole conversation. Raises ``RuntimeError`` if the server reports an error."""
        self._began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen())
            await self._say(QUESTION, 0.5)
            while not self._answering.is_set():
                await self._pause(CHUNK_MS / 1000)
            first_s = self.heard.first_audio_s
            await self._say(BACKCHANNEL, first_s + BACKCHANNEL_S)
            await self._say(COMMAND, first_s + COMMAND_S)
            await self._pause(END_S)
            listening.cancel()
        return self.heard

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    async def _say(self, text: str, at_s: float) -> None:
        await self._pause(at_s - len(self.heard.microphone) * CHUNK_MS / 1000)
        resampler = Resampler(LISTEN_RATE, RATE)
        pcm = run_program(VOICE, text)
        span = speech_span(to_signal(pcm))
        start_s = len(self.heard.microphone) * CHUNK_MS / 1000
        self.heard.words.append(
            Caption(text, start_s + span.start / LISTEN_RATE, start_s + span.end / LISTEN_RATE)
        )
        await self._send(np.concatenate((resampler.feed(pcm), resampler.flush())))

    async def _pause(self, seconds: float) -> None:
        await self._send(np.zeros(int(max(0.0, seconds) * RATE), np.int16))

    async def _send(self, pcm: Pcm) -> None:
        """In real time, over the tone of a quiet room."""
        size = RATE * CHUNK_MS // 1000
        for start in range(0, len(pcm), size):
            chunk = pcm[start : start + size]
            chunk = np.pad(chunk, (0, size - len(chunk))) + room_tone(size)
            self.heard.microphone.append(chunk)
            await asyncio.sleep(len(self.heard.microphone) * CHUNK_MS / 1000 - self._now())
            audio = base64.b64encode(pcm_to_bytes(chunk)).decode()
            await self._socket.send(
                json.dumps({"type": "input_audio_buffer.append", "audio": audio})
            )

    async def _listen(self) -> None:
        async for message in self._socket:
            event = json.loads(message)
            match event["type"]:
                case "response.output_audio.delta" if not self.heard.silent_s:
                    pcm = pcm_from_bytes(base64.b64decode(event["delta"]))
                    self.heard.answer.append((max(self._now(), self._player.plays_until), pcm))
                    self._player.send(len(pcm) / RATE, self._now())
                    self.heard.first_audio_s = self.heard.first_audio_s or self._now()
                    self._answering.set()
                case "response.output_audio_transcript.delta" if not self.heard.silent_s:
                    self.heard.transcript += event["delta"]
                case "input_audio_buffer.speech_started" if self._answering.is_set():
                    self.heard.silent_s = min(self._now(), self._player.plays_until)
                case "error":
                    raise RuntimeError(event["error"]["message"])


async def recorded(config: str) -> Dialogue:
    async with (
        spawned_server(("--config", config)) as server,
        websockets.asyncio.client.connect(server.url) as socket,
    ):
        return await Client(socket).converse()


# --- drawing -----------------------------------------------------------------------------------


class Drawing:
    """An SVG, ``seconds`` wide."""

    def __init__(self, seconds: float) -> None:
        self._per_second = (WIDTH - LEFT - 8) / seconds
        self._parts = [f"<style>{STYLE}</style>"]

    def bars(self, pcm: Pcm, start_s: float, middle: int, kind: str) -> None:
        """A waveform around the line ``middle``."""
        size = RATE * BAR_MS // 1000
        levels = np.abs(pcm[: len(pcm) // size * size].reshape(-1, size).astype(int)).max(axis=1)
        for number, level in enumerate(levels / max(1, levels.max())):
            half = max(0.6, level * LANE / 2)
            at = self._x(start_s + number * BAR_MS / 1000)
            self._parts.append(
                f'<rect class="{kind}" x="{at:.1f}" y="{middle - half:.1f}" rx="1" '
                f'width="{self._per_second * BAR_MS / 1000 * 0.7:.1f}" height="{2 * half:.1f}"/>'
            )

    def mark(self, at_s: float, top: int, bottom: int) -> None:
        x = self._x(at_s)
        self._parts.append(f'<line class="m" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')

    def text(self, at_s: float | None, y: int, words: str, kind: str = "") -> None:
        x = 4 if at_s is None else self._x(at_s)
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y}">{html.escape(words)}</text>')

    def svg(self) -> str:
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
            f"{body}\n</svg>\n"
        )

    def _x(self, at_s: float) -> float:
        return LEFT + at_s * self._per_second


def drawn(talk: Dialogue) -> str:
    """The picture. Raises ``RuntimeError`` if the conversation did not go as planned."""
    if len(talk.words) != 3 or talk.silent_s < talk.words[2].start_s:
        raise RuntimeError("The answer was not interrupted by the command: try again")
    question, backchannel, command = talk.words
    upper, lower = 62, 166
    microphone = np.concatenate(talk.microphone)
    picture = Drawing(len(microphone) / RATE)
    picture.text(None, upper + 5, "person")
    picture.text(None, lower + 5, "robot")
    picture.bars(microphone, 0.0, upper, "a")
    robot = np.zeros(int(talk.silent_s * RATE), np.int16)
    for start_s, pcm in talk.answer:
        start = int(start_s * RATE)
        robot[start : start + len(pcm)] = pcm[: max(0, len(robot) - start)]
    first = int(talk.first_audio_s * RATE)
    picture.bars(robot[first:], talk.first_audio_s, lower, "b")
    for words in talk.words:
        picture.text(words.start_s, 20, words.text)
    for at_s in (question.end_s, talk.first_audio_s, command.start_s, talk.silent_s):
        picture.mark(at_s, 30, 200)
    picture.text(talk.first_audio_s, 218, f"“{shortened(talk.transcript)}”")
    latency_ms = 1000 * (talk.first_audio_s - question.end_s)
    picture.text(question.end_s, 240, f"answers after {latency_ms:.0f} ms", "n")
    picture.text(backchannel.start_s, 240, "goes on", "n")
    silent_ms = 1000 * (talk.silent_s - command.start_s)
    picture.text(command.start_s, 240, f"silent after {silent_ms:.0f} ms", "n")
    return picture.svg()


def shortened(text: str, letters: int = 78) -> str:
    text = " ".join(text.split())
    return text if len(text) <= letters else f"{text[:letters].rsplit(' ', 1)[0]} …"


def main() -> None:
    parser = arguments(__doc__, "benchmarks.picture")
    parser.add_argument("out", type=Path, help="where to write the picture (.svg)")
    parser.add_argument("--config", default="default", help="a profile, or a YAML file")
    options = parser.parse_args()
    options.out.write_text(drawn(asyncio.run(recorded(options.config))), encoding="utf-8")


if __name__ == "__main__":
    main()
