"""A voice that fails now and then, in answers of a real session: what is cut, and said again.

    python -m benchmarks.tts_faults --clauses 2000 --share 0.05 [--seed N] [--out FILE]

Voices that do not fail (``benchmarks.tts_clauses``) say answers in virtual time, clause by clause,
as the session asks for them, in pieces of 80 ms, at several speeds. A share of the clauses fails
(``benchmarks.tts_faults.FAULTS``, one kind after the other) at the first take. Of each is
counted:

- **within 1 s**: the voice was stopped before it had made more than a second of the fault, and one
  piece, which cannot be stopped in its middle;
- **sent**: seconds of the fault that went out to the listener before it was known;
- **said again**: the voice was asked for what was left of the clause (or nothing was left).

And of the clauses that do not fail: how many are cut.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.tts_clauses import ANSWERS, Said, Voice, answers
from benchmarks.tts_faults import FAULTS
from pipeline.audio import AudioFormat, Pcm
from pipeline.bus import Published
from pipeline.commands import CreateResponse, SessionConfig, TurnDetection
from pipeline.events import ClauseFault, ReplyAudio, ReplyFinished
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.speaking.joints import QUIET
from pipeline.work import Work
from tests.support.scripted import ScriptedLlm, scene
from tests.support.virtual_time import run_virtual

PIECE_S = 0.08
"""A frame of the usual audio codecs (12.5 Hz)."""
START_S = 0.08
REAL_TIME_FACTORS = (0.08, 0.25, 0.7)
"""Time for each second of speech: Piper on this machine, and slower voices."""
LEAST_S = 0.8
"""Shorter clauses are left alone, as in ``benchmarks.tts_faults``."""
WITHIN_S = 1.0
ANSWERS_EACH = 8
"""Of one voice in one session, in which its pace is learned."""
HEARD_S = 1.0
"""The listener has heard what was sent: the lead is a quarter of that."""
_MATCHED_SAMPLES = 400


@dataclass(slots=True)
class Call:
    """One time that the voice was asked. ``fault``: what was put in, from ``begins_s`` of ``pcm``.
    ``given_s``: how much of it was taken."""

    text: str
    take: int
    pcm: Pcm
    fault: str | None = None
    begins_s: float = 0.0
    given_s: float = 0.0
    whole: bool = False


@dataclass
class FailingVoice:
    """A stage. ``share`` of the clauses fail. ``kinds``: which fault is next."""

    voice: Voice
    share: float
    draw: np.random.Generator
    kinds: Iterator[str]
    others: Sequence[Said]
    factor: float = REAL_TIME_FACTORS[0]
    calls: list[Call] = field(default_factory=list)
    voices: Sequence[str] = ("joe",)

    @property
    def rate(self) -> int:
        return self.voice.rate

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        call = self._call(request.text, request.take)
        self.calls.append(call)
        size = round(PIECE_S * self.rate)
        await asyncio.sleep(START_S)
        for start in range(0, len(call.pcm), size):
            piece = call.pcm[start : start + size]
            await asyncio.sleep(self.factor * len(piece) / self.rate)
            call.given_s += len(piece) / self.rate
            yield piece
        call.whole = True

    def _call(self, text: str, take: int) -> Call:
        pcm = self.voice.say(text)
        said = Said(self.voice.name, text, pcm, self.rate, 0.0, True)
        if take or said.seconds <= LEAST_S or self.draw.random() >= self.share:
            return Call(text, take, pcm)
        name = next(self.kinds)
        _, make = FAULTS[name]
        pcm, begins_s = make(self.draw, said, self.others)
        return Call(text, take, pcm, name, begins_s)


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault, and what became of it. ``after_s``: how much of it the voice had made when it was
    stopped; ``None``: it never was."""

    fault: str
    after_s: float | None
    sent_s: float
    again: str


@dataclass
class Found:
    healthy: int = 0
    healthy_cut: list[str] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    clauses: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    left_out: int = 0


def replies(voices: Sequence[Voice], clauses: int, share: float, seed: int) -> Found:
    """Answers until so many clauses were said."""
    found, draw = Found(), np.random.default_rng(seed)
    spoken = iter(answers(10 * clauses, seed))
    kinds = _round_and_round(seed)
    longest = sorted(ANSWERS, key=len)[-2:]
    others = [_sample(voice, text) for voice in voices for text in longest]
    number = 0
    while found.clauses < clauses:
        voice = voices[number % len(voices)]
        factor = REAL_TIME_FACTORS[number % len(REAL_TIME_FACTORS)]
        failing = FailingVoice(voice, share, draw, kinds, others, factor)
        run_virtual(_talk(failing, [next(spoken) for _ in range(ANSWERS_EACH)], found))
        number += 1
    return found


def _round_and_round(seed: int) -> Iterator[str]:
    names = list(FAULTS)
    random.Random(seed).shuffle(names)
    while True:
        yield from names


def _sample(voice: Voice, text: str) -> Said:
    return Said(voice.name, text, voice.say(text), voice.rate, 0.0, True)


async def _talk(voice: FailingVoice, spoken: Sequence[str], found: Found) -> None:
    config = SessionConfig(
        instructions="",
        output_format=AudioFormat(rate=voice.rate),
        turn_detection=TurnDetection(create_response=False),
    )
    async with scene(
        config=config,
        settings=SessionSettings(watched=True),
        llm=ScriptedLlm(answers=[_deltas(text) for text in spoken]),
        tts=voice,
    ) as played:
        for _ in spoken:
            voice.calls.clear()
            begins = len(played.log)
            await played.do(CreateResponse())
            await played.session.quiet()
            await asyncio.sleep(HEARD_S)
            _count(found, voice, played.log[begins:])


def _deltas(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]


def _count(found: Found, voice: FailingVoice, log: Sequence[Published]) -> None:
    sent = _sent(log)
    firsts = [at for at, call in enumerate(voice.calls) if not call.take]
    found.clauses += len(firsts)
    for _, event in log:
        if isinstance(event, ReplyFinished):
            found.statuses[event.status] = found.statuses.get(event.status, 0) + 1
        elif isinstance(event, ClauseFault):
            found.left_out += event.left_out
    for at in firsts:
        call, after = voice.calls[at], voice.calls[at + 1 : at + 2]
        second = after[0] if after and after[0].take else None
        if call.fault is None:
            found.healthy += 1
            if second or not call.whole:
                found.healthy_cut.append(f"{voice.voice.name}: {call.text}")
            continue
        known = None if call.whole else max(0.0, call.given_s - call.begins_s)
        again = "said again" if second else ("never cut" if call.whole else "nothing was left")
        found.injected.append(Injected(call.fault, known, _leaked_s(call, sent, voice.rate), again))


def _sent(log: Sequence[Published]) -> Pcm:
    pcm = [event.pcm for _, event in log if isinstance(event, ReplyAudio)]
    return np.concatenate((np.zeros(0, np.int16), *pcm))


def _leaked_s(call: Call, sent: Pcm, rate: int) -> float:
    """How much of the fault is in what was sent. The call's audio is looked for from its first
    sound on; it is sent unchanged, but for silence around it."""
    loud = np.flatnonzero(np.abs(call.pcm.astype(np.int32)) > QUIET)
    if not len(loud):
        return 0.0  # it was silent from the start
    said = call.pcm[int(loud[0]) :]
    mark = said[:_MATCHED_SAMPLES]
    lengths: list[int] = [0]
    ends = max(0, len(sent) - len(mark) + 1)
    for at in map(int, np.flatnonzero(sent[:ends] == mark[0])):
        if np.array_equal(sent[at : at + len(mark)], mark):
            rest: int = min(len(sent) - at, len(said))
            same = sent[at : at + rest] == said[:rest]
            lengths.append(rest if same.all() else int(np.argmin(same)))
    return max(0.0, (int(loud[0]) + max(lengths)) / rate - call.begins_s)


def report(found: Found, share: float, seed: int) -> dict[str, Any]:
    by_fault: dict[str, list[Injected]] = {}
    for each in found.injected:
        by_fault.setdefault(each.fault, []).append(each)
    return {
        "clauses": found.clauses,
        "share": share,
        "seed": seed,
        "healthy": found.healthy,
        "healthy_cut": len(found.healthy_cut),
        "healthy_cut_percent": round(100 * len(found.healthy_cut) / max(1, found.healthy), 3),
        "which": found.healthy_cut,
        "responses": found.statuses,
        "clauses_left_out": found.left_out,
        "faults": _figures(found.injected),
        "by_fault": {name: _figures(by_fault[name]) for name in sorted(by_fault)},
    }


def _figures(injected: Sequence[Injected]) -> dict[str, Any]:
    if not injected:
        return {"n": 0}
    after = [each.after_s for each in injected if each.after_s is not None]
    sent = [each.sent_s for each in injected]
    quantiles = {
        f"after_s_p{p}": round(float(np.quantile(after, p / 100)), 2) for p in (50, 95) if after
    }
    return {
        "n": len(injected),
        "cut": len(after),
        "within_1_s": sum(each <= WITHIN_S + PIECE_S for each in after),
        **quantiles,
        "sent_s_p50": round(float(np.quantile(sent, 0.5)), 2),
        "sent_s_p95": round(float(np.quantile(sent, 0.95)), 2),
        "sent_s_max": round(max(sent), 2),
        "sent_at_most_1_s": sum(each <= WITHIN_S for each in sent),
        "said_again": sum(each.again == "said again" for each in injected),
        "nothing_was_left": sum(each.again == "nothing was left" for each in injected),
    }
