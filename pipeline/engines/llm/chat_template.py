"""The chat template of a GGUF: messages and tools in, prompt text out.

The template is jinja, rendered as Hugging Face's ``apply_chat_template`` does it. Text from people,
tools and clients may spell a control token ("<|im_end|>") but must not become one: such spellings
pass through the template as placeholders, and come out marked as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.llm.jinja_dialect import compile_template
from pipeline.engines.llm.pictures import pieces
from pipeline.engines.llm.template_messages import (
    call_data,
    called_name,
    function_data,
    in_words,
    late_system_as_user,
    without_system,
)
from pipeline.engines.llm.tool_calls.syntax import HERMES, THOUGHTS, Syntax, recognise
from pipeline.errors import EngineError
from pipeline.messages import Image, Message, Tool

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For the rare GGUF that carries no template."""

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private-use characters around a placeholder's number."""
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a prompt. ``plain``: control tokens spelled in it are just text. ``image``: the
    data URL of a picture, instead of a text."""

    text: str
    plain: bool
    image: str = ""


_HELLO = Message("user", "Hello")
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
_PROBE_CALL: Mapping[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "probe", "arguments": _PROBE_ARGUMENTS},
}
_PROBE_RESULT = Message("tool", "nothing", tool_call_id="call_1")
"""A conversation that shows how a template writes calls."""


class ChatTemplate:
    """Renders prompts with one jinja ``source``. Raises ``EngineError`` if it is not usable.

    ``bos``, ``eos``: spelling of those tokens. ``control_texts``: the spellings of all control
    tokens. ``arguments``: further variables for the template, e.g. ``enable_thinking``; if that is
    false but a prompt still ends inside a thought, the thought is closed.
    """

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        control_texts: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._render = compile_template(source)
        self._fixed = {"bos_token": bos, "eos_token": eos, **(arguments or {})}
        spellings = sorted({*control_texts, _OPEN, _CLOSE} - {""}, key=len, reverse=True)
        self._literals = re.compile("|".join(map(re.escape, spellings)))
        self._typed = False
        self._no_tools: list[Any] | None = None
        if not self._tried([_HELLO]):
            self._no_tools = []  # some templates want a list even if it is empty
        self._try_typed()
        self.knows_system = self._try_system()
        self._knows_late_system = self.knows_system and self._try_late_system()
        native = self._try_calls() if "tools" in source else None
        self.knows_tools = native is not None
        self.syntax = native or HERMES
        """How calls are spelled: the model's own way if known, else the one we explain to it."""
        self._keeps_speech = self._keeps_several = True
        if native:
            self._keeps_speech = self._try_speech()
            self._keeps_several = self._try_several()
        self.thought_end = self._try_thoughts()
        """What ends the thought that every prompt leaves open; empty if it leaves none open."""
        self._closing = ""
        if self.thought_end and self._fixed.get("enable_thinking") is False:
            # The template has no switch. Templates that have one write an empty thought.
            self._closing, self.thought_end = f"\n{self.thought_end}\n\n", ""

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Piece]:
        """The prompt, up to where the assistant's answer begins.

        Raises ``EngineError`` with the template's reason if it refuses the conversation.
        """
        try:
            return self._rendered(messages, tools)
        except EngineError:
            # Many templates inspect the first message, or require the user to begin.
            early = [m for m in messages if m.role == "system"]
            others = messages[len(early) :]
            if any(m.role == "system" for m in others) or (others and others[0].role == "user"):
                raise
            begun = [*early, Message("user", ""), *others]
            return self._rendered(begun, tools)

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Piece]:
        spelled: list[str | Image] = []
        if self.knows_system and not self._knows_late_system:
            messages = late_system_as_user(messages)
        if not self.knows_tools:
            messages = in_words(messages, tools)
        messages = [part for message in messages for part in self._apart(message)]
        if not self.knows_system:
            messages = without_system(messages)
        functions = [function_data(tool) for tool in tools] if self.knows_tools else []
        shown = self._hide(functions, spelled)
        text = self._text(self._hide(self._data(messages), spelled), shown)
        return _pieces(text + self._closing, spelled)

    def _text(self, messages: Any, tools: Any) -> str:
        try:
            return self._render(
                messages=messages,
                tools=tools or self._no_tools,
                add_generation_prompt=True,
                **self._fixed,
            )
        except Exception as problem:  # templates are programs: any exception may come out
            raise EngineError(
                "The model's chat template refuses this conversation",
                why=str(problem),
                fix="Choose another GGUF of this model with llm.model_file",
            ) from problem

    def _data(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        data = _plain_data(messages)
        for entry in data if self._typed else ():
            # Pass a picture as text: the template would write its own mark for it.
            entry["content"] = [{"type": "text", "text": entry["content"]}]
        return data

    def _hide(self, data: Any, spelled: list[str | Image]) -> Any:
        """Replace pictures, and texts that must stay plain, anywhere in ``data`` by placeholders,
        and append the originals to ``spelled``."""

        def placeholder(what: str | Image) -> str:
            spelled.append(what)
            return f"{_OPEN}{len(spelled) - 1}{_CLOSE}"

        match data:
            case Image():
                return placeholder(data)
            case str():
                return self._literals.sub(lambda match: placeholder(match[0]), readable(data))
            case Message():
                return "".join(self._hide(piece, spelled) for piece in pieces(data))
            case Mapping():
                return {self._hide(k, spelled): self._hide(v, spelled) for k, v in data.items()}
            case list() | tuple():
                return [self._hide(value, spelled) for value in data]
        return data

    def _apart(self, message: Message) -> list[Message]:
        """Split speech and calls into separate messages if the template would lose some of them."""
        speech, calls = message.content, message.tool_calls
        groups = [calls] if self._keeps_several else [(call,) for call in calls]
        if not calls or (len(groups) == 1 and (self._keeps_speech or not speech)):
            return [message]
        first = [Message("assistant", speech)] if speech else []
        return [*first, *(Message("assistant", "", group) for group in groups)]

    # --- what the template can do

    def _try_typed(self) -> None:
        """Some templates (SmolVLM) accept only lists of typed parts as content."""
        if _HELLO.content not in self._tried([_HELLO]):
            self._typed = True
            self._typed = _HELLO.content in self._tried([_HELLO])

    def _try_system(self) -> bool:
        """Some templates (Gemma 2, first Mistrals) refuse or drop a system message."""
        probe = [Message("system", "Mind the gap."), _HELLO]
        return "Mind the gap." in self._tried(probe)

    def _try_late_system(self) -> bool:
        """Others (Qwen3.5, Mistral) do so in mid-conversation."""
        late = [Message("assistant", "Hi"), Message("system", "Mind the gap."), _HELLO]
        return "Mind the gap." in self._tried([_HELLO, *late])

    def _try_calls(self) -> Syntax | None:
        """How the template writes a call; ``None`` if we do not know the syntax."""
        rendered = self._tried([_HELLO, Message("assistant", "", (_PROBE_CALL,)), _PROBE_RESULT])
        return recognise(rendered, "probe", _PROBE_ARGUMENTS)

    def _try_speech(self) -> bool:
        """Some templates drop the text beside a call, or put it after the call."""
        said = Message("assistant", "Mind the gap.", (_PROBE_CALL,))
        before, found, _ = self._tried([_HELLO, said, _PROBE_RESULT]).partition("Mind the gap.")
        return bool(found) and self.syntax.begin not in before.rpartition("Hello")[2]

    def _try_several(self) -> bool:
        """Some templates accept only one call per message."""
        both = Message("assistant", "", (_PROBE_CALL, {**_PROBE_CALL, "id": "call_2"}))
        call = self.syntax.written("probe", _PROBE_ARGUMENTS)
        return self._tried([_HELLO, both, _PROBE_RESULT]).count(call) == 2

    def _try_thoughts(self) -> str:
        prompt = self._tried([_HELLO]).rstrip()
        return next((end for mark, end in THOUGHTS.items() if prompt.endswith(mark)), "")

    def _tried(self, messages: Sequence[Message]) -> str:
        """A prompt, with a tool if needed; empty if the template refuses it."""
        tools = [function_data(_PROBE_TOOL)] if any(m.tool_calls for m in messages) else []
        try:
            return self._text(self._data(messages), tools)
        except EngineError:
            return ""


def _pieces(text: str, spelled: Sequence[str | Image]) -> list[Piece]:
    found = []
    for number, part in enumerate(_PLACEHOLDER.split(text)):
        hidden = spelled[int(part)] if number % 2 else ""
        if isinstance(hidden, Image):
            found.append(Piece("", plain=True, image=hidden.url or ""))
        elif hidden or part:
            found.append(Piece(hidden or part, plain=bool(hidden)))
    return found


def readable(text: str) -> str:
    """``text`` with lone surrogates replaced: tokenizers cannot read them."""
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
