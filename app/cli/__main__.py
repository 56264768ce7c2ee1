"""The entry point. Ctrl-C ends the program quietly from the first moment."""

from __future__ import annotations

import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line; raises ``SystemExit``."""
    # While modules load, the signal itself ends the process: an exception inside a library might
    # be printed and ignored.
    asks = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if asks:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from app.cli.command_line import run

    try:
        if asks:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


if __name__ == "__main__":
    main()
