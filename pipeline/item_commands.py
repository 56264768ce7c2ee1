"""Commands that change the conversation's items: carried out, or refused with a reason."""

from __future__ import annotations

from pipeline.chat import Chat, DuplicateItem, UnknownItem
from pipeline.commands import AddItem, DeleteItem, TruncateItem
from pipeline.events import Bus, ItemAdded, ItemDeleted, ItemDone, ItemTruncated, Refused

ItemCommand = AddItem | DeleteItem | TruncateItem


def carry_out(command: ItemCommand, chat: Chat, bus: Bus) -> None:
    """Change ``chat`` and publish what happened."""
    match command:
        case AddItem():
            _add(command, chat, bus)
        case DeleteItem():
            _delete(command, chat, bus)
        case TruncateItem():
            _truncate(command, chat, bus)


def _add(command: AddItem, chat: Chat, bus: Bus) -> None:
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


def _delete(command: DeleteItem, chat: Chat, bus: Bus) -> None:
    try:
        chat.delete(command.item_id)
    except UnknownItem:
        text = f"Error deleting item: the item with id '{command.item_id}' does not exist."
        code = "item_delete_invalid_item_id"
        bus.publish(Refused(command.event_id, code, text, param="item_id"))
    else:
        bus.publish(ItemDeleted(command.item_id))


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
    else:
        bus.publish(ItemTruncated(command.item_id, command.content_index, command.audio_end_ms))
