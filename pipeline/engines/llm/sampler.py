"""Picks tokens: llama.cpp's samplers, and a grammar for as long as one is set."""

from __future__ import annotations

import ctypes
import logging
import secrets
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_api import library, recent_problems
from pipeline.engines.llm.llama_model import Model
from pipeline.errors import EngineError
from pipeline.messages import Sampling

log = logging.getLogger("reachy_voice.llm")

_TOP_K = 128
"""Candidates that the later samplers look at; walking the whole vocabulary for penalties is slow,
and nothing below the first 128 has a chance."""
_PENALTY_TOKENS = 64
"""How far back a repetition counts (llama.cpp's default)."""
_SEED_BITS = 32
_MOST_SECONDS = 0.1
"""Of processor time in which a grammar takes one token in: microseconds as a rule. Rules are made
so that it stays so; this is for those that escape, before a token takes minutes."""
_MOST_WALK_SECONDS = 5.0
"""The same for looking at the whole vocabulary."""

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""``llama_token_data``."""


class Sampler:
    """Chooses the tokens of one reply.

    Repetition counts within the reply only, never against what the prompt says; and not under
    a grammar, whose signs have to repeat. ``hidden``: tokens that say nothing; llama.cpp's
    grammars take their spelling for text, so they are not to be taken under one.
    """

    def __init__(self, model: Model, sampling: Sampling, hidden: Collection[int] = ()) -> None:
        self._api = library()
        self._model = model
        self._sampling = sampling
        self._seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed
        self._free_chain = self._chain(penalties=True)
        self._bound_chain: Any = None
        self._grammar: Any = None
        self._grammars: dict[str, Any] = {}
        self._hidden = np.zeros(model.vocab_tokens, dtype=np.bool_)
        self._hidden[list(hidden)] = True
        self._seconds = 0.0
        """What llama.cpp's grammar took last, of processor time."""
        self._candidates = np.zeros(model.vocab_tokens, dtype=_CANDIDATE)

    # --- grammar

    @property
    def bound(self) -> bool:
        """Whether a grammar is set."""
        return self._grammar is not None

    def bind(self, gbnf: str) -> None:
        """Let only tokens through that ``gbnf`` allows, from its beginning on.

        Raises ``EngineError`` if llama.cpp cannot read it.
        """
        if gbnf in self._grammars:
            self._api.llama_sampler_reset(self._grammars[gbnf])
        else:
            self._grammars[gbnf] = self._parsed(gbnf)
        self._grammar = self._grammars[gbnf]
        self._seconds = 0.0
        if self._bound_chain is None:
            self._bound_chain = self._chain(penalties=False)

    def release(self) -> None:
        """Let everything through again."""
        self._grammar = None

    # --- choosing

    def sample(
        self,
        logits: NDArray[np.float32],
        *,
        refused: Callable[[int], bool] | None = None,
        preferred: Sequence[int] = (),
    ) -> int | None:
        """The next token; ``None`` if the grammar allows none at all, or takes too long.

        Float32 ``logits``, shape (vocabulary,). ``refused``: tokens that are not to be taken,
        where there is no grammar. ``preferred``: tokens that are taken before any other if the
        grammar allows them, the first that it does.
        """
        if self.bound and self._seconds > _MOST_SECONDS:
            log.warning("The grammar of a tool call takes too long, and the answer is ended")
            return None
        token = self._bound_choice(logits, preferred) if self.bound else self._free(logits, refused)
        if token is not None:
            self._api.llama_sampler_accept(self._free_chain, token)
            # llama.cpp ends the process when a grammar is told of an end that it did not expect.
            if self.bound and not self._model.ends(token):
                start = time.thread_time()
                self._api.llama_sampler_accept(self._grammar, token)
                self._seconds = time.thread_time() - start
        return token

    def _free(
        self, logits: NDArray[np.float32], refused: Callable[[int], bool] | None
    ) -> int | None:
        without: list[int] = []
        while True:
            candidates = self._all(logits)
            candidates["logit"][without] = -np.inf
            token = self._pick(candidates, self._free_chain)
            if refused is None or token is None or not refused(token):
                return token
            without.append(token)

    def _bound_choice(self, logits: NDArray[np.float32], preferred: Sequence[int]) -> int | None:
        if wanted := [one for one in preferred if self._allowed(np.array([one])).size]:
            return wanted[0]
        token = self._pick(self._all(logits), self._bound_chain)
        if token is not None and self._allowed(np.array([token])).size:
            # Most tokens fit the grammar by themselves.
            return token
        # The walk over the whole vocabulary takes long, so the likely ones come first.
        likely = np.argpartition(logits, -_TOP_K)[-_TOP_K:]
        self._seconds = 0.0
        for ids in (likely, np.arange(len(logits))):
            if self._seconds * len(ids) / _TOP_K > _MOST_WALK_SECONDS:
                log.warning("The grammar of a tool call takes too long, and the answer is ended")
                return None
            allowed = self._allowed(ids)
            if allowed.size:
                found = np.zeros(len(allowed), dtype=_CANDIDATE)
                found["id"], found["logit"] = allowed, logits[allowed]
                return self._pick(found, self._bound_chain)
        return None

    def _all(self, logits: NDArray[np.float32]) -> NDArray[np.void]:
        self._candidates["id"] = np.arange(len(self._candidates))
        self._candidates["logit"] = logits
        return self._candidates

    def _pick(self, candidates: NDArray[np.void], chain: Any) -> int | None:
        array = self._array(candidates)
        self._api.llama_sampler_apply(chain, ctypes.byref(array))
        chosen = array.data[array.selected]
        return int(chosen.id) if array.selected >= 0 and chosen.logit > -np.inf else None

    def _allowed(self, ids: NDArray[Any]) -> NDArray[np.int32]:
        """Those of the tokens ``ids`` that the grammar lets through."""
        found = np.zeros(len(ids), dtype=_CANDIDATE)
        found["id"] = ids
        array = self._array(found)
        # Around llama.cpp alone: Python's garbage collector may take its time in between.
        start = time.thread_time()
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(array))
        self._seconds = time.thread_time() - start
        allowed: NDArray[np.int32] = found["id"][np.isfinite(found["logit"])]
        return allowed[~self._hidden[allowed]]

    def _array(self, candidates: NDArray[np.void]) -> Any:
        data = candidates.ctypes.data_as(self._api.llama_token_data_p)
        return self._api.llama_token_data_array(data, len(candidates), -1, False)

    # --- llama.cpp's objects

    def _parsed(self, gbnf: str) -> Any:
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

    def _chain(self, *, penalties: bool) -> Any:
        api, sampling = self._api, self._sampling
        chain = self._owned(api.llama_sampler_chain_init(api.llama_sampler_chain_default_params()))
        links = [api.llama_sampler_init_top_k(_TOP_K)]
        if penalties:
            repeat = sampling.repeat_penalty
            vocabulary = self._model.vocab_tokens
            links.append(
                api.llama_sampler_init_penalties(vocabulary, _PENALTY_TOKENS, repeat, 0.0, 0.0)
            )
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

    def _owned(self, sampler: Any) -> Any:
        weakref.finalize(self, self._api.llama_sampler_free, sampler).atexit = False
        return sampler
