"""Sounds that people make while a robot speaks: they interrupt, agree, cough, knock, talk.

Each scene is a microphone's signal during an answer, without the answer's echo: room tone, one
sound from ``onset`` to ``end``, room tone. Interruptions are turns of the corpus
(``benchmarks.turns``) and spoken commands; synthetic voices say listeners' words; "mm-hm" and
noises are computed. Synthetic sounds are labelled as such. Backchannels of people, cut out by
``benchmarks.turns.backchannels``, are a separate kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.harness import acoustics
from benchmarks.harness.acoustics import Signal
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.labels import read_sound
from benchmarks.harness.scene import Part, load
from pipeline.audio import LISTEN_RATE, Pcm

Kind = Literal[
    "question", "command", "backchannel", "noise", "side speech", "backchannel of people"
]

COMMANDS: dict[Part, tuple[str, ...]] = {
    "tuning": ("Stop.", "Wait.", "No.", "Stop talking.", "Wait a moment.", "Hey Reachy.", "Quiet."),
    "frozen": ("Stop it.", "No, wait.", "Hold on.", "Be quiet.", "Enough.", "Stop.", "Wait!"),
}
BACKCHANNELS: dict[Part, tuple[str, ...]] = {
    "tuning": ("Uh huh.", "Yeah.", "Right.", "Okay.", "I see.", "Yeah, right.", "Wow."),
    "frozen": ("Aha.", "Yes.", "All right.", "Oh, okay.", "Really.", "Sure.", "Oh, nice."),
}
VOICES: dict[Part, tuple[str, ...]] = {
    "tuning": ("flite slt", "flite rms", "piper-joe 1.0"),
    "frozen": ("flite awb", "flite kal16"),
}
QUESTIONS, HUMS, NOISE_COUNT = 60, 12, 40
ONSET_S = (2.5, 6.0)
"""Time after the request for the answer, which begins about 0.3 s later."""
AFTER_S = 3.0
LEVEL_DBFS = (-32.0, -20.0)
SIDE_SPEECH_DB = -18.0
"""Level of a person talking to others, relative to a person talking to the robot."""
SIDE_RT60_S = 0.6
LONGEST_S = 5.0


@dataclass(frozen=True, eq=False)
class InterruptionScene:
    kind: Kind
    source: str
    """Scenes that share it are not independent."""
    text: str
    """The words of the sound, if any."""
    pcm: Pcm
    """int16 mono at 16 kHz."""
    onset: int
    end: int
    """``onset`` and ``end`` are sample indexes of the sound."""

    @property
    def interrupts(self) -> bool:
        """Whether it should stop the answer."""
        return self.kind in ("question", "command")


def scenes(
    part: Part, corpus: Path, voices: Voices, seed: int, people: Path | None = None
) -> Iterator[InterruptionScene]:
    """All scenes, kind by kind. ``people``: a folder of backchannels. Raises ``FileNotFoundError``
    if there is no corpus, or no sound in that folder."""
    rng = np.random.default_rng(seed)
    people_files = recordings(people / part) if people else []
    turns = [
        scene
        for scene in load(corpus / part)
        if scene.snr_db is None and scene.rt60_s is None and not scene.pauses
        if scene.end - scene.onset <= LONGEST_S * LISTEN_RATE and len(scene.text.split()) > 1
    ]
    for index in rng.permutation(len(turns))[:QUESTIONS]:
        turn = turns[index]
        sound = acoustics.to_signal(turn.pcm[turn.onset : turn.end])
        source = f"{turn.speaker}: {turn.text}"
        yield over_an_answer("question", source, turn.text, sound, rng)
    synthetic: tuple[tuple[Kind, Sequence[str]], ...] = (
        ("command", COMMANDS[part]),
        ("backchannel", BACKCHANNELS[part]),
    )
    for kind, texts in synthetic:
        for text, name in ((text, name) for text in texts for name in VOICES[part]):
            speech = acoustics.to_signal(voices.say(name, text).speech)
            for _ in range(2):
                yield over_an_answer(kind, f"synthetic {name}: {text}", text, speech, rng)
    for _ in range(HUMS):
        yield over_an_answer("backchannel", "synthetic hum", "Mm-hm.", hum(rng), rng)
    for name, make in NOISES.items():
        for _ in range(NOISE_COUNT // len(NOISES)):
            yield over_an_answer("noise", f"synthetic {name}", "", make(rng), rng)
    for index in rng.permutation(len(turns))[: QUESTIONS // 3]:
        turn = turns[index]
        far = acoustics.in_room(
            acoustics.to_signal(turn.pcm[turn.onset : turn.end]),
            acoustics.room_response(SIDE_RT60_S, rng),
        )
        source = f"{turn.speaker}: {turn.text}"
        yield over_an_answer("side speech", source, turn.text, far, rng, SIDE_SPEECH_DB)
    for file in people_files:
        for _ in range(2):
            sound = acoustics.to_signal(read_sound(file))
            yield over_an_answer("backchannel of people", f"real {file.stem}", "", sound, rng)


def recordings(folder: Path) -> list[Path]:
    """The sound files in ``folder``. Raises ``FileNotFoundError`` if there are none."""
    files = sorted(folder.glob("*.flac"))
    if not files:
        raise FileNotFoundError(
            f"{folder} has no FLAC files. Run: python -m benchmarks.turns.backchannels --out FOLDER"
        )
    return files


def over_an_answer(
    kind: Kind,
    source: str,
    text: str,
    sound: Signal,
    rng: np.random.Generator,
    softer_db: float = 0.0,
) -> InterruptionScene:
    level_dbfs = float(rng.uniform(*LEVEL_DBFS)) + softer_db
    sound = acoustics.gained(sound, level_dbfs - acoustics.rms_dbfs(sound))
    onset = int(rng.uniform(*ONSET_S) * LISTEN_RATE)
    whole = acoustics.room_tone(onset + len(sound) + int(AFTER_S * LISTEN_RATE), rng)
    whole[onset : onset + len(sound)] += sound
    return InterruptionScene(kind, source, text, acoustics.to_pcm(whole), onset, onset + len(sound))


# --- computed sounds ---------------------------------------------------------------------------


def hum(rng: np.random.Generator) -> Signal:
    """The sound of "mm-hm": two nasal syllables, which no synthetic voice can say."""
    hz = float(rng.uniform(90, 230))
    parts: list[Signal] = []
    for factor in (1.0, float(rng.uniform(0.9, 1.35))):
        length = int(rng.uniform(0.13, 0.24) * LISTEN_RATE)
        glide = hz * factor * np.linspace(1.0, rng.uniform(0.9, 1.12), length)
        phase = 2 * np.pi * np.cumsum(glide) / LISTEN_RATE
        harmonics = range(1, 16)
        weights = [1 / (1 + (n * hz * factor / 280) ** 2) for n in harmonics]
        tone = sum(w * np.sin(n * phase) for n, w in zip(harmonics, weights, strict=True))
        breath = 0.02 * rng.normal(size=length)
        parts.append(((tone + breath) * np.hanning(length) ** 0.4).astype(np.float32))
        parts.append((0.02 * rng.normal(size=int(0.05 * LISTEN_RATE))).astype(np.float32))
    return np.concatenate(parts)


def cough(rng: np.random.Generator) -> Signal:
    """One to three bursts of noise with a throat's resonances, the first one abrupt."""
    bursts = [_burst(rng, float(rng.uniform(0.12, 0.3))) for _ in range(int(rng.integers(1, 4)))]
    gaps = [np.zeros(int(rng.uniform(0.05, 0.2) * LISTEN_RATE), np.float32) for _ in bursts]
    return np.concatenate([part for pair in zip(bursts, gaps, strict=True) for part in pair])


def laughter(rng: np.random.Generator) -> Signal:
    """Four to eight short voiced breaths a fifth of a second apart, falling in pitch."""
    hz = float(rng.uniform(140, 280))
    parts: list[Signal] = []
    for number in range(int(rng.integers(4, 9))):
        length = int(0.11 * LISTEN_RATE)
        at = np.arange(length) / LISTEN_RATE
        pitch = hz * 0.96**number
        tone = sum(np.sin(2 * np.pi * pitch * n * at) / n for n in range(1, 12))
        breath = (tone * 0.5 + _burst(rng, 0.11)[:length]) * np.hanning(length)
        parts += [breath.astype(np.float32), np.zeros(int(0.09 * LISTEN_RATE), np.float32)]
    return np.concatenate(parts)


def knocks(rng: np.random.Generator) -> Signal:
    """Two to four knocks on wood, each a damped low resonance."""
    parts: list[Signal] = []
    hz = float(rng.uniform(120, 400))
    for _ in range(int(rng.integers(2, 5))):
        at = np.arange(int(0.2 * LISTEN_RATE)) / LISTEN_RATE
        blow = np.exp(-at * 45) * (np.sin(2 * np.pi * hz * at) + 0.3 * rng.normal(size=len(at)))
        parts.append(blow.astype(np.float32))
    return np.concatenate(parts)


def keyboard(rng: np.random.Generator) -> Signal:
    """A second or two of typing: clicks of a few milliseconds."""
    whole = np.zeros(int(rng.uniform(0.8, 2.0) * LISTEN_RATE), np.float32)
    at = 0
    while (at := at + int(rng.uniform(0.06, 0.25) * LISTEN_RATE)) < len(whole) - 400:
        click = rng.normal(size=300) * np.exp(-np.arange(300) / rng.uniform(20, 80))
        whole[at : at + 300] += click.astype(np.float32) * float(rng.uniform(0.3, 1))
    return whole


def breath(rng: np.random.Generator) -> Signal:
    """A sigh: noise that swells and fades."""
    length = int(rng.uniform(0.4, 1.0) * LISTEN_RATE)
    return (acoustics.noise("pink", length, rng) * np.hanning(length)).astype(np.float32)


NOISES: dict[str, Callable[[np.random.Generator], Signal]] = {
    each.__name__: each for each in (cough, laughter, knocks, keyboard, breath)
}


def _burst(rng: np.random.Generator, seconds: float) -> Signal:
    """Noise through three resonances, loud at once and fading."""
    length = int(seconds * LISTEN_RATE)
    spectrum = np.fft.rfft(rng.normal(size=length))
    hz = np.fft.rfftfreq(length, 1 / LISTEN_RATE)
    centres: Sequence[float] = (rng.uniform(400, 700), rng.uniform(1200, 1800), 2800.0)
    shape = np.sum([1 / (1 + ((hz - centre) / 250) ** 2) for centre in centres], axis=0)
    noise = np.fft.irfft(spectrum * shape, length)
    envelope = np.minimum(1, np.arange(length) / 80) * np.exp(-np.arange(length) / (length / 3))
    return np.asarray(noise * envelope, np.float32)
