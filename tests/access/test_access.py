"""The access policy on its own, without sockets or files."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import replace
from typing import Any

import pytest

from app.access import policy as access
from app.access.policy import (
    Caller,
    Refusal,
    Rules,
    Way,
    block_of,
    caller_of,
    canonical_origin,
    digest,
    parse_address,
    parse_network,
    shown_network,
    split_host,
)

pytestmark = pytest.mark.quick

KEY = b"rv_a-key-of-ours"
PROTOCOL = b"sec-websocket-protocol"
HERE = Caller(parse_address("127.0.0.1"), hosts=("127.0.0.1:8765",))
ROBOT = Caller(parse_address("192.168.1.7"), keys=(b"DUMMY",), hosts=("192.168.1.2:8765",))
STRANGER = Caller(parse_address("192.168.1.66"), hosts=("192.168.1.2:8765",))
RULES = Rules(
    addresses=(parse_network("192.168.1.7"),),
    keys=(digest(b"another"), digest(KEY)),
    origins=frozenset({"http://localhost:3000"}),
    hosts=frozenset({"localhost", "box", "box.local"}),
)


def refused(verdict: Way | Refusal) -> Refusal:
    assert isinstance(verdict, Refusal), verdict
    return verdict


# --- the three ways in -------------------------------------------------------------------------


def test_this_machine_needs_no_key_unless_the_owner_says_so() -> None:
    assert RULES.decide(HERE) == Way.LOOPBACK
    strict = replace(RULES, loopback=False)
    assert refused(strict.decide(HERE)).code == "missing_api_key"
    assert strict.decide(replace(HERE, keys=(KEY,))) == Way.KEY


def test_an_allowed_address_needs_no_key_and_may_send_a_wrong_one() -> None:
    assert RULES.decide(ROBOT) == Way.ADDRESS


def test_others_need_a_key() -> None:
    refusal = refused(RULES.decide(STRANGER))
    assert (refusal.status, refusal.code) == (401, "missing_api_key")
    assert "reachy-voice allow 192.168.1.66" in refusal.message
    assert "reachy-voice key new" in refusal.message
    assert RULES.decide(replace(STRANGER, keys=(KEY,))) == Way.KEY


def test_a_wrong_key_is_a_401_that_does_not_repeat_it() -> None:
    for wrong in (b"DUMMY", KEY + b"x", KEY[:-1], b"\xff\xfe"):
        refusal = refused(RULES.decide(replace(STRANGER, keys=(wrong,))))
        assert (refusal.status, refusal.code) == (401, "invalid_api_key")
        assert wrong.decode("latin-1") not in refusal.message


def test_a_client_secret_admits_any_client() -> None:
    assert RULES.decide(STRANGER, has_secret=True) == Way.SECRET


def test_a_caller_without_an_address_needs_a_key() -> None:
    nowhere = replace(STRANGER, address=None)
    assert refused(RULES.decide(nowhere)).status == 401
    assert "allow an" not in refused(RULES.decide(nowhere)).message
    assert RULES.decide(replace(nowhere, keys=(KEY,))) == Way.KEY


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each stored digest, even after a match."""
    compared: list[tuple[bytes, bytes]] = []
    original = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return original(a, b)

    monkeypatch.setattr(access.hmac, "compare_digest", compare)
    keys = tuple(digest(bytes([n])) for n in range(5))
    rules = Rules(keys=(digest(KEY), *keys))
    assert rules.decide(replace(STRANGER, keys=(KEY, b"other"))) == Way.KEY
    assert len(compared) == 12
    assert {len(side) for pair in compared for side in pair} == {32}


# --- proxies -----------------------------------------------------------------------------------


def test_a_proxy_on_this_machine_does_not_make_its_clients_local() -> None:
    proxied = replace(HERE, forwarded=True)
    refusal = refused(RULES.decide(proxied))
    assert refusal.status == 401
    assert "allow 127" not in refusal.message  # that would admit all the proxy's clients
    assert RULES.decide(replace(proxied, keys=(KEY,))) == Way.KEY


def test_a_proxy_at_an_allowed_address_does_not_admit_its_clients() -> None:
    refusal = refused(RULES.decide(replace(ROBOT, forwarded=True)))
    assert refusal.status == 401
    assert "allow 192" not in refusal.message  # although it is allowed


PROXIES = (parse_network("127.0.0.1"), parse_network("10.0.0.0/24"))


def through(*lines: bytes, peer: str = "127.0.0.1", scheme: bytes = b"http") -> Caller:
    """A request from ``peer`` with these X-Forwarded-For lines."""
    headers = [(b"x-forwarded-for", line) for line in lines]
    headers += [(b"x-forwarded-proto", scheme), (b"host", b"box")]
    scope = {"client": (peer, 1), "server": ("127.0.0.1", 8765), "headers": headers}
    return caller_of(scope, PROXIES)


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ([b"192.168.1.7"], "192.168.1.7"),
        ([b"::ffff:192.168.1.7"], "192.168.1.7"),
        ([b"192.168.1.7, 10.0.0.5"], "192.168.1.7"),
        ([b"192.168.1.7", b"10.0.0.5"], "192.168.1.7"),
        ([b"192.168.1.7:51000, 10.0.0.5:80"], "192.168.1.7"),  # as Azure's and Microsoft's do
        ([b"[2001:db8::7]:51000"], "2001:db8::7"),
        ([b"2001:db8::7"], "2001:db8::7"),
        ([b"127.0.0.1, 192.168.1.66"], "192.168.1.66"),  # the robot made up the first one
        ([b"192.168.1.7", b"192.168.1.66"], "192.168.1.66"),
        ([b"10.0.0.9"], "10.0.0.9"),
    ],
)
def test_a_trusted_proxy_names_the_caller(lines: list[bytes], address: str) -> None:
    caller = through(*lines)
    assert caller.address == parse_address(address)
    assert caller.proxied
    assert not caller.forwarded


def test_the_robot_behind_a_trusted_proxy_is_let_in_by_its_address() -> None:
    assert RULES.decide(through(b"192.168.1.7")) == Way.ADDRESS
    refusal = refused(RULES.decide(through(b"192.168.1.66")))
    assert "allow 192.168.1.66" in refusal.message


@pytest.mark.parametrize("claim", [b"127.0.0.1", b"", b"unknown", b"127.0.0.1:80", b"127.0.0.1,"])
def test_a_client_of_a_trusted_proxy_is_never_this_machine(claim: bytes) -> None:
    caller = through(claim)
    assert not caller.from_here
    assert refused(RULES.decide(caller)).status == 401


def test_only_trusted_proxies_name_the_caller() -> None:
    for peer in ("10.0.1.1", "192.168.1.66"):
        caller = through(b"192.168.1.7", peer=peer, scheme=b"https")
        assert caller.address == parse_address(peer)
        assert caller.forwarded
        assert not caller.secure
        assert refused(RULES.decide(caller)).status == 401


def test_pages_from_a_proxy_with_tls_have_its_scheme() -> None:
    page = replace(through(b"192.168.1.7", scheme=b"https"), origins=("https://box",))
    assert RULES.decide(page) == Way.ADDRESS
    plain = replace(page, secure=False)
    assert refused(RULES.decide(plain)).code == access.ORIGIN


# --- web pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://evil.example:8765",
        "https://127.0.0.1:8765",  # not the scheme that it is served by
        "http://127.0.0.1:8766",
        "http://127.0.0.1",
        "http://localhost:3001",
        "null",
        "",
        "file://",
        "http://",
        "http://127.0.0.1:8765 http://evil.example",
        "http://user@127.0.0.1:8765",
        "\x00",
    ],
)
def test_a_foreign_page_is_refused_wherever_its_browser_runs(origin: str) -> None:
    for caller in (HERE, ROBOT, replace(STRANGER, keys=(KEY,))):
        refusal = refused(RULES.decide(replace(caller, origins=(origin,))))
        assert (refusal.status, refusal.code) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    ("origin", "host", "secure"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", False),
        ("HTTP://LocalHost:8765", "localhost:8765", False),
        ("http://localhost", "localhost:80", False),
        ("https://box.local", "box.local", True),
        ("http://[::1]:8765", "[::1]:8765", False),
        ("http://localhost:3000", "127.0.0.1:8765", False),  # listed
        ("http://localhost:3000", "evil.example", False),  # then the host does not matter
    ],
)
def test_our_own_pages_and_listed_ones_may_ask(origin: str, host: str, secure: bool) -> None:
    caller = replace(STRANGER, origins=(origin,), hosts=(host,), secure=secure, keys=(KEY,))
    assert RULES.decide(caller) == Way.KEY


def test_two_origins_are_refused() -> None:
    twice = replace(HERE, origins=("http://127.0.0.1:8765", "http://127.0.0.1:8765"))
    assert refused(RULES.decide(twice)).code == "origin_not_allowed"


def test_a_page_with_a_client_secret_needs_an_origin() -> None:
    page = replace(STRANGER, origins=("https://shop.example",))
    assert RULES.decide(page, has_secret=True) == Way.SECRET
    for origin in ("null", "", "file://"):
        page = replace(page, origins=(origin,))
        assert refused(RULES.decide(page, has_secret=True)).status == 403


# --- DNS rebinding -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hosts", [("evil.example:8765",), ("evil.local",), (), ("a b",), ("x", "x")]
)
def test_a_page_that_calls_this_machine_by_its_own_name_is_refused(hosts: tuple[str, ...]) -> None:
    refusal = refused(RULES.decide(replace(HERE, hosts=hosts)))
    assert (refusal.status, refusal.code) == (403, "host_not_allowed")
    same = tuple(f"http://{host}" for host in hosts[:1])
    if same:
        page = replace(HERE, hosts=hosts, origins=same)
        assert refused(RULES.decide(page)).code == "origin_not_allowed"


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.", "box", "box.local:8765", "[::1]:2", "10.0.0.1"],
)
def test_this_machine_is_known_by_number_and_by_its_names(host: str) -> None:
    assert RULES.decide(replace(HERE, hosts=(host,))) == Way.LOOPBACK


def test_an_allowed_loopback_bypasses_no_check() -> None:
    rules = replace(RULES, loopback=False, addresses=(parse_network("127.0.0.0/8"),))
    assert rules.decide(HERE) == Way.ADDRESS
    rebound = replace(HERE, hosts=("evil.example",))
    assert refused(rules.decide(rebound)).code == "host_not_allowed"
    assert refused(rules.decide(replace(HERE, forwarded=True))).status == 401


def test_an_allowed_address_may_hold_a_browser_too() -> None:
    """And so may this machine's own network address."""
    own = Caller(parse_address("192.168.1.2"), reached=parse_address("192.168.1.2"))
    for caller in (ROBOT, own):
        rebound = replace(caller, hosts=("evil.example:8765",))
        assert refused(RULES.decide(rebound)).code == "host_not_allowed"
        for host in ("192.168.1.2:8765", "box.local"):
            assert isinstance(RULES.decide(replace(caller, hosts=(host,))), Way)


def test_a_key_is_valid_under_any_host_name() -> None:
    for caller in (HERE, ROBOT, STRANGER):
        named = replace(caller, hosts=("reachy.fritz.box:8765",), keys=(KEY,))
        assert RULES.decide(named) == Way.KEY


# --- reading requests --------------------------------------------------------------------------


def scope_of(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"client": ("192.168.1.66", 5), "headers": list(headers), **more}


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer " + KEY),
        (b"Authorization", b"bearer   " + KEY + b" "),
        (b"api-key", KEY),
        (b"API-KEY", b" " + KEY),
        (PROTOCOL, b"realtime, openai-insecure-api-key." + KEY),
        (PROTOCOL, b"realtime,openai-insecure-api-key." + KEY + b",openai-beta.realtime-v1"),
    ],
)
def test_a_key_may_be_sent_in_three_ways(header: tuple[bytes, bytes]) -> None:
    caller = caller_of(scope_of(header))
    assert caller.keys == (KEY,)
    assert RULES.decide(caller) == Way.KEY


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b""),
        (b"authorization", b"Bearer"),
        (b"authorization", b"Bearer "),
        (b"authorization", KEY),
        (b"authorization", b"Basic " + KEY),
        (b"authorization", b"Bearer\xff" + KEY),
        (b"api-key", b" "),
        (PROTOCOL, b"openai-insecure-api-key."),
        (PROTOCOL, b"x-openai-insecure-api-key." + KEY),
        (b"cookie", b"api-key=" + KEY),
        (b"x-api-key", KEY),
    ],
)
def test_malformed_headers_hold_no_key(header: tuple[bytes, bytes]) -> None:
    caller = caller_of(scope_of(header))
    assert caller.keys == ()
    assert refused(RULES.decide(caller)).status == 401


def test_only_the_first_key_of_each_kind_is_tried() -> None:
    many = b", ".join(b"openai-insecure-api-key.%d" % n for n in range(1000))
    headers = [(PROTOCOL, many), (b"api-key", b"a"), (b"api-key", b"b")]
    assert caller_of(scope_of(*headers)).keys == (b"0", b"a")


def test_a_scope_gives_the_caller() -> None:
    there = caller_of(scope_of(server=("::ffff:192.168.1.66", 8765), scheme="wss"))
    assert there.from_here
    assert there.secure
    assert caller_of({"headers": [], "client": None, "server": ("/run/s", None)}).address is None
    assert not caller_of(scope_of(scheme="ws")).secure


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.7", "192.168.1.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
    ],
)
def test_limits_count_a_network_of_ipv6_as_one(address: str, block: str) -> None:
    known = parse_address(address)
    assert known
    assert block_of(known) == block


# --- addresses, hosts, origins -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.7", "192.168.1.7"),
        ("::FFFF:c0a8:107", "192.168.1.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1", "::1"),
    ],
)
def test_addresses_have_one_form(text: str, address: str) -> None:
    assert parse_address(text) == ipaddress.ip_address(address)


def test_invalid_addresses_are_refused() -> None:
    for text in ("", "localhost", "192.168.1", "192.168.1.256", "1.2.3.4:5", "[::1]", "010.0.0.1"):
        assert parse_address(text) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("192.168.1.7", "192.168.1.7"),
        (" 192.168.1.7/24 ", "192.168.1.0/24"),
        ("::ffff:192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.0/120", "192.168.1.0/24"),
        ("fe80::1%eth0", "fe80::1"),
        ("fd00::/8", "fd00::/8"),
        ("::/0", "::/0"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_networks_have_one_form(text: str, shown: str) -> None:
    assert shown_network(parse_network(text)) == shown


@pytest.mark.parametrize(
    "text",
    ["", "robot", "192.168.1.7/33", "192.168.1.7/", "/24", "1.2.3.4/a", "::ffff:192.168.1.7/24"],
)
def test_an_invalid_network_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match=r"192\.168\.1\.7"):
        parse_network(text)


def test_a_network_takes_ipv4_in_ipv6_and_never_the_other_family() -> None:
    rules = Rules(addresses=(parse_network("192.168.1.0/24"), parse_network("fd00::/8")))
    for text in ("192.168.1.9", "::ffff:192.168.1.9", "fd12::1"):
        assert rules.decide(replace(STRANGER, address=parse_address(text))) == Way.ADDRESS
    for text in ("192.168.2.9", "::192.168.1.9", "fe80::1"):
        assert refused(rules.decide(replace(STRANGER, address=parse_address(text)))).status == 401


def test_hosts_and_origins_have_one_form() -> None:
    assert split_host("Box.Local.:80") == ("box.local", "80")
    assert split_host("[::1]") == ("::1", "")
    for text in ("", "a:b", "a/b", "a:1:2", "[::1", "a@b", "a:123456", "a b"):
        assert split_host(text) is None
    assert canonical_origin("wss://Box/") == "https://box:443"
    assert canonical_origin("chrome-extension://abc") == "chrome-extension://abc:"
    for text in ("null", "box", "://box", "http://", "http:///x", "http://a/b"):
        assert canonical_origin(text) is None
