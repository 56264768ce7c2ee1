"""How well ``pipeline.speaking.clause_watch`` distinguishes speech from a failing voice's sound.

    python -m benchmarks.voices.faults [--clauses 2500] [--faults 400] [--seed N] [--out FILE]

First every healthy clause (``benchmarks.voices.clauses``): how many are wrongly cut. Then each
fault is put into healthy speech, at a random place: how many are found, and after how much audio.
The voices here never fail by themselves; the sound of a network's faults is known only from
reports.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.voices.clauses import HealthyClause, said_by, texts, voices
from pipeline.audio import Pcm
from pipeline.speaking.clause_watch import ClauseWatch, Fault

FAULT_S = 12.0
"""How long a fault goes on."""
Random = np.random.Generator
Signal = NDArray[np.float64]


def watched(said: HealthyClause, pcm: Pcm) -> Fault | None:
    """The verdict on ``pcm`` as if it were ``said``."""
    watch = ClauseWatch(said.text, said.rate, said.pace_s, measured=said.known)
    return watch.feed(pcm) or watch.finish()


# --- faults ------------------------------------------------------------------------------------

Injected = tuple[Pcm, float]
"""Audio, and the second in which its fault begins."""


def _pcm(signal: Signal) -> Pcm:
    return np.clip(signal, -32768, 32767).astype(np.int16)


def _level(said: HealthyClause) -> float:
    return float(np.sqrt(np.mean(said.pcm.astype(np.float64) ** 2)))


def _begin(draw: Random, said: HealthyClause, least: float = 0.0) -> int:
    return int(len(said.pcm) * draw.uniform(least, 0.85))


def _after(draw: Random, said: HealthyClause, noise: Signal) -> Injected:
    """Speech up to a random place, and from there ``noise`` as loud as the speech."""
    at = _begin(draw, said)
    noise = noise / max(float(np.sqrt(np.mean(noise**2))), 1e-9) * _level(said)
    return np.concatenate((said.pcm[:at], _pcm(noise))), at / said.rate


def _seconds(said: HealthyClause) -> NDArray[np.float64]:
    return np.arange(int(FAULT_S * said.rate)) / said.rate


def _white(draw: Random, said: HealthyClause) -> Signal:
    return draw.standard_normal(int(FAULT_S * said.rate))


def _buzz(draw: Random, said: HealthyClause) -> Signal:
    pitch = draw.uniform(80, 250)
    return sum(
        (np.sin(2 * np.pi * pitch * n * _seconds(said)) / n for n in range(1, 20)),
        np.zeros(int(FAULT_S * said.rate)),
    )


def _swelling(draw: Random, said: HealthyClause, signal: Signal) -> Signal:
    """At the rhythm of syllables."""
    swell: Signal = signal[: len(_seconds(said))] * (
        0.55 + 0.45 * np.sin(2 * np.pi * draw.uniform(3, 6) * _seconds(said)[: len(signal)])
    )
    return swell


def _garbage(draw: Random, said: HealthyClause) -> Signal:
    """A codec fed with random numbers: noise of another colour every 80 ms."""
    size = said.rate * 80 // 1000
    pieces = []
    for _ in range(int(FAULT_S / 0.08)):
        spectrum = np.fft.rfft(draw.standard_normal(size))
        spectrum *= np.interp(
            np.arange(len(spectrum)), np.linspace(0, len(spectrum), 8), draw.uniform(0, 1, 8) ** 2
        )
        pieces.append(np.fft.irfft(spectrum, size) * draw.uniform(0.3, 1.0))
    return np.concatenate(pieces)


def _silence(draw: Random, said: HealthyClause, at_start: bool) -> Injected:
    at = 0 if at_start else _begin(draw, said, 0.1)
    silence = np.zeros(int(FAULT_S * said.rate), np.int16)
    return np.concatenate((said.pcm[:at], silence)), at / said.rate


def _loop(draw: Random, said: HealthyClause, exact: bool) -> Injected:
    """The last half second to two seconds before a random place, repeated."""
    period = int(draw.uniform(0.5, min(2.0, 0.9 * said.seconds)) * said.rate)
    at = int(draw.uniform(period, max(period + 1, 0.95 * len(said.pcm))))
    piece = said.pcm[at - period : at].astype(np.float64)
    copies = []
    for _ in range(int(FAULT_S * said.rate / period) + 1):
        if exact:
            copies.append(piece)
            continue
        off = int(draw.integers(-said.rate // 100, said.rate // 100))
        noise = 10 ** (-30 / 20) * _level(said) * draw.standard_normal(period)
        copies.append((np.roll(piece, off) + noise) * 10 ** (draw.uniform(-2, 2) / 20))
    return np.concatenate((said.pcm[:at], _pcm(np.concatenate(copies)))), at / said.rate


def _endless(draw: Random, said: HealthyClause, others: Sequence[HealthyClause]) -> Injected:
    """Fluent speech of other words after the clause."""
    more = [each.pcm for each in others if each.voice == said.voice and each is not said]
    taken = [more[int(n)] for n in draw.integers(0, len(more), 8)]
    return np.concatenate((said.pcm, *taken)), said.seconds


Inject = Callable[[Random, HealthyClause, Sequence[HealthyClause]], Injected]
FAULTS: dict[str, Inject] = {
    "silence at the start": lambda d, s, _: _silence(d, s, at_start=True),
    "silence in the middle": lambda d, s, _: _silence(d, s, at_start=False),
    "exact loop": lambda d, s, _: _loop(d, s, True),
    "loop with jitter": lambda d, s, _: _loop(d, s, False),
    "white noise": lambda d, s, _: _after(d, s, _white(d, s)),
    "swelling noise": lambda d, s, _: _after(d, s, _swelling(d, s, _white(d, s))),
    "buzz": lambda d, s, _: _after(d, s, _buzz(d, s)),
    "swelling buzz": lambda d, s, _: _after(d, s, _swelling(d, s, _buzz(d, s))),
    "codec garbage": lambda d, s, _: _after(d, s, _garbage(d, s)),
    "endless speech": _endless,
}


# --- figures -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Detection:
    """One inserted fault. ``after_s``: audio from its start until it was detected; less than 0: a
    false detection before it."""

    name: str
    fault: Fault | None
    after_s: float | None


def inject(name: str, said: HealthyClause, others: Sequence[HealthyClause], seed: int) -> Detection:
    pcm, begins_s = FAULTS[name](np.random.default_rng(seed), said, others)
    fault = watched(said, pcm)
    after_s = fault.known_s - begins_s if fault else None
    return Detection(name, fault, after_s)


def healthy_report(clauses: Sequence[HealthyClause]) -> dict[str, Any]:
    cut = [said for said in clauses if watched(said, said.pcm)]
    return {
        "clauses": len(clauses),
        "seconds": round(sum(said.seconds for said in clauses)),
        "cut": len(cut),
        "cut_percent": round(100 * len(cut) / len(clauses), 3),
        "by_voice": {
            voice: {"clauses": n, "cut": sum(said.voice == voice for said in cut)}
            for voice, n in Counter(said.voice for said in clauses).items()
        },
    }


def faults_report(found: Iterable[Detection]) -> dict[str, Any]:
    by_name: dict[str, list[Detection]] = {}
    for each in found:
        by_name.setdefault(each.name, []).append(each)
    return {name: _figures(each) for name, each in by_name.items()}


def _figures(found: Sequence[Detection]) -> dict[str, Any]:
    after = sorted(f.after_s for f in found if f.after_s is not None and f.after_s >= 0)
    quantiles = {
        f"after_s_p{p}": round(float(np.quantile(after, p / 100)), 2) for p in (50, 95, 99) if after
    }
    return {
        "n": len(found),
        "found": len(after),
        "found_percent": round(100 * len(after) / len(found), 2),
        "within_1_s_percent": round(100 * sum(a <= 1.0 for a in after) / len(found), 2),
        **quantiles,
        "taken_as": dict(Counter(f.fault.kind for f in found if f.fault)),
    }


def clauses_of(count: int, seed: int) -> list[HealthyClause]:
    """``count`` healthy clauses, spread evenly over the installed voices."""
    speakers = voices(weights("piper-joe"))
    each = -(-count // len(speakers))
    spoken = texts(each * len(speakers), seed)
    random.Random(seed).shuffle(spoken)
    return [
        said
        for number, voice in enumerate(speakers)
        for said in said_by(voice, spoken[number * each : (number + 1) * each])
        if len(said.pcm)
    ]


def main() -> None:
    parser = arguments(__doc__, "benchmarks.voices.faults")
    parser.add_argument("--clauses", type=int, default=2500)
    parser.add_argument("--faults", type=int, default=400, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    before = load()
    clauses = clauses_of(given.clauses, given.seed)
    draw = random.Random(given.seed)
    long = [said for said in clauses if said.seconds > 0.8]
    found = [
        inject(name, draw.choice(long), clauses, given.seed + number)
        for name in FAULTS
        for number in range(given.faults)
    ]
    report = {
        "healthy": healthy_report(clauses),
        "faults": faults_report(found),
        "seed": given.seed,
    }
    finish(report, given.out, before)


if __name__ == "__main__":
    main()
