"""Whether an engine keeps its contract, tried on a second of silence and one sentence."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.audio import LISTEN_RATE
from pipeline.engines.contract import Delta, Finished, Partial, Transcript, Warmed
from pipeline.engines.registry import Kind
from pipeline.messages import LlmRequest, Message, Sampling, SpeechRequest
from pipeline.work import NEVER, Cancelled

SILENCE = np.zeros(LISTEN_RATE, np.int16)
TEXT = "It is a nice day today."
STOP = SimpleNamespace(cancelled=True, preempted=False, priority=0)


def faults(kind: Kind, engine: Any) -> Iterator[str]:
    """The ways in which the engine breaks ``pipeline.engines.contract``. Blocks."""
    checks = {
        Kind.VAD: _vad,
        Kind.TURN: _turn,
        Kind.STT: _stt,
        Kind.LLM: _llm,
        Kind.TTS: _tts,
        Kind.SPEAKER: _speaker,
    }
    try:
        if kind not in (Kind.LLM, Kind.TTS) and engine.rate != LISTEN_RATE:
            yield f"rate is {engine.rate!r}, but sound comes at {LISTEN_RATE} Hz"
        yield from checks[kind](engine)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{place.filename}, line {place.lineno}"
        yield f"it raised {type(problem).__name__}: {problem} ({where})"


def _vad(engine: Any) -> Iterator[str]:
    stream = engine.open()
    for _ in range(2):
        yield from _probability(stream.score(SILENCE[: engine.window_samples]))


def _turn(engine: Any) -> Iterator[str]:
    yield from _probability(engine.score(SILENCE, TEXT))


def _probability(value: Any) -> Iterator[str]:
    if not 0 <= value <= 1:
        yield f"score() returned {value!r}, not a number from 0 to 1"


def _stt(engine: Any) -> Iterator[str]:
    utterance = engine.open(next(iter(engine.languages), ""), True)
    for _ in range(2):  # an utterance may be fed again after finish(), and finished again
        yield from _instance("feed", utterance.feed(SILENCE), Partial)
        yield from _instance("finish", utterance.finish(NEVER), Transcript)


def _llm(engine: Any) -> Iterator[str]:
    conversation = engine.open()
    messages = [Message("system", "You are brief."), Message("user", "Hello!")]
    request = LlmRequest(messages, sampling=Sampling(max_tokens=16), unfinished="How are")
    results = [None, *conversation.warm(request, NEVER)]
    yield from _instance("warm", results[-1], Warmed)
    deltas = [delta for delta in conversation.reply(request, NEVER) if delta is not None]
    for delta in deltas:
        yield from _instance("reply", delta, Delta)
    if not deltas or not isinstance(deltas[-1], Finished):
        yield "reply() did not end with a Finished"
    yield from _stops("reply", conversation.reply, request)
    conversation.close()


def _tts(engine: Any) -> Iterator[str]:
    request = SpeechRequest(TEXT, voice="unknown", language=next(iter(engine.languages), ""))
    chunks = [pcm for pcm in engine.synthesize(request, NEVER) if pcm is not None]
    if not engine.voices or not sum(map(len, chunks)):
        yield f"it has no voice or makes no sound of {TEXT!r}"
    for pcm in chunks[:1]:
        yield from _instance("synthesize", pcm, np.ndarray)
        if (pcm.dtype, pcm.ndim) != (np.int16, 1):
            yield f"synthesize() gave {pcm.dtype} of shape {pcm.shape}, not int16 mono"
    yield from _stops("synthesize", engine.synthesize, request)


def _speaker(engine: Any) -> Iterator[str]:
    noise = np.random.default_rng(1).integers(-3000, 3000, LISTEN_RATE, np.int16)
    lengths = set()
    for pcm in (noise, SILENCE[: LISTEN_RATE // 2]):
        voice = engine.embed(pcm, NEVER)
        yield from _instance("embed", voice, np.ndarray)
        if (voice.dtype, voice.ndim) != (np.float32, 1) or not np.isfinite(voice).all():
            yield f"embed() gave {voice.dtype} of shape {voice.shape}, not finite float32"
        elif pcm is noise and abs(float(np.linalg.norm(voice)) - 1) > 0.01:
            yield f"embed() gave a vector of length {np.linalg.norm(voice):.2f}, not 1"
        lengths.add(len(voice))
    if len(lengths) > 1:
        yield f"embed() gave vectors of {len(lengths)} sizes"


def _instance(method: str, value: Any, kind: Any) -> Iterator[str]:
    if not isinstance(value, kind):
        yield f"{method}() gave {value!r}, not a {getattr(kind, '__name__', 'Delta')}"


def _stops(method: str, call: Any, request: object) -> Iterator[str]:
    """A call that is cancelled from the start should yield at most one item."""
    items: list[object] = []
    with suppress(Cancelled):
        for item in filter(lambda item: item is not None, call(request, STOP)):
            items.append(item)
            if len(items) > 1:
                yield f"{method}() goes on after it was cancelled"
                return
