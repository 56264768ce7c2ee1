"""The client's input audio buffer: what it commits and clears by hand.

With turn detection it is the open turn; without, as in push to talk, everything that the client has
appended.
"""

from __future__ import annotations

import asyncio

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import AppendAudio, CommitAudio
from pipeline.context import SessionContext
from pipeline.conversation.transcribing import Transcriber
from pipeline.hearing.arrivals import PushToTalkBuffer
from pipeline.hearing.listening import Listener
from pipeline.hearing.recognition import recognition_of
from pipeline.speaking.replies import Replies
from pipeline.turn_taking.turns import Turns

MIN_COMMIT_MS = 100
"""The Realtime API refuses to commit less."""
STREAMED_S, LEFT_S = 30.0, 10.0
"""Estimates: how long people hold the button at most, and how long after it a client commits."""


class InputBuffer:
    """The input audio buffer of one session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        turns: Turns,
        transcriber: Transcriber,
        replies: Replies,
    ) -> None:
        self._context = context
        self._listener = listener
        self._turns = turns
        self._transcriber = transcriber
        self._replies = replies
        self._appended = PushToTalkBuffer(context.settings.endpointing.max_utterance_s)
        self._live = False
        """Whether the newest audio came from a track, which never pauses."""
        self._newest_at = 0.0
        """When it came, in the loop's time."""

    @property
    def resting(self) -> bool:
        """Whether nobody is known to be speaking into it. Audio that was left behind does not
        count, nor that of a client which always fills it, on a track or without."""
        samples, now = self._appended.samples, asyncio.get_running_loop().time()
        always = self._live or samples > STREAMED_S * LISTEN_RATE
        return always or not samples or now - self._newest_at > LEFT_S

    def append(self, command: AppendAudio, pcm: Pcm) -> None:
        """Take audio when turn detection is off. ``pcm``: the command's audio at 16 kHz."""
        self._live, self._newest_at = command.live, asyncio.get_running_loop().time()
        if not (self._appended.append(pcm) or command.live):
            text = "The input audio buffer is full, and loses its oldest audio. Commit or clear it."
            self._context.refuse(command.event_id, "input_audio_buffer_full", text)

    def switch(self) -> None:
        """Turn detection is now on or off. If off, what was said of an open turn stays here, and
        the client asks for its answer."""
        is_off = self._context.config.turn_detection is None
        if is_off and self._turns.open:
            self._replies.forget_pending()
        said = self._turns.drop()
        self.clear()
        if is_off:
            self._appended.append(said)

    def clear(self) -> None:
        self._listener.end_of_input()
        self._appended.take()
        self._turns.drop()

    def commit(self, command: CommitAudio) -> None:
        context = self._context
        if context.config.turn_detection is None:
            self._appended.append(self._listener.end_of_input())
        if self._transcriber.busy:
            message = "Too many commits wait to be transcribed; wait for the completed events."
            context.refuse(command.event_id, "input_audio_buffer_commit_busy", message)
            return
        taken, audio_ms = self._turns.take(), self._appended.samples * 1000 / LISTEN_RATE
        crosses = self._turns.has_ended and not context.config.answers_turns
        if not (taken or crosses or audio_ms >= MIN_COMMIT_MS):
            message = (
                f"Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {audio_ms:.2f}ms of audio."
            )
            context.refuse(command.event_id, "input_audio_buffer_commit_empty", message)
            return
        for utterance in (*self._turns.take_ended(), *filter(None, [taken])):
            item_id, recognition = utterance.turn.item_id, utterance.recognition
            self._transcriber.commit(item_id, recognition, None, utterance.segment)
        if audio_ms >= MIN_COMMIT_MS:
            recognition = recognition_of(context)
            recognition.append(self._appended.take())
            recognition.begin(context.tasks)
            self._transcriber.commit(context.new_id("item"), recognition)
        self._replies.forget_pending()  # the client asks for answers itself
