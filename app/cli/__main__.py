"""The entry point. Ctrl-C ends the program quietly from the first moment."""

from __future__ import annotations

import os
import signal
import sys

from app.root import IS_INSTALLED

INTERRUPTED = 130


def main() -> None:
    """Run the command line; raises ``SystemExit``. A wheel's program continues where setup has put
    the engines."""
    # While modules load, the signal itself ends the process: an exception inside a library might
    # be printed and ignored.
    asks = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if asks:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if IS_INSTALLED and sys.argv[1:2] != ["setup"]:
        _continue_where_setup_installed()
    from app.cli.command_line import run

    try:
        if asks:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


def _continue_where_setup_installed() -> None:
    from app.setup.own_wheel import program_of_setup

    if (program := program_of_setup()) is not None:
        os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
