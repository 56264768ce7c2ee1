"""The opinion of a language model is measured once, and kept for that model and those sentences."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from app.models.word_scales import WordScales
from app.settings.languages import read_sentences
from app.settings.load import config_dir
from pipeline.engines.contract import Warmed
from pipeline.errors import ConfigError, EngineError
from pipeline.messages import LlmRequest
from pipeline.work import Work

SENTENCES = read_sentences(config_dir() / "languages")
CUT = {beginning for pairs in SENTENCES.values() for beginning, _ in pairs}


class Opinionated:
    """An LLM that knows which words are cut, more or less; ``silent`` has no opinion."""

    def __init__(self, fails: bool = False, silent: bool = False) -> None:
        self.asked = 0
        self.open_conversations = 0
        self._fails, self._silent = fails, silent

    def open(self) -> Opinionated:
        self.open_conversations += 1
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
        self.open_conversations -= 1


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_each_language_is_measured_once_for_a_model(tmp_path: Path) -> None:
    scales, llm = WordScales(SENTENCES, "Be kind.", tmp_path), Opinionated()
    found = await scales.of(llm, "a model")  # type: ignore[arg-type]
    assert list(found) == ["de", "en", "es", "fr", "it", "nl", "pt"]
    assert all(0.003 < each.even < 0.3 and each.slope > 0.5 for each in found.values())
    asked = llm.asked
    assert asked == 2 * 7 * 24
    assert await scales.of(llm, "a model") == found  # type: ignore[arg-type]
    assert llm.asked == asked
    await scales.of(llm, "another model")  # type: ignore[arg-type]
    assert llm.asked == 2 * asked
    assert llm.open_conversations == 0


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
    assert llm.open_conversations == 0
    assert not files_in(tmp_path)


def test_a_sentence_without_its_cut_is_reported(tmp_path: Path) -> None:
    (tmp_path / "en.yaml").write_text("sentences: |\n  what is | this\n  not cut\n")
    with pytest.raises(ConfigError, match="'not cut' has no"):
        read_sentences(tmp_path)
