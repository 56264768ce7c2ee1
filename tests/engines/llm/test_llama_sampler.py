"""Sampling tokens with llama.cpp's samplers and with a grammar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher
from numpy.typing import NDArray

from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.vocabulary import Vocabulary
from pipeline.errors import EngineError
from pipeline.messages import Sampling

pytestmark = [pytest.mark.engines, pytest.mark.real]

Logits = NDArray[np.float32]


def random_logits(model: Model, rows: int) -> Logits:
    return np.random.default_rng(0).normal(size=(rows, model.vocab_tokens)).astype(np.float32)


def grammar(model: Model, lark: str) -> LLMatcher:
    return Vocabulary(model, ()).matcher(lark)


def written(model: Model, lark: str, **how: Any) -> str:
    """Random output within the grammar."""
    sampler = Sampler(model, Sampling(seed=1))
    sampler.bind(grammar(model, lark))
    data = b""
    for row in random_logits(model, 40):
        token = sampler.sample(row, **how)
        if token is None or model.ends(token):
            break
        data += model.piece(token)
    return data.decode()


def test_sampling_follows_its_seed(model: Model) -> None:
    logits = random_logits(model, 20)

    def pick(**how: Any) -> list[int | None]:
        sampler = Sampler(model, Sampling(**how))
        return [sampler.sample(row) for row in logits]

    assert pick(seed=7) == pick(seed=7)
    assert len({tuple(pick(seed=seed, min_p=0)) for seed in (1, 2, None, None)}) == 4
    assert pick(temperature=0) == logits.argmax(axis=1).tolist()


def test_phrases_said_before_are_penalised_unless_they_are_short(model: Model) -> None:
    answer = model.tokenize("One two three four five six seven eight nine.", special=False)
    said = "".join(model.piece(token).decode() for token in answer)
    (other,) = model.tokenize(" other", special=False)

    def written(*answers: str, multiplier: float = 1, times: int = 1) -> list[int | None]:
        """The tokens picked when the old answer is always slightly likelier than another word."""
        how = Sampling(temperature=0, repeat_penalty=1, dry_multiplier=multiplier)
        sampler, found = Sampler(model, how, answers), []
        for token in answer * times:
            logits = np.zeros(model.vocab_tokens, dtype=np.float32)
            logits[token], logits[other] = 5.5, 5.0
            found.append(sampler.sample(logits))
        return found

    assert written() == written(said, multiplier=0) == answer
    assert written(said)[:6] == answer[:6], "names and facts may come back"
    assert other in written(said)
    assert other in written("Nothing.", said, "Well.")
    assert other in written(times=2), "in the first answer"


def test_repetition_is_penalised_but_not_under_a_grammar(model: Model) -> None:
    logits = np.zeros(model.vocab_tokens, dtype=np.float32)
    some, others = model.tokenize("ab", special=False)[0], model.tokenize("c", special=False)[0]
    logits[[some, others]] = 5.0, 4.9
    sampler = Sampler(model, Sampling(temperature=0, repeat_penalty=1.1))
    assert [sampler.sample(logits) for _ in range(2)] == [some, others]
    sampler = Sampler(model, Sampling(temperature=0, repeat_penalty=1.1))
    sampler.bind(grammar(model, "start: /[a-z]*/"))
    assert [sampler.sample(logits) for _ in range(3)] == [some] * 3


def test_a_token_can_be_refused(model: Model) -> None:
    logits = random_logits(model, 1)[0]
    best = np.argsort(logits)[::-1]
    sampler = Sampler(model, Sampling(temperature=0))
    assert sampler.sample(logits, is_refused=lambda token: token in best[:3]) == best[3]


def test_a_grammar_can_be_released_and_bound_again(model: Model) -> None:
    sampler = Sampler(model, Sampling(temperature=0))
    (token,) = model.tokenize("7", special=False)
    logits = random_logits(model, 1)[0]
    logits[token] = 100
    for _ in range(2):
        sampler.bind(grammar(model, 'start: /[a-z]/ "7"'))
        assert sampler.sample(logits) != token
        assert sampler.sample(logits) == token
        sampler.release()
        assert sampler.sample(logits) == token


def test_a_grammar_that_allows_nothing_gives_no_token(model: Model) -> None:
    sampler = Sampler(model, Sampling())
    broken = grammar(model, 'start: "a"')
    assert not broken.consume_token(model.tokenize("b", special=False)[0])
    sampler.bind(broken)
    assert sampler.sample(random_logits(model, 1)[0]) is None


@pytest.mark.parametrize("lark", ['start: "', 'other: "a"', "start: %json 3", ""])
def test_a_bad_grammar_says_so(model: Model, lark: str) -> None:
    with pytest.raises(EngineError, match="grammar"):
        grammar(model, lark)
