"""How well a language model judges words: measured once per model, and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from math import isfinite
from pathlib import Path

from app.write_whole import write_whole
from pipeline.engines.stages import LlmStage
from pipeline.engines.word_scale import UNMEASURED, CutSentence, WordScale, fitted
from pipeline.errors import ReachyVoiceError
from pipeline.messages import LlmRequest, Message
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.llm")

_FEWEST = 8
"""A scale needs opinions on at least this many cut, and as many whole, sentences."""

Scales = dict[str, WordScale]
"""The scales by language."""


class WordScales:
    """Scales of the models measured so far, in files in ``directory``."""

    def __init__(
        self, sentences: Mapping[str, Sequence[CutSentence]], instructions: str, directory: Path
    ) -> None:
        """``instructions``: a usual conversation's, because they affect the judgement."""
        self._sentences = sentences
        self._instructions = instructions
        self._directory = directory

    async def of(self, llm: LlmStage, identity: str) -> Scales:
        """Scales of the model ``identity``; empty if it fails or cannot judge words."""
        key = json.dumps([identity, self._instructions, self._sentences, astuple(UNMEASURED)])
        path = self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if (saved := await asyncio.to_thread(_load, path)) is not None:
            return saved
        scales: Scales = {}
        try:
            for language, sentences in self._sentences.items():
                if (scale := await _measure(llm, sentences, self._instructions)) is None:
                    return {}
                scales[language] = scale
        except (ReachyVoiceError, Cancelled) as error:
            log.warning("could not measure how well the language model judges words: %s", error)
            return {}
        await asyncio.to_thread(_save, path, scales)
        return scales


async def _measure(
    llm: LlmStage, sentences: Sequence[CutSentence], instructions: str
) -> WordScale | None:
    """``None`` if the model has no opinion. Raises what the model raises."""
    system = (Message("system", instructions),)
    cut: list[float] = []
    whole: list[float] = []
    conversation = llm.open()
    try:
        for beginning, rest in sentences:
            for text, opinions in ((beginning, cut), (f"{beginning} {rest}", whole)):
                request = LlmRequest(system, unfinished=text)
                result = await conversation.warm(request, Work(Priority.WARM_UP))
                if result.end_probability is not None:
                    opinions.append(result.end_probability)
    finally:
        conversation.close()
    return fitted(cut, whole) if min(len(cut), len(whole)) >= _FEWEST else None


def _load(path: Path) -> Scales | None:
    try:
        data = json.loads(path.read_text())
        scales = {language: WordScale(*map(float, scale)) for language, scale in data.items()}
        usable = all(isfinite(s.slope) and isfinite(s.even) and s.even > 0 for s in scales.values())
        return scales if scales and usable else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _save(path: Path, scales: Scales) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({key: astuple(each) for key, each in scales.items()}))
    except OSError as problem:
        log.warning("cannot save how well the language model judges words: %s", problem)
