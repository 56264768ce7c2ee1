"""Turn detection: as the client sets it, as shown in ``session.updated``, and for the pipeline.

A field that the client did not set stays ``None`` for the pipeline (the YAML applies) and is shown
with the API's nominal default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.commands import TurnDetection
from pipeline.settings import Eagerness

DEFAULT: Mapping[str, Any] = {"type": "server_vad"}

_SERVER_VAD: Mapping[str, Any] = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
_SEMANTIC_VAD: Mapping[str, Any] = {
    "type": "semantic_vad",
    "eagerness": "auto",
    "create_response": True,
    "interrupt_response": True,
}
"""Nominal defaults, from the API reference."""

_IN_TRANSCRIPTION = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")
"""The only fields that the API's transcription session shows."""

_EAGERNESS: Mapping[str | None, Eagerness] = {"low": "low", "high": "high"}
"""``auto`` is medium (API reference)."""


def merged(
    current: Mapping[str, Any] | None, given: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """``current`` overridden by ``given``; null means push to talk. A new type starts afresh, as
    the types share no fields."""
    if given is None:
        return None
    current = current or DEFAULT
    kind = given.get("type") or current["type"]
    before = current if current["type"] == kind else {}
    return {**before, **given, "type": kind}


def shown(fields: Mapping[str, Any] | None, *, answers: bool) -> dict[str, Any] | None:
    """The object to show. ``answers``: False for a transcription session."""
    if fields is None:
        return None
    nominal = _SEMANTIC_VAD if fields["type"] == "semantic_vad" else _SERVER_VAD
    known = {name: at for name, at in fields.items() if name in nominal and at is not None}
    whole = {**nominal, **known}
    return whole if answers else {name: whole[name] for name in _IN_TRANSCRIPTION if name in whole}


def turn_detection(fields: Mapping[str, Any] | None, *, answers: bool) -> TurnDetection | None:
    """The settings for the pipeline. A session that does not answer has no idle time-out."""
    if fields is None:
        return None
    create = answers and fields.get("create_response") is not False
    interrupt = answers and fields.get("interrupt_response") is not False
    if fields["type"] == "semantic_vad":
        return TurnDetection(
            eagerness=_EAGERNESS.get(fields.get("eagerness"), "medium"),
            create_response=create,
            interrupt_response=interrupt,
        )
    return TurnDetection(
        threshold=fields.get("threshold"),
        prefix_padding_ms=fields.get("prefix_padding_ms"),
        silence_duration_ms=fields.get("silence_duration_ms"),
        idle_timeout_ms=fields.get("idle_timeout_ms") if answers else None,
        create_response=create,
        interrupt_response=interrupt,
    )
