"""What speech servers send in place of raw PCM, and how it is split."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import soundfile

from pipeline.audio import EMPTY, Pcm
from pipeline.engines.tts.speech_reader import NotPlayable, SpeechReader

pytestmark = pytest.mark.quick

RATE = 24_000
SPEECH: Pcm = (8000 * np.sin(np.arange(3000) / 17) * np.hanning(3000)).astype(np.int16)
RAW = SPEECH.tobytes()
RNG = np.random.default_rng(1)


def read(content: bytes, kind: str = "audio/pcm", size: int = 4801) -> Pcm:
    """Read ``content`` in pieces of ``size`` while there may be headers, then of an odd size."""
    reader, later = SpeechReader(RATE, kind), max(size, 997)
    ends = [*range(size, 5000, size), *range(max(size, 5000), len(content) + later, later)]
    pieces = [reader.feed(content[begin:end]) for begin, end in pairwise([0, *ends])]
    return np.concatenate((EMPTY, *pieces, reader.finish()))


def wav(form: bytes, samples: bytes, size: int | None = None, before: bytes = b"") -> bytes:
    """``size``: the data length in the header; ``None``: the true one."""
    length = len(samples) if size is None else size
    head = b"RIFF\xff\xff\xff\xffWAVE" + before + b"fmt " + struct.pack("<I", len(form)) + form
    return head + b"data" + struct.pack("<I", length) + samples


def form(tag: int, channels: int, rate: int, bits: int, more: bytes = b"") -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits) + more


def encoded(
    subtype: str,
    rate: int = RATE,
    channels: int = 1,
    format: str = "WAV",
    speech: Pcm = SPEECH,
) -> bytes:
    """``speech`` as a file by soundfile, labelled with ``rate``."""
    file = io.BytesIO()
    samples = np.repeat(speech[:, None] / 32768, channels, axis=1)
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


MONO = form(1, 1, RATE, 16)
JUNK = b"JUNK" + struct.pack("<I", 28) + bytes(28)
TAGS = b"LIST" + struct.pack("<I", 400) + bytes(range(200)) * 2
EXTENSIBLE = struct.pack("<HHIH", 22, 32, 4, 3) + bytes.fromhex("000000001000800000aa00389b71")
FLOATS = (SPEECH / np.float32(32768)).astype("<f4").tobytes()


@pytest.mark.parametrize("size", [1, 7, 4801, 1_000_000])
@pytest.mark.parametrize(
    "content",
    [
        wav(MONO, RAW),
        wav(MONO, RAW, size=0),
        wav(MONO, RAW, size=0xFFFFFFFF),
        wav(MONO, RAW, size=0x7FFFF000),
        wav(MONO, RAW, before=b"JUNK" + struct.pack("<I", 3000) + bytes(3000)),
        wav(MONO, RAW) + TAGS,
        wav(MONO, RAW[:2000]) + RAW[2000:],
        wav(MONO, RAW[:1999]) + RAW[1999:],
        wav(MONO, RAW[:2000]) + RAW[2000:4000] + wav(MONO, RAW[4000:]) + TAGS,
        wav(MONO, RAW[:2000]) + TAGS + wav(MONO, RAW[2000:4000]) + RAW[4000:],
        wav(form(3, 1, RATE, 32), FLOATS[:400]) + FLOATS[400:],
        wav(MONO, RAW) + b"TAG" + b"song".ljust(125),
        wav(MONO, RAW[:2000]) + TAGS + wav(MONO, RAW[2000:]) + TAGS,
        wav(MONO, RAW[:2000], size=0) + wav(MONO, RAW[2000:], size=0, before=JUNK),
        wav(MONO, RAW[:2000] + b"\0") + wav(MONO, RAW[2000:]),
        encoded("PCM_24", speech=SPEECH[:1501]) + encoded("PCM_24", speech=SPEECH[1501:]),
        encoded("PCM_16", speech=SPEECH[:9], format="RF64") + encoded("FLOAT", speech=SPEECH[9:]),
        wav(MONO, RAW[:2000]) + wav(MONO, RAW[2000:]),
        wav(MONO, RAW[:2000], size=0) + wav(MONO, RAW[2000:], size=0),
        wav(form(3, 1, RATE, 32), FLOATS[:999], size=0xFFFFFFFF)
        + wav(MONO, RAW[498:], size=1 << 31),
        wav(MONO, RAW[:2000], size=10**9) + wav(MONO, RAW[2000:], size=10**9),
        wav(form(3, 1, RATE, 32), FLOATS),
        wav(form(0xFFFE, 1, RATE, 32, EXTENSIBLE), FLOATS, size=0),
        encoded("PCM_24"),
        encoded("PCM_32", channels=2),
        encoded("DOUBLE", channels=6),
        encoded("PCM_16", format="WAVEX"),
        encoded("PCM_16", format="RF64"),
    ],
)
def test_wav_formats_are_decoded(content: bytes, size: int) -> None:
    assert np.abs(read(content, "audio/wav", size).astype(int) - SPEECH).max() <= 1


@pytest.mark.parametrize(
    ("subtype", "rate", "channels"),
    [("PCM_16", 22_050, 2), ("PCM_16", 44_100, 1), ("FLOAT", 16_000, 1), ("ULAW", 8_000, 1)],
)
def test_wav_is_resampled(subtype: str, rate: int, channels: int) -> None:
    heard = read(encoded(subtype, rate, channels))
    assert len(heard) == pytest.approx(len(SPEECH) * RATE / rate, abs=2)
    assert np.abs(heard).max() == pytest.approx(8000, rel=0.05)


BIG = SPEECH.astype(">i2").tobytes()
STEREO = np.repeat(SPEECH, 2).tobytes()
QUIET: Pcm = np.concatenate((np.zeros(4000, np.int16), SPEECH))


def raw(subtype: str, endian: str = "LITTLE", speech: Pcm = SPEECH) -> bytes:
    file = io.BytesIO()
    samples = speech / 32768
    soundfile.write(file, samples, RATE, format="RAW", subtype=subtype, endian=endian)
    return file.getvalue()


@pytest.mark.parametrize("size", [7, 4801])
@pytest.mark.parametrize(
    ("content", "kind", "rate"),
    [
        (RAW, "audio/pcm; rate=12000; channels=1", 12_000),
        (RAW, 'audio/pcm;sample-rate="48000";bits=16', 48_000),
        (RAW, "audio/pcm;bitrate=384000", RATE),
        (RAW, "audio/pcm; rate= '12000'", 12_000),
        (RAW, "audio/l16;sampleRateHertz=12000;endian=little", 12_000),
        (STEREO, "audio/x-raw, format=(string)S16LE, rate=(int)48000, channels=(int)2", 48_000),
        (STEREO, "audio/pcm;rate=24000;channels=2", RATE),
        (np.repeat(QUIET, 2).astype(">i2").tobytes(), "audio/L16; channels=2;rate=24000", RATE),
        (BIG, "audio/L16;rate=24000", RATE),
        (RAW, "audio/L16;codec=pcm;rate=24000", RATE),
        (QUIET.tobytes(), "audio/x-l16;rate=24000", RATE),
        (QUIET.astype(">i2").tobytes(), "audio/L16;rate=24000", RATE),
        (raw("PCM_24", "BIG"), "audio/L24;rate=24000", RATE),
        (BIG, "audio/pcm;format=s16be", RATE),
        (BIG, "audio/lpcm;sample-rate=24000;sample-size-bits=16;is-big-endian=true", RATE),
        (RAW, "audio/lpcm;sample-rate=24000;sample-size-bits=16;is-big-endian=false", RATE),
        (FLOATS, "audio/pcm;encoding=float32", RATE),
        (FLOATS, "audio/x-raw;format=F32LE;rate=24000", RATE),
        (raw("FLOAT", "BIG"), "audio/pcm_f32be", RATE),
        (raw("DOUBLE"), "audio/pcm;encoding=float;bits=64", RATE),
        (raw("PCM_24"), "audio/pcm;bit_depth=24", RATE),
        (raw("PCM_32"), "audio/pcm;encoding=pcm_s32le", RATE),
        (raw("PCM_U8"), "audio/L8;rate=24000", RATE),
        (raw("ULAW"), "audio/basic", 8_000),
        (raw("ULAW"), "audio/PCMU;rate=12000", 12_000),
        (raw("ULAW"), "audio/x-mulaw", 8_000),
        (raw("ULAW"), "audio/pcm;encoding=mu-law;rate=24000", RATE),
        (raw("ULAW"), "audio/pcm;format=ulaw_12000", 12_000),
        (raw("ALAW"), "audio/PCMA", 8_000),
        (raw("ALAW"), "audio/x-alaw-basic", 8_000),
        (raw("ALAW"), "audio/pcm;encoding=pcm_alaw;rate=24000", RATE),
        (RAW, "audio/pcm;format=pcm_48000", 48_000),
    ],
)
def test_raw_samples_follow_the_content_type(
    content: bytes, kind: str, rate: int, size: int
) -> None:
    silence = len(QUIET) - len(SPEECH) if content[:512] == bytes(512) else 0
    heard = read(content, kind, size)[silence * RATE // rate :]
    assert len(heard) == pytest.approx(len(SPEECH) * RATE / rate, abs=2)
    known = heard[:: RATE // rate] if rate < RATE else heard
    played = SPEECH[:: max(1, rate // RATE)]
    assert np.abs(known[: len(played)].astype(int) - played[: len(known)]).max() < 300


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/wav", "application/octet-stream", ""])
@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"RIFF",
        b"ID3\xff",
        b"OggS",
        b"fLaC",
        b"\xff\xfb\x90\x64",
        b"\xff\xf1\x50\x80",
        b"{}",
        b"<h",
    ],
)
def test_raw_pcm_may_begin_with_any_bytes(begin: bytes, kind: str) -> None:
    content = begin + RNG.integers(-9000, 9000, 6000).astype("<i2").tobytes() + bytes(400)
    assert read(content, kind).tobytes() == content


def test_samples_that_look_like_letters_are_played() -> None:
    assert len(read(b"12" * 2400)) == 2400


def adts(length: int) -> bytes:
    head = bytes(
        (0xFF, 0xF1, 0x50, 0x80 | length >> 11, length >> 3 & 0xFF, (length & 7) << 5, 0xFC)
    )
    return head + RNG.bytes(length - len(head))


@pytest.mark.parametrize(
    ("content", "kind", "what"),
    [
        (encoded("MPEG_LAYER_III", format="MP3"), "audio/pcm", "MP3"),
        (b"ID3\x04\0\0\0\0\0\0" + bytes(2000), "", "MP3"),
        (b"".join(map(adts, (371, 280, 402, 333))), "audio/wav", "AAC"),
        (encoded("VORBIS", format="OGG"), "application/octet-stream", "Ogg"),
        (encoded("PCM_16", format="FLAC"), "audio/pcm", "FLAC"),
        (encoded("PCM_16", format="AIFF"), "audio/pcm", "AIFF"),
        (encoded("PCM_16", format="AU"), "audio/pcm", "AU"),
        (encoded("PCM_16", format="CAF"), "audio/wav", "CAF"),
        (encoded("PCM_16", format="W64"), "audio/wav", "Wave64"),
        (b"RIFX" + wav(MONO, RAW)[4:], "audio/wav", "big-endian WAV"),
        (encoded("IMA_ADPCM"), "audio/wav", "WAV in the encoding IMA_ADPCM"),
        (wav(form(0x55, 1, RATE, 0), RAW), "audio/wav", "WAV in an unknown encoding"),
        (wav(MONO, b"")[:30], "audio/wav", "WAV without samples"),
        (wav(form(1, 1, 1, 16), RAW), "audio/wav", "sound at 1 Hz"),
        (RAW, "audio/pcm;rate=0000", "sound at 0 Hz"),
        (RAW, "audio/pcm;rate=999999", "sound at 999999 Hz"),
        (RAW, "audio/mpeg", "audio/mpeg"),
        (RAW, "audio/pcm;codec=opus", "audio/pcm;codec=opus"),
        (RAW, "audio/pcm;encoding=pcm_u16le", "audio/pcm;encoding=pcm_u16le"),
        (RAW, "audio/x-raw;format=float16", "audio/x-raw;format=float16"),
        (RAW, "audio/G722", "audio/g722"),
        (b'{"error": {"message": "' + "höre ".encode() * 20, "audio/pcm", "text"),
        (b"<!DOCTYPE html>\r\n<html>", "audio/wav", "text"),
        (b'\xef\xbb\xbf{"error": 1}', "audio/pcm", "text"),
        (b"Internal Server Error", "application/octet-stream", "text"),
    ],
)
def test_anything_else_is_refused_by_name(content: bytes, kind: str, what: str) -> None:
    for size in (5, 4801):
        with pytest.raises(NotPlayable) as wrong:
            read(content, kind, size)
        assert wrong.value.what == what


@pytest.mark.parametrize(
    "end", [[32767, -32768, 32767], [12_000], [-20_000] * 2000], ids=["ends", "steps", "level"]
)
def test_a_piece_that_ends_loud_ends_without_a_click(end: Sequence[int]) -> None:
    loud = np.concatenate((SPEECH, np.array(end, "<i2")))
    heard = read(loud.tobytes())
    assert len(heard) == len(loud)
    assert abs(int(heard[-1])) < 64
    assert np.abs(np.diff(heard[-150:].astype(int))).max() < 1500


LOUD: Pcm = np.full(2000, 32767, np.int16)


@pytest.mark.parametrize("size", [7, 4801])
@pytest.mark.parametrize("length", [None, 0])
@pytest.mark.parametrize("rates", [(RATE, RATE), (RATE, 12_000), (12_000, RATE)])
@pytest.mark.parametrize(
    ("ends", "begins"), [(LOUD, SPEECH), (LOUD, -LOUD), (SPEECH, LOUD), (SPEECH[:700], -LOUD)]
)
def test_no_click_comes_between_two_files(
    ends: Pcm, begins: Pcm, rates: tuple[int, int], length: int | None, size: int
) -> None:
    first, second = (form(1, 1, rate, 16) for rate in rates)
    files = wav(first, ends.tobytes(), size=length), wav(second, begins.tobytes(), size=length)
    heard = read(b"".join(files), "audio/wav", size)
    assert len(heard) == pytest.approx(
        len(ends) * RATE / rates[0] + len(begins) * RATE / rates[1], abs=125
    )
    assert np.abs(np.diff(heard.astype(int))[10:-150]).max() < 1600


def test_a_piece_that_ends_softly_is_left_alone() -> None:
    assert read(RAW).tobytes() == RAW
    assert len(read(b"")) == 0
    assert len(read(b"\0")) == 0
