"""Personas: chosen by name, spoken in style, and never overriding custom instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.cli.config import setting_rows
from app.settings.load import config_dir, load_settings
from app.settings.model import Settings
from app.settings.personas import persona_names, read_persona
from pipeline.errors import ConfigError
from pipeline.spoken.markup import plain

pytestmark = pytest.mark.quick

DIRECTORY = config_dir() / "personas"
NAMES = persona_names(DIRECTORY)
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        path = tmp_path / "my.yaml"
        path.write_text(text)
        return str(path)

    return write


def settings(path: str | None = None, *overrides: str, **environ: str) -> Settings:
    return load_settings(path, overrides, environ).settings


def instructions_of(name: str) -> str:
    return str(read_persona(DIRECTORY, name)["instructions"].value)


def test_personas_are_shipped_and_none_is_the_default() -> None:
    assert 4 <= len(NAMES) <= 8
    assert settings().conversation.persona is None
    assert settings().conversation.instructions.startswith("You are Reachy, a small friendly robot")


@pytest.mark.parametrize("name", NAMES)
def test_a_persona_is_written_for_the_ear(name: str) -> None:
    text = instructions_of(name)
    assert plain(text) == text, "no markup"
    assert not re.search(r"[*#`_|<>\[\]{}\n]", text)
    assert "aloud" in text
    assert "language" in text
    assert 50 <= len(text.split()) <= 110, "a small model follows no page of rules"
    sentences = re.split(r"(?<=[.!?])\s", text)
    assert all(len(sentence.split()) <= 30 for sentence in sentences)
    summary = str(read_persona(DIRECTORY, name)["summary"].value)
    assert 20 <= len(summary) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_a_persona_is_chosen_by_name(name: str, write: Write) -> None:
    mine = write(f"conversation: {{persona: {name}}}")
    assert settings(mine).conversation.instructions == instructions_of(name)
    assert settings(None, f"conversation.persona={name}").conversation.persona == name
    assert name in (config_dir() / "default.yaml").read_text(), "default.yaml lists them"


def test_a_profile_may_have_one(write: Write) -> None:
    mine = write("extends: espeak\nconversation: {persona: helper}")
    assert settings(mine).conversation.instructions == instructions_of("helper")
    named = settings(mine, REACHY_VOICE__CONVERSATION__PERSONA="joker")
    assert named.conversation.instructions == instructions_of("joker")
    assert settings(mine, "conversation.persona=null").conversation == settings().conversation


def test_explicit_instructions_win(write: Write) -> None:
    mine = write("conversation: {persona: joker, instructions: Be mine.}")
    persona, key = "conversation.persona=joker", "REACHY_VOICE__CONVERSATION__INSTRUCTIONS"
    for found in (
        settings(mine),
        settings(None, persona, "conversation.instructions=Be mine."),
        settings(None, persona, **{key: "Be mine."}),
    ):
        assert found.conversation.instructions == "Be mine."
        assert found.conversation.persona == "joker"


def test_check_reports_an_unused_persona(write: Write) -> None:
    mine = write("conversation:\n  instructions: Be mine.\n  persona: joker")
    done = CliRunner().invoke(cli, ["config", "check", mine])
    assert done.exit_code == 0, done.output
    assert re.search(
        r"but: conversation\.persona 'joker' is not used: \S*my\.yaml:2 sets its own instructions",
        done.output,
    )
    used = CliRunner().invoke(cli, ["config", "check", "--set", "conversation.persona=joker"])
    assert used.output == "OK: config/default.yaml\n"
    german = CliRunner().invoke(cli, ["config", "check", "--set", "conversation.language=de"])
    assert german.output.count("but: conversation.") == 2


def test_explain_names_the_file_of_the_persona() -> None:
    rows = {key: (value, at) for key, value, at in setting_rows(load("conversation.persona=joker"))}
    value, origin = rows["conversation.instructions"]
    assert value == instructions_of("joker")
    assert re.fullmatch(r"config/personas/joker\.yaml:\d+", origin)
    usual = {key: at for key, _, at in setting_rows(load())}
    assert usual["conversation.instructions"].startswith("config/default.yaml:")


def load(*overrides: str) -> Any:
    return load_settings(None, overrides, {})


def test_an_unknown_name_lists_the_known_ones(write: Write) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(write("conversation:\n  persona: jokr"))
    error = raised.value
    assert re.search(r"my\.yaml:2: conversation\.persona: there is no persona 'jokr'", error.what)
    assert error.why == f"known are: {', '.join(NAMES)}"
    assert error.fix == "Did you mean 'joker'?"
    with pytest.raises(ConfigError) as raised:
        load("conversation.persona=../secrets")
    assert "conversation.instructions" in raised.value.fix


@pytest.mark.parametrize("value", ["3", "[joker]", "{name: joker}"])
def test_a_persona_is_a_name(value: str) -> None:
    with pytest.raises(ConfigError, match="persona"):
        load(f"conversation.persona={value}")


@pytest.mark.parametrize("text", ["summary: x", "summary: x\ninstructions: [a]\n", "a: b"])
def test_a_broken_persona_is_refused_with_its_requirements(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(ConfigError, match="summary and instructions, as text"):
        read_persona(tmp_path, "odd")


def test_the_command_lists_them() -> None:
    done = CliRunner().invoke(cli, ["config", "personas"])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()] == NAMES


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ("auto", ""),
        ("Auto", ""),
        ("", ""),
        ("de", "de"),
        ("de-AT", "de"),
        ("deu", "de"),
        ("German", "de"),
        ("ast", "ast"),
    ],
)
def test_the_language_is_a_code_a_name_or_detected(given: str, language: str) -> None:
    found = load(f"conversation.language='{given}'").settings.conversation
    assert found.language == language


@pytest.mark.parametrize("given", ["Klingon", "k-on", "autos"])
def test_an_unknown_language_is_an_error(given: str) -> None:
    with pytest.raises(ConfigError, match="must be a language"):
        load(f"conversation.language={given}")
