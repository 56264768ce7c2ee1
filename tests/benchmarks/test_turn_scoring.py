"""Turns are played and scored: scenes whose right answer is plain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from app.settings.load import load_settings
from benchmarks.harness.ears import Memo, engine_digest
from benchmarks.harness.pauses import AFTER_S, played, sites
from benchmarks.harness.played_scene import play
from benchmarks.harness.scene import Pause
from benchmarks.harness.virtual_engines import H100, NO_DELAYS, Computer, Delays
from benchmarks.turns.metrics import PauseScore, TwoSentences, score_scene
from pipeline.audio import LISTEN_RATE
from pipeline.engines.turn.smart_turn import SPEC as SMART_TURN
from pipeline.engines.turn.smart_turn import SmartTurnOptions
from pipeline.messages import Message
from pipeline.work import Cancelled, Priority, Work
from tests.benchmarks.turn_scenes import (
    WINDOW_MS,
    LevelEars,
    arrival_ms,
    scene,
    scored,
    settings,
    waits,
)
from tests.support.virtual_time import in_virtual_time, run_virtual

# --- a session is played and scored ------------------------------------------------------------


def test_latency_counts_from_the_last_speech_sample_to_the_millisecond() -> None:
    said = scene(1024)
    score = scored(said, wait_ms=320)
    due = arrival_ms(said.end + 320 * 16) - said.end / 16
    assert score.state == "answered"
    assert score.gate_ms == pytest.approx(due, abs=0.01)
    assert score.audio_ms == pytest.approx(due, abs=0.01)


def test_engines_take_their_time() -> None:
    said = scene(1024)
    slow = Delays(stt_pass_s=0.5)
    score = scored(said, 320, slow)
    noticed = arrival_ms(said.end + WINDOW_MS * 16) - said.end / 16
    assert score.gate_ms == pytest.approx(noticed + 500, abs=0.01)
    voiced = scored(said, 320, Delays(tts_clause_s=0.4, llm_first_s=0.1))
    assert voiced.audio_ms == pytest.approx(noticed + 500, abs=0.01)


@pytest.mark.parametrize(
    ("audio_s", "measured_ms"), [(1.0, 34.0), (3.0, 50.3), (10.0, 55.4), (30.0, 61.9)]
)
def test_a_pass_on_the_h100_takes_what_was_measured(audio_s: float, measured_ms: float) -> None:
    assert H100.stt_s(audio_s) * 1000 == pytest.approx(measured_ms, abs=12)


@pytest.mark.parametrize(("wait_ms", "voice_is_ready"), [(160, False), (576, True)])
def test_a_fast_voice_is_made_before_an_unsure_end(wait_ms: int, voice_is_ready: bool) -> None:
    score = scored(scene(1024), wait_ms, H100)
    assert score.audio_ms is not None
    assert score.gate_ms is not None
    assert (score.audio_ms == pytest.approx(score.gate_ms, abs=0.01)) is voice_is_ready


@pytest.mark.parametrize("profile", ["reachy", "reachy-8gb"])
def test_fast_engines_leave_time_for_a_short_pause(profile: str) -> None:
    wait_ms = load_settings(profile, environ={}).settings.endpointing.clear_wait_ms
    assert [p.cut for p in scored(scene(640, 192, 640), wait_ms, H100).pauses] == [False]
    audio_ms = scored(scene(1024), wait_ms, H100).audio_ms
    assert audio_ms is not None
    assert audio_ms <= 280


def test_an_answer_confirmed_in_a_pause_is_a_cut() -> None:
    pause_ms = 512
    assert [p.cut for p in scored(scene(640, pause_ms, 640), 320).pauses] == [True]
    assert [p.cut for p in scored(scene(640, pause_ms, 640), 544).pauses] == [False]


def test_every_pause_counts_once_also_after_a_cut() -> None:
    score = scored(scene(640, 512, 640, 704, 640), 320)
    assert [p.cut for p in score.pauses] == [True, True]
    assert score.commits == 3


def test_an_uncut_turn_costs_discarded_speculation() -> None:
    score = scored(scene(640, 256, 640), 320, Delays(stt_pass_s=0.1))
    assert not score.pauses[0].cut
    assert score.passes == 2
    assert score.wasted_s == pytest.approx(0.1)
    assert score.used_s == pytest.approx(0.1)
    assert score.commits == 1


def two_sentences(pause_ms: int, wait_ms: int = 320) -> TwoSentences:
    said = scene(640, pause_ms, 640, kind="two-sentences", pause_kind="sentence")
    (two,) = scored(said, wait_ms).two_sentences
    return two


def test_two_sentences_without_an_answer_between_are_one() -> None:
    assert two_sentences(256) == TwoSentences(0.256, merged=True, heard_s=0)
    assert two_sentences(256).as_one


def test_two_sentences_may_be_merged_after_the_beginning_of_an_answer() -> None:
    two = two_sentences(512)
    pause_start = (512 + 640) * 16
    gate = arrival_ms(pause_start + 320 * 16)
    # 64 ms, and one window more to tell it from an echo.
    noticed = arrival_ms(pause_start + 512 * 16 + 96 * 16)
    assert 0 < two.heard_s <= (noticed - gate) / 1000  # it is held at the first sound
    assert two.as_one


def test_much_heard_of_a_first_answer_is_not_as_one() -> None:
    two = two_sentences(1216)
    assert two.heard_s > 0.5
    assert not two.as_one


def test_a_sentence_that_is_asked_alone_is_not_merged() -> None:
    said = scene(640, 512, 640, kind="two-sentences", pause_kind="sentence")
    whole = play(said, LevelEars(), waits(320), NO_DELAYS)
    alone = [[Message("user", word)] for word in ("apples", "bananas")]
    (two,) = score_scene(replace(whole, prompts=alone)).two_sentences
    assert not two.merged


def test_an_answer_just_after_a_pause_is_not_a_stray() -> None:
    said = scene(640, 320, 640)
    score = scored(said, 320, Delays(stt_pass_s=0.36))
    assert score.pauses == (PauseScore("word", 0.32, cut=False, late=False),)
    late = scored(replace(said, pauses=(Pause(18432, 18432 + 290 * 16, "word"),)), 320)
    assert late.pauses[0].late
    assert not late.pauses[0].cut
    assert late.strays == 0
    assert scored(replace(said, pauses=()), 320).strays == 1


def test_all_of_the_beginning_is_committed() -> None:
    said = scene(640)
    assert scored(said, 320).onset_outside_ms == 0
    early = replace(said, onset=said.onset - 400 * 16)
    assert scored(early, 320).onset_outside_ms == pytest.approx(100, abs=1)


def test_unrecognised_speech_counts_as_missed() -> None:
    said = scene(1024)
    deaf = replace(said, pcm=np.where(np.abs(said.pcm) > 500, 1111, said.pcm).astype(np.int16))
    score = scored(deaf, 320)
    assert score.state == "missed"
    assert score.gate_ms is None


def test_an_answer_before_the_end_is_premature() -> None:
    said = scene(640, 512, 640)
    # The VAD does not hear the second half: nothing is answered after it.
    faint = said.pcm.copy()
    faint[said.pauses[0].end :] = 3
    score = scored(replace(said, pcm=faint), 320)
    assert score.state == "premature"
    assert score.strays == 0
    assert score.pauses[0].cut


def test_the_first_word_may_be_lost() -> None:
    assert scored(scene(640), 320).onset_lost is False
    assert scored(scene(640, text="Please apples"), 320).onset_lost is True
    assert scored(scene(640, text="Please apples", text_by="moonshine"), 320).onset_lost is None


def test_the_assistants_question_is_in_the_prompt() -> None:
    said = scene(640, asked="Do you like apples?", kind="one-word")
    prompts = play(said, LevelEars(), waits(320), NO_DELAYS).prompts
    assert [(m.role, m.content) for m in prompts[-1]][-2:] == [
        ("assistant", "Do you like apples?"),
        ("user", "apples"),
    ]


def test_a_played_scene_continues_with_room_tone() -> None:
    said = scene(640)
    pcm = played(said)
    assert len(pcm) >= said.end + AFTER_S * LISTEN_RATE
    assert (pcm[: len(said.pcm)] == said.pcm).all()
    assert (pcm[len(said.pcm) :] == 3).all()


# --- the virtual computer ----------------------------------------------------------------------


@in_virtual_time
async def test_one_engine_does_one_thing_at_a_time() -> None:
    computer = Computer(Delays(slowed=(("stt", "turn", 2.0),)))
    ends: dict[str, float] = {}

    async def job(name: str, engine: Any, seconds: float) -> None:
        await computer.work(engine, seconds, Work())
        ends[name] = asyncio.get_running_loop().time()

    async with asyncio.TaskGroup() as group:
        group.create_task(job("turn", "turn", 0.3))
        group.create_task(job("beside", "stt", 0.1))
        group.create_task(job("behind", "stt", 0.2))
    # The third begins beside the detector, too.
    assert ends == pytest.approx({"turn": 0.3, "beside": 0.2, "behind": 0.6})


@pytest.mark.parametrize(("stoppable", "busy_s"), [(False, 0.5), (True, 0.1)])
def test_cancelled_work_ends_at_once_and_the_engine_when_it_can(
    stoppable: bool, busy_s: float
) -> None:
    computer = Computer(NO_DELAYS)
    work = Work(Priority.SPECULATIVE)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stopped())
            await asyncio.sleep(0.1)
            work.cancel()
            await task
            assert asyncio.get_running_loop().time() == pytest.approx(0.1)
            await computer.work("stt", 0.0, Work())
            assert asyncio.get_running_loop().time() == pytest.approx(busy_s)

    async def stopped() -> None:
        with pytest.raises(Cancelled):
            await computer.work("stt", 0.5, work, stoppable=stoppable)

    run_virtual(main())
    assert computer.seconds(Priority.SPECULATIVE) == pytest.approx(busy_s)


# --- features ----------------------------------------------------------------------------------


def test_every_pause_is_described_and_matched_with_its_label() -> None:
    said = scene(640, 512, 960, pause_kind="clause")
    inner, end = sites(said, cast(Any, LevelEars()), settings())
    assert (inner.label, inner.pause_kind, inner.pause_ms) == ("inner", "clause", 512)
    assert (inner.lag_ms, inner.resumed_ms, inner.text) == (0, 512, "apples")
    assert list(inner.audio) == [32, 64, 96, 128, 160, 192]
    assert (end.label, end.lag_ms, end.resumed_ms) == ("end", 0, None)
    assert (end.text, end.own_pauses_ms) == ("apples bananas", (512,))
    assert end.speech_ms == 960


def test_a_pause_without_a_label_says_so() -> None:
    said = replace(scene(640, 96, 640), pauses=())
    found = sites(said, cast(Any, LevelEars()), settings())
    assert [site.label for site in found] == ["unlabelled", "end"]
    assert list(found[0].audio) == [32, 64, 96]


# --- the cache ---------------------------------------------------------------------------------


def test_results_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "memo.sqlite"
    with Memo(file) as memo:
        assert memo.get(b"key", lambda: [1.5, "two"]) == [1.5, "two"]
        assert memo.get(b"key", lambda: pytest.fail("it is known")) == [1.5, "two"]
    with Memo(file) as memo:
        assert memo.get(b"key", lambda: pytest.fail("it is known")) == [1.5, "two"]
        assert memo.misses == 0


def test_a_digest_follows_options_and_weights(tmp_path: Path) -> None:
    options = SmartTurnOptions()
    (tmp_path / "model.onnx").write_bytes(b"one")
    before = engine_digest(SMART_TURN, options, tmp_path)
    assert engine_digest(SMART_TURN, options, tmp_path) == before
    assert engine_digest(SMART_TURN, SmartTurnOptions(run_in="inline"), tmp_path) == before
    assert engine_digest(SMART_TURN, SmartTurnOptions(weights="other"), tmp_path) != before
    (tmp_path / "model.onnx").write_bytes(b"two")
    assert engine_digest(SMART_TURN, options, tmp_path) != before
