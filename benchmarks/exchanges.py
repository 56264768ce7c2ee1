"""Engines replaced while a client talks: lost turns, dropped audio, and how long it takes.

    python -m benchmarks.exchanges [--exchanges N] [--config F] [--set K=V] [--seed S] [--out FILE]

The real server with its configured engines; a client like the robot's app plays recordings in real
time, one after the other. During each, at a random moment from its beginning to its answer, one
engine is replaced: each kind in turn, loaded beside the old engine or after unloading it. A turn is
lost if it was not recognised or not answered. Audio is dropped if the session has heard
fewer samples than the client has sent. Exit code 1: a turn was lost, audio was dropped, or a
response or a transcript failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from app.compose import Assistant
from app.models.memory_room import has_room
from app.models.weights import WeightsCache
from app.server.exchange import Exchange
from app.server.live_settings import LiveSettings
from app.server.serving import local_server
from app.settings.load import load_settings
from app.settings.model import Loaded
from benchmarks.harness.program import arguments, finish, load
from benchmarks.wer import word_errors
from tests.clients import robot_app as robot
from tests.support.recordings import real_recordings

EXCHANGES = (
    ("tts=espeak-ng", False),
    ("stt.partial_interval_ms=400", False),
    ("tts=piper", True),
    ("llm.context_tokens=4096", False),
    ("stt=moonshine", True),
    ("turn.run_in=process", False),
    ("llm=llama-cpp", True),
    ("vad.run_in=thread", False),
    ("turn=smart-turn", False),
    ("vad=silero", False),
)
"""The requested engine, and whether the old engine is unloaded first."""
MAX_SECONDS = 4.0
"""Longer recordings are not questions."""
LATEST_S = 6.0
ANSWER_S = 60.0


@dataclass
class Turn:
    text: str
    exchange: str
    at_s: float
    """After the start of the speech."""
    heard: str = ""
    answered: bool = False
    took_s: float = 0.0
    """Duration of the whole replacement."""
    answer_s: float = 0.0
    """From the end of the speech to the end of the answer."""

    @property
    def lost(self) -> bool:
        return not self.answered or not self.heard


@dataclass
class Report:
    turns: list[Turn] = field(default_factory=list)
    dropped_samples: int = 0
    failed: int = 0
    """Responses and transcripts that failed."""

    @property
    def exit_code(self) -> int:
        lost = not self.turns or any(turn.lost for turn in self.turns)
        return int(bool(lost or self.dropped_samples or self.failed))


async def talk(live: LiveSettings, assistant: Assistant, url: str, options: Any) -> Report:
    recordings = [each for each in real_recordings() if each.seconds <= MAX_SECONDS]
    rng, report = random.Random(options.seed), Report()
    notice = assistant.session_settings().notices_in("en").exchange_notice
    async with robot.robot_app(url) as app:
        for number in range(options.exchanges):
            asked, unload_first = EXCHANGES[number % len(EXCHANGES)]
            spoken = recordings[number % len(recordings)]
            turn = Turn(spoken.text, asked, rng.uniform(0, LATEST_S))
            report.turns.append(turn)
            async with asyncio.TaskGroup() as group:
                group.create_task(exchange(live, turn, unload_first))
                await hold(app, spoken, turn, notice)
        await app.unplug()
        before = app.count("session.updated")
        await app.update({"instructions": "Be brief."})
        await app.event("session.updated", before + 1)
        (session,) = assistant.sessions
        # The last window may be incomplete.
        missing = app.sent_samples - session._listener.heard_end
        report.dropped_samples = missing if missing >= assistant.stages.vad.window_samples else 0
        report.failed = sum(e["response"]["status"] == "failed" for e in app.all("response.done"))
        report.failed += app.count("conversation.item.input_audio_transcription.failed")
    return report


async def exchange(live: LiveSettings, turn: Turn, unload_first: bool) -> None:
    await asyncio.sleep(turn.at_s)
    began = time.monotonic()
    await live.use([turn.exchange], lambda step: None, unload_first)
    turn.took_s = time.monotonic() - began


async def hold(app: Any, spoken: Any, turn: Turn, notice: str) -> None:
    """Say it, and wait until everything heard is answered; ``notice`` does not count."""
    done, heard = "response.done", "conversation.item.input_audio_transcription.completed"
    texts, responses = app.count(heard), app.count(done)
    app.hears(spoken.pcm)
    await asyncio.sleep(spoken.seconds)
    ended = time.monotonic()
    finished = ("completed", "incomplete")

    def answers() -> list[Any]:
        given = [event["response"] for event in app.all(done)[responses:]]
        return [
            response
            for response in given
            if response["status"] in finished
            and response["output"]
            and response["output"][0]["content"][0].get("transcript") != notice
        ]

    try:
        async with asyncio.timeout(ANSWER_S):
            await app.until(lambda: bool(answers()) and app.count(heard) > texts and not app.busy)
    except TimeoutError:
        return
    turn.answered = True
    turn.answer_s = time.monotonic() - ended
    turn.heard = " ".join(event["transcript"] for event in app.all(heard)[texts:])


async def measure(options: argparse.Namespace) -> Report:
    def read(more: Sequence[str]) -> Loaded:
        return load_settings(options.config, [*options.sets, *more])

    loaded = read(())
    cache = WeightsCache(loaded.settings.paths.cache(os.environ))
    assistant = Assistant(loaded.settings, cache)
    live = LiveSettings(loaded, read, assistant, Exchange(assistant, partial(has_room, cache)))
    async with local_server(assistant) as url:
        return await talk(live, assistant, url, options)


def figures(report: Report) -> dict[str, Any]:
    took_s = [turn.took_s for turn in report.turns]
    errors = [word_errors(turn.text, turn.heard) for turn in report.turns]
    return {
        "exchanges": len(report.turns),
        "lost_turns": sum(turn.lost for turn in report.turns),
        "failed": report.failed,
        "dropped_samples": report.dropped_samples,
        "word_errors": sum(each.errors for each in errors),
        "words": sum(each.words for each in errors),
        "exchange_s": {"p50": round(median(took_s), 2), "max": round(max(took_s), 2)},
        "turns": [vars(turn) for turn in report.turns],
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.exchanges", settings=True)
    parser.add_argument("--exchanges", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    before = load()
    report = asyncio.run(measure(given))
    finish({**figures(report), "seed": given.seed}, given.out, before, details="turns")
    sys.exit(report.exit_code)


if __name__ == "__main__":
    main()
