"""Calls out of streams, however their pieces are marked. Sans-I/O."""

from __future__ import annotations

import json
from typing import Any

from pipeline.engines.llm.openai_chat import ChatReader
from pipeline.engines.llm.openai_responses import ResponsesReader


def chat_calls(*pieces: Any) -> list[tuple[str, str]]:
    reader = ChatReader()
    for piece in pieces:
        reader.feed(json.dumps({"choices": [{"delta": {"tool_calls": piece}}]}))
    return [(call.name, call.arguments) for call in reader.calls]


def piece(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def test_pieces_of_calls_find_their_call() -> None:
    by_index = chat_calls(
        [piece("a", "", index=0, id="1")],
        [piece(None, "{", index=0)],
        [piece("b", "{", index=1, id="2")],
        [piece(None, "}", index=0), piece(None, "}", index=1)],
    )
    assert by_index == [("a", "{}"), ("b", "{}")]
    one_index = chat_calls([piece("a", "{}", index=0, id="1")], [piece("b", "{}", index=0, id="2")])
    assert one_index == [("a", "{}"), ("b", "{}")]
    no_index = chat_calls([piece("a", "{}", id="1"), piece("b", "{}", id="2")])
    assert no_index == [("a", "{}"), ("b", "{}")]
    repeated = chat_calls([piece("a", "{", index=0, id="1")], [piece("a", "}", index=0, id="1")])
    assert repeated == [("a", "{}")]
    assert chat_calls([piece("a", {"x": 1}, index=0, id="1")]) == [("a", '{"x": 1}')]


def test_calls_of_a_response_whatever_ends_them() -> None:
    added = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "nod", "arguments": ""}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": added}
    more = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}
    unknown = {**more, "item_id": "other"}
    done = {"type": "response.output_item.done", "item": {**added, "arguments": '{"a": 1}'}}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    listed = {"type": "response.completed", "response": {"output": [{**added, "arguments": "[]"}]}}
    for events, arguments in (
        ((begun, more, end), "{}"),
        ((begun, unknown, end), "{}"),
        ((begun, more, done, end), '{"a": 1}'),
        ((begun, more, done, listed), "[]"),
    ):
        reader = ResponsesReader()
        for event in events:
            reader.feed(json.dumps(event))
        assert reader.ended == "stop"
        assert [(call.name, call.arguments) for call in reader.calls] == [("nod", arguments)]
