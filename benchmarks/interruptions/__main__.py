"""Does speech over an answer stop it, and only if it should? How fast, and what is heard?

    python -m benchmarks.interruptions CORPUS [--part tuning|frozen] [--people FOLDER] [--seed N]
                                       [--set K=V] [--out FILE]
    python -m benchmarks.interruptions --language de    # phrases of ``languages``, with Whisper

Each scene (``benchmarks.interruptions.scenes``) is played to a real session in virtual time, in
20 ms pieces, over a long answer. Silero and Moonshine are real; their calls, the answer and the
voice take their measured times (``benchmarks.harness.virtual_engines``). There is no echo.

- **held**: from the onset until the server stops sending although it has more.
- **verdict**: from the onset until the client is told of the interruption, or the answer goes on.
- **silent**: from the onset until a reference client with 120 ms of output latency is silent: it
  flushes its player on ``speech_started``, or has played all it was sent.
- **stopped**: share of scenes in which the answer was cancelled.
- **lost**: share of scenes in which the answer was cancelled and never resumed.
- **resumed**: from the onset until the rest of a cancelled answer begins.
- **first word**: share of interruptions whose transcript has the first word: the beginning was not
  lost. Counted where one pass from 0.2 s before the onset to the same end finds that word.

Intervals are bootstrapped by source.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console

from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.harness.ears import Ears, ears_of, open_memo
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.played_scene import session_settings
from benchmarks.harness.played_session import SPOKEN, played_session
from benchmarks.harness.program import arguments, keep, weights
from benchmarks.harness.statistics import Bootstrap
from benchmarks.harness.virtual_engines import (
    EMBEDDED,
    Computer,
    ModelResults,
    VirtualLlm,
    virtual_stages,
)
from benchmarks.interruptions.languages import AGREES, WHISPER_S, WhisperEars, phrases
from benchmarks.interruptions.scenes import InterruptionScene, Kind, scenes
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse, SessionConfig
from pipeline.engines.stages import Stages
from pipeline.events import (
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TranscriptReady,
)
from pipeline.settings import SessionSettings
from pipeline.speaking.playback import PlaybackClock
from reachy_voice.testing import run_virtual

CHUNK_SAMPLES = LISTEN_RATE // 50
CLIENT_LATENCY_S = 0.12
"""Latency of the reference client's output."""
IDEAL_LEAD_S = 0.2
GAP_S = 0.06
"""Audio is sent every 40 ms; a longer interval counts as a gap."""

MOMENTS = ("held_ms", "verdict_ms", "silent_ms")
NOT_MEANT = ("backchannel", "noise", "backchannel of people", "not meant")
"""Sounds after which an answer should go on; the last is the first two together."""


@dataclass(frozen=True, slots=True)
class OverlapOutcome:
    """The result of one scene. Times are ms from the onset; ``None``: it did not happen."""

    kind: Kind
    source: str
    said: str
    stopped: bool
    lost: bool
    held_ms: float | None
    verdict_ms: float | None
    silent_ms: float | None
    resumed_ms: float | None
    read: str
    first_word: bool | None


def play(
    scene: InterruptionScene,
    ears: ModelResults,
    settings: Settings,
    language: str = "",
    stt_pass_s: float = EMBEDDED.stt_pass_s,
) -> OverlapOutcome:
    computer = Computer(replace(EMBEDDED, stt_pass_s=stt_pass_s))
    llm = VirtualLlm(ears, computer, answer=("Then ", "I ", "went ", "on. ") * 20)
    stages = virtual_stages(scene.pcm, llm)
    config = replace(SPOKEN, language=language) if language else SPOKEN
    log = run_virtual(_listen(scene, stages, session_settings(settings), config))
    return _outcome(scene, log, ears if isinstance(ears, Ears) else None)


async def _listen(
    scene: InterruptionScene, stages: Stages, settings: SessionSettings, config: SessionConfig
) -> list[Published]:
    log: list[Published] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with played_session(stages, settings, log.append, config) as session:
        await session.submit(CreateResponse())
        for at in range(0, len(scene.pcm), CHUNK_SAMPLES):
            chunk = scene.pcm[at : at + CHUNK_SAMPLES]
            await asyncio.sleep(began + (at + len(chunk)) / LISTEN_RATE - loop.time())
            await session.submit(AppendAudio(chunk, LISTEN_RATE))
    return log


def _outcome(
    scene: InterruptionScene, log: Sequence[Published], ears: Ears | None
) -> OverlapOutcome:
    onset_s = scene.onset / LISTEN_RATE
    first_reply = next(event.reply_id for _, event in log if isinstance(event, ReplyAudio))
    audio = [
        (at, len(event.pcm) / event.rate)
        for at, event in log
        if isinstance(event, ReplyAudio) and event.reply_id == first_reply
    ]
    stopped_at = next(
        (
            at
            for at, event in log
            if isinstance(event, ReplyFinished) and event.reason == "turn_detected"
        ),
        None,
    )
    told_at = next((at for at, event in log if isinstance(event, SpeechStarted)), None)
    held_at, went_on_at = _gap(audio, onset_s, stopped_at)
    verdict_at = told_at if stopped_at is not None else went_on_at
    rest_id = next(
        (e.reply_id for _, e in log if isinstance(e, ReplyStarted) and e.continues), None
    )
    rest_at = next(
        (at for at, e in log if isinstance(e, ReplyAudio) and e.reply_id == rest_id), None
    )

    def since(at: float | None) -> float | None:
        return None if at is None else round((at - onset_s) * 1000, 1)

    silent_at = None
    if stopped_at is not None:
        silent_at = min(stopped_at, _played_until(audio)) + CLIENT_LATENCY_S
    transcript = next((event.text for _, event in log if isinstance(event, TranscriptReady)), "")
    return OverlapOutcome(
        kind=scene.kind,
        source=scene.source,
        said=scene.text,
        stopped=stopped_at is not None,
        lost=stopped_at is not None and rest_at is None,
        held_ms=since(held_at),
        verdict_ms=since(verdict_at),
        silent_ms=since(silent_at),
        resumed_ms=since(rest_at),
        read=transcript,
        first_word=_first_word(scene, transcript, _end(log), ears),
    )


def _gap(
    audio: list[tuple[float, float]], onset_s: float, stopped_at: float | None
) -> tuple[float | None, float | None]:
    """When sending stops after the onset, and when it resumes."""
    for (at, _), (after, _) in itertools.pairwise(audio):
        if after > onset_s and after - at > GAP_S:
            return max(at, onset_s), after
    return (max(audio[-1][0], onset_s) if stopped_at else None), None


def _played_until(audio: list[tuple[float, float]]) -> float:
    clock = PlaybackClock()
    for at, seconds in audio:
        clock.send(seconds, at)
    last = audio[-1][0]
    return last + clock.sent_seconds - clock.heard_seconds(last)


def _end(log: Sequence[Published]) -> int | None:
    """The last sample of the first committed speech."""
    item_id = next((e.item_id for _, e in log if isinstance(e, TranscriptReady)), None)
    for _, event in log:
        if isinstance(event, SpeechStopped) and event.item_id == item_id:
            return event.audio_ms * LISTEN_RATE // 1000
    return None


def _first_word(
    scene: InterruptionScene, transcript: str, end: int | None, ears: Ears | None
) -> bool | None:
    """Whether the transcript has the first word; ``None`` if one pass does not find it either."""
    if not scene.interrupts or ears is None:
        return None
    start = scene.onset - int(IDEAL_LEAD_S * LISTEN_RATE)
    ideal = words(ears.transcribe(scene.pcm[start:end]))
    if ideal[:1] != words(scene.text)[:1]:
        return None
    return words(transcript)[:1] == ideal[:1]


# --- figures -----------------------------------------------------------------------------------


def figures(outcomes: Sequence[OverlapOutcome]) -> dict[str, Any]:
    bootstrap = Bootstrap([each.source for each in outcomes])
    of: dict[str, list[OverlapOutcome]] = {
        kind: [each for each in outcomes if each.kind == kind] for kind in get_args(Kind)
    }
    of["meant"], of["not meant"] = of["question"] + of["command"], of["backchannel"] + of["noise"]
    report: dict[str, Any] = {}
    for name, some in of.items():
        if some:
            report[name] = {"stopped": _share(bootstrap, some, "stopped")}
            for moment in MOMENTS:
                report[name][moment] = _times(bootstrap, some, moment)
        if some and name in NOT_MEANT:
            report[name]["lost"] = _share(bootstrap, some, "lost")
            report[name]["resumed_ms"] = _times(bootstrap, some, "resumed_ms")
    if with_words := [each for each in of["meant"] if each.first_word is not None]:
        report["meant"]["first_word"] = _share(bootstrap, with_words, "first_word")
    return report


def _share(bootstrap: Bootstrap, outcomes: Sequence[OverlapOutcome], name: str) -> dict[str, Any]:
    values = [float(getattr(each, name)) for each in outcomes]
    return asdict(bootstrap.mean(values, [each.source for each in outcomes]))


def _times(bootstrap: Bootstrap, outcomes: Sequence[OverlapOutcome], name: str) -> dict[str, Any]:
    some = [each for each in outcomes if getattr(each, name) is not None]
    values = [float(getattr(each, name)) for each in some]
    sources = [each.source for each in some]
    return {
        f"p{percent}": asdict(bootstrap.percentile(values, percent, sources))
        for percent in (50, 95)
    }


def _show(console: Console, report: dict[str, Any]) -> None:
    def text(estimate: dict[str, Any], factor: float = 1, digits: int = 0) -> str:
        if estimate["value"] is None:
            return "-"
        value, low, high = (estimate[key] * factor for key in ("value", "low", "high"))
        return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] n={estimate['n']}"

    for kind, data in report.items():
        console.print(f"[bold]{kind}[/bold]: stopped {text(data['stopped'], 100, 1)} %")
        if "lost" in data:
            console.print(f"    lost {text(data['lost'], 100, 1)} %")
        for moment in (*MOMENTS, "resumed_ms"):
            if moment in data:
                p50, p95 = (text(data[moment][each]) for each in ("p50", "p95"))
                console.print(f"    {moment:12} P50 {p50}   P95 {p95}")
        if "first_word" in data:
            console.print(f"    first word {text(data['first_word'], 100, 1)} %")


def main() -> None:
    parser = arguments(__doc__, "benchmarks.interruptions", settings=True)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--language", choices=list(AGREES), help="instead of a corpus")
    parser.add_argument("--part", choices=("tuning", "frozen"), default="tuning")
    parser.add_argument("--people", type=Path, help="made by benchmarks.turns.backchannels")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    settings = load_settings(args.config or "default", args.sets).settings
    console = Console(highlight=False, soft_wrap=True)
    with open_memo(settings) as memo:
        ears = ears_of(settings, memo)
        try:
            if args.language:
                rng, whisper = np.random.default_rng(args.seed), WhisperEars(ears)
                of: Iterable[InterruptionScene] = phrases(args.language, rng)
                outcomes = [play(one, whisper, settings, args.language, WHISPER_S) for one in of]
            elif args.corpus:
                voices = Voices(weights("piper-joe"))
                of = scenes(args.part, args.corpus, voices, args.seed, args.people)
                outcomes = [play(one, ears, settings) for one in of]
            else:
                parser.error("give a corpus or --language")
        except FileNotFoundError as error:
            sys.exit(str(error))
    report = figures(outcomes)
    _show(console, report)
    for each in outcomes:
        what = f"{each.kind} {each.said!r} read {each.read!r} ({each.source})"
        if each.first_word is False:
            console.print(f"  first word: {what}")
        wrong = each.stopped != (each.kind in ("question", "command"))
        if wrong and each.kind != "side speech":
            console.print(f"  wrong: {what}")
    data = {
        "part": args.language or args.part,
        "seed": args.seed,
        "set": args.sets,
        "figures": report,
    }
    keep({**data, "scenes": [asdict(each) for each in outcomes]}, args.out)


if __name__ == "__main__":
    main()
