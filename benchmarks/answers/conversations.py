"""Whole conversations with the language model, judged by rules that can fail.

    python -m benchmarks.answers.conversations [--set KEY=VALUE] [--first N] [--out FILE]

The turns of ``dialogues.jsonl`` (30 conversations of 12 turns), ``tools.jsonl`` (12, with the
robot's usual tools) and ``identity.jsonl`` (60 questions, each in a conversation of its own) are
typed to the engine, prompt and sampling of the settings. No conversation is in
``training/dialogues``, but single turns are: 23 of the questions, 98 of the 360 turns of
``dialogues.jsonl``, mostly fillers such as "okay", and 7 of the 96 with tools. The files ending in
``-2`` (20, 8 and 30) were written by somebody who had seen neither the training dialogues nor the
first three files; none of their turns is in the training data, and most questions are worded
differently.

``twice``: answers already given in the same conversation. ``long``: answers of more than two
sentences. ``told``: of the turns with ``expect``, answers that have one of the words. ``kept``: of
those with ``forbid``, answers that have none. ``worth``: of all turns, answers that can be spoken
and break no rule. ``called``: requests that became the right call. ``uncalled``: turns without a
request that became a call.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from app.settings.load import load_settings
from app.settings.model import ConversationSettings
from benchmarks.answers.judge import has_word, speakable
from benchmarks.harness.program import arguments, finish, load, weights
from pipeline.engines.contract import LlmSession, TextDelta, ToolCall
from pipeline.engines.llm.llama_cpp import LlamaCppOptions, build
from pipeline.messages import LlmRequest, Message, Tool
from pipeline.work import NEVER
from tests.support.robot_tools import USUAL_TOOLS, robot_tools

FILES = ("dialogues", "tools", "identity", "dialogues-2", "tools-2", "identity-2")
MOST_SENTENCES = 2
SEEN = '{"description": "a desk with a red cup, a laptop and a window behind it"}'
"""What the camera sees in all conversations."""
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+")


class HeldOutTurn(BaseModel):
    """``call`` names the right tool or tools; ``None``: no call is right; absent: not judged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str
    expect: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    call: str | tuple[str, ...] | None = ()
    arguments: dict[str, Any] = {}

    @property
    def calls(self) -> tuple[str, ...] | None:
        """``None``: not judged."""
        if "call" not in self.model_fields_set:
            return None
        return (self.call,) if isinstance(self.call, str) else self.call or ()


class HeldOut(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    turns: tuple[HeldOutTurn, ...]
    tools: bool = False


class TurnVerdict(BaseModel):
    """An answer and its verdicts; ``None`` where nothing is judged."""

    user: str
    answer: str
    call: str
    twice: bool
    long: bool
    told: bool | None
    kept: bool | None
    called: bool | None
    speakable: bool

    @property
    def worth(self) -> bool:
        wrong = self.twice or self.long or False in (self.told, self.kept, self.called)
        return self.speakable and not wrong


def read(name: str) -> list[HeldOut]:
    text = Path(__file__).with_name(f"{name}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    if name.startswith("identity"):
        rows = [{"name": row["user"], "turns": [row]} for row in rows]
    return [HeldOut.model_validate(row) for row in rows]


# --- one conversation --------------------------------------------------------------------------


class Talk:
    """One conversation, kept as the server would keep it."""

    def __init__(self, session: LlmSession, settings: ConversationSettings, tools: bool) -> None:
        self._session = session
        self._sampling = settings.sampling.build()
        self._tools: Sequence[Tool] = robot_tools()[:USUAL_TOOLS] if tools else ()
        system = settings.instructions
        if tools:
            system = f"{system}\n\n{settings.tool_instructions}"
        self._messages = [Message("system", system)]

    def say(self, text: str) -> tuple[str, ToolCall | None]:
        """Returns the answer, without what follows a call, and the first call."""
        self._messages.append(Message("user", text))
        answer, calls = self._answer()
        for number, call in enumerate(calls):
            result = SEEN if call.name == "camera" else '{"status": "started"}'
            call_id = f"call_{len(self._messages)}_{number}"
            function = {"name": call.name, "arguments": call.arguments}
            spoken_text = answer if number == 0 else ""
            self._messages += [
                Message("assistant", spoken_text, ({"id": call_id, "function": function},)),
                Message("tool", result, tool_call_id=call_id),
            ]
        if calls and calls[-1].name == "camera":
            after, _ = self._answer()
            self._messages.append(Message("assistant", after))
        elif not calls:
            self._messages.append(Message("assistant", answer))
        return answer, calls[0] if calls else None

    def _answer(self) -> tuple[str, list[ToolCall]]:
        request = LlmRequest(self._messages, self._tools, sampling=self._sampling)
        steps = list(self._session.reply(request, NEVER))
        text = "".join(step.text for step in steps if isinstance(step, TextDelta))
        return text.strip(), [step for step in steps if isinstance(step, ToolCall)]


def judge(talk: Talk, turns: Sequence[HeldOutTurn]) -> Iterator[TurnVerdict]:
    before: set[str] = set()
    for turn in turns:
        answer, call = talk.say(turn.user)
        plain = " ".join(re.findall(r"\w+", answer.lower()))
        yield TurnVerdict(
            user=turn.user,
            answer=answer,
            call=f"{call.name} {call.arguments}" if call else "",
            twice=bool(plain) and plain in before,
            long=len(_SENTENCE_END.split(answer.strip())) > MOST_SENTENCES,
            told=has_word(answer, turn.expect) if turn.expect else None,
            kept=not has_word(answer, turn.forbid) if turn.forbid else None,
            called=_is_right_call(turn, call),
            speakable=speakable(answer) or (bool(call) and not answer),
        )
        before.add(plain)


def _is_right_call(turn: HeldOutTurn, call: ToolCall | None) -> bool | None:
    if turn.calls is None:
        return None
    if not turn.calls or call is None:
        return call is None and not turn.calls
    return call.name in turn.calls and turn.arguments.items() <= json.loads(call.arguments).items()


# --- program -----------------------------------------------------------------------------------


def figures(verdicts: Sequence[TurnVerdict], turns: Sequence[HeldOutTurn]) -> dict[str, Any]:
    """Each figure as ``[count, total]``."""

    def right(values: Sequence[bool | None]) -> list[int]:
        outcomes = [value for value in values if value is not None]
        return [sum(outcomes), len(outcomes)]

    pairs = list(zip(verdicts, turns, strict=True))
    calls = [each.called for each, turn in pairs if turn.calls]
    silences = [not each.called for each, turn in pairs if turn.calls == ()]
    return {
        "twice": right([each.twice for each in verdicts]),
        "long": right([each.long for each in verdicts]),
        "told": right([each.told for each in verdicts]),
        "kept": right([each.kept for each in verdicts]),
        "worth": right([each.worth for each in verdicts]),
        "called": right(calls),
        "uncalled": right(silences),
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    settings = load_settings(args.config, args.sets).settings
    options = settings.llm
    assert isinstance(options, LlamaCppOptions)
    engine = build(options, weights(options.weights) if options.weights else None)
    by_file: dict[str, Any] = {}
    rows = []
    for name in args.files or FILES:
        scripts = read(name)[: args.first]
        verdicts = []
        for held_out in scripts:
            session = engine.open()
            talk = Talk(session, settings.conversation, held_out.tools)
            verdicts += list(judge(talk, held_out.turns))
            session.close()
        by_file[name] = figures(verdicts, [turn for each in scripts for turn in each.turns])
        rows += [each.model_dump() | {"worth": each.worth} for each in verdicts]
    return {**by_file, "sampling": settings.conversation.sampling.model_dump(), "turns": rows}


def main() -> None:
    parser = arguments(__doc__, "benchmarks.answers.conversations", settings=True)
    parser.add_argument("--files", choices=FILES, nargs="*")
    parser.add_argument("--first", type=int, help="only so many of each")
    args = parser.parse_args()
    before = load()
    finish(measure(args), args.out, before, details="turns")


if __name__ == "__main__":
    main()
