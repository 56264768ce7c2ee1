"""Conversations and their outcome as tables, to the millisecond.

A client plays the acts of a scene on the real protocol and session, over scripted engines, in
virtual time; a table has one line for each outcome. Every server event is checked by
``tests/support/conformance.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pipeline import events
from pipeline.bus import Published
from pipeline.commands import TurnDetection
from pipeline.events import Event
from pipeline.settings import Endpointing, SessionSettings
from reachy_voice.testing import (
    VOICE,
    Act,
    Cast,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    Tape,
    run_virtual,
)
from tests.support.wired import Message, Wired, wired

E = TypeVar("E")

FRAME_MS = 32
"""A window of the voice activity detector."""

_FORMAT = {"type": "audio/pcm", "rate": 16_000}
_SESSION: dict[str, Any] = {
    "type": "realtime",
    "audio": {
        "input": {"format": _FORMAT, "transcription": {"model": "whisper-1"}},
        "output": {"format": _FORMAT},
    },
}

TIME = "What time is it?"
LAST_MS = 560
"""From the first sound of "I am here." (600 ms) to its last piece (20 ms), 40 ms ahead of the
player."""
ASIDES = ("judged", "voices", "committed")
"""Lines that a table has only on request."""


# --- engines -----------------------------------------------------------------------------------

STT_S, TURN_S, READ_S, TOKEN_S, SOUND_S = 0.061, 0.051, 0.041, 0.101, 0.081
"""A transcript, the turn detector, a prefilled prompt, a first token, a first sound. Chosen so that
nothing falls on the border of a 32 ms window, where the order would be arbitrary."""

instinct = partial(ScriptedTurn, takes_s=TURN_S)
voice = partial(ScriptedTts, first_s=SOUND_S, seconds_per_word=0.2, per_word_s=0.0)


def ears(**changes: Any) -> ScriptedStt:
    return ScriptedStt(**{"takes_s": STT_S, "tape": Tape(), **changes})


def brain(*, read_s: float = READ_S, first_s: float = TOKEN_S, **changes: Any) -> ScriptedLlm:
    changes = {"end_probability": 0.15, "warm_s": first_s / 2, **changes}
    return ScriptedLlm(("I am here. ",), read_s=read_s, first_s=first_s, **changes)


def cast(
    stt: ScriptedStt | None = None,
    llm: ScriptedLlm | None = None,
    tts: ScriptedTts | None = None,
    turn: ScriptedTurn | None = None,
) -> Cast:
    """Engines that hear the words on the tape, with these delays."""
    return Cast(stt or ears(), llm or brain(), tts or voice(), turn or instinct())


def slow_speaker() -> Cast:
    """Engines whose voice takes 1.8 s to say its sentence."""
    return cast(tts=voice(seconds_per_word=0.6))


def hesitant(settings: SessionSettings) -> dict[str, Any]:
    """Options of a scene in which a turn of 1 s ends so late that its reply has long begun."""
    return {
        "config": replace(VOICE, turn_detection=TurnDetection(eagerness="low")),
        "settings": replace(settings, endpointing=Endpointing(mean_pause_ms=3000)),
        "stt": ScriptedStt(("I want the",)),
        "turn": ScriptedTurn(probability=0.02),
    }


# --- what happened -----------------------------------------------------------------------------


class Story:
    """Everything that happened, on the bus and at the engines, as lines of a table."""

    def __init__(self, wire: Wired, engines: Cast) -> None:
        self.wire = wire
        self.engines = engines
        self.lines: list[tuple[int, str]] = []
        self.happened: list[Published] = []
        self._plays_until: dict[str, float] = {}
        self.settings = Endpointing()
        self._open = 0
        """Speech and answers in progress."""
        wire.scene.bus.tap(self._hear)
        for engine in engines.engines:
            engine.listener = self._note

    def events(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.happened if isinstance(event, kind)]

    @property
    def statuses(self) -> list[str]:
        """The final status of each answer."""
        return [event.status for event in self.events(events.ReplyFinished)]

    def prompt(self, number: int = -1) -> list[tuple[str, str]]:
        """Who said what, as the model read it for one answer; without the instructions."""
        messages = self.engines.llm.prompts[number]
        return [(m.role, m.content) for m in messages if m.role != "system"]

    def table(self, *also: str) -> list[str]:
        """Lines such as ``1248 answer begins``; ``also``: which of ``ASIDES``."""
        left_out = tuple(aside for aside in ASIDES if aside not in also)
        return [f"{ms} {line}" for ms, line in self.lines if not line.startswith(left_out)]

    def end_ms(self, turn: int = 0) -> int:
        """When a turn is committed, from the judgements of its last pause: at the first window
        border where the silence is as long as required, or as soon as a judgement requires no more.
        Before the first judgement there are no words to commit."""
        item_id = self.events(events.SpeechStarted)[turn].item_id
        known_ms = silent_ms = 0
        words_ms = None
        wait_ms = self.settings.unsure_wait_ms
        for at, event in self.happened:
            if isinstance(event, events.SpeechPaused) and event.item_id == item_id:
                known_ms = silent_ms = event.audio_ms
                words_ms, wait_ms = None, self.settings.unsure_wait_ms
            if isinstance(event, events.TurnJudged) and event.item_id == item_id:
                judged_ms = round(at * 1000)
                words_ms = words_ms or judged_ms
                if max(known_ms, _border_ms(silent_ms + wait_ms)) <= judged_ms:
                    break
                known_ms, wait_ms = judged_ms, event.wait_ms
        assert words_ms, "nothing was judged"
        return max(words_ms, known_ms, _border_ms(silent_ms + wait_ms))

    async def rest(self) -> None:
        """Be silent until nobody speaks and nothing runs."""
        while True:
            await self.wire.scene.hear(FRAME_MS / 1000)
            assert self.wire.now_ms < 60_000, "it never comes to rest"
            if self._at_rest:
                await self.wire.settle()
                if self._at_rest:
                    return

    @property
    def _at_rest(self) -> bool:
        return self._open == 0 and self.engines.idle

    def _note(self, line: str) -> None:
        self.lines.append((self.wire.now_ms, line))

    def _hear(self, published: Published) -> None:
        self.happened.append(published)
        self._open += isinstance(published.event, events.SpeechStarted | events.ReplyStarted)
        self._open -= isinstance(published.event, events.SpeechStopped | events.ReplyFinished)
        line = self._audio(*published) or _line(published.event)
        if line:
            self._note(line)

    def _audio(self, at: float, event: Event) -> str | None:
        """Note where audio begins, and where the listener has to wait for more."""
        if not isinstance(event, events.ReplyAudio):
            return None
        until = self._plays_until.get(event.reply_id)
        late_s = 0.0 if until is None else at - until
        self._plays_until[event.reply_id] = max(at, until or 0.0) + len(event.pcm) / event.rate
        if until is None:
            return "audio"
        return f"audio after a gap of {round(late_s * 1000)} ms" if late_s > 1e-6 else None


def _line(event: Event) -> str | None:
    match event:
        case events.TurnJudged():
            return f"judged by {', '.join(event.reasons)}"
        case events.TranscriptReady():
            return f"heard {event.text!r}"
        case events.ReplyText():
            return f"says {event.text.strip()!r}"
        case events.ReplyArguments():
            return f"calls with {event.text}"
        case events.ReplyFinished():
            return f"answer {event.status}"
        case events.Refused():
            return f"refused: {event.code}"
    return _PLAIN.get(type(event))


def _border_ms(at_ms: int) -> int:
    """The first window border at or after this time."""
    return -(-at_ms // FRAME_MS) * FRAME_MS


_PLAIN: dict[type[Any], str] = {
    events.SpeechStarted: "user speaks",
    events.SpeechPaused: "user pauses",
    events.SpeechResumed: "user goes on",
    events.SpeechStopped: "user stops",
    events.SpeechRejected: "noise",
    events.InputCommitted: "committed",
    events.TranscriptFailed: "not understood",
    events.SpeculationDiscarded: "thrown away",
    events.ReplyStarted: "answer begins",
    events.IdleTimeout: "idle",
    events.ItemDeleted: "item deleted",
}


def lines(text: str) -> list[str]:
    """The lines of an expected table in order of time, with white space normalised."""
    rows = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return sorted(rows, key=lambda row: int(row.split()[0]))


# --- playing -----------------------------------------------------------------------------------


@asynccontextmanager
async def told(
    engines: Cast,
    *,
    settings: SessionSettings | None = None,
    session: dict[str, Any] | None = None,
) -> AsyncIterator[Story]:
    """A connection at 16 kHz both ways, at whose end everything must be closed. ``session``: more
    fields for its ``session.update``."""
    async with wired(engines, settings=settings) as wire:
        story = Story(wire, engines)
        await wire.send("session.update", session=_SESSION)
        if session:
            await wire.send("session.update", session={"type": "realtime", **session})
        await wire.settle()
        yield story
    for engine in engines.engines:
        assert engine.running == 0, f"{type(engine).__name__} still works"
        assert engine.opened == 0, f"something is still open at {type(engine).__name__}"


def perform(
    *acts: Act | Message,
    engines: Cast | None = None,
    settings: SessionSettings | None = None,
    session: dict[str, Any] | None = None,
) -> Story:
    """Play these acts, and then silence until all is at rest."""
    engines = engines or cast()

    async def main() -> Story:
        async with told(engines, settings=settings, session=session) as story:
            await story.wire.act(*acts)
            await story.rest()
            story.wire.recorder.finish()
            require_asked(story)
        return story

    story: Story = run_virtual(main())
    return story


def sure_of_more(*texts: str) -> Cast:
    """Engines that judge these words unfinished, by sound and by meaning."""
    engines = cast()
    for text in texts:
        engines.turn.probabilities[text] = 0.05
        engines.llm.end_probabilities[text] = 0.00001
    return engines


# --- what always holds -------------------------------------------------------------------------


def require_asked(story: Story) -> None:
    """Check that a committed turn, the client or a long silence caused every visible answer, at
    most one each; so no reply behind its gate was visible. An answer that noise may have cut off is
    given again, once for each start of speech."""
    asked = 0
    again = False
    for event in story.wire.sent_and_received():
        if event["type"] in ("input_audio_buffer.committed", "response.create"):
            asked += 1
        if event["type"] == "input_audio_buffer.speech_started":
            again = True
        if event["type"] == "response.created":
            assert asked or again, f"nobody asked for {event['response']['id']}"
            again = again and asked > 0
            asked = max(0, asked - 1)
