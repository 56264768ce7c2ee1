"""The user's spoken turns: turns signals into committed speech, and interrupts answers.

One turn, from top to bottom: ``_open`` when speech begins, ``_weigh`` while it overlaps an answer
(``_interrupt`` or ``_ignore``), ``_pause`` at the first silent frames, ``_resume`` or ``_end``,
``_commit``.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing, suppress

from pipeline.audio import Pcm, ms_of, samples_of
from pipeline.context import SessionContext
from pipeline.conversation.transcribing import Transcriber
from pipeline.conversation.warm_up import WarmUp
from pipeline.engines.contract import Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.events import (
    SpeechIgnored,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    StopReason,
    TranscriptPartial,
)
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Ended, Listener, Paused, Resumed, Signal, Started
from pipeline.hearing.plausibility import believed
from pipeline.hearing.recognition import Recognition, StableWords
from pipeline.speaking.replies import Replies
from pipeline.spoken import speakable
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking.attempts import Attempts, Said
from pipeline.turn_taking.barge_in import Overlap, Verdict, Weighing, ignored, interrupts, judge
from pipeline.turn_taking.user_turn import Attempt, UserTurn


class VoiceTurns:
    """Acts on the signals of one listener. Lives in the session's TaskGroup."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        directions: Directions,
        replies: Replies,
        transcriber: Transcriber,
        warm_up: WarmUp,
    ) -> None:
        self._context = context
        self._bus = context.bus
        self._tasks = context.tasks
        self._barge_in = context.settings.barge_in
        self._listener = listener
        self._directions = directions
        self._replies = replies
        self._transcriber = transcriber
        self._warm_up = warm_up
        self._attempts = Attempts(context, listener, replies, warm_up)
        self._turn: UserTurn | None = None
        self._ending: dict[Attempt, UserTurn] = {}
        """Turns that have ended but are not committed yet, oldest first."""
        self._closed_to = 0
        """Sample index before which no turn may begin."""
        self._suspecting = False

    @property
    def open(self) -> bool:
        """Whether an utterance is open."""
        return self._turn is not None

    @property
    def busy(self) -> bool:
        """Whether an utterance is open, or a turn that has ended waits to be committed."""
        return self._turn is not None or bool(self._ending)

    @property
    def suspecting(self) -> bool:
        """Whether the next sound decides if there is speech, while an answer or a turn waits."""
        return self._suspecting or self._listener.undecided

    def configured(self) -> None:
        """After the client has configured the session: no turn newly gets an answer."""
        last = [self._turn.attempt] if self._turn and self._turn.attempt else []
        for attempt in (*self._ending, *last):
            attempt.wants_reply = attempt.wants_reply and self._context.config.answers_turns

    async def hear(self, pcm: Pcm) -> None:
        """Take samples at ``LISTEN_RATE``."""
        async for signals in self._listener.hear(pcm):
            self._follow(signals)
            if self._turn is None:
                self._suspect()
            elif self._turn.attempt is None:
                self._feed(self._turn, self._listener.kept_to)
                self._look(self._turn)

    def _follow(self, signals: list[Signal]) -> None:
        for signal in signals:
            match signal:
                case Started():
                    self._open(signal)
                case Paused():
                    self._pause(signal)
                case Resumed():
                    self._resume(signal)
                case Ended():
                    self._end(signal)

    # -- speech begins

    def _suspect(self) -> None:
        """With no turn open, hold the answer as soon as the newest sound may be speech, without
        waiting for the next window."""
        suspects = self._listener.suspects and self._barge_in.policy != "any-speech"
        if suspects == self._suspecting:
            return
        self._suspecting = suspects and self._hold()
        if not suspects:
            self._replies.go_on()

    def _hold(self) -> bool:
        """Send no more of the answer. False if there is none that speech may interrupt."""
        return self._context.config.interruptible and self._replies.hold()

    def _open(self, signal: Started) -> None:
        """Speech has lasted long enough to be a turn: published at once, or weighed first. An open
        turn was background, which a nearer speaker shows."""
        if background := self._turn:
            self._closed_to = signal.start
            if self._forget(background):
                self._publish_stopped(background.item_id, signal.start, "spoke again")
                self._bus.publish(SpeechRejected(background.item_id))
        padding = samples_of(self._context.endpointing.prefix_padding_ms)
        start = max(signal.start - padding, self._closed_to, 0)

        def on_words(words: str, known: StableWords) -> None:
            if turn.weighing:
                turn.unpublished_words += words
                return
            if words:
                self._publish_words(turn, words)
            if turn is self._turn:
                self._attempts.hear_words(turn, words, known)

        context = self._context
        wanted = self._partials or self._attempts.wants_partials
        recognition = Recognition(
            context.stages, context.config.language, on_words if wanted else None
        ).begin(self._tasks)
        item_id = context.new_id("item")
        turn = self._turn = UserTurn(item_id, start, start, recognition, signal.start)
        self._suspecting = False
        if self._over_an_answer and self._barge_in.policy != "any-speech":
            self._hold()
            turn.weighing = Weighing(self._barge_in, turn.onset)
        else:
            self._replies.go_on()
            audible = self._context.config.interruptible and self._replies.audible(just_begun=True)
            self._publish_start(turn, "any speech" if audible else None)

    @property
    def _over_an_answer(self) -> bool:
        """Whether an answer is audible over which speech must be weighed. Any speech interrupts an
        answer that has hardly begun, unless an echo is being removed or it is given again."""
        return self._context.config.interruptible and self._replies.audible(
            just_begun=self._listener.hears_itself or self._replies.given_again
        )

    # -- speech over an answer

    def _look(self, turn: UserTurn) -> None:
        """More audio has come; weigh speech over an answer if a look is due."""
        if turn.weighing is None:
            return
        match turn.weighing.heard(self._listener.heard_end):
            case "read the words" if self._listener.hears_the_answer():
                self.drop()
            case "read the words":
                self._tasks.create_task(self._read_and_weigh(turn, turn.weighing))
            case "judge by length":
                self._weigh(turn, None, ended=False)

    async def _read_and_weigh(self, turn: UserTurn, weighing: Weighing) -> None:
        said = None
        segment = self._attempts.segment(turn, self._listener.heard_end)
        with suppress(ReachyVoiceError):  # then its length decides
            found = await turn.recognition.transcript(weighing.work)
            said = believed(self._context, found, segment)
        weighing.looking = False
        if not weighing.work.cancelled and turn.attempt is None:
            self._weigh(turn, said, ended=False)

    def _weigh(self, turn: UserTurn, said: Said | None, *, ended: bool, over: bool = False) -> None:
        """Judge speech over an answer and act on the verdict. ``said``: its words so far, if they
        are known. ``ended``: there is a pause. ``over``: the turn is over, so an unsure verdict
        counts as an interruption."""
        if turn.weighing is None:
            return
        text = said.text if isinstance(said, Transcript) else None
        spoken_to = turn.attempt.speech_end if turn.attempt else self._listener.heard_end
        speech_ms = ms_of(spoken_to - turn.weighing.onset)
        spoken, asks = self._replies.spoken, self._replies.asks
        verdict = self._judge(turn, speech_ms, ended, text, spoken, asks)
        turn.readings += [text] if text else []
        if interrupts(verdict):
            self._interrupt(turn, verdict)
        elif ignored(verdict):
            self._replies.go_on()
            if over:
                invented = said.invented if isinstance(said, Transcript) else None
                self._ignore(turn, text, invented or verdict)
        elif over:
            self._interrupt(turn, "words")

    def _interrupt(self, turn: UserTurn, why: Interruption) -> None:
        """The speech is meant for the robot: publish it from its start and end the answer."""
        if turn.weighing:
            turn.weighing.work.cancel()
            turn.weighing = None
            self._publish_start(turn, why)

    def _publish_start(self, turn: UserTurn, why: Interruption | None) -> None:
        """The user speaks. End replies to the conversation, if the client wants that."""
        before = list(itertools.takewhile(lambda a: a is not turn.attempt, self._ending))
        for attempt in before:
            # Speech still being weighed when the user spoke on belongs to the same thought.
            self._interrupt(self._ending[attempt], "words")
            self._publish_stop(attempt, "spoke again")
        now = asyncio.get_running_loop().time()
        direction_deg = self._directions.now_deg(now)
        self._bus.publish(SpeechStarted(turn.item_id, ms_of(turn.start), direction_deg, why))
        self._publish_words(turn, "")
        if turn.attempt:
            self._publish_pause(turn.item_id, turn.attempt.speech_end)
        if self._context.config.interruptible:
            turn.cut = self._replies.interrupt()
        else:
            self._replies.go_on()  # held before the client changed its mind
        for attempt in before:
            # A turn that still waits for its transcript is answered together with this one.
            attempt.superseded = True

    def _is_false_interruption(self, turn: UserTurn, attempt: Attempt) -> bool:
        """Whether the full transcript would not have justified the interruption that its first
        words caused."""
        if turn.cut is None or attempt.error:
            return False
        speech_ms = ms_of(attempt.speech_end - turn.onset)
        spoken, asks = turn.cut.delivery.spoken_lately, turn.cut.asks
        return ignored(self._judge(turn, speech_ms, True, attempt.said, spoken, asks))

    def _judge(
        self,
        turn: UserTurn,
        speech_ms: int,
        ended: bool,
        text: str | None,
        spoken: str,
        asks: bool,
    ) -> Verdict:
        listener = self._listener
        # A recogniser may write "six" for the answer's 6.
        spoken = f"{spoken} {speakable(spoken, self._context.language or 'en')}"
        overlap = Overlap(
            speech_ms,
            ended,
            text,
            spoken,
            asks,
            listener.hears_itself,
            listener.certainty,
            tuple(turn.readings),
        )
        return judge(overlap, self._barge_in, self._context.lexicon)

    def _say_the_rest(self, turn: UserTurn, attempt: Attempt) -> bool:
        """After a false interruption, resume the answer where it was cut off."""
        wanted = attempt.wants_reply and not attempt.superseded and attempt.false_interruption
        if not wanted or turn.cut is None or self._turn or self._ending:
            return False
        return self._replies.resume(turn.cut, attempt.paused_at)

    def _ignore(self, turn: UserTurn, text: str | None, why: Ignored) -> None:
        """Speech over an answer was not meant for the robot; none of it was published."""
        if turn.weighing:
            turn.weighing.work.cancel()
            turn.weighing = None
            heard = (ms_of(turn.onset), ms_of(turn.fed_to))
            self._bus.publish(SpeechIgnored(*heard, text or "", why))
            turn.ignored = True

    # -- a pause

    def _pause(self, signal: Paused) -> None:
        turn = self._turn
        if turn is None:
            return
        if not turn.weighing:
            self._publish_pause(turn.item_id, signal.speech_end)
        self._feed(turn, signal.end)
        before = next(reversed(self._ending), None)
        attempt = self._attempts.begin(turn, signal)
        attempt.task = self._tasks.create_task(
            self._follow_pause(turn, attempt, before.task if before else None)
        )

    async def _follow_pause(
        self, turn: UserTurn, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> None:
        """From the first silent frames to the commit; cancelled when speech resumes. ``before``:
        the turn before, because turns are committed in order."""
        said = await self._attempts.transcribe(turn, attempt)
        if before:
            await asyncio.wait({before})
        if isinstance(said, Transcript):
            attempt.said = said.text
        else:
            attempt.error = said
        if turn.attempt is attempt:
            self._weigh(turn, said, ended=True)
        attempt.false_interruption = self._is_false_interruption(turn, attempt)
        async with aclosing(self._attempts.decisions(turn, attempt)) as decisions:
            async for decision in decisions:
                if turn is self._turn and turn.attempt is attempt:
                    self._follow(self._listener.judge(decision.wait_ms))
        self._commit(turn, attempt, said)
        self._attempts.book_use(attempt)

    def _resume(self, signal: Resumed) -> None:
        turn = self._turn
        if turn is None:
            return
        if not turn.weighing:
            self._bus.publish(SpeechResumed(turn.item_id, ms_of(signal.start)))
        self._attempts.resumed(turn, signal)
        if turn.weighing:
            went_on = not self._replies.holding
            self._hold()
            turn.weighing.resumed(self._listener.heard_end, went_on)

    # -- the turn is over

    def _end(self, signal: Ended) -> None:
        """The turn is over; commit it as soon as its transcript is ready."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        attempt = turn.attempt
        assert attempt
        attempt.background_db = signal.below_db
        self._ending[attempt] = turn
        self._closed_to = attempt.end
        attempt.end_turn()

    def _commit(self, turn: UserTurn, attempt: Attempt, said: Said) -> None:
        turn.recognition.stop()
        self._weigh(turn, said, ended=True, over=True)
        del self._ending[attempt]
        if turn.ignored or attempt.false_interruption or not attempt.said:
            self._listener.forget_speaker()
        if turn.ignored:
            self._not_a_turn()
            return
        self._publish_stop(attempt, "silence")
        if isinstance(said, Transcript) and not said.text:
            self._bus.publish(SpeechRejected(turn.item_id, attempt.engine_seconds, said.invented))
            if not self._say_the_rest(turn, attempt):
                self._not_a_turn()
            return
        if attempt.speculative:
            attempt.speculative.committed = True
        self._transcriber.commit(turn.item_id, turn.recognition, said)
        if self._say_the_rest(turn, attempt):
            self._attempts.discard_answer(attempt)
            return
        answers = attempt.wants_reply and not attempt.superseded
        if not answers or not self._replies.fits(attempt.reply):
            self._attempts.discard_answer(attempt)
        if answers:
            self._replies.answer(attempt.reply, attempt.work, attempt.paused_at, attempt.error)
        elif attempt.wants_reply:
            self._replies.answer_later(attempt.paused_at)

    def _not_a_turn(self) -> None:
        """The speech was noise, or not meant for the robot: give a pending answer."""
        if not self.busy:
            self._warm_up.said = ""
        self._replies.answer_pending()

    # -- requests of the client

    def take_overlap_as_turn(self) -> None:
        """Answer the speech under way, even if it overlaps an answer."""
        if self._turn:
            self._interrupt(self._turn, "client")

    def take(self) -> UserTurn | None:
        """The client ends the turn itself: hand over the open utterance with all its audio fed."""
        self._follow(self._listener.admit())
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        self._suspect()
        if turn:
            self._interrupt(turn, "client")
            self._attempts.discard(turn)
            self._feed(turn, self._listener.heard_end)
            self._closed_to = self._listener.heard_end
            self._publish_stopped(turn.item_id, self._closed_to, "client")
        return turn

    def take_ended(self) -> list[UserTurn]:
        """Hand over turns that have ended but are not committed yet, oldest first."""
        turns = list(self._ending.values())
        for attempt, turn in self._ending.items():
            self._interrupt(turn, "client")
            self._publish_stop(attempt, "client")
            self._attempts.stop(attempt)
        self._ending.clear()
        return turns

    def drop(self) -> None:
        """Forget the open utterance; none of it is committed or becomes a later turn's padding."""
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        self._suspect()
        self._closed_to = self._listener.heard_end
        if turn and self._forget(turn):
            self._publish_stopped(turn.item_id, self._listener.heard_end, "client")

    def _forget(self, turn: UserTurn) -> bool:
        """End all work for a turn. Whether it had been published."""
        self._attempts.discard(turn)
        turn.recognition.stop()
        return not self._drop_weighed(turn)

    def drop_ended(self) -> None:
        """Forget turns that have ended but are not committed yet."""
        for attempt, turn in list(self._ending.items()):
            if self._drop_weighed(turn):
                del self._ending[attempt]
                self._attempts.stop(attempt)
                turn.recognition.stop()
        for turn in self.take_ended():
            turn.recognition.stop()

    def _drop_weighed(self, turn: UserTurn) -> bool:
        """Forget speech that is still being weighed; none of it was published. Else False."""
        if turn.weighing is None:
            return False
        turn.weighing.work.cancel()
        turn.weighing = None
        self._replies.go_on()
        return True

    # -- audio and events

    def _feed(self, turn: UserTurn, end: int) -> None:
        pcm = self._listener.read(turn.fed_to, end)
        if len(pcm):
            turn.recognition.append(pcm)
            turn.fed_to = end

    @property
    def _partials(self) -> bool:
        """Whether partial transcripts are published."""
        return self._context.config.partials or self._context.settings.partials

    def _publish_words(self, turn: UserTurn, words: str) -> None:
        """Publish ``words``, and those recognised while the speech was weighed."""
        words, turn.unpublished_words = turn.unpublished_words + words, ""
        if words and self._partials:
            self._bus.publish(TranscriptPartial(turn.item_id, words))

    def _publish_pause(self, item_id: str, speech_end: int) -> None:
        silence_ms = ms_of(self._listener.heard_end - speech_end)
        self._bus.publish(SpeechPaused(item_id, ms_of(speech_end), silence_ms))

    def _publish_stop(self, attempt: Attempt, why: StopReason) -> None:
        """Publish the stop once: at the commit, or earlier if the user speaks again."""
        if not attempt.stop_published:
            attempt.stop_published = True
            self._publish_stopped(attempt.item_id, attempt.end, why, attempt.background_db)

    def _publish_stopped(
        self, item_id: str, end: int, why: StopReason, background_db: float = 0.0
    ) -> None:
        direction_deg = self._directions.lately_deg(asyncio.get_running_loop().time())
        self._bus.publish(SpeechStopped(item_id, ms_of(end), direction_deg, why, background_db))
