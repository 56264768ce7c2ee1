"""What Qwen3-TTS needs besides its network: clean text, languages, limits. Pure.

Its speech consists of frames of 80 ms (1,920 samples at 24 kHz) with 16 codes each. The first code
of a frame says roughly what is spoken, the others how it sounds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pipeline.engines.contract import NotSpeech
from pipeline.spoken.length import USUAL_S_PER_LETTER, spoken_letters

RATE = 24_000
FRAME_SAMPLES = 1920
FRAMES_PER_S = RATE / FRAME_SAMPLES

LANGUAGES = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ko": "korean",
    "pt": "portuguese",
    "ru": "russian",
    "zh": "chinese",
}
"""ISO 639-1 -> the model's name, from its README. The engine also asks the model itself."""

_LEAST_FRAMES = 64
_SLACK_S = 2.0
_SLOWEST = 2.5

_SAME_FRAMES = 12
"""This many equal first codes in a row, 0.96 s, are not speech: pauses end after 0.8 s
(``clause_watch``). Not measured on the real weights."""

_CONTROL = re.compile(r"<\|.*?\|>|<tts_\w+>")


@dataclass(frozen=True, slots=True)
class ClauseRequest:
    """What to say, with the model's own names for voice and language."""

    text: str
    voice: str
    language: str
    instruct: str
    limit: int
    """Most frames."""
    seed: int


def without_controls(text: str) -> str:
    """``text`` without spellings that the tokenizer would read as control tokens."""
    return " ".join(_CONTROL.sub(" ", text).split())


def language_name(code: str) -> str:
    """The model's name for ISO 639-1 ``code``; other words, such as ``auto``, are lower-cased."""
    return LANGUAGES.get(code.lower(), code.lower())


def most_frames(text: str) -> int:
    """How many frames speech of ``text`` may have: 2.5 times the usual number, plus 2 s.

    A model that misses its end would go on for 164 s (2,048 tokens). Limits of 64, 50, 100 and 160
    tokens for up to 2, 5, 10 and more words are reported to work (reference, "known instability");
    this is never below them for English, and also handles digits and ideographs.
    """
    usual_s = spoken_letters(text) * USUAL_S_PER_LETTER
    return max(_LEAST_FRAMES, math.ceil((_SLACK_S + _SLOWEST * usual_s) * FRAMES_PER_S))


class CodeWatch:
    """Watches the first codes of one clause for signs that it is not speech."""

    def __init__(self) -> None:
        self.frames = 0
        self._newest = -1
        self._same = 0

    @property
    def suspicious(self) -> int:
        """How many of the newest frames may turn out not to be speech."""
        return self._same if self._same > _SAME_FRAMES // 2 else 0

    def take(self, code: int) -> None:
        """The first code of the next frame. Raises ``NotSpeech``."""
        self.frames += 1
        self._same = self._same + 1 if code == self._newest else 1
        self._newest = code
        if self._same >= _SAME_FRAMES:
            raise NotSpeech("repetition", (self.frames - self._same) / FRAMES_PER_S)

    def finish(self, *, ended: bool) -> None:
        """The last frame was taken. Raises ``NotSpeech`` if the limit, not the model, ended it."""
        if not ended:
            raise NotSpeech("runaway", self.frames / FRAMES_PER_S)
