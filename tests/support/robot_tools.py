"""Seventeen tools as a robot's conversation app declares them: 10 kB of JSON."""

from __future__ import annotations

from typing import Any

from pipeline.messages import Tool

USUAL_TOOLS = 6
"""The first tool, which the training and benchmark dialogues call."""
_WHEN = (
    "Call it only when the person asks for it, or when it clearly fits what is being said, "
    "and never twice in a row. "
)
_RESULT = (
    "The result says whether the robot did it and, if it did not, what was in its way just then."
)


def robot_tools() -> list[Tool]:
    """The same tools on every call."""
    return [_tool(*row) for row in _TOOLS]


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _number(description: str, low: float, high: float) -> dict[str, Any]:
    return {"type": "number", "description": description, "minimum": low, "maximum": high}


def _one_of(description: str, *values: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "enum": list(values)}


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> Tool:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(name, f"{description} {_WHEN}{_RESULT}", parameters)


_SECONDS = _number("How long it should last, in seconds.", 0.2, 30)
_TOOLS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "move_head",
        "Turn or tilt the robot's head towards one side and keep it there until the next move.",
        {
            "direction": _one_of("Where to look.", "left", "right", "up", "down", "front"),
            "degrees": _number("How far, measured from the middle.", 0, 40),
            "duration": _SECONDS,
        },
        ["direction"],
    ),
    (
        "camera",
        "Take a picture with the camera in the head and answer a question about what it shows.",
        {"question": _text("What to find out from the picture, as one full question.")},
        ["question"],
    ),
    (
        "head_tracking",
        "Follow the face of the person who is speaking with the head, or stop following it.",
        {"enabled": {"type": "boolean", "description": "True to follow, false to stop."}},
        ["enabled"],
    ),
    (
        "dance",
        "Play one of the recorded dances of the library, with sound if the owner allows it.",
        {
            "move": _one_of("Name.", "simple_nod", "side_to_side_sway", "dizzy_spin", "jackson"),
            "repeat": _number("How many times in a row.", 1, 5),
        },
        [],
    ),
    ("stop_dance", "Stop the dance that is playing, and all that are queued behind it.", {}, []),
    (
        "play_emotion",
        "Show a recorded emotion with head, antennas and a short sound.",
        {"emotion": _one_of("Which.", "happy", "sad", "surprised", "curious", "proud", "shy")},
        ["emotion"],
    ),
    ("stop_emotion", "Stop the emotion that is being shown and go back to breathing.", {}, []),
    (
        "do_nothing",
        "Stay still and silent on purpose, for example while the person is thinking.",
        {"reason": _text("Why it is better to do nothing now, in a few words.")},
        [],
    ),
    (
        "set_antennas",
        "Move the two antennas to the given angles; they stay there until the next move.",
        {
            "left": _number("Angle of the left antenna in degrees.", -120, 120),
            "right": _number("Angle of the right antenna in degrees.", -120, 120),
            "duration": _SECONDS,
        },
        ["left", "right"],
    ),
    (
        "turn_body",
        "Turn the whole body on its base, so that the robot faces another part of the room.",
        {"degrees": _number("Positive is to the left.", -160, 160), "duration": _SECONDS},
        ["degrees"],
    ),
    (
        "set_volume",
        "Change how loud the robot speaks from now on.",
        {"percent": _number("0 is silent, 100 as loud as the speaker can.", 0, 100)},
        ["percent"],
    ),
    (
        "set_timer",
        "Start a timer that makes the robot say something when the time is over.",
        {
            "minutes": _number("How long from now.", 0.1, 720),
            "label": _text("What the timer is for, in the person's own words."),
        },
        ["minutes"],
    ),
    (
        "get_weather",
        "Look up the weather forecast for a place and a day from the home's weather station.",
        {
            "place": _text("Town or address; leave it out for the place where the robot is."),
            "day": _one_of("For when.", "now", "today", "tomorrow", "weekend"),
        },
        [],
    ),
    (
        "remember",
        "Keep a fact about the person or the home, so that it is known in later conversations.",
        {
            "fact": _text("One sentence that is understood without this conversation."),
            "about": _text("Name of the person or thing that it is about."),
        },
        ["fact"],
    ),
    (
        "recall",
        "Search the kept facts for something that the person seems to refer to.",
        {"query": _text("A few words that the fact may contain.")},
        ["query"],
    ),
    (
        "switch_light",
        "Switch a lamp in the home on or off, or change its brightness and its colour.",
        {
            "room": _one_of("Which room.", "kitchen", "living room", "bedroom", "hall"),
            "state": _one_of("What to do.", "on", "off"),
            "brightness": _number("In percent.", 1, 100),
            "colour": _text("Name of a colour, or a colour temperature in kelvin."),
        },
        ["room", "state"],
    ),
    (
        "go_to_sleep",
        "Lower the head, fold the antennas and stop listening until somebody wakes the robot.",
        {"minutes": _number("Wake up by itself after so long; 0 is never.", 0, 1440)},
        [],
    ),
]
