"""Whole connections against golden transcripts (``transcripts/*.jsonl``), one for each turn type.

A transcript has JSON lines ``{"from", "at_ms", "message"}``. Its client lines are its script:
``play`` sends them at their times, in virtual time, to the real protocol and session over scripted
engines, and returns the whole transcript, which must be the same. Abbreviated are:

- ids by order of appearance (``item#1``, ``resp#2``); the server's event ids are left out.
- audio by its length: an append of ``<speech 1000 ms>`` or ``<silence 600 ms>`` is that much
  audio, sent in real time in 20 ms pieces; deltas in a row are one line.

Files that begin with ``transcription`` are sessions that only transcribe.

To re-record them after an intended change (for a new one, first write its client lines and, if
needed, a scene below):

    RECORD_TRANSCRIPTS=1 script/test tests/realtime/test_transcripts.py

and read the difference in git before you commit it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.contract import ToolCall
from pipeline.realtime.session_config import SessionDefaults
from reachy_voice.testing import Cast, ScriptedLlm, ScriptedStt, run_virtual
from tests.support.places import ROOT
from tests.support.protocol_client import DEFAULTS
from tests.support.wired import APPEND, Wired, wired

pytestmark = pytest.mark.quick

Line = dict[str, Any]

DIRECTORY = ROOT / "tests" / "transcripts"

_SHORT_AUDIO = re.compile(r"<(speech|silence) (\d+) ms>")
_ID = re.compile(r"\b(item|resp|conv|call|sess)_\d+\b")
_NAME = re.compile(r"\b(item|resp|conv|call|sess)#\d+\b")
_DELTA = "response.output_audio.delta"
_LISTEN_ON_S = 60.0
"""Time after the client's last message for everything to end."""


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def write(path: Path, lines: list[Line]) -> None:
    texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    path.write_text("".join(texts), encoding="utf-8")


async def play(script: list[Line], cast: Cast, defaults: SessionDefaults) -> list[Line]:
    """The transcript of a connection whose client follows the client lines of ``script``."""
    names = _Names()
    async with wired(cast, defaults=defaults) as client:
        for line in script:
            if line["from"] == "client":
                await asyncio.sleep(max(0, line["at_ms"] - client.now_ms) / 1000)
                await client.settle()
                names.learn(client)
                await _send(client, line["message"], names)
        await asyncio.sleep(_LISTEN_ON_S)
        client.recorder.finish()
    lines = [
        {"from": said.by, "at_ms": said.at_ms, "message": json.loads(names.short(said.text))}
        for said in client.log
    ]
    return list(_shortened(lines))


async def _send(client: Wired, message: Line, names: _Names) -> None:
    audio = _SHORT_AUDIO.fullmatch(str(message.get("audio")))
    if message.get("type") != APPEND or audio is None:
        await client.send_text(names.long(json.dumps(message)))
    elif audio[1] == "speech":
        await client.say(int(audio[2]))
    else:
        await client.hear(int(audio[2]))


class _Names:
    """Ids of one connection, numbered as they appear."""

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}
        self._read = 0

    def learn(self, client: Wired) -> None:
        """Name every id seen so far."""
        for said in client.log[self._read :]:
            self.short(said.text)
        self._read = len(client.log)

    def short(self, text: str) -> str:
        return _ID.sub(lambda found: self._name(found[0], found[1]), text)

    def long(self, text: str) -> str:
        ids = {name: given for given, name in self._by_id.items()}
        return _NAME.sub(lambda found: ids.get(found[0], found[0]), text)

    def _name(self, given: str, kind: str) -> str:
        if given not in self._by_id:
            number = sum(name.startswith(kind) for name in self._by_id.values()) + 1
            self._by_id[given] = f"{kind}#{number}"
        return self._by_id[given]


def _shortened(lines: list[Line]) -> Iterator[Line]:
    for item_id, group in groupby(lines, _audio_item):
        run = list(group)
        for line in run:
            _shorten(line)
        if item_id is None:
            yield from run
        else:
            octets = sum(line["message"]["delta"] for line in run)
            run[0]["message"]["delta"] = f"<{len(run)} deltas, {octets} bytes>"
            yield run[0]


def _audio_item(line: Line) -> str | None:
    """The item whose audio a line carries."""
    message = line["message"]
    return str(message["item_id"]) if message.get("type") == _DELTA else None


def _shorten(line: Line) -> None:
    message = line["message"]
    if line["from"] == "server":
        del message["event_id"]
    if message.get("type") == _DELTA:
        message["delta"] = len(base64.b64decode(message["delta"]))
    if message.get("type") == "conversation.item.retrieved":
        for part in message["item"].get("content", ()):
            if part.get("audio"):
                part["audio"] = f"<{len(base64.b64decode(part['audio']))} bytes>"


RECORD = "RECORD_TRANSCRIPTS"

WEATHER = ToolCall("get_weather", '{"city": "Paris"}')

CASTS: dict[str, Callable[[], Cast]] = {
    "function": lambda: Cast(llm=ScriptedLlm(answers=[(WEATHER,), ("It ", "is ", "sunny.")])),
    "speech_and_call": lambda: Cast(llm=ScriptedLlm(answers=[("One ", "moment. ", WEATHER)])),
    "two_calls": lambda: Cast(llm=ScriptedLlm(answers=[(WEATHER, WEATHER)])),
    "noise": lambda: Cast(stt=ScriptedStt(texts=("",))),
}
"""Scenes whose engines do more than greet."""

PATHS = sorted(DIRECTORY.glob("*.jsonl"))


def played(path: Path, script: list[Line]) -> list[Line]:
    cast = CASTS.get(path.stem, Cast)()
    defaults = replace(DEFAULTS, transcription=path.stem.startswith("transcription"))
    lines: list[Line] = run_virtual(play(script, cast, defaults))
    return lines


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_transcript(path: Path) -> None:
    golden = read(path)
    lines = played(path, golden)
    if RECORD in os.environ:
        write(path, lines)
    else:
        assert lines == golden


def test_every_scene_has_its_transcript() -> None:
    assert CASTS.keys() <= {path.stem for path in PATHS}
