"""The latency benchmarks' audio, and their figures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from app.talk.realtime_client import RATE, RealtimeClient, SpokenTurn, TurnFailed
from benchmarks.latency import __main__ as latency
from benchmarks.latency.clips import (
    Recorded,
    Take,
    labelled_recordings,
    perform,
    takes,
    with_inner_pause,
)
from pipeline.audio import LISTEN_RATE
from tests.benchmarks.labelled_folder import label, labels, recording

# --- recordings --------------------------------------------------------------------------------


def speech(*seconds: float, rng: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Bursts of noise of these lengths, 0.2 s of faint noise around each."""
    noise = np.random.default_rng(rng)
    gap = int(0.2 * LISTEN_RATE)
    parts = [noise.normal(0, 2e-4, gap)]
    for length in seconds:
        parts += [noise.normal(0, 0.1, int(length * LISTEN_RATE)), noise.normal(0, 2e-4, gap)]
    return np.concatenate(parts).astype(np.float32)


ONE = Recorded("alice-1", "alice-1", speech(1.0), "one two three four")
TWO = Recorded("alice-2", "alice-2", speech(0.8, rng=1), "five six")


def test_the_same_seed_performs_the_same() -> None:
    first, second = takes([ONE, TWO], 4, seed=3), takes([ONE, TWO], 4, seed=3)
    assert all(np.array_equal(a.pcm, b.pcm) for a, b in zip(first, second, strict=True))
    assert [a.how for a in first] == [b.how for b in second]
    other = takes([ONE, TWO], 4, seed=4)
    assert not any(np.array_equal(a.pcm, b.pcm) for a, b in zip(first, other, strict=True))


def test_a_labelled_turn_ends_where_its_label_says(tmp_path: Path) -> None:
    labels(tmp_path, label("end", end_s=1.5, gap_ms=1000, turn_ms=1000, start_s=0.5))
    recording(tmp_path / "a.wav", [(0.5, 1.7)], seconds=2.5)
    [recorded] = labelled_recordings(tmp_path)
    take = perform(recorded, np.random.default_rng(0))
    spoken_s = (take.end - take.said[0][0] * RATE) / RATE
    assert spoken_s * float(take.how["speed"]) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_the_end_of_speech_is_that_of_the_clean_recording(seed: int) -> None:
    take = perform(ONE, np.random.default_rng(seed))
    begins, ends, _ = take.said[0]
    assert ends == pytest.approx(take.end / RATE, abs=1e-3)
    assert ends - begins == pytest.approx(1.0 / float(take.how["speed"]), abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_there_before_and_after_and_as_loud_as_it_says(seed: int) -> None:
    take = perform(replace(ONE, signal=speech(2.0)), np.random.default_rng(seed))
    level = [
        20 * np.log10(part.astype(float).std())
        for part in (take.pcm[: RATE // 4], take.pcm[take.end - RATE : take.end], take.pcm[-RATE:])
    ]
    assert level[1] - level[2] == pytest.approx(float(take.how["snr_db"]), abs=5)
    assert level[0] == pytest.approx(level[2], abs=4)
    for second in take.pcm[: len(take.pcm) // RATE * RATE].reshape(-1, RATE):
        assert second.any()


def test_a_pause_cut_in_parts_the_words_and_not_the_speech() -> None:
    paused = with_inner_pause(ONE, np.random.default_rng(0))
    ((start, end),) = paused.pauses
    assert 0.3 <= (end - start) / LISTEN_RATE <= 1.0
    assert np.array_equal(np.delete(paused.signal, slice(start, end)), ONE.signal)
    take = perform(paused, np.random.default_rng(1))
    (_, before, first), (after, _, second) = take.said
    pause_s = (end - start) / LISTEN_RATE / float(take.how["speed"])
    assert after - before == pytest.approx(pause_s, abs=1e-3)
    assert first
    assert second
    assert f"{first} {second}" == "one two three four"
    assert paused.group == ONE.group


# --- figures -----------------------------------------------------------------------------------


def row(ms: float | None, **more: Any) -> dict[str, Any]:
    stages: dict[str, Any] = dict.fromkeys(latency.STAGES)
    plain = {"group": "a", "clip": "a", "how": {}, "first": False, "cut_off": False, "load": 0.5}
    return {"voice_to_voice": ms, **stages, **plain, **more}


def test_first_turns_and_turns_without_a_latency_are_kept_apart() -> None:
    rows = [
        row(900.0, first=True, clip="b"),
        row(500.0, first=True, clip="c", how={"speed": 1.1}),
        row(300.0, clip="b"),
        row(100.0, clip="c", how={"speed": 1.0}),
        row(200.0),
        row(None, cut_off=True),
    ]
    data = latency.summary(rows)
    assert data["ms_after_last_speech_sample"]["voice_to_voice"]["p50"]["value"] == 200
    assert data["first_turn_ms"] == {"n": 2, "p50": 700.0}
    assert data["first_to_warm_ratio"] == 3.0
    assert data["without_latency"] == 1
    assert (data["cut_offs"]["count"], data["cut_offs"]["value"]) == (1, 0.25)


async def test_a_turn_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = []

    class Client(RealtimeClient):
        async def configure(self, session: dict[str, Any] | None = None) -> None:
            connections.append(self)

        async def speak(self, pcm: Any, speech_end: int) -> SpokenTurn:
            if speech_end == 1:
                raise TurnFailed("The server did not answer")
            return SpokenTurn(speech_end_at=1.0, first_audio_at=1.2)

    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[RealtimeClient]:
        yield Client(cast(ClientConnection, None))

    monkeypatch.setattr(latency, "connect", connect)
    some = [Take(str(n), "g", np.zeros(1, np.int16), n, ()) for n in range(3)]
    done: list[int] = []
    played = await latency.play("ws://", some, lambda: done.append(1))
    assert [each["clip"] for each in played] == ["0", "1", "2"]
    assert [bool(each["failure"]) for each in played] == [False, True, False]
    assert [each["voice_to_voice"] for each in played] == [200.0, None, 200.0]
    assert (len(connections), len(done)) == (2, 3)
