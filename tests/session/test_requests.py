"""Client requests in virtual time: refusals, how answers end, and what the model reads."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from pipeline import events
from pipeline.audio import AudioFormat, Recording
from pipeline.commands import (
    AddItem,
    AppendAudio,
    CancelResponse,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ItemReference,
    ResponseOptions,
    RetrieveItem,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines.contract import ToolCall
from pipeline.engines.llm.chat_template import ChatTemplate, capabilities_of
from pipeline.engines.llm.jinja_dialect import compile_template
from pipeline.engines.llm.template_messages import adapted
from pipeline.errors import EngineError, PromptTooLong
from pipeline.items import AudioPart, FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from pipeline.settings import SessionSettings
from pipeline.work import Cancelled
from reachy_voice.testing import (
    GREETING,
    PUSH_TO_TALK,
    VOICE,
    Act,
    Noise,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    text_item,
    wait,
    write,
)
from tests.support.places import DATA
from tests.support.tables import SCENES, check, row

pytestmark = pytest.mark.quick

HI = (write("hi"), CreateResponse())
WRITTEN = ResponseOptions(modality="text")
ASIDE = ResponseOptions(modality="text", in_conversation=False)
GREETED = "".join(GREETING)
SPEECH = AppendAudio(Noise(1)(3000, 8_000), 16_000)
SPOKEN = (SPEECH, CommitAudio())


def recorded(item_id: str) -> AddItem:
    """An item of recorded speech."""
    part = AudioPart(None, 0.2, Recording(Noise(1)(3000, 3_200), 16_000))
    return AddItem(MessageItem(item_id, "user", (part,)), event_id=item_id)


def committed_id(played: Scene) -> str:
    return played.events(events.InputCommitted)[0].item_id


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    SCENES,
    [
        row(
            "a second response at once",
            *(write("hi"), CreateResponse(), CreateResponse(event_id="e"), wait(5)),
            expect={
                "refusals": [("e", "conversation_already_has_active_response")],
                "statuses": ["completed"],
            },
        ),
        row(
            "cancelling nothing",
            *(CancelResponse(event_id="e"), *HI, wait(0.5), CancelResponse(), wait(2)),
            expect={
                "refusals": [("e", "response_cancel_not_active")],
                "ends": [("cancelled", "client_cancelled")],
            },
        ),
        row(
            "items that are there, or nowhere",
            *(write("hi"), AddItem(text_item("item_x", "again"), event_id="e1")),
            AddItem(MessageItem("b", "user"), after="nowhere", event_id="e2"),
            *(DeleteItem("item_x"), DeleteItem("item_x", event_id="e3")),
            expect={
                "refusals": [
                    ("e1", "item_create_duplicate_item_id"),
                    ("e2", "item_create_invalid_previous_item_id"),
                    ("e3", "item_delete_invalid_item_id"),
                ],
                "chat": [],
            },
        ),
        row(
            "an item that does not exist",
            RetrieveItem("gone", "e1"),
            CreateResponse(
                ResponseOptions(in_conversation=False, input=(ItemReference("gone"),)), "e2"
            ),
            config=PUSH_TO_TALK,
            expect={
                "refusals": [("e1", "item_retrieve_invalid_item_id"), ("e2", "invalid_value")],
                "statuses": [],
            },
        ),
        row(
            "truncating what was not spoken",
            *(write("hi there"), TruncateItem("item_x", 0, 10, "e1"), CreateResponse(), wait(4)),
            lambda played: played.do(
                TruncateItem(played.session.chat.last_id, 3, 10, "e2"),
                TruncateItem(played.session.chat.last_id, 0, 600, "e3"),
            ),
            expect={
                "refusals": [("e1", "item_truncate_invalid_item_id"), ("e2", "invalid_value")],
                "chat": [("user", "hi there"), ("assistant", "Hello there,")],
            },
        ),
        row(
            "a flood of responses out of band",
            *(CreateResponse(ASIDE, str(n)) for n in range(10)),
            silence(2.0),
            config=PUSH_TO_TALK,
            expect={
                "refusals": [("8", "too_many_responses"), ("9", "too_many_responses")],
                "statuses": ["completed"] * 8,
            },
        ),
        row(
            "a full conversation, which still listens",
            *(AddItem(text_item(f"i{n}", "x"), event_id=n) for n in "0123"),
            *(say(1.0), silence(5.0)),
            settings=SessionSettings(max_items=3),
            expect={
                "refusals": [("3", "too_many_items")],
                "statuses": ["completed"],
                "chat": [("user", "x"), ("user", "hello"), ("assistant", GREETED)],
            },
        ),
        row(
            "a conversation without bound",
            *(AddItem(text_item(f"i{n}", "x" * 1_500_000), event_id=n) for n in "012"),
            config=PUSH_TO_TALK,
            expect={"refusals": [("2", "conversation_too_long")]},
        ),
        row(
            "audio that piles up",
            AppendAudio(np.zeros(16_000 * 110, np.int16), 16_000, "big"),
            AppendAudio(np.zeros(16_000 * 60, np.int16), 16_000, "mine"),
            wait(1),
            config=PUSH_TO_TALK,
            expect={"refusals": [("mine", "input_audio_buffer_full")]},
        ),
        row(
            "sound all the time, of which the newest is kept",
            *(silence(125.0), SPEECH, CommitAudio(), wait(1)),
            config=PUSH_TO_TALK,
            stt=ScriptedStt(hears=lambda pcm: f"{np.count_nonzero(pcm)} of {len(pcm)}"),
            expect={
                "refusals": [(None, "input_audio_buffer_full")],
                "transcripts": ["8000 of 1920000"],
            },
        ),
        row(
            "commits that pile up",
            *(AppendAudio(np.zeros(1600, np.int16), 16_000), CommitAudio("e")) * 34,
            config=PUSH_TO_TALK,
            stt=ScriptedStt(takes_s=60),
            expect={"refusals": [("e", "input_audio_buffer_commit_busy")] * 2},
        ),
        row(
            "recordings that pile up",
            *(recorded(f"r{n}") for n in range(34)),
            config=PUSH_TO_TALK,
            stt=ScriptedStt(takes_s=9.0),
            expect={"refusals": [(f"r{n}", "input_audio_buffer_commit_busy") for n in (32, 33)]},
        ),
    ],
)
def test_refused_requests_change_nothing(acts, options, expect) -> None:  # type: ignore[no-untyped-def]
    check(acts, options, expect)


def test_a_nearly_empty_commit_is_refused_with_its_length() -> None:
    played = play(silence(0.06), CommitAudio("ev_1"), config=PUSH_TO_TALK)
    assert played.refusals == [("ev_1", "input_audio_buffer_commit_empty")]
    assert "60.00ms" in played.events(events.Refused)[0].message


@pytest.mark.parametrize("cancelled_at_s", [0.05, 0.5, 30.0])
@in_virtual_time
async def test_cancel_of_a_response_that_is_over_is_ignored(cancelled_at_s: float) -> None:
    """0.05 s: before its first sound; 30 s: after it ended by itself."""
    async with scene() as played:
        await played.act(*HI, wait(cancelled_at_s))
        [first] = [event.reply_id for event in played.events(events.ReplyStarted)]
        await played.do(CancelResponse(first), CancelResponse(first))
        await played.act(write("again", "item_y"), CreateResponse(), wait(0.5))
        await played.do(CancelResponse(first), CancelResponse("resp_unknown", event_id="e1"))
        await played.act(wait(20))
    assert [event_id for event_id, _ in played.refusals] == ["e1"]
    assert played.statuses == ["completed" if cancelled_at_s == 30.0 else "cancelled", "completed"]


@in_virtual_time
async def test_cancel_ends_a_held_response_but_not_a_speculative_one() -> None:
    async with scene() as played:
        await played.act(say(1.0), silence(0.1), CancelResponse("resp_guess", event_id="e1"))
        await played.act(silence(2.0))
        [first] = [event.reply_id for event in played.events(events.ReplyStarted)]
        await played.act(say(0.3), CancelResponse(first), CancelResponse(first), silence(0.02))
    assert [event_id for event_id, _ in played.refusals] == ["e1"]
    assert played.reply.status == "cancelled"


# --- how answers end ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    SCENES,
    [
        row(
            "a token limit",
            *(write("hi"), CreateResponse(ResponseOptions(max_output_tokens=3)), wait(3)),
            expect={"ends": [("incomplete", "max_output_tokens")]},
        ),
        row(
            "no limit for one response",
            *(CreateResponse(ResponseOptions(max_output_tokens="inf")), silence(1.0)),
            *(CreateResponse(), silence(1.0)),
            config=PUSH_TO_TALK,
            settings=SessionSettings(sampling=Sampling(max_tokens=3)),
            expect={"statuses": ["completed", "incomplete"]},
        ),
        row(
            "a model that fails once",
            *(*HI, wait(2), CreateResponse(), wait(5)),
            llm=ScriptedLlm(errors=[EngineError("It broke")]),
            expect={"ends": [("failed", "It broke"), ("completed", None)]},
        ),
        row(
            "a bug in a model",
            *(*HI, wait(1), CreateResponse(), wait(5)),
            llm=ScriptedLlm(errors=[ZeroDivisionError("bug")]),
            expect={"statuses": ["failed", "completed"]},
        ),
        row(
            "a voice that fails once",
            *(*HI, wait(2)),
            lambda played: setattr(played.stages.tts, "error", None),
            *(CreateResponse(), wait(5)),
            tts=ScriptedTts(error=EngineError("The voice broke")),
            expect={"ends": [("failed", "The voice broke"), ("completed", None)]},
        ),
        row(
            "a recogniser that fails",
            *(say(1.0), silence(2.0)),
            stt=ScriptedStt(error=EngineError("no ears")),
            expect={"ends": [("failed", "no ears")], "audio_s": 0, "chat": [("user", "")]},
        ),
        row(
            "arguments that nest too deep",
            *(AddItem(FunctionCallItem("c", "call", "f", "[" * 100_000)), CreateResponse()),
            wait(5),
            expect={"statuses": ["completed"]},
        ),
        row(
            "an id stolen from running speech",
            say(0.5),
            lambda played: played.do(write("mine", played.events(events.SpeechStarted)[0].item_id)),
            silence(5),
            expect={
                "statuses": ["completed"],
                "chat": [("user", "mine"), ("user", "hello"), ("assistant", GREETED)],
            },
        ),
        row(
            "an item that is deleted while it is spoken",
            *(*HI, wait(0.5)),
            lambda played: played.do(DeleteItem(played.session.chat.last_id)),
            wait(5),
            expect={"chat": [("user", "hi")]},
        ),
    ],
)
def test_the_answer_ends_and_the_session_goes_on(acts, options, expect) -> None:  # type: ignore[no-untyped-def]
    check(acts, options, expect)


def test_an_answer_that_reaches_its_limit_keeps_what_is_not_spoken() -> None:
    limited = CreateResponse(ResponseOptions(max_output_tokens=2))
    llm = ScriptedLlm(("One two three. ", '{"a": 1}', " four"))
    played = play(write("hi"), limited, wait(4), llm=llm)
    assert played.chat[-1] == ("assistant", 'One two three. {"a": 1}')


def test_a_failing_recogniser_is_reported_and_commits_the_speech() -> None:
    stt = ScriptedStt(error=EngineError("no ears"))
    played = play(say(1.0), silence(2.0), stt=stt)
    assert [event.message for event in played.events(events.TranscriptFailed)] == ["no ears"]
    assert len(played.events(events.ItemAdded)) == 1


def test_an_out_of_band_response_survives_a_barge_in() -> None:
    played = play(write("hi"), CreateResponse(ASIDE), say(0.3), silence(3))
    assert played.reply.status == "completed"


def test_a_text_turn_is_answered_in_text() -> None:
    tts = ScriptedTts()
    played = play(write("hi"), CreateResponse(WRITTEN), wait(1.0), tts=tts)
    assert "".join(played.words) == GREETED
    assert tts.said == []
    assert played.reply.items[0].parts == (TextPart(GREETED),)


def test_speed_and_format_change_what_is_spoken() -> None:
    slow = CreateResponse(ResponseOptions(output_format=AudioFormat("pcmu", 8_000)))
    config = replace(PUSH_TO_TALK, speed=1.5)
    played = play(CreateResponse(), silence(2.0), slow, silence(2.0), config=config)
    formats = [event.format for event in played.events(events.ReplyStarted)]
    assert formats == [AudioFormat(rate=16_000), AudioFormat("pcmu", 8_000)]
    by_rate = dict.fromkeys((16000, 8000), 0.0)
    for event in played.events(events.ReplyAudio):
        by_rate[event.rate] += len(event.pcm) / event.rate
    assert by_rate == pytest.approx({16_000: 1.4, 8_000: 1.4}, abs=0.01)


# --- what the model reads ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acts", "options", "prompt"),
    [
        pytest.param(
            (say(1.0), CommitAudio(), CreateResponse(), wait(5)),
            {},
            [("user", "hello")],
            id="what was just said, committed by the client",
        ),
        pytest.param(
            (*SPOKEN, CreateResponse(), AddItem(text_item("l", "LATER")),
             Configure(replace(PUSH_TO_TALK, instructions="NEW")), silence(5.0)),
            {"config": PUSH_TO_TALK, "stt": ScriptedStt(takes_s=1.0)},
            [("user", "hello")],
            id="the conversation as it was when it was asked",
        ),
        pytest.param(
            (recorded("a"), CreateResponse(), silence(1.0)),
            {"config": PUSH_TO_TALK},
            [("user", "hello")],
            id="speech that comes as an item",
        ),
        pytest.param(
            (say(1.0), recorded("r"), silence(4.0)),
            {"stt": ScriptedStt(texts=("spoken", "recorded"), takes_s=0.7)},
            [("user", "spoken recorded")],
            id="recordings that are being read",
        ),
        pytest.param(
            (write("Old", "a"), write("Older", "b"), say(1.0), silence(5.0)),
            {"llm": ScriptedLlm(first_s=1.2, errors=[PromptTooLong(9, 8)])},
            [("user", "hello")],
            id="only the last words where all are too long",
        ),
        pytest.param(
            (*(AddItem(text_item(f"i{n}", f"text {n}", role))
               for n, role in enumerate(("user", "assistant") * 3)), CreateResponse(), wait(5)),
            {"llm": ScriptedLlm(errors=[PromptTooLong(9000, 8192)])},
            [("assistant", "text 3"), ("user", "text 4"), ("assistant", "text 5")],
            id="the newer half of a conversation that is too long",
        ),
    ],
)  # fmt: skip
def test_the_model_reads(acts, options, prompt) -> None:  # type: ignore[no-untyped-def]
    played = play(*acts, **options)
    assert played.prompts[-1] == [("system", "Be brief."), *prompt]
    assert played.statuses == ["completed"]
    assert played.stages.stt.opened == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("input", "chat", "prompt"),
    [
        ((), ["hi"], []),
        ((ItemReference("b"), text_item("c", "Three")), ["One", "Two"], [("user", "Two Three")]),
    ],
    ids=["nothing", "an item and a text"],
)
def test_an_out_of_band_response_reads_its_input_and_leaves_no_trace(
    input: tuple[object, ...], chat: list[str], prompt: list[tuple[str, str]]
) -> None:
    aside = replace(ASIDE, input=input, instructions="Count.")  # type: ignore[arg-type]
    llm = ScriptedLlm()
    items = [write(text, "ab"[at]) for at, text in enumerate(chat)]
    played = play(*items, CreateResponse(), CreateResponse(aside), wait(5), llm=llm)
    assert played.statuses == ["completed"] * 2
    assert played.prompts[1] == [("system", "Count."), *prompt]
    assert played.chat == [*(("user", text) for text in chat), ("assistant", GREETED)]
    assert llm.opened == 0


SAY_HELLO = ResponseOptions(instructions="Say hello.")
NO_INPUT = replace(SAY_HELLO, in_conversation=False, input=())
NOTE = AddItem(text_item("note", "It is morning.", "system"))


@pytest.mark.parametrize("name", ["qwen3.5", "gemma2", "gemma3", "mistral-nemo", "gpt-oss"])
@pytest.mark.parametrize(
    "asks",
    [
        pytest.param((CreateResponse(SAY_HELLO),), id="the README's example"),
        pytest.param((NOTE, CreateResponse()), id="a system item only"),
        pytest.param((NOTE, CreateResponse(SAY_HELLO)), id="a system item and instructions"),
        pytest.param((CreateResponse(NO_INPUT),), id="no conversation and no input"),
        pytest.param(
            (Configure(replace(PUSH_TO_TALK, instructions="")), CreateResponse()), id="nothing"
        ),
    ],
)
def test_a_template_that_wants_the_user_can_greet(name: str, asks: tuple[Act, ...]) -> None:
    """Both the embedded model's template and a server's; each raises what it refuses."""
    source = (DATA / "chat_templates" / f"{name}.jinja").read_text()
    able, served, embedded = capabilities_of(source), compile_template(source), ChatTemplate(source)

    def think(messages: Sequence[Message], tools: Sequence[Tool], _: ToolChoice) -> Sequence[str]:
        embedded.render(messages, tools)
        told = [{"role": m.role, "content": m.content} for m in adapted(messages, tools, able)]
        assert served(messages=told, tools=[], add_generation_prompt=True)
        return GREETING

    played = play(*asks, wait(5), config=PUSH_TO_TALK, llm=ScriptedLlm(think=think))
    assert (played.statuses, "".join(played.words)) == (["completed"], GREETED)


def test_speech_without_words_is_reported() -> None:
    stt = ScriptedStt(error=EngineError("no ears"))
    played = play(*SPOKEN, CreateResponse(), silence(2.0), config=PUSH_TO_TALK, stt=stt)
    assert "could not be understood" in played.prompts[0][-1][1]


def test_session_update_warms_the_prefix() -> None:
    llm = ScriptedLlm()
    play(Configure(replace(VOICE, instructions="You are a robot.")), llm=llm)
    assert [messages[0].content for messages in llm.warmed] == ["Be brief.", "You are a robot."]


@in_virtual_time
async def test_a_displaced_warm_up_resumes_after_the_reply() -> None:
    llm = ScriptedLlm()
    async with scene(llm=llm, config=PUSH_TO_TALK) as played:
        llm.warm_s = 5.0
        await played.act(Configure(replace(PUSH_TO_TALK, instructions="Long.")), *HI, wait(20))
    assert llm.warm_ups_finished == 2
    assert llm.warmed[-1][0].content == "Long."


@in_virtual_time
async def test_a_changed_conversation_discards_the_speculative_reply() -> None:
    written = Configure(replace(VOICE, instructions="Be long.", modality="text"))
    async with scene() as played:
        await played.act(say(1.0), silence(0.18))
        assert len(played.prompts) == 1
        await played.act(AddItem(text_item("s", "It rains.", "system")), written, silence(5.0))
    assert played.events(events.SpeculationDiscarded)
    assert [event.modality for event in played.events(events.ReplyStarted)] == ["text"]
    rain, hello = ("system", "It rains."), ("user", "hello")
    assert played.prompts[-1] == [("system", "Be long."), rain, hello]


def test_a_result_two_turns_late_is_in_the_next_prompt() -> None:
    llm = ScriptedLlm()
    output = AddItem(FunctionOutputItem("o", "call", "It will rain."))
    play(
        *(write("Will it rain?", "a"), AddItem(FunctionCallItem("c", "call", "weather", "{}"))),
        *(CreateResponse(), wait(6), write("And now?", "b"), CreateResponse(), wait(6)),
        *(output, CreateResponse(), wait(6), write("Thanks.", "d"), CreateResponse(), wait(6)),
        llm=llm,
    )
    _, before, told, after = llm.prompts
    assert told[: len(before)] == before
    assert told[-1] == Message("tool", "It will rain.", tool_call_id="call")
    assert after[: len(told)] == told
    assert [m.content for m in after].count("It will rain.") == 1


FACT = "The tower is 71 metres high. "


@pytest.mark.parametrize("results", [[600_001], [45_000], [12_000] * 4])
@pytest.mark.parametrize("counts", [(12_000, 8192), (0, 0)])
def test_results_that_are_too_long_are_shortened_and_the_question_kept(
    results: list[int], counts: tuple[int, int]
) -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(*counts)])
    calls = [AddItem(FunctionCallItem(f"c{n}", f"{n}", "f", "{}")) for n in range(len(results))]
    outputs = [
        AddItem(FunctionOutputItem(f"o{n}", f"{n}", FACT + "x" * (chars - len(FACT))))
        for n, chars in enumerate(results)
    ]
    question, thanks = write("How high is the tower?", "q"), write("Thank you.", "t")
    ask = (CreateResponse(), wait(5))
    played = play(question, *calls, *outputs, *ask, thanks, *ask, llm=llm)
    assert played.statuses == ["completed"] * 2
    system, asked, called, *told = llm.prompts[-1][: 3 + len(results)]
    assert (system.content, asked.content) == ("Be brief.", "How high is the tower?")
    assert len(called.tool_calls) == len(results)
    for message, chars in zip(told, results, strict=True):
        assert message.content.startswith(FACT)
        assert "characters left out" in message.content
        assert len(message.content) <= chars / 2
    assert len(played.session.chat.get("o0").output) == results[0]  # type: ignore[union-attr]


@pytest.mark.parametrize("outside", [False, True])
def test_a_long_text_is_shortened_in_and_outside_the_conversation(outside: bool) -> None:
    long = text_item("long", f"{FACT}{'x' * 50_000} How high is it?")
    aside = ResponseOptions(in_conversation=False, input=(long,))
    acts: tuple[Act, ...] = (write("Hello.", "first"), AddItem(long), CreateResponse())
    if outside:
        acts = (CreateResponse(aside),)
    played = play(*acts, wait(5), llm=ScriptedLlm(errors=[PromptTooLong(12_000, 8192)]))
    assert played.statuses == ["completed"]
    told = played.prompts[-1][-1][1]
    assert FACT in told
    assert told.endswith(" How high is it?")
    assert len(told) < 25_000
    assert told.startswith("Hello.") != outside


def test_an_input_that_is_deleted_meanwhile_can_be_shortened() -> None:
    aside = replace(ASIDE, input=(ItemReference("long"),))
    acts = write("x" * 50_000, "long"), CreateResponse(aside), DeleteItem("long"), wait(5)
    played = play(*acts, llm=ScriptedLlm(errors=[PromptTooLong(12_000, 8192)]))
    assert played.statuses == ["completed"]
    assert len(played.prompts[-1][-1][1]) < 25_000


def test_a_prompt_that_can_never_fit_fails_clearly() -> None:
    played = play(*HI, wait(2), llm=ScriptedLlm(errors=[PromptTooLong(9000, 8192)] * 5))
    [(status, error)] = played.ends
    assert status == "failed"
    assert "9000 tokens" in (error or "")


# --- items -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_retrieved_item_has_exactly_the_committed_audio() -> None:
    async with scene() as played:
        await played.act(say(1.0), silence(5.0))
        await played.do(RetrieveItem(committed_id(played)), RetrieveItem(played.reply.items[0].id))
    heard, answered = (event.item.parts[0] for event in played.events(events.ItemRetrieved))  # type: ignore[union-attr]
    (recognised,) = played.stages.stt.finished  # type: ignore[attr-defined]
    assert heard.audio.rate == 16_000
    assert np.array_equal(heard.audio.pcm, recognised)
    sent = np.concatenate([event.pcm for event in played.events(events.ReplyAudio)])
    assert np.array_equal(answered.audio.pcm, sent)
    assert answered.transcript == GREETED


@in_virtual_time
async def test_a_truncation_by_the_client_overrides_our_estimate() -> None:
    async with scene() as played:
        await played.act(say(1.0), silence(0.8), say(0.3))
        (finished,) = played.events(events.ReplyFinished)
        assert finished.reason == "turn_detected"
        item_id = finished.items[0].id
        guess = played.session.chat.get(item_id).parts[0].seconds  # type: ignore[union-attr]
        earlier = round(guess * 1000) - 100
        await played.do(TruncateItem(item_id, 0, earlier))
        part = played.session.chat.get(item_id).parts[0]  # type: ignore[union-attr]
        assert part.seconds == earlier / 1000
        assert part.audio.seconds == pytest.approx(earlier / 1000)
        await played.do(TruncateItem(item_id, 0, earlier + 5000, "mine"))
    assert len(played.events(events.ItemTruncated)) == 1
    (refused,) = played.events(events.Refused)
    assert refused.event_id == "mine"
    assert "already shorter than" in refused.message


@pytest.mark.parametrize("detection", [None, TurnDetection(interrupt_response=False)])
@in_virtual_time
async def test_an_item_can_be_truncated_before_it_is_cancelled(
    detection: TurnDetection | None,
) -> None:
    llm = ScriptedLlm(("One two three four. ",) * 3, per_token_s=0.5)
    async with scene(config=replace(VOICE, turn_detection=detection), llm=llm) as played:
        await played.act(CreateResponse(), silence(0.5))
        item_id = played.events(events.ReplyItemStarted)[0].item.id
        much, little = TruncateItem(item_id, 0, 99_000, "much"), TruncateItem(item_id, 0, 300)
        await played.act(much, little, CancelResponse(), silence(1.0))
    assert [event_id for event_id, _ in played.refusals] == ["much"]
    assert len(played.events(events.ItemTruncated)) == 1
    (part,) = played.session.chat.get(item_id).parts  # type: ignore[union-attr]
    assert (part.transcript, part.seconds) == ("One", 0.3)
    assert part.audio.seconds == pytest.approx(0.3)
    assert len(played.events(events.ReplyItemFinished)) == 1


def test_a_cancel_that_crosses_the_end_takes_no_words_back() -> None:
    def cancel(played: Scene) -> Awaitable[None]:
        return played.do(CancelResponse(played.events(events.ReplyStarted)[0].reply_id))

    async def to_the_end(played: Scene) -> None:
        await played.until(events.ReplyFinished)

    again = write("again", "item_y"), CreateResponse(), wait(1)
    played = play(*HI, to_the_end, cancel, *again)
    assert played.prompts[-1][-3:] == [("user", "hi"), ("assistant", GREETED), ("user", "again")]


@pytest.mark.parametrize("cancels", [False, True], ids=["truncated", "cancelled"])
def test_nothing_more_is_heard_of_an_answer_that_the_client_ends(cancels: bool) -> None:
    """It was sent at once, without turn detection: an "okay" is a turn, and the model reads no more
    of the answer."""

    def cut(played: Scene) -> Awaitable[None]:
        started = played.events(events.ReplyItemStarted)[0]
        ends = TruncateItem(started.item.id, 0, 2400), CancelResponse(started.reply_id)
        return played.do(ends[cancels], Configure(VOICE))

    llm = ScriptedLlm(deltas=("one two three. ",) * 9)
    acts = *HI, wait(2.7), cut, silence(1), say(0.5), silence(3)
    played = play(*acts, config=PUSH_TO_TALK, llm=llm, stt=ScriptedStt(("Okay.",)))
    heard = "one two three. one two three. one two"
    assert played.chat[:3] == [("user", "hi"), ("assistant", heard), ("user", "Okay.")]
    assert played.refusals == []


@in_virtual_time
async def test_a_deleted_answer_cannot_be_truncated_while_it_is_given() -> None:
    async with scene() as played:
        await played.act(write("Hi", "u"), CreateResponse(), silence(1.0))
        item_id = played.events(events.ReplyItemStarted)[0].item.id
        await played.do(DeleteItem(item_id), TruncateItem(item_id, 0, 300, "mine"))
    assert played.refusals == [("mine", "item_truncate_invalid_item_id")]
    assert not played.events(events.ItemTruncated)


@in_virtual_time
async def test_a_conversation_full_of_speech_still_takes_a_call_output() -> None:
    llm = ScriptedLlm(answers=[("Yes.",)] * 7, deltas=(ToolCall("look", "{}"),))
    async with scene(settings=SessionSettings(max_items=8), llm=llm) as played:
        await played.act(*(say(0.5), silence(5.0)) * 8)
        call = played.session.chat.items[-1]
        assert isinstance(call, FunctionCallItem)
        assert len(played.session.chat.items) == 8
        await played.do(AddItem(FunctionOutputItem("o", call.call_id, "{}")))
        await played.do(AddItem(text_item("t", "hi"), event_id="mine"))
    assert [event_id for event_id, _ in played.refusals] == ["mine"]
    assert played.session.chat.last_id == "o"
    assert len(played.events(events.ItemDeleted)) == 8 + 8 + 1 - 8


# --- transcripts of what changes meanwhile -----------------------------------------------------


@pytest.mark.parametrize(
    SCENES,
    [
        row(
            "a recording in place of a deleted one",
            *(recorded("r"), DeleteItem("r"), recorded("r"), wait(5)),
            config=PUSH_TO_TALK,
            stt=ScriptedStt(texts=("first", "second"), takes_s=1.0),
            expect={"transcripts": ["second"], "chat": [("user", "second")]},
        ),
        row(
            "a recording in place of deleted speech",
            *SPOKEN,
            lambda played: played.do(
                DeleteItem(committed_id(played)), recorded(committed_id(played))
            ),
            wait(5),
            config=PUSH_TO_TALK,
            stt=ScriptedStt(texts=("first", "second"), takes_s=1.0),
            expect={"transcripts": ["second"], "chat": [("user", "second")]},
        ),
        row(
            "speech that came as an item",
            *(recorded("a"), wait(1)),
            config=PUSH_TO_TALK,
            expect={"transcripts": ["hello"], "chat": [("user", "hello")]},
        ),
    ],
)
def test_a_transcript_belongs_to_its_own_item(acts, options, expect) -> None:  # type: ignore[no-untyped-def]
    check(acts, options, expect)


def test_an_engine_that_stops_while_it_transcribes_does_not_end_the_session() -> None:
    stt = ScriptedStt(error=Cancelled())
    mend = lambda played: setattr(stt, "error", None)  # noqa: E731
    acts = (*SPOKEN, recorded("r"), wait(1), mend, *SPOKEN, wait(1))
    played = play(*acts, config=PUSH_TO_TALK, stt=stt)
    assert len(played.events(events.TranscriptFailed)) == 2
    assert played.transcripts == ["hello"]
