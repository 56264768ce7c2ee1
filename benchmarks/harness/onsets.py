"""Finds where a session hears speech begin: virtual time, the real VAD, an oracle for words."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

from benchmarks.harness.played_session import played_session
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse
from pipeline.echo.sent import ClientEcho
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.stages import Stages
from pipeline.engines.vad.noise import SecondOpinion
from pipeline.engines.vad.silero import SileroVad
from pipeline.events import InputCommitted, SpeechStarted, SpeechStopped
from pipeline.hearing.client_echo import EchoHearing
from pipeline.hearing.listening import Listener
from pipeline.hearing.onset import RecentScores
from pipeline.hearing.turn_taker import TurnEnd, TurnPause, TurnStart
from pipeline.session import Session
from pipeline.settings import BargeIn, Echo, Endpointing, SessionSettings
from pipeline.work import Work
from reachy_voice import testing

CHUNKS_PER_SECOND = 50
SAMPLES_PER_MS = LISTEN_RATE // 1000
ORACLE_S = 0.06
"""How long the oracle takes: as long as Moonshine on one free core."""


@dataclass(frozen=True, slots=True, eq=False)
class OnsetScene:
    """``pcm``: 16 kHz int16 mono. ``onset``: first speech sample; ``end``: after the last.
    ``playing``: an answer is being said."""

    pcm: Pcm
    onset: int
    end: int
    playing: bool


@contextmanager
def fixed_padding_only() -> Iterator[None]:
    """Use the earlier listener: plain scores, and ranges that begin a fixed time before them."""
    with (
        patch.object(RecentScores, "beginning", lambda recent, noticed, threshold: noticed),
        patch.object(SecondOpinion, "together", lambda opinion, plain, *others: plain),
    ):
        yield


AT_ONCE = BargeIn(policy="any-speech")
"""The oracle needs an utterance's events, which do not exist while its words are weighed."""


class Oracle:
    """A recogniser that knows where the speech is: it hears "words" or nothing."""

    streams = False
    languages: Sequence[str] = ()

    def __init__(self, scene: OnsetScene, log: Sequence[Published]) -> None:
        self._scene = scene
        self._log = log
        self._opened = itertools.count()

    async def open(self, language: str, partials: bool, work: Work) -> OracleUtterance:
        return OracleUtterance(self, next(self._opened))

    def hears_speech(self, number: int, samples: int) -> bool:
        """Whether the first ``samples`` of utterance ``number`` have speech."""
        starts = [event for _, event in self._log if isinstance(event, SpeechStarted)]
        start = starts[number].audio_ms * SAMPLES_PER_MS
        return start < self._scene.end and start + samples > self._scene.onset


@dataclass
class OracleUtterance:
    oracle: Oracle
    number: int
    samples: int = 0

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.samples += len(pcm)
        return Partial()

    async def finish(self, work: Work) -> Transcript:
        await asyncio.sleep(ORACLE_S)
        is_speech = self.oracle.hears_speech(self.number, self.samples)
        return Transcript("words" if is_speech else "", self.samples / LISTEN_RATE)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class OnsetOutcome:
    """Outcome of one scene. Times in ms; ``early_ms``: from the start of the committed range
    to the onset; ``late_ms``: from the onset to the first ``SpeechStarted`` at or after it."""

    covered: bool
    early_ms: float | None
    late_ms: float | None
    began_before: int
    """How many turns began before the onset."""
    committed: tuple[int, int] | None
    """Range of the committed turn that includes the onset, else of the first; 16 kHz samples."""


class Ranges:
    """The ranges of a session's turns, in samples at ``LISTEN_RATE``, from its events."""

    def __init__(self, log: Iterable[Published]) -> None:
        self.starts: list[tuple[float, int]] = []
        starts, stops, item_ids = {}, {}, []
        for at, event in log:
            match event:
                case SpeechStarted():
                    starts[event.item_id] = event.audio_ms * SAMPLES_PER_MS
                    self.starts.append((at, event.audio_ms * SAMPLES_PER_MS))
                case SpeechStopped():
                    stops[event.item_id] = event.audio_ms * SAMPLES_PER_MS
                case InputCommitted():
                    item_ids.append(event.item_id)
        self.committed = [(starts[name], stops[name]) for name in item_ids if name in starts]


def outcome(scene: OnsetScene, log: Sequence[Published]) -> OnsetOutcome:
    ranges = Ranges(log)
    onset_s = scene.onset / LISTEN_RATE
    holding = [each for each in ranges.committed if each[0] <= scene.onset < each[1]]
    committed = next(iter(holding or ranges.committed), None)
    after = [at - onset_s for at, _ in ranges.starts if at >= onset_s]
    return OnsetOutcome(
        bool(holding),
        (scene.onset - committed[0]) / SAMPLES_PER_MS if committed else None,
        after[0] * 1000 if after else None,
        sum(at < onset_s for at, _ in ranges.starts),
        committed,
    )


async def play(scene: OnsetScene, vad: SileroVad, endpointing: Endpointing) -> list[Published]:
    """The events of a session that hears the scene at normal speed in virtual time."""
    log: list[Published] = []
    stages = Stages(
        InlineVad(vad),
        testing.ScriptedTurn(),
        Oracle(scene, log),
        testing.ScriptedLlm(deltas=("Then I went on. ",) * 30),
        testing.ScriptedTts(),
    )
    settings = SessionSettings(endpointing, barge_in=AT_ONCE)
    async with played_session(stages, settings, log.append, began=0.0) as session:
        if scene.playing:
            await session.submit(CreateResponse())
        await _speak(session, scene)
    return log


async def _speak(session: Session, scene: OnsetScene) -> None:
    chunk = LISTEN_RATE // CHUNKS_PER_SECOND
    for start in range(0, len(scene.pcm), chunk):
        # A piece arrives when its last sample has been said.
        await asyncio.sleep(1 / CHUNKS_PER_SECOND)
        await session.submit(AppendAudio(scene.pcm[start : start + chunk], LISTEN_RATE))


async def turns_in(pcm: Pcm, vad: SileroVad, endpointing: Endpointing) -> tuple[int, float]:
    """How many turns open, and for how many seconds in all."""
    turn = SimpleNamespace(history_seconds=8.0)
    stages = cast(Stages, SimpleNamespace(vad=InlineVad(vad), turn=turn))
    hearing = EchoHearing(ClientEcho(vad.window_samples), Echo())
    listener = Listener(stages, hearing, endpointing)
    starts, open_samples, began = 0, 0, None
    async for signals in listener.hear(pcm):
        pending = list(signals)
        for signal in pending:
            match signal:
                case TurnStart():
                    starts, began = starts + 1, signal.start
                case TurnPause():
                    pending.extend(listener.judge(endpointing.unsure_wait_ms))
                case TurnEnd() if began is not None:
                    open_samples, began = open_samples + signal.speech_end - began, None
    if began is not None:
        open_samples += len(pcm) - began
    return starts, open_samples / LISTEN_RATE
