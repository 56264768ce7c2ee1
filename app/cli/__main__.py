"""The entry point. Ctrl-C ends the program quietly from the first moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from app.root import IS_INSTALLED
from app.setup import flow
from app.setup.place import Place
from app.setup.ran_here import RanHere

INTERRUPTED = 130
UNFIT = 16
"""The exit code of ``pipeline.errors.WrongProcessor``."""
PACKAGES = ("numpy",)
"""Compiled ones that every command imports."""


def main() -> None:
    """Run the command line; raises ``SystemExit``. A wheel's program continues where setup has put
    the engines. Without a command, what is missing is set up, then the console opens."""
    if len(sys.argv) == 1:
        place = Place.of(os.environ)
        raise SystemExit(flow.exit_code_of(lambda: flow.serve(place, [], opens=True)))
    # While modules load, the signal itself ends the process: an exception inside a library might
    # be printed and ignored.
    asks = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if asks:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if IS_INSTALLED and sys.argv[1:2] != ["setup"]:
        _continue_where_setup_installed()
    run = _command_line()
    try:
        if asks:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


def _command_line() -> Callable[[], int]:
    """Import the program. If its packages do not load on this machine, say so and exit."""
    why = _trial()
    try:
        if not why:
            from app.cli.command_line import run

            return run
    except (ImportError, OSError, RuntimeError) as error:
        why = str(error).strip().splitlines()[-1]  # numpy's own text fills a page
    sys.stderr.write(
        f"The installed packages do not load on this machine\n  why: {why}\n"
        "  do:  Set up again here: script/serve in a checkout, else install the wheel anew and run "
        "reachy-voice setup\n"
    )
    raise SystemExit(UNFIT)


def _trial() -> str:
    """Import in another process what has not run on this processor before. Says why it must not be
    imported here; other failures are left to the import itself."""
    ran = RanHere(Place.of(os.environ).cache)
    if "numpy" in sys.modules or ran.has("program", PACKAGES):
        return ""
    path = f"import sys; sys.path[:] = {sys.path!r}"
    command = [sys.executable, "-P", "-c", f"{path}; import app.cli.command_line"]
    process = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    if process.returncode == 0:
        ran.add("program", PACKAGES)
    ill = process.returncode == -signal.SIGILL
    return "one was built for another processor (illegal instruction)" if ill else ""


def _continue_where_setup_installed() -> None:
    from app.setup.own_wheel import program_of_setup

    if (program := program_of_setup()) is not None:
        os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
