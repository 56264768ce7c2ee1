"""A client that lost its connection continues its conversation, and no other client ever does."""

from __future__ import annotations

import asyncio

import pytest

from app.access.policy import Caller, parse_address
from app.server import reconnect
from app.server.identity import Identity, identity_of
from app.server.reconnect import ParkedConversations
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import Memory
from pipeline.messages import Tool
from reachy_voice.testing import ScriptedLlm, in_virtual_time

pytestmark = pytest.mark.quick

WHO = Identity(b"digest", "192.168.1.7")
TOOLS = (Tool("dance", "Dance.", {"type": "object"}),)


class Room:
    """Parked conversations, and the count of their open LLM conversations."""

    def __init__(self, keep_s: float = 120.0) -> None:
        self.llm = ScriptedLlm()
        self.parked = ParkedConversations(keep_s)

    def memory(self) -> Memory:
        return Memory(Chat(), self.llm.open())

    async def loses(self, who: Identity | None = WHO, tools: tuple[Tool, ...] = TOOLS) -> Memory:
        """A connected client loses its connection."""
        memory = self.memory()
        with self.parked.present(who):
            await self.parked.keep(who, memory, tools)
        return memory

    def comes_back(
        self, who: Identity | None = WHO, tools: tuple[Tool, ...] = TOOLS
    ) -> Memory | None:
        with self.parked.present(who):
            return self.parked.take(who, tools)


@in_virtual_time
async def test_a_parked_conversation_is_returned_once() -> None:
    room = Room()
    memory = await room.loses()
    assert len(room.parked) == 1
    await asyncio.sleep(119)
    assert room.comes_back() is memory
    assert room.comes_back() is None
    assert room.llm.opened == 1  # it belongs to the client that took it


@pytest.mark.parametrize(
    "other", [Identity(b"other", "192.168.1.7"), Identity(b"digest", "192.168.1.8"), None]
)
@in_virtual_time
async def test_another_client_does_not_get_it(other: Identity | None) -> None:
    room = Room()
    memory = await room.loses()
    assert room.comes_back(other) is None
    assert room.comes_back() is memory


@in_virtual_time
async def test_with_other_tools_it_is_another_conversation() -> None:
    room = Room()
    await room.loses()
    assert room.comes_back(tools=()) is None
    assert room.comes_back() is None
    assert room.llm.opened == 0
    tools = *TOOLS, Tool("look", "Look.", {"type": "object"})
    memory = await room.loses(tools=tools)
    assert room.comes_back(tools=tools[::-1]) is memory, "in any order"


@in_virtual_time
async def test_a_parked_conversation_expires() -> None:
    room = Room()
    await room.loses()
    await asyncio.sleep(120)
    assert room.llm.opened == 0
    assert room.comes_back() is None


@in_virtual_time
async def test_a_second_loss_starts_the_time_anew() -> None:
    room = Room()
    await room.loses()
    await asyncio.sleep(100)
    memory = room.comes_back()
    assert memory is not None
    await room.parked.keep(WHO, memory, TOOLS)
    await asyncio.sleep(100)
    assert room.comes_back() is memory


@pytest.mark.parametrize(("who", "keep_s"), [(None, 120.0), (WHO, 0.0)])
@in_virtual_time
async def test_nothing_is_kept_without_a_key_or_for_no_time(
    who: Identity | None, keep_s: float
) -> None:
    room = Room(keep_s)
    await room.loses(who)
    assert (len(room.parked), room.llm.opened) == (0, 0)


@in_virtual_time
async def test_two_clients_under_one_identity_are_never_mixed_up() -> None:
    """Two robots behind one router, with the same fixed key and the same tools."""
    room = Room()
    with room.parked.present(WHO):
        with room.parked.present(WHO):
            await room.parked.keep(WHO, room.memory(), TOOLS)
        await room.parked.keep(WHO, room.memory(), TOOLS)
    assert room.comes_back() is None
    assert room.llm.opened == 0
    await room.loses()
    assert room.comes_back() is None, "not even when one of them is alone again"
    assert room.llm.opened == 0


@in_virtual_time
async def test_two_clients_with_one_identity_get_no_parked_conversation() -> None:
    room = Room()
    await room.loses()
    with room.parked.present(WHO), room.parked.present(WHO):
        assert room.parked.take(WHO, TOOLS) is None
    assert room.llm.opened == 0


@in_virtual_time
async def test_the_number_of_parked_conversations_is_bounded() -> None:
    room = Room()
    everybody = [Identity(b"digest", f"10.0.0.{n}") for n in range(reconnect.MAX_PARKED + 1)]
    for who in everybody:
        await room.loses(who)
    assert len(room.parked) == room.llm.opened
    assert len(room.parked) == reconnect.MAX_PARKED
    assert room.comes_back(everybody[0]) is None
    assert room.comes_back(everybody[1]) is not None


@in_virtual_time
async def test_one_address_does_not_displace_the_others() -> None:
    room = Room()
    memory = await room.loses()
    for n in range(3 * reconnect.MAX_PARKED):
        await room.loses(Identity(b"made up %d" % n, "192.168.1.66"))
    assert len(room.parked) == reconnect.MAX_PARKED_EACH + 1
    assert room.comes_back() is memory


@in_virtual_time
async def test_the_address_with_most_conversations_makes_room() -> None:
    room = Room()
    memory = await room.loses()
    for n in range(reconnect.MAX_PARKED_EACH):
        await room.loses(Identity(b"%d" % n, "192.168.1.66"))
    for n in range(reconnect.MAX_PARKED):
        await room.loses(Identity(b"digest", f"10.0.0.{n}"))
        if len(room.parked) == reconnect.MAX_PARKED:
            break
    await room.loses(Identity(b"digest", "10.0.1.1"))
    assert len(room.parked) == reconnect.MAX_PARKED
    assert room.comes_back(Identity(b"0", "192.168.1.66")) is None
    assert room.comes_back() is memory


@in_virtual_time
async def test_the_record_of_shared_identities_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconnect, "MAX_SHARED", 2)
    room = Room()
    everybody = [Identity(b"digest", f"10.0.0.{n}") for n in range(3)]
    for who in everybody:
        with room.parked.present(who), room.parked.present(who):
            pass
    for who in everybody:
        await room.loses(who)
    assert room.comes_back(everybody[0]) is not None
    assert room.comes_back(everybody[1]) is None
    assert room.comes_back(everybody[2]) is None


@in_virtual_time
async def test_at_the_end_everything_is_closed() -> None:
    room = Room()
    await room.loses()
    room.parked.close()
    assert room.llm.opened == 0
    await room.loses()
    assert room.llm.opened == 0


def test_the_identity_of_a_client() -> None:
    address = parse_address("192.168.1.7")
    who = identity_of(Caller(address, keys=(b"secret",)))
    assert who == identity_of(Caller(parse_address("::ffff:192.168.1.7"), keys=(b"secret",)))
    assert who is not None
    assert b"secret" not in who.key
    others = [
        Caller(address, keys=(b"other",)),
        Caller(address, keys=(b"secret", b"other")),
        Caller(parse_address("192.168.1.8"), keys=(b"secret",)),
    ]
    assert len({who, *map(identity_of, others)}) == 4


@pytest.mark.parametrize(
    "caller",
    [
        Caller(parse_address("192.168.1.7")),
        Caller(None, keys=(b"secret",)),
        Caller(parse_address("192.168.1.7"), keys=(b"secret",), forwarded=True),
    ],
)
def test_clients_without_identity(caller: Caller) -> None:
    assert identity_of(caller) is None
