"""A session whose client hears its own playback: real Silero, a person's recording as the voice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

from benchmarks.harness.room_client import PIECE, RoomClient
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm, to_float
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse, SessionConfig, TurnDetection
from pipeline.echo.client import ClientEcho
from pipeline.echo.path import OnsetKind
from pipeline.engines.vad.silero import SileroVad
from pipeline.events import ReplyAudio, ReplyFinished, SpeechIgnored, SpeechStarted, TranscriptReady
from pipeline.messages import SpeechRequest
from pipeline.settings import BargeIn, Echo, PolicyName, SessionSettings
from pipeline.work import Work
from reachy_voice.testing import Scene, ScriptedLlm, ScriptedStt, in_virtual_time, scene
from tests.support.echo_sound import hum, room
from tests.support.recordings import recording

pytestmark = pytest.mark.engines

HEARD = SessionSettings(echo=Echo(cancel="auto"))
_LINE = "and so it went on and on until it came to the end of it, "
STORY = tuple(f"{word} " for word in (_LINE * 3).split())
"""12 s of speech."""
SILENT_SAMPLES = 3 * LISTEN_RATE // 10
"""Silence before the first word of "beckett"."""
UP_S = 0.02
LATE_S = 0.25
"""From sending a sound to hearing it, without the room's 5 ms."""


@dataclass
class RecordedTts:
    """Plays a recording on from where it stopped, 0.3 s per word."""

    pcm: Pcm
    rate: int = LISTEN_RATE
    voices: Sequence[str] = ("joe",)
    at: int = field(default=0)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        count = round(0.3 * len(request.text.split()) * self.rate)
        begin, self.at = self.at, self.at + count
        yield np.take(self.pcm, range(begin, begin + count), mode="wrap")


@pytest.fixture(scope="module")
def vad(vad: SileroVad) -> InlineVad:
    return InlineVad(vad)


def client() -> RoomClient:
    response = room(5, seed=3, level=0.2)
    return RoomClient(response, "tanh 2", hum(10 * LISTEN_RATE, 1), LATE_S - UP_S - 0.005)


def voice() -> RecordedTts:
    return RecordedTts(recording("two_cities").pcm[LISTEN_RATE:])


def llm() -> ScriptedLlm:
    return ScriptedLlm(deltas=STORY, per_token_s=0.01)


async def talk(
    played: Scene, room_client: RoomClient, seconds: float, answers_at: set[int]
) -> None:
    """Request answers at these seconds; play and record in 20 ms pieces."""
    seen = 0
    for start in range(0, round(seconds * LISTEN_RATE), PIECE):
        if start % LISTEN_RATE == 0 and start // LISTEN_RATE in answers_at:
            await played.do(CreateResponse())
        await played.sleep_until((start + PIECE) / LISTEN_RATE + UP_S)
        seen = follow(played.log, seen, room_client)
        await played.session.submit(AppendAudio(room_client.hear(start), LISTEN_RATE))


def follow(log: Sequence[Published], seen: int, room_client: RoomClient) -> int:
    """Let the client act on the new events; returns how many it has seen."""
    for at, event in log[seen:]:
        match event:
            case ReplyAudio():
                room_client.play(event.pcm, at)
            case SpeechStarted() | ReplyFinished(status="cancelled"):
                room_client.flush(at)
    return len(log)


@in_virtual_time
async def test_a_robot_does_not_interrupt_itself(vad: InlineVad) -> None:
    stt = ScriptedStt(texts=("a sentence that is not in the answer",))
    async with scene(settings=HEARD, llm=llm(), stt=stt, tts=voice(), vad=vad) as played:
        await talk(played, client(), 32.0, {1, 16})
        assert played.session.echo_delay_ms == pytest.approx(LATE_S * 1000, abs=20)
    assert played.statuses == ["completed"] * 2
    assert not played.events(SpeechStarted)
    assert not played.events(TranscriptReady)
    assert not played.events(SpeechIgnored)


@pytest.mark.parametrize(
    ("policy", "detection"),
    [
        ("any-speech", TurnDetection()),
        ("words", TurnDetection(interrupt_response=False)),
        ("words", TurnDetection(threshold=0.2)),
    ],
)
@in_virtual_time
async def test_a_robot_does_not_answer_itself_with_any_barge_in_policy(
    vad: InlineVad, policy: PolicyName, detection: TurnDetection
) -> None:
    settings = SessionSettings(echo=Echo(cancel="auto"), barge_in=BargeIn(policy=policy))
    config = SessionConfig(
        instructions="", turn_detection=detection, output_format=AudioFormat(rate=LISTEN_RATE)
    )
    stt = ScriptedStt(texts=("something else that nobody has said here",))
    begun = scene(config=config, settings=settings, llm=llm(), stt=stt, tts=voice(), vad=vad)
    async with begun as played:
        await talk(played, client(), 16.0, {1})
    assert played.statuses == ["completed"]
    assert not played.events(SpeechStarted)
    assert not played.events(TranscriptReady)


@in_virtual_time
async def test_without_echo_cancelling_the_robot_answers_itself(vad: InlineVad) -> None:
    stt = ScriptedStt(texts=("something else that nobody has said here",))
    settings = SessionSettings(echo=Echo(cancel="never"))
    async with scene(settings=settings, llm=llm(), stt=stt, tts=voice(), vad=vad) as played:
        await talk(played, client(), 12.0, {1})
    assert played.events(SpeechStarted)
    assert played.events(ReplyFinished)[0].reason == "turn_detected"


@pytest.mark.parametrize(
    ("echo", "cancel", "begin", "within_s"),
    [
        *((False, cancel, begin, 0.6) for cancel in ("never", "auto") for begin in (2.4, 2.7)),
        (True, "auto", 2.3, 0.6),
    ],
)
@in_virtual_time
async def test_the_first_answer_of_a_session_can_be_interrupted(
    vad: InlineVad, echo: bool, cancel: Literal["never", "auto"], begin: float, within_s: float
) -> None:
    """The answer begins at 1.1 s."""
    settings = SessionSettings(echo=Echo(cancel=cancel))
    stt = ScriptedStt(texts=("Stop it, please.",))
    async with scene(settings=settings, llm=llm(), stt=stt, tts=voice(), vad=vad) as played:
        room_client = client()
        room_client.gain = float(echo)
        said = recording("beckett").pcm[SILENT_SAMPLES : 2 * LISTEN_RATE]
        room_client.say(to_float(said), round(begin * LISTEN_RATE))
        await talk(played, room_client, 7.0, {1})
    first = played.events(ReplyFinished)[0]
    assert (first.status, first.reason) == ("cancelled", "turn_detected")
    stopped_at = next(at for at, e in played.log if isinstance(e, ReplyFinished))
    assert begin < stopped_at < begin + within_s
    assert (played.session.echo_delay_ms is not None) == echo


@pytest.mark.parametrize(
    ("first", "later"),
    [
        pytest.param(["speech"], "echo", id="no echo at first"),
        pytest.param([], "unknown", id="over before it is decided"),
    ],
)
@in_virtual_time
async def test_a_turn_that_is_found_to_be_an_echo_is_dropped(
    vad: InlineVad, monkeypatch: pytest.MonkeyPatch, first: list[OnsetKind], later: OnsetKind
) -> None:
    verdicts = iter(first)
    monkeypatch.setattr(ClientEcho, "found", True)
    monkeypatch.setattr(ClientEcho, "classify_onset", lambda path, at: next(verdicts, later))
    stt = ScriptedStt(texts=("something else that nobody has said here",))
    async with scene(settings=HEARD, llm=llm(), stt=stt, tts=voice(), vad=vad) as played:
        room_client = client()
        room_client.gain = 0.0
        said = recording("beckett").pcm[SILENT_SAMPLES : 2 * LISTEN_RATE]
        room_client.say(to_float(said), round(2.4 * LISTEN_RATE))
        await talk(played, room_client, 16.0, {1})
    assert played.statuses == ["completed"]
    assert not played.events(SpeechStarted)


@in_virtual_time
async def test_speech_over_the_echo_is_heard(vad: InlineVad) -> None:
    said = to_float(recording("beckett").pcm[: 3 * LISTEN_RATE]) * 0.5
    begin = 20.0
    stt = ScriptedStt(texts=("something else that nobody has said here",))
    async with scene(settings=HEARD, llm=llm(), stt=stt, tts=voice(), vad=vad) as played:
        room_client = client()
        room_client.say(said, round(begin * LISTEN_RATE))
        await talk(played, room_client, 28.0, {1, 16})
    assert played.statuses[:2] == ["completed", "cancelled"]
    started = played.events(SpeechStarted)[0]
    assert begin - 0.35 < started.audio_ms / 1000 < begin + 0.6
    stopped_at = next(at for at, e in played.log if isinstance(e, ReplyFinished) and e.reason)
    assert begin < stopped_at < begin + 1.2
    assert played.events(TranscriptReady)
