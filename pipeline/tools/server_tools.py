"""The tools of servers in one session: they are offered to the model beside the client's, and a
call of one is carried out here, as a client would do it: call, output, next answer.

The answer that calls ends as any other. When all calls have their outputs, the client's too, the
next one is given. A long wait is bridged by a filler sentence. Speech that is more than "mm-hm", a
cancelled answer and ``response.cancel`` cancel calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
"""Calls of one session that run, or wait for the client's approval; more fail at once."""
MOST_ROUNDS = 8
"""Answers in a row that only call tools; the next one must be in words."""
BRIDGE_AFTER_S = 3.0
"""Silence during a call after which the filler is said. A guess."""

CANCELLED = "Cancelled: the user did not wait for the result."
DENIED = "The user did not allow this call."


@dataclass(slots=True, eq=False)
class _Call:
    """A call that is not over, made by the answer ``reply_id`` with its ``options``. It has no
    ``task`` until the client has approved it."""

    reply_id: str
    options: ResponseOptions
    item: FunctionCallItem
    server: ServerCall
    task: asyncio.Task[None] | None = None


class ServerTools:
    """``configure`` it with what the client asks for; it follows the bus."""

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
        """``offer_changed`` is called when the model is offered other tools than before;
        ``user_speaks`` tells whether a turn is open."""
        self._context = context
        self._chat = chat
        self._editor = editor
        self._replies = replies
        self._servers = servers
        self._offer_changed = offer_changed
        self._user_speaks = user_speaks
        self._config = context.asked
        self._clients: dict[ServerRequest, tuple[ToolServer, asyncio.Task[None]]] = {}
        self._calls: dict[str, _Call] = {}
        """By the id of the item."""
        self._unapproved: dict[str, _Call] = {}
        """By the id of the request to approve it."""
        self._bridge: asyncio.Task[None] | None = None
        self._fillers = 0
        self._pending: ResponseOptions | None = None
        """Of the next answer, once a call is over."""
        self._next: ResponseOptions | None = None
        """The answer after calls, until the client has asked for it, too."""
        self._rounds = 0
        context.bus.tap(self._follow)

    @property
    def busy(self) -> bool:
        """Whether calls are running, or wait for approval."""
        return bool(self._calls)

    # -- what is offered

    def configure(self, config: SessionConfig) -> None:
        """The client's settings, whose servers are opened, and closed if they are not there any
        more. The session's own settings are these and the tools of servers."""
        self._config = config
        for request in self._clients.keys() - set(config.servers):
            self._clients.pop(request)[1].cancel()
        for request in config.servers:
            if request not in self._clients:
                owners = (each for each in self._servers.owners if each.label == request.label)
                server = self._servers.open(request) if request.url else next(owners)
                task = self._context.tasks.create_task(self._serve(server, request))
                self._clients[request] = server, task
        self._offer()

    def refresh(self) -> None:
        """Offer what the servers have now."""
        before = self._context.asked.tools
        self._offer()
        if self._context.asked.tools != before:
            self._offer_changed()

    def _offer(self) -> None:
        clients = [(server, request) for request, (server, _) in self._clients.items()]
        labels = {server.label for server, _ in clients}
        owners = [(each, None) for each in self._servers.owners if each.label not in labels]
        tools = offer_tools(self._config.tools, [*clients, *owners]) if self._config.answers else ()
        self._context.asked = replace(self._config, tools=tools)

    async def _serve(self, server: ToolServer, request: ServerRequest) -> None:
        async with asyncio.TaskGroup() as group:
            if request.url:
                group.create_task(server.run())
            await self._list(server, request)

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
                if reason in ("turn_detected", "client_cancelled"):
                    self.interrupt(reply_id)
            case ItemAdded(FunctionOutputItem(), hidden=False):
                self._go_on()
            case TranscriptReady(text=text) if text:
                self._rounds, self._pending = 0, None
                overlap, settings = Overlap(0, True, text), self._context.settings.barge_in
                if words(overlap, settings, self._context.lexicon) != "backchannel":
                    self.interrupt()

    def _take_call(self, reply_id: str, item: FunctionCallItem, server: ServerCall) -> None:
        call = _Call(reply_id, self._replies.latest_options, item, server)
        self._calls[item.id] = call
        if self._asks_first(call) and len(self._calls) <= MOST_CALLS:
            self._ask(call)
        else:
            self._begin(call)

    def _asks_first(self, call: _Call) -> bool:
        tools = {tool.name: tool.origin for tool in self._context.asked.tools}
        origin = tools.get(call.item.name)
        read_only = origin is not None and origin.read_only
        requests = (each for each in self._clients if each.label == call.server.server)
        return any(each.asks_first(call.server.name, read_only) for each in requests)

    def _ask(self, call: _Call) -> None:
        """Ask the client whether this may be called."""
        request_id = self._context.new_id("mcpr")
        call.server = replace(call.server, approval_id=request_id)
        call.item = replace(call.item, server=call.server)
        self._editor.update(call.item)
        self._unapproved[request_id] = call
        fields = {
            "server_label": call.server.server,
            "name": call.server.name,
            "arguments": call.item.arguments,
        }
        self._editor.note(ToolServerItem(request_id, "mcp_approval_request", fields))

    def answer_approval(self, command: AddItem, item: ToolServerItem) -> None:
        """The client approves a call, or does not."""
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
        servers = [server for server, _ in self._clients.values()] + [*self._servers.owners]
        server = next((each for each in servers if each.label == call.server.server), None)
        try:
            arguments = json.loads(call.item.arguments or "{}")
        except ValueError:
            arguments = None
        if server is None:
            result = CallResult(error="This server is not used any more.")
        elif not isinstance(arguments, dict):
            result = CallResult(error="The arguments are not a JSON object.")
        elif len(self._calls) > MOST_CALLS:
            result = CallResult(error=f"More than {MOST_CALLS} calls at a time.")
        else:
            result = await server.call(call.server.name, arguments)
        self._end(call, result)

    def _end(self, call: _Call, result: CallResult) -> None:
        """The call is over; after the last one, the next answer is given."""
        self._close(call, result)
        for url in result.images:
            picture = MessageItem(self._context.new_id("item"), "user", (ImagePart(url),))
            self._editor.note(picture, hidden=not call.server.shown)
        if not call.server.offered:  # the model does not know what to make of the result
            now = asyncio.get_running_loop().time()
            self._replies.answer_later(now, call.options, text=result.error or result.text)
            self._replies.answer_pending()
            return
        self._pending = call.options
        self._go_on()

    def _close(self, call: _Call, result: CallResult) -> None:
        """Note how the call ended, for the model and the client."""
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
        """Cancel the calls of one answer, or all but those that wait to be approved. False if there
        are none."""
        calls = [
            c for c in self._calls.values() if c.reply_id == reply_id or (not reply_id and c.task)
        ]
        for call in calls:
            if call.task:
                call.task.cancel()
            self._unapproved.pop(call.server.approval_id or "", None)
            self._close(call, CallResult(error=CANCELLED))
        return bool(calls)

    # -- what follows

    def _go_on(self) -> None:
        """Give the next answer, unless some call still has no output."""
        if self._pending is None or self._lacks_output():
            return
        options, self._pending = self._pending, None
        self._rounds += 1
        choice = self._context.config.with_options(options).tool_choice
        if self._rounds > MOST_ROUNDS:
            options = replace(options, tool_choice=ToolChoice("none"))
        elif choice.kind in ("required", "named"):  # that was meant for the first answer
            options = replace(options, tool_choice=ToolChoice(parallel=choice.parallel))
        self._next = replace(options, input=None)
        self._replies.answer_later(asyncio.get_running_loop().time(), self._next)
        self._replies.answer_pending()

    def _lacks_output(self) -> bool:
        """Whether a call of this turn has no output yet; it may be one of the client's."""
        outputs: set[str] = set()
        for item in reversed(self._chat.items):
            match item:
                case FunctionOutputItem():
                    outputs.add(item.call_id)
                case FunctionCallItem() if item.call_id not in outputs:
                    return True
                case MessageItem(role="user") if item.text:
                    return False
        return False

    def has_asked(self, command: CreateResponse) -> bool:
        """Whether ``command`` asks for the answer after calls, which is given anyway: the API
        leaves it to the client to ask for it."""
        following, self._next = self._next, None
        if following is None or not command.options.in_conversation or command.options.input:
            self._rounds = 0
            return False
        return following is self._replies.awaited_options

    async def _pass_the_time(self, options: ResponseOptions) -> None:
        """Say a filler once if nothing has been heard for a while."""
        await self._replies.quiet.wait()
        await asyncio.sleep(BRIDGE_AFTER_S)
        context = self._context
        if not self._replies.idle or self._user_speaks():
            return
        sentence = context.settings.filler_sentence(self._fillers, context.language)
        if sentence and context.config.with_options(options).modality == "audio":
            self._fillers += 1
            self._replies.notify(sentence)
