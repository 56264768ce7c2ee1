"""The small real model, loaded once for all tests that need nothing special."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.engines.llm.llama_model import Model
from tests.support.llama_talk import FRANCE, LONG, MODEL, SPAIN, answer, forget, nudge

Says = Callable[..., None]


@pytest.fixture(scope="package")
def directory(weights: Callable[[str], Path]) -> Path:
    return weights(MODEL)


@pytest.fixture(scope="package")
def model(directory: Path) -> Model:
    """The model with its weights as in the file."""
    return Model(next(directory.glob("*.gguf")), LlamaCppOptions(requantize=False))


@pytest.fixture(scope="package")
def shared_engine(directory: Path) -> LlamaCpp:
    """An engine that saves no prefixes."""
    return build(LlamaCppOptions(threads=1, context_tokens=2048), directory)


@pytest.fixture
def engine(shared_engine: LlamaCpp) -> LlamaCpp:
    """The shared engine with empty cells."""
    forget(shared_engine)
    return shared_engine


@pytest.fixture(scope="module")
def small(directory: Path) -> LlamaCpp:
    """An engine with two sequences and cells for about two long prompts."""
    return build(LlamaCppOptions(threads=1, context_tokens=512, sequences=2), directory)


@pytest.fixture(scope="package")
def alone(shared_engine: LlamaCpp) -> dict[str, str]:
    """What the model answers when it has no other work and empty cells."""
    open = shared_engine.open
    prompts = {"france": FRANCE, "spain": SPAIN, "long": LONG}
    return {name: answer(open(), prompt)[0] for name, prompt in prompts.items()}


@pytest.fixture
def says(model: Model, monkeypatch: pytest.MonkeyPatch) -> Says:
    """``says("One.", "Two.")``: makes the model say that and then end, where no grammar is set."""
    return functools.partial(nudge, monkeypatch, model)
