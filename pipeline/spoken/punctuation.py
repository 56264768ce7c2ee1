"""Rules that all languages share: one spelling of each sign first, and pauses at the end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.spoken.rules import Rule, rule

TYPOGRAPHY = (
    rule("[‘’ʼ]", "'"),
    rule("[“”„«»]", '"'),
    rule("[‐‑]", "-"),
    rule("−", "-"),
    rule(r"(?<![\w.,])(\d+(?:[.,]\d+)?)[eE]\+?(-?\d{1,3})(?![\w.,]?\w)", r"\1 × 10^\2"),
    rule(r"(?<![\w.,])(\d+)\s?h\s?0?(\d\d?)\s?m(?:in)?(?=\s?\d|(?![\w/²³]))", r"\1 h \2 min "),
    rule(r"(?<![\w.,])(\d\d?)\s?m\s?(?=\d\d?\s?s(?![\w/²]))", r"\1 min "),
    rule(r"\b(?:USD|EUR|GBP|CAD|AUD|MXN)\s?(?=[$€£]\s?\d)", ""),
    rule(r"(?<=[$€£])(\s?\d[\d.,]*)\s?(?:USD|EUR|GBP|CAD|AUD|MXN)\b", r"\1"),
    rule(r"(?<![\w$])(?<!\d\s)\$(?=[^\W\d_])", ""),
    rule(r"(?<!\w)(?<!\d\s)([$€£¥₹])\s?-(?=\d)", r"-\1"),
    rule(r"(?<=°[CF])\s?/\s?(?=\d)", ", "),
)
TYPED_GAPS = r"'\u00a0\u2009\u202f"
"""Between the groups of a number, as Switzerland (1'234.50) and typesetters write it."""
_QUESTION = re.compile(r"(?:[?？؟⁇⁈]|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e])[\W_]*$")


def asks(text: str) -> bool:
    """Whether the text ends with a question mark of any script; quotes, markup and emoji may follow
    it."""
    return bool(_QUESTION.search(text))


def grouping(gaps: str, thousands: str, point: str) -> Sequence[Rule]:
    """Numbers in groups, whose ``gaps`` give way to the signs of the language."""

    def regroup(match: re.Match[str]) -> str:
        part = f"{point}{match['part']}" if match["part"] else ""
        return re.sub(r"\D", thousands, match["whole"]) + part

    return (
        rule(
            r"(?<![\w.,'+)])(?<!\d\s)(?P<whole>\d{1,3}(?:(?P<gap>[" + gaps + r"])\d{3})"
            r"(?:(?P=gap)\d{3})*)(?:[.,](?P<part>\d+))?(?![\w'])(?!\s\d)",
            regroup,
        ),
    )


PAUSES = (
    rule(r"\s*(?:\.{2,}|…)\s*(?=$|[\"')])", "."),
    rule(r"\s*(?:\.{2,}|…)\s*", ", "),
    rule(r"\s*—\s*|\s+(?:–|-{1,3})\s+|(?<=\w)(?:–|--+)(?=\w)|–", ", "),
    rule(r"\s*\(\s*", ", "),
    rule(r"\s*\)\s*$", ""),
    rule(r"\s*\)", ","),
    rule(r"[*_`~|\\{}\[\]<>#^@+=/$]|\"", " "),
    rule(r"(?<!\w)-|-(?!\w)", " "),
    rule(r"\s+(?=[.,;:!?])", ""),
    rule(r"[,;:]+(?=[.!?])", ""),
    rule(r"([,;:])(?:\s?[,;:])+", r"\1"),
    rule(r"([!?.])[!?.]+", lambda m: "?" if "?" in m[0] else m[1]),
    rule(r"^[\s,;:.]+", ""),
    rule(r"(?<=[.!?])\s?[,;:](?=\s)", ""),
)
