"""Removes what is for eyes and not for ears from a text. In any language; pure.

Markdown, HTML, LaTeX's brackets, links, code, thoughts, tool calls, emoji, emoticons and stage
directions. A text can be looked at while it is being written: ``spans`` says where something has
begun that is not whole yet, so that no half of it is spoken.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pipeline.spoken import maths
from pipeline.spoken.directions import is_direction, may_be_direction
from pipeline.spoken.german import COUNTED_NOUNS
from pipeline.spoken.signs import EMOTICON, EMOTICON_STARTS, clean

LINE_START = "\n"
"""``before`` of a text that begins a line."""

_MOST_LINK, _MOST_TAG, _MOST_CODE, _MOST_ASIDE = 300, 200, 150, 80
"""Characters after which an unclosed mark is plain text, so that it holds nothing back."""


class MarkupSpan(NamedTuple):
    """A piece of markup in a text, from ``start`` to ``end``, which is said as ``speech``."""

    start: int
    end: int
    speech: str
    whole: bool = True
    """False for one whose end has not been written yet; it is the last one, and ends with the
    text."""


class _Place(NamedTuple):
    """What a kind of markup looks at to tell what it is."""

    match: re.Match[str]
    starts_sentence: bool
    language: str


class _Kind(NamedTuple):
    signs: str
    """What it may begin with."""
    whole: str
    speech: Callable[[_Place], str | None]
    """``None`` if it only looks like markup."""
    start: str = r"(?!)"
    """Matches it when it is not whole, up to the end of the text."""
    waits: Callable[[_Place], bool] = lambda _: True
    """Whether such a start may become one."""
    cut: Callable[[_Place], str] = lambda place: place.match[0]
    """The speech of one whose end never comes; by default, its signs mean nothing."""


def plain(text: str, before: str = LINE_START, language: str = "en") -> str:
    """``text`` as it is read aloud, on one line; lines end like sentences.

    ``before``: the last sign before it, if it is a part of a longer text. ``language``: of the
    formulas in it, which become words.
    """
    parts: list[str] = []
    at = 0
    for span in spans(text, before, language):
        parts += [text[at : span.start], span.speech]
        at = span.end
    return clean("".join([*parts, text[at:]]))


def spans(text: str, before: str = LINE_START, language: str = "en") -> list[MarkupSpan]:
    """All markup in ``text`` but for single signs, in order."""
    marks: list[MarkupSpan] = []
    at = 0
    while at < len(text):
        span = _line_mark(text, at, before, language) or _inline(text, at, before, language)
        if span:
            marks.append(span)
        at = span.end if span else at + 1
    return marks


# --- marks at the start of a line ----------------------------------------------------------------

_INDENT = re.compile(r"[ \t]+")
_RULE = re.compile(r"(?:[-*_=][ \t]*){3,}(?=\n|\Z)")
_HEADING = re.compile(r"#{1,6}[ \t]+|#{1,6}(?=\n|\Z)")
_BULLET = re.compile(r"[-*+•‣◦▪–—][ \t]+(?:\[[ xX]\](?=\s))?")
_MONTH = r"Mai\b|(?:Jan|Feb|Mär|Mrz|Apr|Jun|Jul|Aug|Sep|Okt|Nov|Dez)(?:[a-zä]+\b|\.)"
_COUNTED = rf"(?:{_MONTH}|(?:{'|'.join(COUNTED_NOUNS)}|Jh|[OU]G)\b)"
"""Behind "1." a German date or ordinal, which is no item of a list."""
_NUMBERED = re.compile(rf"(\d{{1,3}})[.)][ \t]+(?!(?<=\.[ \t]){_COUNTED})(?=\S)")
_QUOTE = re.compile(r"(?:>[ \t]?)+(?![_.]<)")
_DEFINITION = re.compile(r"\[\^?[^\]\n]{1,99}\]:[ \t]*(?:https?://|/)?\S*[^\n]*")
_TABLE_RULE = re.compile(r"[|:\-][|:\- \t]*\|[|:\- \t]*-[|:\- \t]*(?=\n|\Z)")
_ROW = re.compile(r"\|([^\n]*)(?=\n|\Z)")


def _line_mark(text: str, at: int, before: str, language: str) -> MarkupSpan | None:
    if not _starts_line(text, at, before) or (match := _INDENT.match(text, at)):
        return None
    for silent in (_TABLE_RULE, _RULE, _HEADING, _BULLET, _QUOTE, _DEFINITION):
        if match := silent.match(text, at):
            return MarkupSpan(at, match.end(), "")
    if match := _NUMBERED.match(text, at):
        return MarkupSpan(at, match.end(), f"{match[1]}, ")
    if match := _ROW.match(text, at):
        cells = [plain(cell, "|", language) for cell in match[1].split("|")]
        row = ", ".join(cell for cell in cells if cell)
        return MarkupSpan(at, match.end(), row, whole=match.end() < len(text))
    return None


def _starts_line(text: str, at: int, before: str) -> bool:
    if at and text[at - 1] not in "\n \t>":
        return False
    line = text[:at].rstrip(" \t>")
    return line.endswith("\n") or (not line and before == LINE_START)


# --- marks anywhere -------------------------------------------------------------------------------

_SILENT_TAGS = (
    "think|thinking|thoughts?|reasoning|reflection|tool_calls?|tool_code|tool_response|tool_result"
    "|function|function_calls?|script|style|svg"
)
"""What stands between ``<x>`` and ``</x>`` is not said."""
_LINE_TAGS = re.compile(
    r"</?(?:br|p|li|ul|ol|h[1-6]|div|t[drh]|table|hr|d[dt]|summary)\b", re.IGNORECASE
)
_LINK_TEXT = rf"!?\[(?P<text>[^\[\]\n]{{0,{_MOST_LINK}}})\]"
_TARGET_START = r"\(\S{0,2000}(?:\s+[\"'][^\"'\n]{0,200}[\"']?)?\Z"
_LINK_TARGET = (
    r"(?:(?P<target>\((?:[^()\s]|\([^()\s]*\)){0,2000}(?:\s+[\"'][^\"'\n]{0,200}[\"'])?\)"
    rf"|\[[^\[\]\n]{{0,99}}\])|(?!{_TARGET_START}))"
)
_LINK_START = rf"!?\[[^\[\]\n]{{0,{_MOST_LINK}}}(?:\Z|\](?:\Z|{_TARGET_START}))"
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_MOST_LEVELS = 12


def _nested(opens: str, closes: str, inside: str) -> str:
    """Between ``opens`` and ``closes``: whatever is ``inside``, and the same again."""
    pattern = inside
    for _ in range(_MOST_LEVELS):
        pattern = rf"(?:{inside}|{opens}{pattern}*+{closes})"
    return rf"{pattern}*+{closes}"


_OBJECT = r"\{(?=\s*[\"'])" + _nested(r"\{", r"\}", rf'(?:[^{{}}"]|{_QUOTED})')
_LIST = r"\[(?=\s*[{\"])" + _nested(r"\[", r"\]", rf'(?:[^\[\]"]|{_QUOTED})') + r"(?![\[(])"
_MOST_JSON, _MOST_TEXTS = 20_000, 400
"""Characters of an object, or a list of texts, that may wait for its end."""
_OBJECT_START = rf"\{{\s*(?:[\"'].{{0,{_MOST_JSON}}})?\Z"
_LIST_START = rf'\[\s*(?:\{{.{{0,{_MOST_JSON}}}|"(?:(?!\]\().){{0,{_MOST_TEXTS}}})?\Z'
_JSON_STARTS = re.compile(r"\s*(?:\{\s*[\"']|\[\s*[{\"])")


def _link(place: _Place) -> str:
    text = place.match["text"].strip()
    alone = not place.match["target"] and not place.match[0].startswith("!")
    if re.fullmatch(r"\^?\d+|\^\S+", text):
        return ""
    if alone and (text in ("x", "X") or is_direction(text, alone=False)):
        return ""
    return plain(text, "[", place.language)


def _code(place: _Place) -> str:
    """Code in a sentence, as far as it is words: ``get_weather(x)`` is "get weather x"."""
    if _JSON_STARTS.match(place.match["code"]):
        return ""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", place.match["code"])
    words = re.sub(r"[^\w\s.,'+#%/:-]|(?<!\w)[.,:/+-]+|[.,:/+-]+(?!\w)", " ", words)
    return re.sub(r"\s+", " ", words).strip()


def _tag(place: _Place) -> str:
    inner = place.match[0][1:-1]
    if re.match(r"\w+://|[^\s\"'=]+@", inner):
        return plain(inner, "<", place.language)
    return "\n" if _LINE_TAGS.match(place.match[0]) else ""


def _aside(place: _Place) -> str | None:
    starts = place.starts_sentence and not place.match[0].startswith("(")
    return "" if is_direction(place.match["aside"], alone=starts) else None


def _may_be_aside(place: _Place) -> bool:
    starts = place.starts_sentence and not place.match[0].startswith("(")
    return may_be_direction(place.match["aside"], alone=starts)


def _host(place: _Place) -> str:
    """Only the host of an address: "example.com"."""
    return re.sub(r"(?i)^www\.", "", place.match["host"]).rstrip(".")


def _silence(_: _Place) -> str:
    return ""


def _formula(place: _Place) -> str:
    return f" {maths.in_words(place.match['formula'], place.language)} "


def _between_dollars(place: _Place) -> str | None:
    """A formula in words, joined to the letters that follow it, as in "the $n$th"."""
    if not _may_be_formula(place):
        return None
    joined = place.match.string[place.match.end() :][:1].isalpha()
    return _formula(place).rstrip() if joined else _formula(place)


def _may_be_formula(place: _Place) -> bool:
    formula = place.match["formula"]
    if not place.match[0].endswith("$"):
        formula = formula.rstrip()  # its end is not there yet
    doubtful = formula != formula.strip() or _AMOUNT.match(place.match["formula"])
    if doubtful and not place.match[0].startswith("$$"):
        return maths.is_certain(formula)
    return maths.may_be_formula(formula)


def _cut_formula(place: _Place) -> str:
    """Between dollar signs, only what cannot be an amount of money."""
    formula = place.match["formula"]
    if place.match[0].startswith("\\") or maths.is_certain(formula):
        return _formula(place)
    return place.match[0].removesuffix(formula) + plain(formula, "$", place.language)


def _formula_kind(opens: str, closes: str) -> _Kind:
    """Between marks that have no other meaning."""
    some = rf"{opens}(?P<formula>.{{0,{maths.MOST_CHARS}}}"
    return _Kind("\\", rf"{some}?){closes}", _formula, rf"{some})\Z", cut=_cut_formula)


_DOLLAR = r"(?<![\w\\$])\$(?!(?<=\d\s\$)\s)"
"""Not that of "5 $ and"."""
_INSIDE = r"(?:[^$\n\\]|\\.)"
"""A sign between two dollar signs."""
_AMOUNT = re.compile(r"\d[\d.,]*[kKmMbB]?[;:]?\s+(?![-+*/=<>^\\×÷·≤≥])")
"""After a dollar sign, money: more of the sentence follows it, and no operator."""
_DISPLAY = r"(?:equation|align|gather|multline)\*?"
_GROUP = r"\{" + _nested(r"\{", r"\}", r"[^{}]")
_SCRIPT = rf"[_^](?:\w|{_GROUP})"
_COMMAND = rf"\\[a-z]{{2,20}}(?:\[[^\[\]\n]{{0,20}}\])?(?:{_GROUP})*(?:{_SCRIPT})*"
_COMMAND_START = rf"{_COMMAND}[_^]?[\[{{][^\n]{{0,{maths.MOST_CHARS}}}\Z"
"""One without marks around it."""


def _aside_kind(opens: str, closes: str) -> _Kind:
    o, c = re.escape(opens), re.escape(closes)
    inner = rf"(?<![\w{o}]){o}(?=[^\W\d_]{{more}})(?P<aside>[^{o}{c}\n]{{{{0,{_MOST_ASIDE}}}}}"
    whole = inner.format(more="") + rf"(?<=[\w.!?,…])){c}(?!\w|{c})"
    return _Kind(opens, whole, _aside, inner.format(more=r"|\Z") + r")\Z", _may_be_aside)


_KINDS = (
    _Kind("`", r"```.*?```", lambda _: "\n", r"```.*\Z", cut=_silence),
    _Kind(
        "<",
        rf"<({_SILENT_TAGS})\b[^<>]*>.*?</\1\s*>",
        lambda _: " ",
        rf"<({_SILENT_TAGS})\b[^<>]*>.*\Z",
        cut=_silence,
    ),
    _Kind("<", r"<!--.*?-->", lambda _: "", r"<!--.*\Z", cut=_silence),
    _Kind("{", _OBJECT, lambda _: " ", _OBJECT_START, cut=_silence),
    _Kind("[", _LIST, lambda _: " ", _LIST_START, cut=_silence),
    _Kind("<", r"(?<!\w)</?3+(?![\d%]|[.,]\d)", lambda _: ""),
    _Kind(
        "<",
        rf"<[/|]?[a-z][^<>\n]{{0,{_MOST_TAG}}}>",
        _tag,
        rf"<[/|]?(?:[a-z][^<>\n]{{0,{_MOST_TAG}}})?\Z",
    ),
    _Kind("![", _LINK_TEXT + _LINK_TARGET, lambda p: _link(p), _LINK_START),
    _Kind(
        "`",
        rf"(?P<ticks>`+)(?P<code>[^`\n]{{1,{_MOST_CODE}}})(?P=ticks)",
        _code,
        rf"`+[^`\n]{{0,{_MOST_CODE}}}\Z",
    ),
    _Kind(
        "$",
        rf"(?<!\$)\$\$(?!\$)(?P<formula>[^$]{{1,{maths.MOST_CHARS}}})\$\$(?!\$)",
        _between_dollars,
        rf"(?<!\$)\$\$(?!\$)(?P<formula>[^$]{{0,{maths.MOST_CHARS}}})\$?\Z",
        _may_be_formula,
        _cut_formula,
    ),
    _Kind(
        "$",
        rf"{_DOLLAR}(?P<formula>{_INSIDE}{{1,{maths.MOST_CHARS}}})\$(?!(?!(?:st|nd|rd|th)\b)[\w$])",
        _between_dollars,
        rf"{_DOLLAR}(?P<formula>{_INSIDE}{{0,{maths.MOST_CHARS}}}\\?)\Z",
        _may_be_formula,
        _cut_formula,
    ),
    _formula_kind(r"\\\(", r"\\\)"),
    _formula_kind(r"\\\[", r"\\\]"),
    _formula_kind(rf"\\begin\{{{_DISPLAY}\}}", rf"\\end\{{{_DISPLAY}\}}"),
    _Kind(
        "\\",
        rf"(?P<formula>{_COMMAND})(?!_?\^?[\[{{])",
        _formula,
        rf"(?P<formula>{_COMMAND_START})",
        cut=_cut_formula,
    ),
    _aside_kind("*", "*"),
    _aside_kind("_", "_"),
    _aside_kind("(", ")"),
    _Kind(
        "hfw",
        r"(?<![\w@.])(?:(?:https?|ftp)://|(?=www\.))(?P<host>[\w.-]+)"
        r"[^\s<>()\[\]\"'`]*(?<![.,;:!?*_])",
        _host,
    ),
    _Kind(
        "&",
        r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});",
        lambda p: html.unescape(p.match[0]),
    ),
    _Kind(EMOTICON_STARTS, EMOTICON.pattern, lambda _: ""),
)


def _by_first_sign() -> Mapping[str, list[tuple[_Kind, re.Pattern[str], re.Pattern[str]]]]:
    """By sign, each kind that may begin with it, and its patterns for a whole one and a start."""
    table = defaultdict(list)
    for kind in _KINDS:
        flags = re.DOTALL if kind is _KINDS[-1] else re.DOTALL | re.IGNORECASE
        compiled = (kind, re.compile(kind.whole, flags), re.compile(kind.start, flags))
        for sign in {*kind.signs, *(kind.signs.upper() if flags & re.IGNORECASE else "")}:
            table[sign].append(compiled)
    return dict(table)


_BY_SIGN = _by_first_sign()


def _inline(text: str, at: int, before: str, language: str) -> MarkupSpan | None:
    for kind, whole, start in _BY_SIGN.get(text[at], ()):
        if match := whole.match(text, at):
            speech = kind.speech(_Place(match, _starts_sentence(text, at, before), language))
            if speech is not None:
                return MarkupSpan(at, match.end(), speech)
        elif match := start.match(text, at):
            place = _Place(match, _starts_sentence(text, at, before), language)
            if kind.waits(place):
                return MarkupSpan(at, len(text), kind.cut(place), whole=False)
    return None


def _starts_sentence(text: str, at: int, before: str) -> bool:
    last = (text[:at].rstrip(" \t\"'”’)*_") or before)[-1]
    return last in ".!?…\n:>"
