"""Scenes as rows of a table: what happens, and what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reachy_voice.testing import Act, Scene, play


def row(id: str, *acts: Act, expect: Mapping[str, Any], **options: Any) -> Any:
    """``id``: what the user notices. ``expect``: properties of the scene after it."""
    return pytest.param(acts, options, expect, id=id)


SCENES = ("acts", "options", "expect")
"""The names of a row's columns."""


def check(acts: tuple[Act, ...], options: dict[str, Any], expect: Mapping[str, Any]) -> Scene:
    played = play(*acts, **options)
    for name, value in expect.items():
        assert getattr(played, name) == value, name
    return played
