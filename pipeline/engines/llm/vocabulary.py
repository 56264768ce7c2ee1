"""A model's tokens, as llguidance reads them."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.engines.llm.llama_model import Model
from pipeline.errors import EngineError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_CONTROL = b"\xff"
"""Prefix of a token that no text may spell (llguidance's convention)."""


class Vocabulary:
    """Compiles grammars for one model. ``spelled``: control tokens that a grammar may spell."""

    def __init__(self, model: Model, control_texts: Collection[str]) -> None:
        self._model = model
        self._control_texts = control_texts

    def matcher(self, lark: str) -> LLMatcher:
        """Compile a grammar. Raises ``EngineError`` if it cannot be used."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, lark, log_level=0)
        if matcher.is_error():
            raise EngineError(
                "The grammar for the answer cannot be used",
                why=matcher.get_error().partition("\n")[0],
                fix="Simplify the schemas of the tools",
            )
        return matcher

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        """Takes 0.3 s for 49,000 tokens."""
        from llguidance import LLTokenizer, TokenizerWrapper

        ends = [token for token in range(self._model.vocab_tokens) if self._model.ends(token)]
        wrapper = TokenizerWrapper(_Tokens(self._model, self._control_texts, ends))
        return LLTokenizer(wrapper, n_vocab=self._model.vocab_tokens, eos_token=ends)


class _Tokens:
    """The attributes that ``TokenizerWrapper`` needs."""

    def __init__(self, model: Model, control_texts: Collection[str], ends: list[int]) -> None:
        self._model = model
        self.eos_token_id = ends[0]
        self.bos_token_id = None
        control = model.control_tokens
        self.special_token_ids = list(control)
        self.tokens = [model.piece(token) for token in range(model.vocab_tokens)]
        for token, text in control.items():
            mark = b"" if text in control_texts else _CONTROL
            self.tokens[token] = mark + text.encode()

    def __call__(self, text: str) -> list[int]:
        return self._model.tokenize(text, special=False)
