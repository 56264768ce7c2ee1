"""Recordings in place of a microphone, and files in place of a loudspeaker."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soxr

from pipeline.audio import EMPTY, Pcm, from_float
from pipeline.errors import AudioFormatError

_FIX = "Give a WAV, FLAC, OGG or MP3 recording of 1 to 768 kHz; any width and channels will do"
_BLOCK = 65_536
RATES = range(1_000, 768_001)
"""Hz. At a lower rate, a file of a few KB would become hundreds of MB at once."""
_NO_LENGTH = re.compile(rb"RIFF.{4}WAVE.{,4096}?data(\0{4})(?!LIST|id3 |$)", re.DOTALL)
"""A WAV file whose recorder was killed, or wrote to a pipe: the samples have no length."""


def read_recording(path: Path, rate: int) -> Pcm:
    """The whole recording as mono int16 at ``rate`` Hz: the mean of its channels, of which those of
    opposite polarity are turned round.

    Raises ``AudioFormatError`` if the file is missing, empty, silent, or not a sound file.
    """
    if not path.is_file():
        raise AudioFormatError(f"There is no recording {path}", fix="Check the path")
    try:
        data = path.read_bytes()
    except OSError as error:
        why = error.strerror or ""
        raise AudioFormatError(
            f"{path} cannot be read", why=why, fix="Check who owns it"
        ) from error
    pcm = np.concatenate((EMPTY, *decoded(data, rate, str(path))))
    if not pcm.any():
        fix = "Record it with a microphone that is not muted"
        raise AudioFormatError(f"{path} is silent", why="all of its samples are 0", fix=fix)
    return pcm


def decoded(data: bytes, rate: int, name: str, most_s: float = math.inf) -> Iterator[Pcm]:
    """Like ``read_recording``, but from a file's content and piece by piece; ``name`` is for
    errors. Audio longer than ``most_s`` is refused before it takes memory: a small file may hold
    days of silence."""
    import soundfile

    if match := _NO_LENGTH.match(data):
        data = data[: match.start(1)] + b"\xff" * 4 + data[match.end(1) :]
    samples = 0
    try:
        # Do not pass the name: soundfile does not examine the content of a *.raw.
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.samplerate not in RATES:
                raise ValueError(f"its rate is {file.samplerate} Hz")
            resampler = soxr.ResampleStream(file.samplerate, rate, 1)
            mixer = _Mixer()
            while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
                if not np.isfinite(block).all():
                    raise ValueError("it has samples that are no numbers")
                samples += len(block)
                if samples > most_s * file.samplerate:
                    why = f"it is longer than {most_s / 60:g} minutes"
                    raise AudioFormatError(f"{name} is too long", why=why, fix="Cut it")
                yield from_float(resampler.resample_chunk(mixer.mix(block)))
            yield from_float(resampler.resample_chunk(block[:, 0], last=True))
    except (soundfile.LibsndfileError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else error.error_string.rstrip(".")
        what = f"{name} is not a recording that can be read"
        raise AudioFormatError(what, why=why, fix=_FIX) from error
    if not samples:
        raise AudioFormatError(f"{name} has no audio in it", why="it is 0 samples long", fix=_FIX)


class _Mixer:
    """Averages channels. One that has the opposite polarity of the loudest is turned round, because
    they would cancel; the loudest block so far tells which."""

    def __init__(self) -> None:
        self._loudest = 0.0
        self._signs = np.ones(1, np.float32)

    def mix(self, channels: np.ndarray) -> np.ndarray:
        """``channels``: float32, shape ``(samples, channels)``."""
        exact = channels.astype(np.float64)
        products = exact.T @ exact
        powers = products.diagonal()
        first = int(powers.argmax())
        if powers[first] > self._loudest:
            self._loudest = powers[first]
            opposite = products[first] < -0.5 * np.sqrt(powers * powers[first])
            self._signs = np.where(opposite, -1, 1).astype(np.float32)
        mono: np.ndarray = (channels * self._signs).mean(axis=1)
        return mono


def write_recording(path: Path, pcm: Pcm, rate: int) -> None:
    """Write mono 16-bit audio; the extension of ``path`` names the format.

    Raises ``AudioFormatError`` when the file cannot be written.
    """
    import soundfile

    try:
        soundfile.write(path, pcm, rate, subtype="PCM_16")
    except (soundfile.LibsndfileError, TypeError, ValueError, OSError) as error:
        raise AudioFormatError(
            f"{path} cannot be written", why=str(error), fix="Give a .wav path in a folder you own"
        ) from error


def require_writable(path: Path) -> None:
    """Check a path before there is audio to write. Raises ``AudioFormatError``."""
    import soundfile

    kind = path.suffix.removeprefix(".").upper()
    if not soundfile.check_format(kind or "?", "PCM_16"):
        why = f"{path.suffix or 'no ending'} is not a format for 16-bit audio"
    elif not os.access(path.parent, os.W_OK):
        why = f"the folder {path.parent} does not exist, or you may not write to it"
    else:
        return
    raise AudioFormatError(
        f"{path} cannot be written", why=why, fix="Give a .wav path in a folder you own"
    )


SPEECH_BELOW_PEAK_DB = 25.0
SPEECH_ABOVE_NOISE_DB = 8.0


def speech_end(pcm: Pcm, rate: int) -> int:
    """Index after the last speech sample, from which latencies are measured.

    Independent of our VAD: the last 10 ms whose power, smoothed over 50 ms, is within 25 dB of the
    loudest and 8 dB above the quietest tenth. On recordings of people it lies 0 to 130 ms before
    the VAD's own end, so latencies are not flattered.
    """
    size = rate // 100
    windows = pcm[: len(pcm) // size * size].reshape(-1, size).astype(np.float64)
    if not len(windows):
        return len(pcm)
    power = np.convolve((windows**2).mean(axis=1) + 1.0, np.ones(5) / 5, "same")
    db = 10 * np.log10(power)
    floor = max(db.max() - SPEECH_BELOW_PEAK_DB, np.percentile(db, 10) + SPEECH_ABOVE_NOISE_DB)
    loud = np.flatnonzero(db >= floor)
    return (int(loud[-1]) + 1) * size if len(loud) else len(pcm)
