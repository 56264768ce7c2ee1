"""stderr, while PortAudio writes there: shut by several threads, open again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from hardware.sound import portaudio
from hardware.sound.errors import SoundError
from hardware.sound.stderr import quiet_stderr


def test_the_last_one_that_has_it_shut_opens_it(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = quiet_stderr(), quiet_stderr()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.write(2, b"still shut")
    second.__exit__(None, None, None)
    os.write(2, b"open")
    assert capfd.readouterr().err == "open"


async def test_a_driver_that_hangs_while_it_opens_leaves_it_open(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Opening has it shut when closing is given up; both come back later, in their order."""
    monkeypatch.setattr(portaudio, "_CLOSE_S", 0.01)
    release = threading.Event()
    driver = portaudio.PortAudio()

    def open_streams() -> None:
        with quiet_stderr():
            release.wait()

    with pytest.raises(TimeoutError):
        await driver._thread.call(open_streams, 0.01)
    assert not await driver.close()
    release.set()
    monkeypatch.setattr(portaudio, "_CLOSE_S", 5)
    assert await driver.close()
    driver.end()
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"


_FLOOD = """
import asyncio, os, sys, threading
from types import SimpleNamespace
from hardware.sound import portaudio

def spin(**_):
    while True:
        os.write(2, b"Expression 'poll' failed in 'pa_linux_alsa.c'\\n")

async def main():
    portaudio._CLOSE_S = 0.1
    driver = portaudio.PortAudio()
    driver._streams = [SimpleNamespace(abort=spin, close=lambda: None)]
    assert not await driver.close()
    driver.end()

asyncio.run(main())
print("The driver does not answer", file=sys.stderr)
"""


def test_endless_output_does_not_hide_the_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FLOOD], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    # What comes before stderr is shut is there; after that only a line that waited for the pipe.
    assert "The driver does not answer" in done.stderr.splitlines()[-2:]
    assert done.stdout == ""


def test_a_program_without_stderr_runs_too() -> None:
    code = "import os; os.close(2)\nfrom hardware.sound.stderr import quiet_stderr\n"
    code += "with quiet_stderr(): pass\nprint('fine')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n"


class Refusal(Exception):
    pass


async def test_a_sound_system_that_does_not_begin_is_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise Refusal("Error initializing PortAudio: Unanticipated host error")

    module = SimpleNamespace(
        PortAudioError=Refusal, _exit_handler=None, _terminate=lambda: None, _initialize=refuse
    )
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    driver = portaudio.PortAudio()
    with pytest.raises(SoundError) as caught:
        await driver.devices()
    driver.end()
    assert "Unanticipated host error" in caught.value.why
