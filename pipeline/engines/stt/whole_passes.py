"""An utterance for recognisers that can only read whole recordings, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Partial, Transcript
from pipeline.work import Cancelled, CancelToken

LONGEST_PASS_SAMPLES = 24 * LISTEN_RATE
SPLIT_SAMPLES = LISTEN_RATE // 10
"""An utterance too long for one pass is split in the quietest stretch of this length in the second
half of the pass."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """The words of one pass. ``language`` and its probability: see ``Transcript``."""

    text: str = ""
    language: str = ""
    language_probability: float = 1.0


Pass = Callable[[Pcm], PassResult]
"""Reads 16 kHz audio of any length up to ``LONGEST_PASS_SAMPLES``."""


class WholeUtterance:
    """One utterance. After ``finish`` it may be fed again, and finished again."""

    def __init__(self, read: Pass, partial_interval_ms: int) -> None:
        """``partial_interval_ms``: audio between two partial transcripts, each of which takes a
        whole pass; 0 for no partials."""
        self._read = read
        self._partial_interval_samples = partial_interval_ms * LISTEN_RATE // 1000
        self._settled_part = PassResult()
        self._pieces: list[Pcm] = []
        self._samples = 0
        self._decoded_samples = 0
        self._result = PassResult()

    def feed(self, pcm: Pcm) -> Partial:
        """Take more audio; all text before the end is tentative. Returns an empty ``Partial`` if no
        pass has run, as a repeated text would mean that two passes agree."""
        self._pieces.append(pcm.copy())
        self._samples += len(pcm)
        self._settle()
        new_samples = self._samples - self._decoded_samples
        if not 0 < self._partial_interval_samples <= new_samples:
            return Partial()
        self._decode()
        return Partial(tentative=self._result.text)

    def finish(self, cancel: CancelToken) -> Transcript:
        """One pass over all audio fed so far; free if nothing is new since the last one."""
        if cancel.cancelled:
            raise Cancelled
        if self._decoded_samples != self._samples:
            self._decode()
        result = self._result
        seconds = self._samples / LISTEN_RATE
        return Transcript(result.text, seconds, result.language, result.language_probability)

    def _settle(self) -> None:
        """While there is more audio than one pass takes, transcribe the first part for good."""
        while sum(map(len, self._pieces)) > LONGEST_PASS_SAMPLES:
            pcm = np.concatenate(self._pieces)
            split = quietest(pcm[:LONGEST_PASS_SAMPLES])
            self._settled_part = _join(self._settled_part, self._read(pcm[:split]))
            self._pieces = [pcm[split:]]

    def _decode(self) -> None:
        pcm = np.concatenate((EMPTY, *self._pieces))
        self._result = _join(self._settled_part, self._read(pcm))
        self._pieces = [pcm]
        self._decoded_samples = self._samples


def _join(before: PassResult, after: PassResult) -> PassResult:
    language_source = after if after.language else before
    text = f"{before.text} {after.text}".strip()
    return PassResult(text, language_source.language, language_source.language_probability)


def quietest(pcm: Pcm) -> int:
    """Where to split ``pcm``: the middle of the quietest stretch of its second half."""
    half = len(pcm) // 2
    stretches = len(pcm[half:]) // SPLIT_SAMPLES
    power = np.square(to_float(pcm[half : half + stretches * SPLIT_SAMPLES]))
    loudness = power.reshape(stretches, SPLIT_SAMPLES).sum(axis=1)
    return half + int(loudness.argmin()) * SPLIT_SAMPLES + SPLIT_SAMPLES // 2
