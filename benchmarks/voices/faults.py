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
from benchmarks.voices.clauses import HealthyClause, clauses_by, texts, voices
from pipeline.audio import Pcm
from pipeline.speaking.clause_watch import ClauseWatch, Fault

FAULT_S = 12.0
"""How long a fault goes on."""
Random = np.random.Generator
Signal = NDArray[np.float64]


def verdict(clause: HealthyClause, pcm: Pcm) -> Fault | None:
    """The verdict on ``pcm`` as if it were ``clause``."""
    watch = ClauseWatch(clause.text, clause.rate, clause.pace_s, measured=clause.known)
    return watch.feed(pcm) or watch.finish()


# --- faults ------------------------------------------------------------------------------------

Injected = tuple[Pcm, float]
"""Audio, and the second in which its fault begins."""


def _pcm(signal: Signal) -> Pcm:
    return np.clip(signal, -32768, 32767).astype(np.int16)


def _level(clause: HealthyClause) -> float:
    return float(np.sqrt(np.mean(clause.pcm.astype(np.float64) ** 2)))


def _begin(draw: Random, clause: HealthyClause, least: float = 0.0) -> int:
    return int(len(clause.pcm) * draw.uniform(least, 0.85))


def _after(draw: Random, clause: HealthyClause, noise: Signal) -> Injected:
    """Speech up to a random place, and from there ``noise`` as loud as the speech."""
    at = _begin(draw, clause)
    noise = noise / max(float(np.sqrt(np.mean(noise**2))), 1e-9) * _level(clause)
    return np.concatenate((clause.pcm[:at], _pcm(noise))), at / clause.rate


def _seconds(clause: HealthyClause) -> NDArray[np.float64]:
    return np.arange(int(FAULT_S * clause.rate)) / clause.rate


def _white(draw: Random, clause: HealthyClause) -> Signal:
    return draw.standard_normal(int(FAULT_S * clause.rate))


def _buzz(draw: Random, clause: HealthyClause) -> Signal:
    pitch = draw.uniform(80, 250)
    return sum(
        (np.sin(2 * np.pi * pitch * n * _seconds(clause)) / n for n in range(1, 20)),
        np.zeros(int(FAULT_S * clause.rate)),
    )


def _swelling(draw: Random, clause: HealthyClause, signal: Signal) -> Signal:
    """``signal``, swelling at the rhythm of syllables."""
    swell: Signal = signal[: len(_seconds(clause))] * (
        0.55 + 0.45 * np.sin(2 * np.pi * draw.uniform(3, 6) * _seconds(clause)[: len(signal)])
    )
    return swell


def _garbage(draw: Random, clause: HealthyClause) -> Signal:
    """A codec fed with random numbers: noise of another colour every 80 ms."""
    size = clause.rate * 80 // 1000
    pieces = []
    for _ in range(int(FAULT_S / 0.08)):
        spectrum = np.fft.rfft(draw.standard_normal(size))
        spectrum *= np.interp(
            np.arange(len(spectrum)), np.linspace(0, len(spectrum), 8), draw.uniform(0, 1, 8) ** 2
        )
        pieces.append(np.fft.irfft(spectrum, size) * draw.uniform(0.3, 1.0))
    return np.concatenate(pieces)


def _silence(draw: Random, clause: HealthyClause, at_start: bool) -> Injected:
    at = 0 if at_start else _begin(draw, clause, 0.1)
    silence = np.zeros(int(FAULT_S * clause.rate), np.int16)
    return np.concatenate((clause.pcm[:at], silence)), at / clause.rate


def _loop(draw: Random, clause: HealthyClause, exact: bool) -> Injected:
    """The last half second to two seconds before a random place, repeated."""
    period = int(draw.uniform(0.5, min(2.0, 0.9 * clause.seconds)) * clause.rate)
    at = int(draw.uniform(period, max(period + 1, 0.95 * len(clause.pcm))))
    piece = clause.pcm[at - period : at].astype(np.float64)
    copies = []
    for _ in range(int(FAULT_S * clause.rate / period) + 1):
        if exact:
            copies.append(piece)
            continue
        off = int(draw.integers(-clause.rate // 100, clause.rate // 100))
        noise = 10 ** (-30 / 20) * _level(clause) * draw.standard_normal(period)
        copies.append((np.roll(piece, off) + noise) * 10 ** (draw.uniform(-2, 2) / 20))
    return np.concatenate((clause.pcm[:at], _pcm(np.concatenate(copies)))), at / clause.rate


def _endless(draw: Random, clause: HealthyClause, others: Sequence[HealthyClause]) -> Injected:
    """Fluent speech of other words after the clause."""
    more = [each.pcm for each in others if each.voice == clause.voice and each is not clause]
    speech = [more[int(n)] for n in draw.integers(0, len(more), 8)]
    return np.concatenate((clause.pcm, *speech)), clause.seconds


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


def inject(
    name: str, clause: HealthyClause, others: Sequence[HealthyClause], seed: int
) -> Detection:
    pcm, begins_s = FAULTS[name](np.random.default_rng(seed), clause, others)
    fault = verdict(clause, pcm)
    after_s = fault.known_s - begins_s if fault else None
    return Detection(name, fault, after_s)


def healthy_report(clauses: Sequence[HealthyClause]) -> dict[str, Any]:
    false_alarms = [clause for clause in clauses if verdict(clause, clause.pcm)]
    return {
        "clauses": len(clauses),
        "seconds": round(sum(clause.seconds for clause in clauses)),
        "cut": len(false_alarms),
        "cut_percent": round(100 * len(false_alarms) / len(clauses), 3),
        "by_voice": {
            voice: {"clauses": n, "cut": sum(clause.voice == voice for clause in false_alarms)}
            for voice, n in Counter(clause.voice for clause in clauses).items()
        },
    }


def faults_report(detections: Iterable[Detection]) -> dict[str, Any]:
    by_name: dict[str, list[Detection]] = {}
    for each in detections:
        by_name.setdefault(each.name, []).append(each)
    return {name: _figures(each) for name, each in by_name.items()}


def _figures(detections: Sequence[Detection]) -> dict[str, Any]:
    after = sorted(f.after_s for f in detections if f.after_s is not None and f.after_s >= 0)
    quantiles = {
        f"after_s_p{p}": round(float(np.quantile(after, p / 100)), 2) for p in (50, 95, 99) if after
    }
    return {
        "n": len(detections),
        "found": len(after),
        "found_percent": round(100 * len(after) / len(detections), 2),
        "within_1_s_percent": round(100 * sum(a <= 1.0 for a in after) / len(detections), 2),
        **quantiles,
        "taken_as": dict(Counter(f.fault.kind for f in detections if f.fault)),
    }


def clauses_of(count: int, seed: int) -> list[HealthyClause]:
    """``count`` healthy clauses, spread evenly over the installed voices."""
    speakers = voices(weights("piper-joe"))
    each = -(-count // len(speakers))
    lines = texts(each * len(speakers), seed)
    random.Random(seed).shuffle(lines)
    return [
        clause
        for number, voice in enumerate(speakers)
        for clause in clauses_by(voice, lines[number * each : (number + 1) * each])
        if len(clause.pcm)
    ]


def main() -> None:
    parser = arguments(__doc__, "benchmarks.voices.faults")
    parser.add_argument("--clauses", type=int, default=2500)
    parser.add_argument("--faults", type=int, default=400, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    before = load()
    clauses = clauses_of(args.clauses, args.seed)
    draw = random.Random(args.seed)
    long = [clause for clause in clauses if clause.seconds > 0.8]
    detections = [
        inject(name, draw.choice(long), clauses, args.seed + number)
        for name in FAULTS
        for number in range(args.faults)
    ]
    report = {
        "healthy": healthy_report(clauses),
        "faults": faults_report(detections),
        "seed": args.seed,
    }
    finish(report, args.out, before)


if __name__ == "__main__":
    main()
