"""Seeded scenes for the onsets benchmark: a speaker begins at a known sample.

The truth comes from the clean clip (``heard_speech.bounds``) before room, noise or echo are mixed
in. The same seed and the same installed voices produce the same scenes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness.acoustics import (
    Signal,
    gained,
    in_room,
    noise,
    rms_dbfs,
    room_response,
    room_tone,
    to_pcm,
    to_signal,
)
from benchmarks.harness.heard_speech import (
    FIRST_AND_REST,
    Speech,
    Voices,
    phrases_of_people,
    rests_of_people,
    words_of_people,
)
from pipeline.audio import LISTEN_RATE, Pcm
from tests.support.recordings import real_recordings

Noise = Literal["pink", "fan", "babble", "voices"]
"""``babble`` is noise like many talkers; ``voices`` are real talkers, backwards: the sound of
speech without words."""
NOISES: tuple[Noise, ...] = ("pink", "fan", "babble", "voices")

NOISY_TAIL_S = 0.6
QUIET_TAIL_S = 2.0
"""Noise and echo end before the scene, so that every turn ends within it."""
ROBOT_TEXT = (
    "I have been thinking about your question for a while, and there are several things that I "
    "would like to tell you about it, if you have the time to listen to me."
)
_TALKERS = 16
_TALKERS_S = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class OnsetScene:
    """``pcm``: 16 kHz int16 mono. ``onset``: first speech sample; ``end``: after the last.

    ``words``: what is said, if known. ``pause_ms``: between the first word and the rest; ``None``:
    they are one utterance. ``rt60_s``: of the room, if it is heard. ``snr_db`` ``None``: room tone
    alone. ``soft``: the voice fades in.
    ``playing``: an answer is being said; ``echo_db``: how loud it comes back, against the speech.
    ``rate``: Hz at which the client sends it.
    """

    number: int
    source: str
    words: str
    pcm: Pcm
    onset: int
    end: int
    pause_ms: int | None
    rt60_s: float | None
    noise: Noise | None
    snr_db: int | None
    soft: bool
    playing: bool
    echo_db: int | None
    rate: int

    @property
    def real(self) -> bool:
        return self.source.startswith("real")

    @property
    def condition(self) -> str:
        return "clean" if self.snr_db is None else f"{self.snr_db} dB"


class SceneMaker:
    """Mixes scenes; ``seed`` decides everything."""

    def __init__(self, seed: int, piper_weights: Path, corpora: Sequence[Path] = ()) -> None:
        self._seed = seed
        self._voices = Voices(piper_weights, ROBOT_TEXT)
        self._phrases = phrases_of_people(corpora)
        self._robot = to_signal(self._voices.robot.spoken)

    def scenes(self, count: int) -> Iterator[OnsetScene]:
        for number in range(count):
            yield self.scene(number)

    def scene(self, number: int) -> OnsetScene:
        """The scene with that number, independent of earlier calls."""
        rng = np.random.default_rng((self._seed, number))
        speech, pause_ms, words = self._speech(rng)
        soft = bool(rng.random() < 1 / 3)
        voice = to_signal(speech.spoken)
        if soft:
            voice = faded_in(voice, fade_ms=rng.uniform(60, 120))
        voice = gained(voice, rng.uniform(-34, -20) - active_dbfs(voice))
        level = active_dbfs(voice)
        rt60_s = float(rng.uniform(0.2, 0.6)) if rng.random() < 0.2 else None
        # One in twenty speaks as soon as the session begins, when there is no history yet.
        early = rng.random() < 0.05
        onset = int(LISTEN_RATE * (rng.uniform(0, 0.2) if early else rng.uniform(0.6, 2.0)))
        end = onset + len(voice)
        noisy = np.zeros(end + int(NOISY_TAIL_S * LISTEN_RATE), dtype=np.float32)
        noisy[onset:end] = voice
        if rt60_s is not None:
            noisy = in_room(noisy, room_response(rt60_s, rng))
        playing = bool(not early and rng.random() < 1 / 3)
        echo_db = int(rng.choice((-20, -25, -30))) if playing and rng.random() < 2 / 3 else None
        if echo_db is not None:
            robot = np.resize(np.roll(self._robot, -rng.integers(len(self._robot))), len(noisy))
            noisy += gained(robot, level + echo_db - active_dbfs(robot))
        snr_db = (None, 20, 10, 0)[rng.integers(4)]
        kind = NOISES[rng.integers(len(NOISES))] if snr_db is not None else None
        if kind is not None and snr_db is not None:
            noisy += gained(noise_of(kind, len(noisy), rng), level - snr_db)
        whole = room_tone(len(noisy) + int(QUIET_TAIL_S * LISTEN_RATE), rng)
        whole[: len(noisy)] += noisy
        return OnsetScene(
            number=number,
            source=speech.source,
            words=words,
            pcm=to_pcm(whole),
            onset=onset,
            end=end,
            pause_ms=pause_ms,
            rt60_s=rt60_s,
            noise=kind,
            snr_db=snr_db,
            soft=soft,
            playing=playing,
            echo_db=echo_db,
            rate=24_000 if rng.random() < 0.3 else LISTEN_RATE,
        )

    def _speech(self, rng: np.random.Generator) -> tuple[Speech, int | None, str]:
        """The speech, the pause after its first word, and its words if all are known."""
        phrases, singles = self._phrases, words_of_people()
        kind = rng.choice(("voice", "voice", "phrase", "single" if singles else "phrase"))
        if kind == "phrase":
            chosen = phrases[rng.integers(len(phrases))]
            return chosen, None, chosen.text
        pause_ms = int(rng.integers(0, 401))
        if kind == "single":
            rests = rests_of_people()
            first, rest = singles[rng.integers(len(singles))], rests[rng.integers(len(rests))]
            return joined(rng, first, rest, pause_ms), pause_ms, first.text
        first_word, rest_words = FIRST_AND_REST[rng.integers(len(FIRST_AND_REST))]
        name = self._voices.names[rng.integers(len(self._voices.names))]
        words = f"{first_word}, {rest_words}"
        if rng.random() < 1 / 3:
            return self._voices.say(name, f"{first_word} {rest_words}"), None, words
        first = self._voices.say(name, f"{first_word}.")
        return joined(rng, first, self._voices.say(name, rest_words), pause_ms), pause_ms, words


def joined(rng: np.random.Generator, first: Speech, rest: Speech, pause_ms: int) -> Speech:
    """First word, pause, rest; the rest comes at about the level of the first word."""
    one, other = to_signal(first.spoken), to_signal(rest.spoken)
    other = gained(other, active_dbfs(one) - active_dbfs(other) + rng.uniform(-2, 2))
    gap = np.zeros(pause_ms * LISTEN_RATE // 1000, dtype=np.float32)
    pcm = to_pcm(np.concatenate((one, gap, other)))
    return Speech(first.source, first.text, pcm, 0, len(pcm))


def faded_in(voice: Signal, fade_ms: float) -> Signal:
    """A soft onset: from -12 dB to full level."""
    count = min(len(voice), int(fade_ms * LISTEN_RATE / 1000))
    faded = voice.copy()
    faded[:count] *= np.linspace(10 ** (-12 / 20), 1.0, count, dtype=np.float32)
    return faded


def active_dbfs(signal: Signal) -> float:
    """Level of the loud parts: of all 20 ms pieces within 25 dB of the loudest."""
    piece = LISTEN_RATE // 50
    power = (signal[: len(signal) // piece * piece].reshape(-1, piece) ** 2).mean(axis=1)
    return float(10 * np.log10(power[power > power.max() * 10**-2.5].mean()))


def noise_of(kind: Noise, count: int, rng: np.random.Generator) -> Signal:
    """At 0 dB of full scale RMS."""
    if kind != "voices":
        return noise(kind, count, rng)
    talkers = _talkers()
    return np.resize(np.roll(talkers, -rng.integers(len(talkers))), count)


@cache
def _talkers() -> Signal:
    """Real people who all talk at once."""
    clips = [to_signal(each.pcm) for each in _recordings()]
    one = np.concatenate([gained(clip, -active_dbfs(clip)) for clip in clips])[::-1]
    rng = np.random.default_rng(1)
    voices = [np.roll(one, rng.integers(len(one))) for _ in range(_TALKERS)]
    together = np.sum([np.resize(each, int(_TALKERS_S * LISTEN_RATE)) for each in voices], axis=0)
    return gained(together.astype(np.float32), -rms_dbfs(together))


def _recordings() -> Sequence[Any]:
    found: Sequence[Any] = real_recordings()
    return found
