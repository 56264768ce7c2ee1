"""Scripted engines for the client tests, with fixed transcripts, answers and speech.

Speech is a steady tone whose level stands for the phrase, so any number of clients can talk at
once, in any order and at any sample rate, over the same stages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Delta, TextDelta, ToolCall
from pipeline.messages import Message, Tool, ToolChoice
from reachy_voice.testing import (
    Cast,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    Thought,
)

TIME, WEATHER, STORY, WAIT = (
    "What time is it?",
    "What is the weather in Paris?",
    "Tell me a long story.",
    "Wait a moment, please.",
)
LEVELS = {2000: TIME, 4000: WEATHER, 6000: STORY, 8000: WAIT}
"""Level of the tone for each phrase: the mean magnitude of its samples."""
COUGH_LEVEL = 10_000
"""Loud enough to count as speech, without words."""

NOON = "It is noon."
TALE = "Once upon a time there was a robot who counted all the stars in the sky. " * 8
CALM = "All right, I wait."
WEATHER_ARGUMENTS = {"city": "Paris"}


def tone(phrase_level: int, seconds: float, rate: int = LISTEN_RATE) -> Pcm:
    """Speech of the phrase with that level: int16, shape ``(seconds * rate,)``."""
    return np.full(round(seconds * rate), phrase_level, dtype=np.int16)


def silence(seconds: float, rate: int = LISTEN_RATE) -> Pcm:
    return np.zeros(round(seconds * rate), dtype=np.int16)


SAY_TIME, SAY_STORY, SAY_WAIT = (tone(level, 0.5) for level in (2000, 6000, 8000))
"""At 16 kHz."""


def heard_phrase(pcm: Pcm) -> str:
    """The phrase of the tone in ``pcm``; empty for a cough."""
    loud = np.abs(pcm.astype(int))
    loud = loud[loud > 1000]
    level = int(np.median(loud)) if len(loud) else 0
    nearest = min((*LEVELS, COUGH_LEVEL), key=lambda each: abs(each - level))
    return LEVELS.get(nearest, "")


def think(
    messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice
) -> Sequence[Delta]:
    """The model of every client test: answers the phrases above and calls ``get_weather``."""
    last = messages[-1]
    if last.role == "tool":
        return words(f"The tool says {spoken_result(last.content)}.")
    asked = last.content.lower()
    if "wait" in asked:
        return words(CALM)
    # Some frameworks put a prefix in front of the tool's name.
    weather = [tool.name for tool in tools if tool.name.endswith("get_weather")]
    if "weather" in asked and weather:
        return [ToolCall(weather[0], json.dumps(WEATHER_ARGUMENTS))]
    if "time" in asked:
        return words(NOON)
    if "story" in asked:
        return words(TALE)
    return words("Hello.")


def words(text: str) -> list[Delta]:
    """One delta per word, with the space after it."""
    return [TextDelta(word) for word in text.replace(" ", " \0").split("\0") if word]


def spoken_result(output: str) -> str:
    """A tool's output in words, whether the client's library sends JSON or text."""
    for mark in '{}":,_':
        output = output.replace(mark, " ")
    return " ".join(output.split())


def brain_llm(brain: Thought = think) -> ScriptedLlm:
    return ScriptedLlm(think=brain, first_s=0.0, per_token_s=0.002)


def noise_tts(seconds_per_word: float = 0.1, rate: int = LISTEN_RATE) -> ScriptedTts:
    return ScriptedTts(0.005, seconds_per_word, rate=rate)


def phrase_cast(llm: ScriptedLlm | None = None, tts: ScriptedTts | None = None) -> Cast:
    """Engines that know the phrases and take every pause for the end of the turn."""
    stt = ScriptedStt(hears=heard_phrase, takes_s=0.01)
    return Cast(stt, llm or brain_llm(), tts or noise_tts(), ScriptedTurn(0.99, takes_s=0.0))


def calling(*answers: Sequence[Delta]) -> Cast:
    """A model that returns these answers in order, then its usual ones."""
    left = list(answers)
    return phrase_cast(brain_llm(lambda *asked: left.pop(0) if left else think(*asked)))
