"""``--record`` where it cannot be used; ``test_cli.py`` records a question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from app.settings.load import load_settings
from tests.support.commands import run_flat

pytestmark = pytest.mark.engines


def test_a_bad_recording_folder_fails_before_engines_load(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    for name in load_settings(None).settings.weights():
        weights(name)
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Reachy")
    code, printed = run_flat(capsys, "serve", "--record", str(letter))
    assert code == 7
    assert "Cannot record into" in printed
    assert "Warming" not in printed


def test_a_remote_server_is_not_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tone = tmp_path / "tone.wav"
    soundfile.write(tone, [0.0, 0.5] * 800, 16_000)
    url = "ws://127.0.0.1:9/v1/realtime"
    code, printed = run_flat(
        capsys, "ask", str(tone), "--url", url, "--record", str(tmp_path / "r")
    )
    assert code == 2
    assert "cannot be used with --url" in printed
    assert not (tmp_path / "r").exists()
