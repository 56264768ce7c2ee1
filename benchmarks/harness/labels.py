"""Recordings of people whose pauses are labelled, and their turns as scenes.

A folder of labels has sound files and ``labels.json``: a list of pauses with ``recording`` (or
``dialogue`` and ``channel``), ``label`` (``end``, or a label beginning with ``hold``),
``turn_start_s``, ``turn_ms`` (the turn so far), ``speech_end_s`` and ``gap_ms`` (the silence
after it). A dialogue may have its words in ``DIALOGUE.words.json``: ``speaker`` (A is channel 0),
``word``, ``start`` in seconds. The recordings' licences do not allow them in this repository.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import soundfile
import soxr

from benchmarks.harness.acoustics import to_pcm
from benchmarks.harness.scene import RecordedTurn, ScenePause
from pipeline.audio import LISTEN_RATE, Pcm

INDEX = "labels.json"
_LEAD_S = 0.5
"""How much of the recording is played before a turn."""
_NEXT_TURN_S = 0.1
"""Margin before the speaker's next turn, because its label may be late."""
_SPEAKERS = "AB"


@dataclass(frozen=True, slots=True)
class Label:
    """One pause, with the fields of the file."""

    recording: str
    channel: int
    end: bool
    turn_start_s: float
    turn_ms: float
    speech_end_s: float
    gap_ms: float

    @property
    def speaker(self) -> str:
        """Each channel of a recording counts as a separate speaker."""
        return f"{self.recording}/{self.channel}"


def sources(folder: Path) -> list[Path]:
    """``folder`` and its subfolders that have labels. Raises ``FileNotFoundError`` if none has."""
    folders = sorted(path.parent for path in (*folder.glob(INDEX), *folder.glob(f"*/{INDEX}")))
    if not folders:
        raise FileNotFoundError(
            f"{folder} has neither {INDEX} (labelled recordings of people) nor folders with one. "
            "What it must hold: benchmarks/turns/README.md"
        )
    return folders


def labels(source: Path) -> Iterator[Label]:
    """All labels by recording, channel and time. A pause in which the recording ends is an end,
    whatever its label. Raises ``FileNotFoundError``, naming a missing recording."""
    rows: list[dict[str, Any]] = json.loads((source / INDEX).read_text(encoding="utf-8"))
    for each in sorted(rows, key=lambda each: (_name(each), _channel(each), each["speech_end_s"])):
        lasts_s = len(sound(source, _name(each), _channel(each))) / LISTEN_RATE
        to_the_end = each["speech_end_s"] + each["gap_ms"] / 1000 > lasts_s - _NEXT_TURN_S
        yield Label(
            _name(each),
            _channel(each),
            each["label"] == "end" or to_the_end,
            float(each["turn_start_s"]),
            float(each["turn_ms"]),
            float(each["speech_end_s"]),
            float(each["gap_ms"]),
        )


def turns(source: Path) -> Iterator[RecordedTurn]:
    """Each turn with a labelled end. Its holds become ``natural`` pauses; the silence after it is
    the recording's own."""
    by_turn = itertools.groupby(labels(source), lambda each: (each.speaker, each.turn_start_s))
    for number, (_, pauses) in enumerate(by_turn):
        *holds, last = pauses
        if last.end and not any(each.end for each in holds):
            yield _scene(source, number, holds, last)


def sound(source: Path, recording: str, channel: int = 0) -> Pcm:
    """One channel of a recording, 16 kHz int16. Raises ``FileNotFoundError``."""
    files = sorted(path for path in source.glob(f"{recording}.*") if path.suffix != ".json")
    if not files:
        raise FileNotFoundError(f"{source / recording} is missing: {INDEX} names it")
    return read_sound(files[0], channel)


@cache
def read_sound(path: Path, channel: int = 0) -> Pcm:
    """One channel of a sound file, 16 kHz int16; the last one if it has fewer."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    at_16k = soxr.resample(samples[:, min(channel, samples.shape[1] - 1)], rate, LISTEN_RATE)
    return to_pcm(at_16k)


def _scene(source: Path, number: int, holds: list[Label], last: Label) -> RecordedTurn:
    whole = sound(source, last.recording, last.channel)
    first = [*holds, last][0]
    spoken_s = first.speech_end_s - first.turn_ms / 1000
    begin = max(0, _samples(spoken_s - _LEAD_S))
    silent_s = _resumes_s(last) - _NEXT_TURN_S
    return RecordedTurn(
        id=f"{source.name}-{number:03d}",
        part="frozen",
        source=f"real:{source.name}",
        speaker=last.speaker,
        kind="turn",
        text="",
        asked=_question(source, last),
        snr_db=None,
        rt60_s=None,
        pcm=whole[begin : _samples(silent_s)],
        onset=max(1, _samples(spoken_s) - begin),
        end=_samples(last.speech_end_s) - begin,
        pauses=tuple(
            ScenePause(
                _samples(hold.speech_end_s) - begin,
                _samples(_resumes_s(hold)) - begin,
                "natural",
            )
            for hold in holds
        ),
    )


def _resumes_s(label: Label) -> float:
    """When this speaker goes on, or the recording ends."""
    return label.speech_end_s + label.gap_ms / 1000


def _question(source: Path, label: Label) -> str:
    """What the other speaker said just before the turn, without punctuation; empty if unknown."""
    file = source / f"{label.recording}.words.json"
    if not file.is_file():
        return ""
    words: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    before = [word for word in words if word["start"] < label.turn_start_s]
    latest = sorted(before, key=lambda word: -word["start"])
    own = _SPEAKERS[label.channel]
    # Word times are rough: the first words of the turn itself may be among them.
    earlier = itertools.dropwhile(lambda word: word["speaker"] == own, latest)
    others = itertools.takewhile(lambda word: word["speaker"] != own, earlier)
    return " ".join([word["word"] for word in others][::-1])


def _name(label: dict[str, Any]) -> str:
    return str(label.get("recording") or label["dialogue"])


def _channel(label: dict[str, Any]) -> int:
    return int(label.get("channel", 0))


def _samples(seconds: float) -> int:
    return round(seconds * LISTEN_RATE)
