"""Client secrets: made over HTTP, used on WebSockets, invalid once expired."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from functools import reduce
from secrets import token_hex
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.realtime import ClientSecretCreateResponse

from app.access.client_secrets import MAX_CHARS, ClientSecrets
from app.access.policy import Rules, digest
from app.access.seal import Seal
from app.server.client_secrets_http import LONGEST_S
from app.server.gate import Access
from app.settings.model import LimitSettings
from tests.support.scripted_server import Serve, Served, Talk, appear_from, refusal, talking

pytestmark = pytest.mark.machine

NOW = 1_800_000_000.0
PATH = "/v1/realtime/client_secrets"
KEY = "rv_a-key-of-ours"
SHARED = "a key that all servers of a fleet share"
SESSION: dict[str, Any] = {
    "type": "realtime",
    "model": "gpt-realtime",
    "instructions": "Speak like a pirate.",
    "audio": {"input": {"turn_detection": None}, "output": {"voice": "marin"}},
    "tools": [{"type": "function", "name": "dance", "parameters": {"type": "object"}}],
}


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> Access:
    return Access(Rules(keys=(digest(KEY.encode()),)), secrets=ClientSecrets(now=clock))


@pytest.fixture
async def served(serving: Serve, access: Access) -> Served:
    return await serving(access=access)


async def post(served: Served, body: Any = None, **options: Any) -> httpx.Response:
    if body is not None:
        options["content"] = body if isinstance(body, bytes) else json.dumps(body)
    return await served.post(PATH, **options)


def checked(answer: httpx.Response) -> ClientSecretCreateResponse:
    assert answer.status_code == 200, answer.text
    return ClientSecretCreateResponse.model_validate_json(answer.content, strict=True)


def bearer(value: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {value}"}}


# --- the secrets themselves --------------------------------------------------------------------


def test_a_secret_is_valid_until_it_expires(clock: Clock) -> None:
    secrets = ClientSecrets(now=clock)
    value, made = secrets.issue(600, {})
    assert value.startswith("ek_")
    assert made.expires_at == NOW + 600
    for clock.now in (NOW, NOW + 599.9):
        assert secrets.find((b"x", value.encode())) == made
    clock.now = NOW + 600
    assert secrets.find((value.encode(),)) is None


def test_any_server_with_the_key_accepts_it(clock: Clock) -> None:
    servers = [ClientSecrets(SHARED, clock) for _ in range(50)]
    for number, maker in enumerate(servers):
        value, made = maker.issue(600, SESSION)
        assert servers[number - 1].find((value.encode(),)) == made
        assert ClientSecrets("another key" * 3, clock).find((value.encode(),)) is None
        assert ClientSecrets(now=clock).find((value.encode(),)) is None


def test_a_changed_secret_is_invalid(clock: Clock) -> None:
    secrets = ClientSecrets(now=clock)
    value = secrets.issue(600, SESSION)[0].encode()
    for at in range(3, len(value) - 1):
        other = b"A" if value[at : at + 1] != b"A" else b"B"
        assert secrets.find((value[:at] + other + value[at + 1 :],)) is None
    for wrong in (b"", b"ek_", b"ek_\xff\xfe", value[:-4], value[3:], b"ek_" + value):
        assert secrets.find((wrong,)) is None


def test_data_sealed_for_another_purpose_is_no_secret(clock: Clock) -> None:
    sealed = Seal(SHARED, "something else").close([NOW + 600, {}])
    assert ClientSecrets(SHARED, clock).find((b"ek_" + sealed.encode(),)) is None


def test_a_secret_does_not_show_its_session(clock: Clock) -> None:
    value, _ = ClientSecrets(now=clock).issue(600, SESSION)
    assert b"pirate" not in urlsafe_b64decode(value[3:] + "==")


def test_an_expired_secret_is_reported_as_expired(clock: Clock) -> None:
    secrets = ClientSecrets(now=clock)
    old, new = (secrets.issue(lasts_s, {})[0].encode() for lasts_s in (10, 600))
    assert not secrets.expired((old,))
    clock.now += 10
    assert secrets.expired((b"x", old))
    assert not secrets.expired((old, new))
    for unknown in ((), (b"x",), (b"ek_x",), (ClientSecrets().issue(1, {})[0].encode(),)):
        assert not secrets.expired(unknown)


def test_a_secret_of_an_older_version_is_valid(clock: Clock) -> None:
    sealed = Seal(SHARED, "client secret").close([NOW + 600, {}])
    assert ClientSecrets(SHARED, clock).find((b"ek_" + sealed.encode(),))


# --- over HTTP ---------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [None, {}, {"session": {"type": "realtime"}}])
async def test_a_secret_for_a_plain_session(served: Served, body: dict[str, Any] | None) -> None:
    answer = await post(served, body)
    secret = checked(answer)
    assert secret.value.startswith("ek_")
    assert secret.expires_at == NOW + 600
    assert secret.session.type == "realtime"
    assert secret.session.instructions == "You are Reachy."
    assert answer.headers["Cache-Control"] == "no-store"


async def test_the_session_is_shown_as_a_connection_will_have_it(served: Served) -> None:
    expires = {"anchor": "created_at", "seconds": LONGEST_S}
    secret = checked(await post(served, {"expires_after": expires, "session": SESSION}))
    assert secret.expires_at == NOW + LONGEST_S
    shown = secret.session
    assert shown.type == "realtime"
    assert shown.model == "gpt-realtime"
    assert shown.instructions == "Speak like a pirate."
    assert shown.audio is not None
    assert shown.audio.input is not None
    assert shown.audio.input.turn_detection is None
    async with served.connect(**bearer(secret.value)) as socket:
        talk = Talk(socket)
        created, updated = await talk.next(), await talk.next()
        assert (created["type"], updated["type"]) == ("session.created", "session.updated")
        theirs, ours = updated["session"], json.loads(shown.model_dump_json(exclude_unset=True))
        for changing in ("id", "expires_at"):
            del theirs[changing], ours[changing]
        assert theirs == ours
        await talk.send("response.create")
        await talk.until("response.done")
    (session,) = served.assistant.sessions
    assert session.config.instructions == "Speak like a pirate."
    assert [tool.name for tool in session.config.tools] == ["dance"]


async def test_the_official_client_makes_one(served: Served) -> None:
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key=KEY) as client:
        secret = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 10},
            session={"type": "realtime", "instructions": "Hush."},
        )
    async with (
        AsyncOpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key=secret.value) as client,
        client.realtime.connect(model="gpt-realtime") as connection,
    ):
        assert (await connection.recv()).type == "session.created"
        assert (await connection.recv()).type == "session.updated"


# --- spending it -------------------------------------------------------------------------------


async def test_a_stranger_with_a_secret_is_admitted_until_it_expires(
    served: Served, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = checked(await post(served)).value
    appear_from(monkeypatch, "192.168.1.66")
    browser = {"subprotocols": ["realtime", f"openai-insecure-api-key.{value}"]}
    page = {**browser, "origin": "https://shop.example"}
    async with talking(served, **page) as open_one:
        assert open_one.socket.subprotocol == "realtime"
        async with talking(served, **bearer(value)):  # more than once
            pass
        clock.now = NOW + 600
        late = await refusal(served, **browser)
        assert (late.status_code, late.json()["error"]["code"]) == (401, "expired_client_secret")
        unknown = await refusal(served, **bearer("ek_unknown"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "invalid_api_key")
        await open_one.send("response.create")  # open connections stay open
        await open_one.until("response.done")
    assert (await refusal(served, **page)).status_code == 403


async def test_a_secret_opens_nothing_but_websockets(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = checked(await post(served)).value
    appear_from(monkeypatch, "192.168.1.66")
    headers = {"Authorization": f"Bearer {value}"}
    assert (await post(served, headers=headers)).status_code == 401
    assert (await post(served, headers={"api-key": KEY})).status_code == 200


@pytest.mark.parametrize("asked", ["", "?intent=conversation", "?a=b&inten%74=conversation"])
async def test_the_kind_of_session_is_its_makers_choice(served: Served, asked: str) -> None:
    for kind in ("transcription", "realtime"):
        value = checked(await post(served, {"session": {"type": kind}})).value
        path = asked if kind == "transcription" else "?intent=transcription&model=m"
        async with served.connect(path, **bearer(value)) as socket:
            talk = Talk(socket)
            for event in (await talk.next(), await talk.next()):
                assert event["type"] in ("session.created", "session.updated"), event
                assert event["session"]["type"] == kind


async def test_a_session_too_large_for_a_header_is_a_400(served: Served) -> None:
    tokens = " ".join(token_hex(8) for _ in range(1_000))
    answer = await post(served, {"session": {"type": "realtime", "instructions": tokens}})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "session_too_large")
    assert error["param"] == "session"


async def test_the_largest_secret_fits_a_subprotocol(served: Served) -> None:
    tokens = " ".join(token_hex(8) for _ in range(540))
    answer = await post(served, {"session": {"type": "realtime", "instructions": tokens}})
    value = checked(answer).value
    assert 7_000 < len(value) <= MAX_CHARS
    async with talking(served, subprotocols=["realtime", f"openai-insecure-api-key.{value}"]):
        pass


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_value", None),
        (b"\xff", "invalid_json", None),
        (b'{"session": {"type": "\\ud800"}}', "invalid_json", None),
        (b'{"session":' * 300, "invalid_json", None),
        ({"sesion": {}}, "invalid_value", "sesion"),
        ({"session": []}, "invalid_value", "session"),
        ({"expires_after": {"seconds": 9}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"seconds": "600"}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"seconds": True}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"anchor": "now"}}, "invalid_value", "expires_after.anchor"),
    ],
)
async def test_an_invalid_body_is_a_400(
    serving: Serve, access: Access, body: Any, code: str, param: str | None
) -> None:
    answer = await post(await serving(access=access), body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "session",
    [
        {"type": "realtime", "nonsense": 1},
        {"type": "realtime", "instructions": 5},
        {"type": "nonsense"},
        {"instructions": "no type"},
        {"type": "realtime", "audio": {"output": {"speed": 9}}},
        {"type": "realtime", "audio": {"output": {"speed": float("nan")}}},
        {"type": "realtime", "tools": [{"name": "a", "parameters": {"x": float("inf")}}]},
        {"type": "realtime", "prompt": reduce(lambda inner, _: {"a": inner}, range(150), {})},
    ],
)
async def test_a_session_that_a_connection_would_refuse_is_refused_here(
    serving: Serve, access: Access, session: dict[str, Any]
) -> None:
    answer = await post(await serving(access=access), {"session": session})
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert error["message"]
    assert error["code"]


async def test_a_body_that_is_too_large_is_a_413(serving: Serve, access: Access) -> None:
    served = await serving(access=access, limits=LimitSettings(http_body_kb=1))
    for options in ({"body": b" " * 1_025}, {"content": chunks()}):
        answer = await post(served, **options)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert (await post(served, b" " * 1_000 + b"{}")).status_code == 200


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(20):
        yield b" " * 100


async def test_while_the_engines_warm_up_it_is_a_503(served: Served) -> None:
    served.assistant.reasons["tts"] = "loading"
    assert (await post(served)).status_code == 503


async def test_a_client_that_leaves_in_mid_body_is_harmless(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n" + "{"
    writer.write(head.encode())
    await writer.drain()
    checked(await post(served))  # by now the server has read the start of the other body
    writer.transport.abort()
    checked(await post(served))
    assert not caplog.records
