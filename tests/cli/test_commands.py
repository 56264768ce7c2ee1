"""The verbs ``config``, ``models`` and ``doctor`` as a shell calls them, and their page in docs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.command_line import cli
from app.models.catalogue import Catalogue
from app.root import ROOT
from app.settings.load import load_settings
from pipeline.errors import ConfigError, WeightsError

pytestmark = pytest.mark.machine

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in its own folder, with its own cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REACHY_VOICE__SERVER__PORT", "0")
    return lambda *words: CliRunner().invoke(cli, words)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def failure(result: Result, kind: type[Exception]) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


# --- config ------------------------------------------------------------------------------------


def test_config_check(run: Run) -> None:
    Path("my.yaml").write_text("extends: espeak\nserver: {max_sessions: 2}")
    (line,) = lines(run("config", "check", "my.yaml"))
    assert line == "OK: config/default.yaml < config/profiles/espeak.yaml < my.yaml"

    Path("my.yaml").write_text("server: {max_session: 2}")
    said = failure(run("config", "check", "my.yaml"), ConfigError)
    assert "my.yaml:1: server.max_session is not a known key" in said
    assert "did you mean server.max_sessions?" in said


def test_config_explain_names_every_value_and_its_origin(run: Run) -> None:
    Path("my.yaml").write_text("turn:\n  engine: silence")
    printed = lines(run("config", "explain", "my.yaml", "--set", "server.drain_s=1"))
    origins = {line.split(":")[0]: line.rpartition("# ")[2] for line in printed}
    assert origins["turn.engine"] == "my.yaml:2"
    assert origins["turn.probability"] == "default of silence"
    assert origins["server.drain_s"] == "--set server.drain_s"
    assert origins["server.port"] == "environment REACHY_VOICE__SERVER__PORT"
    assert origins["server.host"].startswith("config/default.yaml:")


def test_config_explain_as_json(run: Run) -> None:
    table = json.loads(run("config", "explain", "--json").output)
    line = int(table["playback.lead_ms"]["origin"].removeprefix("config/default.yaml:"))
    default = load_settings().files[0].read_text().splitlines()
    assert default[line - 1].strip() == "lead_ms: 250"
    assert table["playback.lead_ms"]["value"] == 250
    assert table["conversation.sampling.seed"]["value"] is None


def test_config_schema(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(run("config", "schema", "--check")) == ["config/schema.json is up to date"]
    stale = tmp_path / "schema.json"
    monkeypatch.setattr("app.settings.schema.schema_path", lambda: stale)
    assert "out of date" in failure(run("config", "schema", "--check"), ConfigError)
    assert not stale.exists()
    assert lines(run("config", "schema")) == ["schema.json written"]
    assert lines(run("config", "schema", "--check")) == ["schema.json is up to date"]


# --- models ------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """Options that add a custom entry ``mine`` whose file does not exist yet."""
    text = "mine: {kind: vad, summary: s, licence: l, file: mine, files: [{path: m.onnx, size: 2}]}"
    (tmp_path / "mine.yaml").write_text(text)
    return ["--set", f"paths.catalogue={tmp_path / 'mine.yaml'}", "--set", "vad.weights=mine"]


def test_models_list(run: Run, own: list[str]) -> None:
    rows = {row["name"]: row for row in json.loads(run("models", "list", "--json", *own).output)}
    assert rows.keys() == Catalogue.load().entries.keys() | {"mine"}
    assert (rows["mine"]["used"], rows["mine"]["state"]) == (True, "absent")
    assert rows["silero-vad"]["used"] is False
    assert rows["piper-joe"]["size_bytes"] == 63_206_088
    table = [line.split() for line in lines(run("models", "list"))]
    assert ["*", "smollm2-135m-instruct", "llm", "absent", "98.4", "MB"] in [r[:6] for r in table]


def test_models_pull_verify_rm(run: Run, own: list[str], tmp_path: Path) -> None:
    said = failure(run("models", "pull", "mine", "--offline", *own), WeightsError)
    assert "expects your own files" in said
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "m.onnx").write_bytes(b"xx")
    assert "Nothing to do: 1 of 1 here" in run("models", "pull", "mine", *own).output
    assert "mine: OK" in lines(run("models", "verify", *own))

    (tmp_path / "mine" / "m.onnx").write_bytes(b"x")
    result = run("models", "verify", "mine", *own)
    assert "mine: m.onnx: it has 1 bytes, expected 2" in result.output
    assert "models pull mine" in failure(result, WeightsError)
    assert "Delete them yourself" in failure(run("models", "rm", "mine", *own), WeightsError)
    assert lines(run("models", "rm", "silero-vad")) == ["0.0 MB freed"]


def test_models_verify_without_any_names_those_in_use(run: Run) -> None:
    result = run("models", "verify")
    assert "piper-joe: not here" in result.output
    assert "models pull silero-vad" in failure(result, WeightsError)


def test_models_pull_fetches_what_the_settings_need(run: Run) -> None:
    options = ["--set", "turn.engine=silence", "--set", "llm.weights=gone", "--offline"]
    assert "no weights called 'gone'" in failure(run("models", "pull", *options), WeightsError)


def test_models_pull_offline_by_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACHY_VOICE_OFFLINE", "1")
    said = failure(run("models", "pull", "piper-joe"), WeightsError)
    assert "downloads are switched off" in said
    assert "models pull piper-joe" in said


# --- doctor ------------------------------------------------------------------------------------


def test_doctor_prints_each_finding_with_its_fix(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 1, "no weights here"
    assert "-> Run: reachy-voice models pull" in result.output
    assert "Python" in result.output


def test_doctor_as_json(run: Run) -> None:
    checks = json.loads(run("doctor", "--json", "--set", "server.prot=1").output)
    states = {check["name"]: check["state"] for check in checks}
    assert states["settings"] == "fail"
    assert states["Python"] == "ok"


def test_the_page_of_commands_is_written_only_if_asked_for() -> None:
    written = (ROOT / "docs/commands.md").stat().st_mtime_ns
    command = [sys.executable, str(ROOT / "script/commands_page.py"), "--chek"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert (ROOT / "docs/commands.md").stat().st_mtime_ns == written
