"""What is set and what is due, told as tables; and who hears it."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app.announcing.announcer import Announcer
from app.clock.clock import Clock
from app.clock.clock_tools import ClockTools
from app.clock.sentences import Sentences
from app.clock.timers import EXPIRY_S, MOST_ENTRIES, ClockEntry, Moment, Timers, next_at
from app.clock.timers_file import TimersFile
from app.root import ROOT
from app.settings.languages import read_clock
from pipeline.engines.llm.tool_calls.schema_check import why_unusable
from reachy_voice.testing import run_virtual
from tests.support.beside import beside
from tests.support.scripted_speaker import KITCHEN, ScriptedSpeaker

pytestmark = pytest.mark.quick

T = TypeVar("T")
START = datetime(2026, 11, 28, 12, 0, tzinfo=UTC).timestamp()
"""A Saturday, 13:00 in Berlin."""
TABLES = read_clock(ROOT / "config" / "languages")
SENTENCES = Sentences(TABLES)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry(due: float, length_s: float = 0.0, **fields: Any) -> ClockEntry:
    kind = "timer" if length_s else "alarm"
    return ClockEntry(
        **({"kind": kind, "due": due, "length_s": length_s, "place": KITCHEN} | fields)
    )


# --- the pure core -----------------------------------------------------------------------------


TEN, HOUR = entry(10, 10), 3600.0


@pytest.mark.parametrize(
    ("entries", "moments"),
    [
        pytest.param([TEN], [(9.9, 9.9, []), (10, 10, [10]), (11, 11, [10])], id="due"),
        pytest.param([entry(10), entry(5)], [(6, 6, [5]), (10, 10, [10, 5])], id="two"),
        pytest.param(
            [TEN, entry(20)],
            [(HOUR, 0, [20]), (HOUR + 9, 9, [20]), (HOUR + 10, 10, [HOUR + 10, 20])],
            id="an hour forward: the timer takes as long, the alarm is due",
        ),
        pytest.param(
            [TEN, entry(20)],
            [(-HOUR, 0, []), (10 - HOUR, 10, [10 - HOUR]), (20, HOUR + 20, [10 - HOUR, 20])],
            id="an hour back",
        ),
        pytest.param([TEN], [(11, 11, [10]), (5000, 12, [10])], id="due, and then set"),
        pytest.param([TEN], [(5, 5, []), (10 - HOUR, 10, [10 - HOUR])], id="set while it ends"),
        pytest.param(
            [TEN],
            [(11, 11, [10]), (12 - HOUR, 12, []), (13, 13, [10])],
            id="due, set back, and forward again: it is the same one",
        ),
        pytest.param([entry(10), entry(20)], [(EXPIRY_S + 10, 0, [20])], id="far too late"),
        pytest.param(
            [TEN, entry(20)],
            [(13 * HOUR, 0, []), (13 * HOUR + 10, 10, [13 * HOUR + 10])],
            id="13 hours forward: only the alarm is too late",
        ),
    ],
)
def test_what_is_due(
    entries: list[ClockEntry], moments: list[tuple[float, float, list[float]]]
) -> None:
    day_s = 86_400.0  # the machine has run for this long
    timers = Timers(Moment(0, day_s), entries)
    for wall, steady, due in moments:
        found = timers.on(Moment(wall, day_s + steady))
        assert [each.due for each in found] == pytest.approx(due), (wall, steady)


@pytest.mark.parametrize(
    ("now", "asked", "due"),
    [
        ("2026-11-28 13:00", (15, 0, ""), "2026-11-28 15:00+0100"),
        ("2026-11-28 13:00", (13, 0, ""), "2026-11-29 13:00+0100"),
        ("2026-11-28 13:00", (7, 30, ""), "2026-11-29 07:30+0100"),
        ("2026-11-28 13:00", (7, 30, "2026-12-24"), "2026-12-24 07:30+0100"),
        ("2026-11-28 13:00", (7, 30, "2026-11-28"), None),
        ("2026-11-28 13:00", (7, 30, "2020-01-01"), None),
        ("2026-03-28 13:00", (7, 0, ""), "2026-03-29 07:00+0200"),
        ("2026-03-28 13:00", (2, 30, ""), "2026-03-29 03:30+0200"),
        ("2026-10-24 13:00", (7, 0, ""), "2026-10-25 07:00+0100"),
        ("2026-10-24 13:00", (2, 30, ""), "2026-10-25 02:30+0200"),
    ],
)
def test_local_times(now: str, asked: tuple[int, int, str], due: str | None) -> None:
    """In Berlin, where 2:30 does not exist on 29 March and occurs twice on 25 October."""
    found = next_at(datetime.fromisoformat(now), *asked)
    assert (found.timestamp() if found else None) == (
        datetime.strptime(due, "%Y-%m-%d %H:%M%z").timestamp() if due else None
    )


def test_in_the_hour_that_is_repeated_a_time_may_still_come() -> None:
    now = datetime(2026, 10, 25, 2, 10, fold=1)
    found = [next_at(now, 2, 30, date) for date in ("", "2026-10-25")]
    assert [at and at.timestamp() - now.timestamp() for at in found] == [1200.0, 1200.0]


def test_there_is_a_limit() -> None:
    timers = Timers(Moment(0, 0))
    added = [timers.add(entry(n, 1)) for n in range(1, 1001)]
    assert (sum(added), len(timers.entries)) == (MOST_ENTRIES, MOST_ENTRIES)
    assert len(timers.on(Moment(1000, 1000))) == MOST_ENTRIES


# --- a process ---------------------------------------------------------------------------------


class MemoryFile:
    def __init__(self, *entries: ClockEntry) -> None:
        self.entries: Sequence[ClockEntry] = entries
        self.full = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[ClockEntry]]:
        yield self.entries

    async def save(self, entries: Sequence[ClockEntry]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.entries = entries


class House:
    def __init__(self, *speakers: ScriptedSpeaker, file: MemoryFile | None = None) -> None:
        self.speakers = list(speakers)
        self.announcer = Announcer(lambda: [(each, each.place) for each in self.speakers])
        self.file = file or MemoryFile()
        self.set_by_s = 0.0
        """How much the wall clock was set forward."""
        self.clock: Clock

    def now(self) -> Moment:
        at = asyncio.get_running_loop().time()
        return Moment(START + self.set_by_s + at, at)

    def tools(self, place: str = KITCHEN, language: str = "en") -> ClockTools:
        return ClockTools(self.clock, place, lambda: language, offered=False)

    def play(self, act: Callable[[House], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            self.clock = Clock(self.file, self.announcer, SENTENCES, self.now)
            async with beside(self.clock.run()):
                await asyncio.sleep(0)
                return await act(self)

        result: T = run_virtual(main())
        return result

    @property
    def heard(self) -> list[tuple[str, str, float]]:
        """By whom, what, and when."""
        return [(s.place, text, round(at, 2)) for s in self.speakers for text, at in s.asked]


async def call(house: House, name: str, **arguments: Any) -> str:
    result = await house.tools().call(name, arguments)
    assert result.error is None
    return result.text


@pytest.mark.parametrize(
    "calls",
    [
        [("now", {}, "It is 13:00 on Saturday, 2026-11-28.")],
        [("set_timer", {"minutes": 5}, "The timer is set for 5 min.")],
        [("set_timer", {"hours": 1.5, "seconds": 3}, "The timer is set for 1 h, 30 min, 3 s.")],
        [("set_alarm", {"time": "15:30"}, "The alarm is set for 15:30.")],
        [("set_alarm", {"time": "7:05"}, "The alarm is set for tomorrow at 7:05.")],
        [
            (
                "set_alarm",
                {"time": "07:00", "date": "2026-12-24"},
                "The alarm is set for 7:00 on Thursday, 2026-12-24.",
            )
        ],
        [("set_reminder", {"text": "eat", "time": "16:00"}, "The reminder is set for 16:00.")],
        [("set_reminder", {"text": "eat", "minutes": 20}, "The reminder is set for 13:20.")],
        [
            (
                "set_reminder",
                {"text": "eat", "time": "9:00", "date": "2026-11-28"},
                "That time has passed.",
            )
        ],
        [("set_alarm", {"time": "9:00", "date": "2026-02-30"}, "That time has passed.")],
        [("set_timer", {}, "That time has passed.")],
        [
            ("list_timers", {}, "Nothing is set."),
            ("cancel_timer", {"kind": "alarm"}, "Nothing is set."),
        ],
        [
            ("set_timer", {"minutes": 5}, "The timer is set for 5 min."),
            ("set_alarm", {"time": "15:00"}, "The alarm is set for 15:00."),
            ("list_timers", {}, "A timer for 5 min has 5 min left. An alarm is set for 15:00."),
            ("cancel_timer", {"kind": "timer"}, "It is cancelled."),
            ("list_timers", {}, "An alarm is set for 15:00."),
        ],
        [
            (
                "set_timer",
                {"minutes": 5, "text": "noodles"},
                "Noodles: The timer is set for 5 min.",
            ),
            ("set_timer", {"minutes": 9}, "The timer is set for 9 min."),
            ("set_timer", {"minutes": 9, "text": "eggs"}, "Eggs: The timer is set for 9 min."),
            ("cancel_timer", {"kind": "timer", "text": "rice"}, "There is none like that."),
            ("cancel_timer", {"kind": "alarm"}, "There is none like that."),
            ("cancel_timer", {"kind": "timer", "text": "Noodle"}, "It is cancelled."),
            ("cancel_timer", {"kind": "timer", "seconds": 300}, "There is none like that."),
            ("cancel_timer", {"kind": "timer"}, "All 2 are cancelled."),
        ],
        [
            (
                "set_timer",
                {"minutes": 5, "text": "USB stick", "hours": None},
                "USB stick: The timer is set for 5 min.",
            ),
            ("set_timer", {"seconds": 0.2, "text": ""}, "The timer is set for 1 s."),
            ("set_alarm", {"time": "15:00", "date": None}, "The alarm is set for 15:00."),
            ("set_reminder", {"minutes": 9, "text": "call Anna"}, "The reminder is set for 13:09."),
            ("cancel_timer", {"kind": "reminder", "text": "nna"}, "There is none like that."),
            ("cancel_timer", {"kind": "reminder", "text": "Anna"}, "It is cancelled."),
            ("cancel_timer", {"kind": "timer", "text": "the USB stick"}, "It is cancelled."),
        ],
        [
            (
                "unclear",
                {},
                "I did not understand that, and changed nothing. Say, for instance: set a timer "
                "for ten minutes.",
            )
        ],
        [
            *[("set_timer", {"minutes": 5}, "The timer is set for 5 min.")] * 100,
            ("set_timer", {"minutes": 5}, "100 are set already. Cancel one first."),
        ],
    ],
)
def test_what_the_tools_answer(calls: list[tuple[str, dict[str, Any], str]]) -> None:
    async def ask(house: House) -> list[str]:
        return [await call(house, name, **arguments) for name, arguments, _ in calls]

    assert House().play(ask) == [answer for *_, answer in calls]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_alarm", {"time": "25:00"}),
        ("set_timer", {"minutes": -1}),
        ("set_timer", {"minutes": 1e9}),
        ("set_reminder", {"time": "10:00"}),
        ("set_reminder", {"time": "10:00", "text": ""}),
        ("set_alarm", {"time": "10:00", "date": "9999-12-31"}),
        ("cancel_timer", {"kind": "dinner"}),
        ("cancel_timer", {"kind": "alarm", "time": "07:00"}),
        ("cancel_timer", {"kind": "timer", "minutes": 10}),
        ("dance", {}),
    ],
)
def test_what_does_not_fit_is_an_error(name: str, arguments: dict[str, Any]) -> None:
    result = House().play(lambda house: house.tools().call(name, arguments))
    assert result.error


def test_every_schema_can_be_used() -> None:
    tools = House().play(lambda house: asyncio.sleep(0, house.tools().tools))
    assert [why_unusable(tool.parameters) for tool in tools] == [""] * len(tools)


TIMER_UP = "The timer for 1 min is up."


@pytest.mark.parametrize(
    ("speakers", "heard"),
    [
        ([ScriptedSpeaker()], [(KITCHEN, TIMER_UP, 60)]),
        ([ScriptedSpeaker(), ScriptedSpeaker("other")], [(KITCHEN, TIMER_UP, 60)]),
        ([ScriptedSpeaker("other")], [("other", TIMER_UP, 60)]),
        (
            [ScriptedSpeaker(outcomes=("gone",)), ScriptedSpeaker("other")],
            [(KITCHEN, TIMER_UP, 60)],
        ),
        ([], []),
    ],
)
def test_who_hears_it(speakers: list[ScriptedSpeaker], heard: list[tuple[str, str, float]]) -> None:
    async def run(house: House) -> list[ClockEntry]:
        await call(house, "set_timer", minutes=1)
        await asyncio.sleep(100)
        return list(house.file.entries)

    house = House(*speakers)
    left = house.play(run)
    assert house.heard == heard
    told = any(speaker.outcomes == ("said",) for speaker in speakers if speaker.asked)
    assert len(left) == (not told), "what nobody has heard stays"


@pytest.mark.parametrize(
    ("calls", "answers"),
    [
        ([("list_timers", {})], [TIMER_UP]),
        (
            [("cancel_timer", {"kind": "timer"}), ("list_timers", {})],
            ["It is cancelled.", "Nothing is set."],
        ),
    ],
)
def test_one_that_is_due_and_not_yet_said(
    calls: list[tuple[str, dict[str, Any]]], answers: list[str]
) -> None:
    async def run(house: House) -> list[str]:
        await call(house, "set_timer", minutes=1)
        await asyncio.sleep(61)
        told = [await call(house, name, **arguments) for name, arguments in calls]
        house.speakers.append(ScriptedSpeaker())
        house.announcer.arrive()
        await asyncio.sleep(10)
        return told

    house = House()
    assert house.play(run) == answers
    assert [text for _, text, _ in house.heard] == ([TIMER_UP] if len(calls) == 1 else [])


@pytest.mark.parametrize(
    ("tool", "when", "away_s", "told"),
    [
        ("set_timer", {"minutes": 1}, 600, f"{TIMER_UP} This was due at 13:01."),
        (
            "set_alarm",
            {"time": "13:05"},
            900,
            "It is 13:15. This is your alarm. This was due at 13:05.",
        ),
    ],
)
def test_who_comes_back_is_told_late(
    tool: str, when: dict[str, Any], away_s: int, told: str
) -> None:
    async def run(house: House) -> None:
        await call(house, tool, **when)
        await asyncio.sleep(away_s)
        house.speakers.append(ScriptedSpeaker())
        house.announcer.arrive()
        await asyncio.sleep(1)

    house = House()
    house.play(run)
    assert house.heard == [(KITCHEN, told, away_s)]


def test_who_comes_back_while_another_room_is_never_quiet_is_told() -> None:
    async def run(house: House) -> str:
        await call(house, "set_timer", minutes=1)
        await asyncio.sleep(65)
        house.speakers.append(ScriptedSpeaker())
        house.announcer.arrive()
        await asyncio.sleep(30)
        return await call(house, "list_timers")

    house = House(ScriptedSpeaker("other", outcomes=("busy",)))
    assert house.play(run) == "Nothing is set."
    assert sorted(house.heard) == [(KITCHEN, TIMER_UP, 90), ("other", TIMER_UP, 60)]


def test_who_has_not_paused_for_long_is_told_late() -> None:
    async def run(house: House) -> None:
        await call(house, "set_timer", minutes=1)
        await asyncio.sleep(200)

    house = House(ScriptedSpeaker(outcomes=("busy", "busy", "busy", "said")))
    house.play(run)
    assert house.heard[-1] == (KITCHEN, f"{TIMER_UP} This was due at 13:01.", 150)


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_a_timer_is_set_just_after_the_clock(set_by_s: float) -> None:
    async def run(house: House) -> str:
        await call(house, "set_timer", minutes=5)
        await asyncio.sleep(1)
        house.set_by_s = set_by_s
        await call(house, "set_timer", minutes=1)
        told = await call(house, "list_timers")
        await asyncio.sleep(400)
        return told

    house = House(ScriptedSpeaker())
    left = "A timer for 1 min has 1 min left. A timer for 5 min has 4 min, 59 s left."
    assert house.play(run) == left
    due = [(KITCHEN, TIMER_UP, 61), (KITCHEN, "The timer for 5 min is up.", 300)]
    assert house.heard == due


@pytest.mark.parametrize(
    ("set_by_s", "heard"),
    [
        (3600, ["alarm 30", "timer 300"]),
        (-3600, ["timer 300", "alarm 7200"]),
        (0, ["timer 300", "alarm 3600"]),
        (14 * 3600, ["timer 300"]),
    ],
)
def test_a_wall_clock_that_is_set(set_by_s: float, heard: list[str]) -> None:
    """A minute after the timer (5 min) and the alarm (14:00) were set, at 13:00."""

    async def run(house: House) -> None:
        await call(house, "set_timer", minutes=5)
        await call(house, "set_alarm", time="14:00")
        await asyncio.sleep(1)
        house.set_by_s = set_by_s
        await asyncio.sleep(8000)

    house = House(ScriptedSpeaker())
    house.play(run)
    kinds = {"The timer for 5 min is up.": "timer"}
    assert [f"{kinds.get(text, 'alarm')} {at:.0f}" for _, text, at in house.heard] == heard


def test_what_was_set_survives_a_restart() -> None:
    file = MemoryFile()

    async def set_some(house: House) -> None:
        await call(house, "set_timer", minutes=5)
        await call(house, "set_reminder", text="eat", minutes=10)

    House(file=file).play(set_some)
    assert len(file.entries) == 2
    house = House(ScriptedSpeaker(), file=file)

    async def later(house: House) -> None:
        house.set_by_s = 60
        house.clock.timers.on(house.now())
        await asyncio.sleep(700)

    house.play(later)
    texts = [text for _, text, _ in house.heard]
    assert texts == ["The timer for 5 min is up.", "You wanted to be reminded: eat."]
    assert file.entries == ()


@pytest.mark.parametrize("wrong_by_s", [3600, -3600])
def test_a_clock_that_is_put_right_after_the_machine_has_started(wrong_by_s: float) -> None:
    """At 13:10; the timer is due at 14:30."""
    file = MemoryFile()
    House(file=file).play(lambda house: call(house, "set_timer", minutes=90))

    async def later(house: House) -> None:
        await asyncio.sleep(20)
        house.set_by_s = 600
        await asyncio.sleep(10_000)

    house = House(ScriptedSpeaker(), file=file)
    house.set_by_s = 600 + wrong_by_s
    house.play(later)
    assert house.heard == [(KITCHEN, "The timer for 1 h, 30 min is up.", 4800)]


def test_a_hundred_at_once_are_all_said() -> None:
    async def run(house: House) -> None:
        for _ in range(MOST_ENTRIES):
            await call(house, "set_timer", minutes=1)
            await asyncio.sleep(0.001)
        await asyncio.sleep(100)

    house = House(ScriptedSpeaker())
    house.play(run)
    assert len(house.heard) == MOST_ENTRIES


def test_a_room_that_is_never_quiet_holds_up_no_other() -> None:
    async def run(house: House) -> None:
        for _ in range(20):
            await call(house, "set_timer", minutes=1)
        await house.tools("bedroom").call("set_timer", {"minutes": 1})
        await asyncio.sleep(100)

    house = House(ScriptedSpeaker(outcomes=("busy",)), ScriptedSpeaker("bedroom"))
    house.play(run)
    assert [each for each in house.heard if each[0] == "bedroom"] == [("bedroom", TIMER_UP, 60)]


def test_a_full_disk_is_told() -> None:
    async def run(house: House) -> str:
        house.file.full = True
        answer = await call(house, "set_timer", minutes=1)
        await asyncio.sleep(61)
        return answer

    house = House(ScriptedSpeaker())
    answer = house.play(run)
    assert answer == (
        "The timer is set for 1 min. It cannot be saved: after a restart it is not known."
    )
    assert [text for _, text, _ in house.heard] == [TIMER_UP]


@pytest.mark.parametrize("language", sorted(TABLES))
def test_every_sentence_can_be_said(language: str) -> None:
    for kind in ("timer", "alarm", "reminder"):
        each = entry(START + 60, 60, kind=kind, language=language, text="x")
        for name in ("set", "due", "item"):
            assert "{" not in SENTENCES.of(name, each, START)
        assert "{" not in SENTENCES.due(each, START + 1000)
    assert "{" not in SENTENCES.now(datetime.fromtimestamp(START), language)
    for name in ("none", "no_such", "cancelled", "cancelled_all", "past", "full", "unclear"):
        assert "{" not in SENTENCES.say(name, language, n=MOST_ENTRIES)


# --- the file ----------------------------------------------------------------------------------


def saved_and_read(path: Path, *entries: ClockEntry) -> Sequence[ClockEntry]:
    async def run() -> Sequence[ClockEntry]:
        file = TimersFile(path)
        async with file.open():
            await file.save(entries)
        async with TimersFile(path).open() as before:
            return before

    return asyncio.run(run())


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "timers.json"
    kept = entry(10, 5, text="é", language="fr")
    assert saved_and_read(path, kept) == (kept,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_unreadable_file_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "timers.json"
    path.write_text("{")
    assert saved_and_read(path) == ()
    assert (tmp_path / "timers.unreadable").read_text() == "{"


def test_a_second_process_keeps_none(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "timers.json"
        first, second = TimersFile(path), TimersFile(path)
        async with first.open(), second.open() as before:
            assert before == ()
            await first.save([entry(1)])
            with pytest.raises(OSError, match="another process"):
                await second.save([])

    asyncio.run(run())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="Permission"):
        saved_and_read(tmp_path / "timers.json")
