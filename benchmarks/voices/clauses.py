"""Healthy speech of voices that do not fail: clauses of answers, cut by the pipeline.

Piper (the default weights), and ``espeak-ng`` where it is installed.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audio import EMPTY, Pcm
from pipeline.engines.contract import Tts
from pipeline.engines.tts.espeak_ng import EspeakOptions
from pipeline.engines.tts.espeak_ng import build as build_espeak
from pipeline.engines.tts.piper import PiperOptions
from pipeline.engines.tts.piper import build as build_piper
from pipeline.messages import SpeechRequest
from pipeline.speaking.chunker import SpeechChunker
from pipeline.speaking.clause_speech import Joint
from pipeline.speaking.ramp import Ramp, VoiceTiming
from pipeline.spoken.borders import Border
from pipeline.spoken.length import spoken_letters
from tests.support.recordings import Uncancelled

_TEXTS = Path(__file__).parents[1] / "turns" / "texts"
_MARKS = re.compile(r"\s*[/|~+]\s*|\[[^\]]*\]")

ANSWERS = (
    "Yes.",
    "No!",
    "Hmm, let me think about that.",
    "Ha ha ha, that is very funny!",
    "No, no, no, no, that is not what I meant.",
    "It is very, very, very cold in here.",
    "Row, row, row your boat, gently down the stream.",
    "Knock knock. Who is there? Knock knock. Who is there?",
    "Tick tock, tick tock, tick tock, says the old clock on the wall.",
    "La la la, la la la, la la la, I like to sing.",
    "Nooooo, please don't do that.",
    "Shhh, the baby is sleeping.",
    "Aaah, now I understand.",
    "Zzzz, I was asleep.",
    "The number is 0049 30 901820, extension 1111.",
    "You can reach me at reachy@example.com or on www.example.com/robots/mini.",
    "NASA, the ESA and the JAXA sent a CPU, a GPU and an FPGA to the ISS.",
    "My XVF3800 has 4 microphones and runs at 16000 Hz; it costs $149.99.",
    "It is 23:59 on 31/12/2026, and -12.5 degrees outside.",
    "Wait... what was that? I thought... well... never mind.",
    "First, the dog - a big one - ran; then: silence. (Really!)",
    "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity.",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.",
    "Seven hundred and seventy-seven thousand seven hundred and seventy-seven.",
    "Peter Piper picked a peck of pickled peppers. A peck of pickled peppers Peter Piper picked.",
    "She sells sea shells on the sea shore, and the shells that she sells are sea shells, I am "
    "sure.",
    "Bonjour, guten Tag, buenos dias, and konnichiwa to all of you!",
    "The antidisestablishmentarianist spoke about deoxyribonucleic acid and otolaryngology.",
    "Of course. I would love to tell you about the ocean, which covers more than seventy percent "
    "of our planet and is home to creatures that nobody has ever seen.",
    "Moonlight through the trees,\na small robot holds its breath,\nand the owl says who.",
    "An apple, a banana, a cucumber, a date, an egg, some flour, and a glass of milk.",
    "I don't know. I really don't know. I am sorry, but I don't know.",
    "Blah blah blah.",
    "The answer is (3 + 4) * 5 = 35, or 35%.",
    "A B C D E F G, H I J K L M N O P.",
)
"""Answers that are hard to judge: they repeat themselves, are spelled, hummed, or hesitate."""

_WHO = ("The robot", "My grandmother", "A small grey cat", "Nobody in this house", "The weather")
_DOES = ("remembers", "will never forget", "is looking for", "has just found", "dreams about")
_WHAT = (
    "the way to the station",
    "an old letter from Lisbon",
    "everything that you said yesterday",
    "a rather long story about a lighthouse and its keeper",
    "two cups of coffee, half a cake and the newspaper",
    "what happened in 1969",
)
_ENDS = (".", "!", ", I believe.", ", don't you think?", "; at least, that is what they say.")


def answers(count: int, seed: int) -> list[str]:
    """``count`` answers of one to six sentences; the hard ones first."""
    draw = random.Random(seed)
    pool = _pool()
    random_answers = (" ".join(draw.choices(pool, k=draw.randint(1, 6))) for _ in range(count))
    return list(itertools.islice(itertools.chain(ANSWERS, random_answers), count))


def texts(count: int, seed: int) -> list[str]:
    """``count`` clauses, unique except for short ones, as a reply passes them to the voice."""
    draw = random.Random(seed)
    pool = _pool()
    clauses: list[str] = list(itertools.chain.from_iterable(_clauses(a, 185) for a in ANSWERS))
    while len(clauses) < count:
        answer = " ".join(draw.choices(pool, k=draw.randint(1, 4)))
        clauses += _clauses(answer, draw.choice((0, 40, 80, 120, 185)))
    return draw.sample(clauses, count)


def _pool() -> list[str]:
    """Sentences of conversations."""
    pool = [_plain(line) for name in ("tuning", "frozen", "allison") for line in _lines(name)]
    parts = itertools.product(_WHO, _DOES, _WHAT, _ENDS)
    return pool + [f"{who} {does} {what}{end}" for who, does, what, end in parts]


def _lines(name: str) -> list[str]:
    rows = (_TEXTS / f"{name}.yaml").read_text("utf-8").splitlines()
    return [
        row.split(":", 1)[-1] if name == "allison" else row.strip().removeprefix("- ")
        for row in rows
        if row.strip() and row[0] != "#" and row.rstrip()[-1] != ":" and "text:" not in row
    ]


def _plain(line: str) -> str:
    return " ".join(_MARKS.sub(" ", line).split()).strip("'\"")


def _clauses(answer: str, longest_letters: int) -> list[str]:
    """The spoken pieces of an answer; the first is cut early, as always."""
    chunker = SpeechChunker("en")
    chunker.feed(answer)
    chunker.close()
    clauses: list[str] = []
    while piece := chunker.take(longest_letters if clauses else 0):
        if piece.spoken:
            clauses.append(piece.spoken)
    return clauses


# --- voices ------------------------------------------------------------------------------------

Say = Callable[[str], Pcm]


@dataclass(frozen=True, slots=True)
class EngineVoice:
    """``say`` returns int16 mono at ``rate`` Hz."""

    name: str
    rate: int
    say: Say


def _engine(name: str, tts: Tts, voice: str, speed: float) -> EngineVoice:
    def say(text: str) -> Pcm:
        chunks = tts.synthesize(SpeechRequest(text, voice, speed), Uncancelled())
        return np.concatenate((EMPTY, *(pcm for pcm in chunks if pcm is not None)))

    return EngineVoice(name, tts.rate, say)


def voices(piper_weights: Path) -> list[EngineVoice]:
    """Piper and, where it is installed, espeak-ng, at several paces."""
    piper = build_piper(PiperOptions(), piper_weights)
    every = [_engine(f"piper joe {s}", piper, "joe", s) for s in (1.0, 1.0, 1.0, 0.8, 1.3)]
    if shutil.which("espeak-ng"):
        espeak = build_espeak(EspeakOptions(), None)
        how = (("en-us", 1.0), ("en-gb", 0.8), ("en-us+f3", 1.2), ("en-us+whisper", 1.0))
        every += [_engine(f"espeak {name} {speed}", espeak, name, speed) for name, speed in how]
    return every


# --- clauses -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class HealthyClause:
    """One healthy clause. ``pace_s``: seconds per character, as known before it;
    ``known``: whether the voice had spoken at all. ``pcm``: int16 mono at ``rate`` Hz."""

    voice: str
    text: str
    pcm: Pcm
    rate: int
    pace_s: float
    known: bool

    @property
    def seconds(self) -> float:
        return len(self.pcm) / self.rate


TALK_CLAUSES = 25
"""A conversation; the knowledge about the voice is dropped after it."""


def clauses_by(voice: EngineVoice, lines: Sequence[str]) -> Iterator[HealthyClause]:
    """``lines`` as one conversation after the other."""
    for start in range(0, len(lines), TALK_CLAUSES):
        ramp = Ramp()
        for text in lines[start : start + TALK_CLAUSES]:
            pcm = voice.say(text)
            yield HealthyClause(voice.name, text, pcm, voice.rate, ramp.speech_s(1), ramp.measured)
            heard_s = len(Joint(voice.rate, Border.SENTENCE).feed(pcm)) / voice.rate
            ramp.learn(
                VoiceTiming(spoken_letters(text), heard_s, heard_s / 10, heard_s, heard_s / 10)
            )
