"""Word error rate of Moonshine on recordings of people.

    python -m benchmarks.wer [--out FILE]

Reports the rate, and the latency and errors of each clip. Texts are normalised first: case,
punctuation, titles, and the spelling of numbers do not count as errors.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from benchmarks.harness.program import arguments, finish, load, weights
from pipeline.engines.contract import Stt
from pipeline.engines.stt import moonshine
from pipeline.work import NEVER
from tests.support import recordings

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
_SHORT_FORMS = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay"}


# --- normalisation -----------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """The words of ``text``, normalised; hyphens split words, apostrophes vanish."""
    plain = unicodedata.normalize("NFKD", text).lower()
    plain = re.sub(r"['\u2019\u0300-\u036f]", "", plain)
    tokens = re.findall(r"[^\W\d_]+|\d+", plain)
    return [word for token in tokens for word in _spell(token)]


def _spell(token: str) -> list[str]:
    if not token.isdecimal():
        return [_SHORT_FORMS.get(token, token)]
    if len(token) <= 3:
        return _number(int(token))
    return [_UNITS[int(digit)] for digit in token]  # long numbers are codes, said digit by digit


def _number(value: int) -> list[str]:
    if value >= 100:
        rest = _number(value % 100) if value % 100 else []
        return [_UNITS[value // 100], "hundred", *rest]
    if value < 20:
        return [_UNITS[value]]
    return [_TENS[value // 10 - 2], *([_UNITS[value % 10]] if value % 10 else [])]


# --- the rate ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Wrong, missing and invented words, out of ``words`` spoken words."""

    errors: int
    words: int

    @property
    def rate(self) -> float:
        return self.errors / self.words if self.words else float(self.errors > 0)


def word_errors(text: str, transcript: str) -> WordErrors:
    """Levenshtein distance between the normalised words."""
    reference, hypothesis = words(text), words(transcript)
    distances = list(range(len(hypothesis) + 1))
    for row, word in enumerate(reference, start=1):
        diagonal, distances[0] = distances[0], row
        for column, guess in enumerate(hypothesis, start=1):
            substitution = diagonal + (word != guess)
            diagonal = distances[column]
            distances[column] = min(substitution, diagonal + 1, distances[column - 1] + 1)
    return WordErrors(distances[-1], len(reference))


def total(parts: Iterable[WordErrors]) -> WordErrors:
    """The rate over all words, not the mean of the clips' rates."""
    results = list(parts)
    return WordErrors(sum(part.errors for part in results), sum(part.words for part in results))


# --- the script --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    seconds: float
    latency_s: float
    said: str
    heard: str

    @property
    def errors(self) -> WordErrors:
        return word_errors(self.said, self.heard)


def measure(stt: Stt, clips: Iterable[recordings.Recording]) -> list[Result]:
    """Transcribe each clip once, in one piece."""
    return [_transcribe(stt, clip) for clip in clips]


def _transcribe(stt: Stt, clip: recordings.Recording) -> Result:
    began = time.perf_counter()
    utterance = stt.open("en", False)
    utterance.feed(clip.pcm)
    transcript = utterance.finish(NEVER)
    latency_s = time.perf_counter() - began
    return Result(clip.name, transcript.seconds, latency_s, clip.text, transcript.text)


def main() -> None:
    parser = arguments(__doc__, "benchmarks.wer")
    args = parser.parse_args()
    before = load()
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    results = measure(stt, recordings.real_recordings())
    overall = total(each.errors for each in results)
    clips = [{**asdict(each), "errors": each.errors.errors} for each in results]
    finish({"wer": round(overall.rate, 4), **asdict(overall), "clips": clips}, args.out, before)


if __name__ == "__main__":
    main()
