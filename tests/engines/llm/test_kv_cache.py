"""The book-keeping of KV cells, over a memory of lists, and saved states on disk."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.llm.kv_cache import KvCache, Sequence
from pipeline.engines.llm.saved_prefixes import SavedPrefixes

pytestmark = pytest.mark.quick

ANN, BOB, CY = "Ann", "Bob", "Cy"


class Cells:
    """A context's memory: which tokens each sequence holds.

    ``window``: how many tokens some layers see and keep; 0: all layers see all tokens.
    """

    def __init__(self, *, forgets_partly: bool = True, window: int = 0) -> None:
        self.forgets_partly = forgets_partly
        self.window = window
        self.held: dict[int, list[int]] = {}
        self.longest: dict[int, int] = {}

    def remove(self, sequence: int, start: int) -> bool:
        if start and not self.forgets_partly:
            return False
        self.held[sequence] = self.held.get(sequence, [])[:start]
        if not start:
            self.longest[sequence] = 0
        return True

    def reaches(self, sequence: int, count: int) -> bool:
        if not self.window:
            return True
        first = max(0, self.longest.get(sequence, 0) + 1 - self.window)
        return first <= max(0, count + 1 - self.window)

    def copy(self, source: int, target: int, count: int) -> None:
        assert self.forgets_partly
        assert self.reaches(source, count), "cells that are gone cannot be shared"
        assert not self.held.get(target), "cells of two texts would mix"
        self.held[target] = self.held[source][:count]
        self.longest[target] = count


class Bench:
    """A cache, its memory, and work on it."""

    def __init__(self, sequences: int = 3, **cells: Any) -> None:
        self.cells = Cells(**cells)
        self.cache = KvCache(self.cells, sequences)

    def work(self, owner: str, tokens: list[int], holder: object = "run") -> int:
        """Acquire, compute and release a sequence; returns how many tokens were reused."""
        sequence = self.hold(owner, tokens, holder)
        reused = len(sequence.tokens)
        self.compute(sequence, tokens)
        self.cache.release(sequence, holder)
        return reused

    def hold(self, owner: str, tokens: list[int], holder: object) -> Sequence:
        sequence = self.cache.acquire(tokens, owner, holder)
        assert sequence is not None
        assert sequence.tokens == self.cells.held.get(sequence.id, [])
        assert sequence.tokens == tokens[: len(sequence.tokens)]
        return sequence

    def compute(self, sequence: Sequence, tokens: list[int]) -> None:
        sequence.tokens = list(tokens)
        self.cells.held[sequence.id] = list(tokens)
        self.cells.longest[sequence.id] = len(tokens)


def test_the_next_turn_reuses_what_it_shares() -> None:
    bench = Bench()
    assert bench.work(ANN, [1, 2, 3, 4]) == 0
    assert bench.work(ANN, [1, 2, 3, 9, 9]) == 3


def test_a_prefix_of_another_session_is_copied() -> None:
    bench = Bench()
    bench.work(ANN, [1, 2, 3, 4])
    assert bench.work(BOB, [1, 2, 3, 7]) == 3
    assert bench.work(ANN, [1, 2, 3, 4, 5]) == 4


def test_a_prefix_is_copied_from_a_sequence_in_use() -> None:
    bench = Bench()
    first = bench.hold(ANN, [1, 2, 3], "first")
    bench.compute(first, [1, 2, 3])
    assert bench.work(BOB, [1, 2, 8], "second") == 2
    assert bench.cells.held[first.id] == [1, 2, 3]


LONG = list(range(1, 1000))


def test_a_history_stays_until_its_shorter_version_is_in_use() -> None:
    bench = Bench(sequences=3)
    bench.work(BOB, [7])
    bench.work(ANN, LONG)
    shorter = LONG[:100] + LONG[600:]
    assert bench.work(ANN, shorter[:300]) == 100
    assert bench.work(ANN, [*LONG, 5]) == len(LONG), "a turn in between"
    assert bench.work(ANN, shorter) == 300, "reading goes on where it was"
    assert bench.work(ANN, [*shorter, 5]) == len(shorter)
    assert bench.work(BOB, [7]) == 1, "nobody else has lost anything"


def test_unused_sequences_are_evicted_first() -> None:
    bench = Bench(sequences=2)
    bench.work(ANN, LONG)
    for start in (300, 500, 700):
        bench.work(ANN, LONG[:100] + LONG[start:])
    assert bench.work(ANN, LONG[:100] + LONG[700:]) == 100 + len(LONG[700:])
    assert bench.work(ANN, LONG[:100] + LONG[500:]) == 100 + len(LONG[500:])


def test_without_a_sequence_to_spare_the_history_is_cut() -> None:
    bench = Bench(sequences=2)
    bench.work(BOB, [7])
    bench.work(ANN, LONG)
    assert bench.work(ANN, LONG[:100] + LONG[600:]) == 100
    assert bench.work(ANN, LONG) == 100
    assert bench.work(BOB, [7]) == 1


def test_a_cut_off_answer_needs_no_new_sequence() -> None:
    bench = Bench()
    bench.work(ANN, LONG[:300])
    bench.work(ANN, [*LONG[:200], 5])
    assert [len(held) for held in bench.cells.held.values()] == [201]


def test_the_stalest_sequence_makes_room() -> None:
    bench = Bench(sequences=2)
    bench.work(ANN, [1, 1])
    bench.work(BOB, [2, 2])
    bench.work(ANN, [1, 1, 1])
    bench.work(CY, [3])
    assert bench.work(ANN, [1, 1, 1]) == 3
    assert bench.work(BOB, [2, 2]) == 0


def test_a_sequence_in_use_is_not_given_away() -> None:
    bench = Bench(sequences=1)
    bench.hold(ANN, [1], "first")
    assert bench.cache.acquire([1], BOB, "second") is None
    assert not bench.cache.revoke("first"), "one's own does not count"
    assert bench.cache.revoke("second")
    assert bench.cache.acquire([1], BOB, "second") is not None


def test_a_late_release_does_not_free_the_next_holders_sequence() -> None:
    bench = Bench(sequences=1)
    sequence = bench.hold(ANN, [1], "first")
    bench.cache.revoke("second")
    bench.hold(BOB, [1], "second")
    bench.cache.release(sequence, "first")
    assert sequence.holder == "second"


def test_eviction_takes_idle_cells_only() -> None:
    bench = Bench()
    held = bench.hold(ANN, [1], "run")
    bench.compute(held, [1])
    bench.work(BOB, [2], "other")
    assert bench.cache.evict()
    assert not bench.cache.evict()
    assert bench.cells.held == {held.id: [1], 1: []}


def test_a_closed_session_leaves_only_its_instructions() -> None:
    bench = Bench()
    sequence = bench.hold(ANN, [1, 2, 3, 4], "run")
    bench.compute(sequence, [1, 2, 3, 4])
    sequence.shared_tokens = 2
    bench.cache.disown(ANN)
    assert bench.cells.held[sequence.id] == [1, 2]
    assert sequence.holder is None
    assert bench.work(BOB, [1, 2, 3, 4]) == 2


def test_models_that_cannot_forget_in_part_start_again() -> None:
    bench = Bench(forgets_partly=False)
    assert bench.work(ANN, [1, 2, 3]) == 0
    assert bench.work(ANN, [1, 2, 3, 4]) == 3, "growing is possible"
    assert bench.work(ANN, [1, 2, 9]) == 0
    assert bench.work(BOB, [1, 2, 9]) == 0


def test_conversations_are_counted() -> None:
    bench = Bench()
    assert bench.cache.conversations == 1, "nobody yet, and no share of nothing"
    bench.work(ANN, [1, 2, 3, 4])
    bench.work(ANN, [1, 9])
    assert bench.cache.conversations == 1
    sequence = bench.hold(BOB, [5, 6], "run")
    sequence.shared_tokens = 2
    bench.compute(sequence, [5, 6])
    assert bench.cache.conversations == 1, "instructions alone are no conversation"
    bench.compute(sequence, [5, 6, 7])
    assert bench.cache.conversations == 2
    bench.cache.disown(ANN)
    assert bench.cache.conversations == 1


def test_a_window_without_its_cells_is_read_again() -> None:
    bench = Bench(window=4)
    told = list(range(10))
    assert bench.work(ANN, told) == 0
    assert bench.work(ANN, [*told, 10]) == 10, "growing is possible"
    assert bench.work(ANN, [*told, 11]) == 0, "what is taken back would need what is gone"
    assert bench.work(BOB, told[:5]) == 0, "nor can others share it"
    assert bench.work(ANN, [*told, 11, 12]) == 11
    bench = Bench(window=4)
    assert bench.work(ANN, [1, 2, 3, 4]) == 0
    assert bench.work(BOB, [1, 2, 3]) == 0
    assert bench.work(CY, [1, 2, 3, 5]) == 3, "within the first window, all is there"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ANN, BOB, CY, "Di"]),
            st.lists(st.integers(0, 1), min_size=1, max_size=6),
            st.sampled_from(["finish", "hold", "evict", "disown"]),
        ),
        max_size=30,
    )
)
def test_book_keeping_and_cells_always_agree(steps: list[tuple[str, list[int], str]]) -> None:
    bench = Bench(sequences=2)
    held: list[tuple[Sequence, object]] = []
    for owner, tokens, then in steps:
        holder = object()
        while (sequence := bench.cache.acquire(tokens, owner, holder)) is None:
            assert bench.cache.revoke(holder)
        assert sequence.tokens == bench.cells.held.get(sequence.id, [])
        assert sequence.tokens == tokens[: len(sequence.tokens)]
        bench.compute(sequence, tokens)
        held.append((sequence, holder))
        if then != "hold":
            bench.cache.release(*held.pop())
        if then == "evict":
            bench.cache.evict()
        if then == "disown":
            bench.cache.disown(owner)


# --- on disk -----------------------------------------------------------------------------------

TOKENS = list(range(300))
STATE = bytes(range(256)) * 40_000


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """The generator's result and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def save(saved: SavedPrefixes, tokens: list[int], state: bytes = STATE) -> int:
    return run(saved.write(tokens, memoryview(state)))[1]


def load(saved: SavedPrefixes, tokens: list[int]) -> Any:
    return run(saved.read(tokens))[0]


@pytest.fixture
def saved(tmp_path: Path) -> SavedPrefixes:
    return SavedPrefixes(tmp_path / "prefixes", 25 * 2**20, b"model")


def test_a_state_comes_back_in_slices(saved: SavedPrefixes, tmp_path: Path) -> None:
    assert load(saved, TOKENS) is None
    assert TOKENS not in saved
    assert save(saved, TOKENS) == 3
    assert TOKENS in saved
    state, slices = run(saved.read(TOKENS))
    assert state == STATE
    assert slices == 3
    assert (tmp_path / "prefixes").stat().st_mode & 0o777 == 0o700


def test_a_state_is_not_found_for_other_tokens_or_models(
    saved: SavedPrefixes, tmp_path: Path
) -> None:
    save(saved, TOKENS)
    assert [*TOKENS, 1] not in saved
    assert TOKENS not in SavedPrefixes(tmp_path / "prefixes", 2**30, b"other")


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty", "other key"])
def test_a_damaged_file_is_ignored_and_deleted(
    saved: SavedPrefixes, tmp_path: Path, damage: str
) -> None:
    save(saved, TOKENS)
    (file,) = (tmp_path / "prefixes").iterdir()
    data = bytearray(file.read_bytes())
    match damage:
        case "flip":
            data[-1000] ^= 1
        case "cut":
            del data[-1:]
        case "grow":
            data.append(0)
        case "empty":
            data.clear()
        case "other key":
            data[10] ^= 1
    file.write_bytes(data)
    assert load(saved, TOKENS) is None
    assert not file.exists()


def test_the_least_recently_used_state_is_deleted_over_budget(
    saved: SavedPrefixes, tmp_path: Path
) -> None:
    for number, age in ((1, 300), (2, 200)):
        save(saved, [number])
        for file in (tmp_path / "prefixes").iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - age))
    assert load(saved, [1]) == STATE, "which makes it the freshest"
    save(saved, [3])
    assert [1] in saved
    assert [2] not in saved
    assert [3] in saved


def test_an_interrupted_save_leaves_nothing(saved: SavedPrefixes, tmp_path: Path) -> None:
    steps = saved.write(TOKENS, memoryview(STATE))
    next(steps)
    steps.close()
    assert list((tmp_path / "prefixes").iterdir()) == []


def test_an_unwritable_directory_costs_only_speed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    saved = SavedPrefixes(tmp_path / "file", 2**30, b"model")
    save(saved, TOKENS)
    assert load(saved, TOKENS) is None
