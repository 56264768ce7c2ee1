"""Limits the engine time spent on replies that may never be given. Pure.

A reply begun in a pause is wasted if the user goes on. ``Budget`` tracks how much engine time was
wasted lately and how slow the engines have become, and says what may begin. Confirmed work
pre-empts speculation in any case (``pipeline.workers.host``); the budget spares the machine.
"""

from __future__ import annotations

from collections import deque

from pipeline.settings import Speculation
from pipeline.turn_taking import tuning


class Budget:
    """The budget of one session. Report outcomes to it, and ask it what may begin."""

    def __init__(self, settings: Speculation) -> None:
        self._settings = settings
        self._outcomes: deque[tuple[float, float]] = deque(maxlen=tuning.OUTCOMES)
        self._passes: deque[tuple[float, float]] = deque(maxlen=tuning.PASSES)
        self._slowness = 1.0
        """How many times longer recognition has taken lately than at its best."""

    @property
    def wasted_share(self) -> float:
        """Wasted share of the engine time in the latest pauses."""
        if len(self._outcomes) < tuning.FEWEST_OUTCOMES:
            return 0.0
        wasted = sum(wasted for _, wasted in self._outcomes)
        total = wasted + sum(used for used, _ in self._outcomes)
        return wasted / total if total else 0.0

    @property
    def may_answer(self) -> bool:
        """Whether a reply may begin at the first silent frames."""
        return self.wasted_share <= self._settings.budget and self._slowness < tuning.VERY_SLOW

    @property
    def may_guess(self) -> bool:
        """Whether a reply may begin while the user still speaks."""
        if self._settings.on_partials == "never":
            return False
        return self.may_answer and self._slowness < tuning.SLOW

    def wants_partials(self, cheap: bool) -> bool:
        """Whether to ask for partial transcripts. ``cheap``: feeding produces them anyway."""
        setting = self._settings.on_partials
        return setting == "always" or (setting == "auto" and cheap)

    def note_use(self, engine_seconds: float) -> None:
        """Count engine time spent in a pause that ended the turn."""
        self._outcomes.append((engine_seconds, 0.0))

    def note_waste(self, engine_seconds: float) -> None:
        """Count engine time spent on work that was discarded."""
        self._outcomes.append((0.0, engine_seconds))

    def note_pass(self, audio_seconds: float, took_seconds: float) -> None:
        """Note how long a pass over ``audio_seconds`` took, waiting included."""
        # A pass costs at most in proportion to its audio, so a shorter one bounds a longer one.
        best = min(
            (took * max(1.0, audio_seconds / audio) for audio, took in self._passes),
            default=took_seconds,
        )
        self._passes.append((max(audio_seconds, 0.1), took_seconds))
        ratio = took_seconds / best if best > 0 else 1.0
        self._slowness += 0.5 * (max(1.0, ratio) - self._slowness)
