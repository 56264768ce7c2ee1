"""Turns an utterance into a scene: quiet around it, a level, a room, room tone, noise."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from benchmarks.harness.acoustics import (
    Mask,
    NoiseKind,
    Signal,
    at_snr,
    gained,
    in_room,
    like_floor,
    noise,
    rms_dbfs,
    room_response,
    room_tone,
    to_pcm,
)
from benchmarks.harness.scene import Part, RecordedTurn, ScenePause
from benchmarks.turns.splice import SplicedClip
from pipeline.audio import LISTEN_RATE

LEAD_S = (0.5, 1.2)
TAIL_S = (2.6, 3.0)
LEVEL_DBFS = (-30.0, -22.0)
"""Level of the speech-active parts. A headset delivers about -26 (ITU-T P.56's nominal level)."""

_FLOOR_UNDER_SPEECH_DB = 30.0
"""The least distance: in a clip without silence, the estimated floor would be speech."""
_NOISES: tuple[NoiseKind, ...] = ("pink", "babble", "fan")


@dataclass(frozen=True)
class Conditions:
    """Without ``snr_db`` there is only room tone; without ``rt60_s`` no room."""

    snr_db: float | None = None
    rt60_s: float | None = None


class Draws:
    """Random generators of one scene, one per purpose, so that they do not affect each other."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._name = name

    def of(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(
            [self._seed, crc32(self._name.encode()), crc32(purpose.encode())]
        )


def compose(
    utterance: SplicedClip, conditions: Conditions, part: Part, name: str, seed: int
) -> RecordedTurn:
    """The scene ``name``. The same arguments produce the same samples."""
    draws = Draws(seed, name)
    rng = draws.of("place")
    lead = round(rng.uniform(*LEAD_S) * LISTEN_RATE)
    tail = round(rng.uniform(*TAIL_S) * LISTEN_RATE)
    onset, end = lead, lead + utterance.end - utterance.onset
    shift = lead - utterance.onset
    pauses = tuple(ScenePause(p.start + shift, p.end + shift, p.kind) for p in utterance.pauses)
    samples = end + tail
    active = active_samples(samples, onset, end, pauses)
    dry = _dry(utterance, shift, samples, draws.of("floor"))
    dry = gained(dry, float(rng.uniform(*LEVEL_DBFS)) - rms_dbfs(dry[active]))
    if conditions.rt60_s is not None:
        dry = in_room(dry, room_response(conditions.rt60_s, draws.of("room")))
    mix = dry + room_tone(samples, draws.of("tone"))
    if conditions.snr_db is not None:
        which = draws.of("noise")
        sound = noise(_NOISES[int(which.integers(len(_NOISES)))], samples, which)
        mix = mix + at_snr(dry, active, sound, conditions.snr_db)
    clip = utterance.clip
    return RecordedTurn(
        id=name,
        part=part,
        source=clip.source,
        speaker=clip.speaker,
        kind=clip.kind,
        text=clip.text,
        asked=clip.asked,
        snr_db=conditions.snr_db,
        rt60_s=conditions.rt60_s,
        pcm=to_pcm(mix),
        onset=onset,
        end=end,
        pauses=pauses,
        text_by=clip.text_by,
        stretched=utterance.stretched,
    )


def active_samples(samples: int, onset: int, end: int, pauses: tuple[ScenePause, ...]) -> Mask:
    """One flag a sample: whether it is speech according to the labels."""
    active = np.zeros(samples, dtype=np.bool_)
    active[onset:end] = True
    for pause in pauses:
        active[pause.start : pause.end] = False
    return active


def _dry(utterance: SplicedClip, shift: int, samples: int, rng: np.random.Generator) -> Signal:
    """The utterance at ``shift``, with the recording's noise floor around it and in its pauses."""
    dry = np.zeros(samples, dtype=np.float32)
    inside = np.zeros(samples, dtype=np.float32)
    dry[shift : shift + len(utterance.signal)] = utterance.signal
    inside[shift : shift + len(utterance.speech)] = utterance.speech
    floor = like_floor(utterance.clip.signal, samples, rng)
    limit = rms_dbfs(utterance.clip.signal) - _FLOOR_UNDER_SPEECH_DB
    floor = gained(floor, min(0.0, limit - rms_dbfs(floor)))
    result: Signal = dry + floor * np.sqrt(1 - inside**2)
    return result
