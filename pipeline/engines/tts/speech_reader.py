"""Reads the audio that speech servers send, as a stream. Sans-I/O.

Raw PCM is asked for, but some servers send a WAV file in any of its encodings, often without a true
length, or one file per sentence; both are played. Anything else is refused by name: compressed
audio or text would be loud noise. The bytes decide, and the content type only where they cannot.
"""

from __future__ import annotations

import codecs
import io
import math
import re
from dataclasses import dataclass

import numpy as np

from pipeline.audio import EMPTY, Pcm, Resampler

FADE_MS = 5
"""Fade at the end of a piece that does not end in silence; without it there would be a click."""
SILENT = 64
"""A last sample below this (-54 dBFS) makes no click."""
MOST_HEADER_BYTES = 256 * 1024
"""WAV files may begin with tags and padding."""
CUT_WAV_BYTES = 11
"""This much of a stream may be an incomplete ``_WAV``."""
UNKNOWN_BYTES = 0x7FFF_F000
"""Servers that do not know the length write this or more, or 0."""
TEXT_BYTES = 64
"""This many bytes of printable characters are no samples."""
MPEG_FRAMES = 3
"""Frames in a row that tell MPEG audio from samples that look like its mark."""
MOST_MPEG_BYTES = 2048
"""Longest frame of MPEG audio (1,441 bytes at its usual rates), rounded up."""


class NotPlayable(Exception):
    """The answer cannot be played. ``what``: what it is; ``text``: how it begins, if it is text."""

    def __init__(self, what: str, text: bytes = b"") -> None:
        super().__init__(what)
        self.what = what
        self.text = text


@dataclass(frozen=True, slots=True)
class Layout:
    """How samples stand in the bytes, in soundfile's terms."""

    rate: int
    channels: int
    subtype: str
    frame_bytes: int


_BYTES = {"PCM_U8": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8}
_BYTES |= {"ULAW": 1, "ALAW": 1}

_FILES: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("MP3", re.compile(rb"ID3[\x02-\x04][^\xff]")),
    ("Ogg", re.compile(rb"OggS\0[\0-\7]")),
    ("FLAC", re.compile(rb"fLaC[\0\x80]\0\0\x22")),
    ("WebM", re.compile(rb"\x1a\x45\xdf\xa3")),
    ("MP4", re.compile(rb"\0\0..ftyp", re.DOTALL)),
    ("AIFF", re.compile(rb"FORM....AIF[FC]", re.DOTALL)),
    ("big-endian WAV", re.compile(rb"RIFX....WAVE", re.DOTALL)),
    ("AU", re.compile(rb"\.snd\0\0")),
    ("CAF", re.compile(rb"caff\0\x01\0")),
    ("Wave64", re.compile(rb"riff\x2e\x91\xcf\x11")),
)
"""How files begin, by more than four bytes where possible: samples may look like anything."""
_WORDS = re.compile(r"\s*([\[{<\"]|[^\W\d_]+\W)")
"""How JSON, markup and sentences begin."""
_WAV = re.compile(rb"(RIFF|RF64)....WAVE", re.DOTALL)
_TYPES = re.compile(r"text/|application/(json|xml)|.*\b(mpeg|mp3|ogg|opus|webm|flac|aac|mp4|m4a)\b")
"""Content types whose bytes cannot be played, whatever they look like."""
_RATE = re.compile(r";\s*rate=\"?(\d{4,6})\b", re.IGNORECASE)


class SpeechReader:
    """One answer. ``feed`` its bytes, then ``finish``."""

    def __init__(self, rate: int, content_type: str) -> None:
        """``rate``: of the samples that come out, and of raw PCM unless ``content_type`` names
        another."""
        rate_match = _RATE.search(content_type)
        self._rate = rate
        self._raw = Layout(int(rate_match[1]) if rate_match else rate, 1, "PCM_16", 2)
        self._content_type = content_type.partition(";")[0].strip().lower()
        self._buffer = b""
        self._layout: Layout | None = None
        self._files = 0
        """WAV headers read so far."""
        self._bytes_left = math.inf
        """Bytes of samples left in this file."""
        self._resampler = Resampler(rate, rate)
        self._tail = EMPTY
        """The latest samples; they fade if nothing follows."""

    def feed(self, data: bytes, *, last: bool = False) -> Pcm:
        """The samples that ``data`` completes. Raises ``NotPlayable``."""
        self._buffer += data
        pieces = [self._tail]
        while self._layout or self._begin(last):
            assert self._layout
            size = self._sample_bytes(last)
            size -= size % self._layout.frame_bytes
            pieces.append(self._resampler.feed(_mono(self._buffer[:size], self._layout)))
            self._buffer = self._buffer[size:]
            self._bytes_left -= size
            if self._bytes_left >= self._layout.frame_bytes:
                break
            self._buffer = self._buffer[int(self._bytes_left) :]
            pieces.append(self._resampler.flush())
            self._layout = None
        if last and self._layout:
            pieces.append(self._resampler.flush())
        return self._without_tail(np.concatenate(pieces))

    def finish(self) -> Pcm:
        """The last samples; half a sample is dropped. Raises ``NotPlayable``."""
        rest = np.concatenate((self.feed(b"", last=True), self._tail))
        if len(rest) and abs(int(rest[-1])) >= SILENT:
            end = rest[-self._fade_samples :]
            ramp = np.linspace(1.0, 0.0, len(end) + 1)[1:]
            rest = np.concatenate((rest[: -len(end)], (end * ramp).astype(np.int16)))
        return rest

    def _sample_bytes(self, last: bool) -> int:
        """How much of what is held is samples. A file of unknown length ends where another one
        begins."""
        if self._files and self._bytes_left == math.inf:
            if match := _WAV.search(self._buffer):
                self._bytes_left = match.start()
            elif not last:
                return max(0, len(self._buffer) - CUT_WAV_BYTES)
        return int(min(len(self._buffer), self._bytes_left))

    @property
    def _fade_samples(self) -> int:
        return FADE_MS * self._rate // 1000

    def _without_tail(self, pcm: Pcm) -> Pcm:
        count = max(0, len(pcm) - self._fade_samples)
        self._tail = pcm[count:]
        return pcm[:count]

    # -- what it is

    def _begin(self, last: bool) -> bool:
        """Find the layout. False: more bytes are needed, or none are played."""
        match = _WAV.search(self._buffer) if self._files else _WAV.match(self._buffer)
        if match:
            self._buffer = self._buffer[match.start() :]
            return self._begin_wav(last)
        if self._files:  # padding and tags behind the samples
            self._buffer = self._buffer[-CUT_WAV_BYTES:]
            return False
        start = self._buffer
        if not last and len(start) < _needed_bytes(start):
            return False
        if start and (what := _name_of(start) or self._named_by_type()):
            raise NotPlayable(what, start if _is_text(start[:TEXT_BYTES]) else b"")
        return bool(start) and self._settle(self._raw, 0, math.inf)

    def _named_by_type(self) -> str:
        return self._content_type if _TYPES.match(self._content_type) else ""

    def _begin_wav(self, last: bool) -> bool:
        chunk = _chunks(self._buffer)
        if "data" not in chunk:
            if last or len(self._buffer) > MOST_HEADER_BYTES:
                raise NotPlayable("WAV without samples")
            return False
        at, size = chunk["data"]
        start, length = chunk.get("fmt ", (0, 0))
        layout = _layout(self._buffer[start : start + length])
        self._files += 1
        return self._settle(layout, at, size if 0 < size < UNKNOWN_BYTES else math.inf)

    def _settle(self, layout: Layout, at: int, size: float) -> bool:
        self._layout, self._buffer, self._bytes_left = layout, self._buffer[at:], size
        self._resampler = Resampler(layout.rate, self._rate)
        return True


def _chunks(wav: bytes) -> dict[str, tuple[int, int]]:
    """Place and size of the contents of a WAV file's chunks, up to its samples."""
    chunks: dict[str, tuple[int, int]] = {}
    at = 12
    while at + 8 <= len(wav) and "data" not in chunks:
        size = int.from_bytes(wav[at + 4 : at + 8], "little")
        chunks[wav[at : at + 4].decode("latin-1")] = at + 8, size
        at += 8 + size + size % 2
    return chunks


def _layout(form: bytes) -> Layout:
    """The layout that a ``fmt`` chunk describes. Raises ``NotPlayable``."""
    import soundfile

    sizes = (len(form).to_bytes(4, "little"), (0).to_bytes(4, "little"))
    header = b"RIFF\0\0\0\0WAVEfmt " + sizes[0] + form + b"data" + sizes[1]
    try:
        with soundfile.SoundFile(io.BytesIO(header)) as file:
            rate, channels, subtype = file.samplerate, file.channels, file.subtype
    except soundfile.SoundFileError:
        raise NotPlayable("WAV in an unknown encoding") from None
    if subtype not in _BYTES:
        raise NotPlayable(f"WAV in the encoding {subtype}")
    return Layout(rate, channels, subtype, channels * _BYTES[subtype])


def _mono(data: bytes, layout: Layout) -> Pcm:
    if layout.channels == 1 and layout.subtype == "PCM_16":
        return np.frombuffer(data, "<i2").astype(np.int16)
    if not data:
        return EMPTY
    import soundfile

    samples, _ = soundfile.read(
        io.BytesIO(data),
        dtype="float32",
        always_2d=True,
        format="RAW",
        subtype=layout.subtype,
        channels=layout.channels,
        samplerate=layout.rate,
        endian="LITTLE",
    )
    mono = np.nan_to_num(samples.mean(axis=1)) * 32768
    pcm: Pcm = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
    return pcm


# -- what cannot be played


def _needed_bytes(start: bytes) -> int:
    """How many bytes must be there to tell what they are."""
    return MPEG_FRAMES * MOST_MPEG_BYTES if _mpeg_frame_bytes(start) else TEXT_BYTES


def _name_of(start: bytes) -> str:
    """What it is, if it cannot be played."""
    if name := next((name for name, begins in _FILES if begins.match(start)), ""):
        return name
    at = frames = 0
    while frames < MPEG_FRAMES and (frame_bytes := _mpeg_frame_bytes(start[at : at + 6])):
        at, frames = at + frame_bytes, frames + 1
    if frames == MPEG_FRAMES:
        return "AAC" if _is_aac(start) else "MP3"
    return "text" if _is_text(start[:TEXT_BYTES]) else ""


def _is_text(data: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data)  # a character may be cut
    except UnicodeDecodeError:
        return False
    return bool(_WORDS.match(text)) and "".join(text.split()).isprintable()


def _is_aac(start: bytes) -> bool:
    return start[1] & 0xF6 == 0xF0


_KBPS = (
    (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
)
"""Bit rates of MP3 in MPEG-2 and 2.5, and in MPEG-1."""
_MPEG_1_HZ = (44_100, 48_000, 32_000)
_SLOWER = {3: 1, 2: 2, 0: 4}
"""By which factor the sample rates of MPEG-1, 2 and 2.5 are lower, by their codes."""


def _mpeg_frame_bytes(head: bytes) -> int:
    """Length of the frame of MP3 or AAC (ADTS) that begins with ``head``; 0: none does."""
    if len(head) < 6 or head[0] != 0xFF or head[1] < 0xE0:
        return 0
    if _is_aac(head):
        return (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    version, layer, kbps, hz = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version not in _SLOWER or layer != 1 or kbps in (0, 15) or hz == 3:
        return 0
    first = version == 3
    bits = (144 if first else 72) * _KBPS[first][kbps - 1] * 1000
    return bits * _SLOWER[version] // _MPEG_1_HZ[hz] + (head[2] >> 1 & 1)
