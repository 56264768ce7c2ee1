"""Recordings of every kind become mono int16; other files are refused with advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from hardware.wav import read_recording, require_writable, speech_end, write_recording
from pipeline.errors import AudioFormatError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("rate", "gains", "subtype"),
    [
        (48_000, (1, 1), "PCM_16"),
        (48_000, (1, -1), "PCM_16"),  # a microphone wired the wrong way round
        (8_000, (1,), "PCM_U8"),
        (44_100, (1,), "FLOAT"),
        (16_000, (1,) * 6, "PCM_24"),
    ],
)
def test_any_recording_becomes_mono_at_the_rate(
    tmp_path: Path, rate: int, gains: tuple[int, ...], subtype: str
) -> None:
    path = tmp_path / "tone.wav"
    samples = np.sin(2 * np.pi * 440 * np.arange(rate) / rate) * 0.5
    soundfile.write(path, np.outer(samples, gains), rate, subtype=subtype)
    pcm = read_recording(path, 24_000)
    assert pcm.dtype == np.int16
    assert len(pcm) == pytest.approx(24_000, abs=2)
    spectrum = np.abs(np.fft.rfft(pcm.astype(float)))
    assert spectrum.argmax() * 24_000 / len(pcm) == pytest.approx(440, abs=1)
    assert np.abs(pcm[1000:-1000]).max() == pytest.approx(16384, rel=0.03)


def test_files_that_are_not_recordings_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wav"
    soundfile.write(empty, np.zeros(0, np.int16), 16_000)
    silent = tmp_path / "silent.wav"
    soundfile.write(silent, np.zeros(16_000, np.int16), 16_000)
    text = tmp_path / "text.wav"
    text.write_text("This is not a sound.")
    nothing = tmp_path / "nothing.wav"
    nothing.write_bytes(b"")
    samples = tmp_path / "samples.raw"
    samples.write_bytes(bytes(320))
    for path, what in [
        (empty, "has no audio in it"),
        (silent, "is silent"),
        (text, "is not a recording that can be read"),
        (nothing, "is not a recording that can be read"),
        (samples, "is not a recording that can be read"),
        (tmp_path / "absent.wav", "There is no recording"),
        (tmp_path, "There is no recording"),
    ]:
        with pytest.raises(AudioFormatError, match=what) as caught:
            read_recording(path, 16_000)
        assert caught.value.fix
    mine = tmp_path / "mine.raw"
    soundfile.write(mine, np.full(160, 9, np.int16), 16_000, format="FLAC")
    assert len(read_recording(mine, 16_000)) == 160, "its name does not matter"


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "PCM_U8"])
@pytest.mark.parametrize("riff", [0, 36, 0xFFFFFFFF])
def test_samples_without_a_length_are_heard(tmp_path: Path, subtype: str, riff: int) -> None:
    path = tmp_path / "killed.wav"
    soundfile.write(path, np.full(1600, 0.25), 16_000, subtype=subtype)
    whole, data = read_recording(path, 16_000), path.read_bytes()
    at = data.index(b"data") + 4
    path.write_bytes(data[:4] + riff.to_bytes(4, "little") + data[8:at] + bytes(4) + data[at + 4 :])
    assert np.array_equal(read_recording(path, 16_000), whole)
    for rest in (b"", b"LIST\x04\0\0\0INFO"):
        path.write_bytes(data[:at] + bytes(4) + rest)
        with pytest.raises(AudioFormatError, match="has no audio in it"):
            read_recording(path, 16_000)


def test_writing_round_trips_and_a_bad_place_is_refused(tmp_path: Path) -> None:
    pcm = np.arange(-500, 500, dtype=np.int16)
    write_recording(tmp_path / "a.wav", pcm, 24_000)
    assert np.abs(read_recording(tmp_path / "a.wav", 24_000) - pcm).max() <= 1
    for path in (tmp_path / "no" / "folder.wav", tmp_path / "a.unknown"):
        with pytest.raises(AudioFormatError, match="cannot be written"):
            write_recording(path, pcm, 24_000)


def test_the_end_of_speech_is_where_the_loud_part_ends() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 10, 24_000 * 3).astype(np.int16)
    noise[12_000:36_000] += (9000 * np.sin(np.arange(24_000) / 10)).astype(np.int16)
    assert speech_end(noise, 24_000) == pytest.approx(36_000, abs=600)
    assert speech_end(np.zeros(100, np.int16), 24_000) == 100


@pytest.mark.parametrize("name", ["answer.mp3", "answer", "nowhere/answer.wav"])
def test_an_unwritable_path_is_noticed_early(tmp_path: Path, name: str) -> None:
    with pytest.raises(AudioFormatError, match="cannot be written") as error:
        require_writable(tmp_path / name)
    assert error.value.why
    require_writable(tmp_path / "answer.wav")
    assert not (tmp_path / "answer.wav").exists()
