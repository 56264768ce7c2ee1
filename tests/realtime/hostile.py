"""Endless hostile client messages, the same for the same seed, each with its expected outcome."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PCM_20_MS = base64.b64encode(bytes(960)).decode()
SPEECH_300_MS = base64.b64encode(b"\x00\x10" * 7_200).decode()
VALID: list[dict[str, Any]] = json.loads(
    """[
{"type": "input_audio_buffer.append", "audio": "PCM"},
{"type": "input_audio_buffer.append", "audio": "SPEECH"},
{"type": "input_audio_buffer.commit"},
{"type": "input_audio_buffer.clear"},
{"type": "conversation.item.delete", "item_id": "item_x"},
{"type": "conversation.item.retrieve", "item_id": "item_x"},
{"type": "conversation.item.truncate", "item_id": "item_x", "content_index": 0,
 "audio_end_ms": 100},
{"type": "response.cancel", "response_id": "resp_x"},
{"type": "response.create"},
{"type": "response.create", "response": {"conversation": "none", "instructions": "Count.",
 "output_modalities": ["text"], "input": [{"type": "message", "role": "user",
 "content": [{"type": "input_text", "text": "1"}]}, {"type": "item_reference", "id": "item_x"}],
 "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "ash"}},
 "tools": [{"type": "function", "name": "wave", "description": "Wave.", "parameters":
 {"type": "object", "properties": {"times": {"type": "integer"}}}}],
 "tool_choice": "auto", "max_output_tokens": 4, "metadata": {"topic": "sums"}}},
{"type": "conversation.item.create", "previous_item_id": "root", "item": {"type": "message",
 "role": "user", "content": [{"type": "input_text", "text": "Hello."},
 {"type": "input_image", "image_url": "PNG", "detail": "low"}]}},
{"type": "conversation.item.create", "item": {"type": "message", "role": "assistant",
 "status": "completed", "content": [{"type": "output_text", "text": "Hi."}]}},
{"type": "conversation.item.create", "item": {"type": "message", "role": "user",
 "content": [{"type": "input_audio", "audio": "PCM", "transcript": "Hi."}]}},
{"type": "conversation.item.create", "item": {"type": "function_call", "name": "wave",
 "call_id": "c", "arguments": "{}"}},
{"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c",
 "output": "done"}},
{"type": "session.update", "session": {"type": "realtime", "model": "any",
 "output_modalities": ["audio"], "instructions": "Be kind.", "max_output_tokens": "inf",
 "tools": [{"type": "function", "name": "wave", "parameters": {"type": "object"}}],
 "tool_choice": {"type": "function", "name": "wave"},
 "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
 "tracing": {"workflow_name": "w"}, "include": ["item.input_audio_transcription.logprobs"],
 "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000},
 "noise_reduction": {"type": "near_field"},
 "transcription": {"model": "whisper-1", "language": "en", "prompt": "p"},
 "turn_detection": {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
 "silence_duration_ms": 500, "idle_timeout_ms": 6000, "create_response": true,
 "interrupt_response": true}}, "output": {"voice": "ash", "speed": 1.0}}}},
{"type": "session.update", "session": {"type": "realtime", "audio": {"input":
 {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}}}},
{"type": "session.update", "session": {"type": "realtime", "audio": {"input":
 {"format": {"type": "audio/pcmu"}}}}}
]""".replace("PCM", PCM_20_MS)
    .replace("SPEECH", SPEECH_300_MS)
    .replace("PNG", "data:image/png;base64,iVBORw0KGgo=")
)
REQUIRED = [
    (message, path)
    for message in VALID
    for path in (("audio",), ("item_id",), ("item",), ("session",), ("session", "type"))
    if path[0] in message
]
WEIRD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**70), 10**400, 0.5, 1e308),
    *("", "x", "\x00", "\u202e \U0001f916 " + chr(0x10FFFF), "y" * 5_000, "audio/pcm"),
    *([], [[]], [None], ["text", "audio"]),
    *({}, {"type": "message"}, {"": ""}, {"a": {"b": {"c": [1]}}}),
)
NOT_JSON = (
    *("NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000, '"\\ud800"', '"\\udc00\\ud800"'),
    *("01", "'x'", "undefined", "//", '"\t"'),
)
"""Input that Python's parser accepts or others write, but that is not valid JSON or text."""
NO_AUDIO = (
    *("A", "AAA", "AA==AA==", "====", "AAAA\n", " AAAA", "AA-_", "\u00c4" * 4),
    "AAA=AAAA" * 20_000,
)


@dataclass(frozen=True, slots=True)
class Attack:
    """One frame."""

    kind: str
    frame: str | bytes
    bad: bool
    """It must give one error; otherwise an error or an effect, not both."""
    event_id: str | None = None
    """The id that an error must name; ``None`` if it may be unreadable."""


class Hostile:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def __iter__(self) -> Iterator[Attack]:
        makers = (self._frame, self._message, self._field, self._field, self._deep)
        while True:
            self._number += 1
            yield self._random.choice(makers)()

    def _frame(self) -> Attack:
        """A frame that is not a JSON object."""
        text, event_id = self._text({**self._valid(), "x": "@"}), None
        kind = self._random.choice(("cut", "noise", "value", "literal", "binary", "empty"))
        noise = "".join(self._random.choices('{}[]",:\\/ u0d8\n\u2028\u00e9trunfalse-1.5e', k=40))
        frame: str | bytes = {
            "cut": text[: self._random.randrange(1, len(text))],
            "noise": "]" + noise,
            "value": json.dumps(self._random.choice([w for w in WEIRD if type(w) is not dict])),
            "literal": text.replace('"@"', self._random.choice(NOT_JSON)),
            "binary": self._random.choice([b"", b"\xff\xfe", self._random.randbytes(64)]),
            "empty": self._random.choice(["", " ", "\n\n"]),
        }[kind]
        return Attack(kind, frame, True, event_id)

    def _message(self) -> Attack:
        """A message that is invalid in any session."""
        kind = self._random.choice(("type", "missing", "audio", "id", "valid"))
        message = {**copy.deepcopy(self._valid()), "event_id": self._event_id}
        match kind:
            case "type":
                names = ("Session.update", "session.created", "__class__", "x" * 100_000)
                message["type"] = self._random.choice((*WEIRD, *names))
            case "missing":
                valid, path = self._random.choice(REQUIRED)
                message = {**copy.deepcopy(valid), "event_id": self._event_id}
                place = message
                for step in path[:-1]:
                    place = place[step]
                del place[path[-1]]
            case "audio":
                audio = self._random.choice((*NO_AUDIO, *(w for w in WEIRD if type(w) is not str)))
                message |= {"type": "input_audio_buffer.append", "audio": audio}
            case "id":
                item_id = "i" * self._random.choice([257, 513, 200_000])
                message |= {"type": "conversation.item.delete", "item_id": item_id}
        return Attack(kind, self._text(message), kind != "valid", self._event_id)

    def _field(self) -> Attack:
        """Change a field's value, add a field, or repeat a key."""
        message = copy.deepcopy(self._valid())
        places = list(_places(message))
        container, key = self._random.choice(places)
        weird = copy.deepcopy(self._random.choice(WEIRD))
        kind = self._random.choice(("spoilt", "spoilt", "added", "twice"))
        if kind == "spoilt":
            container[key] = weird
        elif kind == "added":
            nodes = [message, *(c[k] for c, k in places if isinstance(c[k], dict))]
            name = self._random.choice(["zzz", "", "__proto__", "audio", "type ", "\u00e9" * 300])
            self._random.choice(nodes)[name] = weird
        message["event_id"] = self._event_id
        text = self._text(message)
        if kind == "twice":
            text = f'{{"type":{json.dumps(weird)},{text[1:]}'
        return Attack(kind, text, False, self._event_id)

    def _deep(self) -> Attack:
        depth = self._random.choice([101, 500, 5_000, 50_000])
        opening, closing = self._random.choice([("[", "]"), ('{"a":', "}")])
        text = self._text({**self._valid(), "metadata": "@"})
        return Attack("deep", text.replace('"@"', f"{opening * depth}1{closing * depth}"), True)

    def _valid(self) -> dict[str, Any]:
        return self._random.choice(VALID)

    @property
    def _event_id(self) -> str:
        return f"attack_{self._number}"

    def _text(self, message: Any) -> str:
        return json.dumps(message, ensure_ascii=self._random.random() < 0.5)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in ``value`` with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if type(value) is list else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])
