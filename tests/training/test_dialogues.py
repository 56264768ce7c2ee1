"""The tiny model's training dialogues, as the server would send them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.settings.load import DEFAULT, load_settings
from benchmarks.answers.conversations import FILES
from benchmarks.answers.conversations import read as read_held_out
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.llm.tool_calls.schema_check import fits
from tests.support.robot_tools import robot_tools
from tests.support.tiny_gguf import metadata
from training.dialogues import USER_WEIGHT, Dialogue, Renderer, digest, read, tool_offer, varied

pytestmark = pytest.mark.engines

TOOLS = {tool.name: tool for tool in robot_tools()}


@pytest.fixture(scope="module")
def model(weights: Any) -> Model:
    path = next(weights("smollm2-135m-instruct").glob("*.gguf"))
    return Model(path, LlamaCppOptions(requantize=False))


def test_every_dialogue_can_be_learned() -> None:
    dialogues = read()
    assert len(dialogues) > 1000
    for each in dialogues:
        answers = [turn[1] for turn in each.turns]
        assert len(set(answers)) == len(answers), answers
        for turn in each.turns:
            assert turn[0].strip()
            assert turn[1].rstrip('"').endswith((".", "!", "?")), turn
            assert len(turn[1].split()) <= 40, turn
            for call in turn[2:3]:
                assert each.tools
                assert fits(call["arguments"], TOOLS[call["name"]].parameters), call


def test_the_shipped_adapter_names_the_dialogues_that_it_learned_from() -> None:
    options = load_settings(DEFAULT).settings.llm
    assert isinstance(options, LlamaCppOptions)
    (adapter,) = options.adapters
    assert metadata(adapter.path)["reachy.dialogues_sha256"] == digest()


def test_no_evaluation_dialogue_is_learned() -> None:
    learned = {" ".join(turn[0] for turn in each.turns).lower() for each in read()}
    for name in FILES:
        if name.startswith("identity"):
            continue  # single common questions
        for each in read_held_out(name):
            assert " ".join(turn.user for turn in each.turns).lower() not in learned


def test_variety_follows_its_seed_and_keeps_the_calls() -> None:
    dialogues = read()
    one, again, other = (varied(dialogues, random.Random(seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert len(one) == len(dialogues)
    for seed in range(20):
        offered = {tool.name for tool in tool_offer({"dance", "camera"}, random.Random(seed))}
        assert {"dance", "camera"} <= offered


def test_a_dialogue_matches_the_servers_prompt(model: Model) -> None:
    call = {"name": "dance", "arguments": {"move": "jackson"}}
    turns = (("Hi!", "Hello."), ("dance", "Here I go!", call), ("nice", "Thank you."))
    rng = random.Random(0)
    sample = Renderer(model).sample(Dialogue(turns, "Be kind.", True), [TOOLS["dance"]], rng)
    pieces = [model.piece(token, special=True).decode() for token in sample.tokens]

    def written(weight: float) -> str:
        parts = zip(pieces, sample.weights, strict=True)
        return "".join(piece for piece, each in parts if each == weight)

    assert written(USER_WEIGHT) == "Hi!<|im_end|>dance<|im_end|>"
    body = json.dumps(call)
    said = f"Here I go!\n<tool_call>\n{body}\n</tool_call>"
    assert written(1.0) == "".join(f"{each}<|im_end|>" for each in ("Hello.", said, "Thank you."))
    assert "".join(pieces).startswith("<|im_start|>system\nBe kind.\n\n")
