"""A busy process beside the server: one thread that multiplies matrices until it is ended.

    python -m benchmarks.latency.neighbour

It also ends when the process that started it does.
"""

from __future__ import annotations

import os

SIZE = 384
"""Three matrices of 0.6 MB: they stay in a core's own cache, and each product takes about 1 ms."""


def main() -> None:
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    import numpy as np  # reads those once

    parent = os.getppid()
    left = np.full((SIZE, SIZE), 0.5, np.float32)
    right = np.eye(SIZE, dtype=np.float32)
    while os.getppid() == parent:
        left = left @ right


if __name__ == "__main__":
    main()
