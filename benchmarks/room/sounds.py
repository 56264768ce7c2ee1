"""Sounds of a home, and the people who talk in it. Dry, 16 kHz, seeded.

Music is from Debian's ``asterisk-moh-opsound-g722``. People are recordings in a folder of labels
(``benchmarks.harness.labels``): recordings with one channel are commands to the robot, those with
two are conversations of others. Without a folder, packaged voices say everything.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import soundfile

from benchmarks.echo.scenes import FRESH_TEXTS, TUNING_TEXTS, RobotVoices, active_dbfs
from benchmarks.harness.acoustics import Signal, gained, noise, rms_dbfs, to_signal
from benchmarks.harness.energy import silences, speech_span
from benchmarks.harness.heard_speech import g722
from benchmarks.harness.labels import read_sound, sources
from benchmarks.harness.rooms import Room, through
from benchmarks.turns.people import Packages
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE

Sound = Literal["servo", "fan", "music", "babble", "reader", "television"]
"""``reader``: one voice that never pauses. ``television``: a conversation of two people, with
pauses up to 0.4 s. ``babble``: eight people at once."""
SOUNDS: tuple[Sound, ...] = get_args(Sound)

MOVE_S, STILL_S = 1.2, 0.5
"""How long a servo moves, and how long it rests."""
_TALKERS = 8
_DBFS = -26.0
_MUSIC = Path("usr/share/asterisk/moh")

COMMAND_WORDS = (
    *("Stop.", "No.", "Yes.", "Wait.", "Help.", "Thank you.", "Hello.", "Louder.", "Next."),
    "Quiet.",
)
COMMAND_VOICES = (
    *("piper-joe 0.9", "piper-joe 1.0", "piper-joe 1.2"),
    *("flite awb", "flite rms", "flite slt", "flite kal16"),
    *(f"espeak-ng en-us+{each}" for each in ("m1", "m2", "m3", "m7", "f1", "f2", "f3", "f4")),
    *(f"espeak-ng en-gb-x-rp+{each}" for each in ("m1", "f2", "f5")),
    *("espeak-ng en-gb-scotland+m5", "espeak-ng en-us"),
)
_TALKING_VOICES = ("flite slt", "flite rms", "flite awb")
_READING_VOICES = ("espeak-ng en-us", "espeak-ng en-us+f2", "espeak-ng en-gb-x-rp+m1")
_TEXTS = (*TUNING_TEXTS, *FRESH_TEXTS)
SPOKEN = (
    *itertools.product(COMMAND_VOICES, COMMAND_WORDS),
    *itertools.product((*_TALKING_VOICES, *_READING_VOICES), _TEXTS),
)
"""Everything that packaged voices say, as pairs of voice and text."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A person's words to the robot, in ``signal`` from sample ``begin`` to ``end``. The words of
    ``slots`` must be understood; if empty, all words."""

    name: str
    signal: Signal
    slots: tuple[str, ...] = ()

    @property
    def begin(self) -> int:
        return speech_span(self.signal).start

    @property
    def end(self) -> int:
        return speech_span(self.signal).end


class Home:
    """All sounds that may be heard in a home."""

    def __init__(self, voices: RobotVoices, people: Path | None, packages: Packages) -> None:
        """Raises ``FileNotFoundError`` if ``people`` has no labels."""
        self._voices = voices
        self._packages = packages
        files = sorted(
            file
            for source in (sources(people) if people else ())
            for file in source.iterdir()
            if file.suffix in (".flac", ".wav")
        )
        channels = {file: soundfile.info(file).channels for file in files}
        self._recordings = [file for file in files if channels[file] == 1]
        self._conversations = [file for file in files if channels[file] == 2]

    # -- to the robot

    @property
    def requests(self) -> int:
        """How many different requests there are."""
        return len(self._recordings) or len(FRESH_TEXTS)

    def request(self, number: int) -> Request:
        """The request of this number, in a shuffled order."""
        index = int(np.random.default_rng(7).permutation(self.requests)[number % self.requests])
        if not self._recordings:
            voice = _TALKING_VOICES[index % len(_TALKING_VOICES)]
            return self._spoken_request(voice, FRESH_TEXTS[index])
        file = self._recordings[index]
        return Request(file.stem, to_signal(read_sound(file)), self._slots(file))

    def one_word(self, number: int) -> Request:
        voice, word = SPOKEN[number % (len(COMMAND_VOICES) * len(COMMAND_WORDS))]
        return self._spoken_request(voice, word)

    def one_minute(self, number: int) -> Request:
        """A minute of speech without a pause."""
        index = number % len(_READING_VOICES)
        return Request(_READING_VOICES[index], self._readings[index][: 60 * LISTEN_RATE])

    def _spoken_request(self, voice: str, text: str) -> Request:
        return Request(f"{voice}: {text}", self._say(voice, text), tuple(words(text)))

    def _say(self, voice: str, text: str) -> Signal:
        return _at_level(to_signal(self._voices.say(voice, text)))

    def _slots(self, file: Path) -> tuple[str, ...]:
        intents = file.parent / "intents.json"
        if not intents.is_file():
            return ()
        intent = json.loads(intents.read_text(encoding="utf-8")).get(file.stem, {})
        return tuple(words(" ".join(intent.get("slots", {}).values())))

    # -- beside it

    def at_mic(self, sound: Sound, room: Room, count: int, rng: np.random.Generator) -> Signal:
        """``sound`` as it reaches the microphone; the level is arbitrary. All but the servo come
        from a random place in the room."""
        if sound == "servo":
            return servo(count, rng)
        talkers = _TALKERS if sound == "babble" else 1
        parts = [
            through(self._dry(sound, count, rng), room.response(rng.uniform(0.3, room.size - 0.3)))
            for _ in range(talkers)
        ]
        return np.asarray(np.sum(parts, axis=0), np.float32)

    def _dry(self, sound: Sound, count: int, rng: np.random.Generator) -> Signal:
        if sound == "fan":
            return noise("fan", count, rng)
        match sound:
            case "music":
                pieces = self._music
            case "reader":
                pieces = self._readings
            case _:
                pieces = self._talks
        piece = pieces[int(rng.integers(len(pieces)))]
        return np.resize(np.roll(piece, -int(rng.integers(len(piece)))), count)

    @cached_property
    def _music(self) -> list[Signal]:
        folder = self._packages.find(_MUSIC, "asterisk-moh-opsound-g722")
        return [_at_level(to_signal(g722(file))) for file in sorted(folder.glob("*.g722"))]

    @cached_property
    def _readings(self) -> list[Signal]:
        return [
            shorten(np.concatenate([self._say(voice, text) for text in _TEXTS]), 0.1)
            for voice in _READING_VOICES
        ]

    @cached_property
    def _talks(self) -> list[Signal]:
        """Conversations of two people, or packaged voices if no people are given."""
        talks = [
            np.sum([_at_level(to_signal(read_sound(file, each))) for each in (0, 1)], axis=0)
            for file in self._conversations
        ]
        return [shorten(talk, 0.4) for talk in talks] or self._readings


def shorten(signal: Signal, longest_s: float) -> Signal:
    """``signal`` with silences cut to at most ``longest_s``."""
    keep = np.ones(len(signal), np.bool_)
    for span in silences(signal, longest_s):
        keep[span.start + round(longest_s * LISTEN_RATE) : span.end] = False
    return signal[keep]


def servo(count: int, rng: np.random.Generator) -> Signal:
    """Motors that move and rest, as heard by microphones in the robot's body: a sawtooth that rises
    from 90 Hz to between 150 and 250 and falls again, a hiss from 2 to 6 kHz, both swelling under
    load four to eight times a second, and clicks of gears. Computed, not recorded from a robot."""
    whole = np.zeros(count, np.float32)
    length = round(MOVE_S * LISTEN_RATE)
    at = np.arange(length)
    for start in range(0, count, length + round(STILL_S * LISTEN_RATE)):
        hz = 90 + rng.uniform(60, 160) * np.sin(np.pi * at / length)
        turns = np.cumsum(hz) / LISTEN_RATE
        spectrum = np.fft.rfft(rng.standard_normal(length))
        band = np.fft.rfftfreq(length, 1 / LISTEN_RATE)
        spectrum[(band < 2000) | (band > 6000)] = 0
        hiss = np.fft.irfft(spectrum, length)
        load = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(4, 8) * at / LISTEN_RATE)
        move = (2 * (turns % 1) - 1) * (1 - 0.7 * load) + 0.3 * load * hiss / hiss.std()
        move += 2 * np.convolve(rng.random(length) < 12 / length, np.exp(-at[:200] / 25))[:length]
        part = whole[start : start + length]
        part += (move * np.minimum(1, np.minimum(at, at[::-1]) / 400))[: len(part)]
    return whole


def level_dbfs(sound: Sound, signal: Signal) -> float:
    """The sound's level; for sounds that come and go, without their pauses."""
    return rms_dbfs(signal) if sound in ("fan", "music") else active_dbfs(signal)


def _at_level(signal: Signal) -> Signal:
    return gained(signal, _DBFS - active_dbfs(signal))
