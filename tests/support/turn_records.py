"""Turn records of scripted scenes."""

from __future__ import annotations

from pipeline.telemetry.turn_recorder import TurnRecorder
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import Scene


def records_of(played: Scene) -> list[TurnRecord]:
    """The turn records of all published events, folded anew."""
    recorder = TurnRecorder()
    seen = [(at, e) for at, e in played.log if not isinstance(e, TurnRecord)]
    told = [each for at, event in seen for each in recorder.feed(at, event)]
    told += recorder.close(seen[-1][0])
    return [each for each in told if isinstance(each, TurnRecord)]
