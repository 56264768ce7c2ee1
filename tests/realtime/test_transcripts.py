"""Whole connections against golden transcripts (``transcripts/*.jsonl``), one for each turn type.

Files that begin with ``transcription`` are sessions that only transcribe.

To re-record them after an intended change (for a new one, first write its client lines and, if
needed, a scene below):

    RECORD_TRANSCRIPTS=1 script/test tests/realtime/test_transcripts.py

and read the difference in git before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engines.contract import ToolCall
from reachy_voice.testing import Cast, ScriptedLlm, ScriptedStt, run_virtual
from tests.support.protocol_client import DEFAULTS
from tests.support.transcript_player import DIRECTORY, Line, play, read, write

pytestmark = pytest.mark.quick

RECORD = "RECORD_TRANSCRIPTS"

WEATHER = ToolCall("get_weather", '{"city": "Paris"}')

CASTS: dict[str, Callable[[], Cast]] = {
    "function": lambda: Cast(llm=ScriptedLlm(answers=[(WEATHER,), ("It ", "is ", "sunny.")])),
    "speech_and_call": lambda: Cast(llm=ScriptedLlm(answers=[("One ", "moment. ", WEATHER)])),
    "two_calls": lambda: Cast(llm=ScriptedLlm(answers=[(WEATHER, WEATHER)])),
    "noise": lambda: Cast(stt=ScriptedStt(texts=("",))),
}
"""Scenes whose engines do more than greet."""

PATHS = sorted(DIRECTORY.glob("*.jsonl"))


def played(path: Path, script: list[Line]) -> list[Line]:
    cast = CASTS.get(path.stem, Cast)()
    defaults = replace(DEFAULTS, transcription=path.stem.startswith("transcription"))
    lines: list[Line] = run_virtual(play(script, cast, defaults))
    return lines


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_transcript(path: Path) -> None:
    golden = read(path)
    lines = played(path, golden)
    if RECORD in os.environ:
        write(path, lines)
    else:
        assert lines == golden


def test_every_scene_has_its_transcript() -> None:
    assert CASTS.keys() <= {path.stem for path in PATHS}
