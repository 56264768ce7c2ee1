"""Where a text can be cut into pieces to speak, and how well each piece would end there. Pure.

A text that is being written can be looked at: a border is found once nothing that may follow can
change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from pipeline.spoken.english.abbreviations import TITLES
from pipeline.spoken.english.addresses import LINKS, NUMBERED
from pipeline.spoken.english.calendar import DAYS, MONTH_NAMES
from pipeline.spoken.language import SMALL_WORDS, UNSPACED
from pipeline.spoken.length import spoken_letters
from pipeline.spoken.markup import LINE_START, MarkupSpan, spans
from pipeline.spoken.shortened import COMPOUNDS, COUNTED, SHORTENED
from pipeline.spoken.words import english_words

MOST_SHORT_LETTERS = 4
"""Letters of a word that may be an abbreviation that no list has, if what follows is no new
sentence. It is not waited for."""
MOST_UNIT_CHARS = 160
"""Text without white space is cut here: some languages do not use it."""


class Border(IntEnum):
    """How well a piece may end somewhere; more is better."""

    TORN = 0
    """On a word that leans on the next one, or inside of a name or number."""
    WORD = 1
    PHRASE = 2
    """Before a word that may begin a new part."""
    PART = 3
    """Before a word that does."""
    CLAUSE = 4
    """At a comma and its like."""
    SENTENCE = 5
    SILENCE = 6
    """Nothing before it is spoken."""


@dataclass(frozen=True, slots=True)
class End:
    """A piece may end at ``at``."""

    at: int
    border: Border
    words: int
    """Said before it."""
    letters: int
    """Said before it, as ``spoken_letters`` counts."""


def ends(text: str, before: str = LINE_START, *, closed: bool, language: str = "en") -> list[End]:
    """All places where a piece of ``text`` may end, in order.

    ``before``: the last sign before it. ``closed``: nothing follows.
    """
    units = list(_units(text, before, language, closed=closed))
    pieces: list[End] = []
    words = letters = 0
    titled = False
    for number, unit in enumerate(units):
        last = units[number - 1].speech if number else ""
        words += len(_WORD.findall(unit.speech)) + len(_NO_SPACES.findall(unit.speech)) // 2
        letters += spoken_letters(f"{unit.speech} ")
        if _WORD.search(unit.speech):
            titled = _is_title(unit.speech.rstrip(_CLOSERS))
        border = _border(
            units[number:], words, last, closed=closed, language=language, titled=titled
        )
        if border is not None:
            pieces.append(End(unit.end, border, words, letters))
    return pieces


# --- units: words with all that clings to them --------------------------------------------------

_CJK_MARKS = "。！？：；，、"
_CLOSERS = "*_~`\"'”’»)]}"


@dataclass(frozen=True, slots=True)
class _Unit:
    """Text that must not be torn, up to ``end``."""

    end: int
    speech: str
    """Without whole marks."""
    whole: bool
    """Whether more text cannot change it."""
    line_ends: bool
    """Whether a line ends behind it."""


def _units(text: str, before: str, language: str, *, closed: bool) -> Iterator[_Unit]:
    marks = {span.start: span for span in spans(text, before, language)}
    at = 0
    while at < len(text):
        end, speech, broken = _unit_end(text, at, marks)
        if not speech and not text[at:end].strip():
            break
        after = text[end : end + 1]
        whole = closed or broken or after.isspace()
        gap = re.compile(r"\s*").match(text, end)
        line_ends = text[end - 1] == "\n" or bool(gap and "\n" in gap[0])
        yield _Unit(end, speech, whole, line_ends)
        if not whole:
            break
        at = end


def _unit_end(text: str, at: int, marks: dict[int, MarkupSpan]) -> tuple[int, str, bool]:
    """Where the unit that begins at ``at`` ends, what is said of it, and whether that is certain
    without white space behind it."""
    while at < len(text) and text[at].isspace():
        at += 1
    parts: list[str] = []
    start = at
    while at < len(text) and not text[at].isspace():
        if span := marks.get(at):
            at = span.end
            parts.append(span.speech)
            if span.whole and text[at - 1] == "\n":
                return at, "".join(parts), True
        else:
            parts.append(text[at])
            at += 1
            if parts[-1] in _CJK_MARKS or at - start >= MOST_UNIT_CHARS:
                return at, "".join(parts), True
    return at, "".join(parts), False


# --- borders --------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_NO_SPACES = re.compile(f"[{UNSPACED}]")
"""Signs of scripts that put no space between words; two of them are about one word."""
_ADJECTIVE = re.compile(r"[a-z]{2}(?:al|ous|ful|ive|ic|able|ible|less|ary|ish|ern)$")
_SENTENCE_END = re.compile(r"[.!?。！？]$")
_PAUSE = re.compile(r"(?:\.{2,}|…)$")
_CLAUSE_END = re.compile(r"[,;:：；，、—–)]$")
_DASHES = ("-", "–", "—", "--")
_INITIAL = re.compile(r"(?:^|\W)[A-HJ-Z]\.$")
_SOUND = r"(?:M?[Hh]m+|Mm+|Sh+|Ps+t|Brr+|Grr+|Pff+t?|Ts+k?|Zzz+)\."
_NO_VOWEL = re.compile(rf"(?:^|\W)(?!{_SOUND}$)[B-DF-HJ-NP-TV-XZ][b-df-hj-np-tv-xzß]+\.$")
"""No word, unless it is a unit, written in capitals, or a sound such as "Hmm."."""
_NO_WORD = re.compile(r"(?:[bcdfgknpstvz]r|[bfgkt]l|schn)\.$")
"""How no word ends, but for English brands: "monatl."."""
_GERMAN_ADJECTIVE = re.compile(
    r"\b(?!url|girl|curl|perl)(?:[a-zäöüß]+(?:[dnrz]|sch)l|franz|russ)\.$"
)
"""In small letters, cut short: "nördl."."""
_STARTS_WITH_NUMBER = re.compile(r"[\W_]*(?:[0-9]|(?:[IVX]{2,}|[VX])\b)")
_GOES_ON = re.compile(r"[\W_]*[0-9a-zà-ÿ]|[-–—+&/]|(?:[IVX]{2,}|[VX])\b")
"""A text that begins so is no new sentence."""
_PARTICLE = re.compile(r"à|bis|d[aeiou]|del|della|de[nr]|el|il|l[ae]|m|pro|tot|v[ao]n")
"""In languages other than English, words that the next one belongs to; "m" of "t/m"."""
_SMALL_WORDS = {language: frozenset(words.split()) for language, words in SMALL_WORDS.items()}
"""By language, more of them, and others that a sentence seldom pauses behind."""
_COUNTS_ON = re.compile(
    rf"[0-9.][\W_]*$|\b(?:(?i:code|pin|tan|plz):|(?:{'|'.join(DAYS.values())}),)$"
)
"""A number behind it belongs to it."""
_TERM = re.compile(r"(?:\d[a-z]?|(?<!['’\w])[a-z])\W*$")
"""Before a dash that may be a minus."""
_NAME = re.compile(r"[\W_]*[A-Z][^\W\d_]*")

_PRONOUNS = english_words("pronouns")
"""They lean on a verb that follows."""
LEANING = _PRONOUNS | english_words("leaning")
"""Words that the next one belongs to: a piece that ends with one of them sounds broken off."""
_OBJECTS = english_words("objects")
"""They lean on what follows, unless a new part begins there: "I can help you | with that"."""
_CLINGING = english_words("clinging")
"""They belong to the word before them."""
_COUNTING = english_words("counting")
"""Between two numbers they join no parts: "2 and 3"."""
_JOINING = english_words("joining")
"""Words that a new part of the sentence begins with."""
_VERBS = english_words("verbs")
"""They begin the predicate of the words before them, unless those are a pronoun."""
_PLACING = english_words("placing")
"""A new part may begin with them, a little less clearly."""


def _border(
    units: Sequence[_Unit], words: int, last: str, *, closed: bool, language: str, titled: bool
) -> Border | None:
    """How a piece ends behind the first of ``units``, which follows ``last`` and whose last word is
    a title if ``titled``; ``None`` if it does not end there, or that cannot be known yet."""
    unit, following = units[0], units[1:2]
    if not unit.whole:
        return None
    if unit.line_ends and not titled:
        return Border.SENTENCE if words else Border.SILENCE
    core = unit.speech.rstrip(_CLOSERS)
    if not words or not core:
        return Border.TORN
    after = following[0] if following and following[0].whole else None
    ended = closed and not following
    if core in _DASHES:
        return _dash(last, after, ended=ended)
    if _PAUSE.search(core):
        return Border.CLAUSE
    if _SENTENCE_END.search(core):
        if _is_abbreviated(core, words, language):
            return Border.SENTENCE if ended else None
        if core.endswith(".") and _last_word(core) in COUNTED.get(language, ()):
            return _short_word_end(after, ended=ended)
        short = core.endswith(".") and words > 1 and len(_last_word(core)) <= MOST_SHORT_LETTERS
        goes_on = following and _GOES_ON.match(following[0].speech)
        return None if short and goes_on else Border.SENTENCE
    if _CLAUSE_END.search(unit.speech.rstrip("*_~`\"'”’")):
        return _clause(core, after, ended=ended)
    if after is None:
        return Border.TORN if ended else None
    return _between(core, after.speech, language)


def _is_title(core: str) -> bool:
    """ "Dr.", whose name may follow on the next line."""
    return core.lstrip("\"'“‘(") in TITLES


def _is_abbreviated(core: str, words: int, language: str) -> bool:
    """ "Dr.", "e.g.", "J.", "1." at the start of an item, and in German "3." for "third"."""
    word = _last_word(core)
    most_digits = 3 if words == 1 else 2 if language == "de" else 0
    numbered = word.isdecimal() and len(word) <= most_digits
    return core.endswith(".") and (
        word in SHORTENED.get(language, SHORTENED["en"])
        or word.endswith(COMPOUNDS.get(language, ()))
        or bool(_INITIAL.search(core) or _NO_VOWEL.search(core))
        or (language != "en" and bool(_NO_WORD.search(core)))
        or (language == "de" and bool(_GERMAN_ADJECTIVE.search(core)))
        or numbered
        or "." in word
    )


def _last_word(core: str) -> str:
    """ "art" of "l'art.", "5" of "Mai–5."."""
    return re.split(r"['’]|[–-](?=\d)", core.lstrip("\"'“‘(")[:-1].lower())[-1].lstrip("(")


def _short_word_end(after: _Unit | None, *, ended: bool) -> Border | None:
    """The border after "No." or "Sat."; ``None`` in "No. 5" or "Sat. and Sun."."""
    if after is None:
        return Border.SENTENCE if ended else None
    return None if _GOES_ON.match(after.speech) else Border.SENTENCE


def _clause(core: str, after: _Unit | None, *, ended: bool) -> Border | None:
    """A comma; not in "Nov 21, 2026", "1, 2, 3", "Mi., 3. Mai", "Sunday, 3/4" or "PIN: 12"."""
    if not _COUNTS_ON.search(core):
        return Border.CLAUSE
    if after is None:
        return Border.CLAUSE if ended else None
    return Border.TORN if _STARTS_WITH_NUMBER.match(after.speech) else Border.CLAUSE


def _dash(last: str, after: _Unit | None, *, ended: bool) -> Border | None:
    """A dash between words; not in "5 - 3", "3x - y" or "Jan 28 - Feb 3"."""
    if after is None:
        return Border.CLAUSE if ended else None
    begins = rf"\W*[a-z]\b|(?:{MONTH_NAMES})\b" if _TERM.search(last) else r"(?!)"
    minus = _STARTS_WITH_NUMBER.match(after.speech) or re.match(begins, after.speech)
    return Border.TORN if minus or not _WORD.search(after.speech) else Border.CLAUSE


def _between(core: str, after: str, language: str) -> Border | None:
    """The border between two words without a mark; none between a number and what it counts."""
    english = language == "en"
    words, following = _WORD.findall(core.lower()), _WORD.findall(after.lower())
    last, first = words[-1] if words else "", following[0] if following else ""
    counted = bool(re.search(r"[0-9½¼¾⅓⅔]", last) or re.search(r"\b[IVX]{2,}$", core))
    if not last or not first or _STARTS_WITH_NUMBER.match(after):
        return None if counted and not first else Border.TORN
    if counted or _is_name(core, after, english=english):
        if english and first in _JOINING - _COUNTING:
            return Border.PART
        return None if counted else Border.TORN
    if not english:
        small = _SMALL_WORDS.get(language, frozenset()) | COUNTED.get(language, frozenset())
        return Border.TORN if _PARTICLE.fullmatch(last) or last in small else Border.WORD
    last, first = last.replace("’", "'"), first.replace("’", "'")
    if last in _OBJECTS and first in _PLACING | _JOINING:
        return Border.PHRASE
    if last in LEANING or first in _CLINGING or (last in NUMBERED and first in LINKS):
        return Border.TORN
    if first in _JOINING or (first in _VERBS and last not in _PRONOUNS):
        return Border.PART
    if first in _PLACING:
        return Border.PHRASE
    return Border.TORN if _ADJECTIVE.search(last) else Border.WORD


def _is_name(core: str, after: str, *, english: bool) -> bool:
    """Both are written with a capital: "New York"; in English a lonely "I" is not a title."""
    pronoun = english and after.strip("\"'*_,.!?")[:2] in ("I", "I'")
    return bool(_NAME.match(core) and _NAME.match(after)) and not pronoun
