"""Announcements in a process's conversations: in which, when, and what the caller is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app.access.file import AccessFile, AccessList
from app.access.policy import parse_network
from app.announcing.announcer import (
    MOST_KEPT,
    AnnouncementError,
    AnnouncementRequest,
    Announcer,
    UnknownConversation,
)
from pipeline.speaking.announcements import Outcome
from reachy_voice.testing import run_virtual
from tests.support.beside import beside
from tests.support.scripted_speaker import KITCHEN, ScriptedSpeaker

pytestmark = pytest.mark.quick

T = TypeVar("T")
BEDROOM = "192.168.1.8"
NOTES = {"kitchen": KITCHEN, "upstairs": "192.168.1.8/29", "caf\u00e9 room": "192.168.2.1"}


@dataclass
class House:
    speakers: list[ScriptedSpeaker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.announcer = Announcer(lambda: [(each, each.place) for each in self.speakers])

    def play(
        self, act: Callable[[Announcer], Awaitable[T]], run: Callable[..., Any] = run_virtual
    ) -> T:
        async def main() -> T:
            async with beside(self.announcer.run()):
                await asyncio.sleep(0)
                return await act(self.announcer)

        result: T = run(main())
        return result


def fulfil(house: House, folder: Path, **wish: Any) -> dict[str, Any]:
    file = house.announcer.file = AccessFile(folder / "access.json")
    for note, network in NOTES.items():
        allow = partial(AccessList.with_address, network=parse_network(network), note=note)
        file.change(allow)
    wanted = AnnouncementRequest(text="Dinner.", **wish)
    return house.play(lambda announcer: announcer.announce(wanted), asyncio.run)  # reads a file


@pytest.mark.parametrize(
    ("to", "names"),
    [
        ("all", ["kitchen", "upstairs", "talk"]),
        ("Kitchen", ["kitchen"]),
        (" kitchen ", ["kitchen"]),
        (f" {BEDROOM}", ["upstairs"]),
        ("Cafe\u0301  Room", []),
        ("upstairs", ["upstairs"]),
        (BEDROOM, ["upstairs"]),
        ("talk", ["talk"]),
        ("192.168.1.99", []),
    ],
)
def test_names(to: str, names: list[str], tmp_path: Path) -> None:
    ended = ScriptedSpeaker(announces=False)
    house = House([ScriptedSpeaker(), ScriptedSpeaker(BEDROOM), ScriptedSpeaker(""), ended])
    answer = fulfil(house, tmp_path, to=to)
    assert [each["name"] for each in answer["conversations"]] == names
    assert all(each["heard"] == "Dinner." for each in answer["conversations"])
    assert answer["kept_s"] == (0 if names else 600)


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownConversation, match="neither an address nor the note of one"):
        fulfil(House(), tmp_path, to="garage")


@pytest.mark.parametrize(
    ("wish", "why"),
    [({"keep_s": 0}, "no such conversation is open"), ({"text": "🎉"}, "the text has no words")],
)
def test_an_announcement_nobody_can_hear_is_an_error(wish: dict[str, Any], why: str) -> None:
    asked = AnnouncementRequest(**({"text": "Dinner."} | wish))
    with pytest.raises(AnnouncementError, match=why):
        House().play(lambda announcer: announcer.announce(asked))


def test_kept_announcements_are_limited() -> None:
    async def keep(announcer: Announcer) -> None:
        for _ in range(MOST_KEPT):
            await announcer.announce(AnnouncementRequest(text="Dinner."))
        with pytest.raises(AnnouncementError, match=f"{MOST_KEPT} announcements wait"):
            await announcer.announce(AnnouncementRequest(text="Dinner."))

    House().play(keep)


@pytest.mark.parametrize(
    ("to", "place", "after_s", "texts"),
    [
        ("all", KITCHEN, 9, ["Dinner."]),
        (KITCHEN, KITCHEN, 9, ["Dinner."]),
        (KITCHEN, BEDROOM, 9, []),
        ("all", KITCHEN, 11, []),
    ],
)
def test_an_announcement_waits_for_arrivals(
    to: str, place: str, after_s: float, texts: list[str]
) -> None:
    house = House()

    async def come(announcer: Announcer) -> list[str]:
        await announcer.announce(AnnouncementRequest(text="Dinner.", to=to, keep_s=10))
        await asyncio.sleep(after_s)
        for _ in range(2):
            house.speakers.append(ScriptedSpeaker(place))
            announcer.arrive()
            await asyncio.sleep(2)
        return [text for speaker in house.speakers for text, _ in speaker.asked]

    assert house.play(come) == texts


@pytest.mark.parametrize(
    ("outcomes", "arrivals", "delivered", "times"),
    [
        (("said",), (5,), True, [0]),
        (("busy",), (), False, [0, 30, 60, 90]),
        (("busy", "said"), (), True, [0, 30]),
        (("gone", "said"), (5,), True, [0, 5]),
        (("gone", "said"), (), False, [0]),
        (("failed", "failed", "said"), (5, 11), True, [0, 5, 11]),
        (("failed", "full", "failed", "said"), (), True, [0, 10, 30, 70]),
        (("failed",), (5, 11, 15), False, [0, 5, 11, 15, 95]),
    ],
)
def test_a_delivery_is_retried_until_heard(
    outcomes: Sequence[Outcome], arrivals: Sequence[float], delivered: bool, times: list[float]
) -> None:
    """When somebody arrives, some time after a failure, and if there was no pause for a while."""
    speaker = ScriptedSpeaker(outcomes=outcomes)
    house = House([speaker])

    async def deliver(announcer: Announcer) -> bool:
        loop = asyncio.get_running_loop()
        for after_s in arrivals:
            loop.call_later(after_s, announcer.arrive)
        return await announcer.deliver(lambda: "Dinner.", lambda place: True, 100)

    assert house.play(deliver) == delivered
    assert [round(at - speaker.asked[0][1]) for _, at in speaker.asked] == times
