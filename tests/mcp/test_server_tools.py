"""Calls to tool servers in a session: what the user hears and the model reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pipeline.bus import Published
from pipeline.commands import (
    AddItem,
    CancelResponse,
    CommitAudio,
    Configure,
    CreateResponse,
    ResponseOptions,
    ServerRequest,
    SessionConfig,
    ToolFilter,
)
from pipeline.conversation.prompt import NO_OUTPUT
from pipeline.engines.contract import ToolCall
from pipeline.events import ItemAdded, ReplyItemStarted, ServerCallEnded, ToolListing
from pipeline.items import FunctionCallItem, FunctionOutputItem, ToolServerItem
from pipeline.messages import Tool, ToolChoice
from pipeline.settings import Notices, SessionSettings
from pipeline.tools.contract import CallResult
from pipeline.tools.offer import offer_tools
from pipeline.tools.server_tools import (
    BRIDGE_AFTER_S,
    CANCELLED,
    DENIED,
    ENDED,
    GONE,
    MOST_CALLS,
    MOST_ROUNDS,
)
from reachy_voice.testing import (
    AT_ONCE,
    PUSH_TO_TALK,
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    play,
    say,
    silence,
    wait,
    write,
)
from tests.support.scripted_tool_servers import (
    RAIN,
    ScriptedToolServer,
    ScriptedToolServers,
    tool,
)

pytestmark = pytest.mark.quick

URL = "http://tools.example/mcp"
ASK = (write("What is the weather?"), CreateResponse())
ASK_MORE = (write("And what time is it?", "item_y"), CreateResponse())
FILLER = "One moment."
NO_OBJECT = "The tool has failed: The arguments are not a JSON object."
TEXT = replace(PUSH_TO_TALK, modality="text")
ALWAYS = SessionSettings(notices=(Notices("en", filler_sentences=(FILLER,)),))


def weather(**changes: Any) -> ScriptedToolServer:
    return ScriptedToolServer(**changes)


def caller(*answers: Any, name: str = "forecast", arguments: str = "{}") -> ScriptedLlm:
    """A model that calls once, then gives the answers."""
    return ScriptedLlm(answers=[(ToolCall(name, arguments),), *answers], deltas=("It rains.",))


def scene(
    llm: ScriptedLlm,
    server: ScriptedToolServer,
    *acts: Any,
    config: SessionConfig = TEXT,
    **options: Any,
) -> Scene:
    servers = ScriptedToolServers((server,))
    return play(*acts, llm=llm, config=config, tool_servers=servers, **options)


def outcome(played: Scene) -> tuple[str | None, str | None]:
    """Output and error of the only call."""
    (ended,) = played.events(ServerCallEnded)
    assert ended.item.server
    return ended.item.server.output, ended.item.server.error


def test_the_answer_continues_by_itself() -> None:
    llm, server = caller(arguments='{"day": 1}'), weather()
    played = scene(llm, server, *ASK, wait(2))
    assert server.calls == [("forecast", {"day": 1})]
    assert outcome(played) == ("Rain.", None)
    assert played.prompts[1][-1] == ("tool", "Rain.")
    assert (played.words, played.statuses) == (["It rains."], ["completed", "completed"])
    # An unaware client sees neither the call nor its output.
    assert all(e.hidden for e in played.events(ItemAdded) if isinstance(e.item, FunctionOutputItem))


def test_a_spoken_turn_is_answered_with_the_result() -> None:
    llm = ScriptedLlm(
        answers=[("I will look. ", ToolCall("forecast", "{}"))], deltas=("It rains.",)
    )
    played = scene(llm, weather(), say(1), silence(6), config=VOICE)
    assert played.words == ["I will look.", "It rains."]
    assert played.refusals == []


@pytest.mark.parametrize(
    ("server", "arguments", "read"),
    [
        (weather(result=CallResult(error="it is down")), "{}", "The tool has failed: it is down"),
        (weather(), "[1]", NO_OBJECT),
        (weather(), "{", NO_OBJECT),
        (weather(), '{"a": NaN}', NO_OBJECT),
        (weather(), '{"a": "\\ud800"}', NO_OBJECT),
        (weather(), '{"a": ' + "[" * 5000, NO_OBJECT),
    ],
)
def test_a_failed_call_is_answered(server: ScriptedToolServer, arguments: str, read: str) -> None:
    played = scene(caller(arguments=arguments), server, *ASK, wait(2))
    assert played.prompts[1][-1] == ("tool", read)
    assert played.words == ["It rains."]


def test_a_picture_is_shown_to_the_model() -> None:
    llm = caller()
    picture = CallResult("A map:", ("data:image/png;base64,aGk=",))
    scene(llm, weather(result=picture), *ASK, wait(2))
    call, output, shown = llm.prompts[1][-3:]
    assert (call.role, output.content, shown.role) == ("assistant", "A map:", "user")
    assert [image.url for image in shown.images] == list(picture.images)


def test_a_slow_call_is_bridged_once() -> None:
    llm, server = caller(), weather(takes_s=4 * BRIDGE_AFTER_S)
    played = scene(llm, server, say(1), silence(16), config=VOICE, settings=ALWAYS)
    assert played.words == [FILLER, "It rains."]
    assert FILLER not in str(llm.prompts)  # the model has not said it


@pytest.mark.parametrize(
    ("acts", "said"),
    [
        ((CancelResponse(),), ["It rains."]),
        ((say(0.6), silence(3)), ["Never mind."]),
    ],
)
def test_an_interruption_cancels_the_call(acts: Any, said: list[str]) -> None:
    stt = ScriptedStt(("What is the weather?", "Forget it, tell me a joke."))
    server = weather(takes_s=20)
    llm = caller(("Never mind.",))
    played = scene(
        llm, server, say(1), silence(2), *acts, wait(1), stt=stt, config=VOICE, settings=AT_ONCE
    )
    assert server.cancelled == 1
    assert outcome(played) == (None, CANCELLED)
    assert played.refusals == []
    assert played.words == [] if isinstance(acts[0], CancelResponse) else said


@pytest.mark.parametrize("after_s", [0.3, 1.0, 2.0])
def test_the_question_of_a_cancelled_call_stays(after_s: float) -> None:
    llm = ScriptedLlm(answers=[("I will look. ", ToolCall("forecast", "{}"))], deltas=("Fine.",))
    stt = ScriptedStt(("What is the weather?", "What did I ask?"))
    acts = say(1), silence(after_s), CancelResponse(), wait(1), say(1), silence(3)
    played = scene(llm, weather(takes_s=20), *acts, stt=stt, config=VOICE, settings=AT_ONCE)
    asked, *_, result, again = played.prompts[-1][1:]
    assert (asked, again) == (("user", "What is the weather?"), ("user", "What did I ask?"))
    assert result == ("tool", f"The tool has failed: {CANCELLED}")


def test_a_barge_in_over_the_words_before_a_call_cancels_it() -> None:
    words = "I will look that up for you in the newest forecast that there is. "
    llm = ScriptedLlm(answers=[(words, ToolCall("forecast", "{}"))], deltas=("Fine.",))
    server = weather(takes_s=20)
    acts = say(1), silence(2.5), say(1), silence(3)
    played = scene(llm, server, *acts, config=VOICE, settings=AT_ONCE)
    assert (server.cancelled, played.statuses[0]) == (1, "cancelled")


def test_a_noise_over_the_words_before_a_call_does_not_cancel_it() -> None:
    """It cuts the answer off before it is known that there are no words in it."""
    stt = ScriptedStt(("What is the weather?", ""))
    words = "I will look that up for you in the newest forecast that there is. "
    llm = ScriptedLlm(answers=[(words, ToolCall("forecast", "{}"))], deltas=("It rains.",))
    acts = say(1), silence(2.5), say(1), silence(6)
    played = scene(llm, weather(takes_s=5), *acts, stt=stt, config=VOICE, settings=AT_ONCE)
    assert played.statuses == ["cancelled", "completed"]
    assert outcome(played) == ("Rain.", None)
    assert played.words[-1] == "It rains."


def test_a_backchannel_does_not_cancel_the_call() -> None:
    stt = ScriptedStt(("What is the weather?", "Okay."))
    llm, server = caller(("Hold on.",)), weather(takes_s=8)
    played = scene(llm, server, say(1), silence(2), say(0.4), silence(10), stt=stt, config=VOICE)
    assert server.cancelled == 0
    assert played.words == ["Hold on.", "It rains."]
    assert ("tool", NO_OUTPUT) in played.prompts[-1]
    assert played.prompts[-1][-1] == ("tool", "Rain.")


def test_calls_of_the_client_are_waited_for() -> None:
    dance = Tool("dance", "", {"type": "object"})
    llm = ScriptedLlm(
        answers=[(ToolCall("dance", "{}"), ToolCall("forecast", "{}"))], deltas=("Done.",)
    )

    async def answer(played: Scene) -> None:
        items = played.session.chat.items
        call = next(i for i in items if isinstance(i, FunctionCallItem) and not i.server)
        assert played.words == []
        await played.do(
            AddItem(FunctionOutputItem("out", call.call_id, "Danced.")), CreateResponse()
        )

    config = replace(TEXT, tools=(dance,))
    played = scene(llm, weather(), *ASK, wait(2), answer, wait(2), config=config)
    assert (played.words, played.refusals) == (["Done."], [])


def test_a_client_that_requests_the_next_answer_gets_one() -> None:
    llm = caller(("It ", 0.5, "rains."))
    played = scene(llm, weather(), *ASK, wait(0.9), CreateResponse(), wait(3))
    assert "".join(played.words) == "It rains."
    assert played.refusals == []


def test_a_request_during_a_call_gives_one_answer_with_its_options() -> None:
    llm = caller()
    asked = CreateResponse(ResponseOptions(instructions="Sing."))
    played = scene(llm, weather(takes_s=2), *ASK, wait(1), asked, wait(4))
    assert (played.words, played.refusals) == (["It rains."], [])
    assert len(llm.prompts) == 2
    assert played.prompts[1][0] == ("system", "Sing.")
    assert played.prompts[1][-1] == ("tool", "Rain.")


def test_a_new_question_does_not_wait_for_a_call() -> None:
    llm = caller(("At noon.",))
    played = scene(llm, weather(takes_s=9), *ASK, wait(1), *ASK_MORE, wait(3))
    assert played.words == ["At noon."]


def test_a_new_question_over_the_answer_after_a_call_is_refused_as_over_any_other() -> None:
    """It is not taken as asking for that answer, and so forgotten."""
    llm = caller(("It ", 2.0, "rains."))
    played = scene(llm, weather(takes_s=0.1), *ASK, wait(1), *ASK_MORE, wait(3))
    assert played.refusals == [(None, "conversation_already_has_active_response")]


def test_a_new_question_in_push_to_talk_does_not_wait_for_a_call() -> None:
    """The client asks for its answer before its words are known."""
    stt = ScriptedStt(("What is the weather?", "And what time is it?"))
    ask = say(1), CommitAudio(), CreateResponse()
    llm = caller(("At noon.",))
    acts = *ask, wait(1), *ask, wait(3)
    played = scene(llm, weather(takes_s=9), *acts, stt=stt, config=PUSH_TO_TALK)
    assert played.words == ["At noon."]
    assert outcome(played) == (None, CANCELLED)


def test_an_out_of_band_answer_does_not_replace_the_one_after_a_call() -> None:
    aside = CreateResponse(ResponseOptions(in_conversation=False))
    llm = caller(("It ", 0.5, "rains."), ("Aside.",))
    played = scene(llm, weather(), *ASK, wait(0.9), aside, CreateResponse(), wait(3))
    assert (sorted(played.words), played.refusals) == (["Aside.", "It ", "rains."], [])


def test_a_picture_does_not_hide_a_running_call() -> None:
    class Slow(ScriptedToolServer):
        async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            self.takes_s = 3.0 if name == "forecast" else 0.1
            await super().call(name, arguments)
            return RAIN if name == "forecast" else picture

    picture = CallResult("A map:", ("data:image/png;base64,aGk=",))
    server = Slow(tools=(tool("forecast"), tool("map")))
    llm = ScriptedLlm(
        answers=[(ToolCall("forecast", "{}"), ToolCall("map", "{}"))], deltas=("It rains.",)
    )
    played = scene(llm, server, *ASK, wait(6))
    assert played.words == ["It rains."]
    assert len(llm.prompts) == 2


def test_a_cancelled_answer_gets_no_answer_after_its_call() -> None:
    words = "I will look that up for you in the newest forecast that there is. "
    llm = ScriptedLlm(answers=[(words, ToolCall("forecast", "{}"))], deltas=("It rains.",))
    played = scene(
        llm, weather(takes_s=0.1), say(1), silence(2.5), CancelResponse(), silence(3), config=VOICE
    )
    assert len(llm.prompts) == 1
    assert played.refusals == []


def test_a_result_is_not_said_after_the_other_call_is_cancelled() -> None:
    class Slow(ScriptedToolServer):
        async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            self.takes_s = 20.0 if name == "forecast" else 0.1
            return await super().call(name, arguments)

    server = Slow(tools=(tool("forecast"), tool("map")))
    llm = ScriptedLlm(
        answers=[
            (ToolCall("forecast", "{}"), ToolCall("map", "{}")),
            (ToolCall("dance", "{}"),),
        ],
        deltas=("Done.",),
    )

    async def answer(played: Scene) -> None:
        call = next(c for c in _calls(played) if c.name == "dance")
        await played.do(AddItem(FunctionOutputItem("out", call.call_id, "Danced.")))

    config = replace(TEXT, tools=(Tool("dance", "", {"type": "object"}),))
    acts = *ASK, wait(2), CancelResponse(), wait(1), *ASK_MORE, wait(2), answer, wait(2)
    played = scene(llm, server, *acts, config=config)
    assert played.words == []  # the client did not request an answer


def test_a_server_that_ignores_cancellation_changes_nothing() -> None:
    class Deaf(ScriptedToolServer):
        async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            with suppress(asyncio.CancelledError):
                await super().call(name, arguments)
            return RAIN

    played = scene(caller(), Deaf(takes_s=20), *ASK, wait(2), CancelResponse(), wait(2))
    assert outcome(played) == (None, CANCELLED)
    assert played.words == []


def test_a_call_ends_with_its_session() -> None:
    """A resumed conversation has no call without an output."""
    played = scene(caller(), weather(takes_s=20), *ASK, wait(2))
    assert outcome(played) == (None, ENDED)
    outputs = [i for i in played.session.chat.items if isinstance(i, FunctionOutputItem)]
    assert [each.output for each in outputs] == [f"The tool has failed: {ENDED}"]


def _calls(played: Scene) -> list[FunctionCallItem]:
    return [item for item in played.session.chat.items if isinstance(item, FunctionCallItem)]


def test_repeated_calls_end_in_words() -> None:
    def think(messages: Any, tools: Any, choice: ToolChoice) -> Any:
        return ("Enough.",) if choice.kind == "none" else (ToolCall("forecast", "{}"),)

    llm = ScriptedLlm(think=think)
    played = scene(llm, weather(), *ASK, wait(20))
    assert (played.words, len(llm.prompts)) == (["Enough."], MOST_ROUNDS + 2)


def test_a_forced_call_is_not_forced_again() -> None:
    llm = caller()
    config = replace(TEXT, tool_choice=ToolChoice("required"))
    scene(llm, weather(), *ASK, wait(2), config=config)
    assert [choice.kind for _, choice in llm.offered] == ["required", "auto"]


# --- servers of the client ---------------------------------------------------------------------


def clients(
    request: ServerRequest, server: ScriptedToolServer, llm: ScriptedLlm, *acts: Any
) -> Scene:
    servers = ScriptedToolServers(clients={URL: server})
    config = replace(TEXT, servers=(request,))
    return play(*acts, llm=llm, config=config, tool_servers=servers)


def test_a_server_of_the_client_is_listed_and_closed_with_it() -> None:
    server, llm = weather(tools=(tool("forecast"), tool("erase"))), ScriptedLlm()
    only = ServerRequest("w", URL, allowed=ToolFilter(("forecast",)), approved=ToolFilter())
    states: list[bool] = []
    look = lambda played: states.append(server.running)  # noqa: E731
    played = clients(only, server, llm, wait(1), look, *ASK, wait(1), Configure(TEXT), look)
    listing = [event.item for event in played.events(ToolListing)]
    assert [item.status for item in listing] == ["in_progress", "completed"]
    assert [each["name"] for each in listing[1].fields["tools"]] == ["forecast"]
    assert [t.name for t in llm.offered[0][0]] == ["forecast"]
    assert states == [True, False]


@pytest.mark.parametrize("approved", [ToolFilter(), None])
@pytest.mark.parametrize(
    ("later", "connections", "goes_on"),
    [
        (None, 1, False),
        ({"headers": (("X-Key", "another"),)}, 2, False),
        ({"approved": ToolFilter(("another",))}, 1, True),
        ({"allowed": ToolFilter(("another",))}, 1, True),
    ],
)
def test_calls_end_when_the_client_removes_or_changes_their_server(
    later: Mapping[str, Any] | None, connections: int, goes_on: bool, approved: ToolFilter | None
) -> None:
    owners = weather(label="w")
    server, llm = weather(takes_s=3), caller()
    request = ServerRequest("w", URL, approved=approved)
    servers = ScriptedToolServers((owners,), {URL: server})
    after = TEXT if later is None else replace(TEXT, servers=(replace(request, **later),))
    acts = wait(1), *ASK, wait(2), Configure(after), wait(2)
    played = play(*acts, llm=llm, config=replace(TEXT, servers=(request,)), tool_servers=servers)
    if goes_on and approved is None:
        assert outcome(played) == (None, ENDED), "it still waits for approval"
    else:
        assert outcome(played) == (("Rain.", None) if goes_on else (None, GONE))
        assert played.words == ["It rains."]
    assert len(servers.opened) == connections
    assert len(played.events(ToolListing)) == (4 if later else 2), "what may be used is told"
    assert owners.calls == []  # though it has the same name


def test_the_limit_of_calls_counts_finished_ones() -> None:
    over = asyncio.Event()

    class Gate(ScriptedToolServer):
        async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            self.calls.append((name, arguments))
            await over.wait()
            return RAIN

    def watch(played: Scene) -> None:
        """End the first call just as the last one is made."""
        begun = iter(range(MOST_CALLS))

        def look(published: Published) -> None:
            if isinstance(published.event, ReplyItemStarted) and next(begun, None) is None:
                over.set()

        played.bus.tap(look)

    asked = ToolCall("forecast", "{}")
    calls = (ToolCall("open", "{}"), *[asked] * (MOST_CALLS - 1), 0.5, asked)
    server = Gate(tools=(tool("open"), tool("forecast")))
    request = ServerRequest("w", URL, approved=ToolFilter(("open",)))
    played = clients(request, server, ScriptedLlm(answers=[calls]), wait(1), watch, *ASK, wait(3))
    assert server.calls == [("open", {})]
    ends = [end.item.server.error for end in played.events(ServerCallEnded) if end.item.server]
    assert ends == [None, f"More than {MOST_CALLS} calls at a time.", *[ENDED] * (MOST_CALLS - 1)]


def test_a_late_server_of_the_client_is_offered() -> None:
    server, llm = weather(problem="it is down", tools=()), ScriptedLlm()

    def come_up(played: Scene) -> None:
        server.tools, server.problem = (tool("forecast"),), ""
        server.changed()

    clients(ServerRequest("w", URL), server, llm, wait(1), come_up, *ASK, wait(1))
    assert [each.name for each in llm.offered[0][0]] == ["forecast"]


def test_a_server_that_cannot_be_listed_is_reported() -> None:
    server = weather(problem="it is down", tools=())
    played = clients(ServerRequest("w", URL), server, ScriptedLlm(), wait(1), *ASK, wait(1))
    assert [event.item.status for event in played.events(ToolListing)][1:] == ["incomplete"]
    assert played.refusals == [(None, "mcp_list_tools_failed")]
    assert played.statuses == ["completed"]


@pytest.mark.parametrize(
    ("approve", "read", "calls"), [(True, "Rain.", 1), (False, f"The tool has failed: {DENIED}", 0)]
)
def test_a_call_waits_for_the_client_to_approve_it(approve: bool, read: str, calls: int) -> None:
    server, llm = weather(), caller()

    async def answer(played: Scene) -> None:
        (asked,) = [i for i in played.session.chat.items if _asks(i)]
        assert asked.fields == {"server_label": "w", "name": "forecast", "arguments": "{}"}
        assert (server.calls, played.words) == ([], [])
        fields: Mapping[str, Any] = {"approval_request_id": asked.id, "approve": approve}
        for item_id in ("a", "b"):
            answered = ToolServerItem(item_id, "mcp_approval_response", fields)
            await played.do(AddItem(answered, event_id=item_id))

    request = ServerRequest("w", URL)
    played = clients(request, server, llm, wait(1), *ASK, wait(5), answer, wait(2))
    assert played.prompts[1][-1] == ("tool", read)
    assert len(server.calls) == calls
    assert played.refusals == [("b", "invalid_value")]  # answered already


def _asks(item: Any) -> bool:
    return isinstance(item, ToolServerItem) and item.type == "mcp_approval_request"


@pytest.mark.parametrize(
    ("approved", "singly", "asked"),
    [
        (None, None, {"read", "write"}),
        (ToolFilter(), None, set()),
        (ToolFilter(("read",)), None, {"write"}),
        (ToolFilter(read_only=True), None, {"write"}),
        (ToolFilter(), ToolFilter(("write",)), {"write"}),
    ],
)
def test_which_calls_are_approved(
    approved: ToolFilter | None, singly: ToolFilter | None, asked: set[str]
) -> None:
    request = ServerRequest("w", URL, approved=approved, approved_singly=singly)
    tools = {"read": True, "write": False}
    assert {
        name for name, read_only in tools.items() if request.asks_first(name, read_only)
    } == asked


# --- names -------------------------------------------------------------------------------------


def test_the_client_keeps_its_names() -> None:
    server = weather(tools=(tool("dance"), tool("a.b/c"), tool("forecast")))
    other = weather(label="other", tools=(tool("forecast"), tool("dance")))
    ours = (Tool("dance", "", {}),)
    names = [t.name for t in offer_tools(ours, [(server, None), (other, None)])]
    assert names == ["dance", "weather_dance", "a_b_c", "forecast", "other_forecast", "other_dance"]


@pytest.mark.parametrize("alike", ["天{}", "get_/v1/" + "organizations/" * 5 + "{}"])
def test_every_tool_gets_a_name_of_its_own(alike: str) -> None:
    """Characters and lengths that no function may have are lost."""
    names = [alike.format(last) for last in "地人水火"]
    server = weather(tools=tuple(map(tool, [*names, names[0]])))
    offered = offer_tools((), [(server, None)])
    assert len({each.name for each in offered}) == len(offered) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each.name) for each in offered)


@pytest.mark.parametrize(
    ("choice", "kind", "name", "offered_names"),
    [
        (ToolChoice("named", "forecast", server="weather"), "named", "forecast", 2),
        (ToolChoice("named", server="weather"), "required", "", 1),
        (ToolChoice("named", "gone", server="weather"), "auto", "", 2),
    ],
)
def test_a_tool_of_a_server_can_be_chosen(
    choice: ToolChoice, kind: str, name: str, offered_names: int
) -> None:
    llm = ScriptedLlm()
    config = replace(TEXT, tools=(Tool("dance", "", {}),), tool_choice=choice)
    scene(llm, weather(), *ASK, wait(1), config=config)
    tools, read = llm.offered[0]
    assert (read.kind, read.name, len(tools)) == (kind, name, offered_names)


def test_out_of_band_responses_have_no_server_tools() -> None:
    llm = ScriptedLlm()
    scene(llm, weather(), CreateResponse(ResponseOptions(in_conversation=False)), wait(1))
    assert llm.offered[0][0] == ()
