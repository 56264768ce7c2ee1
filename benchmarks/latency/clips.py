"""Audio for the latency benchmarks: recordings of people, slightly different each time.

A ``Take`` is one performance of ``DrySpeech``, ready to stream: at its own speed and level, with or
without a small room, in noise that begins before it and continues after it, at a random position
within the VAD's windows. The same seed produces the same samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import soxr

from app.talk.realtime_client import RATE
from benchmarks.harness import acoustics, energy
from benchmarks.harness.acoustics import Signal
from benchmarks.harness.labels import sources, turns
from benchmarks.harness.scene import RecordedTurn, load, load_people
from hardware.wav import speech_end
from pipeline.audio import LISTEN_RATE, Pcm
from tests.support.recordings import real_recordings

MAX_SPEECH_S = 6.0
"""Longer recordings are not questions."""
LEAD_S = 0.5
TAIL_S = 3.0
"""Noise before and after the speech; answers begin within the tail."""
GAIN_DB = (-12.0, 6.0)
SPEED = (0.94, 1.06)
SNR_DB = (25.0, 40.0)
RT60_S = (0.15, 0.35)
"""Small, furnished rooms."""
ROOM_SHARE = 0.5
HEADROOM_DBFS = -1.0
"""No gain raises a peak above this."""
WINDOW_S = 0.032
"""The VAD's window: where speech ends within it determines when silence is detected."""
INNER_PAUSE_S = (0.3, 1.0)

INCOMPLETE = frozenset({"cards-004", "cards-005", "dhd.2934z", "librivox-0890"})
"""Digits, a list, and half a sentence: a listener could not tell that they have ended."""


@dataclass(frozen=True, eq=False)
class DrySpeech:
    """Dry speech."""

    name: str
    group: str
    """Shared by performances of one recording, and by recordings that are not independent of it."""
    signal: Signal
    """16 kHz, shape ``(n,)``."""
    text: str
    pauses: tuple[tuple[int, int], ...] = ()
    """Silences, as sample ranges, in which the speaker was not done."""
    ends_plainly: bool = True
    end: int | None = None
    """The index after the last speech sample, if labelled; otherwise it is found by energy."""


@dataclass(frozen=True, eq=False)
class Take:
    """One performance."""

    name: str
    group: str
    pcm: Pcm
    """int16 mono at 24 kHz, shape ``(n,)``."""
    end: int
    """Index after the last speech sample, by label, or by energy before room and noise."""
    words: tuple[tuple[float, float, str], ...]
    """The words said, with their start and end, in seconds from the first sample."""
    how: dict[str, float | str] = field(default_factory=dict)
    """The changes made to the recording."""


# --- recordings --------------------------------------------------------------------------------


@cache
def recordings_of_people() -> tuple[DrySpeech, ...]:
    """Recordings of ``tests/support/recordings.py`` with at most ``MAX_SPEECH_S`` of speech."""
    recordings = []
    for each in real_recordings():
        if speech_end(each.pcm, LISTEN_RATE) <= MAX_SPEECH_S * LISTEN_RATE:
            signal = acoustics.to_signal(each.pcm)
            plainly = each.name not in INCOMPLETE
            recordings.append(DrySpeech(each.name, each.name, signal, each.text, (), plainly))
    return tuple(recordings)


def recordings_of_corpus(directory: Path) -> Iterator[DrySpeech]:
    """Clean real speech of a corpus made by ``benchmarks.turns.build``, without spliced pauses.

    Raises ``FileNotFoundError`` if there is none.
    """
    for scene in load_people(directory):
        natural = all(pause.kind == "natural" for pause in scene.pauses)
        if natural and _short(scene):
            plainly = scene.kind in ("question", "command", "statement") and not scene.pauses
            yield _of_scene(scene, plainly)


def labelled_recordings(folder: Path) -> Iterator[DrySpeech]:
    """Turns of real people (``benchmarks.harness.labels``). Raises ``FileNotFoundError``."""
    for source in sources(folder):
        for scene in turns(source):
            if _short(scene):
                yield replace(_of_scene(scene, plainly=not scene.pauses), group=scene.speaker)


def scenes_with_pauses(directory: Path) -> Iterator[DrySpeech]:
    """Clean scenes of a corpus in which the speaker pauses without being done."""
    for scene in load(directory):
        inner = scene.pauses and all(pause.kind != "sentence" for pause in scene.pauses)
        if inner and scene.snr_db is None and _short(scene):
            yield _of_scene(scene, plainly=False)


def _short(scene: RecordedTurn) -> bool:
    return scene.end - scene.onset <= MAX_SPEECH_S * LISTEN_RATE


def _of_scene(scene: RecordedTurn, plainly: bool) -> DrySpeech:
    # The labels are where speech is 40 dB under its loud parts; a margin keeps its decay.
    margin = LISTEN_RATE // 10
    start = max(0, scene.onset - margin)
    signal = acoustics.to_signal(scene.pcm[start : scene.end + margin])
    pauses = tuple((pause.start - start, pause.end - start) for pause in scene.pauses)
    group = f"{scene.speaker}: {scene.text}"
    end = None if scene.text else scene.end - start
    return DrySpeech(scene.id, group, signal, scene.text, pauses, plainly, end)


# --- made of recordings ------------------------------------------------------------------------


def with_inner_pause(speech: DrySpeech, rng: np.random.Generator) -> DrySpeech:
    """``speech`` with a pause of ``INNER_PAUSE_S`` at the softest place of its middle third."""
    signal = speech.signal
    span = energy.speech_span(signal)
    third = span.samples // 3
    at = energy.quietest(signal, span.start + third, span.end - third)
    pause = acoustics.room_tone(int(rng.uniform(*INNER_PAUSE_S) * LISTEN_RATE), rng)
    whole = np.concatenate((signal[:at], pause, signal[at:]))
    name = f"{speech.name}+pause"
    pauses = ((at, at + len(pause)),)
    return DrySpeech(name, speech.group, whole, speech.text, pauses, ends_plainly=False)


# --- performances ------------------------------------------------------------------------------


def perform_all(recordings: Sequence[DrySpeech], count: int, seed: int) -> list[Take]:
    """``count`` performances in a random order, spread evenly over the recordings."""
    rng = np.random.default_rng(seed)
    order: list[DrySpeech] = []
    while len(order) < count:
        order += [recordings[index] for index in rng.permutation(len(recordings))]
    return [perform(speech, rng) for speech in order[:count]]


def perform(speech: DrySpeech, rng: np.random.Generator) -> Take:
    """One performance, as the module describes."""
    speed = float(rng.uniform(*SPEED))
    dry = acoustics.at_speed(speech.signal, speed)
    if speech.end is None:
        end = speech_end(acoustics.to_pcm(dry), LISTEN_RATE)
    else:
        end = round(speech.end / speed)
    headroom_db = HEADROOM_DBFS - 20 * float(np.log10(np.abs(dry).max() + 1e-9))
    gain_db = min(float(rng.uniform(*GAIN_DB)), headroom_db)
    dry = acoustics.gained(dry, gain_db)
    rt60_s = float(rng.uniform(*RT60_S)) if rng.random() < ROOM_SHARE else 0.0
    if rt60_s:
        dry = acoustics.in_room(dry, acoustics.room_response(rt60_s, rng))
    lead = int((LEAD_S + rng.uniform(0, WINDOW_S)) * LISTEN_RATE)
    kind = "pink" if rng.random() < 0.5 else "room tone"
    snr_db = float(rng.uniform(*SNR_DB))
    whole = np.pad(dry, (lead, int(TAIL_S * LISTEN_RATE)))
    active = energy.active(whole)
    sound = (
        acoustics.noise("pink", len(whole), rng)
        if kind == "pink"
        else acoustics.room_tone(len(whole), rng)
    )
    noisy = whole + acoustics.at_snr(whole, active, sound, snr_db)
    how: dict[str, float | str] = {"speed": speed, "gain_db": gain_db, "rt60_s": rt60_s}
    how |= {"noise": kind, "snr_db": snr_db}
    pcm = acoustics.to_pcm(soxr.resample(noisy, LISTEN_RATE, RATE))
    words = _timed_words(speech, speed, end, lead)
    return Take(speech.name, speech.group, pcm, (lead + end) * RATE // LISTEN_RATE, words, how)


def _timed_words(
    speech: DrySpeech, speed: float, end: int, lead: int
) -> tuple[tuple[float, float, str], ...]:
    """The words between the pauses, assuming words of equal length."""
    onset = energy.speech_span(speech.signal).start / speed
    borders = [onset, *(at / speed for pause in speech.pauses for at in pause), float(end)]
    parts = [pair for pair in _pairs(borders) if pair[1] > pair[0]]
    texts = _share_out(speech.text.split(), [b - a for a, b in parts])
    seconds = [((lead + a) / LISTEN_RATE, (lead + b) / LISTEN_RATE) for a, b in parts]
    return tuple((a, b, text) for (a, b), text in zip(seconds, texts, strict=True))


def _pairs(borders: Iterable[float]) -> Iterator[tuple[float, float]]:
    flat = iter(borders)
    return zip(flat, flat, strict=True)


def _share_out(words: Sequence[str], lengths: Sequence[float]) -> list[str]:
    """Split ``words``, in order, over parts in proportion to their ``lengths``."""
    ends = [round(len(words) * total / sum(lengths)) for total in itertools.accumulate(lengths)]
    return [" ".join(words[a:b]) for a, b in itertools.pairwise([0, *ends])]
