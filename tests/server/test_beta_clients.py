"""Clients of the Realtime API's beta, which is not supported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.support.scripted_server import Serve
from tests.support.staged_server import StagedAssistant


@pytest.mark.parametrize(
    "asking",
    [
        {"additional_headers": {"OpenAI-Beta": "realtime=v1"}},
        {"subprotocols": ["realtime", "openai-beta.realtime-v1"]},
    ],
    ids=["header", "subprotocol"],
)
async def test_a_beta_client_gets_an_error(serving: Serve, asking: dict[str, Any]) -> None:
    served = await serving(StagedAssistant())
    async with connect(served.url, **asking) as socket:
        created, error = [json.loads(await socket.recv()) for _ in range(2)]
    assert created["type"] == "session.created"
    assert error["error"]["code"] == "beta_api_shape_disabled"
    assert "GA" in error["error"]["message"]
