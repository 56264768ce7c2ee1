"""Rules that all languages share: one spelling of each sign first, and pauses at the end. Pure."""

from __future__ import annotations

from pipeline.spoken.rules import rule

TYPOGRAPHY = (
    rule("[‘’ʼ]", "'"),
    rule("[“”„«»]", '"'),
    rule("[‐‑]", "-"),
    rule("−", "-"),
)
PAUSES = (
    rule(r"(?<=\d):(?=\d)", " "),
    rule(r"\s*(?:\.{2,}|…)\s*(?=$|[\"')])", "."),
    rule(r"\s*(?:\.{2,}|…)\s*", ", "),
    rule(r"\s*—\s*|\s+(?:–|-{1,3})\s+|(?<=\w)(?:–|--+)(?=\w)|–", ", "),
    rule(r"\s*\(\s*", ", "),
    rule(r"\s*\)\s*$", ""),
    rule(r"\s*\)", ","),
    rule(r"[*_`~|\\{}\[\]<>#^@+=/$]|\"", " "),
    rule(r"(?<!\w)-|-(?!\w)", " "),
    rule(r"\s+", " "),
    rule(r"\s+(?=[.,;:!?])", ""),
    rule(r"[,;:]+(?=[.!?])", ""),
    rule(r"([,;:])(?:\s?[,;:])+", r"\1"),
    rule(r"([!?.])[!?.]+", lambda m: "?" if "?" in m[0] else m[1]),
    rule(r"^[\s,;:.]+", ""),
    rule(r"(?<=[.!?])\s?[,;:](?=\s)", ""),
)
