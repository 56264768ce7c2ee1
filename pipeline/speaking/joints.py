"""Silence where pieces of speech meet: what the text asks for, and none before the first word.

Voices put silence around whatever they are given: Piper 35 to 55 ms in front, and 80 to 250 ms
behind, also where a sentence goes on. Sans-I/O; time is the sample index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import EMPTY, Pcm
from pipeline.speaking.tuning import JOINT_KEPT_BEFORE_MS, JOINT_MOST_BEFORE_MS, JOINT_QUIET
from pipeline.spoken.borders import Border

_MOST_BEHIND_MS = {
    Border.TORN: 20,
    Border.WORD: 20,
    Border.PHRASE: 40,
    Border.PART: 60,
    Border.CLAUSE: 200,
}
"""Silence behind a piece that ends so. Behind a sentence, all that the voice gives."""


class Joint:
    """Trims one piece of speech that comes in chunks: int16 mono at ``rate`` Hz."""

    def __init__(self, rate: int, border: Border) -> None:
        self._kept_before = JOINT_KEPT_BEFORE_MS * rate // 1000
        self._most_before = JOINT_MOST_BEFORE_MS * rate // 1000
        most_ms = _MOST_BEHIND_MS.get(border)
        self._most_behind = None if most_ms is None else most_ms * rate // 1000
        self._begun = False
        self._before = EMPTY
        self._dropped = 0
        self._silent = 0
        """Samples of silence that were let through since the last sound."""
        self._behind = EMPTY
        """Silence that is let through if there is one more sound."""

    def feed(self, pcm: Pcm) -> Pcm:
        """What is to be played now. Silence that may be the last waits, beyond what is allowed."""
        pcm = pcm if self._begun else self._from_first_sound(pcm)
        if self._most_behind is None or not len(pcm):
            return pcm
        loud = np.flatnonzero(_is_loud(pcm))
        if len(loud):
            end = int(loud[-1]) + 1
            released, silence = np.concatenate((self._behind, pcm[:end])), pcm[end:]
            self._silent, self._behind = 0, EMPTY
        else:
            released, silence = EMPTY, pcm
        allowed = silence[: self._most_behind - self._silent]
        self._silent += len(allowed)
        self._behind = np.concatenate((self._behind, silence[len(allowed) :]))
        return np.concatenate((released, allowed))

    def _from_first_sound(self, pcm: Pcm) -> Pcm:
        pcm = np.concatenate((self._before, pcm))
        loud = np.flatnonzero(_is_loud(pcm))
        start = max(0, (int(loud[0]) if len(loud) else len(pcm)) - self._kept_before)
        self._dropped += start
        self._begun = len(loud) > 0 or self._dropped >= self._most_before
        self._before = EMPTY if self._begun else pcm[start:]
        return pcm[start:] if self._begun else EMPTY


def _is_loud(pcm: Pcm) -> NDArray[np.bool_]:
    return np.abs(pcm.astype(np.int32)) > JOINT_QUIET
