"""espeak-ng: a small formant synthesiser, run as the program that Debian ships.

It sounds like an eighties robot, needs no weights, speaks about a hundred languages, and is ready
in 10 ms.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.audio import WAV_HEADER_BYTES, Pcm, pcm_from_bytes
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import EngineError
from pipeline.messages import SpeechRequest, has_words
from pipeline.work import Cancelled, CancelToken

PROGRAM = "espeak-ng"
RATE = 22_050
"""Sample rate of espeak-ng's own voices, in Hz."""
CHUNK_SAMPLES = RATE // 10
_OTHER_NAMES = {"cmn": "zh", "nb": "no"}
"""espeak-ng's codes that differ from ISO 639-1 -> ISO 639-1."""


class EspeakOptions(EngineOptions):
    engine: Literal["espeak-ng"] = "espeak-ng"
    voice: str = "en-us"
    """A language or voice from ``espeak-ng --voices``, with an optional variant: ``en-us+f3``.
    For other languages, their own voice is used with this variant."""
    words_per_minute: int = Field(default=165, ge=80, le=450)
    pitch: int = Field(default=50, ge=0, le=99)


class Espeak:
    """Starts one program per text."""

    rate = RATE

    def __init__(self, options: EspeakOptions, voices: Sequence[str]) -> None:
        self._options = options
        self.voices = voices
        self._by_language = by_language(voices)
        self.languages: Sequence[str] = tuple(sorted(self._by_language))

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        """Speech in chunks of 0.1 s as int16 at 22,050 Hz; all takes are the same. The language
        selects the voice, unless the request names a voice other than the configured one.

        Raises ``EngineError``."""
        if not has_words(request.text):
            return
        with self._start(self._voice(request.voice, request.language), request.speed) as program:
            assert program.stdin
            assert program.stdout
            try:
                with program.stdin as stdin:
                    stdin.write(without_phoneme_blocks(request.text).encode())
                yield from _read(program.stdout.fileno(), cancel)
                if status := program.wait():
                    raise EngineError("espeak-ng failed", why=f"exit status {status}")
            finally:
                program.kill()

    def _voice(self, voice: str, language: str) -> str:
        default = self._options.voice
        if voice.split("+")[0] in self.voices and voice != default:
            return voice
        name, plus, variant = default.partition("+")
        if not language or language_of_voice(name) == language:
            return default
        return f"{self._by_language.get(language, name)}{plus}{variant}"

    def _start(self, voice: str, speed: float) -> subprocess.Popen[bytes]:
        return _run(
            "--stdin",
            "--stdout",
            "-b1",  # UTF-8
            *("-v", voice),
            *("-s", str(round(self._options.words_per_minute * speed))),
            *("-p", str(self._options.pitch)),
        )


def language_of_voice(voice: str) -> str:
    """ISO 639-1 code of an espeak-ng voice: ``en`` for ``en-gb-scotland``, ``zh`` for ``cmn``."""
    base = voice.split("-")[0]
    return _OTHER_NAMES.get(base, base)


def by_language(voices: Sequence[str]) -> dict[str, str]:
    """Language -> its plainest voice: the one with the shortest name, such as ``de``, or, among
    equals, one such as ``fr-fr``."""
    plainest: dict[str, str] = {}
    for voice in sorted(voices, key=_plainness):
        plainest.setdefault(language_of_voice(voice), voice)
    return plainest


def _plainness(voice: str) -> tuple[int, bool, str]:
    base, _, rest = voice.partition("-")
    return len(voice), rest != base, voice


def without_phoneme_blocks(text: str) -> str:
    """``text`` without ``[[``, after which espeak-ng expects phonemes, and without NULs."""
    return re.sub(r"\[\[+", "[", text).replace("\0", " ")


def _run(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        # Passed as a copy, as native libraries change the C environment in other threads.
        environment = dict(os.environ)
        return subprocess.Popen((PROGRAM, *arguments), stdin=pipe, stdout=pipe, env=environment)
    except FileNotFoundError as error:
        raise EngineError(
            f"The program {PROGRAM} is not installed",
            why="the tts engine espeak-ng runs it",
            fix="Run: apt-get install espeak-ng",
        ) from error


def _read(stdout: int, cancel: CancelToken) -> Iterator[Pcm]:
    """Samples from the WAV stream; the length in its header is not valid in a pipe."""
    buffer = b""
    header_bytes = WAV_HEADER_BYTES
    while data := os.read(stdout, 2 * CHUNK_SAMPLES):
        if cancel.cancelled:
            raise Cancelled
        buffer += data
        header, buffer = buffer[:header_bytes], buffer[header_bytes:]
        header_bytes -= len(header)
        whole = len(buffer) - len(buffer) % 2
        if whole:
            yield pcm_from_bytes(buffer[:whole])
        buffer = buffer[whole:]


def _list_voices() -> list[str]:
    """Language names that espeak-ng knows: the second column of its list."""
    with _run("--voices") as program:
        output, _ = program.communicate()
    rows = [line.split() for line in output.decode(errors="replace").splitlines()[1:]]
    return sorted({row[1] for row in rows if len(row) > 1})


def build(options: EspeakOptions, weights: Path | None) -> Espeak:
    """Find the program and its voices. Raises ``EngineError`` if it or the voice is missing."""
    voices = _list_voices()
    if options.voice.split("+")[0] not in voices:
        raise EngineError(
            f"espeak-ng has no voice {options.voice!r}",
            fix="Set tts.voice to a language from: espeak-ng --voices",
        )
    return Espeak(options, voices)


SPEC = EngineSpec(
    name="espeak-ng",
    kind=Kind.TTS,
    options=EspeakOptions,
    build=build,
    summary="espeak-ng (GPL-3, a separate program): robotic, tiny, a hundred languages",
    run_in="thread",
)
