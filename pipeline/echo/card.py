"""What this machine's loudspeaker plays, aligned with its microphone. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.audio import EMPTY, Pcm
from pipeline.echo import tuning
from pipeline.echo.path import EchoPath, EchoWindow, Playback, Reference


class CardReference(Reference):
    """A sound card's reference: known exactly."""

    plays_on = True
    """The stream continues through silence."""

    def __init__(self, kept_samples: int) -> None:
        super().__init__(kept_samples)
        self._ahead: Pcm = EMPTY

    def play(self, pcm: Pcm) -> None:
        """``pcm`` is played at the next samples of the microphone: int16, 16 kHz."""
        self._ahead = np.concatenate((self._ahead, pcm))

    def arrives(self, end: int, now: float) -> None:
        """Drop anything beyond ``end``, so that a misalignment does not last."""
        self._ahead = self._ahead[: max(0, end - self._past.end)]

    def pass_to(self, end: int) -> None:
        """Fill with silence where nothing was reported."""
        count = end - self._past.end
        piece, self._ahead = self._ahead[:count], self._ahead[count:]
        loud = np.flatnonzero((piece > tuning.SILENT_PEAK) | (piece < -tuning.SILENT_PEAK))
        if len(loud):
            self.last_sound = self._past.end + int(loud[-1]) + 1
        silence = np.zeros(count - len(piece), np.int16)
        self._past.append(np.concatenate((piece, silence)))


class CardEcho(EchoPath[CardReference]):
    """The echo path of this machine's sound card, as a ``pipeline.hearing.client.Hearing``."""

    reference_type = CardReference

    def process(self, pcm: Pcm, playback: Playback, now: float) -> Iterator[EchoWindow]:
        """As ``EchoPath.process``, with what was played meanwhile."""
        if playback.moved is not None:
            self.reference_moved(playback.moved)
        if playback.pcm is not None:
            self._reference.play(playback.pcm)
        return super().process(pcm, playback, now)

    @property
    def cancels_echo(self) -> bool:
        return self.found

    def note(self, published: object) -> None:
        """Nothing: the card reports what it plays."""
