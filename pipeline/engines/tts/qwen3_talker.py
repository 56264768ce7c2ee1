"""The part of Qwen3-TTS that writes codes: frames of up to ``ROWS`` clauses, made together.

A talker gives the first code of each frame of 80 ms, and a predictor the other 15. On an NVIDIA GPU
a frame of all rows is one CUDA graph: what takes the time there is launching some 2,000 small
kernels, not computing, so four clauses cost hardly more than one. Elsewhere rows take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pipeline.engines.tts.qwen3_codes import Clause
from pipeline.engines.tts.qwen3_network import Stack
from pipeline.errors import EngineError

ROWS = 4
"""Clauses at once. A further one waits until one of them is through."""
LENGTH = 768
"""Positions of a row: its prompt, some 10 and a token for each 4 letters, and 61 s less that."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a code is chosen, as the model's ``generation_config.json`` has it."""

    sample: bool
    top_k: int
    top_p: float
    temperature: float
    repetition: float = 1.0

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """(b,) codes from (b, codes) logits in float32. ``noise``: (b, ``top_k``), exponentially
        distributed: the code whose probability divided by it is largest is drawn as by chance."""
        if not self.sample:
            return logits.argmax(-1)
        values, codes = (logits / self.temperature).topk(noise.shape[-1])
        likely = values.softmax(-1)
        if self.top_p < 1:
            likely = likely * (likely.cumsum(-1) - likely < self.top_p)
        return codes.gather(-1, (likely / noise).argmax(-1, keepdim=True))[:, 0]


@dataclass(eq=False)
class Row:
    """A clause that is being made. ``codes``: of frames that nobody has taken yet, (1, 16) on the
    device, each with its first code."""

    number: int
    limit: int
    random: torch.Generator
    codes: deque[tuple[int, Tensor]] = field(default_factory=deque)
    frames: int = 0
    ended: bool = False
    """Whether the model itself ended it."""
    closed: bool = False
    """No more frames come: it ended, reached its limit, or was abandoned."""


class _Prompt(BaseException):
    """What the package would now generate from."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class Talker:
    """One model. Not thread-safe; clauses may take turns.

    ``look`` is called before each layer where rows take turns; what it raises ends the pass, and
    the row goes on from where it was.
    """

    def __init__(self, model: Any, together: bool) -> None:
        """``model``: a ``qwen_tts.Qwen3TTSModel`` with voices of its own; ``together``: make a
        frame of all rows at once, by a graph if on CUDA."""
        self._package = model
        talker = model.model.talker
        talker.generate = _give_prompt
        self._config = talker.config
        self.look: Callable[[], None] = _nothing
        self._embed = talker.get_input_embeddings()
        self._head = talker.codec_head
        self._project = talker.code_predictor.small_to_mtp_projection
        self._embeds = talker.code_predictor.get_input_embeddings()
        self._heads = talker.code_predictor.lm_head
        self._layers = Stack(talker.model, ROWS, LENGTH, self._looked)
        groups = int(self._config.num_code_groups)
        self._predictor = Stack(talker.code_predictor.model, ROWS, groups, self._looked)
        self._rows: dict[int, Row] = {}
        self._together = together
        self._graph: torch.cuda.CUDAGraph | None = None
        with torch.inference_mode():
            self._learn()
            self._make_buffers(groups)

    # -- clauses

    def begin(self, clause: Clause) -> Row | None:
        """Read a clause's prompt; ``None`` if all rows are taken. Raises ``EngineError``."""
        number = next((n for n in range(ROWS) if n not in self._rows), None)
        if number is None:
            return None
        prompt: Tensor = self._prompt(clause)["inputs_embeds"]
        length = prompt.shape[1]
        if length >= LENGTH - 2:
            raise EngineError(
                "Qwen3-TTS cannot say this clause",
                why=f"its prompt has {length} tokens, {LENGTH} with its speech is the most",
                fix="Shorten tts.instruct",
            )
        random = torch.Generator(prompt.device)
        if clause.seed is None:
            random.seed()
        else:
            random.manual_seed(clause.seed)
        row = Row(number, min(clause.limit, LENGTH - length - 1), random)
        with torch.inference_mode():
            self._read(row, prompt)
        self._rows[number] = row
        return row

    def advance(self, row: Row | None) -> None:
        """Make the next frame of ``row``, and of all rows whose frames were taken. ``None``: of
        all rows, so that one of them ends and makes room. Raises what ``look`` raises."""
        active = [each for each in self._rows.values() if row in (None, each) or not each.codes]
        if row and not self._together:
            active = [row]
        with torch.inference_mode():
            for each in active:
                self._noise[each.number].exponential_(generator=each.random)
            if self._together:
                numbers = [each.number for each in active]
                self._active.copy_(torch.tensor([n in numbers for n in range(ROWS)]))
                self._all_rows()
            else:
                for each in active:
                    self._frame(slice(each.number, each.number + 1))
            frames, found = self._codes.clone(), self._found.tolist()
        for each in active:
            self._take(each, frames[each.number : each.number + 1], *found[each.number])

    def close(self, row: Row) -> None:
        row.closed = True
        if self._rows.get(row.number) is row:
            del self._rows[row.number]

    def _take(self, row: Row, frame: Tensor, first: int, following: int) -> None:
        row.codes.append((first, frame))
        row.frames += 1
        row.ended = following == self._end
        if row.ended or row.frames == row.limit:
            self.close(row)

    # -- the model

    def _prompt(self, clause: Clause) -> Mapping[str, Any]:
        """What the package makes of a clause, up to where it would begin to generate."""
        try:
            with torch.inference_mode():
                self._package.generate_custom_voice(
                    clause.text,
                    speaker=clause.voice,
                    language=clause.language,
                    instruct=clause.instruct or None,
                )
        except _Prompt as prompt:
            return prompt.arguments
        raise EngineError("qwen_tts made no prompt", fix="Report it: the package has changed")

    def _learn(self) -> None:
        """Take from a first prompt what is the same in all of them."""
        voices, languages = self._config.spk_id, self._config.codec_language_id
        clause = Clause("Hello.", next(iter(voices)), next(iter(languages)), "", 1, None)
        found = self._prompt(clause)
        self._pad: Tensor = found["tts_pad_embed"][:, 0]
        self._end = int(found["eos_token_id"])
        predictor = self._package.model.talker.code_predictor
        self._sampling = _sampling(
            found, "", self._config.vocab_size, found["repetition_penalty"]
        )
        self._others = _sampling(found, "subtalker_", predictor.vocab_size)
        never = torch.zeros(self._config.vocab_size, dtype=torch.bool, device=self._pad.device)
        never[found["suppress_tokens"]] = True
        self._never = never

    def _make_buffers(self, groups: int) -> None:
        """What a frame reads and writes: a graph knows only places in memory."""
        device, width = self._pad.device, self._pad.shape[-1]
        whole = {"dtype": torch.long, "device": device}
        most = max(self._sampling.top_k, self._others.top_k)
        self._hidden = self._pad.new_zeros(ROWS, width)
        self._next = torch.zeros(ROWS, **whole)
        self._starts = torch.zeros(ROWS, **whole)
        self._positions = torch.zeros(ROWS, **whole)
        self._said = torch.zeros(
            ROWS, self._config.vocab_size, dtype=torch.bool, device=device
        )
        self._active = torch.ones(ROWS, dtype=torch.bool, device=device)
        self._noise = torch.ones(ROWS, groups, most, device=device)
        self._codes = torch.zeros(ROWS, groups, **whole)
        self._found = torch.zeros(ROWS, 2, **whole)
        self._steps = [torch.tensor([[0, 1]], device=device)]
        self._steps += [torch.tensor([[n]], device=device) for n in range(2, groups)]

    def _read(self, row: Row, prompt: Tensor) -> None:
        """Fill a row's cache with a prompt, (1, t, hidden), and draw its first code."""
        rows, length = slice(row.number, row.number + 1), prompt.shape[1]
        positions = torch.arange(length, device=prompt.device)[None]
        hidden = self._layers.forward(prompt, rows, positions)[:, -1]
        self._said[rows] = False
        self._starts[rows] = length
        self._positions[rows] = length
        self._hidden[rows] = hidden
        self._noise[row.number].exponential_(generator=row.random)
        self._next[rows] = self._first(hidden, rows, self._starts[rows] == length)

    def _first(self, hidden: Tensor, rows: slice, early: Tensor) -> Tensor:
        """The first code of the next frame, (b,). ``early``: the end is not allowed yet."""
        logits = self._head(hidden).float()
        strength = self._sampling.repetition
        repeated = torch.where(logits > 0, logits / strength, logits * strength)
        logits = torch.where(self._said[rows], repeated, logits)
        never = self._never.expand_as(logits).clone()
        never[:, self._end] = early
        return self._sampling.choose(
            logits.masked_fill(never, float("-inf")), self._noise[rows, 0, : self._sampling.top_k]
        )

    def _frame(self, rows: slice) -> None:
        """One frame: its codes, and from them the first code of the next one."""
        first, hidden = self._next[rows], self._hidden[rows]
        active, positions = self._active[rows], self._positions[rows]
        codes, total = self._predict(rows, hidden, first)
        made = self._layers.forward(total[:, None], rows, positions[:, None])[:, 0]
        self._said[rows].scatter_(1, first[:, None], True)
        following = self._first(made, rows, positions == self._starts[rows])
        self._codes[rows] = codes
        self._found[rows] = torch.stack((first, following), 1)
        self._hidden[rows] = torch.where(active[:, None], made, hidden)
        self._next[rows] = torch.where(active, following, first)
        self._positions[rows] += active

    def _predict(self, rows: slice, hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """All codes of a frame, (b, 16), and the talker's next input, (b, hidden)."""
        codes, embedded = [first], self._embed(first)
        total = embedded + self._pad
        x = torch.stack((hidden, embedded), 1)
        for number, step in enumerate(self._steps, start=1):
            made = self._predictor.forward(self._project(x), rows, step.expand(len(first), -1))
            logits = self._heads[number - 1](made[:, -1]).float()
            noise = self._noise[rows, number, : self._others.top_k]
            codes.append(self._others.choose(logits, noise))
            embedded = self._embeds[number - 1](codes[-1])
            total = total + embedded
            x = embedded[:, None]
        return torch.stack(codes, 1), total

    # -- graphs

    def _all_rows(self) -> None:
        if self._graph is None and self._pad.is_cuda:
            self._capture()
        if self._graph:
            self._graph.replay()
        else:
            self._frame(slice(0, ROWS))

    def _capture(self) -> None:
        """Record how a frame is made. A first one, which CUDA's libraries need in order to set
        themselves up, moves no row."""
        wanted = self._active.clone()
        self._active.fill_(False)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._frame(slice(0, ROWS))
        torch.cuda.current_stream().wait_stream(aside)
        self._active.copy_(wanted)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._frame(slice(0, ROWS))
        self._graph = graph

    def _looked(self) -> None:
        self.look()


def _sampling(
    found: Mapping[str, Any], prefix: str, codes: int, repetition: float = 1.0
) -> Sampling:
    sample = found["subtalker_dosample" if prefix else "do_sample"]
    top_k = min(found[f"{prefix}top_k"] or codes, codes)
    top_p, temperature = found[f"{prefix}top_p"], found[f"{prefix}temperature"]
    return Sampling(bool(sample), top_k, top_p, temperature, repetition)


def _give_prompt(**arguments: Any) -> None:
    raise _Prompt(arguments)


def _nothing() -> None:
    pass


@contextmanager
def looking(talker: Talker, look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` before each layer that is computed within."""
    talker.look = look
    try:
        yield
    finally:
        talker.look = _nothing
