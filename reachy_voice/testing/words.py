"""The shipped words of each language, for sessions built without the app."""

from __future__ import annotations

from dataclasses import replace

from app.root import ROOT
from app.settings.languages import read_lexicons, read_notices
from pipeline.settings import SessionSettings, lexicon_of

LEXICONS = read_lexicons(ROOT / "config" / "languages")
NOTICES = read_notices(ROOT / "config" / "languages")
ENGLISH = lexicon_of(LEXICONS, "en")


def with_words(settings: SessionSettings | None) -> SessionSettings:
    """``settings``, or the defaults, with the shipped words."""
    return replace(settings or SessionSettings(), lexicons=LEXICONS)
