"""How the service starts the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Start:
    command: Sequence[str]
    folder: Path = Path("/")
    """From which it starts, and from which its options' paths are meant."""
    variables: Mapping[str, str] = field(default_factory=dict)
    writable: Sequence[Path] = ()
    """Folders that the server writes to."""
    stop_s: int = 60
    """How long it may take to end."""
