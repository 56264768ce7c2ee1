"""A language model with its word judge: life cycle and word scales."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.models.judged_engine import JudgedEngine
from app.models.word_scales import WordScales
from app.settings.languages import read_sentences
from app.settings.load import config_dir
from pipeline.engines.contract import Warmed
from pipeline.errors import ConfigError, EngineError
from pipeline.messages import LlmRequest
from pipeline.work import Work
from reachy_voice.testing import ScriptedLlm
from tests.support.watched_log import watched_log

pytestmark = pytest.mark.quick


class Part:
    """An engine that is ready when told, and ends by ``close`` or an error."""

    name, problem, may_load = "llm far", None, False
    open = ScriptedLlm().open

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.ready: Callable[[], None] = lambda: None
        self.error: EngineError | None = None
        self.ended = 0

    async def run(self, ready: Callable[[], None]) -> None:
        self.ready = ready
        await self.closed.wait()
        self.ended += 1
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed.set()

    def fail(self, why: str) -> None:
        self.error = EngineError(why)
        self.close()


class Scene:
    def __init__(self) -> None:
        self.far, self.judge = Part(), Part()
        far: Any = self.far
        judge: Any = self.judge
        self.engine = JudgedEngine(far, judge, "Be kind.")
        self.ready = 0

    def is_ready(self) -> None:
        self.ready += 1


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["far", "judge"])
async def test_it_is_ready_when_both_are(scene: Scene, first: str) -> None:
    parts = [scene.far, scene.judge] if first == "far" else [scene.judge, scene.far]
    life = asyncio.create_task(scene.engine.run(scene.is_ready))
    await settled()
    for count, part in enumerate(parts):
        assert scene.ready == 0
        part.ready()
        assert scene.ready == count
    parts[0].ready()
    assert scene.ready == 1, "a judge that comes back after a crash changes nothing"
    scene.engine.close()
    await life
    assert (scene.far.ended, scene.judge.ended) == (1, 1)


async def test_a_judge_that_cannot_be_loaded_is_left_out(scene: Scene) -> None:
    with watched_log("reachy_voice.llm") as log:
        life = asyncio.create_task(scene.engine.run(scene.is_ready))
        await settled()
        scene.far.ready()
        scene.judge.fail("The file is damaged")
        await settled()
    assert scene.ready == 1
    await log.until("without judging the words: The file is damaged")
    scene.engine.close()
    await life


async def test_an_engine_that_fails_closes_its_judge(scene: Scene) -> None:
    life = asyncio.create_task(scene.engine.run(scene.is_ready))
    await settled()
    scene.far.fail("No server")
    with pytest.raises(EngineError, match="No server"):
        await life
    assert scene.judge.ended == 1
    assert scene.ready == 0


# --- word scales -------------------------------------------------------------------------------


SENTENCES = read_sentences(config_dir() / "languages")
CUT = {beginning for pairs in SENTENCES.values() for beginning, _ in pairs}


class Opinionated:
    """An LLM that roughly knows which words are cut off; ``silent``: it has no opinion."""

    def __init__(self, fails: bool = False, silent: bool = False) -> None:
        self.asked = 0
        self.opened = 0
        self._fails, self._silent = fails, silent

    def open(self) -> Opinionated:
        self.opened += 1
        return self

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        self.asked += 1
        if self._fails:
            raise EngineError("The model is gone")
        blur = math.exp(len(request.unfinished) % 5 / 2)
        return Warmed(
            end_probability=None
            if self._silent
            else blur * (0.003 if request.unfinished in CUT else 0.03)
        )

    def reply(self, *_: object) -> object:
        raise NotImplementedError

    def close(self) -> None:
        self.opened -= 1


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_each_language_is_measured_once_per_model(tmp_path: Path) -> None:
    scales, llm = WordScales(SENTENCES, "Be kind.", tmp_path), Opinionated()
    found = await scales.of(llm, "a model")  # type: ignore[arg-type]
    assert list(found) == ["de", "en", "es", "fr", "it", "nl", "pt"]
    assert all(0.003 < each.even < 0.3 and each.slope > 0.5 for each in found.values())
    asked = llm.asked
    assert asked == 2 * sum(map(len, SENTENCES.values()))
    assert await scales.of(llm, "a model") == found  # type: ignore[arg-type]
    assert llm.asked == asked
    await scales.of(llm, "another model")  # type: ignore[arg-type]
    assert llm.asked == 2 * asked
    assert llm.opened == 0


async def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    scales, llm = WordScales({"en": SENTENCES["en"]}, "", tmp_path), Opinionated()
    found = await scales.of(llm, "")  # type: ignore[arg-type]
    (path,) = files_in(tmp_path)
    unusable = ("{}", '{"en": [0.5, 0]}', '{"en": [0.5, -1]}', '{"en": [NaN, 0.1]}')
    for damaged in ("", "[1]", '{"en": 3}', '{"en": ["a", "b"]}', '{"en": [1]}', *unusable):
        path.write_text(damaged)
        assert await scales.of(llm, "") == found  # type: ignore[arg-type]
    assert files_in(tmp_path) == [path]


@pytest.mark.parametrize(
    ("llm", "asked"), [(Opinionated(fails=True), 1), (Opinionated(silent=True), 48)]
)
async def test_of_a_model_without_an_opinion_nothing_is_kept(
    tmp_path: Path, llm: Opinionated, asked: int
) -> None:
    assert await WordScales(SENTENCES, "", tmp_path).of(llm, "") == {}  # type: ignore[arg-type]
    assert llm.asked == asked
    assert llm.opened == 0
    assert not files_in(tmp_path)


def test_a_sentence_without_its_cut_is_reported(tmp_path: Path) -> None:
    (tmp_path / "en.yaml").write_text("sentences: |\n  what is | this\n  not cut\n")
    with pytest.raises(ConfigError, match="'not cut' has no"):
        read_sentences(tmp_path)
