"""Speech for the GPU benchmark: from a folder, from people, or else from a synthesiser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import soundfile
import soxr

from benchmarks.harness.acoustics import to_pcm
from benchmarks.latency.clips import DrySpeech, labelled_recordings, recordings_of_people
from pipeline.audio import LISTEN_RATE, Pcm
from tests.support.tiny_models.parakeet import PHRASES, VOICES, espeak

INDEX = "speech.json"


def recordings(folder: Path | None, *, tiny: bool) -> list[DrySpeech]:
    """All sounds in ``speech.json`` of ``folder`` (a list of ``file`` and ``text``), or its
    labelled turns. Without a folder: sentences of the tiny recogniser, if ``tiny``, or people.

    Raises ``FileNotFoundError``, whose text says what to do.
    """
    if folder:
        index = folder / INDEX
        return _read_index(index) if index.is_file() else list(labelled_recordings(folder))
    if not (tiny and shutil.which("espeak-ng")) and (people := recordings_of_people()):
        return list(people)
    if not shutil.which("espeak-ng"):
        raise FileNotFoundError(
            "There is no speech to measure with: give --speech FOLDER, or install espeak-ng or "
            "pocketsphinx-testdata"
        )
    return [
        DrySpeech(f"{voice}: {text}", voice, espeak(text, voice, 160, 50), text)
        for text in PHRASES
        for voice in VOICES[:4]
    ]


def _read_index(index: Path) -> list[DrySpeech]:
    clips = []
    for row in json.loads(index.read_text(encoding="utf-8")):
        pcm, rate = soundfile.read(index.parent / row["file"], dtype="float32", always_2d=True)
        signal = soxr.resample(pcm[:, 0], rate, LISTEN_RATE)
        clips.append(DrySpeech(row["file"], row["file"], signal, row.get("text", "")))
    return clips


def talk(clips: list[DrySpeech], seconds: float, start: int = 0) -> Pcm:
    """``seconds`` of continuous speech from sample ``start`` on, int16 at 16 kHz."""
    whole = to_pcm(np.concatenate([each.signal for each in clips]))
    return np.resize(np.roll(whole, -start), int(seconds * LISTEN_RATE))
