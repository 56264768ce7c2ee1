"""What a session hears of its client, without what it plays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipeline.audio import Pcm
from pipeline.bus import Published
from pipeline.echo.path import EchoWindow
from pipeline.echo.sent import ClientEcho
from pipeline.events import ItemTruncated, ReplyAudio, ReplyFinished, ReplyStarted, SpeechStarted
from pipeline.settings import Echo


class Hearing(Protocol):
    @property
    def itself(self) -> bool:
        """Whether an echo of answers is being taken off."""
        ...

    def explains(self, noticed: int) -> bool | None:
        """``EchoPath.explains``."""
        ...

    @property
    def delay_ms(self) -> int | None:
        """How long after it is sent an answer comes back; ``None`` as long as none is known to."""
        ...

    def note(self, published: Published) -> None:
        """Follow what the client is given to play."""
        ...

    def given(self, pcm: Pcm, moved: int | None) -> None:
        """What the loudspeaker was given at the microphone's next samples, int16, 16 kHz, where the
        client tells; ``moved``: see ``EchoPath.reference_moved``."""
        ...

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        """``EchoPath.windows``."""
        ...

    def close(self) -> None:
        """Nothing more is heard."""
        ...


class EchoHearing:
    """A client far away, through an echo path, if the settings want that."""

    def __init__(self, path: ClientEcho, settings: Echo) -> None:
        self._path = path
        self._cancels = settings.cancel == "auto"
        self._reply_id = self._item_id = ""
        """Of the answer that owns the speaker; what is out of band is for the client to use."""
        self.windows = path.windows
        self.explains = path.explains
        self.close = path.close

    @property
    def itself(self) -> bool:
        return self._cancels and self._path.found

    @property
    def delay_ms(self) -> int | None:
        return self._path.delay_ms

    def given(self, pcm: Pcm, moved: int | None) -> None:
        """No-op: remote clients report no playback reference."""

    def note(self, published: Published) -> None:
        if not self._cancels:
            return
        at, event = published
        match event:
            case ReplyStarted(in_conversation=True):
                self._reply_id = event.reply_id
            case ReplyAudio() if event.reply_id == self._reply_id:
                self._item_id = event.item_id
                self._path.sent(event.pcm, event.rate, at)
            # The client throws away what it has not played.
            case ItemTruncated() if event.item_id == self._item_id:
                self._path.flushed(at)
            case ReplyFinished(status="cancelled") if event.reply_id == self._reply_id:
                self._path.flushed(at)
            case SpeechStarted():
                self._path.flushed(at)
