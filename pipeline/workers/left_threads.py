"""Threads in native code: what they tell the loop, and those that are left, as none can be
ended."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_left: list[threading.Thread] = []


def leave(thread: threading.Thread) -> None:
    """Do not wait for this daemon."""
    if thread.is_alive():
        _left.append(thread)


def leave_now_if_threads_were_left(exit_code: int) -> None:
    """End the process, if one of them is still at it. The interpreter's own end takes away what
    such a thread uses: the libraries that it loads print errors, or crash."""
    if not any(thread.is_alive() for thread in _left):
        return
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # nothing reads it, or there is none
    os._exit(exit_code)


def begin(name: str, work: Callable[[], Any]) -> tuple[threading.Thread, asyncio.Future[Any]]:
    """Do it in a daemon of its own: that, and what comes of it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    tell = teller(loop)

    def run() -> None:
        try:
            made = work()
        except BaseException as error:
            tell(set_exception, result, error)
        else:
            tell(set_result, result, made)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread, result


def teller(loop: asyncio.AbstractEventLoop) -> Callable[..., None]:
    """Calls a function on the loop, from a thread that may outlive it."""

    def tell(function: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)

    return tell


def set_result(future: asyncio.Future[Any], result: Any = None) -> None:
    if not future.done():
        future.set_result(result)


def set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
