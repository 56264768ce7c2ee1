"""The profile to propose at a first start without settings, in JSON for ``script/setup.py``::

python -m app.doctor.profile_offer     # {}: nothing better than the default
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from urllib.parse import urlsplit

from app.doctor.profile_fit import Machine, Verdict, judge, profile_summary, this_machine
from app.models.pull import OFFLINE_VARIABLE, is_on
from app.setup.place import owners_file
from app.setup.proposal import Proposal
from pipeline.errors import ReachyVoiceError

EMBEDDED = "cpu"
"""Name of the default profile, which needs no hub."""
PATIENCE_S = 0.9
"""Time-out for all hosts together. A slower network is asked again at the next start."""

Reaches = Callable[[str], bool]


def best_profile(verdicts: Sequence[Verdict], reachable: Collection[str]) -> Verdict | None:
    """The best profile that fits and whose weights can be fetched, unless that is the default.

    ``verdicts``: best first. ``reachable``: the URLs that answer.
    """
    for verdict in verdicts:
        if verdict.name == EMBEDDED:
            return None
        if verdict.fits and set(verdict.urls) <= set(reachable):
            return verdict
    return None


def urls_of(verdicts: Sequence[Verdict]) -> set[str]:
    """The URLs that decide between the profiles that fit."""
    return {url for verdict in verdicts if verdict.fits for url in verdict.urls}


def reachable(
    urls: Collection[str], answers: Reaches | None = None, patience_s: float = PATIENCE_S
) -> set[str]:
    """The ``urls`` that answer in time. A name that cannot be resolved may block its thread for
    longer; nobody waits for that thread."""
    answers = answers or _answers
    inbox: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    for url in urls:
        threading.Thread(target=lambda url=url: inbox.put((url, answers(url))), daemon=True).start()
    until = time.monotonic() + patience_s
    good = set()
    for _ in urls:
        try:
            url, answer = inbox.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        good |= {url} if answer else set()
    return good


def _answers(url: str) -> bool:
    """Whether the file is offered there; the hub redirects to where it is stored."""
    import httpx

    try:
        with httpx.stream("GET", url, timeout=PATIENCE_S) as response:
            return response.status_code < 400
    except (httpx.HTTPError, OSError):
        return False


def answer(
    environ: Mapping[str, str] = os.environ,
    machine: Machine | None = None,
    answers: Reaches | None = None,
) -> Proposal | None:
    """``None`` if there is none, or the owner has settings already."""
    own = owners_file(environ)
    offline = is_on(environ.get(OFFLINE_VARIABLE)) or is_on(environ.get("HF_HUB_OFFLINE"))
    if own is None or own.exists() or offline:
        return None
    machine = machine or this_machine(environ=environ)
    verdicts = judge(machine)
    urls = urls_of(verdicts)
    verdict = best_profile(verdicts, reachable(urls, answers) if urls else ())
    if verdict is None:
        return None
    gpu = f", {machine.gpus.first.name}" if machine.gpus.first else ""
    hosts = sorted({urlsplit(url).hostname or "" for url in verdict.urls})
    return Proposal(
        verdict.name,
        profile_summary(verdict.name),
        f"{machine.cores} cores, {machine.memory_mb / 1000:.0f} GB{gpu}",
        " and ".join(hosts),
        str(own),
    )


def main() -> int:
    try:
        found = answer()
    except ReachyVoiceError:
        found = None  # the start itself will report it
    sys.stdout.write(json.dumps(asdict(found) if found else {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
