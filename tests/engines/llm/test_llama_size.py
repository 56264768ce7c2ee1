"""llama.cpp at full size: long contexts, sliding windows, cell types, GPUs; and their limits.

On random models made here, with the real model's vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.engines.contract import LlmSession
from pipeline.engines.llm.llama_api import library
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.errors import EngineError
from pipeline.messages import Message, Sampling
from tests.support import tiny_gguf
from tests.support.llama_talk import FRANCE, LONG, MODEL, SHORT_TOOLS, SPAIN, SYSTEM, answer, warm

pytestmark = [pytest.mark.engines, pytest.mark.real]

GREEDY = Sampling(temperature=0, repeat_penalty=1.3, max_tokens=12)
"""Without a penalty, random models loop."""
KINDS: list[dict[str, Any]] = [
    {"kv_type": "f16"},
    {"kv_type": "f16", "flash_attention": True},
    {"kv_type": "q8_0"},
    {"kv_type": "q8_0", "flash_attention": True},
    {"kv_type": "q4_0"},
]


@pytest.fixture(scope="module")
def vocabulary(weights: Callable[[str], Path]) -> dict[str, Any]:
    return tiny_gguf.tokenizer(next(weights(MODEL).glob("*.gguf")))


@pytest.fixture(scope="module")
def gemma(vocabulary: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of its three layers look back no further than 32 tokens."""
    path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    return tiny_gguf.language_model(path, vocabulary, "gemma3", window_tokens=32, seed=1)


def engine(path: Path, **options: Any) -> LlamaCpp:
    given = {"context_tokens": 2048, "sequences": 3, **options}
    return build(
        LlamaCppOptions(weights=None, model_file=str(path), threads=1, **given),
        None,
    )


def talk(session: LlmSession, turns: int = 4) -> tuple[list[str], list[tuple[int, int]]]:
    """A conversation: the answers, and for each prompt the tokens evaluated and cached."""
    messages, said, costs = [SYSTEM], [], []
    for number in range(turns):
        messages.append(Message("user", f"{FRANCE[1].content} For the {number}th time!"))
        text, end = answer(session, messages, sampling=GREEDY)
        messages.append(Message("assistant", text))
        said.append(text)
        costs.append((end.usage.evaluated, end.usage.cached))
    return said, costs


# --- sliding windows ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_64k_with_sliding_windows_and_every_kind_of_cells(
    gemma: Path, kind: dict[str, Any]
) -> None:
    made = engine(gemma, context_tokens=65_536, **kind)
    assert made.context_tokens == 65_536
    assert made._parts.model.window_tokens == 32
    said, costs = talk(made.open())
    assert len(set(said)) > 1, "what was said before matters"
    for evaluated, _ in costs[1:]:
        assert evaluated < 160, "only what is new, although a window has passed"
    again, _ = talk(engine(gemma, **kind).open())
    assert again == said


def test_cells_outside_the_window_are_read_again(gemma: Path) -> None:
    """Dropped cells are read again, and the answers are the same."""
    full = engine(gemma, context_tokens=4096)
    small = engine(gemma, context_tokens=4096, swa_full=False)
    cut = [*LONG, Message("assistant", "Madrid is"), SPAIN[1]]
    asked = (LONG, cut, LONG, SPAIN, cut)
    sessions = [full.open(), small.open()]
    read = [0, 0]
    for messages in asked:
        texts = []
        for number, session in enumerate(sessions):
            text, end = answer(session, messages, sampling=GREEDY)
            texts.append(text)
            read[number] += end.usage.evaluated
        assert texts[0] == texts[1] == alone(gemma, messages)
    assert read[1] > read[0]


def alone(path: Path, messages: list[Message], **how: Any) -> str:
    """The answer of a fresh engine."""
    return answer(engine(path).open(), messages, sampling=GREEDY, **how)[0]


@pytest.mark.parametrize("full", [True, False])
def test_saved_instructions_serve_prompts_that_share_part_of_them(
    gemma: Path, tmp_path: Path, full: bool
) -> None:
    """Only the window's cells are saved, so a prompt that shares less of them is read again."""
    options = {"saved_prefix_dir": tmp_path, "swa_full": full}
    warm(engine(gemma, **options).open(), [SYSTEM], SHORT_TOOLS)
    made = engine(gemma, **options)
    read = warm(made.open(), [SYSTEM], SHORT_TOOLS)
    assert read.evaluated == 0, "from disk"
    expected = alone(gemma, FRANCE, tools=SHORT_TOOLS[:2])
    text, end = answer(made.open(), FRANCE, tools=SHORT_TOOLS[:2], sampling=GREEDY)
    assert text == expected
    assert end.usage.cached < 20
    expected = alone(gemma, FRANCE, tools=SHORT_TOOLS)
    text, end = answer(made.open(), FRANCE, tools=SHORT_TOOLS, sampling=GREEDY)
    assert (text, end.usage.cached >= read.prompt - 1) == (expected, True)


@pytest.mark.parametrize("full", [True, False])
def test_sessions_in_a_full_context_answer_as_alone(gemma: Path, full: bool) -> None:
    """In a full context llama.cpp overwrites any session's cells outside the window."""
    made = engine(gemma, context_tokens=1024, swa_full=full)
    questions = [[SYSTEM, Message("user", f"{i}: {LONG[1].content}")] for i in range(4)]
    expected = [alone(gemma, messages) for messages in questions]
    sessions = [made.open() for _ in questions]
    for _ in range(3):
        for session, messages, text in zip(sessions, questions, expected, strict=True):
            assert answer(session, messages, sampling=GREEDY)[0] == text


# --- cells on disk, and the beginning of a conversation that goes ------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_saved_instructions_match_the_cell_type(
    gemma: Path, tmp_path: Path, kind: dict[str, Any]
) -> None:
    asked = [SYSTEM, FRANCE[1]]

    def made(**other: Any) -> LlamaCpp:
        return engine(gemma, saved_prefix_dir=tmp_path, **{**kind, **other})

    session = made().open()
    read = warm(session, [SYSTEM], SHORT_TOOLS)
    expected = answer(session, asked, tools=SHORT_TOOLS, sampling=GREEDY)[0]
    text, end = answer(made().open(), asked, tools=SHORT_TOOLS, sampling=GREEDY)
    assert (text, end.usage.cached >= read.prompt - 1) == (expected, True)
    other = "f16" if kind["kv_type"] != "f16" else "q8_0"
    assert warm(made(kv_type=other).open(), [SYSTEM], SHORT_TOOLS).cached < 20


# --- what does not fit together ----------------------------------------------------------------


def test_a_context_beyond_what_the_model_was_trained_for(
    vocabulary: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny_gguf.language_model(tmp_path / "m.gguf", vocabulary, trained_tokens=1024)
    with caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        made = engine(path, context_tokens=4096)
    assert "was trained for 1024 tokens: one conversation cannot be longer" in caplog.text
    assert made.context_tokens == 1024
    caplog.clear()
    with caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        assert engine(path, context_tokens=1024).context_tokens == 1024
    assert not caplog.messages


def test_heads_that_do_not_divide_into_blocks(vocabulary: dict[str, Any], tmp_path: Path) -> None:
    path = tiny_gguf.language_model(tmp_path / "m.gguf", vocabulary, head=16)
    with pytest.raises(EngineError, match=r"kept as q8_0: its .* 16 numbers.*kv_type to f16"):
        engine(path, kv_type="q8_0")
    assert answer(engine(path).open(), FRANCE, sampling=GREEDY)[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kv_type": "q4_0", "flash_attention": False}, "q4_0 needs flash attention"),
        ({"tensor_split": [1, 1]}, "set gpu_layers"),
        ({"tensor_split": [0, 0], "gpu_layers": -1}, "one of them above 0"),
        ({"tensor_split": [2, -1], "gpu_layers": -1}, "numbers of at least 0"),
        ({"split_mode": "column"}, "split_mode"),
        ({"kv_type": "q2_k"}, "kv_type"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_loaded(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        LlamaCppOptions(**options)


def test_layers_for_a_gpu_that_is_not_there(
    gemma: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library(), "llama_supports_gpu_offload", lambda: False)
    with caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        made = engine(gemma, gpu_layers=-1, tensor_split=[3, 1], main_gpu=1)
    assert "llm.gpu_layers is -1, but this llama.cpp finds no GPU" in caplog.text
    assert made._parts.context.slice_tokens == 64, "as on any CPU"


def test_layers_go_to_the_chosen_gpus(gemma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp takes the numbers; without a GPU their effect cannot be observed."""
    api, seen = library(), []
    load = api.llama_model_load_from_file
    devices = api.llama_max_devices()

    def watched(path: bytes, params: Any) -> Any:
        split = [params.tensor_split[i] for i in range(devices)] if params.tensor_split else None
        seen.append((params.n_gpu_layers, params.main_gpu, params.split_mode, split))
        params.main_gpu, params.split_mode = 0, 1
        return load(path, params)

    monkeypatch.setattr(api, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(api, "llama_model_load_from_file", watched)
    engine(gemma, gpu_layers=7, main_gpu=1, split_mode="none", tensor_split=[3, 1])
    engine(gemma, gpu_layers=-1, split_mode="row")
    split = [3.0, 1.0, *[0.0] * (devices - 2)]
    assert seen == [(7, 1, 0, split[:devices]), (-1, 0, 2, None)]
