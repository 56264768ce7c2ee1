"""Tells ``TurnMachine`` what happens: what is heard, and what the client wants."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.audio import EMPTY, Pcm, samples_of
from pipeline.context import SessionContext
from pipeline.conversation.transcribing import Transcriber
from pipeline.conversation.warm_up import WarmUp
from pipeline.echo.path import NOTHING_KNOWN, Playback
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart
from pipeline.speaking.replies import Replies
from pipeline.turn_taking.attempts import Attempts
from pipeline.turn_taking.overlaps import Overlaps, Suspicion
from pipeline.turn_taking.speech_events import SpeechEvents
from pipeline.turn_taking.turn_facts import (
    ClientRequest,
    Configuration,
    Onset,
    Resumption,
    SpeechProgress,
)
from pipeline.turn_taking.turn_runner import TurnRunner
from pipeline.turn_taking.utterance import TurnUtterance
from pipeline.waking.waking import Waking


class Turns:
    """The turns of one session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        directions: Directions,
        replies: Replies,
        transcriber: Transcriber,
        warm_up: WarmUp,
        waking: Waking | None = None,
    ) -> None:
        """``waking``: for a robot that sleeps when nobody needs it."""
        self._context = context
        self._listener = listener
        self._waking = waking
        self._hear = waking.hear if waking else listener.hear
        self._overlaps = overlaps = Overlaps(context, listener, directions, replies)
        self._suspicion = Suspicion(overlaps)
        attempts = Attempts(context, listener, overlaps, replies, warm_up, waking)
        self._runner = TurnRunner(
            context,
            listener,
            SpeechEvents(context, listener, directions),
            overlaps,
            attempts,
            replies,
            transcriber,
        )

    @property
    def open(self) -> bool:
        """Whether the end of a turn has not been heard."""
        return self._runner.open is not None

    @property
    def busy(self) -> bool:
        """Whether a turn is open, waits to be committed, or is being committed."""
        return self._runner.busy

    @property
    def asleep(self) -> bool:
        """Whether only a call or a touch is noticed."""
        return self._waking is not None and self._waking.asleep

    @property
    def awaits_sound(self) -> bool:
        """Whether the next sound decides if this is speech, or a call of the robot."""
        awaits_call = self._waking is not None and self._waking.awaits_call
        return self._suspicion.is_held or self._listener.undecided or awaits_call

    # -- what is heard

    async def hear(self, pcm: Pcm, playback: Playback = NOTHING_KNOWN) -> None:
        """Take samples at ``LISTEN_RATE``, and what the loudspeaker played meanwhile."""
        async for signals in self._hear(pcm, playback):
            self._follow(signals)
            utterance = self._runner.open
            if utterance is None:
                self._suspicion.follow(self._listener.suspects and not self.asleep)
            elif utterance.turn.state.speaks:
                self._runner.feed(utterance, self._listener.kept_to)
                progress = SpeechProgress(self._listener.heard_end, utterance.is_reading)
                self._runner.tell(progress)

    def _follow(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            match signal:
                case TurnStart(start):
                    self._begin(start)
                case TurnResume(start, within_word, others_to):
                    if utterance := self._runner.open:
                        utterance.fed_to = max(utterance.fed_to, others_to)
                    end = self._listener.heard_end
                    self._runner.tell(Resumption(start, end, within_word))
                case TurnPause() | TurnEnd():
                    self._runner.tell(signal)

    def _begin(self, at: int) -> None:
        """Speech has lasted long enough to be a turn. If it will be reviewed, it holds the answer
        itself before the suspicion is released, so there is no gap."""
        padding = samples_of(self._context.endpointing.prefix_padding_ms)
        effect = self._overlaps.at_onset()
        if effect != "review":
            self._suspicion.release()
        self._runner.tell(Onset(self._context.new_id("item"), at, padding, effect))
        self._suspicion.release()

    def follow_call(self, signals: Sequence[Signal], floor: int) -> None:
        """The robot has been called in its sleep. ``signals``: those of the speech so far, of which
        nothing before sample ``floor`` counts."""
        self._runner.tell(ClientRequest("clear", floor))
        self._follow(signals)

    def _forget_utterances(self) -> None:
        if self._waking:
            self._waking.forget()

    # -- what the client wants

    def reconfigure(self) -> None:
        """Follow the session's new settings: open turns may lose their answer, not gain one."""
        self._runner.tell(Configuration(self._context.config.answers_turns))

    def take_overlap_as_turn(self) -> None:
        """Answer the speech under way, even if it overlaps an answer."""
        self._runner.tell(ClientRequest("cancel"))

    def take(self) -> TurnUtterance | None:
        """The client ends the turn itself: hand over the open one with all its audio fed."""
        doubtful = self._listener.admit()
        self._follow([] if self.asleep else doubtful)
        self._forget_utterances()
        utterance, heard_end = self._runner.open, self._listener.heard_end
        if utterance and utterance.turn.state.speaks:
            utterance.segment = self._overlaps.segment(utterance, heard_end)
        self._listener.end_turn()
        self._suspicion.release()
        if utterance:
            self._runner.feed(utterance, heard_end)
        self._runner.tell(ClientRequest("commit", heard_end))
        return utterance

    @property
    def has_ended(self) -> bool:
        """Whether a turn has ended that is not committed yet and interrupts no answer."""
        return any(not each.turn.state.overlaps for each in self._runner.ended)

    def take_ended(self) -> list[TurnUtterance]:
        """Hand over turns that have ended but are not committed yet, oldest first."""
        ended = self._runner.ended
        self._runner.tell(ClientRequest("commit ended"))
        return ended

    def drop(self) -> Pcm:
        """Forget the open turn; none of it is committed or becomes a later turn's padding. Returns
        its audio."""
        said = EMPTY
        if utterance := self._runner.open:
            self._runner.feed(utterance, self._listener.heard_end)
            said = utterance.recognition.audio.pcm
        self._forget_utterances()
        self._suspicion.release()
        self._runner.drop_open()
        return said

    def drop_ended(self) -> None:
        """Forget turns that have ended but are not committed yet."""
        self._runner.tell(ClientRequest("clear ended"))
