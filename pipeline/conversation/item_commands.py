"""Commands that change or read the conversation's items: carried out, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.bus import Bus
from pipeline.commands import AddItem, DeleteItem, RetrieveItem, TruncateItem
from pipeline.conversation.chat import Chat, DuplicateItem, TooShort, UnknownItem
from pipeline.events import ItemAdded, ItemDeleted, ItemDone, ItemRetrieved, ItemTruncated, Refused
from pipeline.items import FunctionCallItem, FunctionOutputItem, Item, text_chars

ItemCommand = AddItem | DeleteItem | RetrieveItem | TruncateItem

MAX_TEXT_CHARS = 4_000_000
"""Text of one conversation; far more than any context of a model takes."""


ROOM = 1 / 8
"""Of a full conversation goes to make room for what is said."""


def make_room(chat: Chat, bus: Bus, max_items: int) -> None:
    """What is said goes into a full conversation, too; its oldest items leave instead. Several at
    once, so that there is room for a client's items as well."""
    if len(chat.items) >= max_items:
        for item_id in chat.drop_oldest(max(1, int(max_items * ROOM))):
            bus.publish(ItemDeleted(item_id))


class ItemCommands:
    """Works on one conversation, and publishes what happened to it."""

    def __init__(
        self, chat: Chat, bus: Bus, max_items: int, truncate_given: Callable[[str, float], bool]
    ) -> None:
        """``truncate_given(item_id, seconds)`` cuts an answer that is still being given; False if
        that is none."""
        self._truncate_given = truncate_given
        self._chat = chat
        self._bus = bus
        self._max_items = max_items
        self._from_before = {item.id for item in chat.items}
        """Items of a conversation that goes on: its client may not know, and send them again."""

    def carry_out(self, command: ItemCommand) -> bool:
        """True when an item was added."""
        match command:
            case AddItem():
                return self._add(command)
            case DeleteItem():
                self._delete(command)
            case RetrieveItem():
                self._retrieve(command)
            case TruncateItem():
                self._truncate(command)
        return False

    def _add(self, command: AddItem) -> bool:
        item = command.item
        if item.id in self._from_before and item in self._chat.items:
            self._from_before.remove(item.id)
            self._tell_added(command, self._chat.previous_id(item.id))
            return False
        if self._answers_a_call(item):
            make_room(self._chat, self._bus, self._max_items)
        elif len(self._chat.items) >= self._max_items:
            text = f"The conversation has {self._max_items} items, its limit. Delete some first."
            return self._refuse(command, "too_many_items", text, "item")
        if sum(map(text_chars, (*self._chat.items, item))) > MAX_TEXT_CHARS:
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
        self._tell_added(command, previous)
        return True

    def _answers_a_call(self, item: Item) -> bool:
        """Whether it is the output of a call of ours, which must never be refused for want of
        room."""
        return isinstance(item, FunctionOutputItem) and any(
            isinstance(other, FunctionCallItem) and other.call_id == item.call_id
            for other in self._chat.items
        )

    def _tell_added(self, command: AddItem, previous: str | None) -> None:
        self._bus.publish(ItemAdded(command.item, previous))
        self._bus.publish(ItemDone(command.item, previous))

    def _delete(self, command: DeleteItem) -> None:
        try:
            self._chat.delete(command.item_id)
        except UnknownItem:
            text = f"Error deleting item: the item with id '{command.item_id}' does not exist."
            self._refuse(command, "item_delete_invalid_item_id", text, "item_id")
        else:
            self._bus.publish(ItemDeleted(command.item_id))

    def _retrieve(self, command: RetrieveItem) -> None:
        try:
            item = self._chat.get(command.item_id)
        except UnknownItem:
            text = f"Error retrieving item: the item with id '{command.item_id}' does not exist."
            self._refuse(command, "item_retrieve_invalid_item_id", text, "item_id")
        else:
            self._bus.publish(ItemRetrieved(item))

    def _truncate(self, command: TruncateItem) -> None:
        item_id, end_ms = command.item_id, command.audio_end_ms
        if command.content_index != 0:
            text = "Error truncating item: the only content of a spoken item has index 0."
            self._refuse(command, "invalid_value", text, "content_index")
            return
        try:
            if not self._truncate_given(item_id, end_ms / 1000):
                self._chat.truncate(item_id, end_ms / 1000)
        except UnknownItem:
            text = f"Error truncating item: there is no spoken answer with id '{item_id}'."
            self._refuse(command, "item_truncate_invalid_item_id", text, "item_id")
        except TooShort as short:
            there_ms = round(short.seconds * 1000)
            text = f"Audio content of {there_ms}ms is already shorter than {end_ms}ms"
            self._refuse(command, "invalid_value", text, "audio_end_ms")
        else:
            self._bus.publish(ItemTruncated(item_id, command.content_index, end_ms))

    def _refuse(self, command: ItemCommand, code: str, message: str, param: str) -> bool:
        self._bus.publish(Refused(command.event_id, code, message, param))
        return False
