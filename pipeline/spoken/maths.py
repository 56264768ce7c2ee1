"""Formulas as one says them: ``E = mc^2`` is "E equals m c squared". Pure.

LaTeX, as far as language models write it, and the signs of Unicode. A command without a word is
said by its name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from pipeline.spoken.numerals import NUMERALS
from pipeline.spoken.words import MATHS_WORDS, by_turns, words_of

_SIGNS = """
    times × cdot × ast × * × · × ⋅ × div ÷ pm ± mp ± leq ≤ le ≤ leqslant ≤ geq ≥ ge ≥ geqslant ≥
    lt < gt > ll < gg > neq ≠ ne ≠ approx ≈ sim ≈ simeq ≈ cong ≈ ~ ≈ equiv ≡ propto ∝ in ∈ notin ∉
    subset ⊂ subseteq ⊂ cup ∪ cap ∩ emptyset ∅ varnothing ∅ forall ∀ exists ∃ land ∧ wedge ∧ lor ∨
    vee ∨ neg ¬ lnot ¬ to → rightarrow → longrightarrow → mapsto → implies ⇒ Rightarrow ⇒ iff ⇔
    Leftrightarrow ⇔ infty ∞ partial ∂ nabla ∇ sum ∑ Σ ∑ prod ∏ int ∫ iint ∫ oint ∫ prime ′ ' ′ ’ ′
    dots … ldots … cdots … circ ° vert | mid | lvert | rvert |
    lfloor ( rfloor ) lceil ( rceil ) − - – - % % $ $
"""
"""LaTeX's names and other spellings of a sign, each before that sign."""
_pairs = _SIGNS.split()
_SIGN_OF = dict(zip(_pairs[::2], _pairs[1::2], strict=True))
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|log|ln|exp|min|max|det|gcd"
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|nolimits|quad|qquad|hline|boxed|vec"
    r"|overline|underline|overrightarrow|[lr](?:angle|[Vv]ert|brac[ek]))(?![A-Za-z])"
    r"|\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|\s]+\})?|\\[,;:! \\]|&|(?<=\d)\{,\}(?=\d)"
)
"""Commands and signs that say nothing."""
_NUMERIC_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)\s*(\d))")
_TEXT = r"\\(?:text\w{0,2}|math\w{2,4}|operatorname|mbox|emph|ce)\s*\{([^{}]*)\}"
_NUMBER = r"\d+(?:[.,]\d+)*"
_QUANTITY = rf"\\\${_NUMBER}|{_NUMBER}\s*(?:°\s*)?(?:{_TEXT}(?:\^\{{?[23]\}}?)?|[%°])"
_TOKEN = re.compile(
    rf"{_QUANTITY}|{_TEXT}|\d+/\d+(?![\d.])|{_NUMBER}|\\[A-Za-z]+|(?:{_FUNCTIONS})\b|\\.|\S",
    re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", "|": "|"}
_BOUNDED = "∑∏∫"

_MOST_LEVELS = 24
MOST_CHARS = 400
"""A longer one is no formula."""
_STARTS = re.compile(r"\s*[\w\\({\[|+<>=~√∑∏∫∀∃∂∇¬∞≤≥±−-]")
_PROSE = re.compile(
    r"[.!?]\s|[\"“”]|[\w,;:)]\s+[^\W\d_]{2}|[^\W\d_]{2}[,;:]?\s+[\w(]|\w\s+—|\n\s*\n|\\[()\[\]]"
    r"|</[A-Za-z]|<[A-Za-z]{2,}[\s>]"  # a tag
)
_CERTAIN = re.compile(r"(?!\d[\d.,]*+[kKmMbB]?+(?![\w\\^])).*(?:[\\^_=]|[<>]\s)", re.DOTALL)


def may_be_formula(start: str) -> bool:
    """Whether dollar signs may stand around it: prose tells by two words in a row."""
    text = re.sub(rf"{_TEXT}|\\[A-Za-z]+|\bd[r-z]\b", "|", start)
    return not text or bool(_STARTS.match(text) and not _PROSE.search(text))


def is_certain(start: str) -> bool:
    """Whether it is a formula even if its end never comes."""
    return bool(_CERTAIN.match(start.strip())) and may_be_formula(start)


@lru_cache(256)
def in_words(formula: str, language: str) -> str:
    """``formula``, without the marks around it. In a language without words, with its signs."""
    formula = re.sub(r"(?<=\d)\{,\}(?=\d{3}(?!\d))", "", formula)
    formula = _LAYOUT.sub(lambda m: {"{,}": ".", r"\\": ","}.get(m[0], " "), formula)
    formula = _NUMERIC_FRACTION.sub(r"\1\3/\2\4", formula)
    formula = re.sub(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})", "°", formula)
    words = " ".join(_Reader(_tokens(formula), language).sequence())
    return re.sub(r",+(?=$|[.,;:])", "", re.sub(r"\s+(?=[.,;:])", "", words)).strip()


def _tokens(formula: str) -> list[str]:
    tokens = (match[0] for match in _TOKEN.finditer(formula))
    return [_SIGN_OF.get(token.removeprefix("\\"), token) for token in tokens]


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[str], language: str) -> None:
        self._tokens = tokens
        self._language = language
        self._words: Mapping[str, str] = MATHS_WORDS.get(language, {})
        self._numerals = NUMERALS.get(language)
        self._letters = by_turns(words_of(language).get("letters", ""))
        """Greek letters with a name of their own: ``alpha`` is "alfa" in Spanish."""
        self._at = 0
        self._depth = 0
        self._applied_at = -1
        """Where the argument of a function begins."""

    def sequence(self, closing: str = "") -> list[str]:
        """The words up to ``closing``, or to the end."""
        parts: list[str] = []
        while self._at < len(self._tokens):
            token = self._next()
            if token == closing:
                break
            parts.append(self._within(token))
        return [words for words in parts if words]

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _accept(self, token: str) -> bool:
        here = self._at < len(self._tokens) and self._tokens[self._at] == token
        self._at += here
        return here

    def _word(self, sign: str) -> str:
        return self._words.get(sign, sign)

    def _within(self, token: str) -> str:
        """The words of the item that ``token`` begins; none below ``_MOST_LEVELS``."""
        if self._depth >= _MOST_LEVELS:
            return ""
        self._depth += 1
        words = self._item(token)
        self._depth -= 1
        return words

    def _item(self, token: str) -> str:
        name = token.removeprefix("\\")
        if token in ("(", "[", "|", r"\{"):
            return self._group(token)
        if token == "{":
            return " ".join(self.sequence("}"))
        if token[:1].isdigit() or token[:2] == r"\$":
            return self._number(token)
        if text := re.fullmatch(_TEXT, token):
            return text[1]
        if token == "^":
            return self._power(self._argument())
        if token == "_":
            return self._argument()
        if token in _BOUNDED or name == "lim":
            return self._bounded(name)
        if name in ("frac", "dfrac", "tfrac", "cfrac", "binom"):
            return self._fraction(self._argument(), self._argument())
        if name == "sqrt" or token in "√∛":
            return self._root(token)
        if name in _FUNCTIONS.split("|"):
            return self._function(name)
        return self._letter(name) if name[:1].isalpha() else self._sign(token)

    def _sign(self, token: str) -> str:
        if token == "′" and self._tokens[self._at : self._at + 1] == ["("]:
            return self._applied(self._word(token))
        if token in self._words or token in ",.;:":
            return self._word(token)
        if token.isdigit():
            return self._number(str(unicodedata.digit(token)))
        return "" if token.isascii() and self._words else token

    def _letter(self, name: str) -> str:
        """``x``, ``\\alpha`` or ``α``; other commands by their name."""
        if len(name) == 1 and not name.isascii():
            name = unicodedata.name(name, "").rpartition("LETTER ")[2].lower() or name
        letter = name.removeprefix("var")
        word = self._letters.get(letter, letter)
        return self._applied(word) if self._is_function(name) else word

    def _is_function(self, name: str) -> bool:
        """``f(x)``, ``O(n^2)`` and ``x(t)``, but not ``x(t + 1)``."""
        after = self._tokens[self._at : self._at + 3]
        return after[:1] == ["("] and (name in "fghEFGHOPT" or after[2:] == [")"])

    def _argument(self) -> str:
        return self._within(self._next()) if self._at < len(self._tokens) else ""

    def _group(self, opening: str) -> str:
        """A compound one is set apart by a comma, and multiplied with a factor before it."""
        start = self._at - 1
        follows = start > 0 and re.fullmatch(r"[\w)\]}]+", self._tokens[start - 1])
        if opening == "|" and follows:
            return self._word("given")
        factor = follows and opening == "(" and start != self._applied_at
        inside = self.sequence(_CLOSING[opening])
        if opening == "|":
            return " ".join([self._word("|"), *inside, ","])
        times = [self._word("×")] if factor else []
        return " ".join([*times, *inside, *([","] if len(inside) > 1 else [])])

    def _applied(self, function: str) -> str:
        self._applied_at = self._at
        return f"{function} {self._word('of')}"

    def _function(self, name: str) -> str:
        """The words of a function, with its base or power before the argument."""
        words = [self._word(name)]
        while script := next(filter(self._accept, "_^"), ""):
            words.append(self._within(script))
        return self._applied(" ".join(words))

    def _number(self, token: str) -> str:
        """Amounts with a unit or of money are left to the rules of the language."""
        if token[:2] == r"\$":
            return token[1:]
        if text := re.search(_TEXT, token):
            unit = token[text.end() :].strip("^{}").replace("2", "²").replace("3", "³")
            degree = "°" if "°" in token else ""
            return f"{token[: text.start()].rstrip('° ')} {degree}{text[1].strip()}{unit}"
        over, slash, under = token.partition("/")
        if slash:
            part = self._numerals.part(int(over), int(under)) if self._numerals else ""
            return part or self._fraction(self._number(over), self._number(under))
        if not self._numerals or not re.fullmatch(_NUMBER, token):
            return token
        if self._language != "en":
            return self._numerals.number(token)
        parts = re.findall(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?", token)
        return ", ".join(map(self._numerals.number, parts))

    def _power(self, exponent: str) -> str:
        digit = {self._number("2"): "²", self._number("3"): "³"}.get(exponent)
        if exponent == self._word("′") or not exponent:
            return exponent
        return self._word(digit) if digit else f"{self._word('^')} {exponent}"

    def _fraction(self, over: str, under: str) -> str:
        pause = "," if len(over.split()) > 1 else ""
        return f"{over}{pause} {self._word('/')} {under}"

    def _root(self, token: str) -> str:
        """``\\sqrt{x}``, ``\\sqrt[3]{x}`` or ``√x``."""
        index = "".join(self.sequence("]")) if self._accept("[") else ""
        if index in ("", self._number("2")):
            name = self._word("∛" if token == "∛" else "√")
        elif index == self._number("3"):
            name = self._word("∛")
        else:
            name = f"{self._word('root')} {index} {self._word('of')}"
        return f"{name} {self._argument()}"

    def _bounded(self, name: str) -> str:
        """A sum and its like with bounds: "the sum from i equals one to n of"."""
        words = [self._word(name)]
        while script := next(filter(self._accept, "_^"), ""):
            bound = self._word("to" if script == "^" else "from") if name != "lim" else ","
            words += [bound, self._argument()]
        return " ".join([*words, "," if name == "lim" else self._word("of")])
