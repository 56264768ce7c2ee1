"""A reply: one object, one TaskGroup of think, speak and play, and one way to end it early.

    prompt -> words (LLM) -> TextAhead -> clauses (TTS) -> ClauseQueue -> pacing (gate) -> response

Both queues are bounded, so a shut gate or a slow listener holds back everything behind it. A reply
reaches the bus only through its response; ``cancel`` revokes that first, so nothing stale can be
heard. A speculative reply is the same object with its gate shut. A call leaves as soon as it is
complete, ahead of the speech that is still being paced out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from pipeline.context import SessionContext
from pipeline.conversation.reply_prompts import Prompt, ReplyPrompts
from pipeline.engines.stages import ConversationStage, TtsStage
from pipeline.errors import EngineCrashed, PromptTooLong, ReachyVoiceError
from pipeline.events import CancelReason, ClauseFault, FaultKind, ReplyStatus
from pipeline.messages import Message, SpeechRequest
from pipeline.speaking import tuning
from pipeline.speaking.chunker import SpeechChunker
from pipeline.speaking.clause_queue import ClauseQueue
from pipeline.speaking.clause_speech import ClauseSpeech
from pipeline.speaking.delivery import ReplyPlan
from pipeline.speaking.hold import Hold, Holds
from pipeline.speaking.notices import notice
from pipeline.speaking.pacing import Pacer
from pipeline.speaking.ramp import Ramp
from pipeline.speaking.response import Response
from pipeline.speaking.text_ahead import TextAhead
from pipeline.speaking.words import NOTHING_HEARD, ModelAnswer, Recital, Words
from pipeline.spoken.language import language_of, language_of_talk
from pipeline.spoken.length import spoken_letters
from pipeline.spoken.punctuation import asks
from pipeline.work import Cancelled, Priority, Work

_SENTENCE_END = re.compile(r"[.!?…]+(?=\s)|[。！？]")

log = logging.getLogger("reachy_voice.reply")


class Reply:
    """One answer. ``run`` it as a task; ``confirm`` opens the gate; ``cancel`` ends it."""

    def __init__(
        self,
        context: SessionContext,
        response: Response,
        prompts: ReplyPrompts,
        prompt: Prompt,
        conversation: ConversationStage,
        work: Work,
        ramp: Ramp,
    ) -> None:
        """``prompt`` is rendered by ``prompts``, anew after each time that it was too long.
        ``ramp``: what is known about the voice's speed."""
        self.response = response
        self.work = work
        self.messages: list[Message] | None = None
        """The prompt that it answers, once it is known."""
        self._context = context
        self._prompts = prompts
        self._prompt = prompt
        self._stages = context.stages
        self._tts = context.stages.tts
        self._release: Callable[[], None] | None = None
        self._equipped = asyncio.Event()
        """Set when the engines are leased."""
        self._gate = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ramp = ramp
        plan = response.plan
        self._chunker = SpeechChunker(plan.config.language)
        self._text = TextAhead(self._chunker, ramp)
        rate = plan.config.output_format.rate
        self._clauses = ClauseQueue(rate, lambda: response.mark("first_clause"))
        self._speech = ClauseSpeech(
            plan, self._text, self._clauses, ramp, work, self._publish_fault
        )
        self.words = self._words(conversation)
        self._holds = Holds(response.publish_hold)
        self._pacer = Pacer(response, self._holds.free)

    def _words(self, conversation: ConversationStage) -> Words:
        ahead = self.plan, self._text, self._clauses, self.response.mark
        if self.plan.notice:
            return Words(*ahead)
        if self.plan.words:
            return Recital(*ahead)
        return ModelAnswer(conversation, self.work, *ahead)

    @property
    def plan(self) -> ReplyPlan:
        """That of the current response."""
        return self.response.plan

    # -- life

    async def run(self) -> None:
        """Produce the answer, hold it behind the gate, and play it. An engine's failure does not
        raise; it ends the reply with status ``failed``."""
        if self.cancelled:  # before the task's first step
            return
        self._task = asyncio.current_task()
        try:
            await (self._notify() if self.plan.notice else self._produce())
        finally:
            self._let_go()

    async def _produce(self) -> None:
        error = None
        stopped = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._think())
                group.create_task(self._pass_the_time())
                group.create_task(self._speak())
                group.create_task(self._send())
                group.create_task(self._call())
        except* (ReachyVoiceError, Cancelled) as problems:
            stopped = isinstance(problems.exceptions[0], Cancelled)
            error = str(problems.exceptions[0]) or "The engine was stopped"
        except* Exception:
            log.exception("A reply failed")
            error = "Internal error; see the server's log"
        if error and self.response.state == "waiting":
            self.response.state = "broken"
        if self.cancelled:  # swallowed by a TaskGroup that failed at the same moment
            return
        words = self.words
        words.prompt_read.set()
        await self._gate.wait()
        if not error and not self.response.sent_s:
            words.unheard()
        if words.silent and not words.cut_short:  # otherwise the status says that it was cut
            error = error or NOTHING_HEARD
        if (words.silent or (error and not stopped)) and not self.plan.announces:
            notices = self.plan.settings.notices_in(self._language)
            await self._say_notice(notices.apology, notices.language, self._stages.notices)
        ending: ReplyStatus = "incomplete" if words.cut_short else "completed"
        self._finish("failed" if error else ending, error=error)

    async def _bridge(self) -> None:
        """Say that it takes a moment, unless something was said, and end the response. The model is
        still working; its answer becomes the next response."""
        async with self._speech.pause:
            await self._clauses.until(0)
            if self.words.prompt_read.is_set():
                return
            self.words.time_passed()
            if not self.response.sent_s:
                language = self.plan.settings.notices_in(self._language).language
                await self._say_notice(self.plan.filler, language, self._tts)
            if self.cancelled:
                return
            self._finish("completed")
            self._text.taken_text = ""
            self.response.renew()

    async def _notify(self) -> None:
        await self._gate.wait()
        await self._equip()
        notices = self.plan.settings.notices_in(self._language)
        await self._say_notice(self.plan.notice, notices.language, self._tts)
        self._finish("completed")

    async def _say_notice(self, sentence: str, language: str, tts: TtsStage) -> None:
        """Say a sentence of the server's own in place of the model's spoken answer."""
        plan, config = self.plan, self.plan.config
        if not sentence or config.modality == "text" or not plan.in_conversation:
            return
        request = SpeechRequest(sentence, config.voice, config.speed, language)
        pcm = await notice(request, config.output_format.rate, tts, self.work)
        if not len(pcm):
            return
        self.response.delivery.notify(sentence)
        await self._pacer.speak(pcm)
        self.response.delivery.end_notice()

    def _let_go(self) -> None:
        if self._release:
            self._release()
            self._release = None

    async def _equip(self) -> None:
        """Lease the engines until the reply has ended."""
        self._release = await self._stages.leases.take()
        self._tts = self._stages.tts
        self._ramp.of(self._tts, self._stages.voice_rtf)
        self._equipped.set()

    def confirm(self) -> None:
        """Open the gate: the turn is over, and this is the answer."""
        if self.confirmed or self.response.is_over:
            return
        self.work.promote(Priority.CONFIRMED)
        self.response.mark("endpoint")
        self.response.begin()
        self._gate.set()
        self._speech.confirm()

    def hold(self) -> Hold:
        """Send nothing more until the hold is released; the listener's buffer drains."""
        return self._holds.add()

    def _publish_fault(self, kind: FaultKind, take: int, left_out: bool) -> None:
        self.response.delivery.publish(ClauseFault(self.plan.reply_id, kind, take, left_out))

    @property
    def confirmed(self) -> bool:
        """Whether its gate is open."""
        return self._gate.is_set()

    def cancel(self, reason: CancelReason) -> None:
        """End it now. After this call only its closing events are published."""
        if self.response.is_over:
            return
        self.response.delivery.revoke()
        self.work.cancel()
        if self._task:
            self._task.cancel()
        self._finish("cancelled", reason=reason)

    @property
    def cancelled(self) -> bool:
        return self.work.cancelled

    @property
    def asks(self) -> bool:
        """Whether it ends with a question that the listener has heard except for its last words."""
        message = self.response.heard_message
        rest = self.unsaid(message.text).strip() if message and self.words.complete else ""
        return asks(rest) and spoken_letters(rest) <= tuning.ANTICIPATED_LETTERS

    def unsaid(self, heard_text: str) -> str:
        """The rest of its text after ``heard_text``; if the model had not finished, up to the last
        whole sentence. Empty if nothing is left, or if it calls a function."""
        text = self._text.all
        if not text.startswith(heard_text) or self.words.calls or self.plan.notice:
            return ""
        rest = text[len(heard_text) :]
        return rest if self.words.complete else rest[: _last_sentence_end(rest)]

    # -- think

    async def _think(self) -> None:
        crashed = False
        while True:
            messages = self.messages = await self._prompts.render(self._prompt)
            if not self._release:
                await self._equip()
            self._find_language(messages)
            try:
                await self.words.write(messages, self._chunker.language)
                break
            except PromptTooLong as problem:
                # Only an answer that will be given may drop items for good.
                lasting = self.plan.in_conversation and self.confirmed
                if not self._prompts.make_room(self._prompt, problem, lasting=lasting):
                    raise
                # The prompt may wait for a transcript, which may wait for a lease.
                self._let_go()
            except EngineCrashed:  # ask the next engine once, if nothing was answered yet
                if crashed or self.words.begun:
                    raise
                crashed = True
        await self.words.end()

    def _find_language(self, messages: Sequence[Message]) -> None:
        """If no language is set, use that of known words, or else the user's."""
        if not self.plan.config.language:
            texts = [text for message in messages for text in message.words]
            own = [self.plan.words.text] if self.plan.words else texts
            newest = language_of(own[-1]) if own else ""
            heard_language = self._context.heard_language
            self._chunker.language = newest or heard_language or language_of_talk(texts)

    @property
    def _language(self) -> str:
        """The language of the answer, or else of the user; empty: unknown."""
        return self._chunker.language or self._context.heard_language

    async def _pass_the_time(self) -> None:
        late = asyncio.get_running_loop().time() + tuning.LONG_WAIT_S
        await self._gate.wait()
        after_ms = self.plan.settings.filler.after_ms
        bridges = bool(self.plan.filler) and self._stages.llm.may_load
        if after_ms is not None and not (bridges and after_ms >= tuning.LONG_WAIT_S * 1000):
            await self.words.pass_the_time(self.response.began_at + after_ms / 1000)
        if not bridges:
            return
        try:
            async with asyncio.timeout_at(late):
                await self.words.prompt_read.wait()
        except TimeoutError:
            await self._bridge()

    async def _speak(self) -> None:
        await self._equipped.wait()
        await self._speech.run(self._tts, self._buffered_s, self._gate.is_set)

    def _buffered_s(self) -> float:
        """Seconds of speech made that the listener has not heard yet."""
        return self._clauses.made_s - self.response.heard_s

    async def _send(self) -> None:
        await self._gate.wait()
        await self._text.hurry()
        await self._pacer.run(self._clauses)

    async def _call(self) -> None:
        await self._gate.wait()
        while (call := await self.words.next_call()) is not None:
            words = self.words.output or self._text.all
            self.response.delivery.call(call, after_words=bool(words.strip()))

    def _finish(
        self, status: ReplyStatus, *, reason: CancelReason | None = None, error: str | None = None
    ) -> None:
        spent_s = self.work.engine_seconds
        self.response.finish(status, self.words, spent_s, reason=reason, error=error)


def _last_sentence_end(text: str) -> int:
    return max((match.end() for match in _SENTENCE_END.finditer(text)), default=0)
