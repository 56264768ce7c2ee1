"""What was left of an echo, written down and found again: it depends on times that are never quite
the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipeline.audio import Framer, Pcm
from pipeline.bus import Published
from pipeline.echo.path import EchoWindow
from pipeline.hearing.client import Hearing
from pipeline.recording.reading import HeldSession


class EchoLog(Protocol):
    """Where the lines of one session go."""

    def echo(self, window: EchoWindow) -> None:
        """A window is heard in which there may be an echo."""
        ...

    def hears_itself(self, index: int, found: bool) -> None:
        """From the window at ``index`` on an echo is being taken off, or not any more."""
        ...

    def explains(self, index: int, explained: bool | None) -> None:
        """With the window at ``index`` it was asked whether an echo explains what is heard."""
        ...


class RecordedHearing:
    def __init__(self, hearing: Hearing, log: EchoLog) -> None:
        self._hearing = hearing
        self._log = log
        self._told = False
        self._index = 0
        self.note = hearing.note
        self.close = hearing.close

    @property
    def itself(self) -> bool:
        return self._hearing.itself

    def explains(self, noticed: int) -> bool | None:
        explained = self._hearing.explains(noticed)
        self._log.explains(self._index, explained)
        return explained

    @property
    def delay_ms(self) -> int | None:
        return self._hearing.delay_ms

    def given(self, pcm: Pcm, moved: int | None) -> None:
        self._hearing.given(pcm, moved)

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        for window in self._hearing.windows(pcm, now):
            if window.post_filtered is not None:
                self._log.echo(window)
            self._index = window.frame.index
            if self.itself != self._told:
                self._told = self.itself
                self._log.hears_itself(self._index, self._told)
            yield window


class ReplayedHearing:
    def __init__(self, held: HeldSession) -> None:
        self._held = held
        self._framer = Framer(held.engines["window_samples"])
        self.itself = False
        self._index = 0
        self.delay_ms: int | None = None

    def note(self, published: Published) -> None:
        pass

    def explains(self, noticed: int) -> bool | None:
        return self._held.explained.get(self._index, False)

    def given(self, pcm: Pcm, moved: int | None) -> None:
        pass

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        for frame in self._framer.feed(pcm):
            self._index = frame.index
            self.itself = self._held.hears_itself.get(frame.index, self.itself)
            yield self._held.echo.get(frame.index) or EchoWindow(frame)

    def close(self) -> None:
        pass
