"""How a session hears through this machine's sound card, without the sound that the card plays.
For software echo cancellation see ``echo.given.CardEcho``.

All modes get the loudspeaker's samples (``AppendAudio.given``), aligned with the microphone's.
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
"""The echo comes up to 300 ms after the sound was given, and then the room reverberates."""


class ChipHearing:
    """The array's chip has already removed the echo."""

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
    """Mutes the microphone while the loudspeaker plays, and for 600 ms after."""

    def __init__(self) -> None:
        self._heard = 0
        self._deaf_until = 0

    def heard(self, pcm: Pcm, given: Pcm | None) -> Pcm:
        """Mute the next samples at 16 kHz as needed; ``given``: the loudspeaker's samples then."""
        begin, self._heard = self._heard, self._heard + len(pcm)
        # Sound given in this very piece mutes all of it.
        if given is not None and (given.max() > _SILENT_PEAK or given.min() < -_SILENT_PEAK):
            self._deaf_until = self._heard + _TAIL_SAMPLES
        deaf = min(max(0, self._deaf_until - begin), len(pcm))
        return np.concatenate((np.zeros(deaf, np.int16), pcm[deaf:]))


class HalfDuplexHearing(ChipHearing):
    """``HalfDuplex`` for a session on this machine."""

    def __init__(self, window_samples: int) -> None:
        super().__init__(window_samples)
        self._half_duplex = HalfDuplex()
        self._given: Pcm | None = None

    def given(self, pcm: Pcm, moved: int | None) -> None:
        self._given = pcm

    def windows(self, pcm: Pcm, now: float) -> Iterable[EchoWindow]:
        given, self._given = self._given, None
        return super().windows(self._half_duplex.heard(pcm, given), now)
