"""Access over real sockets: 401 and 403 on the upgrade, every way to send keys, live lists."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.access.file import AccessFile
from app.access.policy import Rules, canonical_origin, digest, parse_network
from app.server.gate import Access, access_for
from app.settings.load import load_settings
from app.settings.model import LimitSettings
from tests.support.scripted_server import (
    UPGRADE,
    Serve,
    Served,
    appear_from,
    closed_with,
    refusal,
    talking,
)

pytestmark = pytest.mark.machine

KEY = "rv_a-key-of-ours"
RULES = Rules(keys=(digest(b"rv_another"), digest(KEY.encode())))

Come = Callable[[str], None]


@pytest.fixture
def come_from(monkeypatch: pytest.MonkeyPatch) -> Come:
    return partial(appear_from, monkeypatch)


# --- 401 ---------------------------------------------------------------------------------------


async def test_a_stranger_gets_a_401_with_advice(serving: Serve, come_from: Come) -> None:
    served = await serving(access=Access(RULES))
    come_from("192.168.1.66")
    for path in ("", "?model=gpt-realtime"):
        answer = await refusal(served, path)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "missing_api_key")
        assert "reachy-voice allow 192.168.1.66" in error["message"]
    assert not served.assistant.sessions


@pytest.mark.parametrize(
    ("right", "selected"),
    [
        ({"additional_headers": {"Authorization": f"Bearer {KEY}"}}, None),
        ({"subprotocols": ["realtime", f"openai-insecure-api-key.{KEY}", "other"]}, "realtime"),
    ],
)
async def test_a_key_is_accepted_in_each_form(
    serving: Serve, come_from: Come, right: Any, selected: str | None
) -> None:
    served = await serving(access=Access(RULES))
    come_from("2001:db8::66")
    async with served.connect(**right) as client:
        assert client.subprotocol == selected
        await client.recv()


@pytest.mark.parametrize(
    "header",
    [
        b"Authorization: Bearer \xff\xfe\x80",
        b"Authorization: Bearer " + b"x" * 20_000,
        b"Origin: http://[",
    ],
)
async def test_malformed_headers_are_refused(
    serving: Serve, come_from: Come, header: bytes
) -> None:
    served = await serving(access=Access(RULES))
    come_from("192.168.1.66")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(UPGRADE + header + b"\r\n\r\n")
    status = (await reader.read()).split()[1]
    assert status in (b"401", b"403", b"431")
    writer.close()
    async with served.connect(additional_headers={"api-key": KEY}) as client:
        await client.recv()


async def test_plain_http_needs_access_except_health(serving: Serve, come_from: Come) -> None:
    served = await serving(access=Access(RULES))
    come_from("192.168.1.66")
    assert (await served.get("/health")).status_code == 200
    paths = ("/ready", "/metrics", "/v1/models", "/v1/realtime", "/nowhere", "/health/")
    for path in paths:
        assert (await served.get(path)).status_code == 401, path
    assert (await served.post("/v1/realtime/client_secrets")).status_code == 401
    bearer = {"Authorization": f"Bearer {KEY}"}
    for path in ("/ready", "/v1/models"):
        assert (await served.ask("GET", path, headers=bearer)).status_code == 200


async def test_errors_of_plain_http_have_openais_shape(served: Served) -> None:
    missing = await served.get("/nowhere")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    wrong = await served.get("/v1/realtime/client_secrets")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "POST"


async def test_a_forwarded_address_is_not_trusted(serving: Serve) -> None:
    """Not even 127.0.0.1, which uvicorn trusts by default."""
    access = Access(Rules(addresses=(parse_network("192.168.1.7"),)))
    served = await serving(access=access)
    forwarded = {"X-Forwarded-For": "192.168.1.7", "X-Forwarded-Proto": "https"}
    assert (await refusal(served, additional_headers=forwarded)).status_code == 401
    assert (await served.ask("GET", "/ready", headers=forwarded)).status_code == 401


# --- 403 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000"])
async def test_a_web_page_gets_a_403_on_the_upgrade(serving: Serve, origin: str) -> None:
    told: list[str] = []
    served = await serving(access=Access(tell=told.append))
    for _ in range(2):
        answer = await refusal(served, origin=origin)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert (
        await served.post("/v1/realtime/client_secrets", headers={"Origin": origin})
    ).status_code == 403
    (line,) = told
    assert origin in line
    assert "access.origins" in line


async def test_our_own_pages_and_listed_ones_may_connect(serving: Serve) -> None:
    listed = canonical_origin("http://localhost:3000")
    served = await serving(access=Access(Rules(origins=frozenset({listed or ""}))))
    for origin in (f"http://127.0.0.1:{served.port}", "http://localhost:3000"):
        async with talking(served, origin=origin):
            pass


async def test_dns_rebinding_is_refused(serving: Serve) -> None:
    told: list[str] = []
    served = await serving(access=Access(tell=told.append))
    host = {"Host": f"evil.example:{served.port}"}
    for path in ("/ready", "/v1/models"):
        answer = await served.ask("GET", path, headers=host)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert len(told) == 1
    named = {"Host": f"localhost:{served.port}"}
    assert (await served.ask("GET", "/ready", headers=named)).status_code == 200


# --- the console -------------------------------------------------------------------------------


async def test_the_console_gets_one_line_for_each_stranger(serving: Serve, come_from: Come) -> None:
    told: list[str] = []
    served = await serving(access=Access(RULES, tell=told.append))
    for address in ("192.168.1.66", "::ffff:192.168.1.66", "192.168.1.67", "192.168.1.66"):
        come_from(address)
        await refusal(served, additional_headers={"Authorization": "Bearer DUMMY"})
    assert len(told) == 2
    assert told[0].endswith("reachy-voice allow 192.168.1.66")
    assert told[1].endswith("reachy-voice allow 192.168.1.67")


async def test_a_strangers_headers_are_escaped_on_the_console(serving: Serve) -> None:
    told: list[str] = []
    served = await serving(access=Access(tell=told.append))
    await served.ask("GET", "/ready", headers={"Origin": "http://[bold]\x1b[31m\u00e9".encode()})
    await served.ask("GET", "/ready", headers={"Origin": "http://" + "a" * 5_000})
    assert all(line.isascii() and line.isprintable() and len(line) < 400 for line in told)


async def test_a_key_is_in_no_log(
    serving: Serve, come_from: Come, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    served = await serving(access=Access(RULES, tell=told.append))
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)
    come_from("192.168.1.66")
    await refusal(served, additional_headers={"Authorization": "Bearer sesame-of-a-stranger"})
    async with served.connect(additional_headers={"api-key": KEY}) as client:
        await client.recv()
    ours = [r for r in caplog.records if not r.name.startswith(("websockets", "httpcore", "httpx"))]
    text = "\n".join([*told, *(record.getMessage() for record in ours)])
    assert "sesame" not in text
    assert KEY not in text


# --- the list, while the server runs -----------------------------------------------------------


async def test_an_address_allowed_while_the_server_runs_gets_in(
    serving: Serve, come_from: Come, tmp_path: Path
) -> None:
    file = AccessFile(tmp_path / "access.json")
    robot = parse_network("192.168.1.7")
    told: list[str] = []
    served = await serving(access=Access(RULES, AccessFile(file.path), told.append))
    come_from("::ffff:192.168.1.7")
    dummy = {"additional_headers": {"Authorization": "Bearer DUMMY"}}
    assert (await refusal(served, **dummy)).status_code == 401
    await asyncio.to_thread(file.change, lambda known: known.with_address(robot, "Reachy"))
    async with served.connect(**dummy) as client:
        await client.recv()
    await asyncio.to_thread(file.change, lambda known: known.without_address(robot))
    assert (await refusal(served, **dummy)).status_code == 401
    assert len(told) == 2  # it was reported again


def test_access_combines_settings_and_file(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    sets = ["access.addresses=[192.168.1.0/24]", "access.keys=a-key-of-sixteen-or-more"]
    sets += ["access.origins=['http://localhost:3000']", "access.hosts=[reachy.example]"]
    settings = load_settings(None, [*sets, f"paths.access_file={path}"], {}).settings
    rules = access_for(settings, {}, lambda line: None).rules
    assert rules.addresses == (parse_network("192.168.1.0/24"),)
    assert rules.keys == (digest(b"a-key-of-sixteen-or-more"),)
    assert rules.origins == {"http://localhost:3000"}
    names = {"localhost", "reachy.example", socket.gethostname().lower()}
    assert names <= rules.hosts


# --- places ------------------------------------------------------------------------------------


async def test_one_address_cannot_take_all_places(serving: Serve, come_from: Come) -> None:
    rules = Rules(addresses=(parse_network("192.168.1.0/24"),))
    limits = LimitSettings(sessions_per_address=1)
    served = await serving(access=Access(rules), limits=limits, max_sessions=4)
    come_from("192.168.1.7")
    async with talking(served):
        come_from("::ffff:192.168.1.7")
        async with served.connect() as second:
            assert "session_limit_reached" in str(await second.recv())
            with closed_with(1008):
                await second.recv()
        come_from("192.168.1.8")
        async with talking(served):
            pass
