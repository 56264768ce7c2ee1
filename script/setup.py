"""What ``script/serve`` and ``script/test`` run: set up what is missing, then serve or test.

Exit codes: 10 no usable Python, 11 no compiler, 12 package index not reachable, 13 disk full,
14 something could not be built or installed, 15 a download is not what the lock file pins,
130 interrupted; otherwise those of ``reachy-voice`` or of the checks.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from setup_steps import computer
from setup_steps.commands import Log
from setup_steps.failures import INTERRUPTED, SetupError, classify, compiler_missing
from setup_steps.place import Place, locked
from setup_steps.progress import Bar, clock
from setup_steps.steps import Step, clear_scratch, log_file, steps_for

SETUP_ONLY = "--setup-only"


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments
    place = Place.of(Path(__file__).resolve().parent.parent, os.environ)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return _test(place, rest) if command == "test" else _serve(place, rest)
    except KeyboardInterrupt:
        print("\nInterrupted. The next start goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except SetupError as error:
        print(f"\n{error.report()}", file=sys.stderr)
        return error.exit_code


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _serve(place: Place, arguments: list[str]) -> int:
    set_up(place, steps_for(place, with_tests=False))
    if SETUP_ONLY not in arguments:
        program = str(place.program)
        os.execv(program, [program, "serve", *arguments])
    return 0


def _test(place: Place, arguments: list[str]) -> int:
    from setup_steps import checks, debian

    missing = debian.provide(os.environ)
    set_up(place, steps_for(place, with_tests=True))
    if SETUP_ONLY in arguments:
        return 0
    return checks.run(place, arguments, missing)


def set_up(place: Place, steps: Sequence[Step]) -> None:
    """Do the steps that are not done. Raises ``SetupError``."""
    if all(step.is_done(place) for step in steps):
        return
    try:
        with locked(place.build / "setup.lock", "another setup of this checkout") as lock:
            _do(place, steps, lock)
    except OSError as error:
        raise _os_error(error) from error


def _do(place: Place, steps: Sequence[Step], lock: int) -> None:
    started = time.monotonic()
    todo = _to_do(place, steps)
    check_computer(place, todo)
    clear_scratch(place)
    for number, step in enumerate(todo, 1):
        _do_step(place, step, f"[{number}/{len(todo)}] {step.title}", lock)
    clear_scratch(place)
    if todo:
        print(f"Set up in {clock(time.monotonic() - started)}", file=sys.stderr, flush=True)


def _to_do(place: Place, steps: Sequence[Step]) -> list[Step]:
    """A new environment is empty, so that with it everything has to be done."""
    if not steps[0].is_done(place):
        return list(steps)
    return [step for step in steps if not step.is_done(place)]


def check_computer(place: Place, todo: Sequence[Step]) -> None:
    """Everything that would stop a later step, before the first. Raises ``SetupError``."""
    names = {step.name: step for step in todo}
    errors: list[SetupError | None] = []
    if "environment" in names:
        errors.append(computer.venv_error(_has_module, sys.version_info[:2]))
    compiles = "llama" in names and names["llama"].cache_mb
    if compiles and computer.find_compiler(os.environ) is None:
        errors.append(compiler_missing())
    needs = {
        place.root: sum(step.checkout_mb for step in todo),
        place.cache: sum(step.cache_mb for step in todo),
    }
    found = [error for error in (*errors, *computer.space_errors(needs)) if error]
    for error in found[:-1]:
        print(error.report(), file=sys.stderr)
    if found:
        found[-1].exit_code = found[0].exit_code
        raise found[-1]


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _do_step(place: Place, step: Step, title: str, lock: int) -> None:
    if step.in_foreground is not None:
        print(title, file=sys.stderr, flush=True)
        step.in_foreground()
    elif step.run is not None:
        bar = Bar(title, step.typical_s, sys.stderr)
        try:
            step.run(bar, Log(log_file(place, step), step_environment(place), lock))
        except BaseException:
            bar.failed()
            raise
        bar.done()
    place.stamps.write(step.name, step.inputs())


def step_environment(place: Place) -> dict[str, str]:
    """pip as we need it, whatever the user's own settings are; the index stays theirs."""
    pip = {"PIP_NO_INPUT": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**os.environ, **pip, "TMPDIR": str(place.scratch)}


def _os_error(error: OSError) -> SetupError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return classify("a file could not be written", os.strerror(errno.ENOSPC))
    return SetupError(1, "a file cannot be used", str(error), "Check who owns it, then run again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
