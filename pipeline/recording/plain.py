"""Between the pipeline's frozen dataclasses and plain data for JSON.

    a dataclass      {"is": "AppendAudio", "pcm": {"pcm": "base64"}, "rate": 24000}
    int16 samples    {"pcm": "base64"}, little-endian; or {"samples": 480, "hash": "..."}
    a mapping        {"json": {...}}, whose values are plain already
    a sequence       [...], which is a tuple again when it is read

Fields that have their default are left out. Only classes that are named here can be read.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from pipeline import commands, items, messages, settings
from pipeline.audio import AudioFormat, AudioFrame, Pcm, Recording, pcm_from_bytes, pcm_to_bytes
from pipeline.echo.path import EchoWindow
from pipeline.engines import contract
from pipeline.errors import ReachyVoiceError


class RecordingError(ReachyVoiceError):
    """A file is no recording of sessions, or cannot be written or played."""

    exit_code = 7


_KNOWN: dict[str, type] = {
    known.__name__: known
    for known in (
        *(AudioFormat, AudioFrame, Recording, EchoWindow),
        *(settings.SessionSettings, settings.Endpointing, settings.Speculation),
        *(settings.BargeIn, settings.Echo, settings.Filler, settings.Sector),
        *(settings.Lexicon,),
        *(items.TextPart, items.AudioPart, items.ImagePart),
        *(items.MessageItem, items.FunctionCallItem, items.FunctionOutputItem),
        *(commands.TurnDetection, commands.SessionConfig, commands.ResponseOptions),
        *(commands.ItemReference, commands.Configure, commands.AppendAudio),
        *(commands.CommitAudio, commands.ClearAudio, commands.AddItem, commands.DeleteItem),
        *(commands.RetrieveItem, commands.TruncateItem, commands.CreateResponse),
        *(commands.CancelResponse, commands.NoteDirection, commands.Direction),
        *(messages.Tool, messages.ToolChoice, messages.Sampling, messages.Message),
        *(messages.Image, messages.Usage),
        *(contract.Partial, contract.Transcript, contract.Word, contract.TextDelta),
        *(contract.ToolCall, contract.Finished, contract.Warmed, contract.EndOfTurn),
    )
}


def to_plain(value: Any, *, audio: bool = True) -> Any:
    """``value`` as plain data. ``audio`` False: of samples only their number and hash."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.ndarray):
        return _samples(value, audio)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"json": dict(value)}
    if isinstance(value, Sequence):
        return [to_plain(element, audio=audio) for element in value]
    if isinstance(value, BaseModel):
        base = next(known for known in type(value).__mro__ if known.__name__ in _KNOWN)
        given = {name: getattr(value, name) for name in base.model_fields}  # type: ignore[attr-defined]
        return {"is": base.__name__, **to_plain_fields(given, audio=audio)}
    return {"is": type(value).__name__, **to_plain_fields(_given(value), audio=audio)}


def to_plain_fields(fields: Mapping[str, Any], *, audio: bool = True) -> dict[str, Any]:
    """Each value as plain data."""
    return {name: to_plain(value, audio=audio) for name, value in fields.items()}


def _given(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their default."""
    given = {field.name: (getattr(value, field.name), field) for field in dataclasses.fields(value)}
    return {
        name: content
        for name, (content, field) in given.items()
        if isinstance(content, np.ndarray)
        or field.default is dataclasses.MISSING
        or content != field.default
    }


def _samples(pcm: Pcm, audio: bool) -> dict[str, Any]:
    if audio:
        return {"pcm": base64.b64encode(pcm_to_bytes(pcm)).decode("ascii")}
    return {"samples": len(pcm), "hash": short_hash(pcm_to_bytes(pcm))}


def from_plain(data: Any) -> Any:
    """The value again. Raises ``RecordingError`` for what this version does not know."""
    if isinstance(data, list):
        return tuple(from_plain(element) for element in data)
    if not isinstance(data, dict):
        return data
    if "json" in data:
        return data["json"]
    if "pcm" in data and "is" not in data:
        return pcm_from_bytes(base64.b64decode(data["pcm"]))
    fields = {name: from_plain(value) for name, value in data.items() if name != "is"}
    try:
        return _KNOWN[data["is"]](**fields)
    except (KeyError, TypeError, ValidationError) as problem:
        raise RecordingError(
            f"The recording has a {data.get('is', 'thing')} that cannot be read",
            why=str(problem).splitlines()[0],
            fix="Replay it with the version of reachy-voice that recorded it (its first line)",
        ) from problem


def short_hash(data: bytes) -> str:
    """16 hexadecimal digits that stand for ``data``."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def key_of(*asked: Any) -> str:
    """What stands for the arguments of an engine call: equal for equal ones."""
    return short_hash(json.dumps(to_plain(asked, audio=False), sort_keys=True).encode())


def spoken_key(request: messages.SpeechRequest) -> str:
    """Of a call for speech. The language is left out, and take 0, as in older recordings."""
    asked = (request.text, request.voice, request.speed)
    return key_of(*asked, request.take) if request.take else key_of(*asked)


class HeardSoFar:
    """Stands for all the audio that was fed to one stream."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)

    def feed(self, pcm: Pcm) -> None:
        self._hash.update(pcm_to_bytes(pcm))

    def key(self) -> Callable[[], str]:
        """Makes the key of what was fed up to now."""
        return self._hash.copy().hexdigest
