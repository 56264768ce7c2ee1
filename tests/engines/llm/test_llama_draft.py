"""A draft model: the same answers, in fewer passes of the large one, whatever it is worth."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.llm import draft as draft_module
from pipeline.engines.llm.draft import Draft
from pipeline.engines.llm.llama_context import Context
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.errors import EngineError, WeightsError
from pipeline.messages import Message, Sampling
from pipeline.work import Cancelled
from tests.support import tiny_gguf
from tests.support.llama_talk import (
    FRANCE,
    LONG,
    MODEL,
    SPAIN,
    SYSTEM,
    Token,
    answer,
    at_once,
    dialogue,
    replies,
    warm,
)

pytestmark = pytest.mark.real

ASKED = (
    "What is the capital of France?",
    "Count from one to twenty, and then again from one to twenty.",
    "Tell me a short story about a robot and a cat.",
)
GREEDY = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=32)
DRAWN = Sampling(temperature=0.9, seed=7, max_tokens=32)


@pytest.fixture(scope="module")
def directory(weights: Callable[[str], Path]) -> Path:
    return weights(MODEL)


@pytest.fixture(scope="module")
def whole(directory: Path) -> Path:
    return next(directory.glob("*.gguf"))


@pytest.fixture(scope="module")
def random_draft(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It knows the words and nothing else."""
    path = tmp_path_factory.mktemp("draft") / "random.gguf"
    return tiny_gguf.language_model(path, tiny_gguf.tokenizer(whole), seed=3)


def made(model: Path, draft: Path | None = None, **more: Any) -> LlamaCpp:
    """``model``: a directory of weights, or a file."""
    given = {"context_tokens": 2048, "draft": str(draft) if draft else None, **more}
    if model.is_dir():
        return build(LlamaCppOptions(threads=1, **given), model)
    return build(LlamaCppOptions(threads=1, weights=None, model_file=str(model), **given), None)


@pytest.fixture(scope="module")
def plain(directory: Path) -> LlamaCpp:
    return made(directory)


@pytest.fixture(scope="module")
def itself(directory: Path, whole: Path) -> LlamaCpp:
    """The best draft that there can be."""
    return made(directory, whole)


@pytest.fixture(scope="module")
def guessing(directory: Path, random_draft: Path) -> LlamaCpp:
    """The worst."""
    return made(directory, random_draft)


class Passes:
    """Counts what each context computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens: dict[Context, list[int]] = {}
        decode = Context.decode

        def counted(context: Context, tokens: Sequence[int], *rest: Any, **named: Any) -> Any:
            self.tokens.setdefault(context, []).append(len(tokens))
            return decode(context, tokens, *rest, **named)

        monkeypatch.setattr(Context, "decode", counted)

    def take(self, context: Context) -> list[int]:
        """The sizes of the passes since the last look."""
        return self.tokens.pop(context, [])


def draft_of(engine: LlamaCpp) -> Draft:
    assert engine._parts.draft
    return engine._parts.draft


def said(engine: LlamaCpp, question: str, sampling: Sampling) -> tuple[str, int]:
    session = engine.open()
    text, end = answer(session, [SYSTEM, Message("user", question)], sampling=sampling)
    session.close()
    return text, end.usage.generated


# --- the same answers --------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_the_answer_is_the_same(
    plain: LlamaCpp,
    itself: LlamaCpp,
    guessing: LlamaCpp,
    monkeypatch: pytest.MonkeyPatch,
    sampling: Sampling,
) -> None:
    """Where two tokens are about as likely, rounding decides: passes of other sizes add up in
    another order. No such place is in these answers."""
    passes = Passes(monkeypatch)
    for question in ASKED:
        expected = said(plain, question, sampling)
        for engine in (itself, guessing):
            assert said(engine, question, sampling) == expected
    before, best, worst = (
        len(passes.take(engine._parts.shared.context)) for engine in (plain, itself, guessing)
    )
    assert max(best, worst) <= before
    if sampling is GREEDY:
        assert best < 0.6 * before
        assert draft_of(itself).taken > 0.8 * draft_of(itself).guessed > 0


def test_wrong_guesses_change_nothing(
    plain: LlamaCpp, guessing: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a draft that is sure of itself without a reason."""
    monkeypatch.setattr(draft_module, "_SURE", 0.0)
    draft = draft_of(guessing)
    draft.guessed = draft.taken = 0
    for question in ASKED:
        assert said(guessing, question, GREEDY) == said(plain, question, GREEDY)
    assert draft.guessed > 150
    assert draft.taken < 0.05 * draft.guessed


def test_beside_prompt_lookup(directory: Path, whole: Path, plain: LlamaCpp) -> None:
    both = made(directory, whole, lookup_tokens=6, draft_tokens=2)
    rhyme = "Say this again, word for word: Row, row, row your boat, gently down the stream."
    for question in (rhyme, ASKED[0]):
        assert said(both, question, GREEDY) == said(plain, question, GREEDY)
    assert draft_of(both).guessed


# --- in a conversation -------------------------------------------------------------------------


def test_it_reads_ahead_as_well(random_draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made(random_draft, random_draft)
    passes = Passes(monkeypatch)
    session = engine.open()
    usage = warm(session, LONG)
    context = draft_of(engine)._context
    assert sum(passes.take(context)) == usage.prompt
    answer(session, LONG)
    read = passes.take(context)
    assert max(read) <= 2, "a token, and one that was guessed and came otherwise"


def test_a_conversation_goes_on_from_what_was_said(plain: LlamaCpp, itself: LlamaCpp) -> None:
    asked = (ASKED[1], ASKED[0])
    assert dialogue(itself, asked, GREEDY) == dialogue(plain, asked, GREEDY)


def test_two_who_talk_at_once_do_not_disturb_each_other(itself: LlamaCpp) -> None:
    asked = (FRANCE, SPAIN)
    alone = [answer(itself.open(), messages)[0] for messages in asked]
    assert at_once(itself, asked) == alone


@pytest.mark.parametrize("looks", [3, 12, 30])
def test_it_can_be_cancelled(itself: LlamaCpp, plain: LlamaCpp, looks: int) -> None:
    messages = [SYSTEM, Message("user", ASKED[1])]
    with pytest.raises(Cancelled):
        list(replies(itself.open(), messages, sampling=GREEDY, cancel=Token(cancel_after=looks)))
    assert said(itself, ASKED[0], GREEDY) == said(plain, ASKED[0], GREEDY)


def test_more_conversations_than_fit(directory: Path, whole: Path) -> None:
    small = made(directory, whole, context_tokens=512, sequences=2)
    texts = {answer(session, FRANCE)[0] for session in [small.open() for _ in range(4)]}
    assert len(texts) == 1


def test_a_closed_session_leaves_nothing_in_it(random_draft: Path) -> None:
    engine = made(random_draft, random_draft)
    session = engine.open()
    answer(session, FRANCE)
    held = [s for s in draft_of(engine)._cache._all if s.owner is session]
    assert held
    session.close()
    assert not [s for s in draft_of(engine)._cache._all if s.owner is session]
    assert not any(sequence.tokens for sequence in held)


# --- what it cannot do -------------------------------------------------------------------------


def test_prompts_that_are_too_long_for_it(
    whole: Path, random_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_module, "_SURE", 0.0)
    vocabulary = tiny_gguf.tokenizer(whole)
    short = tiny_gguf.language_model(tmp_path / "short.gguf", vocabulary, trained_tokens=128)
    engine = made(random_draft, short)
    before = draft_of(engine).guessed
    assert answer(engine.open(), LONG)[0] == answer(made(random_draft).open(), LONG)[0]
    assert draft_of(engine).guessed == before
    answer(engine.open(), FRANCE)
    assert draft_of(engine).guessed > before


def test_a_draft_that_fails(
    random_draft: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = made(random_draft, random_draft)

    def broken(*_: Any, **__: Any) -> Any:
        raise EngineError("The language model failed while it computed", why="it is broken")

    monkeypatch.setattr(draft_of(engine)._context, "decode", broken)
    with caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        assert answer(engine.open(), FRANCE)[0] == answer(made(random_draft).open(), FRANCE)[0]
        assert warm(engine.open(), SPAIN).prompt
    assert caplog.text.count("llm.draft is not used any more") == 1


def test_another_vocabulary_is_refused(whole: Path, random_draft: Path, tmp_path: Path) -> None:
    vocabulary = tiny_gguf.tokenizer(whole)
    words = list(vocabulary["tokenizer.ggml.tokens"])
    words[400], words[401] = words[401], words[400]
    other = {**vocabulary, "tokenizer.ggml.tokens": words}
    path = tiny_gguf.language_model(tmp_path / "other.gguf", other)
    with pytest.raises(EngineError, match=r"vocabularies differ: token 400 is .*same family"):
        made(random_draft, path)
    kinds = vocabulary["tokenizer.ggml.token_type"]
    fewer = {"tokenizer.ggml.tokens": words[:40_000], "tokenizer.ggml.token_type": kinds[:40_000]}
    path = tiny_gguf.language_model(tmp_path / "fewer.gguf", {**vocabulary, **fewer})
    with pytest.raises(EngineError, match=r"has 40000 tokens, and .* has 49152"):
        made(random_draft, path)


def test_a_draft_that_is_not_there(random_draft: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"The file of llm\.draft is missing: .*small\.gguf"):
        made(random_draft, Path("small.gguf"))
    with pytest.raises(WeightsError, match=r"there is no .*small\.gguf"):
        made(random_draft, tmp_path / "small.gguf")
