"""The dialogues that the model learns from, rendered as the tokens that the server would send it.

A line of ``dialogues/*.jsonl`` is one dialogue: ``turns``, each ``[user, answer]``, with a call
``{"name", "arguments"}`` as a third part if the answer makes one, and ``{"result", "answer"}`` as
a fourth if the answer uses the call's result. ``system``: instructions in place of the usual ones.
``tools``: the robot's tools are offered.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.settings.load import DEFAULT, load_settings
from app.settings.model import ConversationSettings
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.llm.prompts import Prompts
from pipeline.messages import Message, Tool
from tests.support.robot_tools import USUAL_TOOLS, robot_tools

FOLDER = Path(__file__).parent / "dialogues"
USER_WEIGHT = 0.25
"""Weight of the users' words: how people continue teaches the model when words are complete."""
_RESULTS = ('{"status": "started"}', '{"ok": true}', '{"status": "queued"}', '{"result": "done"}')
"""What clients return for a call whose result no answer uses."""
_BODILY = re.compile(
    r"\b(?:see|look\w*|mov\w+|danc\w+|turn\w*|camera|watch\w*|show\w*|head|antenna\w*|nod\w*"
    r"|can't|cannot|can not|face)\b",
    re.IGNORECASE,
)
"""Words to which offered tools would change the answer."""
_OWN = re.compile(r"\b(?:i|my|mine|we|our)\b", re.IGNORECASE)
_MARKS = re.compile(r"[.,?!;:…\"]+(?=\s|$)|(?<=\s)[\"—–-]+(?=\s)")


@dataclass(frozen=True, slots=True)
class Dialogue:
    turns: tuple[tuple[Any, ...], ...]
    system: str | None = None
    tools: bool = False

    @property
    def called(self) -> set[str]:
        return {turn[2]["name"] for turn in self.turns if len(turn) > 2}

    @property
    def bodily(self) -> bool:
        return any(_BODILY.search(text) for turn in self.turns for text in turn[:2])

    @property
    def recalls(self) -> bool:
        """Whether the last question is about the user, and its answer has a word that the user said
        before."""
        *earlier, (question, answer, *_) = self.turns
        told = set().union(*(_words(turn[0]) for turn in earlier[:-1]))
        return bool(_OWN.search(question) and _words(answer) & told - _words(question))

    def interrupted(self, by: Dialogue) -> Dialogue:
        """The dialogue with the turns of ``by`` inserted before the last question."""
        return replace(self, turns=(*self.turns[:-1], *by.turns, self.turns[-1]))


@dataclass(frozen=True, slots=True)
class Sample:
    """``weights``: how much predicting each token counts in the loss."""

    tokens: list[int]
    weights: list[float]


def read(folder: Path = FOLDER) -> list[Dialogue]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in _lines(path)]
    return [
        Dialogue(tuple(map(tuple, row["turns"])), row.get("system"), row.get("tools", False))
        for row in map(json.loads, lines)
    ]


def digest() -> str:
    """The SHA-256 of all dialogues; an adapter trained on them states it."""
    total = hashlib.sha256()
    for path in sorted(FOLDER.glob("*.jsonl")):
        total.update(path.read_bytes())
    return total.hexdigest()


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _words(text: str) -> set[str]:
    """The words that are long enough to mean something."""
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}


# --- variety -----------------------------------------------------------------------------------


def varied(dialogues: Sequence[Dialogue], rng: random.Random) -> list[Dialogue]:
    """One pass over the dialogues. Half have the user's words without punctuation, as some
    recognisers write them; some follow or enclose another dialogue, so that facts to remember lie
    further back; and some small talk comes with tools that it does not need."""
    plain = [each for each in dialogues if not each.tools and not each.system]
    found = []
    for each in dialogues:
        if each in plain:
            if not each.bodily and rng.random() < 0.05:
                each = replace(each, tools=True)
            elif each.recalls and rng.random() < 0.4:
                each = each.interrupted(rng.choice(plain))
            elif rng.random() < 0.15:
                each = replace(each, turns=rng.choice(plain).turns + each.turns)
        found.append(_unmarked(each) if rng.random() < 0.5 else each)
    return found


def _unmarked(dialogue: Dialogue) -> Dialogue:
    turns = tuple((_MARKS.sub("", turn[0]).lower(), *turn[1:]) for turn in dialogue.turns)
    return replace(dialogue, turns=turns)


def tool_offer(called: set[str], rng: random.Random) -> list[Tool]:
    """The robot's usual tools as clients may offer them: described at length or in one sentence, in
    any order, sometimes without one that is not ``called``, sometimes with an extra one."""
    usual, others = robot_tools()[:USUAL_TOOLS], robot_tools()[USUAL_TOOLS:]
    spare = [tool for tool in usual if tool.name not in called]
    if spare and rng.random() < 0.3:
        usual.remove(rng.choice(spare))
    if rng.random() < 0.2:
        usual.append(rng.choice(others))
    if rng.random() < 0.6:
        rng.shuffle(usual)
    return usual if rng.random() < 0.25 else [_brief(tool) for tool in usual]


def _brief(tool: Tool) -> Tool:
    known, needed = tool.parameters["properties"], tool.parameters["required"]
    shown = needed or list(known)[:2]
    properties = {key: known[key] for key in shown}
    parameters = {"type": "object", "properties": properties, "required": needed}
    return Tool(tool.name, tool.description.split(". ")[0] + ".", parameters)


# --- tokens ------------------------------------------------------------------------------------


class Renderer:
    """Renders dialogues as samples, with the server's own ``Prompts`` for ``model``."""

    def __init__(self, model: Model) -> None:
        self._prompts = Prompts(model, LlamaCppOptions().template_arguments)
        self._talk = load_settings(DEFAULT).settings.conversation
        (self._begin,) = model.tokenize("<|im_start|>", special=True)
        self._assistant, self._user, self._result = (
            model.tokenize(text, special=False)
            for text in ("assistant\n", "user\n", "user\n<tool_response>")
        )

    def sample(self, dialogue: Dialogue, tools: Sequence[Tool], rng: random.Random) -> Sample:
        talk = list(messages(dialogue, self._talk, rng))
        tokens = self._prompts.whole([*talk, Message("user", "")], tools)
        starts = [at for at, token in enumerate(tokens) if token == self._begin]
        tokens = tokens[: starts[-2]]  # without the empty message and its answer
        weights = [0.0] * len(tokens)
        for start, end in pairwise(starts[:-1]):
            weight, header = self._kind(tokens[start + 1 :])
            for at in range(start + 1 + header, end - 1):  # not the line break
                weights[at] = weight
        return Sample(tokens, weights)

    def _kind(self, message: list[int]) -> tuple[float, int]:
        """The weight of a message's tokens, and the length of its header."""
        if message[: len(self._assistant)] == self._assistant:
            return 1.0, len(self._assistant)
        is_user = message[: len(self._user)] == self._user
        is_result = message[: len(self._result)] == self._result
        return USER_WEIGHT * (is_user and not is_result), len(self._user)


def messages(
    dialogue: Dialogue, talk: ConversationSettings, rng: random.Random
) -> Iterator[Message]:
    """The dialogue as the server would keep it, with results for its calls."""
    system = dialogue.system or talk.instructions
    if dialogue.tools:
        system = f"{system}\n\n{talk.tool_instructions}"
    yield Message("system", system)
    for number, (said, answer, *call) in enumerate(dialogue.turns):
        yield Message("user", said)
        if not call:
            yield Message("assistant", answer)
            continue
        function = {"name": call[0]["name"], "arguments": json.dumps(call[0]["arguments"])}
        call_id = f"call_{number}"
        yield Message("assistant", answer, ({"id": call_id, "function": function},))
        after = call[1] if len(call) > 1 else {"result": rng.choice(_RESULTS)}
        yield Message("tool", after["result"], tool_call_id=call_id)
        if "answer" in after:
            yield Message("assistant", after["answer"])
