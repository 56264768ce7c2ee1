"""Is speech over an answer meant to interrupt it? Pure: the caller holds the answer, reads the
words and carries the verdict out.

A user who speaks over an answer may want it to stop, agree ("mm-hm") or cough; the sound may also
be the answer's own echo. Meanwhile nothing more is sent, and the listener's buffer drains within
the lead. A policy looks at the evidence again and again until it is sure. If the speech interrupts,
it is published from its beginning; otherwise the answer resumes where it was held, and the client
never notices.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeGuard, get_args
from unicodedata import combining, normalize

from pipeline.audio import samples_of
from pipeline.settings import BargeIn, Lexicon, PolicyName
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking import tuning
from pipeline.work import Work

Step = Literal["wait", "read the words", "judge by length"]
Verdict = Literal["unsure"] | Interruption | Ignored
_INTERRUPTIONS: frozenset[str] = frozenset(get_args(Interruption))


def interrupts(verdict: Verdict) -> TypeGuard[Interruption]:
    """Whether the verdict ends the answer."""
    return verdict in _INTERRUPTIONS


def ignored(verdict: Verdict) -> TypeGuard[Ignored]:
    """Whether the verdict lets the answer go on."""
    return verdict != "unsure" and verdict not in _INTERRUPTIONS


@dataclass(frozen=True, slots=True)
class Overlap:
    """The evidence about speech over an answer.

    ``speech_ms``: its duration so far, pauses included. ``ended``: whether there is a pause now.
    ``text``: its words so far; ``None``: unknown. ``spoken``: the words of the answer that the
    listener heard last. ``asks``: whether these are a question but for its last words.
    ``hears_itself``: whether an echo of the answer is being removed.
    """

    speech_ms: int
    ended: bool
    text: str | None
    spoken: str = ""
    asks: bool = False
    hears_itself: bool = False


def judge(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """The verdict of the chosen policy."""
    return POLICIES[settings.policy](overlap, settings, lexicon)


def any_speech(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Everything that the VAD takes for speech interrupts."""
    return "any speech"


def words(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Words other than backchannels interrupt. A short command or the beginning of a question
    interrupts at once; other words at their end, or from ``surely_meant_ms`` on, because a
    recogniser that has heard half a word makes up a whole one."""
    if overlap.text is None:
        return _unread(overlap, settings)
    said = _words(overlap.text)
    if not said:
        silent = overlap.ended or overlap.speech_ms >= settings.wordless_ms
        return "no words" if silent else "unsure"
    if is_echo(said, _words(overlap.spoken)):
        return "echo"
    if _is_command(said[0], lexicon):
        return "command"
    if overlap.asks and _is_in(said[0], lexicon.answers):
        return "words" if overlap.ended else "unsure"
    few = len(said) <= tuning.LONGEST_BACKCHANNEL_WORDS
    if few and all(_is_one_of(word, lexicon.backchannels) for word in said):
        return "backchannel" if overlap.ended else "unsure"
    own = overlap.hears_itself and _is_among(said[0], _words(overlap.spoken), tuning.ALIKE)
    if said[0] in lexicon.openers and not own:
        return "question"
    if not overlap.ended:
        if overlap.speech_ms >= settings.surely_meant_ms:
            return "long"
        many = len(said) >= tuning.SEVERAL_WORDS and overlap.speech_ms >= tuning.SEVERAL_WORDS_MS
        return "several words" if many else "unsure"
    short = overlap.speech_ms < min(tuning.SHORT_MS, settings.surely_meant_ms)
    return "too short" if short and len(said) <= tuning.SHORT_WORDS else "words"


def commands(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Only short commands interrupt: for a robot that should finish what it says."""
    verdict = words(overlap, settings, lexicon)
    if not interrupts(verdict):
        return verdict
    if any(word in lexicon.commands for word in _words(overlap.text or "")):
        return "command"
    return "no command" if overlap.ended else "unsure"


POLICIES: Mapping[PolicyName, Callable[[Overlap, BargeIn, Lexicon], Verdict]] = {
    "any-speech": any_speech,
    "words": words,
    "commands": commands,
}


def is_echo(said: list[str], spoken: list[str]) -> bool:
    """Whether most of ``said`` repeats words that the answer has just spoken, by their spelling.
    Longer words count for more: short ones ("in the") occur everywhere."""
    if len(said) < tuning.FEWEST_ECHOED:
        return False
    again = sum(len(word) for word in said if _is_among(word, spoken, tuning.ALIKE))
    return again >= tuning.ECHOED * sum(map(len, said))


def _is_command(word: str, lexicon: Lexicon) -> bool:
    """Of "tais-toi", the first part counts. A word that agrees is no misheard command: Portuguese
    "está" is like "escuta"."""
    if _is_in(word, lexicon.commands) or _is_in(word.partition("-")[0], lexicon.commands):
        return True
    return not _is_in(word, lexicon.backchannels) and _is_one_of(word, lexicon.commands)


def _is_in(word: str, words: Sequence[str]) -> bool:
    """Recognisers often leave accents out: "si" for "sì"."""
    return _bare(word) in map(_bare, words)


def _is_one_of(word: str, words: Sequence[str]) -> bool:
    long = len(word) >= tuning.MISHEARD_LETTERS
    return _is_in(word, words) or (long and _is_among(word, words, tuning.MISHEARD))


@lru_cache(4096)
def _bare(word: str) -> str:
    """Without accents."""
    return "".join(each for each in normalize("NFD", word) if not combining(each))


def _is_among(word: str, words: Iterable[str], alike: float) -> bool:
    return any(difflib.SequenceMatcher(None, word, other).ratio() >= alike for other in words)


def _unread(overlap: Overlap, settings: BargeIn) -> Verdict:
    if overlap.speech_ms >= settings.surely_meant_ms:
        return "long"
    return "no words" if overlap.ended else "unsure"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


@dataclass(slots=True, eq=False)
class Weighing:
    """Speech over an answer, from sample ``onset`` on, that is not judged yet. Meanwhile none of it
    is published, and no more of the answer is sent; its words are transcribed again and again, and
    in each pause.

    ``look_at``: sample index of the next look at the words; ``looked_at``: of the last look.
    ``looking``: whether the words are being transcribed now. ``found``: the verdict of the newest
    look, if it interrupts."""

    settings: BargeIn
    onset: int
    work: Work = field(default_factory=Work)
    look_at: int = 0
    looks: int = 0
    looked_at: int = 0
    looking: bool = False
    found: Interruption | None = None

    def __post_init__(self) -> None:
        self.look_at = self.onset + samples_of(self.settings.first_look_ms)

    def heard(self, end: int) -> Step:
        """What to do now that the speech has been heard up to sample ``end``."""
        if end < self.look_at:
            return "wait"
        self.looks += 1
        every_ms = self.settings.look_every_ms * max(1, self.looks // tuning.LOOKS_IN_A_ROW)
        self.look_at = end + samples_of(every_ms)
        if not self.looking:
            self.looking = True
            self.looked_at = end
            return "read the words"
        overdue = end - self.looked_at >= samples_of(tuning.READ_WITHIN_MS)
        return "judge by length" if overdue else "wait"

    def agreed(self, verdict: Verdict, ended: bool) -> Verdict:
        """The verdict that counts. In the middle of speech, an interruption counts when two looks
        in a row find one: the first words are often misread ("Why" for "Wow"). In a pause, speech
        too short to be read again counts as what the look before found."""
        before, self.found = self.found, verdict if interrupts(verdict) else None
        if ended:
            return before if before and verdict in ("too short", "no words") else verdict
        return verdict if before or not interrupts(verdict) else "unsure"

    def resumed(self, end: int) -> None:
        """Look soon: speech goes on after a pause."""
        self.look_at = min(self.look_at, end + samples_of(self.settings.look_every_ms))
