"""A test kit for your own engines and clients (docs/contributing.md has a first scene).

- A scene is a real session in virtual time: ``play`` it from a list of acts, or open it with
  ``scene`` and act step by step. Its ``events`` and properties hold what it published. ``say`` is
  only noise; a recogniser with a ``Tape`` hears the words that you ``speak``.
- ``ScriptedStt``, ``ScriptedLlm``, ``ScriptedTts``, ``ScriptedTurn`` and ``ScriptedSpeaker`` (with
  ``people``) stand in for engines; ``stage`` wraps a real one for a scene.
- ``in_virtual_time`` and ``run_virtual`` run any coroutine on a clock that jumps.
- ``reachy_voice.engines.faults`` checks that an engine keeps its contract, like
  ``reachy-voice engines check``.
"""

from pipeline import commands, events
from pipeline.settings import SessionSettings
from reachy_voice.testing.blocking import stage
from reachy_voice.testing.engines import (
    GREETING,
    Answer,
    Cast,
    LevelVad,
    Noise,
    ScriptedConversation,
    ScriptedLlm,
    ScriptedSpeaker,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    ScriptedUtterance,
    Thought,
    people,
)
from reachy_voice.testing.jobs import ScriptedEngine
from reachy_voice.testing.scene import (
    AT_ONCE,
    PUSH_TO_TALK,
    SPEECH_LEVEL,
    VOICE,
    Act,
    Scene,
    play,
    say,
    scene,
    silence,
    speak,
    text_item,
    wait,
    write,
)
from reachy_voice.testing.tape import Tape
from reachy_voice.testing.virtual_time import VirtualLoop, in_virtual_time, run_virtual

__all__ = [
    "AT_ONCE",
    "GREETING",
    "PUSH_TO_TALK",
    "SPEECH_LEVEL",
    "VOICE",
    "Act",
    "Answer",
    "Cast",
    "LevelVad",
    "Noise",
    "Scene",
    "ScriptedConversation",
    "ScriptedEngine",
    "ScriptedLlm",
    "ScriptedSpeaker",
    "ScriptedStt",
    "ScriptedTts",
    "ScriptedTurn",
    "ScriptedUtterance",
    "SessionSettings",
    "Tape",
    "Thought",
    "VirtualLoop",
    "commands",
    "events",
    "in_virtual_time",
    "people",
    "play",
    "run_virtual",
    "say",
    "scene",
    "silence",
    "speak",
    "stage",
    "text_item",
    "wait",
    "write",
]
