"""What is begun before it is known that a turn is over, and how that is decided.

In a pause an ``Attempt`` runs the final transcript, then the reply behind its gate and beside it
the turn detector. What is known by then says how long the pause must last
(``pipeline.turn_taking.endpointing``).
Where partial transcripts come cheap, a ``Guess`` begins a reply even before the pause. Whatever was
in vain is discarded unseen, and its engine time is booked as waste.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from pipeline.audio import LISTEN_RATE, Recording
from pipeline.bus import Bus
from pipeline.engines.contract import Transcript
from pipeline.engines.stages import Stages
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.events import SpeculationDiscarded, TurnJudged
from pipeline.hearing.listening import Listener
from pipeline.hearing.stable_words import StableWords
from pipeline.hearing.turn_signals import Paused, Resumed
from pipeline.settings import Endpointing, Speculation
from pipeline.turn_taking.endpointing import OWN_PAUSES, Evidence, decide
from pipeline.turn_taking.overlaps import Answering
from pipeline.turn_taking.speculation import Budget
from pipeline.turn_taking.user_turn import Attempt, Guess, UserTurn
from pipeline.work import Cancelled, Priority, Work

LIKELY = 0.5
"""Probability from which a turn counts as likely over."""


class Speaker(Answering, Protocol):
    """What voice turns ask of their session."""

    @property
    def asked(self) -> str:
        """What the assistant said last, if nobody has answered yet."""
        ...

    @property
    def direction_deg(self) -> float | None:
        """From where somebody speaks; ``None``: nobody knows, or not yet."""
        ...

    @property
    def said_from_deg(self) -> float | None:
        """From where came what is just over; ``None``: nobody knows."""
        ...

    def speech_started(self) -> bool:
        """Somebody speaks. If that interrupts, replies end, and True is returned."""
        ...

    def read_ahead(self, said: str) -> None:
        """The user has said this so far; it will not change, but go on."""
        ...

    def begin_reply(self, guess: Guess, since: float) -> None:
        """Give the guess a reply behind a shut gate, unless another one is being given. ``since``:
        end of speech, in the loop's time."""
        ...

    def commit_speech(
        self, item_id: str, said: Transcript | ReachyVoiceError, audio: Recording
    ) -> None:
        """The utterance becomes an item of the conversation."""
        ...

    def fits(self, attempt: Attempt) -> bool:
        """Whether the reply that was begun, if any, can be given now."""
        ...

    def answer(self, attempt: Attempt) -> None:
        """Open the gate of the attempt's reply, or start one now, or later if another one is being
        given."""
        ...

    def answer_later(self, attempt: Attempt) -> None:
        """Somebody speaks again: what they say is answered together with this."""
        ...

    def noise(self) -> None:
        """What was taken for speech was none, and nobody speaks now."""
        ...


Said = Transcript | ReachyVoiceError


class Attempts:
    """Those of one session, one at a time. Lives in the session's TaskGroup.

    ``on_read(turn, attempt)`` is told that the words are known, or cannot be; ``on_judged(turn,
    attempt, wait_ms)`` how long a pause must last; ``on_ended(turn, attempt, said)`` is called for
    a turn that has ended, in the order of the turns.
    """

    def __init__(
        self,
        session: Speaker,
        listener: Listener,
        stages: Stages,
        bus: Bus,
        tasks: asyncio.TaskGroup,
        speculation: Speculation,
        on_read: Callable[[UserTurn, Attempt], None],
        on_judged: Callable[[UserTurn, Attempt, int], None],
        on_ended: Callable[[UserTurn, Attempt, Said], None],
    ) -> None:
        self.endpointing = Endpointing()
        self.wants_reply = True
        self._session = session
        self._listener = listener
        self._stages = stages
        self._bus = bus
        self._tasks = tasks
        self._budget = Budget(speculation)
        self._on_read = on_read
        self._on_judged = on_judged
        self._on_ended = on_ended
        self._own_pauses_ms: deque[int] = deque(maxlen=OWN_PAUSES)

    @property
    def wants_partials(self) -> bool:
        """Whether partial transcripts would be of use."""
        return self.wants_reply and self._budget.wants_partials(self._stages.stt.streams)

    # -- before the pause

    def hear_words(self, turn: UserTurn, words: str, known: StableWords) -> None:
        """Partial transcripts of an open turn have come; ``words`` are new and will not change."""
        if turn.attempt:
            return
        if turn.guess and not turn.guess.says(known.newest):
            self._discard_guess(turn)
        if not self._budget.may_guess:
            return
        if words:
            self._session.read_ahead(known.text)
        if known.settled and self.wants_reply and not turn.guess:
            now = asyncio.get_running_loop().time()
            turn.guess = self._guess(known.newest, Work(Priority.SPECULATIVE), now)

    def _guess(self, text: str, work: Work, since: float) -> Guess:
        guess = Guess(text, work)
        self._session.begin_reply(guess, since)
        return guess

    def _discard_guess(self, turn: UserTurn) -> None:
        guess, turn.guess = turn.guess, None
        if guess:
            self._end_guess(guess, turn.item_id)

    def _end_guess(self, guess: Guess, item_id: str) -> None:
        if guess.reply is None:
            return  # another reply was being given: nothing was begun
        guess.reply.cancel("resumed")
        guess.work.cancel()
        self._book_waste(item_id, guess.work)

    def _book_use(self, attempt: Attempt) -> None:
        """The turn is over. What was done for noise, or for an answer that is not given, was in
        vain; the latter is booked where it is thrown away."""
        guess = attempt.guess
        works = {attempt.work, guess.work} if guess else {attempt.work}
        seen = self._budget.used if attempt.said else self._budget.wasted

        def ended(work: Work) -> None:
            busy.discard(work)
            if not busy:
                seen(attempt.engine_seconds)

        if not attempt.discarded:
            busy = set(works)
            for work in works:
                work.when_idle(partial(ended, work))

    def _book_waste(self, item_id: str, work: Work) -> None:
        """As soon as all of it is known."""

        def book() -> None:
            self._budget.wasted(work.engine_seconds)
            self._bus.publish(SpeculationDiscarded(item_id, work.engine_seconds))

        work.when_idle(book)

    # -- attempts

    def begin(self, turn: UserTurn, pause: Paused, before: Attempt | None) -> None:
        """The first silent frames are there, and all of the turn up to then is fed. ``before``: the
        attempt that ended the turn before; turns are committed in order."""
        since = (self._listener.heard_end - pause.speech_end) / LISTEN_RATE
        paused_at = asyncio.get_running_loop().time() - since
        work = Work(Priority.SPECULATIVE)
        attempt = Attempt(
            turn.item_id, work, pause.speech_end, pause.end, paused_at, self.wants_reply
        )
        turn.attempt = attempt
        attempt.task = self._tasks.create_task(
            self._run(turn, attempt, before.task if before else None)
        )

    def resumed(self, turn: UserTurn, signal: Resumed) -> None:
        """The pause was none."""
        attempt = turn.attempt
        self.discard(turn)
        if attempt and not signal.within_word:
            pause_samples = signal.start - attempt.speech_end
            self._own_pauses_ms.append(pause_samples * 1000 // LISTEN_RATE)
            if attempt.said and self._budget.may_answer:
                self._session.read_ahead(attempt.said)

    def discard(self, turn: UserTurn) -> None:
        """Throw away all that was begun for a turn."""
        self._discard_guess(turn)
        attempt, turn.attempt = turn.attempt, None
        if attempt:
            self.stop(attempt)

    def discard_answer(self, attempt: Attempt) -> None:
        """The words stand, but what was begun to answer them is in vain."""
        guess, attempt.guess = attempt.guess, None
        if guess and guess.reply:
            attempt.discarded = True
            self._end_guess(guess, attempt.item_id)

    def stop(self, attempt: Attempt) -> None:
        """Nobody will see anything of it."""
        guess = attempt.guess
        if guess and guess.work is not attempt.work:
            self._end_guess(guess, attempt.item_id)
        elif guess and guess.reply:
            guess.reply.cancel("resumed")
        attempt.work.cancel()
        if attempt.task:
            attempt.task.cancel()
        self._book_waste(attempt.item_id, attempt.work)

    async def _run(
        self, turn: UserTurn, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> None:
        said = await self._transcript(turn, attempt)
        if before:
            await asyncio.wait({before})
        if isinstance(said, Transcript):
            attempt.said = said.text
        else:
            attempt.error = said
        self._on_read(turn, attempt)
        if not attempt.said:
            self._decide(turn, attempt)  # nothing more will be known
        self._take_over_guess(turn, attempt)
        if self._budget.may_answer:
            self._answer(turn, attempt)
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer_when_likely(turn, attempt))
            judging = group.create_task(self._judge(turn, attempt))
            hurrying = group.create_task(self._decide_without_words(turn, attempt))
            await attempt.ended.wait()
            for task in (answering, judging, hurrying):
                task.cancel()
        self._on_ended(turn, attempt, said)
        self._book_use(attempt)

    async def _transcript(self, turn: UserTurn, attempt: Attempt) -> Said:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            said = await turn.recognition.transcript(attempt.work)
        except ReachyVoiceError as error:
            return error
        except Cancelled:
            return EngineError("The utterance was not recognised", why="the engine is stopping")
        self._budget.recognised(said.seconds, loop.time() - began)
        return said

    def _take_over_guess(self, turn: UserTurn, attempt: Attempt) -> None:
        """A reply that was begun before the pause is kept if it answers all the words."""
        guess = turn.guess
        if guess and guess.reply and attempt.wants_reply and guess.says(attempt.said):
            attempt.guess, turn.guess = guess, None
            guess.reply.answers(attempt.paused_at)
            self._listen_to(guess, turn, attempt)
        self._discard_guess(turn)

    def _answer(self, turn: UserTurn, attempt: Attempt) -> None:
        """Begin the reply, unless there is one."""
        wanted = attempt.wants_reply and not attempt.superseded and not turn.weighing
        if attempt.said and wanted and attempt.guess is None:
            attempt.guess = self._guess(attempt.said, attempt.work, attempt.paused_at)
            self._listen_to(attempt.guess, turn, attempt)

    async def _answer_when_likely(self, turn: UserTurn, attempt: Attempt) -> None:
        await attempt.likely.wait()
        self._answer(turn, attempt)

    def _listen_to(self, guess: Guess, turn: UserTurn, attempt: Attempt) -> None:
        """The model that reads the words for the reply knows whether they are complete."""

        def told() -> None:
            if turn.attempt is attempt and not attempt.ended.is_set():
                self._decide(turn, attempt)

        guess.told = told
        if guess.read:
            told()

    async def _decide_without_words(self, turn: UserTurn, attempt: Attempt) -> None:
        """A language model that is busy, or slow, is not waited for longer than a likely end."""
        guess = attempt.guess
        if guess is None or guess.reply is None:
            return
        loop = asyncio.get_running_loop()
        patience_s = self.endpointing.likely_wait_ms / 1000 - (loop.time() - attempt.paused_at)
        try:
            async with asyncio.timeout(max(0.0, patience_s)):
                await guess.has_read.wait()
        except TimeoutError:
            guess.late = True
            if not attempt.work.cancelled:
                self._decide(turn, attempt)

    async def _judge(self, turn: UserTurn, attempt: Attempt) -> None:
        """Ask the turn detector once, early: a longer silence only makes it more credulous."""
        if not attempt.said:
            return
        seconds = self._stages.turn.history_seconds
        start = max(turn.start, attempt.end - int(seconds * LISTEN_RATE))
        pcm = self._listener.read(start, attempt.end)
        with suppress(ReachyVoiceError, Cancelled):  # without it the words alone decide
            attempt.audio_probability = await self._stages.turn.score(
                pcm, attempt.said, attempt.work
            )
        if attempt.work.cancelled:
            return  # the pause was none
        if self._decide(turn, attempt) >= LIKELY:
            attempt.likely.set()

    def _decide(self, turn: UserTurn, attempt: Attempt) -> float:
        """Set how long the pause must last, by what is known now; the probability of an end.

        While the language model still reads the words, the rest decides nothing: no answer could
        come earlier anyway, unless the model is kept from it."""
        guess = attempt.guess
        if guess and guess.reply and not (guess.read or guess.late):
            return 0.0
        decision = decide(
            Evidence(
                attempt.audio_probability,
                None if attempt.error else attempt.said,
                guess.end_probability if guess else None,
                self._session.asked,
                tuple(self._own_pauses_ms),
                (attempt.speech_end - turn.start) * 1000 // LISTEN_RATE,
            ),
            self.endpointing,
        )
        self._bus.publish(
            TurnJudged(turn.item_id, decision.probability, decision.wait_ms, decision.reasons)
        )
        if turn.attempt is attempt:
            self._on_judged(turn, attempt, decision.wait_ms)
        return decision.probability
