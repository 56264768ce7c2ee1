"""A finding of the doctor, which setup shows, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``fix`` is the next step, empty if nothing must be done."""

    name: str
    state: State
    detail: str
    fix: str = ""
