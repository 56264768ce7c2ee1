"""Picks tokens: llama.cpp's samplers, and llguidance's mask while a grammar is set."""

from __future__ import annotations

import ctypes
import logging
import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_api import library
from pipeline.engines.llm.llama_model import Model
from pipeline.messages import Sampling

if TYPE_CHECKING:
    from llguidance import LLMatcher

log = logging.getLogger("reachy_voice.llm")

_TOP_K = 128
"""Candidates for the later samplers: penalties on the whole vocabulary are slow, and tokens beyond
the first 128 have no chance."""
_PENALTY_TOKENS = 64
"""How far back a repetition counts (llama.cpp's default)."""
_DRY_BASE = 1.75
"""Factor by which the penalty grows with each further token of a phrase (llama.cpp's default)."""
_DRY_FREE_TOKENS = 6
"""Phrases up to this length may be repeated: names, sums and facts must be able to recur."""
_DRY_ANSWERS, _DRY_TOKENS = 16, 1024
"""How many earlier answers count, and how many tokens of them."""
_SEED_BITS = 32
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""``llama_token_data``."""


class Sampler:
    """Chooses the tokens of one reply.

    The repetition penalties count only tokens of the reply and phrases of earlier ``answers``, not
    the rest of the prompt. Under a grammar they are off, as its marks have to repeat.
    """

    def __init__(self, model: Model, sampling: Sampling, answers: Sequence[str] = ()) -> None:
        self._api = library()
        self._model = model
        self._sampling = sampling
        self._answers = answers[-_DRY_ANSWERS:]
        self._seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed
        self._free_chain = self._chain(penalties=True)
        self._bound_chain: Any = None
        self._grammar: LLMatcher | None = None
        self._candidates = np.zeros(model.vocab_tokens, dtype=_CANDIDATE)

    # --- grammar

    @property
    def bound(self) -> bool:
        """Whether a grammar is set."""
        return self._grammar is not None

    def bind(self, grammar: LLMatcher) -> None:
        """Allow only tokens that ``grammar`` allows in its current state."""
        self._grammar = grammar
        if self._bound_chain is None:
            self._bound_chain = self._chain(penalties=False)

    def release(self) -> None:
        """Allow all tokens again."""
        self._grammar = None

    # --- choosing

    def sample(
        self,
        logits: NDArray[np.float32],
        *,
        is_refused: Callable[[int], bool] | None = None,
        preferred_tokens: Sequence[int] = (),
    ) -> int | None:
        """The next token; ``None`` if the grammar allows no token or is too complex to continue.

        ``logits``: float32, shape (vocabulary,). ``is_refused`` applies only without a grammar;
        with one, the first of the ``preferred_tokens`` that it allows is taken.
        """
        grammar = self._grammar
        if grammar is None:
            token = self._free(logits, is_refused)
        else:
            token = self._bound_choice(grammar, logits, preferred_tokens)
            if token is None or not (self._model.ends(token) or grammar.consume_token(token)):
                log.warning("A tool call cannot continue: %s", grammar.get_error() or "none fits")
                return None
        if token is not None:
            self._api.llama_sampler_accept(self._free_chain, token)
        return token

    def _free(
        self, logits: NDArray[np.float32], is_refused: Callable[[int], bool] | None
    ) -> int | None:
        without: list[int] = []
        while True:
            candidates = self._all(logits)
            candidates["logit"][without] = -np.inf
            token = self._pick(candidates, self._free_chain)
            if is_refused is None or token is None or not is_refused(token):
                return token
            without.append(token)

    def _bound_choice(
        self, grammar: LLMatcher, logits: NDArray[np.float32], preferred_tokens: Sequence[int]
    ) -> int | None:
        bits = np.frombuffer(grammar.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, count=len(logits), bitorder="little").view(np.bool_)
        if grammar.is_error():
            return None
        if choices := [token for token in preferred_tokens if allowed[token]]:
            return choices[0]
        return self._pick(self._all(np.where(allowed, logits, -np.inf)), self._bound_chain)

    def _all(self, logits: NDArray[np.float32]) -> NDArray[np.void]:
        self._candidates["id"] = np.arange(len(self._candidates))
        self._candidates["logit"] = logits
        return self._candidates

    def _pick(self, candidates: NDArray[np.void], chain: Any) -> int | None:
        data = candidates.ctypes.data_as(self._api.llama_token_data_p)
        array = self._api.llama_token_data_array(data, len(candidates), -1, False)
        self._api.llama_sampler_apply(chain, ctypes.byref(array))
        choice = array.data[array.selected]
        return int(choice.id) if array.selected >= 0 and choice.logit > -np.inf else None

    # --- llama.cpp's objects

    def _chain(self, *, penalties: bool) -> Any:
        api, sampling = self._api, self._sampling
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        weakref.finalize(self, api.llama_sampler_free, chain).atexit = False
        links = [api.llama_sampler_init_top_k(_TOP_K)]
        if penalties:
            repeat = sampling.repeat_penalty
            arguments = self._model.vocab_tokens, _PENALTY_TOKENS, repeat, 0.0, 0.0
            links.append(api.llama_sampler_init_penalties(*arguments))
        if penalties and sampling.dry_multiplier:
            links.append(self._dry())
        if sampling.temperature <= 0:
            links.append(api.llama_sampler_init_greedy())
        else:
            links += [
                api.llama_sampler_init_top_p(sampling.top_p, 1),
                api.llama_sampler_init_min_p(sampling.min_p, 1),
                api.llama_sampler_init_temp(sampling.temperature),
                api.llama_sampler_init_dist(self._seed % 2**_SEED_BITS),
            ]
        for link in links:
            api.llama_sampler_chain_add(chain, link)
        return chain

    def _dry(self) -> Any:
        """A sampler that penalises phrases of earlier answers and those that recur in this one."""
        api, model = self._api, self._model
        arguments = self._sampling.dry_multiplier, _DRY_BASE, _DRY_FREE_TOKENS, _DRY_TOKENS, None, 0
        link = api.llama_sampler_init_dry(model.vocab, *arguments)
        for answer in self._answers:
            for token in (*model.tokenize(answer, special=False), model.eos):
                api.llama_sampler_accept(link, token)
        return link
