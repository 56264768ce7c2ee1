"""config/languages: words by language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.settings.languages import read_lexicons
from pipeline.errors import ConfigError
from pipeline.settings import WORD_LISTS, Filler, SessionSettings, lexicon_of, with_all_commands
from reachy_voice.testing.words import LEXICONS, NOTICES

pytestmark = pytest.mark.quick


def test_seven_languages_have_all_lists() -> None:
    assert [each.language for each in LEXICONS] == ["de", "en", "es", "fr", "it", "nl", "pt"]
    for each in LEXICONS:
        for name in WORD_LISTS:
            words = getattr(each, name)
            assert words
            assert all(word == word.lower() for word in words)


def test_seven_languages_have_the_robots_own_sentences() -> None:
    assert [each.language for each in NOTICES] == [each.language for each in LEXICONS]
    for each in NOTICES:
        sentences = (each.apology, each.exchange_notice, *each.filler_sentences)
        assert len(set(sentences)) == 5
        assert all(text.endswith(".") and len(text) <= 200 for text in sentences)


def test_the_settings_own_sentences_win_in_every_language() -> None:
    settings = SessionSettings(notices=NOTICES, apology="Oops.")
    assert settings.notices_in("de").apology == "Oops."
    assert settings.notices_in("de").exchange_notice.startswith("Einen Moment")
    assert settings.notices_in("pl").language == "pl", "the user wrote it in Polish"
    assert replace(settings, apology=None).notices_in("pl").language == "en"
    assert settings.filler_sentence(0, "xx")
    filled = replace(settings, filler=Filler(after_ms=900))
    assert filled.filler_sentence(3, "de") == "Hm, mal sehen."


def test_a_backchannel_in_the_users_language_is_no_command() -> None:
    for lexicon in LEXICONS:
        found = with_all_commands(LEXICONS, lexicon.language)
        assert set(lexicon.commands) - set(lexicon.backchannels) <= set(found.commands)
        assert not set(found.commands) & set(lexicon.backchannels)
        assert {"warte", "attends", "espera", "aspetta", "wait"} <= set(found.commands)


def test_an_unknown_language_has_none_and_an_unspecified_one_all() -> None:
    assert not lexicon_of(LEXICONS, "fi").commands
    assert {"stop", "warte", "attends"} <= set(lexicon_of(LEXICONS, "").commands)


@pytest.mark.parametrize("text", ["comands: stop\n", "commands: [stop, wait]\n"])
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str) -> None:
    (tmp_path / "xx.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config/languages/xx\.yaml cannot be used") as error:
        read_lexicons(tmp_path)
    assert "is not one of commands, " in error.value.why
