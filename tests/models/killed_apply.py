"""Applies a delta in children that are killed, each one at a later step, until one is not.

``python -m tests.models.killed_apply OLD NEW`` prints how many were killed before the result
was in place, and how many afterwards.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from app.models import delta as product
from app.models.delta_making import make_delta


def apply_and_die(path: Path, model: Path, step: int) -> None:
    """Steps are before and after every chunk, flush to disk and rename."""
    left = [step]

    def count(*_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # how often it flushes beside the work depends on the disk
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(real: Any) -> Any:
        def call(*args: Any) -> Any:
            count()
            found = real(*args)
            count()
            return found

        return call

    os.fsync = counted(os.fsync)
    Path.replace = counted(Path.replace)  # type: ignore[method-assign]
    product.apply(product.read_delta(path), model, report=count)


def main() -> None:
    model, new = map(Path, sys.argv[1:])
    product.CHUNK_BYTES = 1024
    product.FLUSH_BYTES = 4096
    path = make_delta(model, new, model.with_name("delta")).path
    info = product.read_delta(path).info
    model.with_name("base").write_bytes(model.read_bytes())
    before = after = 0
    while True:
        child = os.fork()
        if not child:
            apply_and_die(path, model, before + after)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        assert digest == (info.result_sha256 if after else info.base_sha256) or (
            digest == info.result_sha256
        ), "neither the old model nor the new one"
        if not os.WIFSIGNALED(status):
            assert not status, "it was not applied"
            break
        if digest == info.base_sha256:
            before += 1
        else:
            after += 1
            # All later steps come after the change: run each from the old model.
            model.with_name("result").write_bytes(model.read_bytes())
            model.write_bytes(model.with_name("base").read_bytes())
    sys.stdout.write(f"{before} {after}\n")


if __name__ == "__main__":
    main()
