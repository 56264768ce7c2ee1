"""The user's transcripts on the wire: append-only deltas, then the whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.events import TranscriptFailed, TranscriptPartial, TranscriptReady
from pipeline.realtime.wire import Send

_TRANSCRIPTION = "conversation.item.input_audio_transcription"

MAX_UNFINISHED = 64
"""Most utterances whose partial text is kept: a cleared utterance never gets a final text."""


class Transcripts:
    """Remembers the deltas sent for each utterance until its final text arrives."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent: dict[str, str] = {}

    def tell(self, event: TranscriptPartial | TranscriptReady | TranscriptFailed) -> None:
        where = {"item_id": event.item_id, "content_index": 0}
        match event:
            case TranscriptPartial():
                self._tell_partial(event, where)
            case TranscriptReady():
                # Send the rest as one more delta, unless the text has changed.
                sent = self._sent.pop(event.item_id, "")
                if event.text.startswith(sent) and (rest := event.text[len(sent) :]):
                    self._send(f"{_TRANSCRIPTION}.delta", **where, delta=rest)
                usage = {"type": "duration", "seconds": event.seconds}
                done = {"transcript": event.text, "usage": usage}
                self._send(f"{_TRANSCRIPTION}.completed", **where, **done)
            case TranscriptFailed():
                self.forget(event.item_id)
                error: dict[str, Any] = {"type": "server_error", "code": "transcription_failed"}
                error |= {"message": event.message, "param": None}
                self._send(f"{_TRANSCRIPTION}.failed", **where, error=error)

    def _tell_partial(self, event: TranscriptPartial, where: Mapping[str, Any]) -> None:
        if not event.text:
            return
        self._sent[event.item_id] = self._sent.get(event.item_id, "") + event.text
        if len(self._sent) > MAX_UNFINISHED:
            del self._sent[next(iter(self._sent))]
        self._send(f"{_TRANSCRIPTION}.delta", **where, delta=event.text)

    def forget(self, item_id: str) -> None:
        """Drop the partial text of an utterance that gets no final text."""
        self._sent.pop(item_id, None)
