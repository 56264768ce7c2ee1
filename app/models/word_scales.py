"""What the language model's opinion of words is worth: measured once for each model, and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from pipeline.engines.stages import LlmStage
from pipeline.engines.word_scale import CutSentence, WordScale, measure
from pipeline.errors import ReachyVoiceError
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.llm")

Scales = dict[str, WordScale]
"""By language."""


class WordScales:
    """Those of models that were measured, in files of ``directory``."""

    def __init__(
        self, sentences: Mapping[str, Sequence[CutSentence]], instructions: str, directory: Path
    ) -> None:
        """``instructions``: of a usual conversation; they move the model's opinion."""
        self._sentences = sentences
        self._instructions = instructions
        self._directory = directory

    async def of(self, llm: LlmStage, identity: str) -> Scales:
        """``identity``: of the model. A model that fails, or has no opinion, has none."""
        told = json.dumps([identity, self._instructions, self._sentences])
        path = self._directory / f"{hashlib.sha256(told.encode()).hexdigest()}.json"
        if (kept := await asyncio.to_thread(_kept, path)) is not None:
            return kept
        scales: Scales = {}
        try:
            for language, sentences in self._sentences.items():
                if (scale := await measure(llm, sentences, self._instructions)) is None:
                    return {}
                scales[language] = scale
        except (ReachyVoiceError, Cancelled) as error:
            log.warning("the opinion of the language model was not measured: %s", error)
            return {}
        await asyncio.to_thread(_keep, path, scales)
        return scales


def _kept(path: Path) -> Scales | None:
    try:
        found = json.loads(path.read_text())
        return {language: WordScale(*map(float, scale)) for language, scale in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _keep(path: Path, scales: Scales) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: astuple(each) for key, each in scales.items()}))
    except OSError as problem:
        log.warning("Cannot keep what the opinion of the language model is worth: %s", problem)
