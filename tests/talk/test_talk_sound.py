"""``talk`` as a user runs it: the real command, engines and PortAudio, on a virtual sound card."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.compose import synthesize_alone
from app.models.weights import WeightsCache
from app.settings.load import load_settings
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from tests.support.steady import on_a_steady_machine
from tests.support.virtual_sound import NAME, RATE, VirtualSound

pytestmark = [pytest.mark.engines, pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


@pytest.fixture
def card(tmp_path: Path) -> Iterator[VirtualSound]:
    with VirtualSound(tmp_path / "pulse") as sound:
        yield sound


class Talk:
    """The command; ``until`` reads its lines."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "app.cli", "talk", "--plain", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.errors = ""
        self._readers = [
            threading.Thread(target=self._read_lines),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    def until(self, wanted: Callable[[str], bool]) -> str:
        seen = []
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            seen.append(line)
            if wanted(line):
                return line
        raise AssertionError(f"it ended:\n{''.join(seen)}{self.errors}")

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        for reader in self._readers:
            reader.join()
        return code

    def _read_lines(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        with self.process.stderr as errors:
            self.errors = errors.read()


@contextmanager
def talk(*options: str) -> Iterator[Talk]:
    running = Talk(*options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture(scope="session")
def question(cache: WeightsCache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw int16 at 16 kHz."""
    path = tmp_path_factory.mktemp("question") / "question.raw"
    settings = load_settings(None, (), {}).settings
    ((pcm, rate),) = asyncio.run(synthesize_alone(settings, cache, ["What is your name?"]))
    silence = np.zeros(LISTEN_RATE // 2, np.int16)
    heard = Resampler(rate, LISTEN_RATE).feed(pcm)
    path.write_bytes(np.concatenate((silence, heard, silence, silence)).tobytes())
    return path


def sounding_s(pcm: Pcm) -> float:
    """Seconds with audible sound, in pieces of 10 ms."""
    size = RATE // 100
    peaks = np.abs(pcm[: len(pcm) // size * size].astype(np.int32)).reshape(-1, size).max(1)
    return float((peaks > 300).sum()) / 100


@on_a_steady_machine
def test_a_spoken_question_and_its_answer(card: VirtualSound, question: Path) -> None:
    with talk("--microphone", NAME, "--set", "llm.threads=1") as running:
        running.until(lambda line: "Ready: " in line)
        with card.recording() as recorder:
            card.feed(question).wait()
            heard = running.until(lambda line: line.startswith("you:"))
            assert "name" in heard
            said = running.until(lambda line: line.startswith("reachy:"))
        assert running.end() == 0
        assert running.errors == ""
    assert sounding_s(recorder.pcm) > 0.1 * len(said.split())


def test_sigterm_ends_it_cleanly(card: VirtualSound) -> None:
    with talk("--microphone", NAME) as running:
        running.until(lambda line: "vad is ready" in line)
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
        assert running.errors == ""
