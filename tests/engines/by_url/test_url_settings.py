"""Engines by URL in the settings: one line chooses them, mistakes are reported, keys are hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.settings.check import SettingsError
from app.settings.load import load_settings
from pipeline.engines.registry import Kind, UrlEngineSpec, engine_spec

pytestmark = pytest.mark.quick

URL = "http://10.0.0.5:8080/v1"
KEY = "sk-1234567890"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.LLM, "openai-chat"),
        (Kind.STT, "openai-transcriptions"),
        (Kind.TTS, "openai-speech"),
    ],
)
def test_one_line_of_yaml_chooses_an_engine(kind: Kind, name: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{kind}: {{engine: {name}, url: {URL}/, model: qwen3}}\n")
    settings = load_settings(str(file), environ={}).settings
    options = settings.engine(kind)
    assert (options.engine, options.url, options.model) == (name, URL, "qwen3")  # type: ignore[attr-defined]
    assert options.max_requests == 8  # type: ignore[attr-defined]
    assert isinstance(engine_spec(kind, name), UrlEngineSpec)
    assert getattr(options, "weights", None) is None


def test_a_removed_engine_is_read_as_its_successor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = "{engine: openai-responses, url: http://far/v1, extra: {reasoning: {effort: low}}}"
    llm: Any = load_settings(None, [f"llm={given}"], {}).settings.llm
    assert (llm.engine, llm.extra) == ("openai-chat", {"reasoning": {"effort": "low"}})
    assert "openai-responses is now openai-chat; extra is sent to it as it is" in caplog.text


def test_the_shipped_profile_is_valid_and_needs_little() -> None:
    settings = load_settings("remote", environ={}).settings
    assert settings.weights() == ["silero-vad", "smart-turn-v3.2", "smollm2-135m-instruct"]
    unjudged = load_settings("remote", ["llm.word_judge=null"], {}).settings
    assert unjudged.weights() == ["silero-vad", "smart-turn-v3.2"]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("llm.url=10.0.0.5:8080", "llm.url: must be an address such as http://192.168.1.5:8080/v1"),
        ("llm.url=http://me:pw@host/v1", "must not contain a name or password; use api_key"),
        ("llm.run_in=thread", "run_in is for engines on this machine"),
        ("llm.max_requests=0", "llm.max_requests: input should be greater than or equal to 1"),
        ("llm.modle=x", "did you mean llm.model?"),
        ("tts.voices=[]", "tts.voices"),
        ("llm.api_key=sk-ä", "llm.api_key: must be ASCII"),
        ("llm.api_key=a\0b", "llm.api_key: must be ASCII"),
    ],
)
def test_mistakes_are_reported(setting: str, problem: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used") as wrong:
        load_settings("remote", [setting], {})
    assert problem in wrong.value.why


def test_a_section_without_a_url_says_so() -> None:
    with pytest.raises(SettingsError) as wrong:
        load_settings(None, ["llm.engine=openai-chat"], {})
    assert "llm.url" in wrong.value.why


def test_a_key_comes_from_the_environment_and_is_never_shown() -> None:
    environ = {"REACHY_VOICE__LLM__API_KEY": f"{KEY}\r\n"}
    options = load_settings("remote", environ=environ).settings.llm
    assert options.headers == {"Authorization": f"Bearer {KEY}"}  # type: ignore[attr-defined]
    assert KEY not in repr(options)
    shown = CliRunner().invoke(cli, ["config", "explain", "remote", "--json"], env=environ)
    assert shown.exit_code == 0
    assert KEY not in shown.output
    assert json.loads(shown.output)["llm.api_key"]["value"] == "**********"


def test_an_invalid_key_is_not_shown() -> None:
    with pytest.raises(SettingsError) as wrong:
        load_settings("remote", [f"llm.api_key=[{KEY}]"], {})
    assert "llm.api_key" in wrong.value.why
    assert KEY not in str(wrong.value)
