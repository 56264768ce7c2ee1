"""Speech over an answer: the user asks for a story of 9 s, and speech begins 3 s later."""

from __future__ import annotations

from typing import Any

from reachy_voice.testing import Act, Scene, ScriptedLlm, ScriptedStt, play, say, silence

QUESTION = "Tell me a story."
QUESTION_S, HEARD_S = 1.024, 3.0
BEGAN_S = QUESTION_S + HEARD_S
"""When the user speaks over the answer."""
TEXT = (
    "once upon a time there was a small robot who lived on a wooden desk and talked all day long "
    "with nice people that came by to drink their tea."
)
STORY = tuple(f"{word} " for word in TEXT.split())


def story() -> ScriptedLlm:
    return ScriptedLlm(deltas=STORY)


def over(
    *acts: Act, texts: tuple[str, ...] = (), heard_s: float = HEARD_S, **options: Any
) -> Scene:
    """Play ``acts`` over the answer. ``texts``: what the recogniser reads, partial by partial."""
    options = {"stt": ScriptedStt((QUESTION, *texts)), "llm": story(), **options}
    return play(say(QUESTION_S), silence(heard_s), *acts, **options)
