"""What the YAML says about every session."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.barge_in import BargeIn
from pipeline.direction import Sector
from pipeline.echo.settings import Echo
from pipeline.endpointing import Endpointing
from pipeline.engines import Sampling
from pipeline.filler import Filler
from pipeline.speculation import Speculation


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """``tool_instructions`` are added to the instructions of answers that may call tools."""

    endpointing: Endpointing = field(default_factory=Endpointing)
    sampling: Sampling = field(default_factory=Sampling)
    tool_instructions: str = ""
    speculation: Speculation = field(default_factory=Speculation)
    barge_in: BargeIn = field(default_factory=BargeIn)
    echo: Echo = field(default_factory=Echo)
    accept: Sector | None = None
    """From where people are listened to, with an array; ``None``: from everywhere."""
    filler: Filler = field(default_factory=Filler)
    lead_ms: int = 250
    chunk_ms: int = 40
    max_items: int = 2000
    partials: bool = False
    watched: bool = False
    apology: str = ""
    """See ``ReplyPlan``."""
