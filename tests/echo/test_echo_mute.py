"""Aligning sent audio for clients whose microphone is off, late, or bursty."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from pipeline import commands
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm
from pipeline.echo.client import ClientEcho, SentSound
from pipeline.echo.path import NOTHING_KNOWN
from pipeline.events import ReplyFinished
from pipeline.hearing.client import ClientHearing
from pipeline.settings import Echo, SessionSettings
from reachy_voice.testing import ScriptedLlm, in_virtual_time, scene

pytestmark = pytest.mark.quick

RATE = LISTEN_RATE
PIECE = RATE // 50
HEARD = SessionSettings(echo=Echo(cancel="auto"))
CONFIG = commands.SessionConfig(
    instructions="Be brief.",
    turn_detection=commands.TurnDetection(),
    output_format=AudioFormat(rate=RATE),
)
PUSH_TO_TALK = replace(CONFIG, turn_detection=None)
STORY = ("and so it went on and on until it came to the end of it. ",) * 4
STORY_S = 18.0


def loud(samples: int) -> Pcm:
    return np.full(samples, 1000, np.int16)


class Microphone:
    """Feeds a path silence in 20 ms pieces; ``now``: the server's clock."""

    def __init__(self, path: ClientEcho) -> None:
        self.path = path
        self.now = 0.0

    def hear(self, seconds: float, in_time: bool = True) -> None:
        for _ in range(round(seconds / 0.02)):
            self.now += 0.02 * in_time
            for _window in self.path.process(np.zeros(PIECE, np.int16), NOTHING_KNOWN, self.now):
                pass


def place_of(path: ClientEcho, now: float) -> int:
    """Where sound sent now is placed, relative to the sample heard now."""
    before = path._reference.end
    path.sent(loud(10), RATE, now)
    assert path._reference.end >= before
    return path._reference.end - 10 - path._reference._clock.index(now)


def ahead_s(path: ClientEcho) -> float:
    return sum(len(pcm) for _, pcm in path._reference._ahead) / RATE


# --- microphones that are off ------------------------------------------------------------------


def test_a_client_without_audio_costs_no_memory() -> None:
    path = ClientEcho(512)
    for number in range(60 * 25):
        path.sent(loud(960), 24_000, number * 0.04)
    assert ahead_s(path) < 7


def test_an_answer_that_outlasts_a_mute_keeps_its_place() -> None:
    path = ClientEcho(512)
    microphone = Microphone(path)
    microphone.hear(2.0)
    # Two seconds of mute; one second ago an answer of 20 s was sent at once.
    path.sent(loud(20 * RATE), RATE, 3.0)
    microphone.now = 4.0
    microphone.hear(1.0)
    assert path._reference.end == 2 * RATE + 19 * RATE


def test_a_microphone_may_be_switched_on_during_an_answer() -> None:
    path = ClientEcho(512)
    path.sent(loud(20 * RATE), RATE, 100.0)
    microphone = Microphone(path)
    microphone.now = 105.0
    microphone.hear(1.0)
    assert path._reference.end == 15 * RATE


def test_delayed_packets_are_not_taken_for_a_pause() -> None:
    path = ClientEcho(512)
    microphone = Microphone(path)
    microphone.hear(2.0)
    path.sent(loud(2 * RATE), RATE, 3.0)
    microphone.now = 5.0
    microphone.hear(3.0, in_time=False)
    assert path._reference._clock.index(5.0) == 5 * RATE
    # It was heard from second 3 to second 5.
    assert path._reference.read(2 * RATE, 3 * RATE).max() == 0
    assert path._reference.read(3 * RATE, 5 * RATE).min() == 1000


def test_a_moved_place_keeps_pending_audio() -> None:
    sent = SentSound(RATE)
    sent.pass_to(100)
    sent.send(loud(50), 200)
    sent.send(np.full(50, 7, np.int16), 250)
    sent.move(-125)
    sent.pass_to(200)
    assert np.array_equal(sent.read(100, 200), [1000] * 25 + [7] * 50 + [0] * 25)
    sent.send(loud(10), 0)
    assert sent.end == 210


# --- in sessions -------------------------------------------------------------------------------


def story() -> ScriptedLlm:
    return ScriptedLlm(deltas=STORY)


@in_virtual_time
async def test_long_push_to_talk_keeps_nothing_and_can_end() -> None:
    path = ClientHearing(512, HEARD.echo)
    async with scene(config=PUSH_TO_TALK, llm=story(), hearing=path) as played:
        for _ in range(5):
            await played.do(commands.CreateResponse())
            await played.hear(STORY_S + 1)
        assert ahead_s(path) < STORY_S + 9
        await played.do(commands.Configure(CONFIG))
        await played.hear(1.0)
        assert abs(place_of(path, asyncio.get_running_loop().time())) <= PIECE


@pytest.mark.parametrize("cancel", [False, True])
@in_virtual_time
async def test_an_out_of_band_response_is_not_played(cancel: bool) -> None:
    path = ClientHearing(512, HEARD.echo)
    async with scene(config=CONFIG, llm=story(), hearing=path) as played:
        await played.hear(0.5)
        await played.do(commands.CreateResponse())
        await played.hear(3.0)
        before_s = ahead_s(path)
        options = commands.ResponseOptions(in_conversation=False)
        await played.do(commands.CreateResponse(options=options))
        await asyncio.sleep(0)
        if cancel:
            running = played.session._replies._replies
            (aside,) = (reply for reply in running if not reply.plan.in_conversation)
            await played.do(commands.CancelResponse(response_id=aside.plan.reply_id))
        await played.hear(0.5)
        assert ahead_s(path) == pytest.approx(before_s, abs=0.1)


@pytest.mark.parametrize("newest", [True, False])
@in_virtual_time
async def test_a_truncation_ends_the_expected_echo(newest: bool) -> None:
    """A whole answer was sent at once; the client truncates it or an older one."""
    path = ClientHearing(512, HEARD.echo)
    async with scene(config=PUSH_TO_TALK, llm=story(), hearing=path) as played:
        for _ in range(2):
            await played.do(commands.CreateResponse())
            await played.hear(STORY_S + 1)
        await played.do(commands.CreateResponse())
        await played.hear(3.0)
        assert ahead_s(path) > 10
        items = [item for event in played.events(ReplyFinished) for item in event.items]
        item = items[-1] if newest else items[0]
        await played.do(commands.TruncateItem(item.id, 0, 2000))
        now = asyncio.get_running_loop().time()
        assert (path._reference.end <= path._reference._clock.index(now)) == newest
