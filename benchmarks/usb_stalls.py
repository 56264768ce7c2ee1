"""How long a misbehaving XVF3800 keeps anybody waiting, in real time.

    python -m benchmarks.usb_stalls [-n CALLS] [--seed N] [--out FILE]

The real pyusb over ``tests/support/fake_usb.py``, whose transfers really take their time: an answer
1 ms, a hang its whole time-out. Three threads, as ``talk`` has them at most, read and write at once
while the device stalls, asks for retries, answers short or with wrong statuses, hangs, refuses, and
is unplugged and plugged in again. Counts each call's end by name and its wall time. Writes a JSON,
and ends with 1 if a failure has no name, a handle is left, or a call took longer than 250 ms
besides what the machine itself stood still (``benchmarks.machine``), which is not the device's
hang.
"""

from __future__ import annotations

import argparse
import errno
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import Machine
from hardware.xvf3800.device import UsbArray
from hardware.xvf3800.errors import ArrayError, ArrayGone, DeviceError

if TYPE_CHECKING:
    from tests.support.fake_usb import FakeBus, FakeXvf, Fault

BAR_MS = 250
THREADS = 3
FAULTY = 0.2
"""Share of the transfers that go wrong."""


def main() -> None:
    options = _arguments()
    result = run(options.calls, options.seed)
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(0 if result["passed"] else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", dest="calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def faults(random_: random.Random) -> Fault:
    """One of all that can happen to a transfer."""
    from tests.support import fake_usb

    numbers = (errno.EPIPE, errno.EIO, errno.EBUSY, errno.EACCES, errno.ENXIO, errno.EOVERFLOW)
    return random_.choice(
        [
            fake_usb.status(random_.choice([64, 65, 66, 67, 68, 2, 5, 99])),
            fake_usb.short(random_.randrange(5)),
            fake_usb.fails(random_.choice(numbers)),
            fake_usb.late(random_.choice([0.05, 0.15, 60.0])),
            fake_usb.gone,
        ]
    )


class Scene:
    """One device, opened anew by whoever finds it gone."""

    def __init__(self, seed: int) -> None:
        from tests.support.fake_usb import FakeBus, FakeXvf

        self.device: FakeXvf = FakeXvf()
        self.bus: FakeBus = FakeBus(self.device)
        self.bus.spend = time.sleep
        self.random = random.Random(seed)
        self.array = UsbArray(self.bus)
        self.opening = threading.Lock()
        self.replugs = 0
        self.ends: Counter[str] = Counter()
        self.calls: list[tuple[float, float]] = []
        """When each began and ended, in seconds."""

    def call(self, work: Callable[[UsbArray], Any]) -> None:
        array = self.array
        if self.random.random() < FAULTY:
            self.device.faults.append(faults(self.random))
        started = time.monotonic()
        try:
            work(array)
            end = "answered"
        except DeviceError as error:
            end = type(error).__name__
        except ArrayError as error:
            end = f"not named: {error}"
        self.calls.append((started, time.monotonic()))
        self.ends[end] += 1
        if end == ArrayGone.__name__:
            self.replug(array)

    def replug(self, gone: UsbArray) -> None:
        with self.opening:
            if self.array is not gone:
                return
            gone.close()
            self.device.faults.clear()
            self.device.plugged = True
            self.array = UsbArray(self.bus)
            self.replugs += 1


def run(calls: int, seed: int) -> dict[str, Any]:
    """``calls`` in all, shared by the threads."""
    scene = Scene(seed)
    works: list[Callable[[UsbArray], Any]] = [
        lambda array: array.read("DOA_VALUE_RADIANS"),
        lambda array: array.read("AEC_SPENERGY_VALUES"),
        lambda array: array.write("PP_MIN_NS", 0.8),
    ]

    def calling(work: Callable[[UsbArray], Any]) -> None:
        for _ in range(calls // THREADS):
            scene.call(work)

    threads = [threading.Thread(target=calling, args=(work,)) for work in works]
    with Machine() as machine:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    scene.array.close()
    return report(scene, machine, seed)


def report(scene: Scene, machine: Machine, seed: int) -> dict[str, Any]:
    walls = np.array([end - begin for begin, end in scene.calls]) * 1000
    over = [call for call, wall_ms in zip(scene.calls, walls, strict=True) if wall_ms > BAR_MS]
    hangs = [a for a, b in over if (b - a - machine.stopped_s(a, b)) * 1000 > BAR_MS]
    unnamed = sum(count for end, count in scene.ends.items() if end.startswith("not named"))
    return {
        "calls": len(walls),
        "seed": seed,
        "threads": THREADS,
        "ends": dict(scene.ends.most_common()),
        "replugs": scene.replugs,
        "wall_ms": {
            "p50": round(float(np.percentile(walls, 50)), 1),
            "p99": round(float(np.percentile(walls, 99)), 1),
            "longest": round(float(walls.max()), 1),
        },
        "over_bar": len(over),
        "of_them_hangs": len(hangs),
        "machine": machine.report,
        "handles_left": scene.bus.open_handles,
        "passed": len(hangs) == unnamed == scene.bus.open_handles == 0,
    }


if __name__ == "__main__":
    main()
