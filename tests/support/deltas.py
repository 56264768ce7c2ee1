"""What an answer says and calls."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.engines.contract import TextDelta, ToolCall


def text_of(deltas: Iterable[object]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(deltas: Iterable[object]) -> list[ToolCall]:
    return [delta for delta in deltas if isinstance(delta, ToolCall)]
