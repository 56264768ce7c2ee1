"""The chat template of a GGUF: messages and tools in, prompt text out.

The template is jinja, rendered as Hugging Face's ``apply_chat_template`` does it. What people,
tools and clients say can spell a control token ("<|im_end|>") without becoming one: such
spellings travel through the template as placeholders, and come out marked as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines import Message, Tool
from pipeline.errors import EngineError
from pipeline.llm.jinja_dialect import compile_template
from pipeline.llm.tool_calls.syntax import HERMES, Syntax, recognise

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

_MOST_LEVELS = 64
"""Of arguments in the history, and of schemas; what is nested deeper is left out."""

_TOOLS_AS_TEXT = """\
You can call functions. They are described between <tools> and </tools>, one JSON object a line:
<tools>
{lines}
</tools>
To call one, write this with the function's name and its arguments, and nothing behind it:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a prompt. ``plain``: control tokens spelled in it are just text."""

    text: str
    plain: bool


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
    tokens. ``arguments``: further variables for the template, e.g. ``enable_thinking``.
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
        compiled = compile_template(source)
        self._render = compiled.render
        self._fixed = {"bos_token": bos, "eos_token": eos, **(arguments or {})}
        self._literals = _Literals(control_texts)
        self._no_tools: list[Any] | None = None
        self._try_without_tools()
        self.knows_system = self._try_system()
        self._knows_late_system = self.knows_system and self._try_late_system()
        native = self._try_calls() if "tools" in compiled.variables else None
        self.knows_tools = native is not None
        self.syntax = native or HERMES
        """How calls are spelled; where we do not know how the model does it, as we explain it."""
        self._keeps_speech = self._keeps_several = True
        if native:
            self._keeps_speech = self._try_speech()
            self._keeps_several = self._try_several()
        self.ends_in_thoughts = self._try_thoughts()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, generation_prompt: bool = True
    ) -> list[Piece]:
        """The prompt. ``generation_prompt``: end where the assistant begins to speak.

        Raises ``EngineError`` with the template's reason if it refuses the conversation.
        """
        try:
            return self._rendered(messages, tools, generation_prompt)
        except EngineError:
            # Many templates ask what the first message is, or want the user to begin.
            early = [m for m in messages if m.role == "system"]
            others = messages[len(early) :]
            if any(m.role == "system" for m in others) or (others and others[0].role == "user"):
                raise
            begun = [*early, Message("user", ""), *others]
            return self._rendered(begun, tools, generation_prompt)

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Tool], generation_prompt: bool
    ) -> list[Piece]:
        spelled: list[str] = []
        functions = [_function(tool) for tool in tools]
        if self.knows_system and not self._knows_late_system:
            messages = _late_system_as_user(messages)
        if tools and not self.knows_tools:
            messages = _with_tools_as_text(messages, functions)
        if not self.knows_tools:
            messages = _alternating([_as_text(message) for message in messages])
        messages = [part for message in messages for part in self._apart(message)]
        if not self.knows_system:
            messages = _without_system(messages)
        text = self._text(
            self._literals.hide(_plain_data(messages), spelled),
            self._literals.hide(functions, spelled) if self.knows_tools and tools else [],
            generation_prompt,
        )
        return _pieces(text, spelled)

    def _text(self, messages: Any, tools: Any, generation_prompt: bool) -> str:
        try:
            return self._render(
                messages=messages,
                tools=tools or self._no_tools,
                add_generation_prompt=generation_prompt,
                **self._fixed,
            )
        except Exception as problem:  # templates are programs: any exception may come out
            raise EngineError(
                "The model's chat template refuses this conversation",
                why=str(problem),
                fix="Choose another GGUF of this model with llm.model_file",
            ) from problem

    def _apart(self, message: Message) -> list[Message]:
        """Speech and calls as messages of their own, where the template loses some of them."""
        speech, calls = message.content, message.tool_calls
        groups = [calls] if self._keeps_several else [(call,) for call in calls]
        if not calls or (len(groups) == 1 and (self._keeps_speech or not speech)):
            return [message]
        first = [Message("assistant", speech)] if speech else []
        return [*first, *(Message("assistant", "", group) for group in groups)]

    # --- what the template can do

    def _try_without_tools(self) -> None:
        """Some templates want a list even if it is empty."""
        try:
            self._text(_plain_data([_HELLO]), None, True)
        except EngineError:
            self._no_tools = []

    def _try_system(self) -> bool:
        """Some templates (Gemma 2, first Mistrals) refuse or drop a system message."""
        probe = [Message("system", "Mind the gap."), _HELLO]
        return "Mind the gap." in self._tried(probe)

    def _try_late_system(self) -> bool:
        """Others (Qwen3.5, Mistral) do so in the middle of a conversation."""
        late = [Message("assistant", "Hi"), Message("system", "Mind the gap."), _HELLO]
        return "Mind the gap." in self._tried([_HELLO, *late])

    def _try_calls(self) -> Syntax | None:
        """How the template writes a call; ``None``: in no way that we know."""
        rendered = self._tried([_HELLO, Message("assistant", "", (_PROBE_CALL,)), _PROBE_RESULT])
        return recognise(rendered, "probe", _PROBE_ARGUMENTS)

    def _try_speech(self) -> bool:
        """Some templates drop what is said next to a call, or put it behind the call."""
        said = Message("assistant", "Mind the gap.", (_PROBE_CALL,))
        before, found, _ = self._tried([_HELLO, said, _PROBE_RESULT]).partition("Mind the gap.")
        return bool(found) and self.syntax.begin not in before.rpartition("Hello")[2]

    def _try_several(self) -> bool:
        """Some templates take one call in a message, and no more."""
        both = Message("assistant", "", (_PROBE_CALL, {**_PROBE_CALL, "id": "call_2"}))
        call = self.syntax.written("probe", _PROBE_ARGUMENTS)
        return self._tried([_HELLO, both, _PROBE_RESULT]).count(call) == 2

    def _try_thoughts(self) -> bool:
        return self._tried([_HELLO]).rstrip().endswith("<think>")

    def _tried(self, messages: Sequence[Message]) -> str:
        """A prompt with a tool, empty if the template refuses it."""
        tools = [_function(_PROBE_TOOL)] if any(m.tool_calls for m in messages) else []
        try:
            return self._text(_plain_data(messages), tools, True)
        except EngineError:
            return ""


class _Literals:
    """Finds what must stay plain text, in any nested data."""

    def __init__(self, control_texts: Sequence[str]) -> None:
        spellings = sorted({*control_texts, _OPEN, _CLOSE} - {""}, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, spellings)))

    def hide(self, data: Any, spelled: list[str]) -> Any:
        """Replace spellings by placeholders, and append the spellings to ``spelled``."""

        def placeholder(match: re.Match[str]) -> str:
            spelled.append(match.group())
            return f"{_OPEN}{len(spelled) - 1}{_CLOSE}"

        if isinstance(data, str):
            return self._any.sub(placeholder, readable(data))
        if isinstance(data, Mapping):
            return {self.hide(k, spelled): self.hide(v, spelled) for k, v in data.items()}
        if isinstance(data, list | tuple):
            return [self.hide(value, spelled) for value in data]
        return data


def _pieces(text: str, spelled: Sequence[str]) -> list[Piece]:
    parts = _PLACEHOLDER.split(text)
    pieces = []
    for i, part in enumerate(parts):
        if i % 2:
            pieces.append(Piece(spelled[int(part)], plain=True))
        elif part:
            pieces.append(Piece(part, plain=False))
    return pieces


def readable(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer can read."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_deep(data: Any) -> bool:
    """Whether it is nested too deeply for templates, which write it recursively."""
    level: list[Any] = [data]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
        if not inner:
            return False
        level = inner
    return True


def _plain_data(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as templates expect them: call arguments are objects, answers name the function."""
    names: dict[str, str] = {}
    data = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["tool_calls"] = [_call(call) for call in message.tool_calls]
            names |= {str(c.get("id")): _name(c) for c in message.tool_calls}
        if message.role == "tool":
            entry["tool_call_id"] = message.tool_call_id
            entry["name"] = names.get(message.tool_call_id, "")
        data.append(entry)
    return data


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    if is_deep(arguments):
        arguments = {}
    shown = {"name": function.get("name", ""), "arguments": arguments}
    return {"id": call.get("id", ""), "type": "function", "function": shown}


def _name(call: Mapping[str, Any]) -> str:
    return str(call.get("function", call).get("name", ""))


def _function(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": {} if is_deep(tool.parameters) else dict(tool.parameters),
    }
    return {"type": "function", "function": function}


# --- templates that know no tools or no system message -----------------------------------------


def _with_tools_as_text(
    messages: Sequence[Message], functions: Sequence[Mapping[str, Any]]
) -> list[Message]:
    """Describe the tools at the end of the first system message."""
    lines = "\n".join(_json(function["function"]) for function in functions)
    text = _TOOLS_AS_TEXT.format(lines=lines)
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def _as_text(message: Message) -> Message:
    """A call or its result in the notation that ``_TOOLS_AS_TEXT`` explains."""
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    calls = [_call(call)["function"] for call in message.tool_calls]
    texts = [HERMES.written(call["name"], call["arguments"]) for call in calls]
    return Message("assistant", "\n".join(filter(None, [message.content, *texts])))


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """Results in words are the user's; many templates refuse two messages of one side in a row."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last and last.role == message.role and message.role in ("user", "assistant"):
            result[-1] = Message(message.role, f"{last.content}\n{message.content}")
        else:
            result.append(message)
    return result


def _late_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """System messages behind the first ones are told by the user, with what the user says next."""
    result: list[Message] = []
    for message in messages:
        early = all(before.role == "system" for before in result)
        if message.role == "system" and not early:
            message = Message("user", message.content)
        if message.role == "user" and result and result[-1].role == "user":
            result[-1] = Message("user", f"{result[-1].content}\n\n{message.content}")
        else:
            result.append(message)
    return result


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Put leading system messages in front of what the user says first."""
    texts = [m.content for m in messages if m.role == "system"]
    others = [m for m in messages if m.role != "system"]
    if not texts:
        return list(messages)
    if not others or others[0].role != "user":
        return [Message("user", "\n\n".join(texts)), *others]
    first = Message("user", "\n\n".join([*texts, others[0].content]))
    return [first, *others[1:]]


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
