"""Measures the three engines alone, through our own classes, with the profile's options."""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

from app.settings.load import load_settings
from benchmarks.gpu.models import cache, settings_file
from benchmarks.gpu.report import Report, gpu_mb, timed
from benchmarks.gpu.speech import recordings, talk
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import TextDelta
from pipeline.engines.registry import Kind
from pipeline.messages import LlmRequest, Message, Sampling, SpeechRequest
from pipeline.work import NEVER, Cancelled, Priority
from pipeline.workers.host import Answer, Cancel, Credit, EngineHost, Item, JobEnd, Submit

STEP = LISTEN_RATE // 50


def _engine(args: argparse.Namespace, kind: Kind, report: Report, build: Callable[..., Any]) -> Any:
    """The profile's engine; reports how long it took to load."""
    options = load_settings(str(settings_file(args))).settings.engine(kind)
    made = f"made: {getattr(options, 'model_file', '') or args.voice}"
    report.note("weights", options.weights_name or made)
    weights = cache(args).of(options)
    seconds, engine = timed(lambda: build(options, weights))
    report.figure("load", "s", seconds)
    return engine


# --- the recogniser ----------------------------------------------------------------------------


def stt(args: argparse.Namespace, report: Report) -> None:
    from pipeline.engines.stt.parakeet import build

    before = gpu_mb()
    report.figure(
        "import", "s", timed(lambda: importlib.import_module("nemo.collections.asr.models"))[0]
    )
    engine = _engine(args, Kind.STT, report, build)
    clips = recordings(args.speech, tiny=True)
    for seconds in (1, 3) if args.small else (1, 3, 10, 30):
        with report.part(f"final pass, {seconds} s"):
            _final_passes(
                engine,
                report,
                [talk(clips, seconds, n * 1600) for n in range(args.repeats + 3)],
            )
    with report.part("partials"):
        _streams(engine, report, talk(clips, 4 if args.small else 20), 1)
    with report.part("four streams"):
        _streams(engine, report, talk(clips, 3 if args.small else 8), 4)
    report.gpu_memory(before)


def _final_passes(engine: Any, report: Report, clips: Sequence[Pcm]) -> None:
    took = []
    for pcm in clips:
        utterance = engine.open("en", False)
        utterance.feed(pcm)
        took.append(1000 * timed(lambda: utterance.finish(NEVER))[0])  # noqa: B023
    seconds = len(clips[0]) / LISTEN_RATE
    report.figure(f"first final pass, {seconds:g} s of speech", "ms", took[0])
    report.figure(f"final pass, {seconds:g} s of speech", "ms", *took[3:])
    tokens = engine.model.transcribe(clips[-1], lambda: False)
    report.figure(f"tokens a second, {seconds:g} s of speech", "", len(tokens) / seconds)


def _streams(engine: Any, report: Report, pcm: Pcm, count: int) -> None:
    """Time the recogniser's passes while ``count`` streams hear the same audio."""
    utterances = [engine.open("en", True) for _ in range(count)]
    took = []
    for at in range(0, len(pcm), STEP):
        passes = engine.model.passes
        seconds, _ = timed(lambda: [each.feed(pcm[at : at + STEP]) for each in utterances])  # noqa: B023
        if engine.model.passes > passes:
            took.append(1000 * seconds)
    report.figure("partial" if count == 1 else f"partials of {count} streams", "ms", *took)


# --- the voice ---------------------------------------------------------------------------------

RATE = 24_000
SHORT = "Of course!"
MIDDLE = "Would you like to hear about something new today?"
LONG = (
    "I know many stories, songs and games that children love most, and in the evening"
    " we can look at the stars together."
)


@dataclass
class ClauseAudio:
    """A clause as it reaches its listener."""

    began: float
    pieces: list[tuple[float, int]] = field(default_factory=list)
    ended: float = 0.0
    error: BaseException | None = None

    @property
    def audio_s(self) -> float:
        return sum(samples for _, samples in self.pieces) / RATE

    @property
    def first_ms(self) -> float | None:
        return 1000 * (self.pieces[0][0] - self.began) if self.pieces else None

    @property
    def late_ms(self) -> float | None:
        """By how much the latest piece came after the sound before it had ended; negative if every
        piece came in time."""
        if len(self.pieces) < 2:
            return None
        (until, samples), *rest = self.pieces
        until, worst = until + samples / RATE, float("-inf")
        for at, samples in rest:
            worst = max(worst, at - until)
            until = max(until, at) + samples / RATE
        return 1000 * worst


class Clauses:
    """Clauses of several clients on one engine, scheduled by the server's own ``EngineHost``."""

    def __init__(self, engine: Any) -> None:
        self.by_job: dict[int, ClauseAudio] = {}
        self.on_item: Callable[[int], None] = lambda job: None
        self.host = EngineHost(engine, self._take)

    def say(self, text: str, priority: Priority = Priority.CONFIRMED, take: int = 0) -> int:
        job = len(self.by_job) + 1
        self.by_job[job] = ClauseAudio(time.perf_counter())
        request = (SpeechRequest(text, language="en", take=take),)
        self.host.receive(Submit(job, 0, "synthesize", request, priority, True, client=job))
        return job

    def run(self) -> list[ClauseAudio]:
        self.host.run_until_idle()
        return list(self.by_job.values())

    def _take(self, answer: Answer) -> None:
        clause, now = self.by_job[answer.job], time.perf_counter()
        match answer:
            case Item():
                clause.pieces.append((now, len(answer.value)))
                self.host.receive(Credit(answer.job))
                self.on_item(answer.job)
            case JobEnd():
                clause.ended, clause.error = now, answer.error


def voice(args: argparse.Namespace, report: Report) -> None:
    from pipeline.engines.tts.qwen3_tts import build

    before = gpu_mb()
    report.figure("import", "s", timed(lambda: importlib.import_module("qwen_tts"))[0])
    engine = _engine(args, Kind.TTS, report, build)
    repeats = 1 if args.small else 8
    for name, text in (("2 words", SHORT), ("9 words", MIDDLE), ("22 words", LONG)):
        with report.part(name):
            clauses = [_alone(engine, text, take) for take in range(repeats)]
            _report_speed(report, f"a clause of {name}", clauses)
    with report.part("at once"):
        for count in (4,) if args.small else (2, 4, 6):
            _at_once(engine, report, count)
    with report.part("urgent"):
        for count in (1,) if args.small else (1, 3, 4):
            _urgent(engine, report, count, 1 if args.small else 5)
    with report.part("cancel"):
        _cancel(engine, report, 2 if args.small else 10)
    report.gpu_memory(before)


def _alone(engine: Any, text: str, take: int = 0) -> ClauseAudio:
    clauses = Clauses(engine)
    clauses.say(text, take=take)
    return clauses.run()[0]


def _report_speed(report: Report, name: str, clauses: Sequence[ClauseAudio]) -> None:
    rtf = [(each.ended - each.began) / each.audio_s for each in clauses if each.audio_s]
    report.figure(f"{name}: first sound", "ms", *(each.first_ms for each in clauses))
    report.figure(f"{name}: sound", "s", *(each.audio_s for each in clauses))
    report.figure(f"{name}: RTF", "", *rtf)
    report.figure(f"{name}: frame", "ms", *(80 * each for each in rtf))
    report.figure(f"{name}: latest piece", "ms late", *(each.late_ms for each in clauses))
    faults = [str(each.error) for each in clauses if each.error]
    if faults:
        report.note(f"{name}: faults", f"{len(faults)} of {len(clauses)}: {faults[0]}")


def _at_once(engine: Any, report: Report, count: int) -> None:
    clauses = Clauses(engine)
    for take in range(count):
        clauses.say(LONG, take=take)
    audio = clauses.run()
    _report_speed(report, f"{count} clauses at once", audio)
    holes = sum((each.late_ms or 0) > 0 for each in audio)
    report.figure(f"{count} clauses at once: clauses with a hole", "", holes)


def _urgent(engine: Any, report: Report, others: int, repeats: int) -> None:
    """Begin a confirmed clause when others have a second of audio."""
    first, late = [], []
    for take in range(repeats):
        clauses = Clauses(engine)
        other_jobs = [clauses.say(LONG, Priority.SPECULATIVE, take) for _ in range(others)]
        urgent_jobs: list[int] = []

        def begin(job: int, talks: Clauses = clauses, jobs: list[int] = urgent_jobs) -> None:
            if not jobs and talks.by_job[job].audio_s >= 1:
                jobs.append(talks.say(SHORT))

        clauses.on_item = begin
        clauses.run()
        first += [clauses.by_job[job].first_ms for job in urgent_jobs]
        late += [clauses.by_job[job].late_ms for job in other_jobs]
    report.figure(f"an urgent clause while {others} are made: first sound", "ms", *first)
    report.figure(f"the {others} beside it: latest piece", "ms late", *late)


def _cancel(engine: Any, report: Report, repeats: int) -> None:
    """Cancel clauses at different moments."""
    took = []
    for number in range(repeats):
        clauses, at = Clauses(engine), [0.0]
        job = clauses.say(LONG, take=number)

        def cancel(host: EngineHost = clauses.host, job: int = job, at: list[float] = at) -> None:
            at[0] = time.perf_counter()
            host.receive(Cancel(job))

        timer = Timer(0.15 + 0.013 * number, cancel)
        timer.start()
        clause = clauses.run()[0]
        timer.cancel()
        if isinstance(clause.error, Cancelled):
            took.append(1000 * (clause.ended - at[0]))
    report.figure("cancelled: until it stops", "ms", *took)


# --- the language model ------------------------------------------------------------------------

SAMPLING = Sampling(temperature=0.8, top_p=0.95, min_p=0, repeat_penalty=1.0, max_tokens=60)
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school")


def llm(args: argparse.Namespace, report: Report) -> None:
    from pipeline.engines.llm.llama_api import library
    from pipeline.engines.llm.llama_cpp import build

    # Logged before the model is loaded, because llama.cpp once crashed there (docs/gpu.md).
    report.note("llama.cpp", library().llama_print_system_info().decode())
    before = gpu_mb()
    engine = _engine(args, Kind.LLM, report, build)
    system = Message("system", "You are a robot. " + _text(300 if args.small else 1500, 1))
    with report.part("prefill"):
        _prefill(engine, report, (300,) if args.small else (500, 1500, 6000))
    for count in (1, 4):
        with report.part(f"{count} sessions"):
            _replies(engine, report, system, count, 2 if args.small else 20 // count)
    report.gpu_memory(before)


def _text(words: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def _prefill(engine: Any, report: Report, sizes: Sequence[int]) -> None:
    for words in sizes:
        speed = []
        for seed in range(3):
            session = engine.open()
            messages = [Message("user", _text(words, words + seed))]
            seconds, steps = timed(lambda: list(session.warm(LlmRequest(messages), NEVER)))  # noqa: B023
            speed.append(steps[-1].usage.evaluated / seconds)
            session.close()
        report.figure(f"prefill of {words} words", "tokens/s", *speed)


def _replies(engine: Any, report: Report, system: Message, count: int, rounds: int) -> None:
    """Ask sessions that have already read their instructions something at the same time."""
    sessions = [engine.open() for _ in range(count)]
    for session in sessions:
        list(session.warm(LlmRequest([system]), NEVER))
    first, speed, text = [], [], ""
    for number in range(rounds + 1):
        began = time.perf_counter()
        questions = [Message("user", _text(25, 100 * number + n) + "?") for n in range(count)]
        replies = {
            n: session.reply(LlmRequest([system, questions[n]], sampling=SAMPLING), NEVER)
            for n, session in enumerate(sessions)
        }
        came: dict[int, list[float]] = {n: [] for n in replies}
        text = ""
        while replies:
            for n, steps in list(replies.items()):
                step = next(steps, steps)
                if step is steps:
                    del replies[n]
                elif isinstance(step, TextDelta):
                    came[n].append(time.perf_counter())
                    text += step.text if n == 0 else ""
        if number:
            first += [1000 * (times[0] - began) for times in came.values() if times]
            speed += [(len(t) - 1) / (t[-1] - t[0]) for t in came.values() if len(t) > 2]
    name = "" if count == 1 else f"{count} sessions: "
    report.figure(f"{name}first token, warm prefix", "ms", *first)
    report.figure(f"{name}speed of each", "tokens/s", *speed)
    report.note(f"{name}said", text)
    for session in sessions:
        session.close()
