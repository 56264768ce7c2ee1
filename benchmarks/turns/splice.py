"""Inserts pauses into a clip, and stretches the syllable before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.acoustics import Signal
from benchmarks.harness.energy import Span, silences, speech_span
from benchmarks.harness.scene import PauseKind, ScenePause
from benchmarks.turns.clips import Clip, WordBoundary
from pipeline.audio import LISTEN_RATE

FADE_SAMPLES = LISTEN_RATE * 8 // 1000
MARGIN_SAMPLES = LISTEN_RATE * 30 // 1000
_SHORT_SILENCE_S = 0.04
_SYLLABLE_SAMPLES = LISTEN_RATE * 150 // 1000


@dataclass(frozen=True)
class Cut:
    """A pause of ``seconds`` at ``border``, including the silence already there.

    ``stretch``: factor for the length of the last 150 ms of speech before it; 1: as spoken.
    """

    border: WordBoundary
    seconds: float
    stretch: float = 1.0


@dataclass(frozen=True, eq=False)
class SplicedClip:
    """A clip with its pauses. ``onset``, ``end`` and ``pauses`` count from its first sample."""

    clip: Clip
    signal: Signal
    """Dry, zero where a pause was cut in."""
    speech: Signal
    """float32 of the same shape, 1 where ``signal`` is the recording, 0 where it is to be filled,
    with 8 ms ramps."""
    onset: int
    end: int
    pauses: tuple[ScenePause, ...]
    stretched: bool


def utterance(clip: Clip, cuts: Sequence[Cut] = ()) -> SplicedClip:
    """``clip`` with its natural pauses and with ``cuts``, each at a different border."""
    whole = speech_span(clip.signal)
    short = silences(clip.signal, _SHORT_SILENCE_S)
    pieces: list[tuple[Signal, Signal]] = []
    shifts: list[tuple[int, int]] = [(0, 0)]
    pauses: list[ScenePause] = []
    first = max(0, whole.start - MARGIN_SAMPLES)
    position = 0
    for cut in sorted(cuts, key=lambda cut: cut.border.at):
        silence = _silence_at(short, cut.border.at)
        piece = clip.signal[first : cut.border.at]
        longer = _stretch_end(piece, silence.start - first, cut.stretch)
        gap = max(0, round(cut.seconds * LISTEN_RATE) - silence.samples)
        pieces += [_fade(longer), (_zeros(gap), _zeros(gap))]
        start = position + len(longer) - (cut.border.at - silence.start)
        position += len(longer) + gap
        pauses.append(ScenePause(start, start + silence.samples + gap, cut.border.kind))
        shifts.append((cut.border.at, position - cut.border.at))
        first = cut.border.at
    last = min(len(clip.signal), whole.end + MARGIN_SAMPLES)
    pieces.append(_fade(clip.signal[first:last]))
    shifts[0] = (0, -max(0, whole.start - MARGIN_SAMPLES))
    pauses += _own_pauses(clip, cuts, short, shifts)
    return SplicedClip(
        clip=clip,
        signal=np.concatenate([signal for signal, _ in pieces]),
        speech=np.concatenate([speech for _, speech in pieces]),
        onset=whole.start + shifts[0][1],
        end=whole.end + shifts[-1][1],
        pauses=tuple(sorted(pauses, key=lambda pause: pause.start)),
        stretched=any(cut.stretch != 1.0 for cut in cuts),
    )


def _own_pauses(
    clip: Clip, cuts: Sequence[Cut], short: Sequence[Span], shifts: Sequence[tuple[int, int]]
) -> list[ScenePause]:
    """The natural pauses without a cut, moved to their new positions.

    ``shifts``: pairs of a sample of the clip and the shift of everything from there on.
    """
    cut_starts = {_silence_at(short, cut.border.at).start for cut in cuts}
    pauses = []
    for silence in silences(clip.signal):
        if silence.start in cut_starts:
            continue
        shift = [by for at, by in shifts if at <= silence.start][-1]
        kind: PauseKind = "natural"
        for border in clip.borders:
            if silence.start <= border.at <= silence.end and border.kind == "sentence":
                kind = "sentence"
        pauses.append(ScenePause(silence.start + shift, silence.end + shift, kind))
    return pauses


def _silence_at(short: Sequence[Span], at: int) -> Span:
    """The silence around ``at``; empty if there is none."""
    for silence in short:
        if silence.start <= at <= silence.end:
            return silence
    return Span(at, at)


def _stretch_end(piece: Signal, speech_end: int, factor: float) -> Signal:
    """``piece`` with the last 150 ms before ``speech_end`` lasting ``factor`` times as long."""
    begin = max(0, speech_end - _SYLLABLE_SAMPLES)
    if factor == 1.0 or speech_end - begin < _SYLLABLE_SAMPLES // 2:
        return piece
    longer = stretch(piece[begin:speech_end], factor)
    return np.concatenate([piece[:begin], longer, piece[speech_end:]])


def stretch(signal: Signal, factor: float) -> Signal:
    """``signal`` stretched by ``factor`` at the same pitch; its beginning and end stay the same.

    Overlapping windows of 20 ms, each taken where it best fits the window before, within 5 ms of
    its nominal position (WSOLA, Verhelst and Roelands 1993).
    """
    size, hop, reach = 320, 160, 80
    samples = round(len(signal) * factor)
    padded = np.concatenate([_zeros(size), signal, _zeros(2 * size)]).astype(np.float64)
    whole = np.zeros(samples + 3 * size)
    weight = np.zeros(len(whole))
    window = np.hanning(size + 1)[:size]
    source = size - hop
    for at in range(0, samples + size, hop):
        target = min(round((at - hop) / factor) + size, len(padded) - 2 * size)
        if at > hop:
            follows = padded[source + hop : source + hop + size]
            offsets = range(max(0, target - reach), min(len(padded) - size, target + reach) + 1)
            source = max(offsets, key=lambda o: float(padded[o : o + size] @ follows))
        else:
            source = target
        whole[at : at + size] += window * padded[source : source + size]
        weight[at : at + size] += window
    result = whole[hop : hop + samples] / np.maximum(weight[hop : hop + samples], 1e-3)
    return _blend_ends(signal, result.astype(np.float32))


def _blend_ends(signal: Signal, longer: Signal) -> Signal:
    """``longer`` with the first and last 5 ms of ``signal`` blended in, to avoid clicks."""
    size = min(80, len(signal) // 4)
    ramp = np.linspace(0.0, 1.0, size, dtype=np.float32)
    longer[:size] = signal[:size] * (1 - ramp) + longer[:size] * ramp
    longer[-size:] = longer[-size:] * (1 - ramp) + signal[-size:] * ramp
    return longer


def _fade(piece: Signal) -> tuple[Signal, Signal]:
    """The piece with 8 ms ramps at both ends, and the ramps."""
    speech = np.ones(len(piece), dtype=np.float32)
    size = min(FADE_SAMPLES, len(piece) // 2)
    ramp = np.linspace(0.0, 1.0, size, endpoint=False, dtype=np.float32)
    speech[:size] = ramp
    speech[len(piece) - size :] = ramp[::-1]
    return (piece * speech).astype(np.float32), speech


def _zeros(samples: int) -> Signal:
    return np.zeros(samples, dtype=np.float32)
