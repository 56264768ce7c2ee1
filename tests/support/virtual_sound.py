"""A virtual sound card: a private PulseAudio with null sinks that PortAudio really opens.

``speaker``: its monitor records what is played. ``mic``: hears what is fed to ``micfeed``. An idle
null sink takes 1.7 s to start, keeps that as a delay and loses the sound meanwhile, so both are
kept awake.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.audio import Pcm

NAME = "Reachy Mini Audio"
"""What PortAudio calls the virtual card."""
ECHO = "Reachy Mini Audio echo"
"""The same loudspeaker, and a microphone that hears it and nothing else."""
OTHER = "Laptop"
"""A different card, which must never be used instead."""
RATE = 48_000
"""Rate of the null sinks, in Hz."""
_PROGRAMS = ("pulseaudio", "pactl", "pacat", "parec")
_PLUGIN = "libasound_module_pcm_pulse.so"
_AWAKE_S = 2.2
_PATIENCE_S = 10.0


def _missing() -> str | None:
    """Why this machine cannot have a virtual card, or None."""
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: pulseaudio, pulseaudio-utils)"
    if not any(Path("/usr/lib").glob(f"*/alsa-lib/{_PLUGIN}")):
        return "ALSA's PulseAudio plug-in is not installed (Debian: libasound2-plugins)"
    try:
        import sounddevice  # noqa: F401
    except (ImportError, OSError):
        return "PortAudio is not installed (Debian: libportaudio2)"
    return None


def _require_packages() -> None:
    """Skip the test if the Debian packages are absent; fail in CI."""
    why = _missing()
    if why is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have a virtual sound card: {why}")
    pytest.skip(why)


class Recorder:
    """What ``parec`` hears, int16 mono at 48 kHz, with arrival times: about 5 ms after playback,
    since ``parec`` buffers that much."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pieces: list[bytes] = []
        self._stamps: list[tuple[int, float]] = []
        self.samples = 0
        self._thread = Thread(target=self._read)
        self._thread.start()

    @property
    def pcm(self) -> Pcm:
        return np.frombuffer(b"".join(list(self._pieces)), "<i2")

    def time_of(self, sample: int) -> float:
        """When this sample arrived, on ``time.monotonic``: a line through the earliest arrivals."""
        ends = np.array([end for end, _ in self._stamps], np.float64)
        at_s = np.array([stamp for _, stamp in self._stamps], np.float64)
        return float(np.percentile(at_s - ends / RATE, 5)) + sample / RATE

    def join(self) -> None:
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 4096):
            self._pieces.append(data)
            self.samples += len(data) // 2
            self._stamps.append((self.samples, time.monotonic()))


class VirtualSound:
    """A private PulseAudio in ``folder``. As a context manager it sets the environment in which
    PortAudio finds it, and restores that afterwards; without the Debian packages it skips the
    test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[bytes]
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        runtime = folder / "run"
        runtime.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PULSE_SERVER": f"unix:{folder}/native",
            "PULSE_RUNTIME_PATH": str(runtime),
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_CONFIG_HOME": str(folder),
            "ALSA_CONFIG_PATH": str(folder / "asound.conf"),
        }
        (folder / "asound.conf").write_text(_ALSA)
        (folder / "start.pa").write_text(
            f"load-module module-native-protocol-unix socket={folder}/native auth-anonymous=1\n"
        )

    def __enter__(self) -> Self:
        _require_packages()
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in self.environment.items():
            patch.setenv(name, value)
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._stack.close()

    # --- the server -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server with the card plugged in and awake."""
        self._server = self._run(
            "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no",
            "--log-level=error", "-F", str(self._folder / "start.pa"),
        )  # fmt: skip
        _until(lambda: self._pactl("info", check=False).returncode == 0, "PulseAudio's start")
        self.plug()

    def kill(self) -> None:
        """Kill it at once, as a crash would."""
        self._end_keepers()
        self._server.kill()
        self._server.wait()
        (self._folder / "native").unlink(missing_ok=True)

    def plug(self, awake: bool = True) -> None:
        """Add the card. ``awake``: wait until sound flows without delay."""
        for sink in ("speaker", "micfeed"):
            self._pactl(
                "load-module", "module-null-sink", f"sink_name={sink}", f"rate={RATE}", "channels=2"
            )
        for source, master in (("mic", "micfeed"), ("echo", "speaker")):
            self._pactl(
                "load-module", "module-remap-source", f"source_name={source}",
                f"master={master}.monitor",
            )  # fmt: skip
        self._keepers = [self._silence(sink) for sink in ("micfeed", "speaker")]
        for monitor in ("micfeed.monitor", "speaker.monitor"):
            self._keepers.append(
                self._run("parec", f"--device={monitor}", "--latency-msec=10", output="/dev/null")
            )
        if awake:
            time.sleep(_AWAKE_S)

    def unplug(self) -> None:
        """Remove the card; the server stays."""
        self._end_keepers()
        self._pactl("unload-module", "module-remap-source")
        self._pactl("unload-module", "module-null-sink")

    def pause(self) -> None:
        """Make the server hang: it is there but sends nothing."""
        self._server.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._server.send_signal(signal.SIGCONT)

    # --- sound ------------------------------------------------------------------------------------

    def feed(self, path: Path) -> subprocess.Popen[bytes]:
        """Play raw int16 mono at 16 kHz into the microphone, in real time."""
        return self._run(
            "pacat", "--playback", "--raw", "--device=micfeed", "--latency-msec=20",
            "--rate=16000", "--channels=1", "--format=s16le", str(path),
        )  # fmt: skip

    @contextmanager
    def recording(self, sink: str = "speaker") -> Iterator[Recorder]:
        """Record the output of a sink."""
        process = subprocess.Popen(
            [
                "parec", f"--device={sink}.monitor", "--latency-msec=5", f"--rate={RATE}",
                "--channels=1", "--format=s16le", "--raw",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        recorder = Recorder(process)
        try:
            _until(lambda: recorder.samples > RATE // 10, "the recorder's start")
            yield recorder
        finally:
            process.terminate()
            recorder.join()
            process.wait()

    # --- inside -----------------------------------------------------------------------------------

    def _silence(self, sink: str) -> subprocess.Popen[bytes]:
        with open("/dev/zero", "rb") as zeros:
            return self._run(
                "pacat", "--playback", "--raw", f"--device={sink}", "--latency-msec=20",
                "--rate=16000", "--channels=1", given=zeros,
            )  # fmt: skip

    def _run(
        self, *command: str, output: str | None = None, given: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        with open(output or os.devnull, "wb") as out:
            return subprocess.Popen(
                command,
                stdin=given or subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
            )

    def _pactl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["pactl", *words],
            check=check,
            capture_output=True,
            timeout=10,
        )

    def _end_keepers(self) -> None:
        for keeper in self._keepers:
            keeper.kill()
            keeper.wait()
        self._keepers = []


_ALSA = f"""
pcm."{NAME}" {{
  type asym
  playback.pcm {{ type pulse device speaker }}
  capture.pcm {{ type pulse device mic }}
}}
pcm."{ECHO}" {{
  type asym
  playback.pcm {{ type pulse device speaker }}
  capture.pcm {{ type pulse device echo }}
}}
pcm."{OTHER}" {{
  type asym
  playback.pcm {{ type pulse device laptop }}
  capture.pcm {{ type pulse device laptop.monitor }}
}}
pcm.default {{ type pulse }}
ctl.default {{ type pulse }}
"""


def lag_of(wanted: Pcm, heard: Pcm) -> tuple[int, float]:
    """Where ``wanted`` begins in ``heard``, in samples, and the correlation there, 0 to 1."""
    needle = wanted.astype(np.float64)
    hay = heard.astype(np.float64)
    size = 1 << (len(needle) + len(hay) - 1).bit_length()
    cross = np.fft.irfft(np.fft.rfft(hay, size) * np.conj(np.fft.rfft(needle, size)), size)
    cross = cross[: max(1, len(hay) - len(needle) + 1)]
    energy: NDArray[np.float64] = np.concatenate(([0.0], np.cumsum(hay**2)))
    windows = energy[len(needle) : len(needle) + len(cross)] - energy[: len(cross)]
    score = cross / np.sqrt(np.maximum(windows, 1.0) * max(float(needle @ needle), 1.0))
    at = int(np.argmax(score))
    return at, float(score[at])


def _until(true: Callable[[], bool], what: str) -> None:
    """Poll a program that sends no events."""
    end = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} took more than {_PATIENCE_S:g} s")
        time.sleep(0.02)
