"""Reads the audio that speech servers send, as a stream. Sans-I/O.

We ask for raw PCM, but some servers send a WAV file in any of its encodings, often without a true
length, or with that of the first piece, or one file per sentence; all are played. Anything else is
refused by name, as compressed audio or text would be loud noise. The bytes decide; only for raw
samples does the content type give the rate, channels and encoding.
"""

from __future__ import annotations

import codecs
import io
import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import EMPTY, Pcm, Resampler

FADE_MS = 5
"""Fade where the sound ends, or where a file does not continue the level of the last one, which
would click."""
STEP = 1500
STEEPER = 2
"""A step from one file to the next is a click if it exceeds ``STEP``, and is this many times any
step in the last ``FADE_MS``."""
SILENT = 64
"""Ending on a sample below this (-54 dBFS) makes no click."""
MOST_HEADER_BYTES = 256 * 1024
"""WAV files may begin with tags and padding."""
CUT_WAV_BYTES = 11
"""An incomplete ``_WAV`` at the end of the buffer has at most this many bytes."""
LEAST_HZ, MOST_HZ = 4_000, 384_000
"""Other rates are mistakes; at 1 Hz, one second of sound would become hours."""
UNKNOWN_BYTES = 0x7FFF_F000
"""Servers that do not know the length write at least this, or 0."""
TEXT_BYTES = 64
"""This many bytes of printable characters cannot be samples."""
MPEG_FRAMES = 3
"""Frames in a row that prove MPEG audio; one header may be samples by chance."""
MOST_MPEG_BYTES = 2048
"""Longest frame of MPEG audio (1,441 bytes at its usual rates), rounded up."""


class NotPlayable(Exception):
    """The answer cannot be played."""

    def __init__(self, what: str, text: bytes = b"") -> None:
        super().__init__(what)
        self.what = what
        """The answer's kind."""
        self.text = text
        """The answer's beginning, if it is text."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the bytes encode samples, in soundfile's terms."""

    rate: int
    channels: int
    subtype: str
    endian: Literal["LITTLE", "BIG"] | None = "LITTLE"
    """``None`` if unknown."""

    @property
    def frame_bytes(self) -> int:
        return self.channels * _BYTES[self.subtype]


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
"""How files begin, by more than four bytes where possible, as samples may look like anything."""
_WORDS = re.compile(r"\s*([\[{<\"]|[^\W\d_]+\W)")
"""How JSON, markup and sentences begin."""
_WAV = re.compile(rb"(RIFF|RF64)....WAVE", re.DOTALL)
_CHUNK = re.compile(rb"\0?([ -~]{4}..[\0-\x7f]\0|RIFF|RF64|TAG|ID3)", re.DOTALL)
"""How a file or tags begin, behind samples: letters and a size below 8 MiB, padded or not."""
_TYPES = re.compile(
    r"text/|application/(json|xml)|.*(\b|_)(mpeg|mp3|ogg|opus|webm|flac|aac|mp4|m4a|vorbis|speex|amr|gsm"
    r"|g72\d|\w*adpcm|u(int)?_?(16|24|32)|f(loat)?_?16)(\b|_|[lb]e\b)"
)
"""Content types that cannot be played, whatever the bytes look like."""
_IS = r"\s*=\s*(?:\(int\))?[\"']?"
_RATE = re.compile(
    rf"(?:(?<!bit)(?<!bit[-_])rate(?:[-_]?h(?:ert)?z)?{_IS}|(?:pcm|law)_)(\d{{4,6}})\b"
)
_CHANNELS = re.compile(rf"channel[\w-]*{_IS}([1-8])\b")
_LAW = re.compile(r"(?<![a-z])(?:(basic|pcmu|(?:mu|[uµ])[-_]?law)|pcma|a[-_]?law)(?![a-z])")
_FLOAT = re.compile(r"float|double|\bf(32|64)|_f(32|64)")
_BITS = re.compile(r"(?<![\d-])(8|24|32|64)(?![\dk])")
_NETWORK_ORDER = re.compile(r"\bl(16|24)\b")
"""Big-endian by RFC 2586 and 3190; many servers that say so send little-endian samples."""
_BIG_ENDIAN = re.compile(r"\d_?be\b|=\"?big\b|big-?endian(?!=\"?false)")
ORDER_BYTES = 512
"""This much sound is enough to tell its byte order."""


class SpeechReader:
    """One answer. ``feed`` its bytes, then ``finish``."""

    def __init__(self, rate: int, content_type: str) -> None:
        """``rate``: of the output, and of raw PCM unless ``content_type`` names another."""
        self._rate = rate
        self._content_type = content_type.strip().lower()
        self._raw = _raw_layout(self._content_type, rate)
        self._buffer = b""
        self._layout: Layout | None = None
        self._files = 0
        """WAV headers read so far."""
        self._form = self._raw
        """The layout of the last one."""
        self._tags = False
        """Whether no more samples come before the next one."""
        self._bytes_left = math.inf
        """Bytes of samples left in this file."""
        self._resampler = Resampler(rate, rate)
        self._sound = EMPTY
        """Output so far; the last ``FADE_MS`` are held back, to be faded if nothing follows."""
        self._latest = EMPTY
        """The last ``FADE_MS`` before resampling."""
        self._next_file = False
        """Whether the next sample is the first one of another file."""
        self._bridge: NDArray[np.float64] = np.zeros(0)
        """Added to the next samples, so that they continue where the last file ended."""

    def feed(self, data: bytes, *, last: bool = False) -> Pcm:
        """The samples that ``data`` completes. Raises ``NotPlayable``."""
        self._buffer += data
        while self._layout or self._begin(last):
            assert self._layout
            size = self._sample_bytes(last)
            size -= size % self._layout.frame_bytes
            self._play(_mono(self._buffer[:size], self._layout))
            self._buffer = self._buffer[size:]
            self._bytes_left -= size
            if self._bytes_left >= self._layout.frame_bytes:
                break
            self._layout, self._next_file = None, True
        ready = max(0, len(self._sound) - _fade_samples(self._rate))
        sound, self._sound = self._sound[:ready], self._sound[ready:]
        return sound

    def finish(self) -> Pcm:
        """The last samples; an incomplete one is dropped. Raises ``NotPlayable``."""
        return np.concatenate((self.feed(b"", last=True), self.rest()))

    def rest(self) -> Pcm:
        """The samples held back, faded out; also for an answer that broke off."""
        rest = np.concatenate((self._sound, self._resampler.flush()))
        self._sound = EMPTY
        if len(rest) and abs(int(rest[-1])) >= SILENT:
            end = rest[-_fade_samples(self._rate) :]
            ramp = np.linspace(1.0, 0.0, len(end) + 1)[1:]
            rest = np.concatenate((rest[: -len(end)], (end * ramp).astype(np.int16)))
        return rest

    def _play(self, pcm: Pcm) -> None:
        """Add samples at the rate of their file to the output."""
        if not len(pcm):
            return
        fade = _fade_samples(self._resampler.from_rate)
        if self._next_file:
            self._bridge = _bridge(self._latest, int(pcm[0]), fade)
            self._next_file = False
        if count := min(len(pcm), len(self._bridge)):
            begin = np.clip(np.rint(pcm[:count] + self._bridge[:count]), -32768, 32767)
            pcm = np.concatenate((begin.astype(np.int16), pcm[count:]))
            self._bridge = self._bridge[count:]
        self._latest = np.concatenate((self._latest, pcm))[-fade:]
        self._sound = np.concatenate((self._sound, self._resampler.feed(pcm)))

    def _sample_bytes(self, last: bool) -> int:
        """How many bytes of the buffer are samples of this file. It ends where another one begins,
        whatever its header says."""
        known = len(self._buffer)
        if self._files:
            if match := _WAV.search(self._buffer):
                self._bytes_left = min(self._bytes_left, match.start())
            elif not last:
                known = max(0, known - CUT_WAV_BYTES)
        return int(min(known, self._bytes_left))

    # -- what it is

    def _begin(self, last: bool) -> bool:
        """Find the layout. False if more bytes are needed, or there is nothing to play."""
        if self._files and not self._tags:
            counted = int(self._bytes_left)  # of a sample that the header cuts
            if len(self._buffer) <= counted + CUT_WAV_BYTES:
                return False
            if not _CHUNK.match(self._buffer, counted):  # the header has counted a part of them
                return self._settle(self._form, 0, math.inf)
            self._tags = True
        match = _WAV.search(self._buffer) if self._files else _WAV.match(self._buffer)
        if match:
            self._buffer = self._buffer[match.start() :]
            return self._begin_wav(last)
        if self._files:  # padding and tags after the samples
            self._buffer = self._buffer[-CUT_WAV_BYTES:]
            return False
        start = self._buffer
        if not last and len(start) < _needed_bytes(start):
            return False
        if start and (what := _name_of(start) or self._named_by_type()):
            raise NotPlayable(what, start if _is_text(start[:TEXT_BYTES]) else b"")
        if self._raw.endian is None:
            if not last and len(start.lstrip(b"\0")) < ORDER_BYTES:
                return False
            self._raw = _in_order(start, self._raw)
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
        self._form = _layout(self._buffer[start : start + length])
        self._files, self._tags = self._files + 1, False
        return self._settle(self._form, at, size if 0 < size < UNKNOWN_BYTES else math.inf)

    def _settle(self, layout: Layout, at: int, size: float) -> bool:
        if not LEAST_HZ <= layout.rate <= MOST_HZ:
            raise NotPlayable(f"sound at {layout.rate} Hz")
        before_rate = self._resampler.from_rate
        if layout.rate != before_rate:
            if len(self._latest):  # fade to silence, then from silence into the next file
                self._play(np.zeros(_fade_samples(before_rate), np.int16))
                self._next_file = True
            self._sound = np.concatenate((self._sound, self._resampler.flush()))
            self._resampler = Resampler(layout.rate, self._rate)
        self._layout, self._buffer, self._bytes_left = layout, self._buffer[at:], size
        return True


def _fade_samples(rate: int) -> int:
    return FADE_MS * rate // 1000


def _chunks(wav: bytes) -> dict[str, tuple[int, int]]:
    """Offset and size of the contents of a WAV file's chunks, up to its samples."""
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
    return Layout(rate, channels, subtype)


def _raw_layout(content_type: str, rate: int) -> Layout:
    """The layout of raw samples that a content type, in lower case, describes: by RFC 2046, 3551 or
    4856, or by parameters such as ``encoding=float32``. Default: 16-bit mono at ``rate``."""
    rates, channels = _RATE.search(content_type), _CHANNELS.search(content_type)
    encoding = _CHANNELS.sub("", content_type)
    bits = match[1] if (match := _BITS.search(encoding)) else ""
    if law := _LAW.search(encoding):
        subtype, rate = "ULAW" if law[1] else "ALAW", 8_000
    elif _FLOAT.search(encoding):
        subtype = "DOUBLE" if bits == "64" or "double" in encoding else "FLOAT"
    else:
        subtype = {"8": "PCM_U8", "24": "PCM_24", "32": "PCM_32"}.get(bits, "PCM_16")
    order: Literal["LITTLE", "BIG"] | None = "BIG" if _BIG_ENDIAN.search(encoding) else "LITTLE"
    return Layout(
        int(rates[1]) if rates else rate,
        int(channels[1]) if channels else 1,
        subtype,
        None if _NETWORK_ORDER.search(encoding) else order,
    )


def _in_order(data: bytes, layout: Layout) -> Layout:
    """``layout`` with the byte order that gives the smoother sound."""
    data = data[: len(data) - len(data) % layout.frame_bytes]
    both = replace(layout, endian="BIG"), replace(layout, endian="LITTLE")
    return min(both, key=lambda each: _roughness(_mono(data, each)))


def _roughness(pcm: Pcm) -> float:
    levels = pcm.astype(int)
    return float(np.abs(np.diff(levels)).sum() / (1 + np.abs(levels).sum()))


def _bridge(end: Pcm, begin: int, count: int) -> NDArray[np.float64]:
    """What to add to ``count`` samples so that they continue from ``end``; empty if they do not
    click."""
    steps = np.abs(np.diff(end.astype(int)))
    step = int(end[-1]) - begin if len(end) else 0
    if abs(step) <= max(STEP, STEEPER * int(steps.max(initial=0))):
        return np.zeros(0)
    return step * np.linspace(1.0, 0.0, count, endpoint=False)


def _mono(data: bytes, layout: Layout) -> Pcm:
    if (layout.channels, layout.subtype, layout.endian) == (1, "PCM_16", "LITTLE"):
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
        endian=layout.endian,
    )
    mono = np.nan_to_num(samples.mean(axis=1)) * 32768
    pcm: Pcm = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
    return pcm


# -- what cannot be played


def _needed_bytes(start: bytes) -> int:
    """How many bytes it takes to tell what they are."""
    return MPEG_FRAMES * MOST_MPEG_BYTES if _mpeg_frame_bytes(start) else TEXT_BYTES


def _name_of(start: bytes) -> str:
    """The kind of data, if it cannot be played; else empty."""
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
"""MPEG version code -> by which factor its sample rates are below those of MPEG-1."""


def _mpeg_frame_bytes(head: bytes) -> int:
    """Length of the MP3 or AAC (ADTS) frame that begins with ``head``; 0 if none does."""
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
