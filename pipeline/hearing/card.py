"""How a session hears through this machine's sound card, without the sound that the card plays.
For software echo cancellation see ``echo.card.CardEcho``.

All modes get the loudspeaker's samples (``AppendAudio.reference``), aligned with the microphone's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from pipeline.audio import LISTEN_RATE, Framer, Pcm
from pipeline.bus import Published
from pipeline.echo.path import EchoWindow, OnsetKind, Playback
from pipeline.echo.tuning import SILENT_PEAK

EchoMode = Literal["chip", "software", "half-duplex"]

_TAIL_SAMPLES = 6 * LISTEN_RATE // 10
"""The echo comes up to 300 ms after the sound was given, and then the room reverberates."""


class ChipHearing:
    """The array's chip has already removed the echo."""

    cancels_echo = False
    delay_ms: int | None = None

    def __init__(self, window_samples: int) -> None:
        self._framer = Framer(window_samples)

    def classify_onset(self, at: int) -> OnsetKind:
        return "speech"

    def note(self, published: Published) -> None:
        pass

    def process(self, pcm: Pcm, playback: Playback, now: float) -> Iterable[EchoWindow]:
        return map(EchoWindow, self._framer.feed(pcm))

    def close(self) -> None:
        pass


class HalfDuplex:
    """Mutes the microphone while the loudspeaker plays, and for 600 ms after."""

    def __init__(self) -> None:
        self._samples = 0
        self._deaf_until = 0

    def mute(self, pcm: Pcm, reference: Pcm | None) -> Pcm:
        """Mute the next samples at 16 kHz as needed; ``reference``: the loudspeaker's then."""
        begin, self._samples = self._samples, self._samples + len(pcm)
        # Sound played during this piece mutes all of it.
        if reference is not None and np.abs(reference.astype(np.int32)).max() > SILENT_PEAK:
            self._deaf_until = self._samples + _TAIL_SAMPLES
        deaf = min(max(0, self._deaf_until - begin), len(pcm))
        return np.concatenate((np.zeros(deaf, np.int16), pcm[deaf:]))


class HalfDuplexHearing(ChipHearing):
    """``HalfDuplex`` for a session on this machine."""

    def __init__(self, window_samples: int) -> None:
        super().__init__(window_samples)
        self._half_duplex = HalfDuplex()

    def process(self, pcm: Pcm, playback: Playback, now: float) -> Iterable[EchoWindow]:
        return super().process(self._half_duplex.mute(pcm, playback.pcm), playback, now)
