"""Single signs that are for eyes: marks of emphasis, emoji, emoticons, line ends. Pure."""

from __future__ import annotations

import re
import unicodedata

from pipeline.spoken.rules import any_of
from pipeline.spoken.words import pairs, words_of

EMOTICON = re.compile(
    r"(?<![\w/])(?:"
    r"[:;=]['’]?[-^o]?[)(\]DPp|/\\*]+(?![\w/])"  # :-) ;) :'( =D :/
    r"|[:;][-^]?[Oo3](?!\w)"  # :o :3
    r"|[(\[][-^o]?[:;=](?![\w(])"  # (:
    r"|[xX]D+(?!\w)"
    r"|<3+(?![\d%]|[.,]\d)|</3"
    r"|\^[_.-]?\^"
    r"|[oO0][._][oO0](?!\w)"
    r"|-_+-|>[_.]<|T_T"
    r"|¯\\?_\(ツ\)_\\?/¯"
    r")"
)
EMOTICON_STARTS = ":;=([xX<^oO0->T¯"

UNSAID = re.compile(r"[*_`~|\\{}\[\]<>#^]")
"""Marks that no voice should meet; ``plain`` leaves some, which have words in English."""

_KEPT_SYMBOLS = "°℃℉№×÷±≈≠≤≥<>√∞−+=|~$€£¥₹^`¨´¯π→⇒"
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\u20e3\u00ad]")

_TIMES = re.compile(r"(?<=[\d)])[ \t]*\\?\*[ \t]*(?=[\d(])")
_POWER = re.compile(r"(?<=[\d)])\*\*(?=[\d(])")
_RAISED = re.compile(r"(?<=[\d)])[⁻⁰¹²³⁴-⁹ⁿ]{2,}|(?<=[\w)])(?<![^\W\d_]{2})(?:⁻[¹²³⁴-⁹]|[⁰⁴-⁹ⁿ])+")
"""An exponent; ² and ³ alone may belong to a unit, and have words of their own."""
_LOWERED = re.compile("[₀-₉]+")
_MARKS = re.compile(r"[`\\{}\[\]]|\*+|~{2,}|(?<!\w)_+|_+(?!\w)")
_ARROW = re.compile(r"\s*(?:[→⇒➔➜]|(?<!-)-+>|=>)\s*")
_LINE_END = re.compile(r"[ \t]*\n\s*")
_NO_PAUSE = re.compile(
    rf"(?:[!?:;,…。！？：；，、|]|\.\.|(?:^|\W)(?:{any_of(pairs(words_of('en')['titles']))}))$"
)


def clean(text: str) -> str:
    """``text`` without such signs. Signs that a voice can say stay: %, =, +, &, @, #5, <."""
    text = unicodedata.normalize("NFC", text)
    text = _POWER.sub("^", text)
    text = _RAISED.sub(lambda m: f"^{_in_line(m[0])}", text)
    text = _LOWERED.sub(lambda m: _in_line(m[0]), text)
    text = _TIMES.sub(" × ", text)
    text = _INVISIBLE.sub("", text)
    text = _ARROW.sub(", ", text)
    text = "".join(sign for sign in text if sign.isascii() or _is_said(sign))
    text = _MARKS.sub("", text).replace("_", " ")
    text = re.sub(r"\s*\|\s*", ", ", text)
    return _pauses(text)


def _in_line(digits: str) -> str:
    """Raised or lowered digits as ordinary ones."""
    return unicodedata.normalize("NFKC", digits).replace("−", "-")


def _is_said(sign: str) -> bool:
    kind = unicodedata.category(sign)
    return kind not in ("So", "Sk", "Sm", "Cs", "Co", "Cn", "Cc", "Cf") or sign in _KEPT_SYMBOLS


def _pauses(text: str) -> str:
    """Every line ends like a sentence, so that headings and lists are no single sentence: with a
    full stop that belongs to no abbreviation."""
    lines = [line.strip() for line in _LINE_END.split(text)]
    sentences = [line if _NO_PAUSE.search(line) else f"{line} ." for line in lines[:-1] if line]
    return " ".join(" ".join([*sentences, lines[-1]]).split())
