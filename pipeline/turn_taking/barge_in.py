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
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import Literal, TypeGuard, get_args
from unicodedata import combining, normalize

from pipeline.audio import samples_of
from pipeline.settings import BargeIn, Lexicon, PolicyName
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking import tuning

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
    ``text``: its words so far; ``None``: unknown. ``earlier``: what earlier looks read.
    ``answer_words``: those of the answer that the listener heard last. ``asks``: whether these are
    a question but for its last words. ``cancels_echo``: whether an echo of the answer is removed.
    ``certainty``: mean score of the VAD since the speech began, 0 to 1.
    """

    speech_ms: int
    ended: bool
    text: str | None
    answer_words: str = ""
    asks: bool = False
    cancels_echo: bool = False
    certainty: float = 0.0
    earlier: tuple[str, ...] = ()


def judge(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """The verdict of the chosen policy."""
    return POLICIES[settings.policy](overlap, settings, lexicon)


def any_speech(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Everything that the VAD takes for speech interrupts."""
    return "any speech"


def words(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Words interrupt, unless they only agree with the answer or ask for more of it: at their end,
    from ``surely_meant_ms`` on, or as soon as two looks or more make it likely that they are meant.
    A recogniser that has heard half a word makes up a whole one ("Why" for "Wow")."""
    if overlap.text is None:
        return _unread(overlap, settings)
    words = _words(overlap.text)
    if not words:
        silent = overlap.ended or overlap.speech_ms >= settings.wordless_ms
        return "no words" if silent else "unsure"
    if is_echo(words, _words(overlap.answer_words)):
        return "echo"
    agrees, rest = _agrees(words, lexicon), _after_agreement(words, lexicon)
    command = not agrees and _is_command(rest[0], lexicon, so_far=not overlap.ended)
    answers = (agrees and len(words) > 1) or _is_in(words[0], lexicon.answers)
    if overlap.asks and answers and not command:
        return "words" if overlap.ended else "unsure"
    if agrees:
        return "backchannel" if overlap.ended else "unsure"
    share = _repeated_share(words, _words(overlap.answer_words))
    own = overlap.cancels_echo and share >= tuning.MAYBE_ECHOED
    opens = not own and rest[0] in lexicon.openers
    why: Interruption = "command" if command else "question" if opens else "words"
    if overlap.ended:
        return "too short" if why == "words" and _is_short(overlap, words, rest, lexicon) else why
    if overlap.earlier and (command or not own) and _log_odds(overlap, lexicon) > 0:
        return why
    long = overlap.speech_ms >= settings.surely_meant_ms
    return "long" if long and not _agrees(words, lexicon, so_far=True) else "unsure"


def _is_short(overlap: Overlap, words: list[str], rest: list[str], lexicon: Lexicon) -> bool:
    """Whether so few words were misheard, or only follow an agreement ("Very well, you heard")."""
    if any(_is_in(word, lexicon.commands) for word in rest):
        return False
    if len(words) <= tuning.SHORT_WORDS and overlap.speech_ms < tuning.SHORT_MS:
        return True
    if len(rest) == len(words) or len(rest) > tuning.SHORT_WORDS:
        return False
    asks = any(_is_in(word, lexicon.openers) for word in rest)
    return not asks and _log_odds(overlap, lexicon) <= 0


def _log_odds(overlap: Overlap, lexicon: Lexicon) -> float:
    """Log odds that speech is meant for the robot: the VAD is sure of it, and its words, now and at
    the earlier looks, do not agree with the answer."""
    *earlier, now = (
        _evidence(_words(text), lexicon) for text in (*overlap.earlier, overlap.text or "")
    )
    early = not overlap.ended and overlap.speech_ms < tuning.EARLY_MS
    return (
        tuning.MEANT.bias
        + tuning.MEANT.certainty * overlap.certainty
        + tuning.MEANT.early * early
        + now
        + (fmean(earlier) if earlier else 0.0)
    )


def _evidence(words: Sequence[str], lexicon: Lexicon) -> float:
    """What the words of one look add to the log odds. "What" may yet become "What a story"."""
    if _agrees(words, lexicon):
        return tuning.MEANT.agrees if words else 0.0
    rest = _after_agreement(words, lexicon)
    opens = rest[0] in lexicon.openers and not _agrees(words, lexicon, so_far=True)
    return (
        tuning.MEANT.command * _is_command(rest[0], lexicon, so_far=True)
        + tuning.MEANT.opener * opens
        + tuning.MEANT.several * (len(set(words)) >= tuning.SEVERAL_WORDS)
    )


def _agrees(words: Sequence[str], lexicon: Lexicon, *, so_far: bool = False) -> bool:
    """Whether the words are backchannels and encouragements, one after the other; ``so_far``: or
    the beginning of one may come last."""
    few = len(words) <= tuning.MOST_AGREEING_WORDS
    return few and _covers(tuple(map(_bare, words)), lexicon, so_far)


def _after_agreement(words: Sequence[str], lexicon: Lexicon) -> list[str]:
    """The words behind the backchannels with which speech begins."""
    return list(itertools.dropwhile(lambda word: _is_backchannel(word, lexicon), words))


def _is_backchannel(word: str, lexicon: Lexicon) -> bool:
    may_ask = _is_in(word, (*lexicon.commands, *lexicon.openers))
    agrees = _is_in if may_ask else _is_one_of  # English "what" is like "whoa"
    return agrees(word, lexicon.backchannels)


@lru_cache(256)
def _covers(words: tuple[str, ...], lexicon: Lexicon, so_far: bool) -> bool:
    if not words:
        return True
    lengths = {1} if _is_backchannel(words[0], lexicon) else set()
    asks, phrases = _asking_words(lexicon), _phrases(lexicon.encouragements)
    lengths |= {_match_length(phrase, words, asks, so_far) for phrase in phrases}
    return any(_covers(words[length:], lexicon, so_far) for length in lengths - {0})


@lru_cache(16)
def _asking_words(lexicon: Lexicon) -> frozenset[str]:
    return frozenset(map(_bare, (*lexicon.commands, *lexicon.openers)))


Phrase = tuple[frozenset[str], ...]
"""The alternatives for each word."""


def _match_length(phrase: Phrase, words: Sequence[str], asks: frozenset[str], so_far: bool) -> int:
    """How many words the phrase takes at the beginning of ``words``; 0: it is not there.
    ``asks``: the words that its ``*`` is not."""
    length = min(len(phrase), len(words))
    whole = so_far or length == len(phrase)
    matches = all(
        word in slot or ("*" in slot and word not in asks)
        for word, slot in zip(words, phrase, strict=False)
    )
    return length if whole and matches else 0


@lru_cache(16)
def _phrases(encouragements: tuple[str, ...]) -> tuple[Phrase, ...]:
    return tuple(
        tuple(frozenset(map(_bare, slot.split("|"))) for slot in phrase.split())
        for phrase in encouragements
    )


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


def is_echo(words: list[str], answer_words: list[str]) -> bool:
    """Whether most of ``words`` repeats words that the answer has just spoken, by their spelling.
    Longer words count for more: short ones ("in the") occur everywhere."""
    if len(words) < tuning.FEWEST_ECHOED:
        return False
    return _repeated_share(words, answer_words) >= tuning.ECHOED


def _repeated_share(words: Sequence[str], answer_words: Sequence[str]) -> float:
    """Share of the letters of ``words`` in words that were spoken."""
    again = sum(len(word) for word in words if _is_among(word, answer_words, tuning.ALIKE))
    return again / sum(map(len, words))


def _is_command(word: str, lexicon: Lexicon, *, so_far: bool) -> bool:
    """Of "tais-toi", the first part counts. A word that agrees, or with ``so_far`` may begin to, is
    no misheard command: Portuguese "está" is like "escuta"."""
    if _is_in(word, lexicon.commands) or _is_in(word.partition("-")[0], lexicon.commands):
        return True
    return _is_one_of(word, lexicon.commands) and not _agrees([word], lexicon, so_far=so_far)


def _is_in(word: str, words: Sequence[str]) -> bool:
    """Recognisers often leave accents out: "si" for "sì"."""
    return _bare(word) in map(_bare, words)


def _is_one_of(word: str, words: Sequence[str]) -> bool:
    long = len(word) >= tuning.MISHEARD_LETTERS
    return _is_in(word, words) or (long and _is_among(word, words, tuning.MISHEARD))


@lru_cache(4096)
def _bare(word: str) -> str:
    """Without accents and apostrophes."""
    return "".join(c for c in normalize("NFD", word) if not combining(c) and c not in "'’")


def _is_among(word: str, words: Iterable[str], alike: float) -> bool:
    return any(difflib.SequenceMatcher(None, word, other).ratio() >= alike for other in words)


def _unread(overlap: Overlap, settings: BargeIn) -> Verdict:
    if overlap.speech_ms >= settings.surely_meant_ms:
        return "long"
    return "no words" if overlap.ended else "unsure"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


@dataclass(slots=True, eq=False)
class OverlapReview:
    """When to look at speech over an answer, from sample ``onset`` on: again and again, and in each
    pause, until it is known whether it interrupts."""

    settings: BargeIn
    onset: int
    readings: list[str] = field(default_factory=list)
    """What each look read."""
    look_at: int = 0
    """Sample index of the next look."""
    looks: int = 0
    looked_at: int = 0
    """Sample index of the last look."""

    def __post_init__(self) -> None:
        self.look_at = self.onset + samples_of(self.settings.first_look_ms)

    def hear(self, end: int, reads: bool) -> Step:
        """What to do now that the speech has been heard up to sample ``end``. ``reads``: the words
        of the last look are not known yet."""
        if end < self.look_at:
            return "wait"
        self.looks += 1
        every_ms = self.settings.look_every_ms * max(1, self.looks // tuning.LOOKS_IN_A_ROW)
        self.look_at = end + samples_of(every_ms)
        if not reads:
            self.looked_at = end
            return "read the words"
        overdue = end - self.looked_at >= samples_of(tuning.READ_WITHIN_MS)
        return "judge by length" if overdue else "wait"

    def resume(self, end: int, anew: bool) -> None:
        """Look soon: speech goes on after a pause; ``anew``: over an answer that had gone on."""
        if anew:
            self.onset = end
        self.look_at = min(self.look_at, end + samples_of(self.settings.look_every_ms))
