"""What the user says, on the wire: append-only deltas, then the whole."""

from __future__ import annotations

from typing import Any

from pipeline.events import TranscriptFailed, TranscriptPartial, TranscriptReady
from pipeline.realtime.wire import Send

_TRANSCRIPTION = "conversation.item.input_audio_transcription"

MAX_UNFINISHED = 64
"""Utterances whose partial text is remembered. One that the client clears never gets its final
one."""


class Transcripts:
    """Remembers what was told of each utterance until its final text is there."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def tell_partial(self, event: TranscriptPartial, send: Send) -> None:
        if not event.text:
            return
        self._told[event.item_id] = self._told.get(event.item_id, "") + event.text
        if len(self._told) > MAX_UNFINISHED:
            del self._told[next(iter(self._told))]
        send(f"{_TRANSCRIPTION}.delta", **_where(event.item_id), delta=event.text)

    def tell_final(self, event: TranscriptReady, send: Send) -> None:
        """What the deltas left out comes as one more, unless they said something else."""
        told = self._told.pop(event.item_id, "")
        where = _where(event.item_id)
        if event.text.startswith(told) and (rest := event.text[len(told) :]):
            send(f"{_TRANSCRIPTION}.delta", **where, delta=rest)
        usage = {"type": "duration", "seconds": event.seconds}
        send(f"{_TRANSCRIPTION}.completed", **where, transcript=event.text, usage=usage)

    def forget(self, item_id: str) -> None:
        """It was no speech."""
        self._told.pop(item_id, None)

    def tell_failure(self, event: TranscriptFailed, send: Send) -> None:
        self.forget(event.item_id)
        error = {
            "type": "server_error",
            "code": "transcription_failed",
            "message": event.message,
            "param": None,
        }
        send(f"{_TRANSCRIPTION}.failed", **_where(event.item_id), error=error)


def _where(item_id: str) -> dict[str, Any]:
    return {"item_id": item_id, "content_index": 0}
