"""Saved rooms: found again, and never an obstacle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.talk.known_rooms import KnownRooms
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.path import EchoMemory

pytestmark = pytest.mark.quick


def room(ppm: float = 12.5) -> EchoMemory:
    state = EchoCanceller().state()
    weights = state.weights.copy()
    weights[0, 3, 5] = 0.25 + 0.5j
    return EchoMemory(type(state)(weights, state.leakage_db, ppm, state.lag_samples), 900, 400)


def test_a_room_is_found_again(tmp_path: Path) -> None:
    rooms, kept = KnownRooms(tmp_path / "deep" / "rooms"), room()
    assert rooms.of("mic", "speaker") is None
    rooms.keep("mic", "speaker", kept)
    found = KnownRooms(tmp_path / "deep" / "rooms").of("mic", "speaker")
    assert found is not None
    assert np.array_equal(found.state.weights, kept.state.weights)
    assert (found.state.ppm, found.delay_samples, found.later_samples) == (12.5, 900, 400)
    assert rooms.of("mic", "another") is None
    assert rooms.of("mic\nspeaker", "") is None


def test_a_room_without_echo_is_saved(tmp_path: Path) -> None:
    rooms = KnownRooms(tmp_path)
    rooms.keep("mic", "speaker", None)
    rooms.keep("mic", "speaker", room())
    rooms.keep("mic", "speaker", None)
    assert rooms.of("mic", "speaker") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"words"])
def test_a_broken_file_is_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rooms = KnownRooms(tmp_path)
    rooms.keep("mic", "speaker", room())
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert rooms.of("mic", "speaker") is None
    assert "cannot be used" in caplog.text


def test_an_invalid_filter_is_not_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rooms = KnownRooms(tmp_path)
    rooms.keep("mic", "speaker", room(ppm=9999.0))
    assert rooms.of("mic", "speaker") is None
    assert "out of range" in caplog.text


def test_an_unwritable_place_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    KnownRooms(tmp_path / "file").keep("mic", "speaker", room())
    assert "cannot be stored" in caplog.text
