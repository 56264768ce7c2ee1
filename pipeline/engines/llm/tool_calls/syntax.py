"""How families of models spell a call, and where speech stops being speech.

The spellings are those of the chat templates in llama.cpp's ``models/templates`` (as of
llama-cpp-python 0.3.36): Qwen 2.5 and 3 and Hermes, Gemma 4, Llama 3.x.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.engines.llm.tool_calls import gemma_values


@dataclass(frozen=True, slots=True)
class Opener:
    """``marker`` begins a call. ``rest``: what comes between it and the function's name."""

    marker: str
    rest: str


@dataclass(frozen=True, slots=True)
class Syntax:
    """One family's spelling: ``begin`` name ``middle`` arguments ``end`` ``close``.

    ``openers``: the marks that a call may begin with. ``unmarked``: its calls need none, so that an
    object anywhere in an answer may be one.
    """

    name: str
    openers: tuple[Opener, ...]
    begin: str
    middle: str
    end: str
    close: str
    values: Literal["json", "gemma"] = "json"
    unmarked: bool = False

    def written(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as the family's templates write it into the history."""
        if self.values == "gemma":
            values = gemma_values.written(arguments)
        else:
            values = json.dumps(arguments, ensure_ascii=False)
        return f"{self.begin}{name}{self.middle}{values}{self.end}{self.close}"

    def spelled_name(self, name: str) -> str:
        """A function's name inside of a call; letters, digits and dashes are themselves."""
        return name if self.values == "gemma" else json.dumps(name, ensure_ascii=False)[1:-1]

    def read(self, body: str) -> tuple[str, dict[str, Any]] | None:
        """Name and arguments of one call's data; ``None`` if that is not what it holds."""
        return gemma_values.read_call(body) if self.values == "gemma" else _read_json(body)

    @property
    def bare(self) -> Syntax:
        """How this family's models write a call when they leave its marks out."""
        return self if self.unmarked else BARE

    @property
    def other_markers(self) -> tuple[str, ...]:
        """What is not speech, besides the openers; none is the beginning of another."""
        return tuple({*BLOCKS, *STRAY, self.close.strip()} - {""})

    @property
    def spelled(self) -> frozenset[str]:
        """Every mark that a control token may stand for."""
        quotes = {gemma_values.QUOTE} if self.values == "gemma" else set()
        return frozenset({o.marker for o in self.openers} | {*self.other_markers} | quotes)


THOUGHTS: Mapping[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>": "<channel|>",
    "<|channel|>analysis": "<|channel|>final<|message|>",
}
"""Of Qwen, DeepSeek, SmolLM and many others; Apriel; Seed; Mistral; Command; Apertus; Gemma 4; and
gpt-oss, whose answers end a thought by naming another channel."""

BLOCKS: Mapping[str, str] = {
    **THOUGHTS,
    "<tool_response>": "</tool_response>",
    "<|tool_response>": "<tool_response|>",
}
"""Thoughts, and results of tools that a model makes up: from one mark to the other, unspoken."""

STRAY = (*BLOCKS.values(), "</tool_call>", "<tool_call|>")
"""Ends without a beginning. They are left out."""

HERMES = Syntax(
    "hermes",
    (Opener("<tool_call>", '\n{"name": "'),),
    begin='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    end="}",
    close="\n</tool_call>",
)

LLAMA = Syntax(
    "llama",
    (Opener("<|python_tag|>", '{"name": "'),),
    begin='{"name": "',
    middle='", "parameters": ',
    end="}",
    close="",
    unmarked=True,
)

BARE = Syntax("bare", (), '{"name": "', middle='", "arguments": ', end="}", close="", unmarked=True)
"""No family: what is left of Hermes' calls where a model leaves the marks out."""

GEMMA = Syntax(
    "gemma",
    (Opener("<|tool_call>", "call:"),),
    begin="<|tool_call>call:",
    middle="",
    end="",
    close="<tool_call|>",
    values="gemma",
)

FAMILIES = (HERMES, GEMMA, LLAMA)


def recognise(rendered: str, name: str, arguments: Mapping[str, Any]) -> Syntax | None:
    """The family whose template rendered a call like this; ``None`` if it is not known here."""
    for family in FAMILIES:
        if family.written(name, arguments) in rendered:
            return family
    return None


def _read_json(body: str) -> tuple[str, dict[str, Any]] | None:
    try:
        call = json.loads(body, strict=False)
        arguments = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False)
        name = call.get("name")
    except (ValueError, AttributeError, RecursionError):
        return None
    if isinstance(name, str) and isinstance(arguments, dict):
        return name, arguments
    return None
