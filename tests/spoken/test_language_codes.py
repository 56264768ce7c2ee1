"""Languages as clients write them."""

from __future__ import annotations

import pytest

from pipeline.spoken.language_codes import asks_to_detect, language_code

pytestmark = pytest.mark.quick

WRITTEN = {
    "en": ("en", "EN", "en-US", "EN-us", "en_GB", "en_US.UTF-8", "eng", "English", " english "),
    "de": ("de", "deu", "ger", "German", "Deutsch", "de-AT-1996"),
    "zh": ("zh-CN", "zh-Hant-TW", "zho", "chi", "cmn", "Chinese (Simplified)", "简体中文"),
    "pt": ("pt_BR", "por", "Brazilian Portuguese", "PORTUGUÊS"),
    "es": ("Latin American Spanish", "Español"),
    "sr": ("Serbian (Latin)",),
    "vi": ("Tiếng Việt",),
    "fr": ("fr-CA", "fran\u00e7ais", "franc\u0327ais", "\uff26\uff32"),
    "no": ("no", "nb-NO", "nob", "Norwegian"),
    "he": ("iw", "he-IL"),
    "el": ("gre", "ell", "Greek"),
    "yue": ("yue-HK", "Cantonese"),
    "": ("", " ", "-", "xx", "xx-XX", "klingon", "tlh", "e", "in the end", "english " * 40, "🙂"),
}


@pytest.mark.parametrize(
    ("code", "written"), [(code, each) for code, names in WRITTEN.items() for each in names]
)
def test_what_clients_write_becomes_a_code(code: str, written: str) -> None:
    assert language_code(written) == code
    assert not asks_to_detect(written)


@pytest.mark.parametrize("written", ["auto", "AUTO", " auto ", "auto-detect", "autodetect", "und"])
def test_some_words_ask_to_detect_the_language(written: str) -> None:
    assert asks_to_detect(written)
    assert language_code(written) == ""
