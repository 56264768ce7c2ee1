"""The scene of docs/contributing.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.quick

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"


def test_the_scene_of_the_page() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_a_question_is_answered"]()
