"""How families of models spell a call, and which marks end speech.

The spellings come from the chat templates in llama.cpp's ``models/templates`` (as of
llama-cpp-python 0.3.36): Qwen 2.5 and 3 and Hermes, Gemma 4, Llama 3.x.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.engines.llm.tool_calls import gemma


@dataclass(frozen=True, slots=True)
class Syntax:
    """One family's spelling: ``marker`` ``rest`` name ``middle`` arguments ``end`` ``close``."""

    name: str
    marker: str
    rest: str
    middle: str
    end: str
    close: str
    values: Literal["json", "gemma"] = "json"
    unmarked: bool = False
    """Calls need no marker, so an object anywhere in an answer may be one."""

    @property
    def begin(self) -> str:
        """How templates begin a call, up to the function's name."""
        return self.rest if self.unmarked else self.marker + self.rest

    def written(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as the family's templates write it into the history."""
        if self.values == "gemma":
            values = gemma.written(arguments)
        else:
            values = json.dumps(arguments, ensure_ascii=False)
        return f"{self.begin}{name}{self.middle}{values}{self.end}{self.close}"

    def spelled_name(self, name: str) -> str:
        """A function's name inside a call; letters, digits and dashes stay unchanged."""
        return name if self.values == "gemma" else json.dumps(name, ensure_ascii=False)[1:-1]

    def read(self, body: str) -> tuple[str, dict[str, Any]] | None:
        """Name and arguments from one call's data; ``None`` if it is malformed."""
        return gemma.read_call(body) if self.values == "gemma" else _read_json(body)

    @property
    def bare(self) -> Syntax:
        """The syntax of a call whose marks the model leaves out."""
        return self if self.unmarked else BARE

    @property
    def other_markers(self) -> tuple[str, ...]:
        """Other marks that are not speech. No mark is a prefix of another."""
        return tuple({*BLOCKS, *STRAY, *ENDS, self.close.strip()} - {""})

    @property
    def spelled(self) -> frozenset[str]:
        """Every mark that a control token may stand for."""
        quotes = {gemma.QUOTE} if self.values == "gemma" else set()
        return frozenset({self.marker, *self.other_markers, *quotes} - {*ENDS})


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
"""The marks around a thought. In order: Qwen, DeepSeek, SmolLM and many others; Apriel; Seed;
Mistral; Command; Apertus; Gemma 4; gpt-oss, which ends a thought by naming another channel."""

BLOCKS: Mapping[str, str] = {
    **THOUGHTS,
    "<tool_response>": "</tool_response>",
    "<|tool_response>": "<tool_response|>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
}
"""Opening and closing marks of text that is not spoken: thoughts, invented tool results, and calls
of DeepSeek and Kimi."""

STRAY = (
    *BLOCKS.values(),
    *("</tool_call>", "<tool_call|>", "[TOOL_CALLS]", "<|tool_call|>", "<TOOLCALL>", "</TOOLCALL>"),
    *("[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<function=", "</function>", "<tools>", "</tools>"),
    *("<tool_calls>", "</tool_calls>", "<function_call>", "</function_call>", "</s>"),
    *("<|tool_call_start|>", "<|tool_call_end|>"),
)
"""Marks that are dropped: closing ones without their opening mark, and those around calls in JSON
of Mistral, Granite, Nemotron and LM Studio, and in ``tool_calls/foreign.py``; Mistral's end of a
turn, which ends struck text in HTML, too; and what small Qwen models write for their own marks."""

ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "<|return|>")
"""Ends of a turn, which some servers leave in the text. What follows is no answer."""

HERMES = Syntax(
    "hermes",
    marker="<tool_call>",
    rest='\n{"name": "',
    middle='", "arguments": ',
    end="}",
    close="\n</tool_call>",
)

LLAMA = Syntax(
    "llama",
    marker="<|python_tag|>",
    rest='{"name": "',
    middle='", "parameters": ',
    end="}",
    close="",
    unmarked=True,
)

BARE = Syntax("bare", "", '{"name": "', middle='", "arguments": ', end="}", close="", unmarked=True)
"""Not a family: a Hermes call without its marks."""

GEMMA = Syntax(
    "gemma",
    marker="<|tool_call>",
    rest="call:",
    middle="",
    end="",
    close="<tool_call|>",
    values="gemma",
)

FAMILIES = (HERMES, GEMMA, LLAMA)


def recognise(prompt: str, name: str, arguments: Mapping[str, Any]) -> Syntax | None:
    """The family whose template rendered a call like this; ``None`` if unknown."""
    return next((one for one in FAMILIES if one.written(name, arguments) in prompt), None)


def _read_json(body: str) -> tuple[str, dict[str, Any]] | None:
    try:
        call = json.loads(body, strict=False)
        if isinstance(inner := call.get("function"), dict):  # as OpenAI's APIs have it
            call = inner
        arguments = call.get("arguments", call.get("parameters")) or {}
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False)
        name = call.get("name")
    except (ValueError, AttributeError, RecursionError):
        return None
    if isinstance(name, str) and isinstance(arguments, dict):
        return name, arguments
    return None
