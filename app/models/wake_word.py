"""Checks and makes, at the start, what hears the call of a sleeping robot (``wake``)."""

from __future__ import annotations

from app.settings.model import Settings
from pipeline.engines.contract import WakeWord
from pipeline.errors import ConfigError


def wake_word(settings: Settings) -> WakeWord | None:
    """``None`` if the words are found in transcripts, or not at all. Raises ``ConfigError`` for
    words too like others, and what ``micro_wakeword.load`` raises."""
    wake = settings.wake
    if wake.mode != "word":
        return None
    if wake.engine == "micro-wakeword":
        from pipeline.engines.wake.micro_wakeword import load

        return load(wake.words)
    from pipeline.waking.calls import too_short

    for words in wake.words or ():
        if too_short(words):
            raise ConfigError(
                f"The robot cannot be called {words!r}",
                why="so little sounds like too many other words",
                fix="Set wake.words to a longer call, such as Hey Reachy",
            )
    return None
