"""config/languages: words by language."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings.languages import read_lexicons
from pipeline.errors import ConfigError
from pipeline.settings import WORD_LISTS, lexicon_of
from tests.support.lexicons import LEXICONS


def test_seven_languages_have_all_lists() -> None:
    assert [each.language for each in LEXICONS] == ["de", "en", "es", "fr", "it", "nl", "pt"]
    for each in LEXICONS:
        for name in WORD_LISTS:
            words = getattr(each, name)
            assert words
            assert all(word == word.lower() for word in words)


def test_an_unknown_language_has_none_and_an_unspecified_one_all() -> None:
    assert not lexicon_of(LEXICONS, "fi").commands
    assert {"stop", "warte", "attends"} <= set(lexicon_of(LEXICONS, "").commands)


@pytest.mark.parametrize("text", ["comands: stop\n", "commands: [stop, wait]\n"])
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str) -> None:
    (tmp_path / "xx.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config/languages/xx\.yaml cannot be used") as error:
        read_lexicons(tmp_path)
    assert "is not one of commands, " in error.value.why
