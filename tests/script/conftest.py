"""What the tests of setup share."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.setup.place import Place
from tests.support.checkout import place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)
