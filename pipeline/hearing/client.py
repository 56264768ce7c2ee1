"""How a session hears its client, without the echo of its own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pipeline.audio import Pcm
from pipeline.bus import Published
from pipeline.echo.client import ClientEcho
from pipeline.echo.path import EchoMemory, EchoWindow, OnsetKind, Playback
from pipeline.events import ItemTruncated, ReplyAudio, ReplyFinished, ReplyStarted, SpeechStarted
from pipeline.settings import Echo


class Hearing(Protocol):
    @property
    def cancels_echo(self) -> bool:
        """Whether an echo of answers is being removed."""
        ...

    def classify_onset(self, at: int) -> OnsetKind:
        """``EchoPath.classify_onset``."""
        ...

    @property
    def delay_ms(self) -> int | None:
        """How long after being sent an answer comes back; ``None``: no echo is known."""
        ...

    def note(self, published: Published) -> None:
        """Follow the audio that the client is given to play."""
        ...

    def process(self, pcm: Pcm, playback: Playback, now: float) -> Iterable[EchoWindow]:
        """``EchoPath.process``."""
        ...

    def close(self) -> None:
        """Nothing more will be heard."""
        ...


class ClientHearing(ClientEcho):
    """Hears a remote client through an echo path, if the settings ask for it."""

    def __init__(
        self,
        window_samples: int,
        settings: Echo,
        room: EchoMemory | None = None,
        keep: Callable[[EchoMemory | None], None] = lambda room: None,
    ) -> None:
        super().__init__(window_samples, room, keep)
        self._cancels = settings.cancel == "auto"
        self._reply_id = self._item_id = ""
        """The answer that owns the loudspeaker. Out-of-band replies are assumed not to be played.
        """

    @property
    def cancels_echo(self) -> bool:
        return self._cancels and self.found

    def note(self, published: Published) -> None:
        if not self._cancels:
            return
        at, event = published
        match event:
            case ReplyStarted(in_conversation=True):
                self._reply_id = event.reply_id
            case ReplyAudio() if event.reply_id == self._reply_id:
                self._item_id = event.item_id
                self.sent(event.pcm, event.rate, at)
            # In the cases below, the client drops what it has not played.
            case ItemTruncated() if event.item_id == self._item_id:
                self.flushed(at)
            case ReplyFinished(status="cancelled") if event.reply_id == self._reply_id:
                self.flushed(at)
            case SpeechStarted():
                self.flushed(at)
