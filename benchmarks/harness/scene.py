"""A scene: one turn of one speaker, with every pause in it labelled.

This file has everything about the corpus that a scorer needs. ``build`` makes scenes.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile

from pipeline.audio import LISTEN_RATE, Pcm

Part = Literal["tuning", "frozen"]
PauseKind = Literal["word", "clause", "sentence", "filler", "natural"]
SceneKind = Literal[
    "question",
    "command",
    "one-word",
    "list",
    "filler",
    "hesitation",
    "statement",
    "two-sentences",
    "digits",
    "turn",
]
"""``turn``: any turn of a person in labelled recordings."""

INDEX = "scenes.jsonl"


@dataclass(frozen=True)
class ScenePause:
    """A silence inside a turn: 16 kHz samples ``start`` to ``end``, counted from the scene's first.

    ``word``, ``clause``, ``filler``: inserted at such a border; the speaker is not done.
    ``sentence``: between two sentences of one turn. ``natural``: the speaker's own, 150 ms or more.
    """

    start: int
    end: int
    kind: PauseKind

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / LISTEN_RATE


@dataclass(frozen=True, eq=False)
class RecordedTurn:
    """One turn, with room tone around it and in its pauses."""

    id: str
    part: Part
    source: str
    """``synthetic:...`` or ``real:...``."""
    speaker: str
    """Unique across all sources."""
    kind: SceneKind
    text: str
    asked: str
    """The assistant's question before it, mostly empty."""
    snr_db: float | None
    """Of the added noise, over the speech-active parts; ``None``: only room tone."""
    rt60_s: float | None
    """Of the synthetic room; ``None``: no room."""
    pcm: Pcm
    """int16 mono, shape ``(n,)``, 16 kHz."""
    onset: int
    """Its first speech sample."""
    end: int
    """The sample after its last speech sample. Before ``onset`` and from here on, the dry speech is
    40 dB or more below its loud parts; a room's tail comes after."""
    pauses: tuple[ScenePause, ...]
    """In order, all between ``onset`` and ``end``."""
    text_by: str = "source"
    """Where the words come from: ``source``, or ``moonshine`` if the recording has no
    transcript."""
    stretched: bool = False
    """The syllable before a pause was drawn out."""

    @property
    def real(self) -> bool:
        return self.source.startswith("real:")

    @property
    def seconds(self) -> float:
        return len(self.pcm) / LISTEN_RATE

    def __post_init__(self) -> None:
        """Raises ``ValueError`` if the labels are impossible."""
        borders = [0, self.onset]
        for pause in self.pauses:
            borders += [pause.start, pause.end]
        borders += [self.end, len(self.pcm)]
        if any(later <= earlier for earlier, later in itertools.pairwise(borders)):
            raise ValueError(f"scene {self.id}: labels out of order: {borders}")
        if self.pcm.dtype != np.int16 or self.pcm.ndim != 1:
            raise ValueError(f"scene {self.id}: not int16 mono")


def save(scenes: Iterable[RecordedTurn], directory: Path) -> int:
    """Write ``scenes.jsonl`` and one ``ID.flac`` each; returns the number of scenes.

    The index is written last and atomically, so a directory with an index is complete.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for scene in scenes:
        soundfile.write(directory / f"{scene.id}.flac", scene.pcm, LISTEN_RATE, subtype="PCM_16")
        lines.append(json.dumps(_fields(scene), ensure_ascii=False, sort_keys=True))
    unfinished = directory / f"{INDEX}.part"
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(unfinished, directory / INDEX)
    return len(lines)


def load(directory: Path) -> Iterator[RecordedTurn]:
    """The scenes of ``directory``, in the order they were built, one at a time.

    Raises ``FileNotFoundError`` if it holds no corpus.
    """
    index = directory / INDEX
    if not index.is_file():
        raise FileNotFoundError(
            f"There is no corpus in {directory}: {INDEX} is absent. "
            "Run: python -m benchmarks.turns.build --out DIRECTORY"
        )
    for line in index.read_text(encoding="utf-8").splitlines():
        fields: dict[str, Any] = json.loads(line)
        pauses = tuple(ScenePause(**pause) for pause in fields.pop("pauses"))
        pcm, rate = soundfile.read(directory / f"{fields['id']}.flac", dtype="int16")
        if rate != LISTEN_RATE:
            raise ValueError(f"scene {fields['id']}: {rate} Hz instead of {LISTEN_RATE}")
        yield RecordedTurn(**fields, pcm=pcm, pauses=pauses)


def load_people(directory: Path) -> Iterator[RecordedTurn]:
    """The scenes of real speakers without noise or room. Raises the same errors as ``load``."""
    for scene in load(directory):
        if scene.real and scene.snr_db is None and scene.rt60_s is None:
            yield scene


def _fields(scene: RecordedTurn) -> dict[str, Any]:
    fields = {name: value for name, value in vars(scene).items() if name != "pcm"}
    return {**fields, "pauses": [asdict(pause) for pause in scene.pauses]}
