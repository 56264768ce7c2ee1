"""Seeded echo scenes: a robot speaks in a room, with or without a person interrupting.

The same seed, voices and corpus produce the same scenes. Seeds below 100 are for tuning; figures
come from seeds of 1000 and above, where the robot says other sentences. Robot: Piper and flite.
People: the recordings of the conversation corpus without added noise or room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.harness.acoustics import (
    Signal,
    at_speed,
    gained,
    noise,
    to_pcm,
    to_signal,
)
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.rooms import LOUDSPEAKERS, draw_room, through, through_loudspeaker
from benchmarks.harness.scene import load_people
from pipeline.audio import LISTEN_RATE, Pcm

FIRST_REPORTED_SEED = 1000

_PEAK = 0.7
_ECHO_DBFS = (-26.0, -18.0)
_NEAR_DBFS = (-30.0, -22.0)
"""Level of people speaking to a robot (``pipeline/engines/vad/noise.py`` has -34 to -20)."""
_NOISE_UNDER_ECHO_DB = 35.0
_PAUSE_S = (0.15, 0.6)
_DELAY_S = (0.02, 0.12)
_LONGEST_S = 8.0
_FRAME = LISTEN_RATE // 100

TUNING_TEXTS = (
    "I have been thinking about your question for a while.",
    "The weather is going to be sunny all day, with a light wind from the west.",
    "Let me tell you a story about a small boat and a very large whale.",
    "You can find the keys on the shelf next to the front door.",
    "There are eight planets, and the largest of them is Jupiter.",
    "I am sorry, but I do not know the answer to that.",
    "First you boil the water, then you add the pasta and some salt.",
    "That sounds like a wonderful idea!",
    "My favourite colour is green, because it reminds me of the forest.",
    "The train leaves at quarter past nine from platform four.",
    "Did you know that honey never goes bad?",
    "Now I will turn my head to the right, and look out of the window.",
    "It takes about twenty minutes to walk there.",
    "Once upon a time there lived a king who could not sleep.",
    "Yes, I can hear you quite well.",
    "The recipe needs two eggs, a cup of sugar, and half a pound of flour.",
)
FRESH_TEXTS = (
    "Good morning! I hope that you have slept well.",
    "Your next appointment is with the dentist, on Thursday at half past three.",
    "A group of crows is called a murder, which is rather unfair to the crows.",
    "If you multiply seven by eight, you get fifty six.",
    "The museum opens at ten, and on Mondays it is closed.",
    "I would start with the corners, and then look for the edges of the puzzle.",
    "Somebody rang the bell while you were in the garden.",
    "Paper was invented in China about two thousand years ago.",
    "I have set a timer for twelve minutes.",
    "In the evening the temperature will fall below zero, so take a warm coat.",
    "She asked whether you would like to join them for dinner tomorrow.",
    "This song was written by a band from Liverpool in nineteen sixty seven.",
    "Please put the books back on the table when you are done.",
    "The shortest way is through the park and across the old stone bridge.",
    "Dolphins sleep with one half of their brain at a time.",
    "Of course! Which of the two shall I read to you?",
    "Be careful, the floor in the kitchen is still wet.",
    "An hour has sixty minutes, and a day has fourteen hundred and forty.",
    "When the ice melts, the water level in the glass stays the same.",
    "I cannot see very much in here, because it is too dark.",
    "He climbed up the ladder, picked three apples, and fell right into the hedge.",
    "The battery is almost full, it needs another quarter of an hour.",
    "Would you like me to go on, or shall we stop here for today?",
    "Long ago, people thought that the sun moved around the earth.",
    "Your sister sent a photograph of a very fluffy cat.",
    "To make a paper plane, fold the sheet in the middle first.",
)
ROBOT_VOICES = (
    "piper-joe 0.9", "piper-joe 1.0", "piper-joe 1.2", "piper-joe 1.0",
    "flite awb", "flite rms", "flite slt", "flite kal16",
)  # fmt: skip
"""The project's own voice speaks in half of the scenes."""


class InterruptionClip(NamedTuple):
    """A person who interrupts; speech begins at sample ``onset`` of ``signal``."""

    name: str
    text: str
    text_by: str
    signal: Signal
    onset: int


@dataclass(frozen=True, slots=True, eq=False)
class EchoScene:
    seed: int
    voice: str
    reference: Pcm
    """``reference`` and the property ``microphone`` are int16, 16 kHz, the same length, whole
    blocks of 10 ms."""
    echo: Signal
    noise: Signal
    echo_dbfs: float
    """Level of the echo where the robot speaks."""
    robot_s: float
    """How long the robot speaks."""
    near: Signal
    """Response from the talker to the microphone."""

    @property
    def microphone(self) -> Pcm:
        return to_pcm(self.echo + self.noise)

    def interruption(self, clip: InterruptionClip, ser_db: float) -> Signal:
        """``clip`` in this room, its active parts ``ser_db`` above those of the echo."""
        sound = through(np.concatenate((clip.signal, np.zeros(4800, np.float32))), self.near)
        return gained(sound, self.echo_dbfs + ser_db - active_dbfs(sound))


def active_dbfs(signal: Signal) -> float:
    """Level of the speech, which is the 10 ms frames within 30 dB of the loudest."""
    frames = signal[: len(signal) // _FRAME * _FRAME].reshape(-1, _FRAME)
    power = np.square(frames, dtype=np.float64).mean(axis=1)
    active = power > power.max() * 1e-3
    return float(10 * np.log10(power[active].mean() + 1e-12))


class RobotVoices:
    """Every text by every voice, synthesised once and kept in a file; 16 kHz int16."""

    def __init__(self, speech: Mapping[str, Pcm]) -> None:
        self._speech = speech

    def say(self, voice: str, text: str) -> Pcm:
        return self._speech[f"{voice}: {text}"]

    @classmethod
    def load(cls, file: Path) -> RobotVoices:
        with np.load(file) as arrays:
            return cls({name: arrays[name] for name in arrays.files})


SPOKEN = tuple(itertools.product(sorted(set(ROBOT_VOICES)), (*TUNING_TEXTS, *FRESH_TEXTS)))
"""Pairs of voice and text."""


def say_all(piper_weights: Path, file: Path, lines: Iterable[tuple[str, str]] = SPOKEN) -> None:
    """Write ``file`` (NPZ) if it is missing."""
    if file.exists():
        return
    voices = Voices(piper_weights)
    speech = {f"{voice}: {text}": voices.say(voice, text).speech for voice, text in lines}
    unfinished = file.with_suffix(".part.npz")
    np.savez(unfinished, **speech)  # type: ignore[arg-type]
    unfinished.replace(file)


class Speaks(Protocol):
    def say(self, voice: str, text: str) -> Pcm: ...


class EchoSceneMaker:
    def __init__(self, voices: Speaks) -> None:
        self._voices = voices

    def make(self, seed: int, seconds: float, ser_db: float | None = None) -> EchoScene:
        """One scene. ``ser_db``: how much softer the echo is than people speaking to the robot,
        whose level is the same in all scenes of a seed. ``None``: the echo's level is random."""
        rng = np.random.default_rng([seed, 77])
        room = draw_room(rng)
        voice = ROBOT_VOICES[int(rng.integers(len(ROBOT_VOICES)))]
        loudspeaker = LOUDSPEAKERS[int(rng.integers(len(LOUDSPEAKERS)))]
        ppm = float(rng.choice([0.0, 100.0, -100.0]))
        delay_s = float(rng.uniform(*_DELAY_S))
        speech = self.speech(voice, seed, seconds, rng)
        loud = at_speed(through_loudspeaker(speech, loudspeaker), 1 + ppm * 1e-6)
        late = np.pad(loud, (round(delay_s * LISTEN_RATE), len(speech)))[: len(speech)]
        echo = through(late.astype(np.float32), room.response(room.loudspeaker))
        level_dbfs = float(rng.uniform(*_ECHO_DBFS))
        if ser_db is not None:
            level_dbfs = float(rng.uniform(*_NEAR_DBFS)) - ser_db
        echo = gained(echo, level_dbfs - active_dbfs(echo))
        floor = gained(noise("pink", len(speech), rng), level_dbfs - _NOISE_UNDER_ECHO_DB)
        near, robot_s = room.response(room.talker), _active_s(speech)
        return EchoScene(seed, voice, to_pcm(speech), echo, floor, level_dbfs, robot_s, near)

    def speech(self, voice: str, seed: int, seconds: float, rng: np.random.Generator) -> Signal:
        texts = FRESH_TEXTS if seed >= FIRST_REPORTED_SEED else TUNING_TEXTS
        count = int(seconds * LISTEN_RATE) // _FRAME * _FRAME
        whole = np.zeros(count, np.float32)
        at = LISTEN_RATE // 4
        while at < count:
            clip = to_signal(self._voices.say(voice, texts[int(rng.integers(len(texts)))]))
            clip = clip * np.float32(_PEAK / (np.abs(clip).max() + 1e-9))
            part = clip[: count - at]
            whole[at : at + len(part)] = part
            at += len(clip) + int(rng.uniform(*_PAUSE_S) * LISTEN_RATE)
        return whole


def _active_s(speech: Signal) -> float:
    frames = np.square(speech.reshape(-1, _FRAME)).mean(axis=1)
    return float(np.count_nonzero(frames > frames.max() * 1e-4)) * _FRAME / LISTEN_RATE


# --- people ------------------------------------------------------------------------------------


@cache
def clips_of_people(corpora: tuple[Path, ...]) -> list[InterruptionClip]:
    """Every recording of a person without added noise or room."""
    clips: dict[str, InterruptionClip] = {}
    for corpus in corpora:
        for scene in load_people(corpus):
            speech = to_signal(scene.pcm[scene.onset - _FRAME : scene.end + 2 * _FRAME])
            speech = speech[: int(_LONGEST_S * LISTEN_RATE)]
            name = f"{scene.source.removeprefix('real:')} {scene.id}"
            clips[scene.id] = InterruptionClip(
                name, scene.text, scene.text_by, speech, onset(speech)
            )
    return [clips[each] for each in sorted(clips)]


def onset(signal: Signal) -> int:
    """First 10 ms frame within 32 dB of the loudest, as in the prototype's figures."""
    frames = signal[: len(signal) // _FRAME * _FRAME].reshape(-1, _FRAME)
    power = np.square(frames, dtype=np.float64).mean(axis=1)
    return int(np.flatnonzero(power > power.max() * 10**-3.2)[0]) * _FRAME
