"""Settings from a client's address and secret, and frames of any length."""

from __future__ import annotations

import json

import pytest

from app.server.realtime_link import LARGE_MESSAGE_CHARS, read
from app.server.session_address import id_source, protocol_for
from pipeline.commands import AddItem
from pipeline.items import MessageItem
from tests.support.protocol_client import DEFAULTS, text_item

pytestmark = pytest.mark.quick


async def test_a_large_frame_is_read_like_a_small_one() -> None:
    protocol = protocol_for(DEFAULTS, {}, {})
    for text in ("Hi.", "x" * LARGE_MESSAGE_CHARS):
        item = {"type": "conversation.item.create", "item": text_item(text)}
        message = await read(protocol, json.dumps(item))
        assert message is not None
        (command,) = protocol.receive(message)
        assert isinstance(command, AddItem)
        assert isinstance(command.item, MessageItem)
        assert command.item.text == text
    protocol.messages_to_send()
    assert await read(protocol, "[" * LARGE_MESSAGE_CHARS + "1") is None
    (error,) = protocol.messages_to_send()
    assert json.loads(error)["error"]["code"] == "invalid_json"


def test_ids_are_unique_among_connections() -> None:
    one, two = id_source(), id_source()
    assert len({one("item"), one("item"), two("item"), two("item")}) == 4
