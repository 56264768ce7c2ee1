"""Addresses, phone numbers, versions and codes, as one says them in English."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH
from pipeline.spoken.rules import rule, spelled
from pipeline.spoken.words import pairs, words_of

_SIGNS = pairs(words_of("en")["address"])
_NO_HOSTS = {"a.m", "p.m", "e.g", "i.e"}


def _address(match: re.Match[str]) -> str:
    numbered = re.sub(r"\d+", lambda m: f" {ENGLISH.pairs(m[0])} ", spelled(match[0], _SIGNS))
    return match[0] if match[0].lower() in _NO_HOSTS else " ".join(numbered.split())


def _phone(match: re.Match[str]) -> str:
    return ENGLISH.phone(match[0])


def _short_phone(match: re.Match[str]) -> str:
    """ "555-1234" is a phone number, "100-1000" a range."""
    return match[0] if match[0].endswith("00") else _phone(match)


ADDRESSES = (
    rule(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", _address),
    rule(
        r"(?<![\w@.])(?:[A-Za-z0-9][\w-]*\.)+(?:com|org|net|edu|gov|io|ai|dev|app|info|de|uk|eu|fr|es|nl|pt|ch|tv|me)\b",
        _address,
    ),
    rule(r"\b(Node|Vue|Next|React|Three|Express)\.js\b", r"\1 J S"),
    rule(
        r"(?<![\w@.])\w*[a-z_]\w*\.(?:py|js|ts|txt|md|pdf|csv|json|yaml|yml|html|css|exe|zip|jpg|png|"
        r"wav|mp3|mp4|doc|docx|xls|cpp|c|h|rs|go|sh|toml|ini|log|gguf|onnx)\b",
        _address,
    ),
    rule(
        r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]?\d)",
        lambda m: ENGLISH.version(m[0], "dot"),
    ),
    rule(r"(?<![\w.])C\+\+", "C plus plus"),
    rule(r"(?<![\w.])([CF])#(?!\w)", r"\1 sharp"),
    rule(r"(?<!\w)@(?=\w)", "at "),
    rule(r"(?<!\w)#\s?(?=\d)", "number "),
    rule(r"(?<!\w)#(?=[^\W\d_])", "hashtag "),
)

VERSIONS = (
    rule(
        r"(?<!\w)v\.?\s?(\d{1,6}(?:\.\d{1,6})+)(?!\.?\w)",
        lambda m: "version " + ENGLISH.version(m[1], "point"),
        any_case=True,
    ),
    rule(r"(?<!\w)v(\d{1,3})(?!\.?\w)", lambda m: f"version {ENGLISH.cardinal(int(m[1]))}"),
    rule(r"(?<![\w.])\d{1,6}(?:\.\d{1,6}){2,}(?!\.?\w)", lambda m: ENGLISH.version(m[0], "point")),
    rule(
        r"\b((?:version|release|python|node|java|ubuntu|debian|fedora|ios|android|macos|kernel|cuda"
        r"|llama|qwen|gemma|chapter|section)\s)(\d{1,6}\.\d{2,6})(?!\.?\w)",
        lambda m: m[1] + ENGLISH.version(m[2], "point"),
        any_case=True,
    ),
)

PHONES = (
    rule(r"(?<![\w+])\+\d(?:[\s().-]{0,2}\d){6,14}(?!\w)", _phone),
    rule(r"(?<!\w)\(\d{3}\)\s?\d{3}[-.\s]\d{4}(?!\w)", _phone),
    rule(r"(?<![\w.-])\d{3}[-.\s]\d{3}[-.\s]\d{4}(?![\w-])", _phone),
    rule(r"(?<![\w.-])\d{4}(?:[ -]\d{4}){3}(?![\w-])", _phone),
    rule(r"(?<![\w.-])\d{3}-\d{4}(?![\w-])", _short_phone),
    rule(r"(?<![\w.-])\d+(?:-\d+){2,}(?![\w-])", _phone),
    rule(r"(?<=\b[Cc]all |\b[Dd]ial )(?:112|911|988|999)\b", lambda m: ENGLISH.digits(m[0])),
)

_BY_DIGITS = "code|pin|zip|password|passcode|extension|ext|account|serial|id|combination"
_BY_PAIRS = "room|flight|route|bus|gate|highway|interstate|suite|apartment"
NUMBERED = frozenset(f"{_BY_DIGITS}|{_BY_PAIRS}".split("|"))
"""Words that say how the number behind them is read; between both may be some of ``LINKS``."""
LINKS = ("number", "no", "is", "was")
_IS = rf"(?:\s(?:{'|'.join(LINKS)})|\s?[:#])*\s"

CODES = (
    rule(
        rf"\b((?:{_BY_DIGITS}){_IS})"
        r"(\d{3,})(?![\w.,]?\d|\w)",
        lambda m: m[1] + ENGLISH.digits(m[2]),
        any_case=True,
    ),
    rule(
        rf"\b((?:{_BY_PAIRS}){_IS})"
        r"(\d{3,4})(?![\w.,]?\d|\w)",
        lambda m: m[1] + ENGLISH.pairs(m[2]),
        any_case=True,
    ),
    rule(r"(?<![\w.,])\d{8,}(?<!000)(?![\w.,]?\d|\w)", lambda m: ENGLISH.digits(m[0])),
    rule(
        r"(?<![\w.])([A-Za-z]{1,2})-?(\d{3,4})(?![\w.,]?\d|\w)",
        lambda m: f"{m[1].upper()} {ENGLISH.pairs(m[2])}" if m[1].isupper() else m[0],
    ),
)
"""Numbers that count nothing. With a zero in front, any number is said digit by digit."""
