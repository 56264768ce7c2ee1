"""What is between the loudspeaker and the microphone of ``tests/virtual_sound.py``."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Thread
from typing import Self

import numpy as np

from pipeline.audio import Pcm
from tests.virtual_sound import VirtualSound

BLOCK_MS = 10
_LATENESS_KEPT_S = 2.0


class Air:
    """From the loudspeaker's monitor through ``through`` to the microphone, as long as the context
    lasts: int16 mono of ``rate_hz``, 10 ms at a time in, any number of samples out.

    ``delay_ms`` is what stands in its buffer, and part of the room's delay: while the machine
    stands still for less than that, the air does not stop. ``dry`` counts how often it did. What
    comes too late then is left out (``late_ms``): no echo of a real room stays later than it was.
    """

    def __init__(
        self, sound: VirtualSound, rate_hz: int, through: Callable[[Pcm], Pcm], delay_ms: int
    ) -> None:
        self.dry = 0
        self.late_ms = 0
        self._environment = {**os.environ, **sound.environment}
        self._shape = ("--raw", f"--rate={rate_hz}", "--channels=1", "--format=s16le")
        self._block_bytes = 2 * (rate_hz * BLOCK_MS // 1000)
        self._through = through
        self._lateness = _Lateness(delay_ms / 1000)
        self._delay_ms = delay_ms
        self._told = TemporaryFile()  # noqa: SIM115 closed by the context's end
        self._thread = Thread(target=self._run)

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
            stderr=self._told,
            env=self._environment,
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ear.kill()
        self._ear.wait()
        self._thread.join()
        self._mouth.kill()
        self._mouth.wait()
        for pipe in (self._ear.stdout, self._mouth.stdin):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()
        self._told.seek(0)
        self.dry = self._told.read().count(b"underrun")
        self._told.close()

    def _run(self) -> None:
        assert self._ear.stdout
        assert self._mouth.stdin
        with suppress(BrokenPipeError):
            while len(data := self._ear.stdout.read(self._block_bytes)) == self._block_bytes:
                out = self._through(np.frombuffer(data, "<i2"))
                if self._lateness.of_next(time.monotonic()):
                    self.late_ms += BLOCK_MS
                    continue
                self._mouth.stdin.write(out.astype("<i2").tobytes())
                self._mouth.stdin.flush()


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
