"""What German alone needs: the endings of ordinals, and hours that are written "15 h"."""

from __future__ import annotations

ENDS_IN_E = ("der", "die", "das", "eine", "ins", "ans", "jede", "diese")
ENDS_IN_EN = (
    *("am", "vom", "zum", "zur", "im", "beim", "dem", "den", "des", "ab", "seit", "bis", "vor"),
    *("einer", "einem", "einen", "meinem", "meinen", "deinem", "deinen", "ihrem", "seinem", "nach"),
)

OPEN_HOURS = (
    r"(\b(?:\w+tag|Mittwoch|[Tt]äglich|[Uu]m|[Aa]b),?\s(?:von\s)?"
    r"\d\d?(?:[:.]\d\d)?(?:\s?[-–—]\s?\d\d?(?:[:.]\d\d)?)?)"
)
"""Before an "h" that is not how long something takes."""

COUNTED_NOUNS = {
    **dict.fromkeys(("Stock", "Platz", "Rang", "Bezirk", "Akt", "Teil", "Tag"), "r"),
    **dict.fromkeys(("Advent", "Spieltag", "Weltkrieg", "FC"), "r"),
    **dict.fromkeys(("Obergeschoss", "Untergeschoss", "Kapitel", "Jahrhundert", "Mal"), "s"),
    **dict.fromkeys(("Quartal", "Semester"), "s"),
    **dict.fromkeys(("Etage", "Klasse", "Runde", "Stufe", "Auflage", "Liga"), ""),
    **dict.fromkeys(("Bundesliga", "Halbzeit", "Hälfte", "Staffel"), ""),
}
"""Nouns that are counted without an article -> what the ordinal ends in."""


def inflected(ordinal: str, before: str) -> str:
    """ "dritte", with the ending that the word before it asks for."""
    word = before.strip().lower()
    if word in ENDS_IN_E:
        return ordinal
    return f"{ordinal}n" if word in ENDS_IN_EN else f"{ordinal}r"
