"""The chat template of a GGUF: messages and tools in, prompt text out.

The template is jinja, rendered as by Hugging Face's ``apply_chat_template``. Text from people,
tools and clients may spell a control token ("<|im_end|>") but must not become one: such spellings
pass through the template as placeholders and come out marked as plain text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.engines.llm.jinja_dialect import compile_template
from pipeline.engines.llm.pictures import pieces
from pipeline.engines.llm.template_messages import (
    Capabilities,
    adapted,
    call_data,
    called_name,
    function_data,
)
from pipeline.engines.llm.tool_calls.syntax import HERMES, THOUGHTS, Syntax, recognise
from pipeline.errors import EngineError
from pipeline.messages import Image, Message, Tool

log = logging.getLogger("reachy_voice.llm")

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For the rare GGUF without a template."""

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private-use characters around a placeholder's number."""
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


@dataclass(frozen=True, slots=True)
class PromptPart:
    text: str
    plain: bool
    """Control tokens spelled in it are just text."""
    image: str = ""
    """The data URL of a picture, in place of text."""


_NO_SYSTEM = Message("system", "")
_HELLO = Message("user", "Hello")
_HI = Message("assistant", "Hi")
_GOODBYE = Message("user", "Goodbye")
_GAP = "Mind the gap."
_SIDES = ("left", "right")
_PROBE_ARGUMENTS: Mapping[str, Any] = {"at": "left", "count": 2}
_PROBE_TOOL = Tool(
    "probe",
    "Looks.",
    {
        "type": "object",
        "properties": {
            "at": {"type": "string", "description": "Where."},
            "count": {"type": "integer", "description": "How often."},
        },
        "required": ["at"],
    },
)


def _probe_call(call_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": "probe", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


class ChatTemplate:
    """Renders prompts with one jinja ``source``. Raises ``EngineError`` if it is unusable."""

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        control_texts: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """``bos`` and ``eos`` are the spelling of those tokens; ``control_texts`` are the spellings
        of all control tokens. ``arguments`` are further variables for the template, e.g.
        ``enable_thinking``; if that is false but a prompt still ends inside a thought, the thought
        is closed."""
        self._render = compile_template(source)
        self._variables = {"bos_token": bos, "eos_token": eos, **(arguments or {})}
        spellings = sorted({*control_texts, _OPEN, _CLOSE} - {""}, key=len, reverse=True)
        self._literals = re.compile("|".join(map(re.escape, spellings)))
        self._wants_parts = False
        self._no_tools: list[Any] | None = None
        if not self._try_render([_HELLO]):
            self._no_tools = []  # some templates want a list even if it is empty
        self._try_parts()
        native = self._try_calls() if "tools" in source else None
        unnamed, empty = self._try_render([_HELLO]), self._try_render([_NO_SYSTEM, _HELLO])
        self._names_model = 0 < len(empty) < len(unnamed)
        """Whether it writes a system message of its own ("You are SmolLM, trained by Hugging Face")
        where there is none."""
        self.capabilities = replace(self._probe(), tools=native is not None)
        """What the template can take."""
        self.syntax = native or HERMES
        """How calls are spelled: in the model's own syntax if known, else in one that the prompt
        explains."""
        self.thought_end = self._try_thoughts()
        """The mark that closes the thought in which every prompt ends; empty if there is none."""
        self._thought_close = ""
        if self.thought_end and self._variables.get("enable_thinking") is False:
            # The template cannot turn thinking off. Those that can write an empty thought.
            self._thought_close, self.thought_end = f"\n{self.thought_end}\n\n", ""

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[PromptPart]:
        """The prompt, up to where the assistant's answer begins.

        Raises ``EngineError`` with the template's reason if it rejects the conversation.
        """
        originals: list[str | Image] = []
        messages = adapted(messages, tools, self.capabilities)
        if self._names_model and messages[0].role != "system":
            messages = [_NO_SYSTEM, *messages]
        functions = [function_data(tool) for tool in tools] if self.capabilities.tools else []
        tool_data = self._hide(functions, originals)
        text = self._text(self._hide(self._data(messages), originals), tool_data)
        return _pieces(text + self._thought_close, originals)

    def _text(self, messages: Any, tools: Any) -> str:
        try:
            return self._render(
                messages=messages,
                tools=tools or self._no_tools,
                add_generation_prompt=True,
                **self._variables,
            )
        except Exception as problem:  # templates are programs that may raise anything
            raise EngineError(
                "The model's chat template refuses this conversation",
                why=str(problem),
                fix="Choose another GGUF of this model with llm.model_file",
            ) from problem

    def _data(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        data = _plain_data(messages)
        for entry in data if self._wants_parts else ():
            # Pass a picture as text: the template would write its own mark for it.
            entry["content"] = [{"type": "text", "text": entry["content"]}]
        return data

    def _hide(self, data: Any, originals: list[str | Image]) -> Any:
        """Replace all pictures, and all texts that must stay plain, in ``data`` with placeholders,
        and append the originals to ``originals``."""

        def placeholder(what: str | Image) -> str:
            originals.append(what)
            return f"{_OPEN}{len(originals) - 1}{_CLOSE}"

        match data:
            case Image():
                return placeholder(data)
            case str():
                return self._literals.sub(lambda match: placeholder(match[0]), readable(data))
            case Message():
                return "".join(self._hide(piece, originals) for piece in pieces(data))
            case Mapping():
                return {self._hide(k, originals): self._hide(v, originals) for k, v in data.items()}
            case list() | tuple():
                return [self._hide(value, originals) for value in data]
        return data

    # --- what the template can do

    def _try_parts(self) -> None:
        """Some templates (SmolVLM) accept only lists of typed parts as content."""
        if _HELLO.content not in self._try_render([_HELLO]):
            self._wants_parts = True
            self._wants_parts = _HELLO.content in self._try_render([_HELLO])

    def _probe(self) -> Capabilities:
        """Find out what the template refuses, drops or moves, with small conversations."""
        system = Message("system", _GAP)
        short, long = ("call12345", "call54321"), ("call_1", "call_2")
        ids = next((ids for ids in (long, short) if self._shows_calls(ids[:1], "")), None)
        takes_system = _GAP in self._try_render([system, _HELLO])
        return Capabilities(
            system=takes_system,
            late_system=takes_system
            and self._keeps([Message("system", "Be kind."), _HELLO, _HI, system, _GOODBYE]),
            speech_with_calls=ids is None or self._shows_calls(ids[:1], _GAP, _HI, _GOODBYE),
            several_calls=ids is None or self._shows_calls(ids, ""),
            any_order=ids is None or self._shows_calls(ids[:1], "", _GOODBYE),
            any_call_id=ids != short,
        )

    def _shows_calls(self, ids: Sequence[str], speech: str, *after: Message) -> bool:
        """Whether the prompt keeps a message with ``speech`` and one call per id, their results,
        and ``after``."""
        calls = [_probe_call(one, {"at": side}) for one, side in zip(ids, _SIDES, strict=False)]
        results = [Message("tool", f"result {at}", tool_call_id=one) for at, one in enumerate(ids)]
        return self._keeps([_HELLO, Message("assistant", speech, tuple(calls)), *results, *after])

    def _keeps(self, talk: Sequence[Message]) -> bool:
        """Whether all texts of ``talk`` are in the prompt, in the same order."""
        prompt, at = self._try_render(talk), 0
        for message in talk:
            calls = [call["function"]["arguments"]["at"] for call in message.tool_calls]
            for text in (message.content, *calls):
                at = prompt.find(text, at) + len(text)
                if at < len(text):
                    return False
        return bool(prompt)

    def _try_calls(self) -> Syntax | None:
        """How the template writes a call; ``None`` if we do not know the syntax."""
        call = _probe_call("call_1", _PROBE_ARGUMENTS)
        result = Message("tool", "nothing", tool_call_id="call_1")
        prompt = self._try_render([_HELLO, Message("assistant", "", (call,)), result])
        return recognise(prompt, "probe", _PROBE_ARGUMENTS)

    def _try_thoughts(self) -> str:
        prompt = self._try_render([_HELLO]).rstrip()
        return next((end for mark, end in THOUGHTS.items() if prompt.endswith(mark)), "")

    def _try_render(self, messages: Sequence[Message]) -> str:
        """A prompt, with a tool if needed; empty if the template rejects it."""
        tools = [function_data(_PROBE_TOOL)] if any(m.tool_calls for m in messages) else []
        try:
            return self._text(self._data(messages), tools)
        except EngineError:
            return ""


def capabilities_of(source: str) -> Capabilities:
    """What a template can take; a guess if ``source`` is empty or unusable here."""
    try:
        if source:
            return ChatTemplate(source, arguments={"enable_thinking": False}).capabilities
    except EngineError:
        log.warning("the server's chat template cannot be tried out here")
    return Capabilities(late_system=False)  # some silently drop late system messages


def _pieces(text: str, originals: Sequence[str | Image]) -> list[PromptPart]:
    parts = []
    for number, part in enumerate(_PLACEHOLDER.split(text)):
        original = originals[int(part)] if number % 2 else ""
        if isinstance(original, Image):
            parts.append(PromptPart("", plain=True, image=original.url or ""))
        elif original or part:
            parts.append(PromptPart(original or part, plain=bool(original)))
    return parts


def readable(text: str) -> str:
    """``text`` with lone surrogates replaced, as tokenizers cannot read them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain_data(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as templates expect them: call arguments are objects, results name the function."""
    names: dict[str, str] = {}
    data = []
    for message in messages:
        content = message if message.images else message.content
        entry: dict[str, Any] = {"role": message.role, "content": content}
        if message.tool_calls:
            entry["tool_calls"] = [call_data(call) for call in message.tool_calls]
            names |= {str(c.get("id")): called_name(c) for c in message.tool_calls}
        if message.role == "tool":
            entry["tool_call_id"] = message.tool_call_id
            entry["name"] = names.get(message.tool_call_id, "")
        data.append(entry)
    return data
