"""Incoming audio is never lost, heard twice or kept too long. Virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio import Resampler
from pipeline.commands import AppendAudio, ClearAudio, CommitAudio, Configure, TurnDetection
from pipeline.events import InputCommitted, ReplyStarted, SpeechStarted, SpeechStopped
from reachy_voice.testing import (
    PUSH_TO_TALK,
    VOICE,
    Noise,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    wait,
)

pytestmark = pytest.mark.quick


def test_the_recognised_audio_is_exactly_the_committed_range() -> None:
    stt, acts = ScriptedStt(), (silence(1.0), say(1.0), silence(0.4), say(0.5), silence(3.0))
    played = play(*acts, stt=stt, turn=ScriptedTurn(probability=0.2))
    [started], [stopped] = played.events(SpeechStarted), played.events(SpeechStopped)
    committed_ms = stopped.audio_ms - started.audio_ms
    assert len(stt.finished[-1]) * 1000 // 16_000 == pytest.approx(committed_ms, abs=1)
    # 300 ms from before the onset, and no more silence than the first pause frame.
    assert committed_ms == pytest.approx(300 + 1900 + 32, abs=40)


@pytest.mark.parametrize("message_ms", [20, 500])
@pytest.mark.parametrize("every_ms", [260, 500, 900])
@in_virtual_time
async def test_audio_that_comes_rarely_or_in_bursts_is_heard_without_holes(
    every_ms: int, message_ms: int
) -> None:
    stt = ScriptedStt()
    async with scene(stt=stt) as played:
        speech = played.noise(3000, 16_000 * 3)
        pcm = np.concatenate((np.zeros(40_000, np.int16), speech, np.zeros(64_000, np.int16)))
        for burst in np.split(pcm, range(every_ms * 16, len(pcm), every_ms * 16)):
            await asyncio.sleep(len(burst) / 16_000)
            step = message_ms * 16
            for message in np.split(burst, range(step, len(burst), step)):
                await played.session.submit(AppendAudio(message, 16_000))
    assert len(played.events(InputCommitted)) == len(played.events(ReplyStarted)) == 1
    heard = np.flatnonzero(stt.finished[-1])
    assert len(heard) == heard[-1] - heard[0] + 1 == len(speech)


@in_virtual_time
async def test_a_burst_of_audio_lets_others_run() -> None:
    async with scene() as played:
        listener = played.session._listener
        await played.session.submit(AppendAudio(np.zeros(16_000 * 30, np.int16), 16_000))
        await played.settle()
        # Other tasks have run 50 times; most of the burst still waits.
        assert 0 < listener.heard_end < 16_000 * 3
        for _ in range(100):
            await played.settle()
        assert listener.heard_end > 16_000 * 29


@pytest.mark.parametrize("rate", [24_000, 16_000, 8_000])
@in_virtual_time
async def test_a_commit_has_all_of_the_audio_to_the_sample(rate: int) -> None:
    stt = ScriptedStt()
    async with scene(config=PUSH_TO_TALK, stt=stt) as played:
        for _ in range(2):
            pieces = np.split(Noise(1)(9000, rate // 10), 5)
            await played.do(*(AppendAudio(piece, rate) for piece in pieces), CommitAudio())
            await played.do(AppendAudio(np.zeros(rate // 5, np.int16), rate))
            await played.act(wait(0.2), ClearAudio())
    assert [len(pcm) for pcm in stt.finished] == [1600, 1600]
    assert not played.refusals


@pytest.mark.parametrize("rate", [24_000, 8_000])
def test_cleared_audio_is_gone(rate: int) -> None:
    loud = AppendAudio(Noise(1)(9000, round(0.6 * rate)), rate)
    quiet = AppendAudio(np.zeros(rate // 2, np.int16), rate)
    stt = ScriptedStt()
    play(loud, ClearAudio(), quiet, CommitAudio(), wait(1), config=PUSH_TO_TALK, stt=stt)
    (pcm,) = stt.finished
    assert np.abs(pcm.astype(int)).max() <= 1
    played = play(say(1.0), ClearAudio(), CommitAudio("ev_1"), config=PUSH_TO_TALK)
    assert played.names() == ["InputCleared", "Refused"], "nothing is left to commit"


def test_cleared_speech_does_not_come_back_as_padding() -> None:
    stt = ScriptedStt()
    played = play(say(1.0), ClearAudio(), say(0.5), silence(3.0), stt=stt)
    _, second = played.events(SpeechStarted)
    assert second.audio_ms >= 980
    (pcm,) = stt.finished
    assert len(pcm) <= 16 * 800


def test_an_update_during_speech_loses_no_audio() -> None:
    update = Configure(replace(VOICE, turn_detection=TurnDetection(silence_duration_ms=200)))
    stt = ScriptedStt()
    played = play(say(0.5), update, say(0.5), silence(3.0), stt=stt)
    assert len(played.events(SpeechStarted)) == 1
    (pcm,) = stt.finished
    assert len(pcm) >= 16_000


@pytest.mark.parametrize(("rate", "most_ms"), [(24_000, 11), (48_000, 13), (8_000, 31)])
def test_converting_audio_holds_little_of_it_back(rate: int, most_ms: int) -> None:
    resampler = Resampler(rate, 16_000)
    given = got = 0
    for _ in range(100):
        given += 20
        got += len(resampler.feed(np.zeros(rate // 50, np.int16))) // 16
        assert given - got <= most_ms
    rest = len(resampler.flush())
    assert got * 16 + rest == pytest.approx(2000 * 16, abs=100)
