"""``reachy-voice`` in this process."""

from __future__ import annotations

import sys

import pytest

from app.cli import __main__ as cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    before, sys.argv = sys.argv, ["reachy-voice", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), printed.out + printed.err


def run_flat(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Like ``run``, with each run of white space as one space."""
    code, printed = run(capsys, *arguments)
    return code, " ".join(printed.split())
