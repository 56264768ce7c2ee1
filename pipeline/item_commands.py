"""Commands that change the conversation's items: carried out, or refused with a reason."""

from __future__ import annotations

from pipeline.chat import Chat, DuplicateItem, TooShort, UnknownItem, text_chars
from pipeline.commands import AddItem, DeleteItem, RetrieveItem, TruncateItem
from pipeline.events import (
    Bus,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    Refused,
)

MAX_TEXT_CHARS = 4_000_000
"""Text of one conversation; far more than any context of a model takes."""

ItemCommand = AddItem | DeleteItem | RetrieveItem | TruncateItem


def carry_out(command: ItemCommand, chat: Chat, bus: Bus, max_items: int) -> bool:
    """Change or read ``chat`` and publish what happened. True when an item was added."""
    match command:
        case AddItem():
            return _add(command, chat, bus, max_items)
        case DeleteItem():
            _delete(command, chat, bus)
        case RetrieveItem():
            _retrieve(command, chat, bus)
        case TruncateItem():
            _truncate(command, chat, bus)
    return False


def _add(command: AddItem, chat: Chat, bus: Bus, max_items: int) -> bool:
    if len(chat.items) >= max_items:
        text = f"The conversation has {max_items} items, which is the limit. Delete some first."
        bus.publish(Refused(command.event_id, "too_many_items", text, param="item"))
        return False
    if sum(map(text_chars, (*chat.items, command.item))) > MAX_TEXT_CHARS:
        text = f"The conversation would have more than {MAX_TEXT_CHARS} characters of text."
        bus.publish(Refused(command.event_id, "conversation_too_long", text, param="item"))
        return False
    try:
        previous = chat.add(command.item, command.after)
    except DuplicateItem:
        text = f"Error adding item: an item with id '{command.item.id}' already exists."
        bus.publish(
            Refused(command.event_id, "item_create_duplicate_item_id", text, param="item.id")
        )
    except UnknownItem:
        text = f"Error adding item: the previous item with id '{command.after}' does not exist."
        code = "item_create_invalid_previous_item_id"
        bus.publish(Refused(command.event_id, code, text, param="previous_item_id"))
    else:
        bus.publish(ItemAdded(command.item, previous))
        bus.publish(ItemDone(command.item, previous))
        return True
    return False


def _delete(command: DeleteItem, chat: Chat, bus: Bus) -> None:
    try:
        chat.delete(command.item_id)
    except UnknownItem:
        text = f"Error deleting item: the item with id '{command.item_id}' does not exist."
        code = "item_delete_invalid_item_id"
        bus.publish(Refused(command.event_id, code, text, param="item_id"))
    else:
        bus.publish(ItemDeleted(command.item_id))


def _retrieve(command: RetrieveItem, chat: Chat, bus: Bus) -> None:
    try:
        item = chat.get(command.item_id)
    except UnknownItem:
        text = f"Error retrieving item: the item with id '{command.item_id}' does not exist."
        code = "item_retrieve_invalid_item_id"
        bus.publish(Refused(command.event_id, code, text, param="item_id"))
    else:
        bus.publish(ItemRetrieved(item))


def _truncate(command: TruncateItem, chat: Chat, bus: Bus) -> None:
    code = "item_truncate_invalid_item_id"
    if command.content_index != 0:
        text = "Error truncating item: the only content of a spoken item has index 0."
        bus.publish(Refused(command.event_id, "invalid_value", text, param="content_index"))
        return
    try:
        chat.truncate(command.item_id, command.audio_end_ms / 1000)
    except UnknownItem:
        text = f"Error truncating item: there is no spoken answer with id '{command.item_id}'."
        bus.publish(Refused(command.event_id, code, text, param="item_id"))
    except TooShort as short:
        text = (
            f"Audio content of {round(short.seconds * 1000)}ms is already shorter than "
            f"{command.audio_end_ms}ms"
        )
        bus.publish(Refused(command.event_id, "invalid_value", text, param="audio_end_ms"))
    else:
        bus.publish(ItemTruncated(command.item_id, command.content_index, command.audio_end_ms))
