"""The order of a connection's server events (GA), as a client may rely on it.

``Conversation.follow`` takes one event after the other and fails on the first that breaks a
promise: what is opened is closed exactly once and in order, nothing follows a ``done``, every id is
known, one response at a time plays, and nothing stale follows a barge-in.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

_PARTS = {"audio": ("output_audio", "output_audio_transcript"), "text": ("output_text",)}
"""Which streams a content part has; each ends with its own ``done``."""

_CALLS = ("function_call", "mcp_call")
"""The server executes the second: it is done when its output has come or its response ends."""

_ANY_TIME = frozenset({"session.updated", "error", "rate_limits.updated"})
"""Answers to the client, which may come between any two events."""


@dataclass
class Part:
    """An open content part and its deltas so far."""

    kind: str
    said: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)


@dataclass
class Output:
    """One item of a response."""

    item: Event
    index: int
    part: Part | None = None
    parts_closed: int = 0
    arguments: str = ""
    arguments_done: bool = False
    in_conversation: str = ""
    """The last of ``added`` and ``done`` that the conversation sent."""
    done: Event | None = None


@dataclass
class Response:
    id: str
    in_conversation: bool
    format: str
    heard_before: tuple[str, ...]
    """User items that were committed before it."""
    revoked: bool = False
    """After a barge-in only closing events may follow."""
    outputs: list[Output] = field(default_factory=list)

    def output(self, item_id: str) -> Output:
        found = [output for output in self.outputs if output.item["id"] == item_id]
        assert found, f"{item_id} is no item of {self.id}"
        assert found[0].done is None, f"{item_id} of {self.id} is over"
        return found[0]


class Conversation:
    """``whole`` False: part of the conversation is made up, so an id may appear in no event."""

    def __init__(self, *, whole: bool = True) -> None:
        self._whole = whole
        self._session: Event | None = None
        self._active: dict[str, Response] = {}
        self._over: set[str] = set()
        self._outputs: set[str] = set()
        """Ids of all items that responses ever began."""
        self._items: list[str] = []
        self._item_open: set[str] = set()
        self._deleted: set[str] = set()
        self._speech: str | None = None
        self._speeches: set[str] = set()
        self._committed: dict[str, str] = {}
        """Items of user speech, each with its transcript "wanted", "running" or "over"."""
        self._expected: list[tuple[str, str]] = []
        """Events that must come next, with their item's id."""

    def follow(self, event: Event) -> None:
        kind: str = event["type"]
        if self._session is None:
            assert kind in ("session.created", "error"), f"{kind} before session.created"
        if self._expected and kind not in _ANY_TIME:
            self._follow_expected(event)
        if kind.startswith("session."):
            self._follow_session(event)
        elif kind.startswith("input_audio_buffer."):
            self._follow_input(event)
        elif kind.startswith("conversation.item.input_audio_transcription."):
            self._follow_transcript(event)
        elif kind.startswith("conversation.item."):
            self._follow_item(event)
        elif kind == "response.created":
            self._begin(event["response"])
        elif kind == "response.done":
            self._end(event["response"])
        elif kind.startswith("response.mcp_call."):
            assert event["item_id"] in self._outputs, f"{event['item_id']} was not begun"
        elif kind.startswith("response."):
            self._follow_response(event)

    def finish(self) -> None:
        """Fail if anything is still open."""
        assert not self._active, f"responses without response.done: {list(self._active)}"
        assert not self._item_open, f"items added and never done: {self._item_open}"
        assert self._speech is None, f"speech_started without speech_stopped: {self._speech}"
        assert not self._expected, f"missing: {self._expected}"

    def _follow_expected(self, event: Event) -> None:
        kind, item_id = self._expected.pop(0)
        assert event["type"] == kind, f"{event['type']} where {kind} of {item_id} belongs"
        assert event["item"]["id"] == item_id

    # --- session and input -------------------------------------------------------------------

    def _follow_session(self, event: Event) -> None:
        first = self._session is None
        assert first == (event["type"] == "session.created"), event["type"]
        self._session = event["session"]

    @property
    def _input(self) -> Event:
        assert self._session
        settings: Event = self._session["audio"]["input"]
        return settings

    @property
    def _interrupts(self) -> bool:
        detection = self._input["turn_detection"]
        return detection is not None and detection.get("interrupt_response") is True

    def _follow_input(self, event: Event) -> None:
        match event["type"].removeprefix("input_audio_buffer."):
            case "speech_started":
                assert self._speech is None, f"{self._speech} is still open"
                self._speech = event["item_id"]
                self._speeches.add(event["item_id"])
                if self._interrupts:
                    for response in self._active.values():
                        response.revoked = response.in_conversation
            case "speech_stopped":
                assert self._speech == event["item_id"], f"no speech {event['item_id']} is open"
                self._speech = None
            case "committed":
                item_id = event["item_id"]
                assert item_id not in self._committed, f"{item_id} was committed before"
                assert item_id != self._speech, f"{item_id} was committed before speech_stopped"
                self._committed[item_id] = "wanted" if self._input["transcription"] else "over"
                self._expected = [
                    ("conversation.item.added", item_id),
                    ("conversation.item.done", item_id),
                ]

    def _follow_transcript(self, event: Event) -> None:
        item_id, kind = event["item_id"], event["type"].rsplit(".", 1)[1]
        state = self._committed.get(item_id)
        known = item_id in self._items or item_id in self._deleted
        if kind == "delta" and not known:
            assert self._speech or not self._whole, f"a transcript of {item_id}, which nobody says"
            return
        assert known or not self._whole, f"a transcript of {item_id}, which is no item"
        assert state != "done" or not self._whole, f"{event['type']} of {item_id} after its end"
        self._committed[item_id] = "running" if kind == "delta" else "done"

    # --- items -------------------------------------------------------------------------------

    def _follow_item(self, event: Event) -> None:
        kind = event["type"].removeprefix("conversation.item.")
        item_id = event["item"]["id"] if "item" in event else event["item_id"]
        match kind:
            case "added":
                if not self._whole and item_id in self._items:
                    self._items.remove(item_id)
                assert item_id not in self._items, f"{item_id} is there already"
                spoken = item_id in self._speeches and self._whole
                assert not spoken or item_id in self._committed, f"{item_id} was not committed"
                self._place(item_id, event["previous_item_id"])
                self._item_open.add(item_id)
                self._tell_response(item_id, "added")
            case "done":
                opened = item_id in self._item_open or not self._whole
                assert opened, f"{item_id} was not added, or is done"
                self._item_open.discard(item_id)
                assert event["item"].get("status") != "in_progress"
                self._tell_response(item_id, "done")
            case "deleted":
                self._require_item(item_id)
                self._items.remove(item_id)
                self._deleted.add(item_id)
            case "truncated" | "retrieved":
                self._require_item(item_id)

    def _require_item(self, item_id: str) -> None:
        if not self._whole and item_id not in self._items:
            self._items.append(item_id)
        assert item_id in self._items, f"{item_id} is no item"

    def _place(self, item_id: str, previous: str | None) -> None:
        if previous is not None:
            self._require_item(previous)
        at = 0 if previous is None else self._items.index(previous) + 1
        self._items.insert(at, item_id)

    def _tell_response(self, item_id: str, told: str) -> None:
        for response in self._active.values():
            for output in response.outputs:
                if output.item["id"] == item_id:
                    assert response.in_conversation, f"{item_id} is out of band"
                    self._require_closed(output, told)
                    output.in_conversation = told

    def _require_closed(self, output: Output, told: str) -> None:
        opened = output.part is not None or output.parts_closed or output.arguments_done
        if told == "added":
            assert not opened, "item.added comes before the item's content"
        else:
            assert output.part is None, "item.done comes after the end of its parts"

    # --- responses ---------------------------------------------------------------------------

    def _begin(self, shown: Event) -> None:
        in_conversation = shown["conversation_id"] is not None
        assert shown["id"] not in self._active, f"{shown['id']} was created twice"
        assert shown["id"] not in self._over, f"{shown['id']} comes back"
        assert shown["status"] == "in_progress"
        assert shown["output"] == []
        if in_conversation:
            others = [other.id for other in self._active.values() if other.in_conversation]
            assert not others, f"{others} owns the speaker when {shown['id']} begins"
        output = shown["audio"]["output"]
        self._active[shown["id"]] = Response(
            shown["id"], in_conversation, output["format"]["type"], tuple(self._committed)
        )

    def _end(self, shown: Event) -> None:
        response = self._active.pop(shown["id"], None)
        assert response, f"{shown['id']} is not running"
        self._over.add(response.id)
        assert shown["status"] != "in_progress"
        for output in response.outputs:
            assert output.done, f"{output.item['id']} was not closed before response.done"
        if self._whole:
            assert shown["output"] == [output.done for output in response.outputs]
        assert shown["usage"] is not None
        if response.revoked:
            assert shown["status"] != "completed" or shown["output"] == [], "it was interrupted"

    def _follow_response(self, event: Event) -> None:
        response = self._active.get(event["response_id"])
        assert response, f"{event['type']} of {event['response_id']}, which is not running"
        subject, _, verb = event["type"].removeprefix("response.").rpartition(".")
        if response.revoked:
            assert verb == "done", f"{event['type']} after the user began to speak"
        if subject == "output_item":
            self._follow_output(response, event, verb)
            return
        output = response.output(event["item_id"])
        assert event["output_index"] == output.index
        if subject == "content_part":
            _follow_part(output, event, verb)
        elif subject in ("function_call_arguments", "mcp_call_arguments"):
            self._follow_arguments(response, output, event, verb)
        else:
            _follow_stream(response, output, event, subject, verb)

    def _follow_output(self, response: Response, event: Event, verb: str) -> None:
        item = event["item"]
        if verb == "added":
            assert item["id"] not in self._outputs, f"{item['id']} was begun before"
            assert event["output_index"] == len(response.outputs)
            ahead = item["type"] in _CALLS  # for speech that is still being paced out
            open_ones = [each for each in response.outputs if not each.done]
            over = all(each.item["type"] == "mcp_call" for each in open_ones)
            assert ahead or over, "one after the other"
            self._outputs.add(item["id"])
            assert item.get("status") in ("in_progress", None)
            response.outputs.append(Output(item, event["output_index"]))
            if response.in_conversation:
                self._expected = [("conversation.item.added", item["id"])]
            return
        output = response.output(item["id"])
        assert event["output_index"] == output.index
        assert output.part is None, f"a part of {item['id']} is still open"
        assert item.get("status") != "in_progress"
        assert item["type"] == output.item["type"]
        if item["type"] in _CALLS:
            assert output.arguments_done, f"{item['id']} ends without its arguments"
        else:
            assert output.parts_closed, f"{item['id']} ends without content"
        unsettled = item["type"] == "mcp_call" and item["output"] is item["error"] is None
        if response.in_conversation and not unsettled:
            assert output.in_conversation == "done", "output_item.done follows item.done"
        output.done = item

    def _follow_arguments(
        self, response: Response, output: Output, event: Event, verb: str
    ) -> None:
        assert output.item["type"] in _CALLS
        assert not output.arguments_done, "the arguments were done"
        assert event.get("call_id") == output.item.get("call_id")
        unheard = [
            item_id
            for item_id in response.heard_before
            if self._committed[item_id] in ("wanted", "running")
        ]
        assert not unheard, f"a tool call before the transcript of {unheard}"
        if verb == "delta":
            output.arguments += event["delta"]
            return
        assert event.get("name", output.item["name"]) == output.item["name"]
        assert output.arguments in ("", event["arguments"]), "the deltas said something else"
        output.arguments_done = True


def _follow_part(output: Output, event: Event, verb: str) -> None:
    shown = event["part"]
    if verb == "added":
        assert output.part is None, "one part after the other"
        assert event["content_index"] == output.parts_closed
        output.part = Part(shown["type"], dict.fromkeys(_PARTS[shown["type"]], ""))
        return
    part = output.part
    assert part, "no part is open"
    assert part.kind == shown["type"]
    assert part.closed == set(part.said), f"{set(part.said) - part.closed} is still open"
    said = part.said["output_text" if part.kind == "text" else "output_audio_transcript"]
    assert shown["text" if part.kind == "text" else "transcript"] == said
    output.part = None
    output.parts_closed += 1


def _follow_stream(
    response: Response, output: Output, event: Event, subject: str, verb: str
) -> None:
    part = output.part
    assert part, f"{event['type']} outside a part"
    assert subject in part.said, f"{event['type']} in a part of {part.kind}"
    assert subject not in part.closed, f"{event['type']} after its end"
    assert event["content_index"] == output.parts_closed
    if verb == "done":
        part.closed.add(subject)
        text = event.get("text", event.get("transcript"))
        assert text in (None, part.said[subject]), "the deltas said something else"
    elif subject == "output_audio":
        audio = base64.b64decode(event["delta"], validate=True)
        assert audio, "an empty delta"
        assert response.format != "audio/pcm" or len(audio) % 2 == 0, "half a sample"
    else:
        assert event["delta"], "an empty delta"
        part.said[subject] += event["delta"]
