"""Our own client and servers that refuse it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Response

from app.access.policy import Rules, digest
from app.server.gate import Access
from app.server.tls import tls_generated
from app.talk.realtime_client import KEY_VARIABLE, NoServer, connect
from tests.support.scripted_server import ScriptedAssistant, appear_from, servers

pytestmark = pytest.mark.machine

KEY = "rv_a-key-of-ours"


async def test_a_missing_key_is_reported_with_where_to_set_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appear_from(monkeypatch, "192.168.1.66")
    async with servers() as start:
        served = await start(access=Access(Rules(keys=(digest(KEY.encode()),))))
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        with pytest.raises(NoServer, match="does not let us in") as refused:
            async with connect(served.url):
                pass
        assert "requires a key" in refused.value.why
        assert KEY_VARIABLE in refused.value.fix
        monkeypatch.setenv(KEY_VARIABLE, "rv_wrong")
        with pytest.raises(NoServer) as refused:
            async with connect(served.url):
                pass
        assert "does not know" in refused.value.why
        assert "rv_wrong" not in str(refused.value)
        monkeypatch.setenv(KEY_VARIABLE, KEY)
        async with connect(served.url):
            assert len(served.assistant.sessions) == 0, "a session begins with its first message"


async def test_a_server_that_is_not_ready_is_not_reported_as_a_wrong_key() -> None:
    assistant = ScriptedAssistant()
    assistant.reasons["llm"] = "warming up"
    async with servers() as start:
        served = await start(assistant)
        with pytest.raises(NoServer, match="no reachy-voice server") as refused:
            async with connect(served.url):
                pass
        assert "503" in refused.value.why


async def test_a_server_without_tls_is_reported() -> None:
    async with servers() as start:
        served = await start()
        with pytest.raises(NoServer, match="does not speak TLS") as refused:
            async with connect(served.url.replace("ws://", "wss://")):
                pass
    assert "ws://" in refused.value.fix
    assert "ertificate" not in str(refused.value)


async def test_a_certificate_for_another_name_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tls = await asyncio.to_thread(tls_generated, tmp_path, ["box"])
    async with servers() as start:
        served = await start(tls=tls.context)
        url = served.url.replace("ws://", "wss://")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(NoServer, match="not trusted") as unknown:
            async with connect(url):
                pass
        assert "SSL_CERT_FILE" in unknown.value.fix
        monkeypatch.setenv("SSL_CERT_FILE", str(tls.certificate))
        with pytest.raises(NoServer, match="not trusted") as other:
            async with connect(url):
                pass
        assert "in its certificate" in other.value.fix


async def test_a_wrong_path_is_reported_with_the_right_one() -> None:
    not_found = Response(HTTPStatus.NOT_FOUND, "Not Found", Headers())
    async with serve(
        lambda socket: None, "127.0.0.1", 0, process_request=lambda *_: not_found
    ) as there:
        port = next(iter(there.sockets)).getsockname()[1]
        with pytest.raises(NoServer, match="no Realtime API at") as refused:
            async with connect(f"ws://127.0.0.1:{port}/foo"):
                pass
    assert "/v1/realtime" in refused.value.fix


async def test_a_refused_client_is_no_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appear_from(monkeypatch, "192.168.1.66")
    async with servers() as start:
        served = await start(access=Access(Rules()))
        with pytest.raises(NoServer):
            async with connect(served.url):
                pass
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
