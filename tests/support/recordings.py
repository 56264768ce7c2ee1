"""Speech whose words are known: recordings of people, and questions that we synthesise.

The recordings come from packages: Debian's ``pocketsphinx-testdata`` (BSD; LibriVox readings are
in the public domain) and the moonshine-voice wheel (MIT). ``source`` says which, and begins with
``synthetic`` for everything that no person said.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import soxr

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Stt, Transcript, Tts
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER, Priority

POCKETSPHINX = Path("/usr/share/pocketsphinx/test/data")

_TRANSCRIPT_LINE = re.compile(r"<s>(?P<text>.*)</s>\s*\((?P<name>\S+)\)")
_LIBRIVOX_PREFIX = "sense_and_sensibility_01_austen_64kb-"
_CORRECTIONS = {"more a amiable": "more amiable"}
"""Corrections of the package's transcripts, after the novel and the recordings."""

_RAW_TEXTS = {
    "goforward.raw": "go forward ten meters",
    "something.raw": "go somewhere and do something",
    "tidigits/dhd.2934z.raw": "two nine three four zero",
}

_BECKETT = "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better."
_DICKENS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season of Light, it was the season of Darkness, it was the spring of hope, it was the winter "
    "of despair, we had everything before us, we had nothing before us, we were all going direct "
    "to Heaven, we were all going direct the other way - in short, the period was so far like the "
    "present period, that some of its noisiest authorities insisted on its being received, for "
    "good or for evil, in the superlative degree of comparison only."
)
_MOONSHINE_TEXTS = {"beckett": _BECKETT, "two_cities": _DICKENS}

QUESTIONS = (
    "What is the capital of France?",
    "Can you tell me a short story about a robot?",
    "How many days are there in a week?",
    "Please turn your head to the left.",
    "What do you see in front of you?",
)
"""Questions that people ask a robot, for a synthesiser."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    name: str
    pcm: Pcm
    """16 kHz int16 mono."""
    text: str
    """What is said, as written in the source."""
    source: str

    @property
    def seconds(self) -> float:
        return len(self.pcm) / LISTEN_RATE

    @property
    def synthetic(self) -> bool:
        return self.source.startswith("synthetic")


@cache
def real_recordings() -> tuple[Recording, ...]:
    """People speaking, 97 s in 15 clips, 236 words.

    Without the Debian package, only the two clips of the wheel remain; in CI that is an error.
    """
    return (*_pocketsphinx(), *_moonshine())


def recording(name: str) -> Recording:
    """The real recording of that name; skips the test if it is not installed."""
    for each in real_recordings():
        if each.name == name:
            return each
    import pytest  # a machine that only measures may lack it

    raise pytest.skip.Exception(
        f"the recording {name} is absent; run: apt-get install pocketsphinx-testdata"
    )


def spoken(tts: Tts, voice: str, texts: Sequence[str] = QUESTIONS) -> list[Recording]:
    """``texts`` said by a synthesiser."""
    return [
        Recording(f"question-{number}", synthesize(tts, text, voice), text, f"synthetic: {voice}")
        for number, text in enumerate(texts)
    ]


def synthesize(tts: Tts, text: str, voice: str = "") -> Pcm:
    """What ``tts`` makes of ``text``, at 16 kHz."""
    chunks = [pcm for pcm in tts.synthesize(SpeechRequest(text, voice), NEVER) if pcm is not None]
    whole = np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int16)
    return _at_listen_rate(whole, tts.rate)


def heard(stt: Stt, *pieces: Pcm, language: str = "en") -> Transcript:
    """What ``stt`` makes of one utterance."""
    utterance = stt.open(language, False)
    for piece in pieces:
        utterance.feed(piece)
    return utterance.finish(NEVER)


class Token:
    """A cancel token. ``cancel_after``, ``preempt_after``: checks that answer "no" first.

    It answers "preempted" once, like a scheduler that comes back later.
    """

    def __init__(
        self,
        cancel_after: int | None = None,
        preempt_after: int | None = None,
        priority: Priority = Priority.CONFIRMED,
    ) -> None:
        self.cancel_after = cancel_after
        self.priority = priority
        self._preempt_after = preempt_after
        self.looks = 0
        self.preemptions = 0

    @property
    def cancelled(self) -> bool:
        self.looks += 1
        return self.cancel_after is not None and self.looks > self.cancel_after

    @property
    def preempted(self) -> bool:
        self.looks += 1
        if self._preempt_after is None or self.looks <= self._preempt_after:
            return False
        self._preempt_after = None
        self.preemptions += 1
        return True


def _pocketsphinx() -> Iterator[Recording]:
    if not POCKETSPHINX.is_dir():
        _report_absence()
        return
    for transcript in ("cards/cards.transcription", "librivox/transcription"):
        yield from _transcribed(POCKETSPHINX / transcript)
    for file, text in _RAW_TEXTS.items():
        pcm = np.fromfile(POCKETSPHINX / file, dtype="<i2").astype(np.int16)
        yield Recording(Path(file).stem, pcm, text, "pocketsphinx-testdata")


def _report_absence() -> None:
    message = (
        f"Recordings of people are left out: {POCKETSPHINX} is absent. "
        "Run: apt-get install pocketsphinx-testdata"
    )
    if os.environ.get("CI"):
        raise FileNotFoundError(message)
    print(message, file=sys.stderr)  # noqa: T201


def _transcribed(transcript: Path) -> Iterator[Recording]:
    for line in _TRANSCRIPT_LINE.finditer(transcript.read_text(encoding="utf-8")):
        text = line["text"].strip()
        for slip, right in _CORRECTIONS.items():
            text = text.replace(slip, right)
        pcm = _read(transcript.parent / f"{line['name']}.wav")
        name = f"{transcript.parent.name}-{line['name'].removeprefix(_LIBRIVOX_PREFIX)}"
        yield Recording(name, pcm, text, "pocketsphinx-testdata")


def _moonshine() -> Iterator[Recording]:
    package = importlib.util.find_spec("moonshine_voice")
    if package is None or not package.submodule_search_locations:
        return
    assets = Path(package.submodule_search_locations[0]) / "assets"
    for name, text in _MOONSHINE_TEXTS.items():
        yield Recording(name, _read(assets / f"{name}.wav"), text, "moonshine-voice wheel")


def _read(path: Path) -> Pcm:
    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    return _at_listen_rate(samples[:, 0], rate)


def _at_listen_rate(pcm: Pcm, rate: int) -> Pcm:
    if rate == LISTEN_RATE or not len(pcm):
        return pcm
    converted: Pcm = soxr.resample(pcm, rate, LISTEN_RATE, quality="HQ")
    return converted
