"""What is between the loudspeaker and the microphone of ``tests/support/virtual_sound.py``."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Self

import numpy as np

from pipeline.audio import Pcm
from tests.support.virtual_sound import VirtualSound

BLOCK_MS = 10
_LATENESS_KEPT_S = 2.0


class Air:
    """From the loudspeaker's monitor through ``through`` to the microphone, as long as the context
    lasts: int16 mono of ``rate_hz``, 10 ms at a time in, any number of samples out.

    ``delay_ms`` is what stands in its buffer, and part of the room's delay: while the machine
    stands still for less than that, the air does not stop. ``dry_at`` says when it did, on
    ``time.monotonic``. What comes too late then is left out (``late_at``, 10 ms each): no echo of a
    real room stays later than it was.
    """

    def __init__(
        self, sound: VirtualSound, rate_hz: int, through: Callable[[Pcm], Pcm], delay_ms: int
    ) -> None:
        self.dry_at: list[float] = []
        self.late_at: list[float] = []
        self._environment = {**os.environ, **sound.environment}
        self._shape = ("--raw", f"--rate={rate_hz}", "--channels=1", "--format=s16le")
        self._block_bytes = 2 * (rate_hz * BLOCK_MS // 1000)
        self._through = through
        self._lateness = _Lateness(delay_ms / 1000)
        self._delay_ms = delay_ms
        self._threads = [Thread(target=self._run), Thread(target=self._hear_of_dryness)]

    def __enter__(self) -> Self:
        self._ear = subprocess.Popen(
            ["parec", "--device=speaker.monitor", "--latency-msec=10", *self._shape],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        latency = f"--latency-msec={self._delay_ms}"
        self._mouth = subprocess.Popen(
            ["pacat", "--playback", "--verbose", "--device=micfeed", latency, *self._shape],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
        )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ear.kill()
        self._ear.wait()
        self._threads[0].join()
        self._mouth.kill()
        self._mouth.wait()
        self._threads[1].join()
        for pipe in (self._ear.stdout, self._mouth.stdin, self._mouth.stderr):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()

    def _run(self) -> None:
        assert self._ear.stdout
        assert self._mouth.stdin
        with suppress(BrokenPipeError):
            while len(data := self._ear.stdout.read(self._block_bytes)) == self._block_bytes:
                out = self._through(np.frombuffer(data, "<i2"))
                if self._lateness.of_next(now := time.monotonic()):
                    self.late_at.append(now)
                    continue
                self._mouth.stdin.write(out.astype("<i2").tobytes())
                self._mouth.stdin.flush()

    def _hear_of_dryness(self) -> None:
        assert self._mouth.stderr
        for line in self._mouth.stderr:
            if b"underrun" in line:
                self.dry_at.append(time.monotonic())


class _Lateness:
    """Of blocks that come one after the other, against the best of the last 2 s: the clock that
    they come from is not this machine's."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._count = 0
        self._lately: deque[float] = deque(maxlen=int(_LATENESS_KEPT_S * 1000 / BLOCK_MS))

    def of_next(self, now: float) -> bool:
        """Whether the next block comes more than ``most_s`` too late."""
        lateness_s = now - self._count * BLOCK_MS / 1000
        self._count += 1
        self._lately.append(lateness_s)
        return lateness_s - min(self._lately) > self._most_s
