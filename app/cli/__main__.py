"""Where the program begins. Nothing is imported before Ctrl-C ends it quietly."""

from __future__ import annotations

INTERRUPTED = 130


def main() -> None:
    """Run the command line; raises ``SystemExit``."""
    try:
        from app.cli.command_line import run

        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


if __name__ == "__main__":
    main()
