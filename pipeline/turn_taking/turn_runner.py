"""Carries out what ``TurnMachine`` decides: turns signals into committed speech, and interrupts
answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from pipeline.audio import EMPTY, Pcm, samples_of
from pipeline.context import SessionContext
from pipeline.conversation.transcribing import Transcriber
from pipeline.conversation.warm_up import WarmUp
from pipeline.echo.path import NOTHING_KNOWN, Playback
from pipeline.engines.contract import Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.direction import Directions
from pipeline.hearing.keywords import keywords_of
from pipeline.hearing.listening import Listener
from pipeline.hearing.plausibility import believed
from pipeline.hearing.recognition import Recognition, StableWords
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart
from pipeline.speaking.hold import Hold
from pipeline.speaking.replies import Replies
from pipeline.turn_taking.attempts import Attempts
from pipeline.turn_taking.overlaps import Overlaps
from pipeline.turn_taking.speech_events import SpeechEvents
from pipeline.turn_taking.turn import Turn
from pipeline.turn_taking.turn_facts import (
    Act,
    Action,
    ClientRequest,
    Conclusion,
    Configuration,
    Do,
    Fact,
    Ignore,
    Mistake,
    NothingLeft,
    Onset,
    Reading,
    Resume,
    Resumption,
    SpeechProgress,
    Start,
    Stop,
)
from pipeline.turn_taking.turn_machine import TurnMachine
from pipeline.turn_taking.utterance import Attempt, TurnSpeech

if TYPE_CHECKING:
    from pipeline.waking.waking import Waking


class TurnRunner:
    """Acts on the signals of one listener. Lives in the session's TaskGroup."""

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
        self._tasks = context.tasks
        self._listener = listener
        self._waking = waking
        self._hear = waking.hear if waking else listener.hear
        self._replies = replies
        self._transcriber = transcriber
        self._warm_up = warm_up
        self._machine = TurnMachine(context.settings.barge_in, context.config.answers_turns)
        self._overlaps = Overlaps(context, listener, replies)
        self._events = SpeechEvents(context, listener, directions)
        self._attempts = Attempts(context, listener, directions, replies, warm_up)
        self._utterances: dict[Turn, TurnSpeech] = {}
        self._suspicion: Hold | None = None
        """Holds the answer while the newest sound may be speech."""

    @property
    def open(self) -> bool:
        """Whether an utterance is open."""
        return self._machine.open is not None

    @property
    def busy(self) -> bool:
        """Whether a turn is open, waits to be committed, or is being committed."""
        return bool(self._utterances)

    @property
    def awaits_sound(self) -> bool:
        """Whether the next sound decides if this is speech, or a call of the robot."""
        awaits_call = self._waking is not None and self._waking.awaits_call
        return self._suspicion is not None or self._listener.undecided or awaits_call

    # -- facts

    async def hear(self, pcm: Pcm, playback: Playback = NOTHING_KNOWN) -> None:
        """Take samples at ``LISTEN_RATE``, and what the loudspeaker played meanwhile."""
        async for signals in self._hear(pcm, playback):
            self._follow(signals)
            turn = self._machine.open
            if turn is None:
                self._suspect()
            elif turn.state.speaks:
                utterance = self._utterances[turn]
                self._feed(utterance, self._listener.kept_to)
                self._tell(SpeechProgress(self._listener.heard_end, utterance.is_reading))

    def _follow(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            match signal:
                case TurnStart(start):
                    self._tell(self._onset(start))
                case TurnResume(start, within_word):
                    self._tell(Resumption(start, self._listener.heard_end, within_word))
                case TurnPause() | TurnEnd():
                    self._tell(signal)

    def follow_call(self, signals: Sequence[Signal], floor: int) -> None:
        """The robot has been called in its sleep. ``signals``: those of the speech so far, of which
        nothing before sample ``floor`` counts."""
        self._tell(ClientRequest("clear", floor))
        self._follow(signals)

    def _onset(self, at: int) -> Onset:
        """Speech has lasted long enough to be a turn. Any speech interrupts an answer that has
        hardly begun, unless an echo is being removed or the answer was cut off once before."""
        context, replies = self._context, self._replies
        item_id = context.new_id("item")
        padding = samples_of(context.endpointing.prefix_padding_ms)
        if not context.config.interruptible:
            return Onset(item_id, at, padding, "no")
        reviews = context.settings.barge_in.policy != "any-speech"
        just_begun = self._listener.cancels_echo or replies.is_retry
        if reviews and replies.audible(just_begun):
            return Onset(item_id, at, padding, "review")
        return Onset(item_id, at, padding, "interrupt" if replies.audible(True) else "no")

    def _suspect(self) -> None:
        """With no turn open, hold the answer as soon as the newest sound may be speech, without
        waiting for the next window."""
        reviews = self._context.settings.barge_in.policy != "any-speech"
        if not (self._listener.suspects and reviews) or self.asleep:
            self._release_suspicion()
        elif not self._suspicion:
            self._suspicion = self._hold()

    @property
    def asleep(self) -> bool:
        """Whether only a call or a touch is noticed."""
        return self._waking is not None and self._waking.asleep

    def _forget_utterances(self) -> None:
        if self._waking:
            self._waking.forget()

    def _hold(self) -> Hold | None:
        """``None`` if there is no answer that speech may interrupt."""
        return self._replies.hold() if self._context.config.interruptible else None

    def _release_suspicion(self) -> None:
        hold, self._suspicion = self._suspicion, None
        if hold:
            hold.release()

    def reconfigure(self) -> None:
        """Follow the session's new settings: open turns may lose their answer, not gain one."""
        self._tell(Configuration(self._context.config.answers_turns))

    def take_overlap_as_turn(self) -> None:
        """Answer the speech under way, even if it overlaps an answer."""
        self._tell(ClientRequest("cancel"))

    def take(self) -> TurnSpeech | None:
        """The client ends the turn itself: hand over the open utterance with all its audio fed."""
        doubtful = self._listener.admit()
        self._follow([] if self.asleep else doubtful)
        self._forget_utterances()
        turn = self._machine.open
        utterance = self._utterances[turn] if turn else None
        if utterance and utterance.turn.state.speaks:
            utterance.segment = self._attempts.segment(utterance, self._listener.heard_end)
        self._listener.forget_turn()
        self._release_suspicion()
        if utterance:
            self._feed(utterance, self._listener.heard_end)
        self._tell(ClientRequest("commit", self._listener.heard_end))
        return utterance

    @property
    def has_ended(self) -> bool:
        """Whether a turn has ended that is not committed yet and interrupts no answer."""
        return any(not turn.state.overlaps for turn in self._machine.ended)

    def take_ended(self) -> list[TurnSpeech]:
        """Hand over turns that have ended but are not committed yet, oldest first."""
        utterances = [self._utterances[turn] for turn in self._machine.ended]
        self._tell(ClientRequest("commit ended"))
        return utterances

    def drop(self) -> Pcm:
        """Forget the open utterance; none of it is committed or becomes a later turn's padding.
        Returns its audio."""
        said = EMPTY
        if self._machine.open:
            utterance = self._utterances[self._machine.open]
            self._feed(utterance, self._listener.heard_end)
            said = utterance.recognition.audio.pcm
        self._forget_utterances()
        self._listener.forget_turn()
        self._release_suspicion()
        self._tell(ClientRequest("clear", self._listener.heard_end))
        return said

    def drop_ended(self) -> None:
        """Forget turns that have ended but are not committed yet."""
        self._tell(ClientRequest("clear ended"))

    # -- actions

    def _tell(self, fact: Fact) -> None:
        for action in self._machine.on(fact):
            self._carry_out(action)
        for turn in self._utterances.keys() - set(self._machine.turns):
            del self._utterances[turn]
        if not self.busy:
            self._warm_up.end_turn()
            self._replies.answer_pending()

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Act):
            if action.do is Do.LISTEN:
                self._listen(action.turn)
            else:
                self._act(action.do, self._utterances[action.turn])
            return
        utterance = self._utterances[action.turn]
        match action:
            case Start(_, why):
                utterance.reading.cancel()
                self._events.start(utterance, why)
            case Resume(turn, at, within_word):
                if not turn.state.overlaps:
                    self._events.resume(turn, at)
                self._attempts.resume(utterance, at, within_word)
            case Stop(turn, stop_reason, at):
                self._events.stop(turn, at, stop_reason)
            case Ignore(_, reason):
                utterance.reading.cancel()
                self._events.ignore(utterance, reason)

    def _act(self, do: Do, utterance: TurnSpeech) -> None:
        turn, attempt = utterance.turn, utterance.attempt
        match do:
            case Do.HOLD:
                before, utterance.hold = utterance.hold, self._hold() or utterance.hold
                if before and before is not utterance.hold:
                    before.release()
            case Do.RELEASE:
                self._release(utterance)
            case Do.READ:
                self._read(utterance)
            case Do.MEASURE:
                text = self._attempts.segment(utterance, self._listener.heard_end).unread
                self._tell(Reading(turn, self._overlaps.verdict(utterance, text), text))
            case Do.INTERRUPT if self._context.config.interruptible:
                utterance.hold, utterance.cut_reply = None, self._replies.interrupt()
            case Do.INTERRUPT:
                self._release(utterance)
            case Do.ATTEMPT:
                self._attempt(utterance)
            case Do.DROP:
                utterance.reading.cancel()
                self._attempts.discard(utterance)
                utterance.recognition.stop()
            case Do.HAND_OVER:
                self._attempts.discard(utterance)
                self._replies.forget_pending()
            case Do.FORGET_SPEAKER:
                self._listener.forget_speaker()
                if not self._machine.turns:  # else a later turn shows the language
                    self._context.heard_language = utterance.language_before
            case Do.REJECT:
                self._events.reject(utterance)
            case _ if attempt:
                self._settle(do, utterance, attempt)

    def _settle(self, do: Do, utterance: TurnSpeech, attempt: Attempt) -> None:
        """Actions that end a turn after a pause."""
        match do:
            case Do.CONCLUDE:
                attempt.news.set()
            case Do.COMMIT:
                if attempt.speculative:
                    attempt.speculative.speech.committed = True
                item_id = utterance.turn.item_id
                self._transcriber.commit(item_id, utterance.recognition, attempt.words)
            case Do.ANSWER:
                if not self._replies.fits(attempt.reply):
                    self._attempts.discard_answer(attempt)
                work, since = attempt.work, attempt.paused_at
                self._replies.answer(attempt.reply, work, since, attempt.error)
            case Do.ANSWER_LATER:
                self._attempts.discard_answer(attempt)
                self._replies.answer_later(attempt.paused_at)
            case Do.DISCARD_ANSWER:
                self._attempts.discard_answer(attempt)
            case Do.CONTINUE:
                if (cut := utterance.cut_reply) and self._replies.resume(cut, attempt.paused_at):
                    self._attempts.discard_answer(attempt)
                else:
                    self._tell(NothingLeft(utterance.turn))

    def _listen(self, turn: Turn) -> None:
        def on_words(words: str, stable: StableWords) -> None:
            if turn.state.overlaps:
                utterance.unpublished_words += words
                return
            self._events.words(turn, words)
            if turn is self._machine.open:
                self._attempts.hear_words(utterance, words, stable)

        context = self._context
        wants_words = self._events.partials or self._attempts.wants_partials
        recognition = Recognition(
            context.stages,
            context.config.language,
            keywords_of(context),
            on_words if wants_words else None,
        ).begin(self._tasks)
        hold, self._suspicion = self._suspicion, None
        utterance = self._utterances[turn] = TurnSpeech(
            turn, recognition, turn.start, context.heard_language, hold=hold
        )

    def _release(self, utterance: TurnSpeech) -> None:
        hold, utterance.hold = utterance.hold, None
        if hold:
            hold.release()

    def _read(self, utterance: TurnSpeech) -> None:
        if self._listener.hears_the_answer():
            self.drop()
        else:
            utterance.is_reading = True
            self._tasks.create_task(self._read_words(utterance))

    async def _read_words(self, utterance: TurnSpeech) -> None:
        segment = self._attempts.segment(utterance, self._listener.heard_end)
        text = segment.unread
        with suppress(ReachyVoiceError):  # then its length decides
            transcript = await utterance.recognition.transcript(utterance.reading)
            text = believed(self._context, transcript, segment).text
        utterance.is_reading = False
        if utterance.turn.state.speaks and not utterance.reading.cancelled:
            self._tell(Reading(utterance.turn, self._overlaps.verdict(utterance, text), text))

    def _attempt(self, utterance: TurnSpeech) -> None:
        turn = utterance.turn
        if not turn.state.overlaps:
            self._events.pause(turn)
        self._feed(utterance, turn.end)
        before = self._utterances[self._machine.ended[-1]] if self._machine.ended else None
        attempt = self._attempts.begin(utterance)
        task = before.attempt.task if before and before.attempt else None
        attempt.task = self._tasks.create_task(self._follow_pause(utterance, attempt, task))

    async def _follow_pause(
        self, utterance: TurnSpeech, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> None:
        """From the first silent frames to the commit; cancelled when speech resumes. ``before``:
        the previous turn's task, because turns are committed in order."""
        words = await self._attempts.transcribe(utterance, attempt)
        if before:
            await asyncio.wait({before})
        attempt.words = words
        turn, text = utterance.turn, attempt.text
        self._tell(Reading(turn, self._overlaps.verdict(utterance, text), text))
        if self._overlaps.mistake(utterance, attempt):
            self._tell(Mistake(turn))
        if self._waking and isinstance(words, Transcript) and not turn.state.overlaps:
            cuts = utterance.cut_reply is not None
            attempt.words = self._waking.aside(words, turn.onset, turn.speech_end, cuts)
            text = attempt.text
            if attempt.invented == "farewell":
                self._replies.forget_pending()  # what it interrupts is not given again
        async with aclosing(self._attempts.decisions(utterance, attempt)) as decisions:
            async for decision in decisions:
                if turn is self._machine.open:
                    self._follow(self._listener.judge(decision.wait_ms))
        utterance.recognition.stop()
        verdict = self._overlaps.verdict(utterance, text)
        self._tell(Conclusion(turn, text, verdict, attempt.invented))
        self._attempts.book_use(turn, attempt)
        if self._waking:
            self._waking.obey(attempt.invented)

    def _feed(self, utterance: TurnSpeech, end: int) -> None:
        """Feed the recogniser up to ``end``; once speech resumed, without the assumed silence."""
        speaks, start = utterance.turn.state.speaks, utterance.fed_to
        pcm = (self._listener.read_sent if speaks else self._listener.read)(start, end)
        if len(pcm):
            utterance.recognition.append(pcm)
        utterance.fed_to = max(start, end)
