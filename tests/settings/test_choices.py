"""Changing weights with one line, and its effect on other settings."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.compose import Assistant
from app.doctor.choices import choice_warnings, language_warnings
from app.models.catalogue import Catalogue
from app.settings.load import config_dir, load_settings, profile_names
from pipeline.engines.llm.llama_files import model_path
from pipeline.engines.llm.llama_options import LlamaCppOptions

pytestmark = pytest.mark.quick

CATALOGUE = Catalogue.load()
QWEN3 = "qwen3-4b-instruct-2507"
PAGE = (config_dir().parent / "docs/languages.md").read_text()


def warnings_of(profile: str | None, *overrides: str) -> list[str]:
    return list(choice_warnings(load_settings(profile, overrides, {}).settings, CATALOGUE))


def llm(profile: str | None, *overrides: str) -> LlamaCppOptions:
    options = load_settings(profile, overrides, {}).settings.llm
    assert isinstance(options, LlamaCppOptions)
    return options


def test_one_line_swaps_the_model_of_the_workstation(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"extends: reachy\nllm: {{weights: {QWEN3}}}\n")
    for file in CATALOGUE[QWEN3].files:
        (tmp_path / file.local_name).touch()
    options = llm(str(mine))
    assert model_path(options, tmp_path).name == "Qwen3-4B-Instruct-2507-Q4_K_M.gguf"
    assert (options.model_file, options.mmproj) == (None, None)
    assert options.context_tokens == 65536, "the rest stays"
    assert warnings_of(str(mine)) == []


def test_files_set_with_the_weights_are_kept() -> None:
    options = llm("reachy", "llm.weights=null", "llm.model_file=/own.gguf")
    assert (options.weights, options.model_file, options.mmproj) == (None, "/own.gguf", None)
    assert llm("reachy", "llm.gpu_layers=0").mmproj is not None
    assert llm("reachy", "llm.weights=gemma-4-e4b-it").mmproj is not None, "the same ones"
    assert llm("reachy", "llm={weights: qwen3-1.7b, mmproj: /eyes.gguf}").mmproj == "/eyes.gguf"


@pytest.mark.parametrize("name", profile_names())
def test_sessions_get_the_words_of_every_recogniser(name: str) -> None:
    for overrides, words in (([], ("Reachy",)), (["stt.words=[Anna, ' Zoë ']"], ("Anna", "Zoë"))):
        settings = load_settings(name, overrides, {}).settings
        parts = {"_lexicons": (), "_notices": (), "_rule": None}
        assistant: Any = SimpleNamespace(settings=settings, **parts)
        assert Assistant.session_settings(assistant).words == words


def test_adapters_are_for_the_tiny_model_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("llm: {adapters: [{path: mine.gguf, scale: 0.5}]}\n")
    (own,) = llm(str(mine)).adapters
    assert (own.path, own.scale) == (tmp_path / "mine.gguf", 0.5), "beside the file that names it"
    mine.write_text(f"llm: {{weights: {QWEN3}}}\n")
    assert llm(str(mine)).adapters == ()
    assert llm("default", "llm.adapters=[]").adapters == ()


def test_examples_are_for_the_tiny_model_alone() -> None:
    for name in ("cpu-plus", "apple", "reachy", "reachy-8gb"):
        assert llm(name).examples == ()
    assert llm("default", "llm.weights=null", "llm.model_file=/own.gguf").examples == ()
    assert llm("cpu-plus", "llm.examples=[[One?, Two.]]").examples == (("One?", "Two."),)


@pytest.mark.parametrize("name", profile_names())
def test_the_profiles_need_no_warning(name: str) -> None:
    assert warnings_of(name) == []


def test_a_file_that_the_weights_do_not_have(tmp_path: Path) -> None:
    (warning,) = warnings_of("reachy", "llm.model_file=gemma.gguf")
    assert warning.startswith("llm.model_file is 'gemma.gguf', which gemma-4-e4b-it does not have")
    assert "gemma-4-E4B-it-Q4_0.gguf" in warning
    (eyes,) = warnings_of("reachy", f"llm={{weights: {QWEN3}, mmproj: eyes.gguf}}")
    assert "llm.mmproj" in eyes
    (tmp_path / "eyes.gguf").touch()
    assert warnings_of("reachy", f"llm.mmproj={tmp_path}/eyes.gguf") == []


@pytest.mark.parametrize(
    "text", ["model_file: /no.gguf", "mmproj: ./no.gguf", "adapters: [{path: no.gguf}]"]
)
def test_a_file_that_is_not_there_is_named(text: str) -> None:
    (warning,) = warnings_of("default", f"llm={{{text}}}")
    assert warning.startswith(f"llm.{text.partition(':')[0]}: there is no file /")


def test_the_small_voice_takes_no_instructions() -> None:
    checked = CliRunner().invoke(
        cli, ["config", "check", "--config", "reachy", "--set", "tts.instruct=warm"]
    )
    assert checked.exit_code == 0
    assert "but: tts.instruct has no effect with qwen3-tts-0.6b-customvoice" in checked.output
    larger = "tts.weights=qwen3-tts-1.7b-customvoice"
    assert larger.replace("=", ": ") in checked.output
    assert warnings_of("reachy", "tts.instruct=warm", larger) == []


def test_the_german_example_of_the_docs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(# German.*?)```", PAGE, re.DOTALL)
    mine = tmp_path / "german.yaml"
    mine.write_text(example)
    assert yaml.safe_load(example)["conversation"]["language"] == "de"
    settings = load_settings(str(mine), environ={}).settings
    assert language_warnings(settings, CATALOGUE) == []
    assert warnings_of(str(mine)) == []
    assert (settings.stt.engine, settings.tts.engine) == ("whisper", "espeak-ng")
    assert "apt install espeak-ng" in PAGE
