"""Makes frames of Qwen3-TTS, the codes and the sound of 80 ms, for several clauses at once.

A talker gives the first code of a frame, a predictor the other 15, a codec their sound. On an
NVIDIA GPU, a frame of all rows is one CUDA graph: the time goes into launching some 3,000 small
kernels, so four clauses cost hardly more than one. Elsewhere rows take turns. Imports torch: use it
only where the engine runs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pipeline.audio import Pcm, from_float
from pipeline.engines.tts.qwen3_codec import Codec
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, ClauseRequest
from pipeline.engines.tts.qwen3_network import Rows, Stack
from pipeline.errors import EngineError
from pipeline.work import CancelToken

log = logging.getLogger("reachy_voice.tts")

POSITIONS = 512
"""Positions per row: its prompt takes some 10 plus one per 4 letters, each frame one more."""
_PROMPTS = 32, 64, 96
"""Prompt lengths with a graph; other prompts are padded, or read without a graph if longer."""


@dataclass(frozen=True, slots=True)
class CodeSampling:
    """How a code is chosen, from the model's ``generation_config.json``."""

    sample: bool
    top_k: int
    top_p: float
    temperature: float
    repetition: float = 1.0

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:
        """(b,) codes from (b, codes) logits in float32. ``noise``: (b, ``top_k``), exponentially
        distributed; the largest ratio of probability to noise is a fair draw."""
        if not self.sample:
            return logits.argmax(-1)
        values, codes = (logits / self.temperature).topk(noise.shape[-1])
        likely = values.softmax(-1)
        if self.top_p < 1:
            likely = likely * (likely.cumsum(-1) - likely < self.top_p)
        return codes.gather(-1, (likely / noise).argmax(-1, keepdim=True))[:, 0]


@dataclass(eq=False)
class Row:
    """A clause that is being made. A ``pending`` frame is its first code and 1,920 samples at
    24 kHz."""

    number: int
    limit: int
    random: torch.Generator
    by: CancelToken
    pending: deque[tuple[int, Pcm]] = field(default_factory=deque)
    frames: int = 0
    ended: bool = False
    """Whether the model itself ended the clause."""
    closed: bool = False
    """No more frames will come: it ended, reached its limit, or was abandoned."""
    lost: bool = False
    """A more urgent clause has taken its row."""


class _Prompt(BaseException):
    """Raised in place of generating, with the arguments that the package would generate from."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class Talker:
    """One model. Not thread-safe; clauses may take turns.

    Rows that are made together all advance whenever one of them must. Frames made ahead wait in
    ``Row.pending``, which is bounded by the limit of the clause.
    """

    def __init__(self, package: Any, rows: int, together: bool) -> None:
        """``package``: a ``qwen_tts.Qwen3TTSModel`` with voices; ``rows``: clauses at once;
        ``together``: make a frame of all rows at once, with a graph if on CUDA."""
        self._package = package
        talker = package.model.talker
        talker.generate = _give_prompt
        self._config = talker.config
        self.look: Callable[[], None] = _nothing
        """Called before each layer that runs outside a graph; an exception ends the pass."""
        self._embed = talker.get_input_embeddings()
        self._head = talker.codec_head
        self._project = talker.code_predictor.small_to_mtp_projection
        self._embeds = talker.code_predictor.get_input_embeddings()
        self._heads = talker.code_predictor.lm_head
        self._together = together
        self._count = rows
        self._rows: dict[int, Row] = {}
        with torch.inference_mode():
            groups = int(self._config.num_code_groups)
            self._layers = Stack(talker.model, rows, POSITIONS, self._call_look)
            predictor = talker.code_predictor.model
            self._predictor = Stack(predictor, rows, groups, self._call_look)
            decoder = package.model.speech_tokenizer.model.decoder
            self._codec = Codec(decoder, rows, POSITIONS, self._call_look)
            self._learn()
            self._make_buffers(rows, groups)
            self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
            if together and self._pad.is_cuda:
                self._try_to_record()

    # -- clauses

    def begin(self, clause: ClauseRequest, by: CancelToken) -> Row | None:
        """Read a clause's prompt. If all rows are taken, it replaces the least urgent one; ``None``
        if none is less urgent. Raises ``EngineError``."""
        number = next((n for n in range(self._count) if n not in self._rows), None)
        if number is None:
            last = max(self._rows.values(), key=lambda row: (row.by.priority, -row.frames))
            if last.by.priority <= by.priority:
                return None
            number = last.number
        prompt: Tensor = self._prompt(clause)["inputs_embeds"]
        length = prompt.shape[1]
        if length > POSITIONS // 2:
            raise EngineError(
                "Qwen3-TTS cannot say this clause",
                why=f"its prompt has {length} tokens, {POSITIONS // 2} is the most",
                fix="Shorten tts.instruct" if clause.instruct else "Speak it in shorter clauses",
            )
        random = torch.Generator(prompt.device)
        random.manual_seed(clause.seed)
        row = Row(number, min(clause.limit, POSITIONS - length), random, by)
        if number in self._rows:
            self._rows[number].lost = True
            self.close(self._rows[number])
        self._read(row, prompt)
        self._rows[number] = row
        return row

    def advance(self, row: Row | None) -> None:
        """Make the next frame of ``row``; if ``None``, of the row nearest to its limit, so that it
        ends and makes room. Rows that are made together all advance. Raises what ``look`` raises,
        after closing the row that was being made."""
        with torch.inference_mode():
            if self._together:
                rows = list(self._rows.values())
                self._draw(*rows)
                if 0 in self._graphs:
                    self._graphs[0].replay()
                else:
                    self._frame(slice(0, self._count))
            else:
                rows = [row or min(self._rows.values(), key=lambda each: each.limit - each.frames)]
                self._draw(*rows)
                number = rows[0].number
                try:
                    self._frame(slice(number, number + 1))
                except BaseException:
                    self.close(rows[0])
                    raise
            self._collect(rows)

    def _draw(self, *rows: Row) -> None:
        for row in rows:
            self._noise[row.number].exponential_(generator=row.random)

    def _collect(self, rows: list[Row]) -> None:
        codes, sound = self._codes.tolist(), self._sound.cpu().numpy()
        for each in rows:
            first, next_code = codes[each.number]
            each.pending.append((first, from_float(sound[each.number])))
            each.frames += 1
            each.ended = next_code == self._end
            if each.ended or each.frames == each.limit:
                self.close(each)

    def close(self, row: Row) -> None:
        row.closed = True
        if self._rows.get(row.number) is row:
            del self._rows[row.number]

    # -- the model

    def _prompt(self, clause: ClauseRequest) -> Mapping[str, Any]:
        """The arguments from which the package would generate a clause."""
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
        """Take from a first prompt what is the same in all prompts."""
        voices, languages = self._config.spk_id, self._config.codec_language_id
        clause = ClauseRequest("Hello.", next(iter(voices)), next(iter(languages)), "", 1, 0)
        args = self._prompt(clause)
        self._pad: Tensor = args["tts_pad_embed"][:, 0]
        self._end = int(args["eos_token_id"])
        predictor = self._package.model.talker.code_predictor
        self._sampling = _sampling(args, "", self._config.vocab_size, args["repetition_penalty"])
        self._others = _sampling(args, "subtalker_", predictor.vocab_size)
        never = torch.zeros(self._config.vocab_size, dtype=torch.bool, device=self._pad.device)
        never[args["suppress_tokens"]] = True
        self._never = never

    def _make_buffers(self, rows: int, groups: int) -> None:
        """Make the tensors that a frame reads and writes; a graph needs fixed addresses."""
        device = self._pad.device
        most = max(self._sampling.top_k, self._others.top_k)

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.long, device=device)

        self._row, self._last = numbers(1), numbers(1)
        self._hidden = self._pad.new_zeros(rows, self._pad.shape[-1])
        self._next, self._starts, self._positions = numbers(rows), numbers(rows), numbers(rows)
        self._used = torch.zeros(rows, self._config.vocab_size, dtype=torch.bool, device=device)
        self._noise = torch.ones(rows, groups, most, device=device)
        self._codes = numbers(rows, 2)
        self._sound = torch.zeros(rows, FRAME_SAMPLES, device=device)
        self._steps = [torch.tensor([[0, 1]], device=device)]
        self._steps += [torch.tensor([[n]], device=device) for n in range(2, groups)]
        self._prompts = {n: self._pad.new_zeros(1, n, self._pad.shape[-1]) for n in _PROMPTS}

    def _read(self, row: Row, prompt: Tensor) -> None:
        """Fill a row's cache with a prompt, (1, t, hidden), and draw its first code."""
        length = prompt.shape[1]
        with torch.inference_mode():
            self._row.fill_(row.number)
            self._last.fill_(length - 1)
            self._draw(row)
            whole = next((n for n in self._graphs if n >= length), None)
            if whole is None:
                self._prefill(prompt)
            else:
                self._prompts[whole][:, :length] = prompt
                self._graphs[whole].replay()

    def _prefill(self, prompt: Tensor) -> None:
        """``prompt``: (1, t, hidden), whose last real position is ``_last``. The padding after it
        is cached too, but frames overwrite it before it is seen."""
        row = self._row
        positions = torch.arange(prompt.shape[1], device=prompt.device)[None]
        states = self._layers.forward(prompt, row, positions)[0]
        hidden = states.index_select(0, self._last)
        self._codec.reset(row)
        self._used.index_fill_(0, row, value=False)
        self._starts.index_copy_(0, row, self._last + 1)
        self._positions.index_copy_(0, row, self._last + 1)
        self._hidden.index_copy_(0, row, hidden)
        early = torch.ones_like(row, dtype=torch.bool)
        self._next.index_copy_(0, row, self._first(hidden, row, early))

    def _first(self, hidden: Tensor, rows: Rows, early: Tensor) -> Tensor:
        """The first code of the next frame, (b,). ``early``: where the end is not allowed yet."""
        logits = self._head(hidden).float()
        strength = self._sampling.repetition
        penalised = torch.where(logits > 0, logits / strength, logits * strength)
        logits = torch.where(self._used[rows], penalised, logits)
        never = self._never.expand_as(logits).clone()
        never[:, self._end] = early
        noise = self._noise[rows][:, 0, : self._sampling.top_k]
        return self._sampling.choose(logits.masked_fill(never, float("-inf")), noise)

    def _frame(self, rows: slice) -> None:
        """Make one frame of each row: its sound, and the first code of the next frame."""
        first, hidden, positions = self._next[rows], self._hidden[rows], self._positions[rows]
        frames = positions - self._starts[rows]
        codes, total = self._predict(rows, hidden, first)
        states = self._layers.forward(total[:, None], rows, positions[:, None])[:, 0]
        self._sound[rows] = self._codec.forward(codes, rows, frames)
        self._used[rows].scatter_(1, first[:, None], True)
        next_code = self._first(states, rows, frames == 0)
        self._codes[rows] = torch.stack((first, next_code), 1)
        self._hidden[rows] = states
        self._next[rows] = next_code
        self._positions[rows] = (positions + 1).clamp(max=POSITIONS - 1)

    def _predict(self, rows: slice, hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """All codes of a frame, (b, 16), and the talker's next input, (b, hidden)."""
        codes, embedding = [first], self._embed(first)
        total = embedding + self._pad
        x = torch.stack((hidden, embedding), 1)
        for number, step in enumerate(self._steps, start=1):
            states = self._predictor.forward(self._project(x), rows, step.expand(len(first), -1))
            logits = self._heads[number - 1](states[:, -1]).float()
            noise = self._noise[rows, number, : self._others.top_k]
            codes.append(self._others.choose(logits, noise))
            embedding = self._embeds[number - 1](codes[-1])
            total = total + embedding
            x = embedding[:, None]
        return torch.stack(codes, 1), total

    def _try_to_record(self) -> None:
        """Record the graphs, or go on without them if that fails."""
        try:
            self._record()
        except RuntimeError as error:
            self._graphs.clear()
            log.warning(
                "Qwen3-TTS works without CUDA graphs, much slower: %s. Free GPU memory, or "
                "install NVIDIA's driver 580 or newer, and start again",
                error,
            )

    def _record(self) -> None:
        """Make the graphs, by prompt length, with 0 for a frame. No row may be in use yet."""
        calls: dict[int, Callable[[], None]] = {0: lambda: self._frame(slice(0, self._count))}
        for length, prompt in self._prompts.items():
            calls[length] = partial(self._prefill, prompt)
        for number, call in calls.items():
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                call()  # lets CUDA's libraries initialise before the recording
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            self._graphs[number] = graph

    def _call_look(self) -> None:
        self.look()


def _sampling(
    args: Mapping[str, Any], prefix: str, codes: int, repetition: float = 1.0
) -> CodeSampling:
    sample = args["subtalker_dosample" if prefix else "do_sample"]
    top_k = min(args[f"{prefix}top_k"] or codes, codes)
    top_p, temperature = args[f"{prefix}top_p"], args[f"{prefix}temperature"]
    return CodeSampling(bool(sample), top_k, top_p, temperature, repetition)


def _give_prompt(**arguments: Any) -> None:
    raise _Prompt(arguments)


def _nothing() -> None:
    pass


@contextmanager
def looking(talker: Talker, look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` before each layer that is computed inside the block."""
    talker.look = look
    try:
        yield
    finally:
        talker.look = _nothing
