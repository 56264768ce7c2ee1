"""Whether the final transcript of a session is as good as one pass over the same samples.

    python -m benchmarks.final_wer [--engine moonshine | parakeet] [--corpus DIRECTORY] [--out FILE]

A real session hears each recording with partial transcripts; the range that it commits is given,
in one piece, to another instance of the recogniser (Moonshine), or to NeMo's own ``transcribe``
(Parakeet: the tiny model of the tests and the sentences that it knows). Both are compared with what
is said, and with each other, utterance by utterance. ``--corpus``: a folder of
``benchmarks.turns``; what is said there is not needed, for the difference is.

Exit code 0: both are the same everywhere. 1: they are not, a transcript failed, or nothing at all
was heard of a recording.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.wer import word_errors
from pipeline.audio import LISTEN_RATE, AudioHistory, Pcm
from pipeline.bus import Bus
from pipeline.commands import AppendAudio, RetrieveItem, SessionConfig, TurnDetection
from pipeline.events import (
    Refused,
    SpeechRejected,
    SpeechStarted,
    SpeechStopped,
    TranscriptFailed,
    TranscriptReady,
)

LISTEN_ONLY = SessionConfig(
    instructions="", turn_detection=TurnDetection(create_response=False), partials=True
)
Batch = Callable[[Pcm], str]


@dataclass(frozen=True, slots=True)
class Speech:
    name: str
    pcm: Pcm
    text: str


@dataclass(frozen=True, slots=True)
class Utterance:
    name: str
    final: str
    """Empty where it failed."""
    batch: str
    failed: bool = False


def recorded() -> Iterator[Speech]:
    for each in importlib.import_module("tests.support.recordings").real_recordings():
        yield Speech(each.name, each.pcm, each.text)


def of_corpus(folder: Path) -> Iterator[Speech]:
    for path in sorted(folder.rglob("*.flac")):
        pcm, rate = soundfile.read(path, dtype="int16")
        if rate == LISTEN_RATE and pcm.ndim == 1:
            yield Speech(path.stem, pcm, "")


def of_tiny_parakeet() -> Iterator[Speech]:
    tiny = importlib.import_module("tests.support.tiny_parakeet")
    for phrase in tiny.PHRASES:
        for voice in ("en-us", "en-us+m3", "en-us+f2"):
            yield Speech(f"{voice}: {phrase}", tiny.say(phrase, voice), phrase)


def room(seconds: float) -> Pcm:
    return np.random.default_rng(0).normal(0, 8, int(seconds * LISTEN_RATE)).astype(np.int16)


async def utterances(assistant: Assistant, speech: Speech, batch: Batch) -> list[Utterance]:
    """What a session makes of it, and what a batch pass does."""
    bus = Bus()
    events: list[Any] = []
    changed = asyncio.Event()

    def note(published: Any) -> None:
        events.append(published.event)
        changed.set()

    bus.tap(note)
    heard = AudioHistory(LISTEN_RATE * 600)
    session = assistant.session(bus, LISTEN_ONLY)
    running = asyncio.create_task(session.run())

    def all_of(*kinds: type[Any]) -> list[Any]:
        return [event for event in events if isinstance(event, kinds)]

    try:
        pcm = np.concatenate((room(0.6), speech.pcm, room(2.0)))
        for start in range(0, len(pcm), 512):
            heard.append(pcm[start : start + 512])
            await session.submit(AppendAudio(pcm[start : start + 512], LISTEN_RATE))
        await session.submit(RetrieveItem("none"))  # refused, when all is heard
        ends = (TranscriptReady, TranscriptFailed, SpeechRejected)
        while not all_of(Refused) or len(all_of(*ends)) < len(all_of(SpeechStarted)):
            changed.clear()
            await changed.wait()
    finally:
        running.cancel()
        await asyncio.wait({running})
        bus.close()
    starts = {event.item_id: event.audio_ms for event in all_of(SpeechStarted)}
    ends_ms = {event.item_id: event.audio_ms for event in all_of(SpeechStopped)}
    found = []
    for final in all_of(TranscriptReady, TranscriptFailed):
        begin, end = (moments[final.item_id] * 16 for moments in (starts, ends_ms))
        text = await asyncio.to_thread(batch, heard.read(begin, end))
        failed = isinstance(final, TranscriptFailed)
        found.append(Utterance(speech.name, "" if failed else final.text, text, failed))
    return found


def moonshine_batch(cache: WeightsCache) -> Batch:
    from pipeline.engines.stt.moonshine import SPEC, MoonshineOptions

    engine = SPEC.build(MoonshineOptions(), cache.path("moonshine-tiny-en"))
    uncancelled = importlib.import_module("tests.support.recordings").Uncancelled()

    def batch(pcm: Pcm) -> str:
        utterance = engine.open("en", False)
        utterance.feed(pcm)
        return str(utterance.finish(uncancelled).text)

    return batch


def nemo_batch() -> Batch:
    from nemo.collections.asr.models import ASRModel

    tiny = importlib.import_module("tests.support.tiny_models.parakeet")
    model = ASRModel.restore_from(str(tiny.FILE), map_location="cpu").eval()

    def batch(pcm: Pcm) -> str:
        # As NeMo has it: less than a second gets silence on both sides.
        found = model.transcribe([pcm.astype(np.float32) / 32768], verbose=False)
        return str(found[0].text)

    return batch


@asynccontextmanager
async def running(settings: Sequence[str]) -> AsyncIterator[tuple[Assistant, WeightsCache]]:
    loaded = load_settings(None, settings).settings
    cache = WeightsCache(loaded.paths.cache(os.environ))
    assistant = Assistant(loaded, cache)
    async with asyncio.TaskGroup() as group:
        group.create_task(assistant.run())
        await assistant.ready.wait()
        yield assistant, cache
        assistant.close()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    engine = ["llm.threads=1"]
    speeches = [*recorded(), *(of_corpus(options.corpus) if options.corpus else ())]
    if options.engine == "parakeet":
        tiny = importlib.import_module("tests.support.tiny_models.parakeet")
        engine.append(
            f"stt={{engine: parakeet, weights: null, model_file: {tiny.FILE}, precision: fp32,"
            " partials: true}"
        )
        speeches = [*of_tiny_parakeet()]
    async with running(engine) as (assistant, cache):
        batch = nemo_batch() if options.engine == "parakeet" else moonshine_batch(cache)
        found = [await utterances(assistant, speech, batch) for speech in speeches]
    said = [(speech, each) for speech, each in zip(speeches, found, strict=True) if speech.text]

    def wer(of: Callable[[Utterance], str]) -> float:
        errors = [word_errors(s.text, " ".join(map(of, each))) for s, each in said]
        return sum(e.errors for e in errors) / sum(e.words for e in errors)

    everything = [utterance for each in found for utterance in each]
    final, whole = wer(lambda each: each.final), wer(lambda each: each.batch)
    return {
        "engine": options.engine,
        "recordings": len(speeches),
        "utterances": len(everything),
        "words_known": sum(len(speech.text.split()) for speech, _ in said),
        "wer_final": round(final, 4),
        "wer_batch": round(whole, 4),
        "difference": round(final - whole, 4),
        "utterances_that_differ": [
            vars_of(each) for each in everything if each.final != each.batch
        ],
        "failed": sum(each.failed for each in everything),
        "not_heard": [s.name for s, each in zip(speeches, found, strict=True) if not each],
    }


def exit_code(report: Mapping[str, Any]) -> int:
    """0: every recording was heard, and as well as in one pass."""
    wrong = ("difference", "utterances_that_differ", "failed", "not_heard")
    return 1 if any(report[key] for key in wrong) else 0


def vars_of(utterance: Utterance) -> dict[str, str]:
    return {"name": utterance.name, "final": utterance.final, "batch": utterance.batch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.final_wer")
    parser.add_argument("--engine", choices=("moonshine", "parakeet"), default="moonshine")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = asyncio.run(measure(options))
    text = json.dumps(report | {"load_average": os.getloadavg()[0]}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(exit_code(report))


if __name__ == "__main__":
    main()
