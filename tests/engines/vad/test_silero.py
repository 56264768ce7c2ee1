"""Silero VAD, the real network, on people's speech and on other sounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.models.engine_set import build_engine
from app.settings.load import config_dir, load_settings
from pipeline.audio import LISTEN_RATE, Framer, Pcm
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.contract import Vad
from pipeline.engines.registry import Kind, engine_spec
from pipeline.engines.vad.silero import (
    WINDOW_SAMPLES,
    SileroOptions,
    SileroStream,
    SileroVad,
    build,
)
from pipeline.errors import WeightsError
from pipeline.work import Cancelled, Work
from pipeline.workers.batched import BatchedWorker
from pipeline.workers.placements import InlineWorker
from pipeline.workers.stages import vad_stage
from pipeline.workers.tuning import MANY_STREAMS
from tests.support.recordings import recording
from tests.support.toy_engine import running

pytestmark = [pytest.mark.engines, pytest.mark.real]

SPEECH = 0.5
SILENCE = 0.35


def scores(vad: SileroVad, pcm: Pcm) -> list[float]:
    stream = vad.open()
    return [stream.score(frame.pcm) for frame in Framer(WINDOW_SAMPLES).feed(pcm)]


def seconds_of(samples: np.ndarray, level: float) -> Pcm:
    return (samples * level * 32767).astype(np.int16)


def not_speech() -> dict[str, Pcm]:
    count = 3 * LISTEN_RATE
    noise = np.random.default_rng(7).standard_normal(count)
    hum = np.sin(np.arange(count) * 2 * np.pi * 100 / LISTEN_RATE)
    return {
        "zeros": seconds_of(np.zeros(count), 0),
        "quiet noise": seconds_of(noise, 0.001),
        "loud noise": seconds_of(noise, 0.15),
        "hum": seconds_of(hum, 0.25),
    }


@pytest.mark.parametrize("name", ["librivox-0870", "goforward", "cards-005", "beckett"])
def test_speech_scores_high_and_the_silence_around_it_low(vad: SileroVad, name: str) -> None:
    silence = np.zeros(LISTEN_RATE, dtype=np.int16)
    clip = recording(name)
    found = np.array(scores(vad, np.concatenate((silence, clip.pcm, silence))))
    speech = np.flatnonzero(found >= SPEECH) * WINDOW_SAMPLES / LISTEN_RATE
    assert 1 <= speech[0] < 1.6, "speech begins within the clip, after at most 0.6 s of room"
    assert speech[-1] < 1 + clip.seconds + 0.1
    assert len(speech) * WINDOW_SAMPLES / LISTEN_RATE > 0.4 * clip.seconds
    assert found[:30].max() < SILENCE
    assert found[-25:].max() < SILENCE


@pytest.mark.parametrize("name", list(not_speech()))
def test_sounds_other_than_speech_score_low(vad: SileroVad, name: str) -> None:
    assert max(scores(vad, not_speech()[name])) < SILENCE


def test_streams_scored_in_one_run_have_the_same_scores(vad: SileroVad) -> None:
    loud = seconds_of(np.random.default_rng(8).standard_normal(2 * LISTEN_RATE), 0.05)
    sounds = [recording("goforward").pcm, loud, recording("cards-005").pcm]
    sounds.append(np.concatenate((np.zeros(LISTEN_RATE, np.int16), loud)))
    streams = [vad.open() for _ in sounds]
    framers = [Framer(WINDOW_SAMPLES).feed(pcm) for pcm in sounds]
    found = [
        vad.score_all([(stream, frame.pcm) for stream, frame in zip(streams, frames, strict=True)])
        for frames in zip(*framers, strict=False)
    ]
    alone = zip(*(scores(vad, pcm) for pcm in sounds), strict=False)
    np.testing.assert_allclose(found, list(alone), atol=1e-4)


async def _all_asked() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_streams_are_scored_together(
    weights: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    run = SileroVad.score_all

    def counted(vad: SileroVad, windows: Sequence[tuple[SileroStream, Pcm]]) -> list[float]:
        sizes.append(len(windows))
        return run(vad, windows)

    monkeypatch.setattr(SileroVad, "score_all", counted)
    monkeypatch.setattr("pipeline.workers.tuning.GATHER_S", 60.0)
    found = await asyncio.to_thread(weights, "silero-vad")
    worker = BatchedWorker(engine_spec(Kind.VAD, "silero"), SileroOptions(), found)
    window = np.zeros(WINDOW_SAMPLES, np.int16)
    async with running(worker), asyncio.TaskGroup() as group:
        streams = [await vad_stage(worker).open(Work()) for _ in range(MANY_STREAMS + 2)]
        for stream in streams[: MANY_STREAMS - 1]:
            await stream.score(window)  # opens it at the engine
        sizes.clear()
        await asyncio.gather(*(stream.score(window) for stream in streams[: MANY_STREAMS - 1]))
        assert sizes == [1] * (MANY_STREAMS - 1)
        opening = [group.create_task(each.score(window)) for each in streams[MANY_STREAMS - 1 :]]
        await _all_asked()
        await worker.engine.call(Vad.open, Work())  # runs the batch at once
        await asyncio.gather(*opening)
        sizes.clear()
        gone, *others = [group.create_task(stream.score(window)) for stream in streams]
        await _all_asked()
        assert not sizes
        gone.cancel()
        await asyncio.gather(*others)
        assert sizes == [len(others)]
        async with asyncio.timeout(30):
            await streams[1].score(window)  # a stream that catches up does not wait
        closing = asyncio.create_task((await vad_stage(worker).open(Work())).score(window))
        await _all_asked()
        assert not closing.done()
        worker.close()
    with pytest.raises(Cancelled):
        await closing


@pytest.mark.parametrize("count", [0, 511, 513])
def test_other_window_lengths_are_refused(vad: SileroVad, count: int) -> None:
    with pytest.raises(ValueError, match=f"512 samples at a time, not {count}"):
        vad.open().score(np.zeros(count, dtype=np.int16))


def test_absent_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="models verify"):
        build(SileroOptions(), tmp_path)


def test_damaged_weights_say_which_file(tmp_path: Path) -> None:
    (tmp_path / "silero_vad.onnx").write_bytes(b"not a network")
    with pytest.raises(WeightsError, match=r"silero_vad\.onnx cannot be loaded"):
        build(SileroOptions(), tmp_path)


def test_only_a_fleet_batches(tmp_path: Path) -> None:
    cache: Any = SimpleNamespace(of=lambda options: tmp_path, directory=tmp_path)
    fleet = config_dir().parent / "examples" / "fleet" / "fleet.yaml"
    for config, worker in ((None, InlineWorker), (str(fleet), BatchedWorker)):
        options = load_settings(config).settings.vad
        assert type(build_engine(options, Kind.VAD, cache, Pool())) is worker
