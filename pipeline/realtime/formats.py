"""Audio formats: the API's names <-> ``AudioFormat``, samples <-> bytes."""

from __future__ import annotations

from typing import Any

from pipeline.audio import AudioFormat, Encoding, Pcm, pcm_from_bytes, pcm_to_bytes
from pipeline.realtime import g711
from pipeline.realtime.session_schema import FormatFields
from pipeline.realtime.wire import invalid_audio

NATIVE_RATE = 16_000
"""Hz. What ``rate: null`` means: the robot's sound board, which the Reachy Mini app never
resamples for."""

_ENCODINGS: dict[str, Encoding] = {
    "audio/pcm": "pcm",
    "audio/pcmu": "pcmu",
    "audio/pcma": "pcma",
}


def shown_format(format: AudioFormat) -> dict[str, Any]:
    """As the API writes it: G.711 has no ``rate``."""
    kind = f"audio/{format.encoding}"
    return {"type": kind, "rate": format.rate} if format.encoding == "pcm" else {"type": kind}


def merged_format(current: AudioFormat, given: FormatFields | None) -> AudioFormat:
    """``current`` with what was ``given`` on top; null is the API's default."""
    if given is None:
        return AudioFormat()
    has_rate = "rate" in given.model_fields_set
    if given.type is None and not has_rate:
        return current
    encoding = _ENCODINGS[given.type or "audio/pcm"]
    if encoding != "pcm":
        return AudioFormat(encoding, g711.RATE)
    if has_rate:
        return AudioFormat("pcm", given.rate or NATIVE_RATE)
    return current if current.encoding == "pcm" else AudioFormat()


def samples_of(data: bytes, format: AudioFormat, param: str) -> Pcm:
    """The samples that ``data`` stands for. Raises ``WireError`` for half a sample."""
    if format.encoding != "pcm":
        return g711.decode(data, format.encoding)
    if len(data) % 2:
        raise invalid_audio(f"16-bit audio needs an even number of bytes, got {len(data)}", param)
    return pcm_from_bytes(data)


def bytes_of(pcm: Pcm, format: AudioFormat) -> bytes:
    """``pcm``, at the format's rate, as it goes over the wire."""
    if format.encoding != "pcm":
        return g711.encode(pcm, format.encoding)
    return pcm_to_bytes(pcm)
