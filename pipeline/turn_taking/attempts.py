"""Work done before a turn is known to be over: transcript, speculative reply, decision. What comes
of it are facts for ``TurnMachine``.

In a pause an ``Attempt`` runs the final transcript, then a gated reply and the turn detector side
by side. The evidence decides how long the pause must last (``pipeline.turn_taking.endpointing``).
If partial transcripts are cheap, a speculative reply begins even before the pause. Useless work is
discarded unseen, and its engine time counted as wasted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial

from pipeline.audio import LISTEN_RATE, ms_of
from pipeline.context import SessionContext
from pipeline.conversation.reply_prompts import UncommittedSpeech
from pipeline.conversation.warm_up import WarmUp
from pipeline.engines.contract import Transcript
from pipeline.engines.word_scale import scale_of
from pipeline.errors import ReachyVoiceError
from pipeline.events import SpeculationDiscarded, TurnJudged
from pipeline.hearing.attribution import attributed
from pipeline.hearing.listening import Listener
from pipeline.hearing.plausibility import believed
from pipeline.hearing.recognition import StableWords
from pipeline.items import AudioPart
from pipeline.speaking.replies import Replies
from pipeline.turn_taking import tuning
from pipeline.turn_taking.endpointing import Decision, Evidence, decide
from pipeline.turn_taking.overlaps import Overlaps
from pipeline.turn_taking.speculation import Budget
from pipeline.turn_taking.turn import Turn
from pipeline.turn_taking.turn_facts import Conclusion, Fact, Mistake
from pipeline.turn_taking.utterance import Attempt, SpeculativeReply, TurnUtterance, Words
from pipeline.waking.waking import Waking
from pipeline.work import Cancelled, Priority, Work


class Attempts:
    """The attempts of one session, one at a time."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        overlaps: Overlaps,
        replies: Replies,
        warm_up: WarmUp,
        waking: Waking | None,
    ) -> None:
        self._context = context
        self._stages = context.stages
        self._listener = listener
        self._overlaps = overlaps
        self._replies = replies
        self._warm_up = warm_up
        self._waking = waking
        self._budget = Budget(context.settings.speculation)
        self._own_pauses_ms: deque[int] = deque(maxlen=tuning.OWN_PAUSES)
        """Those within turns that had words: a noise's say nothing about people."""

    @property
    def wants_partials(self) -> bool:
        """Whether partial transcripts would be used."""
        streams = self._stages.stt.streams
        return self._context.config.answers_turns and self._budget.wants_partials(streams)

    # -- before the pause

    def hear_words(self, utterance: TurnUtterance, words: str, stable: StableWords) -> None:
        """Take a partial transcript of an open turn; ``words`` are new and will not change."""
        if utterance.attempt:
            return
        # Most likely the last speaker; if not, the reply will not fit.
        newest = AudioPart(stable.newest, speaker=self._replies.last_speaker)
        if utterance.speculative and not utterance.speculative.answers(newest):
            self._discard_speculative(utterance)
        if not self._budget.may_guess:
            return
        if words:
            self._warm_up.hear(replace(newest, transcript=stable.text))
        should_answer = stable.settled and self._context.config.answers_turns
        if should_answer and not utterance.speculative:
            now = asyncio.get_running_loop().time()
            utterance.speculative = self._speculate(newest, Work(Priority.SPECULATIVE), now)

    def _speculate(self, speech: AudioPart, work: Work, since: float) -> SpeculativeReply | None:
        """Begin a gated reply to ``speech``; ``None`` if another reply is being given."""
        uncommitted = UncommittedSpeech(speech)
        reply = self._replies.speculate(uncommitted, work, since)
        return SpeculativeReply(uncommitted, reply) if reply else None

    def _discard_speculative(self, utterance: TurnUtterance) -> None:
        speculative, utterance.speculative = utterance.speculative, None
        if speculative:
            self._cancel(speculative, utterance.turn.item_id)

    def _cancel(self, speculative: SpeculativeReply, item_id: str) -> None:
        speculative.reply.cancel("resumed")
        speculative.work.cancel()
        self._book_waste(item_id, speculative.work)

    # -- in the pause

    def begin(self, utterance: TurnUtterance) -> Attempt:
        """Start an attempt at the first silent frames; the audio so far has been fed."""
        since_s = (self._listener.heard_end - utterance.turn.speech_end) / LISTEN_RATE
        paused_at = asyncio.get_running_loop().time() - since_s
        attempt = Attempt(utterance.turn.item_id, Work(Priority.SPECULATIVE), paused_at)
        utterance.attempt = attempt
        return attempt

    async def facts(
        self, utterance: TurnUtterance, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> AsyncGenerator[Fact, None]:
        """From the first silent frames to the commit; cancelled when speech resumes. ``before``:
        the previous turn's task, because turns are committed in order."""
        words = await self._transcribe(utterance, attempt)
        if before:
            await asyncio.wait({before})
        attempt.words = words
        turn, text = utterance.turn, attempt.text
        yield self._overlaps.reading(utterance, text)
        if self._overlaps.mistake(utterance, attempt):
            yield Mistake(turn)
        if self._waking and isinstance(words, Transcript) and not turn.state.overlaps:
            cuts = utterance.cut_reply is not None
            attempt.words = self._waking.aside(words, turn.onset, turn.speech_end, cuts)
            text = attempt.text
            if attempt.exclusion == "farewell":
                self._replies.forget_pending()  # what it interrupts is not given again
        async with aclosing(self._decisions(utterance, attempt)) as decisions:
            async for decision in decisions:
                if not turn.state.is_over:
                    for end in self._listener.judge(decision.wait_ms):
                        yield end
        utterance.recognition.stop()
        yield self._overlaps.reading(utterance, text)  # more of the answer may be known by now
        yield Conclusion(turn, text, attempt.exclusion)
        self._book_use(turn, attempt)
        if self._waking:
            self._waking.obey(attempt.exclusion)

    async def _transcribe(self, utterance: TurnUtterance, attempt: Attempt) -> Words:
        """The final transcript of the audio fed so far."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Now, because its scores will be forgotten.
        segment = utterance.segment = self._overlaps.segment(utterance, utterance.turn.speech_end)
        try:
            transcript = await attributed(self._context, utterance.recognition, attempt.work)
        except ReachyVoiceError as error:
            # Nobody waits for an answer to a noise, nor for an apology.
            return Transcript("", 0.0, exclusion="hardly speech") if segment.is_noise else error
        self._budget.note_pass(transcript.seconds, loop.time() - began)
        return believed(self._context, transcript, segment)

    async def _decisions(
        self, utterance: TurnUtterance, attempt: Attempt
    ) -> AsyncGenerator[Decision, None]:
        """Yield how long the pause must last, again with each new piece of evidence, until the turn
        ends. The reply and the turn detector run meanwhile."""
        turn = utterance.turn
        if not attempt.text or turn.mistake:
            yield self._tell(turn, attempt)  # no more evidence will come, or is needed
        self._keep_speculative(utterance, attempt)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._detect(turn, attempt))]
            if self._budget.may_answer:
                self._answer(turn, attempt)
            if attempt.speculative:
                tasks.append(group.create_task(self._await_words(attempt.speculative, attempt)))
            try:
                while await self._news(turn, attempt):
                    if attempt.speculative and not attempt.speculative.judged:
                        continue  # no answer could come earlier anyway
                    likely = self._decide(turn, attempt).probability >= tuning.LIKELY
                    if likely and not attempt.speculative:
                        self._answer(turn, attempt)
                        if attempt.speculative:
                            wait = self._await_words(attempt.speculative, attempt)
                            tasks.append(group.create_task(wait))
                            continue
                    yield self._tell(turn, attempt)
            finally:
                for task in tasks:
                    task.cancel()

    async def _news(self, turn: Turn, attempt: Attempt) -> bool:
        """Wait for new evidence. False if the turn has ended."""
        if not turn.state.is_over:
            await attempt.news.wait()
            attempt.news.clear()
        return not turn.state.is_over

    async def _detect(self, turn: Turn, attempt: Attempt) -> None:
        """Ask the turn detector once, early: a longer silence only biases it towards an end."""
        if not attempt.text:
            return
        seconds = self._stages.turn.history_seconds
        start = max(turn.start, turn.end - int(seconds * LISTEN_RATE))
        pcm = self._listener.read(start, turn.end)
        with suppress(ReachyVoiceError, Cancelled):  # then the words alone decide
            attempt.audio_probability = await self._stages.turn.score(
                pcm, attempt.text, attempt.work
            )
        attempt.news.set()

    async def _await_words(self, speculative: SpeculativeReply, attempt: Attempt) -> None:
        """Wait until the language model has judged the words, which it does as it reads the prompt.
        The reply is late after the wait of a likely end; a model that judges words gets
        ``PATIENCE`` times that, and once that wait from the words on, which a slow recogniser tells
        late. A second model may judge even later (``engines.llm.judged``)."""
        words = speculative.reply.words
        likely_s = self._context.endpointing.likely_wait_ms / 1000
        until = attempt.paused_at + likely_s
        if self._stages.word_scales:
            now = asyncio.get_running_loop().time()
            until = max(attempt.paused_at + tuning.PATIENCE * likely_s, now + likely_s)
        try:
            async with asyncio.timeout_at(until):
                await words.prompt_read.wait()
        except TimeoutError:
            speculative.late = True
            attempt.news.set()
            await words.prompt_read.wait()
        attempt.news.set()
        await words.words_judged.wait()
        attempt.news.set()

    def _decide(self, turn: Turn, attempt: Attempt) -> Decision:
        """How long the pause must last, on the evidence so far."""
        complete = attempt.reply.words.end_probability if attempt.reply else None
        endpointing, lexicon = self._context.endpointing, self._context.lexicon
        scale = scale_of(self._stages.word_scales, lexicon.language)
        evidence = Evidence(
            attempt.audio_probability,
            attempt.text,
            scale.log_odds(complete),
            self._replies.last_question,
            (*self._own_pauses_ms, *turn.pauses_ms)[-tuning.OWN_PAUSES :],
            ms_of(turn.speech_end - turn.start),
            turn.mistake,
        )
        return decide(evidence, endpointing, lexicon)

    def _tell(self, turn: Turn, attempt: Attempt) -> Decision:
        """Decide, and publish the decision."""
        decision = self._decide(turn, attempt)
        self._context.bus.publish(
            TurnJudged(turn.item_id, decision.probability, decision.wait_ms, decision.reasons)
        )
        return decision

    def _keep_speculative(self, utterance: TurnUtterance, attempt: Attempt) -> None:
        """Keep a reply begun before the pause if it answers all the words, else discard it."""
        speculative, wants_answer = utterance.speculative, utterance.turn.wants_answer
        if speculative and wants_answer and speculative.answers(attempt.speech):
            attempt.speculative, utterance.speculative = speculative, None
            speculative.reply.response.began_at = attempt.paused_at
        self._discard_speculative(utterance)

    def _answer(self, turn: Turn, attempt: Attempt) -> None:
        """Begin the reply, unless one has begun."""
        if attempt.text and turn.may_be_answered and attempt.speculative is None:
            attempt.speculative = self._speculate(attempt.speech, attempt.work, attempt.paused_at)

    # -- how it ends

    def resume(self, utterance: TurnUtterance, start: int, within_word: bool) -> None:
        """Speech has resumed at sample ``start``, before the turn ended."""
        attempt = utterance.attempt
        self.discard(utterance)
        if attempt and not within_word:
            pause_ms = ms_of(start - utterance.turn.speech_end)
            ms_of_sent = self._listener.ms_of
            if ms_of_sent(start) - ms_of_sent(utterance.turn.speech_end) == pause_ms:
                utterance.turn.pauses_ms.append(pause_ms)
            if attempt.text and self._budget.may_answer:
                self._warm_up.hear(attempt.speech)

    def discard(self, utterance: TurnUtterance) -> None:
        """Discard everything begun for a turn."""
        self._discard_speculative(utterance)
        attempt, utterance.attempt = utterance.attempt, None
        if attempt:
            self._stop(attempt)

    def discard_answer(self, attempt: Attempt) -> None:
        """Keep the words, but discard the reply that was begun to them."""
        speculative, attempt.speculative = attempt.speculative, None
        if speculative:
            attempt.discarded = True
            self._cancel(speculative, attempt.item_id)

    def _stop(self, attempt: Attempt) -> None:
        """Cancel an attempt and its reply, and count their engine time as wasted."""
        if attempt.reply:
            attempt.reply.cancel("resumed")
        if attempt.task:
            attempt.task.cancel()
        for work in attempt.works:
            work.cancel()
            self._book_waste(attempt.item_id, work)

    def _book_use(self, turn: Turn, attempt: Attempt) -> None:
        """The turn is over: count its engine time as used, or as wasted if it was noise. A
        discarded answer was counted when it was discarded."""
        if attempt.text:
            self._own_pauses_ms.extend(turn.pauses_ms)
        book = self._budget.note_use if attempt.text else self._budget.note_waste
        busy = attempt.works

        def on_idle(work: Work) -> None:
            busy.remove(work)
            if not busy:
                book(attempt.engine_seconds)

        if not attempt.discarded:
            for work in attempt.works:
                work.when_idle(partial(on_idle, work))

    def _book_waste(self, item_id: str, work: Work) -> None:
        """Count ``work`` as wasted once all of its engine time is known."""

        def book() -> None:
            self._budget.note_waste(work.engine_seconds)
            self._context.bus.publish(SpeculationDiscarded(item_id, work.engine_seconds))

        work.when_idle(book)
