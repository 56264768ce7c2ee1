"""What a session hears of its client, without what it plays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipeline.audio import Pcm
from pipeline.bus import Published
from pipeline.echo.path import EchoPath, EchoWindow
from pipeline.echo.settings import Echo
from pipeline.events import ReplyAudio, ReplyFinished, SpeechStarted


class Hearing(Protocol):
    @property
    def itself(self) -> bool | None:
        """Whether the microphone hears answers; ``None``: it is not known yet."""
        ...

    @property
    def delay_ms(self) -> int | None:
        """How long after it is sent an answer comes back; ``None`` as long as none is known to."""
        ...

    def note(self, published: Published) -> None:
        """Follow what the client is given to play."""
        ...

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        """``EchoPath.windows``."""
        ...

    def close(self) -> None:
        """Nothing more is heard."""
        ...


class EchoHearing:
    """Through an echo path, if the settings want that."""

    def __init__(self, path: EchoPath, settings: Echo) -> None:
        self._path = path
        self._cancels = settings.cancel == "auto"
        self.windows = path.windows
        self.close = path.close

    @property
    def itself(self) -> bool | None:
        return self._path.found if self._cancels else False

    @property
    def delay_ms(self) -> int | None:
        return self._path.delay_ms

    def note(self, published: Published) -> None:
        if not self._cancels:
            return
        at, event = published
        match event:
            case ReplyAudio():
                self._path.sent(event.pcm, event.rate, at)
            case SpeechStarted() | ReplyFinished(status="cancelled"):
                # The client throws away what it has not played.
                self._path.flushed(at)
