"""What a session hears through the sound card of this machine, without what that plays; where an
echo path takes it off, see ``echo.given.CardEcho``.

All of them get what the loudspeaker was given (``AppendAudio.given``), sample for sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from pipeline.audio import LISTEN_RATE, Framer, Pcm
from pipeline.bus import Published
from pipeline.echo.path import EchoWindow

EchoMode = Literal["chip", "software", "half-duplex"]

_SILENT_PEAK = 2
"""Steps of int16: dithered silence is silence."""
_TAIL_SAMPLES = 6 * LISTEN_RATE // 10
"""The echo comes up to 300 ms after it was given, and then the room sounds on."""


class ChipHearing:
    """The array's chip has taken off the echo already."""

    itself = False
    delay_ms: int | None = None

    def __init__(self, window_samples: int) -> None:
        self._framer = Framer(window_samples)

    def explains(self, noticed: int) -> bool:
        return False

    def note(self, published: Published) -> None:
        pass

    def given(self, pcm: Pcm, moved: int | None) -> None:
        pass

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        return map(EchoWindow, self._framer.feed(pcm))

    def close(self) -> None:
        pass


class HalfDuplex:
    """Nothing is heard while the loudspeaker sounds, and 600 ms longer."""

    def __init__(self) -> None:
        self._heard = 0
        self._deaf_until = 0

    def heard(self, pcm: Pcm, given: Pcm | None) -> Pcm:
        """The next samples at 16 kHz, and what the loudspeaker was given then; what is left of
        them."""
        begin, self._heard = self._heard, self._heard + len(pcm)
        # What was given in this very piece silences all of it.
        if given is not None and (given.max() > _SILENT_PEAK or given.min() < -_SILENT_PEAK):
            self._deaf_until = self._heard + _TAIL_SAMPLES
        deaf = min(max(0, self._deaf_until - begin), len(pcm))
        return np.concatenate((np.zeros(deaf, np.int16), pcm[deaf:]))


class HalfDuplexHearing(ChipHearing):
    """Half-duplex, for a session here."""

    def __init__(self, window_samples: int) -> None:
        super().__init__(window_samples)
        self._half_duplex = HalfDuplex()
        self._given: Pcm | None = None

    def given(self, pcm: Pcm, moved: int | None) -> None:
        self._given = pcm

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        given, self._given = self._given, None
        return super().windows(self._half_duplex.heard(pcm, given), now)
