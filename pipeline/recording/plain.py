"""Converts the pipeline's frozen dataclasses to plain data for JSON and back.

    a dataclass      {"is": "DeleteItem", "item_id": "item_5"}
    int16 samples    {"pcm": "base64"}, little-endian; in events, whose audio is kept as a WAV file
                     or not at all, {"samples": 480}
    a mapping        {"json": {...}}, whose values are plain already
    a sequence       [...], which is a tuple again when it is read

Fields with their default value are left out. Only classes named here can be read.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline import commands, events, items, messages, turn_record
from pipeline.audio import AudioFormat, Recording, pcm_from_bytes, pcm_to_bytes
from pipeline.errors import ReachyVoiceError


class RecordingError(ReachyVoiceError):
    """A folder has no recorded sessions, or cannot be written or played."""

    exit_code = 7


_KNOWN: dict[str, type] = {
    known.__name__: known
    for known in (
        *(AudioFormat, Recording, items.TextPart, items.AudioPart, items.ImagePart),
        *(items.MessageItem, items.FunctionCallItem, items.FunctionOutputItem),
        *(commands.TurnDetection, commands.SessionConfig, commands.ResponseOptions),
        *(commands.ItemReference, commands.Configure, commands.AppendAudio),
        *(commands.CommitAudio, commands.ClearAudio, commands.AddItem, commands.DeleteItem),
        *(commands.RetrieveItem, commands.TruncateItem, commands.CreateResponse),
        *(commands.CancelResponse, commands.NoteDirection, commands.Direction),
        *(messages.Tool, messages.ToolChoice, messages.Usage),
        *(events.SpeechStarted, events.InputCommitted, events.ItemTruncated),
        *(events.ReplyStarted, events.ReplyItemStarted, events.ReplyAudio, events.ReplyFinished),
        *(turn_record.TurnRecord, turn_record.Pause, turn_record.Judgement),
        *(turn_record.IgnoredSpeech,),
    )
}


def to_plain(value: Any, *, audio: bool = True) -> Any:
    """``value`` as plain data. ``audio`` False: only the number of samples."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        if not audio:
            return {"samples": len(value)}
        return {"pcm": base64.b64encode(pcm_to_bytes(value)).decode("ascii")}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"json": dict(value)}
    if isinstance(value, Sequence):
        return [to_plain(element, audio=audio) for element in value]
    given = {field.name: getattr(value, field.name) for field in _given(value)}
    plain = {name: to_plain(content, audio=audio) for name, content in given.items()}
    return {"is": type(value).__name__, **plain}


def _given(value: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that differ from their default."""
    return [
        field
        for field in dataclasses.fields(value)
        if isinstance(content := getattr(value, field.name), np.ndarray)
        or field.default is dataclasses.MISSING
        or content != field.default
    ]


def can_read(data: Mapping[str, Any]) -> bool:
    """Whether ``from_plain`` knows the class of ``data``."""
    return data.get("is") in _KNOWN


def from_plain(data: Any) -> Any:
    """The inverse of ``to_plain``. Raises ``RecordingError`` for data that this version does not
    know."""
    if isinstance(data, list):
        return tuple(from_plain(element) for element in data)
    if not isinstance(data, dict):
        return data
    if "json" in data:
        return data["json"]
    if "samples" in data:
        return np.zeros(0, np.int16)  # it was not recorded
    if "pcm" in data and "is" not in data:
        return pcm_from_bytes(base64.b64decode(data["pcm"]))
    fields = {name: from_plain(value) for name, value in data.items() if name != "is"}
    try:
        return _KNOWN[data["is"]](**fields)
    except (KeyError, TypeError) as problem:
        raise RecordingError(
            f"The recording has a {data.get('is', 'thing')} that cannot be read",
            why=str(problem),
            fix="Replay it with the version of reachy-voice that recorded it (its first line)",
        ) from problem
