"""Reading ahead: the words so far, and the history as the next prompt will show it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.contract import EndOfTurn
from pipeline.engines.llm.kv_cache import common_prefix
from pipeline.engines.llm.llama_cpp import LlamaCpp
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.prompts import Prompts, known_texts
from pipeline.engines.llm.recent import Recent
from pipeline.messages import Message
from pipeline.work import Cancelled
from tests.support.llama_talk import SHORT_TOOLS, SYSTEM, answer, begin, replies, warm, warmed
from tests.support.places import DATA
from tests.support.recordings import Token

pytestmark = [pytest.mark.engines, pytest.mark.real]

CALLS = DATA / "tool_calls"
FAMILIES = ["own", "own with examples", "qwen3", "hermes", "gemma4", "llama3"]
EXAMPLES = [("What is a hammer?", "A tool for hitting nails."), ("Hello!", "Hello!")]
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


@pytest.fixture(scope="module", params=FAMILIES)
def prompts(request: pytest.FixtureRequest, model: Model) -> Prompts:
    """The prompts of one family of templates, in the tokens of our model."""
    if request.param.startswith("own"):
        return Prompts(model, {}, examples=EXAMPLES if "examples" in request.param else ())
    source = (CALLS / f"{request.param}.jinja").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "chat_template", lambda _, name=None: None if name else source)
        return Prompts(model, {"enable_thinking": False})


def said_so_far(history: Sequence[Message], text: str) -> list[Message]:
    """The history with ``text``, merged as ``pipeline.conversation.chat.prompt`` does."""
    if history and history[-1].role == "user":
        return [*history[:-1], Message("user", f"{history[-1].content} {text}")]
    return [*history, Message("user", text)]


# --- which tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
@pytest.mark.parametrize("tools", [[], SHORT_TOOLS], ids=["no tools", "tools"])
def test_read_ahead_text_is_a_prefix_of_every_continuation(
    prompts: Prompts, history: list[Message], tools: list[object]
) -> None:
    words = WORDS.split()
    said = [" ".join(words[:count]) for count in range(1, len(words) + 1)]
    wholes = [prompts.whole(said_so_far(history, text), tools) for text in said]  # type: ignore[arg-type]
    for number, text in enumerate(said):
        ahead, _ = prompts.ahead(history, tools, text)  # type: ignore[arg-type]
        for whole in wholes[number:]:
            assert whole[: len(ahead)] == ahead


def test_after_an_answer_the_next_message_is_opened(prompts: Prompts) -> None:
    ahead, _ = prompts.ahead(SPOKEN, [], "")
    for text in ("Thanks.", "12 more", "<|im_end|>"):
        whole = prompts.whole([*SPOKEN, Message("user", text)], [])
        assert whole[: len(ahead)] == ahead
    text = b"".join(prompts._model.piece(token, special=True) for token in ahead).decode()
    assert "Hello there." in text


@pytest.mark.parametrize("speech", ["", "Let me look."])
def test_after_a_call_its_result_is_expected(prompts: Prompts, speech: str) -> None:
    called = [*SPOKEN, Message("user", "Look!"), Message("assistant", speech, (CALL,))]
    ahead, _ = prompts.ahead(called, SHORT_TOOLS, "")
    for text in ('{"seen": "a tree"}', "done", "12", "[]", '"', ""):
        result = Message("tool", text, tool_call_id="1")
        whole = prompts.whole([*called, result], SHORT_TOOLS)
        assert whole[: len(ahead)] == ahead
    assert b"camera" in b"".join(map(prompts._model.piece, ahead))


def test_the_assistants_turn_is_opened_only_when_due(prompts: Prompts) -> None:
    """The user's turn follows the assistant's last word; the assistant's follows a result."""
    result = HISTORIES["a tool's result"]
    assert prompts.ahead(result, SHORT_TOOLS, "")[0] == prompts.whole(result, SHORT_TOOLS)
    assert prompts.ahead([SYSTEM], SHORT_TOOLS, "")[0] == prompts.prefix([SYSTEM], SHORT_TOOLS)


def test_spaces_around_the_words_do_not_count(prompts: Prompts) -> None:
    assert prompts.ahead(SPOKEN, [], "  Could  you ") == prompts.ahead(SPOKEN, [], "Could you")


@given(
    st.lists(st.text(st.sampled_from("ab A.\n \t<|im_end|>\u00e91\u3000"), max_size=12), max_size=5)
)
def test_reading_in_parts_makes_no_difference(model: Model, texts: list[str]) -> None:
    """The parts remembered from earlier prompts equal the tokens of the whole."""
    prompts, known = Prompts(model, {}), known_texts()
    for count in range(len(texts) + 1):
        messages = [
            Message("assistant" if at % 2 else "user", text)
            for at, text in enumerate(texts[:count])
        ]
        pieces = prompts._template.render(messages, [])
        expected = [t for p in pieces for t in model.tokenize(p.text, special=not p.plain)]
        assert prompts.whole(messages, [], known) == expected


def test_texts_in_no_prompt_are_forgotten() -> None:
    known, read = Recent(2), []

    def tokens(text: str) -> list[int]:
        read.append(text)
        return [len(text)]

    for texts in (["a", "bb"], ["a"], ["a", "bb"], ["bb"], ["bb"], ["a"]):
        known.begin()
        assert [known.get(t, lambda t=t: tokens(t)) for t in texts] == [[len(t)] for t in texts]
    assert read == ["a", "bb", "a"]
    known.clear()
    known.get("bb", lambda: tokens("bb"))
    assert read[-1] == "bb"


def test_the_last_16_prefixes_are_kept_however_often_each_is_used(prompts: Prompts) -> None:
    mine = prompts.prefix([SYSTEM], [])
    for number in range(15):
        for _ in range(2):
            prompts.prefix([Message("system", str(number))], [])
    assert prompts.prefix([SYSTEM], []) is mine
    for number in range(16):
        prompts.prefix([Message("system", str(number))], [])
    assert prompts.prefix([SYSTEM], []) is not mine


# --- what a reply finds ------------------------------------------------------------------------


def test_a_reply_reuses_the_words_read_ahead(engine: LlamaCpp) -> None:
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


def test_only_changed_words_are_read_again(engine: LlamaCpp) -> None:
    session = engine.open()
    before = warm(session, SPOKEN, said="Could you please tell me where")
    warm(session, SPOKEN, said="Could you please tell me where the red bull")
    usage = warm(session, SPOKEN, said="Could you please tell me where the red ball")
    assert usage.cached == before.prompt + 2
    assert usage.evaluated == 1


def test_reading_ahead_resumes_after_a_cancel(engine: LlamaCpp) -> None:
    session = engine.open()
    said = "and so on " * 60
    warm(session, SPOKEN)
    with pytest.raises(Cancelled):
        warm(session, SPOKEN, said=said, cancel=Token(cancel_after=4))
    usage = warm(session, SPOKEN, said=said)
    assert 0 < usage.cached < usage.prompt
    assert warm(session, SPOKEN, said=said).evaluated == 0


def test_a_reply_counts_what_it_evaluated_itself(engine: LlamaCpp) -> None:
    """Not what earlier, discarded replies read."""
    session = engine.open()
    warm(session, SPOKEN)
    text = "Which of the two balloons is higher up"
    prompts = engine._parts.prompts
    for more in ("", " now", " now, please"):
        asked = [*SPOKEN, Message("user", text + more)]
        steps = replies(session, asked)
        begin(steps)
        steps.close()  # type: ignore[attr-defined]
    last = prompts.whole(asked, [])
    before = prompts.whole([*SPOKEN, Message("user", f"{text} now")], [])
    again = answer(session, asked)[1].usage
    assert (again.prompt, again.cached, again.evaluated) == (len(last), len(last) - 1, 1)
    changed = [*SPOKEN, Message("user", f"{text} now then")]
    usage = answer(session, changed)[1].usage
    shared = common_prefix(before, prompts.whole(changed, []))
    assert (usage.cached, usage.evaluated) == (shared, usage.prompt - shared)
    assert usage.generated <= 6


# --- whether words are complete ----------------------------------------------------------------

WHOLE = [
    "What time is it",
    "Turn your head to the left, please",
    "Is it going to rain this afternoon",
    "I would like to buy a new car next year",
    "How many planets are there in the solar system",
    "We went to the beach last weekend and it was lovely",
]
CUT = [
    "What time is the",
    "Turn your head to",
    "Is it going to rain this",
    "I would like to buy a",
    "How many planets are there in the",
    "We went to the beach last weekend and",
]


def test_complete_and_incomplete_words_are_distinguished(engine: LlamaCpp) -> None:
    session = engine.open()
    ends = [warmed(session, SPOKEN, said=text).end_probability or 0 for text in [*WHOLE, *CUT]]
    assert min(ends[: len(WHOLE)]) > 0.02
    assert max(ends[len(WHOLE) :]) < 0.001


def test_a_clause_that_may_go_on_is_less_complete_than_a_sentence(engine: LlamaCpp) -> None:
    session = engine.open()
    clause, whole = (
        warmed(session, SPOKEN, said=text).end_probability or 0
        for text in ("If it rains tomorrow", "It rains tomorrow")
    )
    assert clause < whole / 10


def test_punctuation_at_the_end_does_not_count(engine: LlamaCpp) -> None:
    session = engine.open()
    end = warmed(session, SPOKEN, said="What time is it").end_probability
    for mark in (".", "?", "...", " ,", ", "):
        assert warmed(session, SPOKEN, said=f"What time is it{mark}").end_probability == end


def test_a_reply_begins_with_the_verdict(engine: LlamaCpp) -> None:
    session = engine.open()
    for text, low, high in (("What time is it?", 0.02, 1), ("What time is the.", 0, 0.001)):
        asked = [*SPOKEN, Message("user", text)]
        first, *others = (item for item in replies(session, asked) if item)
        assert isinstance(first, EndOfTurn)
        assert first.usage.prompt == first.usage.cached + first.usage.evaluated > 0
        assert low < first.probability < high
        assert not [item for item in others if isinstance(item, EndOfTurn)]


def test_a_verdict_on_words_read_ahead_is_reused(engine: LlamaCpp) -> None:
    session = engine.open()
    text = "Shall we go for a walk in the park"
    ahead = warmed(session, SPOKEN, said=text)
    again = warmed(session, SPOKEN, said=text)
    assert again.usage.evaluated == 0
    assert again.end_probability == ahead.end_probability
    steps = replies(session, [*SPOKEN, Message("user", f"{text}?")])
    first = next(item for item in steps if item)
    assert first == EndOfTurn(ahead.end_probability or 0)


def test_only_the_users_words_are_judged(engine: LlamaCpp) -> None:
    session = engine.open()
    assert warmed(session, SPOKEN).end_probability is None
    assert warmed(session, SPOKEN, said=" ... ").end_probability is None
    result = HISTORIES["a tool's result"]
    items = list(replies(session, result, tools=SHORT_TOOLS))
    assert not [item for item in items if isinstance(item, EndOfTurn)]


def test_each_family_shows_where_the_users_words_end(prompts: Prompts) -> None:
    text = "Could you please bring me a cup of coffee"
    # In tokens of our model, the marks of some families are text, which runs into punctuation.
    marked = prompts._tail[0] in prompts._model.control_tokens
    for tools in ([], SHORT_TOOLS):
        said = Message("user", f"{text}?!" if marked else text)
        whole = prompts.whole([*SPOKEN, said], tools)
        at = prompts.last_word(whole)
        assert at is not None
        pieces = (prompts._model.piece(token, special=True) for token in whole[: at + 1])
        assert b"".join(pieces).decode().endswith(text)
        assert prompts.last_word(whole[:-1]) is None
