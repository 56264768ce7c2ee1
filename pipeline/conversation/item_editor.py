"""Changes the conversation's items and publishes each change: the client's requests, the user's
speech, and answers."""

from __future__ import annotations

from collections.abc import Callable

from pipeline import events
from pipeline.commands import AddItem, DeleteItem, RetrieveItem, TruncateItem
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat, DuplicateItem, TooShort, UnknownItem
from pipeline.conversation.resumed_history import ResumedHistory
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    ToolServerItem,
    text_chars,
)

ItemCommand = AddItem | DeleteItem | RetrieveItem | TruncateItem

MAX_TEXT_CHARS = 4_000_000
"""Most text of one conversation; far more than any model's context holds."""

ROOM = 1 / 8
"""Share of a full conversation that is dropped at once to make room."""


class ItemEditor:
    """The one way to change the items of a running session's chat."""

    def __init__(self, context: SessionContext, chat: Chat) -> None:
        self._context = context
        self._bus = context.bus
        self._chat = chat
        self._max_items = context.settings.max_items
        self._history: ResumedHistory | None = ResumedHistory(chat.items)
        """The resumed conversation, until a turn or a request: the client may send it again."""

    # -- the user's speech, and answers

    def commit(self, item_id: str, part: AudioPart) -> MessageItem:
        """Add the user's speech; returns its item."""
        self._history = None
        if item_id in self._chat:
            # The client has used the id of its open speech for something else.
            item_id = self._context.new_id("item")
        item = MessageItem(item_id, "user", (part,), at=self._context.end_turn_time())
        previous = self.append(item)
        self._bus.publish(events.InputCommitted(item_id, previous))
        self._bus.publish(events.ItemAdded(item, previous))
        return item

    def note(self, item: Item, *, hidden: bool = False) -> None:
        """Append an item of the server's own. ``hidden``: the client is not told."""
        self._bus.publish(events.ItemAdded(item, self.append(item, hidden=hidden), hidden))

    def append(self, item: Item, after: str | None = None, *, hidden: bool = False) -> str | None:
        """Append an item, or insert it after ``after`` if that still exists; returns the id before
        it. If the conversation is full, drop several of its oldest items at once, to leave room for
        the client's items, too."""
        self._make_room()
        try:
            return self._chat.add(item, after, hidden=hidden)
        except UnknownItem:
            return self._chat.add(item, hidden=hidden)

    def update(self, item: events.OutputItem | ToolServerItem) -> None:
        """Replace an item, unless the client has deleted it."""
        if item.id in self._chat:
            self._chat.put(item)

    def _make_room(self) -> None:
        if len(self._chat) >= self._max_items:
            for item_id in self._chat.drop_oldest(max(1, int(self._max_items * ROOM))):
                self._bus.publish(events.ItemDeleted(item_id))

    # -- requests of the client

    def add(self, command: AddItem) -> bool:
        """Add the client's item. False if it was refused or is there already."""
        item = command.item
        if self._is_there(item):
            self._bus.publish(
                events.ItemAdded(self._chat.get(item.id), self._chat.previous_id(item.id))
            )
            return False
        if self._answers_a_call(item):
            self._make_room()  # never refuse a call's output for lack of room
        elif len(self._chat) >= self._max_items:
            text = f"The conversation has {self._max_items} items, its limit. Delete some first."
            return self._refuse(command, "too_many_items", text, "item")
        if self._chat.text_chars + text_chars(item) > MAX_TEXT_CHARS:
            text = f"The conversation would have more than {MAX_TEXT_CHARS} characters of text."
            return self._refuse(command, "conversation_too_long", text, "item")
        try:
            previous = self._chat.add(item, command.after)
        except DuplicateItem:
            text = f"Error adding item: an item with id '{item.id}' already exists."
            return self._refuse(command, "item_create_duplicate_item_id", text, "item.id")
        except UnknownItem:
            text = f"Error adding item: the previous item with id '{command.after}' does not exist."
            code = "item_create_invalid_previous_item_id"
            return self._refuse(command, code, text, "previous_item_id")
        self._bus.publish(events.ItemAdded(item, previous))
        return True

    def _is_there(self, item: Item) -> bool:
        """Whether the resumed conversation has the client's item; it then takes the client's id."""
        found = self._history.find(item) if self._history else []
        if not found or any(each not in self._chat for each in found):
            return False
        if found != [item.id]:
            if item.id in self._chat and item.id not in found:
                return False
            self._chat.rename(found, item.id)
        return True

    def answer_asked(self) -> None:
        """The client asks for an answer to the conversation; from now on, all it sends is new."""
        history, self._history = self._history, None
        for item, before in history.asked_again if history else ():
            if item.id in self._chat:
                self._chat.rename([item.id], before)
                self._chat.add(item)

    def _answers_a_call(self, item: Item) -> bool:
        return isinstance(item, FunctionOutputItem) and any(
            isinstance(other, FunctionCallItem) and other.call_id == item.call_id
            for other in self._chat.newest_first
        )

    def delete(self, command: DeleteItem) -> None:
        try:
            self._chat.delete(command.item_id)
        except UnknownItem:
            text = f"Error deleting item: the item with id '{command.item_id}' does not exist."
            self._refuse(command, "item_delete_invalid_item_id", text, "item_id")
        else:
            self._bus.publish(events.ItemDeleted(command.item_id))

    def retrieve(self, command: RetrieveItem) -> None:
        try:
            item = self._chat.get(command.item_id)
        except UnknownItem:
            text = f"Error retrieving item: the item with id '{command.item_id}' does not exist."
            self._refuse(command, "item_retrieve_invalid_item_id", text, "item_id")
        else:
            self._bus.publish(events.ItemRetrieved(item))

    def truncate(
        self, command: TruncateItem, truncate_running: Callable[[str, float], bool]
    ) -> None:
        """Truncate a spoken answer. ``truncate_running(item_id, seconds)`` cuts one that is still
        being given; it returns False if the answer has ended."""
        item_id, end_ms = command.item_id, command.audio_end_ms
        if command.content_index != 0:
            text = "Error truncating item: the only content of a spoken item has index 0."
            self._refuse(command, "invalid_value", text, "content_index")
            return
        try:
            if item_id not in self._chat or not truncate_running(item_id, end_ms / 1000):
                self._chat.truncate(item_id, end_ms / 1000)
        except UnknownItem:
            text = f"Error truncating item: there is no spoken answer with id '{item_id}'."
            self._refuse(command, "item_truncate_invalid_item_id", text, "item_id")
        except TooShort as short:
            there_ms = round(short.seconds * 1000)
            text = f"Audio content of {there_ms}ms is already shorter than {end_ms}ms"
            self._refuse(command, "invalid_value", text, "audio_end_ms")
        else:
            self._bus.publish(events.ItemTruncated(item_id, command.content_index, end_ms))

    def _refuse(self, command: ItemCommand, code: str, message: str, param: str) -> bool:
        self._context.refuse(command.event_id, code, message, param)
        return False
