"""Our own client meets servers that do not let it in."""

from __future__ import annotations

import pytest
from scripted_server import ScriptedAssistant, appear_from, servers

from app.access import Rules, digest
from app.gate import Access
from app.realtime_client import KEY_VARIABLE, NoServer, connect

KEY = "rv_a-key-of-ours"


async def test_a_server_that_wants_a_key_says_where_to_put_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appear_from(monkeypatch, "192.168.1.66")
    async with servers() as start:
        served = await start(access=Access(Rules(keys=(digest(KEY.encode()),))))
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        with pytest.raises(NoServer, match="does not let us in") as refused:
            async with connect(served.url):
                pass
        assert "wants a key" in refused.value.why
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


async def test_a_server_that_is_not_ready_is_no_wrong_key() -> None:
    assistant = ScriptedAssistant()
    assistant.reasons["llm"] = "warming up"
    async with servers() as start:
        served = await start(assistant)
        with pytest.raises(NoServer, match="no reachy-voice server") as refused:
            async with connect(served.url):
                pass
        assert "503" in refused.value.why


async def test_turning_somebody_away_is_no_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appear_from(monkeypatch, "192.168.1.66")
    async with servers() as start:
        served = await start(access=Access(Rules()))
        with pytest.raises(NoServer):
            async with connect(served.url):
                pass
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
