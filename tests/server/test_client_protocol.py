"""One client's protocol: what its address asks for, its dialect, and frames of any length."""

from __future__ import annotations

import json
from typing import Any

from app.server.client_protocol import LARGE_MESSAGE_CHARS, ClientProtocol, id_source
from pipeline.commands import AddItem, Configure
from pipeline.items import MessageItem
from tests.support.conformance import Recorder
from tests.support.protocol_client import DEFAULTS

BETA = {"OpenAI-Beta": "realtime=v1"}


def client(query: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Any:
    return ClientProtocol(DEFAULTS, query or {}, headers or {}, ())


def sent(protocol: ClientProtocol, dialect: str = "ga") -> list[dict[str, Any]]:
    recorder = Recorder(dialect)  # type: ignore[arg-type]
    return [recorder.record(text) for text in protocol.messages_to_send()]


def test_the_address_names_the_model_and_the_kind_of_session() -> None:
    (created,) = sent(client({"model": "gpt-realtime"}))
    assert (created["session"]["type"], created["session"]["model"]) == ("realtime", "gpt-realtime")
    (created,) = sent(client({"intent": "transcription"}))
    assert created["session"]["type"] == "transcription"


async def test_a_large_frame_is_read_like_a_small_one() -> None:
    protocol = client()
    for text in ("Hi.", "x" * LARGE_MESSAGE_CHARS):
        item = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
        frame = json.dumps({"type": "conversation.item.create", "item": item})
        (command,) = await protocol.receive(frame)
        assert isinstance(command, AddItem)
        assert isinstance(command.item, MessageItem)
        assert command.item.text == text
    sent(protocol)
    assert await protocol.receive("[" * LARGE_MESSAGE_CHARS + "1") == []
    (error,) = sent(protocol)
    assert error["error"]["code"] == "invalid_json"


async def test_a_beta_client_is_spoken_to_in_beta() -> None:
    protocol = client(headers=BETA)
    assert [event["type"] for event in sent(protocol, "beta")] == [
        "session.created",
        "conversation.created",
    ]
    update = {"type": "session.update", "session": {"modalities": ["text"]}}
    (command,) = await protocol.receive(json.dumps(update))
    assert isinstance(command, Configure)
    assert command.config.modality == "text"
    update["session"] = {"modalities": ["smell"]}
    assert await protocol.receive(json.dumps(update)) == []
    assert [event["type"] for event in sent(protocol, "beta")] == ["session.updated", "error"]


def test_a_client_secret_configures_the_session_in_ga_fields() -> None:
    given = {"type": "realtime", "model": "mine", "instructions": "Hush."}
    protocol = ClientProtocol(DEFAULTS, {}, BETA, (), given)
    (command,) = protocol.begin()
    assert isinstance(command, Configure)
    assert command.config.instructions == "Hush."


def test_ids_are_unique_among_connections() -> None:
    one, two = id_source(), id_source()
    assert len({one("item"), one("item"), two("item"), two("item")}) == 4
