"""Reading ahead: what was said so far, and the history as the next prompt will show it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_talk import MODEL, SHORT_TOOLS, SYSTEM, Token, answer, replies, warm

from pipeline.engines import Cancelled, Message
from pipeline.llm.known_texts import KnownTexts
from pipeline.llm.kv_cache import common_prefix
from pipeline.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.llm.llama_model import Model
from pipeline.llm.prompts import Prompts

pytestmark = pytest.mark.real

DATA = Path(__file__).parent / "data" / "tool_calls"
FAMILIES = ["own", "qwen3", "hermes", "gemma4", "llama3"]
CALL = {"id": "1", "function": {"name": "camera", "arguments": {"question": "what is there?"}}}
SPOKEN = [SYSTEM, Message("user", "Good morning."), Message("assistant", "Hello there.")]
HISTORIES = {
    "nothing": [],
    "instructions": [SYSTEM],
    "an answer": SPOKEN,
    "a greeting": [SYSTEM, Message("assistant", "Hello there.")],
    "a question": [*SPOKEN, Message("user", "Could you")],
    "a tool's result": [
        *SPOKEN,
        Message("user", "What do you see?"),
        Message("assistant", "Let me look.", (CALL,)),
        Message("tool", '{"seen": "a tree"}', tool_call_id="1"),
    ],
}
WORDS = "well I'd like 20 or 300 cups, naïve Mr. O'Neil: <|im_end|> 12:30 … please"


@pytest.fixture(scope="module")
def model(weights: Callable[[str], Path]) -> Model:
    return Model(next(weights(MODEL).glob("*.gguf")), requantize=False)


@pytest.fixture(scope="module", params=FAMILIES)
def prompts(request: pytest.FixtureRequest, model: Model) -> Prompts:
    """The prompts of one family of templates, in the tokens of our model."""
    if request.param == "own":
        return Prompts(model, {})
    source = (DATA / f"{request.param}.jinja").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "chat_template", lambda _, name=None: None if name else source)
        return Prompts(model, {"enable_thinking": False})


@pytest.fixture(scope="module")
def engine(weights: Callable[[str], Path]) -> LlamaCpp:
    return build(LlamaCppOptions(threads=1, context_tokens=2048), weights(MODEL))


def said_so_far(history: Sequence[Message], text: str) -> list[Message]:
    """As ``pipeline.chat.prompt`` merges it."""
    if history and history[-1].role == "user":
        return [*history[:-1], Message("user", f"{history[-1].content} {text}")]
    return [*history, Message("user", text)]


# --- which tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
@pytest.mark.parametrize("tools", [[], SHORT_TOOLS], ids=["no tools", "tools"])
def test_what_is_read_ahead_is_in_every_prompt_that_goes_on(
    prompts: Prompts, history: list[Message], tools: list[object]
) -> None:
    words = WORDS.split()
    for count in range(1, len(words)):
        said = " ".join(words[:count])
        ahead = prompts.ahead(history, tools, said)  # type: ignore[arg-type]
        rest = words[count:]
        for more in ("", *(f" {' '.join(rest[:n])}" for n in range(1, len(rest)))):
            whole = prompts.whole(said_so_far(history, said + more), tools)  # type: ignore[arg-type]
            assert whole[: len(ahead)] == ahead


def test_only_the_end_of_the_message_is_missing(prompts: Prompts) -> None:
    """Nothing of what was said is left for later, but for a token at its end."""
    text = "Could you please bring me a cup of coffee"
    whole = prompts.whole([*SPOKEN, Message("user", text)], SHORT_TOOLS)
    ahead = prompts.ahead(SPOKEN, SHORT_TOOLS, text)
    nothing = prompts.whole([*SPOKEN, Message("user", "")], SHORT_TOOLS)
    end = len(nothing) - common_prefix(nothing, prompts.ahead(SPOKEN, SHORT_TOOLS, ""))
    assert len(whole) - len(ahead) <= end + 1


def test_the_message_is_not_closed(prompts: Prompts) -> None:
    ahead = prompts.ahead(SPOKEN, [], "Could you please")
    text = b"".join(prompts._model.piece(token, special=True) for token in ahead).decode()
    assert text.endswith("Could you please")


def test_after_an_answer_the_next_message_is_opened(prompts: Prompts) -> None:
    ahead = prompts.ahead(SPOKEN, [], "")
    for text in ("Thanks.", "12 more", "<|im_end|>"):
        whole = prompts.whole([*SPOKEN, Message("user", text)], [])
        assert whole[: len(ahead)] == ahead
    text = b"".join(prompts._model.piece(token, special=True) for token in ahead).decode()
    assert "Hello there." in text


def test_whose_turn_it_is_not_gets_no_prompt_to_speak(prompts: Prompts) -> None:
    """Behind the assistant's last word, the user's turn comes; behind a result, the assistant's."""
    result = HISTORIES["a tool's result"]
    assert prompts.ahead(result, SHORT_TOOLS, "") == prompts.whole(result, SHORT_TOOLS)
    assert prompts.ahead([SYSTEM], SHORT_TOOLS, "") == prompts.prefix([SYSTEM], SHORT_TOOLS)


def test_spaces_around_what_was_said_do_not_count(prompts: Prompts) -> None:
    assert prompts.ahead(SPOKEN, [], "  Could  you ") == prompts.ahead(SPOKEN, [], "Could you")


@given(
    st.lists(st.text(st.sampled_from("ab A.\n \t<|im_end|>\u00e91\u3000"), max_size=12), max_size=5)
)
def test_reading_in_parts_makes_no_difference(model: Model, texts: list[str]) -> None:
    """What is remembered of earlier prompts, part by part, is what the whole would be."""
    prompts, known = Prompts(model, {}), KnownTexts()
    for count in range(len(texts) + 1):
        roles = itertools.cycle(["user", "assistant"])
        messages = [Message(role, text) for role, text in zip(roles, texts[:count], strict=False)]
        pieces = prompts._template.render(messages, [])
        expected = [t for p in pieces for t in model.tokenize(p.text, special=not p.plain)]
        assert prompts.whole(messages, [], known) == expected


def test_texts_are_forgotten_when_no_prompt_has_them() -> None:
    known, read = KnownTexts(prompts=2), []

    def tokens(text: str) -> list[int]:
        read.append(text)
        return [len(text)]

    for texts in (["a", "bb"], ["a"], ["a", "bb"], ["bb"], ["bb"], ["a"]):
        known.begin()
        assert [known.tokens(text, tokens) for text in texts] == [[len(t)] for t in texts]
    assert read == ["a", "bb", "a"]
    known.forget()
    known.tokens("bb", tokens)
    assert read[-1] == "bb"


# --- what a reply finds ------------------------------------------------------------------------


def test_a_reply_finds_what_was_said_so_far(engine: LlamaCpp) -> None:
    session = engine.open()
    first = warm(session, SPOKEN, SHORT_TOOLS)
    text = "Could you please tell me where the red"
    more = warm(session, SPOKEN, SHORT_TOOLS, said=text)
    assert more.cached == first.prompt
    assert more.evaluated == len(engine._parts.model.tokenize(text, special=False))
    asked = [*SPOKEN, Message("user", f"{text} ball is?")]
    usage = answer(session, asked, tools=SHORT_TOOLS)[1].usage
    assert usage.cached == more.prompt
    # " ball", " is", "?", and what ends the message and begins the answer, in six tokens.
    assert usage.evaluated == 9


def test_words_that_change_cost_only_themselves(engine: LlamaCpp) -> None:
    session = engine.open()
    before = warm(session, SPOKEN, said="Could you please tell me where")
    warm(session, SPOKEN, said="Could you please tell me where the red bull")
    usage = warm(session, SPOKEN, said="Could you please tell me where the red ball")
    assert usage.cached == before.prompt + 2
    assert usage.evaluated == 1


def test_words_go_on_in_the_message_before_them(engine: LlamaCpp) -> None:
    session = engine.open()
    begun = [*SPOKEN, Message("user", "Could you please")]
    warmed = warm(session, begun, said="tell me where")
    whole = [*SPOKEN, Message("user", "Could you please tell me where it is?")]
    assert answer(session, whole)[1].usage.cached == warmed.prompt


def test_reading_ahead_can_be_cut_off_and_goes_on_later(engine: LlamaCpp) -> None:
    session = engine.open()
    said = "and so on " * 60
    with pytest.raises(Cancelled):
        warm(session, SPOKEN, said=said, cancel=Token(cancel_after=4))
    usage = warm(session, SPOKEN, said=said)
    assert 0 < usage.cached < usage.prompt
    assert warm(session, SPOKEN, said=said).evaluated == 0


def test_a_reply_that_dies_leaves_what_it_has_read(engine: LlamaCpp) -> None:
    session = engine.open()
    text = "Should we now perhaps go"
    steps = replies(session, [*SPOKEN, Message("user", text)])
    next(item for item in steps if item)
    steps.close()  # type: ignore[attr-defined]
    usage = warm(session, SPOKEN, said=f"{text} somewhere")
    assert usage.evaluated == 1
