"""Is speech over an answer meant to interrupt it? Pure: the caller holds the answer, reads the
words and carries the verdict out.

A user who speaks over an answer may want it to stop, agree ("mm-hm") or cough; the sound may also
be the answer's own echo. Meanwhile nothing more is sent, and the listener's buffer drains within
the lead. A policy looks at the evidence again and again until it is sure. If the speech interrupts,
it is published from its beginning; otherwise the answer resumes where it was held, and the client
never notices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import Literal, TypeGuard, get_args

from pipeline.audio import samples_of
from pipeline.settings import BargeIn, Lexicon, PolicyName
from pipeline.speaking.tuning import BARELY_HEARD_S
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking import tuning
from pipeline.turn_taking.agreement import (
    after_agreement,
    agree,
    bare,
    is_among,
    is_like,
    may_be_among,
)

OnsetEffect = Literal["no", "interrupt", "review"]
"""What the beginning of speech does to an answer: nothing, it ends it, or its words will decide."""
Step = Literal["wait", "read the words", "judge by length"]
Verdict = Literal["unsure"] | Interruption | Ignored
_INTERRUPTIONS: frozenset[str] = frozenset(get_args(Interruption))


def at_onset(heard_s: float, policy: PolicyName, *, cautious: bool) -> OnsetEffect:
    """What speech does that begins now. ``heard_s``: how much of an answer has been heard; 0: none
    is being heard. Any speech interrupts an answer that has hardly begun, unless ``cautious``: an
    echo is being removed, or that answer was cut off once before."""
    if not heard_s:
        return "no"
    hardly_begun = heard_s <= BARELY_HEARD_S and not cautious
    return "interrupt" if hardly_begun or policy == "any-speech" else "review"


def interrupts(verdict: Verdict) -> TypeGuard[Interruption]:
    """Whether the verdict ends the answer."""
    return verdict in _INTERRUPTIONS


def ignored(verdict: Verdict) -> TypeGuard[Ignored]:
    """Whether the verdict lets the answer go on."""
    return verdict != "unsure" and verdict not in _INTERRUPTIONS


@dataclass(frozen=True, slots=True)
class Overlap:
    """The evidence about speech over an answer."""

    speech_ms: int
    """Its duration so far, pauses included."""
    ended: bool
    """Whether there is a pause now."""
    text: str | None
    """Its words so far; ``None`` if they are unknown."""
    answer_words: str = ""
    """The words of the answer that the listener heard last."""
    asks: bool = False
    """Whether ``answer_words`` are a question but for its last words."""
    cancels_echo: bool = False
    """Whether an echo of the answer is removed."""
    certainty: float = 0.0
    """The mean score of the VAD since the speech began, 0 to 1."""
    earlier: tuple[str, ...] = ()
    """What earlier looks read."""


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
    refuses, rest = _refuses(overlap.text, lexicon), after_agreement(words, lexicon)
    agrees = not refuses and agree(words, lexicon)
    command = not agrees and (refuses or _is_command(rest[0], lexicon, so_far=not overlap.ended))
    answers = (agrees and len(words) > 1) or is_among(words[0], lexicon.answers)
    if overlap.asks and answers and not command:
        return "words" if overlap.ended else "unsure"
    if agrees:
        return "backchannel" if overlap.ended else "unsure"
    share = _repeated_share(words, _words(overlap.answer_words))
    own = overlap.cancels_echo and share >= tuning.MAYBE_ECHOED
    opens = not own and rest[0] in lexicon.openers
    asks = opens and not (refuses or _is_in_commands(rest[0], lexicon))  # "what" is like "wait"
    why: Interruption = "question" if asks else "command" if command else "words"
    if overlap.ended:
        return "too short" if why == "words" and _is_short(overlap, words, rest, lexicon) else why
    if overlap.earlier and (command or not own) and _log_odds(overlap, lexicon) > 0:
        return why
    long = overlap.speech_ms >= settings.surely_meant_ms
    return "long" if long and not agree(words, lexicon, so_far=True) else "unsure"


def _is_short(overlap: Overlap, words: list[str], rest: list[str], lexicon: Lexicon) -> bool:
    """Whether so few words were misheard, or only follow an agreement ("Very well, you heard")."""
    if any(is_among(word, lexicon.commands) for word in rest):
        return False
    if len(words) <= tuning.SHORT_WORDS and overlap.speech_ms < tuning.SHORT_MS:
        return True
    if len(rest) == len(words) or len(rest) > tuning.SHORT_WORDS:
        return False
    asks = any(is_among(word, lexicon.openers) for word in rest)
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
    if agree(words, lexicon):
        return tuning.MEANT.agrees if words else 0.0
    rest = after_agreement(words, lexicon)
    may_agree = agree(words, lexicon, so_far=True)
    command = _is_command(rest[0], lexicon, so_far=True)
    command = command and not (may_agree and len(set(rest)) > 1)
    opens = not may_agree and rest[0] in lexicon.openers
    return (
        tuning.MEANT.command * command
        + tuning.MEANT.opener * opens
        + tuning.MEANT.several * (len(set(words)) >= tuning.SEVERAL_WORDS)
    )


def _refuses(text: str, lexicon: Lexicon) -> bool:
    """Whether the text has words that never agree, with marks where they have: Portuguese "não
    continue" forbids, "não, continue" asks for more."""
    return bool(lexicon.refusals and _refusal(lexicon.refusals).search(bare(text.lower())))


@lru_cache(16)
def _refusal(refusals: tuple[str, ...]) -> re.Pattern[str]:
    phrases = (r"\s*".join(f"(?:{slot})" for slot in bare(each).split()) for each in refusals)
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b".replace("(?:_)", r"[^\w\s]"))


def commands(overlap: Overlap, settings: BargeIn, lexicon: Lexicon) -> Verdict:
    """Only short commands interrupt: for a robot that should finish what it says."""
    verdict = words(overlap, settings, lexicon)
    if not interrupts(verdict):
        return verdict
    if any(_is_in_commands(word, lexicon) for word in _words(overlap.text or "")):
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
    again = sum(len(word) for word in words if is_like(word, answer_words, tuning.ALIKE))
    return again / sum(map(len, words))


def _is_command(word: str, lexicon: Lexicon, *, so_far: bool) -> bool:
    """A word that agrees, or with ``so_far`` may begin to, is no misheard command: Portuguese
    "está" is like "escuta"."""
    if _is_in_commands(word, lexicon):
        return True
    return may_be_among(word, lexicon.commands) and not agree([word], lexicon, so_far=so_far)


def _is_in_commands(word: str, lexicon: Lexicon) -> bool:
    """Of "tais-toi", the first part counts."""
    return any(is_among(each, lexicon.commands) for each in (word, word.partition("-")[0]))


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

    def hear(self, end: int, is_reading: bool) -> Step:
        """What to do now that the speech has been heard up to sample ``end``. ``is_reading``: the
        words of the last look are not known yet."""
        if end < self.look_at:
            return "wait"
        self.looks += 1
        every_ms = self.settings.look_every_ms * max(1, self.looks // tuning.LOOKS_IN_A_ROW)
        self.look_at = end + samples_of(every_ms)
        if not is_reading:
            self.looked_at = end
            return "read the words"
        overdue = end - self.looked_at >= samples_of(tuning.READ_WITHIN_MS)
        return "judge by length" if overdue else "wait"

    def resume(self, end: int, anew: bool) -> None:
        """Look soon: speech goes on after a pause; ``anew``: over an answer that had gone on."""
        if anew:
            self.onset = end
        self.look_at = min(self.look_at, end + samples_of(self.settings.look_every_ms))
