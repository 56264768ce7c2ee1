"""Picks tokens: llama.cpp's samplers, and a grammar that may start in the middle."""

from __future__ import annotations

import ctypes
import secrets
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines import Grammar, Sampling
from pipeline.errors import EngineError
from pipeline.llm.llama_api import library, recent_problems
from pipeline.llm.llama_model import Model

_TOP_K = 128
"""Candidates that the later samplers look at; walking the whole vocabulary for penalties is slow,
and nothing below the first 128 has a chance."""
_PENALTY_TOKENS = 64
"""How far back a repetition counts (llama.cpp's default)."""
_SEED_BITS = 32

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""``llama_token_data``."""


class Sampler:
    """Chooses the tokens of one reply. Raises ``EngineError`` if the GBNF cannot be parsed.

    Repetition counts within the reply only, never against what the prompt says.
    """

    def __init__(self, model: Model, sampling: Sampling, grammar: Grammar | None) -> None:
        self._api = library()
        self._model = model
        self._chain = self._owned(_chain(self._api, model, sampling))
        self._grammar = self._parse(grammar.gbnf) if grammar else None
        self._trigger = grammar.trigger.encode() if grammar else b""
        self._constrained = grammar is not None and not self._trigger
        self._recent = b""
        self._candidates = np.zeros(model.vocab_tokens, dtype=_CANDIDATE)

    def sample(self, logits: NDArray[np.float32]) -> list[int]:
        """The next token. Float32 ``logits``, shape (vocabulary,).

        In the token that completes a trigger, what follows the trigger is cut off (the grammar
        has not seen it), and its first part may take several tokens.
        """
        token = self._choose(logits, constrained=False)
        if self._constrained and not self._allowed(token):
            # Most tokens fit the grammar by themselves, so the slow walk over the vocabulary
            # is for those that do not.
            token = self._choose(logits, constrained=True)
        self._api.llama_sampler_accept(self._chain, token)
        if self._constrained:
            if not self._model.ends(token):
                self._api.llama_sampler_accept(self._grammar, token)
        elif self._trigger:
            return self._look_for_trigger(token)
        return [token]

    def shows(self, token: int) -> bytes:
        """The text of a sampled token. A control token has one if the trigger contains it."""
        shown = self._model.piece(token)
        if shown or not self._trigger:
            return shown
        spelled = self._model.piece(token, special=True)
        return spelled if spelled in self._trigger else b""

    def _choose(self, logits: NDArray[np.float32], *, constrained: bool) -> int:
        found = self._candidates
        found["id"] = np.arange(len(found))
        found["logit"] = logits
        array = self._array(found)
        if constrained:
            self._api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        self._api.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)

    def _allowed(self, token: int) -> bool:
        one = np.zeros(1, dtype=_CANDIDATE)
        one["id"] = token
        array = self._array(one)
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        return bool(np.isfinite(one["logit"][0]))

    def _array(self, candidates: NDArray[np.void]) -> Any:
        data = candidates.ctypes.data_as(self._api.llama_token_data_p)
        return self._api.llama_token_data_array(data, len(candidates), -1, False)

    def _look_for_trigger(self, token: int) -> list[int]:
        piece = self._model.piece(token, special=True)
        before = len(self._recent)
        text = self._recent + piece
        at = text.find(self._trigger)
        if at < 0:
            self._recent = text[-len(self._trigger) :]
            return [token]
        self._constrained = True
        kept = piece[: at + len(self._trigger) - before]
        if kept == piece:
            return [token]
        return self._model.tokenize(kept.decode("utf-8", "ignore"), special=True) or [token]

    def _parse(self, gbnf: str) -> Any:
        recent_problems()
        parse = self._api.llama_sampler_init_grammar
        # llama.cpp takes an empty text for "no grammar".
        parsed = parse(self._model.vocab, gbnf.encode(), b"root") if gbnf.strip() else None
        if not parsed:
            raise EngineError(
                "The grammar for the answer cannot be used",
                why=recent_problems() or "it is not valid GBNF, or has no rule called root",
                fix="Correct the grammar",
            )
        return self._owned(parsed)

    def _owned(self, sampler: Any) -> Any:
        weakref.finalize(self, self._api.llama_sampler_free, sampler).atexit = False
        return sampler


def _chain(api: Any, model: Model, sampling: Sampling) -> Any:
    chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
    links = [
        api.llama_sampler_init_top_k(_TOP_K),
        api.llama_sampler_init_penalties(
            model.vocab_tokens, _PENALTY_TOKENS, sampling.repeat_penalty, 0.0, 0.0
        ),
    ]
    if sampling.temperature <= 0:
        links.append(api.llama_sampler_init_greedy())
    else:
        seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed
        links += [
            api.llama_sampler_init_top_p(sampling.top_p, 1),
            api.llama_sampler_init_min_p(sampling.min_p, 1),
            api.llama_sampler_init_temp(sampling.temperature),
            api.llama_sampler_init_dist(seed % 2**_SEED_BITS),
        ]
    for link in links:
        api.llama_sampler_chain_add(chain, link)
    return chain
