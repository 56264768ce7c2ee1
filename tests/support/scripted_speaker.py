"""A scripted conversation that takes announcements, for ``app.announcing``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.speaking.announcements import AnnouncementEnd, Outcome

KITCHEN = "192.168.1.7"


@dataclass(eq=False)
class ScriptedSpeaker:
    """Its answers to announcements are fixed in advance."""

    place: str = KITCHEN
    outcomes: Sequence[Outcome] = ("said",)
    takes_s: float = 0.01
    announces: bool = True
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Texts with their times."""

    async def announce(self, text: str, until: float) -> AnnouncementEnd:
        now = asyncio.get_running_loop().time()
        outcome = self.outcomes[min(len(self.asked), len(self.outcomes) - 1)]
        self.asked.append((text, now))
        await asyncio.sleep(until - now if outcome == "busy" else self.takes_s)
        return AnnouncementEnd(outcome, text if outcome == "said" else "")
