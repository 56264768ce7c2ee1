"""What the latency benchmarks play, and the figures they make of what came back."""

from __future__ import annotations

import base64
import json
import types
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from app.talk.realtime_client import RATE, SpokenTurn, TurnFailed
from benchmarks.harness import acoustics
from benchmarks.harness.scene import Pause, Scene, save
from benchmarks.latency import run as latency_run
from benchmarks.latency.clips import (
    Recorded,
    Take,
    perform,
    recordings_of_corpus,
    scenes_of_two_sentences,
    scenes_with_pauses,
    speaker,
    takes,
    two_sentences,
    with_inner_pause,
)
from benchmarks.latency.report import (
    interval,
    judged,
    machine_data,
    share,
    spread,
    summary,
)
from benchmarks.latency.run import Machine, NotedClient, play
from pipeline.audio import LISTEN_RATE, pcm_to_bytes

# --- recordings --------------------------------------------------------------------------------


def speech(*seconds: float, rng: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Bursts of noise of these lengths, 0.2 s of faint noise around each."""
    noise = np.random.default_rng(rng)
    gap = int(0.2 * LISTEN_RATE)
    parts = [noise.normal(0, 2e-4, gap)]
    for length in seconds:
        parts += [noise.normal(0, 0.1, int(length * LISTEN_RATE)), noise.normal(0, 2e-4, gap)]
    return np.concatenate(parts).astype(np.float32)


ONE = Recorded("alice-1", "alice-1", speech(1.0), ("one two three four",))
TWO = Recorded("alice-2", "alice-2", speech(0.8, rng=1), ("five six",))


def test_the_same_seed_performs_the_same() -> None:
    first, second = takes([ONE, TWO], 4, seed=3), takes([ONE, TWO], 4, seed=3)
    assert all(np.array_equal(a.pcm, b.pcm) for a, b in zip(first, second, strict=True))
    assert [a.how for a in first] == [b.how for b in second]
    other = takes([ONE, TWO], 4, seed=4)
    assert not any(np.array_equal(a.pcm, b.pcm) for a, b in zip(first, other, strict=True))


def test_each_recording_is_performed_equally_often_and_each_time_anew() -> None:
    performed = takes([ONE, TWO], 7, seed=0)
    counts = [sum(take.name == name for take in performed) for name in ("alice-1", "alice-2")]
    assert sorted(counts) == [3, 4]
    assert len({take.pcm.tobytes() for take in performed}) == 7
    phases = {take.end % (RATE * 32 // 1000) for take in performed}
    assert len(phases) > 4


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


def test_no_gain_clips_a_loud_recording() -> None:
    loud = replace(ONE, signal=speech(1.0) * 6)
    dry = [perform(loud, np.random.default_rng(seed)) for seed in range(8)]
    dry = [take for take in dry if not take.how["rt60_s"]]
    assert dry
    for take in dry:
        assert 20_000 < np.abs(take.pcm).max() < 32_767


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
    assert take.text == "one two three four"
    assert paused.group == ONE.group


def test_two_sentences_keep_their_own_words() -> None:
    both = two_sentences(ONE, TWO, np.random.default_rng(0))
    take = perform(both, np.random.default_rng(1))
    assert [text for _, _, text in take.said] == ["one two three four", "five six"]
    assert take.said[1][0] - take.said[0][1] > 0.35
    assert speaker(ONE) == speaker(TWO) == "alice"


def scene(name: str, **more: Any) -> Scene:
    """Speech from 0.2 to 1.2 s and from 1.4 to 2.4 s."""
    fields: dict[str, Any] = {
        "part": "tuning",
        "source": "real:somebody",
        "speaker": "somebody",
        "kind": "statement",
        "text": "One, two. Three.",
        "asked": "",
        "snr_db": None,
        "rt60_s": None,
        "onset": 3200,
        "end": 38_400,
        "pauses": (Pause(19_200, 22_400, "natural"),),
    }
    return Scene(name, pcm=acoustics.to_pcm(speech(1.0, 1.0)), **{**fields, **more})


def test_of_a_corpus_clean_real_speech_is_taken_with_nothing_spliced_in(tmp_path: Path) -> None:
    spliced = (Pause(19_200, 22_400, "word"),)
    scenes = [
        scene("whole", pauses=()),
        scene("natural"),
        scene("spliced", pauses=spliced),
        scene("noisy", snr_db=20.0),
        scene("room", rt60_s=0.4),
        scene("voice", source="synthetic:voice"),
    ]
    save(scenes, tmp_path)
    found = {each.name: each.ends_plainly for each in recordings_of_corpus(tmp_path)}
    assert found == {"whole": True, "natural": False}
    assert [each.name for each in scenes_with_pauses(tmp_path)] == [
        "natural",
        "spliced",
        "room",
        "voice",
    ]


def test_two_sentences_are_taken_where_they_can_be_told_apart(tmp_path: Path) -> None:
    between = (Pause(19_200, 22_400, "sentence"),)
    scenes = [
        scene("clean", pauses=between),
        scene("quiet", pauses=between, snr_db=20.0),
        scene("loud noise", pauses=between, snr_db=0.0),
        scene("three", pauses=between, text="One. Two. Three."),
        scene("natural"),
    ]
    save(scenes, tmp_path)
    found = list(scenes_of_two_sentences(tmp_path))
    assert [each.name for each in found] == ["clean", "quiet"]
    take = perform(found[0], np.random.default_rng(0))
    assert [text for _, _, text in take.said] == ["One, two.", "Three."]
    gap_s = take.said[1][0] - take.said[0][1]
    assert gap_s == pytest.approx(0.2 / float(take.how["speed"]), abs=1e-3)


# --- statistics --------------------------------------------------------------------------------


def mean(values: Any) -> float | None:
    return sum(values) / len(values) if len(values) else None


def test_an_interval_draws_recordings_and_not_turns() -> None:
    values = [100.0] * 50 + [200.0] * 50
    by_recording = interval(values, ["a"] * 50 + ["b"] * 50, mean)
    assert by_recording == (100.0, 200.0)
    as_if_independent = interval(values, [str(n) for n in range(100)], mean)
    assert as_if_independent is not None
    low, high = as_if_independent
    assert 130 < low < 150 < high < 170
    assert interval([1.0, 2.0], ["a", "a"], mean) is None
    assert interval([], [], mean) is None


def row(ms: float | None, group: str = "a", **more: Any) -> dict[str, Any]:
    plain = {"group": group, "clip": "a", "how": {}, "first": False, "cut_off": False}
    return {"voice_to_voice": ms, **plain, **more}


def test_a_spread_counts_what_is_known() -> None:
    rows = [row(float(n), group="ab"[n % 2]) for n in range(1, 101)] + [row(None)]
    found = spread(rows, "voice_to_voice")
    assert (found["n"], found["recordings"]) == (100, 2)
    assert (found["p50"], found["p95"], found["p99"]) == (50.0, 95.0, 99.0)
    low, high = found["p50_interval"]
    assert low <= 50 <= high


def test_first_turns_and_turns_without_a_latency_are_kept_apart() -> None:
    rows = [
        row(900.0, first=True, clip="b"),
        row(500.0, first=True, clip="c", how={"speed": 1.1}),
        row(300.0, clip="b"),
        row(100.0, clip="c", how={"speed": 1.0}),
        row(200.0),
        row(None, cut_off=True),
    ]
    data = summary(rows)
    assert data["ms_after_last_speech_sample"]["voice_to_voice"]["p50"] == 200
    assert data["first_turn_ms"] == {"n": 2, "p50": 500.0}
    assert data["first_to_warm_ratio"] == 3.0
    assert data["without_latency"] == 1
    assert data["cut_offs"]["count"] == 1
    assert data["cut_offs"]["share"] == 0.25
    json.dumps(data, allow_nan=False)


def test_what_is_not_known_meets_no_bar() -> None:
    data = {"a": {"b": 3.0, "none": None}}
    verdicts = judged(data, {"a.b": 3, "a.none": 3, "a.absent": 3, "x.y.z": 3})
    assert [each["met"] for each in verdicts.values()] == [True, False, False, False]
    assert not judged(data, {"a.b": 2.9})["a.b"]["met"]


def test_a_share_has_an_interval_by_recording() -> None:
    rows = [row(1.0, group, cut_off=group == "b") for group in ("a", "b") for _ in range(5)]
    found = share(rows, "cut_off")
    assert (found["n"], found["count"], found["share"]) == (10, 5, 0.5)
    assert found["interval"] == (0.0, 1.0)


def test_the_load_is_told_before_during_and_after() -> None:
    data = machine_data(Machine([0.1, 0.5, 0.7, 0.4], {"server": 12.34}))
    assert (data["load_before"], data["load_after"], data["load_max"]) == (0.1, 0.4, 0.7)
    assert data["load_median"] == pytest.approx(0.6)
    assert data["core_percent"] == {"server": 12.3}


# --- the client --------------------------------------------------------------------------------


class Socket:
    """Gives out ``events``."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = list(events)

    async def send(self, text: str) -> None:
        pass

    async def recv(self) -> str:
        return json.dumps(self._events.pop(0))


def noted(*events: dict[str, Any]) -> NotedClient:
    return NotedClient(cast(ClientConnection, Socket(*events)))


def delta(seconds: float) -> dict[str, Any]:
    pcm = np.zeros(round(seconds * RATE), np.int16)
    audio = base64.b64encode(pcm_to_bytes(pcm)).decode()
    return {"type": "response.output_audio.delta", "response_id": "r", "delta": audio}


def ended(status: str) -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": "r", "status": status}}


async def test_the_client_notes_what_it_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    at = iter([1.0, 1.02])
    monkeypatch.setattr(latency_run, "time", types.SimpleNamespace(monotonic=lambda: next(at)))
    client = noted()
    for samples in (480, 479):
        audio = base64.b64encode(pcm_to_bytes(np.zeros(samples, np.int16))).decode()
        await client._send({"type": "input_audio_buffer.append", "audio": audio})
    await client._send({"type": "session.update"})
    assert client.sent_samples == [480, 959]
    assert client.sent.heard_at(320) == 1.0
    assert client.sent.heard_at(321) == 1.02
    assert client.sent.heard_at(640) is None


@pytest.mark.parametrize(("status", "heard"), [("cancelled", 0.3), ("completed", 2.0)])
async def test_what_was_heard_of_an_answer_is_what_was_played(
    monkeypatch: pytest.MonkeyPatch, status: str, heard: float
) -> None:
    at = iter([1.0, 1.1, 1.3])
    monkeypatch.setattr(latency_run, "time", types.SimpleNamespace(monotonic=lambda: next(at)))
    client = noted(delta(1.5), delta(0.5), ended(status))
    for _ in range(3):
        await client._receive()
    assert client.heard_s == {"r": pytest.approx(heard)}


async def test_a_turn_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = []

    class Client(NotedClient):
        async def configure(self, session: dict[str, Any] | None = None) -> None:
            connections.append(self)

        async def speak(self, pcm: Any, speech_end: int) -> SpokenTurn:
            if speech_end == 1:
                raise TurnFailed("The server did not answer")
            return SpokenTurn(speech_end_at=1.0, first_audio_at=1.2)

    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[NotedClient]:
        yield Client(cast(ClientConnection, Socket()))

    monkeypatch.setattr(latency_run, "connect", connect)
    some = [Take(str(n), "g", np.zeros(1, np.int16), n, ()) for n in range(3)]
    machine, done = Machine(), []
    played = await play("ws://", some, machine, lambda: done.append(1))
    assert [each.take.name for each in played] == ["0", "1", "2"]
    assert [bool(each.failure) for each in played] == [False, True, False]
    assert played[1].moments is None
    assert played[2].moments
    assert (len(connections), len(machine.load), len(done)) == (2, 3, 3)
