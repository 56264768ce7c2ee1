"""Draw a conversation as it happens: a question, its answer, a "yeah" and a "stop" over it.

    python -m benchmarks.picture docs/images/conversation.svg [--config PROFILE|FILE]

Starts a server and talks to it over the WebSocket, in real time. The picture shows what a client
hears and says: its microphone above, its loudspeaker below, and the events between them.
"""

from __future__ import annotations

import asyncio
import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.cli.measuring import spawned_server
from app.talk.realtime_client import RATE, dial, room_tone
from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.energy import speech_span
from benchmarks.harness.heard_speech import run_program
from benchmarks.harness.program import arguments
from benchmarks.harness.robot import RobotClient
from pipeline.audio import LISTEN_RATE, Pcm, pcm_from_bytes, resampled

VOICE = "flite slt"
QUESTION, BACKCHANNEL, COMMAND = "Why is the sky blue?", "Yeah.", "Stop."
BACKCHANNEL_S, COMMAND_S, END_S = 2.0, 4.5, 2.0
"""Seconds after the answer's first sample; the last: how long the picture outlasts the answer."""
BAR_MS = 40
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

    def later(self, by_s: float) -> Caption:
        return Caption(self.text, self.start_s + by_s, self.end_s + by_s)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What the client said and heard: int16 at ``RATE``, times in s since it began to listen."""

    microphone: Pcm
    words: tuple[Caption, Caption, Caption]
    answer: Sequence[tuple[float, Pcm]]
    """The start and the samples of each part."""
    transcript: str
    silent_s: float


class DialogueClient(RobotClient):
    """Keeps what it hears. ``answer``: each part with the loop's time at which it is played."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self.answer: list[tuple[float, Pcm]] = []
        self.transcript = ""

    async def _receive(self) -> dict[str, Any]:
        event = await super()._receive()
        match event["type"]:
            case "response.output_audio.delta":
                pcm = pcm_from_bytes(base64.b64decode(event["delta"]))
                self.answer.append((self.player.until - len(pcm) / RATE, pcm))
            case "response.output_audio_transcript.delta":
                self.transcript += event["delta"]
            case "error":
                raise RuntimeError(event["error"]["message"])
        return event


def speak(text: str) -> tuple[Pcm, Caption]:
    """``text`` at ``RATE``, over the tone of a quiet room."""
    pcm = run_program(VOICE, text)
    span = speech_span(to_signal(pcm))
    sound = resampled(pcm, LISTEN_RATE, RATE)
    caption = Caption(text, span.start / LISTEN_RATE, span.end / LISTEN_RATE)
    return sound + room_tone(len(sound)), caption


async def record(config: str) -> Dialogue:
    """Hold the conversation. Raises ``RuntimeError`` if it does not go as planned."""
    (why, question), (yeah, backchannel), (stop, command) = map(
        speak, (QUESTION, BACKCHANNEL, COMMAND)
    )
    pause = room_tone(round((COMMAND_S - BACKCHANNEL_S) * RATE) - len(yeah))
    over = np.concatenate((yeah, pause, stop))
    onset_s = command.start_s + COMMAND_S - BACKCHANNEL_S
    async with spawned_server(("--config", config)) as server, dial(server.url) as socket:
        client = DialogueClient(socket)
        await client.configure()
        began = asyncio.get_running_loop().time()
        times = await client.interrupt(over, onset_s, BACKCHANNEL_S, why)
    if times.missed:
        raise RuntimeError("The answer was not interrupted by the command: try again")
    answer = [(at - began, pcm) for at, pcm in client.answer]
    over_s = answer[0][0] + BACKCHANNEL_S
    silent_s = over_s + onset_s + times.silent_ms / 1000
    microphone = np.zeros(round((silent_s + END_S) * RATE), np.int16)
    for at_s, pcm in ((0.0, why), (over_s, over)):
        start = round(at_s * RATE)
        microphone[start : start + len(pcm)] = pcm[: len(microphone) - start]
    words = (question, backchannel.later(over_s), command.later(over_s + COMMAND_S - BACKCHANNEL_S))
    return Dialogue(microphone, words, answer, client.transcript, silent_s)


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


def draw(talk: Dialogue) -> str:
    question, backchannel, command = talk.words
    upper, lower = 62, 166
    first_s = talk.answer[0][0]
    picture = Drawing(len(talk.microphone) / RATE)
    picture.text(None, upper + 5, "person")
    picture.text(None, lower + 5, "robot")
    picture.bars(talk.microphone, 0.0, upper, "a")
    robot = np.zeros(int(talk.silent_s * RATE), np.int16)
    for start_s, pcm in talk.answer:
        start = int(start_s * RATE)
        robot[start : start + len(pcm)] = pcm[: max(0, len(robot) - start)]
    picture.bars(robot[int(first_s * RATE) :], first_s, lower, "b")
    for words in talk.words:
        picture.text(words.start_s, 20, words.text)
    for at_s in (question.end_s, first_s, command.start_s, talk.silent_s):
        picture.mark(at_s, 30, 200)
    picture.text(first_s, 218, f"“{shorten(talk.transcript)}”")
    latency_ms = 1000 * (first_s - question.end_s)
    picture.text(question.end_s, 240, f"answers after {latency_ms:.0f} ms", "n")
    picture.text(backchannel.start_s, 240, "goes on", "n")
    silent_ms = 1000 * (talk.silent_s - command.start_s)
    picture.text(command.start_s, 240, f"silent after {silent_ms:.0f} ms", "n")
    return picture.svg()


def shorten(text: str, letters: int = 78) -> str:
    text = " ".join(text.split())
    return text if len(text) <= letters else f"{text[:letters].rsplit(' ', 1)[0]} …"


def main() -> None:
    parser = arguments(__doc__, "benchmarks.picture")
    parser.add_argument("out", type=Path, help="where to write the picture (.svg)")
    parser.add_argument("--config", default="default", help="a profile, or a YAML file")
    args = parser.parse_args()
    args.out.write_text(draw(asyncio.run(record(args.config))), encoding="utf-8")


if __name__ == "__main__":
    main()
