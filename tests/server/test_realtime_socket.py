"""What a client's address and secret ask for, and frames of any length."""

from __future__ import annotations

import json

import pytest

from app.server.realtime_socket import LARGE_MESSAGE_CHARS, id_source, protocol_for, receive
from pipeline.commands import AddItem, Configure
from pipeline.items import MessageItem
from tests.support.protocol_client import DEFAULTS, text_item

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("query", "kind", "model"),
    [({"model": "mine"}, "realtime", "mine"), ({"intent": "transcription"}, "transcription", None)],
)
def test_the_address_names_the_model_and_the_kind_of_session(
    query: dict[str, str], kind: str, model: str | None
) -> None:
    session = json.loads(protocol_for(DEFAULTS, query, {}).messages_to_send()[0])["session"]
    assert (session["type"], session.get("model")) == (kind, model)


async def test_a_large_frame_is_read_like_a_small_one() -> None:
    protocol = protocol_for(DEFAULTS, {}, {})
    for text in ("Hi.", "x" * LARGE_MESSAGE_CHARS):
        item = {"type": "conversation.item.create", "item": text_item(text)}
        (command,) = await receive(protocol, json.dumps(item))
        assert isinstance(command, AddItem)
        assert isinstance(command.item, MessageItem)
        assert command.item.text == text
    protocol.messages_to_send()
    assert await receive(protocol, "[" * LARGE_MESSAGE_CHARS + "1") == []
    (error,) = protocol.messages_to_send()
    assert json.loads(error)["error"]["code"] == "invalid_json"


def test_a_client_secret_configures_the_session() -> None:
    given = {"type": "realtime", "model": "mine", "output_modalities": ["text"]}
    (command,) = protocol_for(DEFAULTS, {}, given).configure(given)
    assert isinstance(command, Configure)
    assert command.config.modality == "text"


def test_ids_are_unique_among_connections() -> None:
    one, two = id_source(), id_source()
    assert len({one("item"), one("item"), two("item"), two("item")}) == 4
