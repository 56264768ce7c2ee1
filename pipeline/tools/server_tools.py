"""The tools of tool servers in one session. They are offered to the model beside the client's, and
their calls are carried out here the way a client would do it: call, output, next answer.

An answer with calls ends like any other. Once all calls have their outputs, including the client's,
the next answer is given. A filler sentence bridges a long wait. Calls are cancelled by speech that
is more than "mm-hm", once its words are known, and by ``response.cancel``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pipeline.bus import Published
from pipeline.commands import AddItem, CreateResponse, ResponseOptions, ServerRequest, SessionConfig
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_editor import ItemEditor
from pipeline.events import (
    ItemAdded,
    ReplyFinished,
    ReplyItemFinished,
    ServerCallBegun,
    ServerCallEnded,
    ToolListing,
    TranscriptReady,
)
from pipeline.items import (
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    ItemStatus,
    MessageItem,
    ServerCall,
    ToolServerItem,
)
from pipeline.messages import ToolChoice
from pipeline.speaking.replies import Replies
from pipeline.tools.contract import CallResult, ToolServer, ToolServers
from pipeline.tools.offer import offer_tools
from pipeline.turn_taking.barge_in import Overlap, words

MOST_CALLS = 32
"""Most calls of one session that run or wait for the client's approval; more fail at once."""
MOST_ROUNDS = 8
"""Most answers in a row that may call tools; the next one must be in words."""
BRIDGE_AFTER_S = 3.0
"""Silence during a call before a filler is said. A guess."""

CANCELLED = "Cancelled: the user did not wait for the result."
ENDED = "Cancelled: the connection to the user was lost."
GONE = "This server is not used any more."
DENIED = "The user did not allow this call."


@dataclass(slots=True, eq=False)
class _Call:
    """An open call, made by the answer ``reply_id`` with its ``options``."""

    reply_id: str
    options: ResponseOptions
    item: FunctionCallItem
    server: ServerCall
    excess: bool
    """There were too many calls already."""
    task: asyncio.Task[None] | None = None
    """``None`` while the call waits for approval."""


class _Client(NamedTuple):
    """A server that the client names. ``tasks`` keep it connected and list its tools."""

    request: ServerRequest
    server: ToolServer
    tasks: Sequence[asyncio.Task[None]]


class ServerTools:
    """``configure`` it with the client's settings; it follows the bus by itself."""

    def __init__(
        self,
        context: SessionContext,
        chat: Chat,
        editor: ItemEditor,
        replies: Replies,
        servers: ToolServers,
        offer_changed: Callable[[], None],
        user_speaks: Callable[[], bool],
    ) -> None:
        """``offer_changed`` is called when the tools offered to the model change; ``user_speaks``
        tells whether a turn is open."""
        self._context = context
        self._chat = chat
        self._editor = editor
        self._replies = replies
        self._servers = servers
        self._offer_changed = offer_changed
        self._user_speaks = user_speaks
        self._config = context.asked
        self._clients: list[_Client] = []
        self._calls: dict[str, _Call] = {}
        """Open calls, by item id."""
        self._unapproved: dict[str, _Call] = {}
        """Calls that wait for approval, by the id of the approval request."""
        self._bridge: asyncio.Task[None] | None = None
        self._fillers = 0
        self._pending: ResponseOptions | None = None
        """Options of the next answer, once a call is over."""
        self._asked: ResponseOptions | None = None
        """The client's options for that answer, if it asked for it while the call was running."""
        self._next: ResponseOptions | None = None
        """Options of the newest answer after calls."""
        self._next_asked = self._next_shown = False
        """Whether the client also asked for that answer, and whether it was told of the calls."""
        self._rounds = 0
        context.bus.tap(self._follow)

    @property
    def busy(self) -> bool:
        """Whether calls are running, or wait for approval."""
        return bool(self._calls)

    # -- what is offered

    def configure(self, config: SessionConfig) -> None:
        """Take the client's settings: open the servers in them, and close those no longer there.
        The session's effective settings are these plus the tools of servers."""
        self._config = config
        gone = {client.request.place: client for client in self._clients}
        self._clients = [self._attach(each, gone.pop(each.place, None)) for each in config.servers]
        for task in (task for client in gone.values() for task in client.tasks):
            task.cancel()
        self._offer()
        labels = {label for label, url, _ in gone if url}
        for call in list(self._calls.values()):
            if call.server.shown and call.server.server in labels:
                self._stop(call)
                self._end(call, CallResult(error=GONE))

    def refresh(self) -> None:
        """Offer the servers' current tools."""
        before = self._context.asked.tools
        self._offer()
        if self._context.asked.tools != before:
            self._offer_changed()

    def _offer(self) -> None:
        clients = [(client.server, client.request) for client in self._clients]
        labels = {server.label for server, _ in clients}
        owners = [(each, None) for each in self._servers.owners if each.label not in labels]
        tools = offer_tools(self._config.tools, [*clients, *owners]) if self._config.answers else ()
        self._context.asked = replace(self._config, tools=tools)

    def _attach(self, request: ServerRequest, before: _Client | None) -> _Client:
        """Connect to a server, unless ``before`` already is, and list its tools if the request is
        new."""
        if before and before.request == request:
            return before
        create_task = self._context.tasks.create_task
        tasks = [task for task in before.tasks if not task.done()] if before else []
        if before:
            server = before.server
        elif request.url:
            server = self._servers.open(request, self.refresh)
            tasks.append(create_task(server.run()))
        else:
            server = next(each for each in self._servers.owners if each.label == request.label)
        return _Client(request, server, [*tasks, create_task(self._list(server, request))])

    async def _list(self, server: ToolServer, request: ServerRequest) -> None:
        label: dict[str, Any] = {"server_label": server.label}
        item_id = self._context.new_id("mcpl")
        item = ToolServerItem(item_id, "mcp_list_tools", {**label, "tools": []}, "in_progress")
        before = self._editor.append(item)
        self._context.bus.publish(ToolListing(item, before))
        problem = await server.wait_for_tools()
        tools = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in server.tools
            if request.allowed.admits(t.name, t.read_only)
        ]
        status: ItemStatus = "incomplete" if problem else "completed"
        item = replace(item, fields={**label, "tools": tools}, status=status)
        self._editor.update(item)
        self.refresh()
        self._context.bus.publish(ToolListing(item, before))
        if problem:
            text = f"The tools of the MCP server '{server.label}' cannot be listed: {problem}."
            self._context.refuse(None, "mcp_list_tools_failed", text, "session.tools")

    # -- calls

    def _follow(self, published: Published) -> None:
        match published.event:
            case ReplyItemFinished(reply_id, FunctionCallItem(status="completed") as item):
                if item.server:
                    self._take_call(reply_id, item, item.server)
            case ReplyFinished(reply_id, "cancelled", reason=reason):
                if reason == "client_cancelled":
                    self.interrupt(reply_id)
            case ItemAdded(FunctionOutputItem(), hidden=False):
                self._go_on()
            case TranscriptReady(text=text) if text:
                self._rounds, self._pending, self._asked = 0, None, None
                overlap, settings = Overlap(0, True, text), self._context.settings.barge_in
                if words(overlap, settings, self._context.lexicon) != "backchannel":
                    self.interrupt()

    def _take_call(self, reply_id: str, item: FunctionCallItem, server: ServerCall) -> None:
        excess = len(self._calls) >= MOST_CALLS
        call = _Call(reply_id, self._replies.latest_options, item, server, excess)
        self._calls[item.id] = call
        if self._asks_first(call) and not excess:
            self._ask(call)
        else:
            self._begin(call)

    def _asks_first(self, call: _Call) -> bool:
        label, name = call.server.server, call.server.name
        for request, server, _ in self._clients:
            if call.server.shown and request.label == label:
                read_only = any(tool.read_only for tool in server.tools if tool.name == name)
                return request.asks_first(name, read_only)
        return False

    def _ask(self, call: _Call) -> None:
        """Ask the client to approve the call."""
        request_id = self._context.new_id("mcpr")
        call.server = replace(call.server, approval_id=request_id)
        call.item = replace(call.item, server=call.server)
        self._editor.update(call.item)
        self._unapproved[request_id] = call
        name = {"server_label": call.server.server, "name": call.server.name}
        fields = {**name, "arguments": call.item.arguments}
        self._editor.note(ToolServerItem(request_id, "mcp_approval_request", fields))

    def answer_approval(self, command: AddItem, item: ToolServerItem) -> None:
        """Handle the client's approval or denial of a call."""
        request_id = item.fields["approval_request_id"]
        if request_id not in self._unapproved:
            text = f"No call waits for the approval request with id '{request_id}'."
            param = "item.approval_request_id"
            self._context.refuse(command.event_id, "invalid_value", text, param)
        elif self._editor.add(command):
            call = self._unapproved.pop(request_id)
            if item.fields["approve"]:
                self._begin(call)
            else:
                self._end(call, CallResult(error=DENIED))

    def _begin(self, call: _Call) -> None:
        call.task = self._context.tasks.create_task(self._run(call))
        if not self._bridge:
            self._bridge = self._context.tasks.create_task(self._pass_the_time(call.options))

    async def _run(self, call: _Call) -> None:
        self._context.bus.publish(ServerCallBegun(call.item.id))
        clients = [client.server for client in self._clients]
        servers = clients if call.server.shown else self._servers.owners
        server = next((each for each in servers if each.label == call.server.server), None)
        arguments = _arguments(call.item.arguments)
        if server is None:
            result = CallResult(error=GONE)
        elif arguments is None:
            result = CallResult(error="The arguments are not a JSON object.")
        elif call.excess:
            result = CallResult(error=f"More than {MOST_CALLS} calls at a time.")
        else:
            result = await server.call(call.server.name, arguments)
        if call.item.id in self._calls:  # not if it was cancelled but the server answered anyway
            self._end(call, result)

    def _end(self, call: _Call, result: CallResult) -> None:
        """End a call; after the last one, give the next answer."""
        self._close(call, result)
        for url in result.images:
            picture = MessageItem(self._context.new_id("item"), "user", (ImagePart(url),))
            self._editor.note(picture, hidden=not call.server.shown)
        if not call.server.offered:  # the model does not know the tool: speak the result itself
            now, options = asyncio.get_running_loop().time(), replace(call.options, input=None)
            self._replies.answer_later(now, options, text=result.error or result.text)
            self._replies.answer_pending()
            return
        self._pending, self._next_shown = call.options, call.server.shown
        self._go_on()

    def _close(self, call: _Call, result: CallResult) -> None:
        """Record how the call ended, for the model and the client."""
        del self._calls[call.item.id]
        if self._bridge and not any(each.task for each in self._calls.values()):
            self._bridge.cancel()
            self._bridge = None
        error, code = result.error, result.error_code
        output = None if error else result.text
        server = replace(call.server, output=output, error=error, error_code=code)
        item = replace(call.item, server=server)
        self._editor.update(item)
        text = f"The tool has failed: {error}" if error else result.text
        output_id = self._context.new_id("item")
        self._editor.note(FunctionOutputItem(output_id, item.call_id, text), hidden=True)
        self._context.bus.publish(ServerCallEnded(item))

    def interrupt(self, reply_id: str | None = None) -> bool:
        """Cancel the calls of one answer, or all calls except those that wait for approval; a
        rule's, which soon end, go on. Returns False if there are none."""
        known = (call for call in self._calls.values() if call.server.offered)
        calls = [c for c in known if c.reply_id == reply_id or (not reply_id and c.task)]
        for call in calls:
            self._stop(call)
            self._close(call, CallResult(error=CANCELLED))
        if calls:
            self._pending = self._asked = None
        speaking = self._replies.speaking
        follows = self._next is not None and self._replies.awaited_options is self._next
        if follows and speaking and reply_id in (None, speaking.plan.reply_id):
            self._replies.forget_pending()  # else it would follow the cancelled answer
        return bool(calls)

    def close(self) -> None:
        """End all calls as the session ends, so that a resumed conversation has none left open."""
        for call in list(self._calls.values()):
            self._stop(call)
            self._close(call, CallResult(error=ENDED))

    def _stop(self, call: _Call) -> None:
        if call.task:
            call.task.cancel()
        self._unapproved.pop(call.server.approval_id or "", None)

    # -- what follows

    def _go_on(self) -> None:
        """Give the next answer, unless some call still has no output."""
        if self._pending is None or self._unanswered():
            return
        options, asked = self._asked or self._pending, self._asked
        self._pending = self._asked = None
        self._rounds += 1
        choice = self._context.config.with_options(options).tool_choice
        if self._rounds > MOST_ROUNDS:
            options = replace(options, tool_choice=ToolChoice("none"))
        elif not asked and choice.forces:  # meant for the first answer
            options = replace(options, tool_choice=ToolChoice(parallel=choice.parallel))
        self._next, self._next_asked = replace(options, input=None), asked is not None
        self._replies.answer_later(asyncio.get_running_loop().time(), self._next)
        self._replies.answer_pending()

    def _unanswered(self) -> list[FunctionCallItem]:
        """The calls of this turn without an output, including the client's."""
        outputs: set[str] = set()
        calls: list[FunctionCallItem] = []
        for item in self._chat.newest_first:
            match item:
                case FunctionOutputItem():
                    outputs.add(item.call_id)
                case FunctionCallItem() if item.call_id not in outputs:
                    calls.append(item)
                case _ if _asks_anew(item):
                    break
        return calls

    def has_asked(self, command: CreateResponse) -> bool:
        """Whether ``command`` asks for the answer after calls, which is given anyway. The API
        leaves it to the client to ask."""
        options = command.options
        if not options.in_conversation or options.input is not None:
            return False
        newest = next(self._chat.newest_first, None)
        is_due = self._next is not None and self._next is self._replies.awaited_options
        is_due = is_due and not _asks_anew(newest)
        if (is_due or self._is_over(options, newest)) and not self._next_asked:
            self._next_asked = True
            return True
        running = {call.item.id for call in self._calls.values() if call.task}
        calls = self._unanswered()
        if calls and all(item.id in running for item in calls):
            self._asked = options
            return True
        self._rounds = 0
        return False

    def _is_over(self, options: ResponseOptions, newest: Item | None) -> bool:
        """Whether the answer after calls that the client was told of was already given."""
        match newest:
            case MessageItem(role="assistant") if self._next is self._replies.latest_options:
                return self._next_shown and options == ResponseOptions()
        return False

    async def _pass_the_time(self, options: ResponseOptions) -> None:
        """Say one filler if the robot has been silent for a while."""
        await self._replies.quiet.wait()
        await asyncio.sleep(BRIDGE_AFTER_S)
        context = self._context
        if not self._replies.idle or self._user_speaks():
            return
        sentence = context.settings.filler_sentence(self._fillers, context.language)
        if sentence and context.config.with_options(options).modality == "audio":
            self._fillers += 1
            self._replies.notify(sentence)


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments that the model wrote; ``None`` unless they are an object that can be sent."""
    try:
        arguments = json.loads(text or "{}")
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _asks_anew(item: Item | None) -> bool:
    """Whether the user says something, or may: pictures alone may come from a tool."""
    match item:
        case MessageItem(role="user", parts=parts):
            return not all(isinstance(part, ImagePart) for part in parts)
    return False
