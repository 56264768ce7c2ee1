"""Engines with the timing of a good GPU that compute nothing.

They are real blocking code behind the real workers: they sleep, yield between slices, and stop when
cancelled, so everything around them costs what it really costs. They are ordinary plug-ins:
``install`` writes the entry points.

They read their results from files: the words (``write_cue``), and how complete each text is
(``write_opinions``: in the embedded language model's opinion; a larger one can tell at least that).

The delays are an RTX 4090's, from the published figures behind the project's targets
(``performance-anchors.md``, here "anchors").
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    EndOfTurn,
    Finished,
    Partial,
    TextDelta,
    Transcript,
    Warmed,
)
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.messages import LlmRequest, Message, SpeechRequest, Tool, Usage
from pipeline.work import Cancelled, CancelToken

NAME = "scripted-rtx4090"

STT_FINAL_S = 0.030
"""Anchors, section 1, budget: final text of an utterance of up to 15 s."""
LLM_FIRST_TOKEN_S = 0.025
"""Anchors, sections 1 and 4: warm prefix, about 30 new tokens."""
LLM_COLD_FACTOR = 5.3
"""Anchors, sections 1 and 9: a cold prefix against a warm one (800 against 150 ms)."""
LLM_WARM_WORDS = 40
"""New words of a prompt up to which it counts as warm: a question, with some room."""
LLM_TOKENS_PER_S = (100.0, 280.0)
"""Anchors, section 1: the budget of the first clause; each answer draws its own delay."""
TTS_START_S = 0.030
TTS_STEP_S = 0.015
"""Anchors, section 5: 15 ms a step, and two steps in about 60 ms."""
TTS_STEP_AUDIO_S = 0.667 / 8
"""Anchors, section 5: eight codec steps are 667 ms of audio."""
TTS_REAL_TIME_FACTOR = 4.78
"""Anchors, section 5: seconds of speech a second, once it runs."""
TTS_CHUNK_STEPS = (2, 4, 8)
"""Steps in each chunk; the last one repeats (anchors, section 9, target 9)."""
JITTER = 0.1
"""Standard deviation of the logarithm of every delay: our assumption, without a source."""
SECONDS_PER_WORD = 0.3
"""About 200 words a minute, as Piper speaks."""

_CHECK_S = 0.010
"""Longer waits are split into slices of this length, so that a cancelled call ends soon."""
_WORD_LATE_S = 0.15
"""A word counts as heard this long before its estimated end: words are not equally long."""
_PRE_ROLL_S = 0.45
"""Audio in an utterance from before it was opened: padding and onset."""

ANSWERS = (
    "I think so, and I can show you right now.",
    "That is a good question, let me look at it.",
    "Sure, I will turn my head and tell you what I see.",
    "It is quite warm today, so you will not need a coat.",
    "Of course I can, just tell me when you are ready.",
    "Let me think about that, it has been a while since I tried.",
    "No, I have never been there, but I would like to go.",
    "Yes, there are seven of them and I know all of their names.",
    "My favourite colour is green, because frogs are green too.",
    "Well done, you have found the last one of them.",
)
"""First clauses of one to six words."""


class ScriptedOptions(EngineOptions):
    engine: Literal["scripted-rtx4090"] = "scripted-rtx4090"
    cue: Path | None = None
    """The file of words being said, written by ``write_cue``."""
    opinions: Path | None = None
    """The file of how complete texts are, written by ``write_opinions``."""
    seed: int = 0
    sentences: int = 1
    """The number of sentences in each answer."""


# --- time ---------------------------------------------------------------------------------------


class JitteredSleep:
    """Sleeps for given times, and adds seeded jitter to times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def jitter(self, seconds: float) -> float:
        return seconds * self.random.lognormvariate(0.0, JITTER)

    def step(self, seconds: float, cancel: CancelToken) -> None:
        """Sleep for exactly ``seconds``. Raises ``Cancelled`` early if cancelled."""
        began = now = time.monotonic()
        while (left := began + seconds - now) > 0:
            if cancel.cancelled:
                raise Cancelled
            time.sleep(min(left, _CHECK_S))
            now = time.monotonic()


# --- speech to text ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedWords:
    """Words spoken from ``begins`` to ``ends``, in seconds of ``time.monotonic``."""

    begins: float
    ends: float
    text: str

    def words(self) -> Iterator[tuple[float, str]]:
        """Each word with the time of its end, assuming words of equal length."""
        words = self.text.split()
        for number, word in enumerate(words, start=1):
            yield self.begins + (self.ends - self.begins) * number / len(words), word


def write_cue(path: Path, cue: Sequence[TimedWords]) -> None:
    """Tell the recogniser what it is about to hear."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps([[each.begins, each.ends, each.text] for each in cue]))
    part.replace(path)


def read_cue(path: Path | None) -> list[TimedWords]:
    if path is None or not path.is_file():
        return []
    return [TimedWords(*each) for each in json.loads(path.read_text())]


def heard_words(cue: Sequence[TimedWords], opened_at: float, fed_at: float) -> str:
    """The part of ``cue`` that was spoken in an utterance opened and last fed at these times."""
    pairs = (pair for each in cue for pair in each.words())
    first, last = opened_at - _PRE_ROLL_S, fed_at + _WORD_LATE_S
    return " ".join(word for ends, word in pairs if first < ends <= last)


def write_opinions(path: Path, probability: Mapping[str, float]) -> None:
    """Tell the language model how likely each text is to be complete."""
    path.write_text(json.dumps(dict(probability)))


def with_full_stop(text: str) -> str:
    """``text`` with a full stop, as recognisers end nearly every text."""
    return text if not text or text[-1] in ".?!" else text.rstrip(",;:") + "."


class TimedStt:
    """Gives no partial transcripts: Parakeet's come 0.5 s late (anchors, section 3), when the turn
    is already over."""

    rate = LISTEN_RATE
    streams = False
    languages: Sequence[str] = ()

    def __init__(self, options: ScriptedOptions) -> None:
        self.delays = JitteredSleep(options.seed)
        self.cue = options.cue

    def open(self, language: str, partials: bool) -> TimedUtterance:
        return TimedUtterance(self)


class TimedUtterance:
    def __init__(self, stt: TimedStt) -> None:
        self._stt = stt
        self._opened_at = self._fed_at = time.monotonic()
        self._samples = 0

    def feed(self, pcm: Pcm) -> Partial:
        self._fed_at = time.monotonic()
        self._samples += len(pcm)
        return Partial()

    def finish(self, cancel: CancelToken) -> Transcript:
        delays = self._stt.delays
        delays.step(delays.jitter(STT_FINAL_S), cancel)
        text = heard_words(read_cue(self._stt.cue), self._opened_at, self._fed_at)
        return Transcript(with_full_stop(text), self._samples / LISTEN_RATE)


# --- language model ----------------------------------------------------------------------------


class TimedLlm:
    context_tokens = 8192

    def __init__(self, options: ScriptedOptions) -> None:
        self.delays = JitteredSleep(options.seed + 1)
        answers = itertools.cycle(ANSWERS)
        self.answers = (
            " ".join(itertools.islice(answers, options.sentences)) for _ in itertools.count()
        )
        text = options.opinions.read_text() if options.opinions else "{}"
        self.opinions: dict[str, float] = json.loads(text)

    def open(self) -> TimedConversation:
        return TimedConversation(self)


class TimedConversation:
    """Remembers the words that it has read, like a KV cache."""

    def __init__(self, llm: TimedLlm) -> None:
        self._llm = llm
        self._cache: list[str] = []

    def warm(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Warmed | None]:
        prompt = [*_words(request.messages, request.tools), *request.unfinished.split()]
        yield Warmed((yield from self._read(prompt, cancel)))

    def reply(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Delta | None]:
        delays = self._llm.delays
        usage = yield from self._read(_words(request.messages, request.tools), cancel)
        opinion = self._llm.opinions.get(_question(request.messages))
        if opinion is not None and request.messages[-1].role == "user":
            yield EndOfTurn(opinion, usage)
        token_s = 1 / delays.random.uniform(*LLM_TOKENS_PER_S)
        words = next(self._llm.answers).split()[: request.sampling.max_tokens]
        for number, word in enumerate(words):
            if number:
                delays.step(delays.jitter(token_s), cancel)
            self._cache.append(word)
            yield TextDelta(f"{word} ")
        yield Finished("stop", Usage(usage.prompt, usage.cached, usage.evaluated, len(words)))

    def close(self) -> None:
        self._cache.clear()

    def _read(self, prompt: list[str], cancel: CancelToken) -> Generator[None, None, Usage]:
        """Read the unknown words, in slices of a warm first token's time."""
        pairs = zip(prompt, self._cache, strict=False)
        cached = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        fresh = len(prompt) - cached
        delays = self._llm.delays
        left_s = LLM_FIRST_TOKEN_S * (LLM_COLD_FACTOR if fresh > LLM_WARM_WORDS else 1.0)
        del self._cache[cached:]
        while left_s > LLM_FIRST_TOKEN_S:
            delays.step(delays.jitter(LLM_FIRST_TOKEN_S), cancel)
            left_s -= LLM_FIRST_TOKEN_S
            yield None
        delays.step(delays.jitter(left_s), cancel)
        self._cache = list(prompt)
        return Usage(len(prompt), cached, fresh, 0)


def _question(messages: Sequence[Message]) -> str:
    """The user's last words."""
    return next((each.content for each in reversed(messages) if each.role == "user"), "")


def _words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[str]:
    names = [tool.name for tool in tools]
    return [*names, *(word for each in messages for word in (each.role, *each.content.split()))]


# --- text to speech ----------------------------------------------------------------------------


class TimedTts:
    rate = 24_000
    voices = ("scripted",)
    languages: Sequence[str] = ()

    def __init__(self, options: ScriptedOptions) -> None:
        self._delays = JitteredSleep(options.seed + 2)

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        left_s = max(SECONDS_PER_WORD * len(request.text.split()) / request.speed, TTS_STEP_AUDIO_S)
        chunks = itertools.chain(TTS_CHUNK_STEPS, itertools.repeat(TTS_CHUNK_STEPS[-1]))
        step_s = TTS_STEP_S
        self._delays.step(self._delays.jitter(TTS_START_S), cancel)
        while left_s > 0:
            steps = next(chunks)
            for number in range(steps):
                if number:
                    yield None
                self._delays.step(self._delays.jitter(step_s), cancel)
            seconds = min(left_s, steps * TTS_STEP_AUDIO_S)
            left_s -= seconds
            yield _hum(seconds, self.rate)
            step_s = TTS_STEP_AUDIO_S / TTS_REAL_TIME_FACTOR


def _hum(seconds: float, rate: int) -> Pcm:
    at = np.arange(round(seconds * rate)) / rate
    return (3000 * np.sin(2 * np.pi * 150 * at)).astype(np.int16)


# --- the plug-in -------------------------------------------------------------------------------


def _spec(kind: Kind, engine: Callable[[ScriptedOptions], Any]) -> EngineSpec:
    def build(options: ScriptedOptions, weights: Path | None) -> Any:
        return engine(options)

    summary = "the delays of an RTX 4090, without a model"
    return EngineSpec(NAME, kind, ScriptedOptions, build, summary, run_in="thread")


STT = _spec(Kind.STT, TimedStt)
LLM = _spec(Kind.LLM, TimedLlm)
TTS = _spec(Kind.TTS, TimedTts)


def install(directory: Path) -> None:
    """Write an installer's metadata, so that servers started from here find the engines."""
    info = directory / "reachy_voice_scripted-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: reachy-voice-scripted\nVersion: 1.0\n"
    )
    lines = []
    for kind in (Kind.STT, Kind.LLM, Kind.TTS):
        lines.append(f"[reachy_voice.{kind}]\n{NAME} = {__name__}:{kind.upper()}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    root = Path(__file__).parents[2]
    before = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), str(root), *before])
    sys.path.append(str(directory))
