"""Turns the clauses of one reply into speech, with a time limit, a watch and one retry.

``pipeline.speaking.clause_watch`` checks the voice's audio before it is passed on. At a fault,
synthesis stops, unsent audio is dropped, and whatever was not heard is said again, as take 1. If
that fails too, the clause is left out and the reply goes on.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import EMPTY, Pcm, Resampler
from pipeline.engines.contract import NotSpeech
from pipeline.engines.stages import TtsStage
from pipeline.errors import EngineCrashed, EngineError
from pipeline.events import FaultKind
from pipeline.messages import SpeechRequest
from pipeline.speaking import tuning
from pipeline.speaking.chunker import Piece
from pipeline.speaking.clause_queue import ClauseQueue
from pipeline.speaking.clause_watch import ClauseWatch, Fault
from pipeline.speaking.delivery import Clause, ReplyPlan
from pipeline.speaking.ramp import Ramp, VoiceTiming
from pipeline.speaking.text_ahead import TextAhead
from pipeline.spoken.borders import Border
from pipeline.spoken.length import spoken_letters, word_ends
from pipeline.work import Work


class ClauseSpeech:
    """The voice's part of a reply: turns its text into clauses and their sounds."""

    def __init__(
        self,
        plan: ReplyPlan,
        text: TextAhead,
        queue: ClauseQueue,
        ramp: Ramp,
        work: Work,
        publish: Callable[[FaultKind, int, bool], None],
    ) -> None:
        """``publish``: called once the reply is confirmed, with the kind of each fault, the number
        of the take, and whether the clause was left out."""
        self._plan = plan
        self._text = text
        self._queue = queue
        self._ramp = ramp
        self._work = work
        self._publish = publish
        self._faults: list[tuple[FaultKind, int, bool]] | None = []
        """Those found before the reply is confirmed; ``None``: it is."""
        self._patience: asyncio.Timeout | None = None
        """The time limit of the chunk being awaited."""
        self._patience_s = 0.0
        self._said_count = 0
        self._left_out_count = 0
        """Number of clauses left out in a row."""
        self.pause = asyncio.Lock()
        """Held while a clause is made; take it to say something else in between."""

    def confirm(self) -> None:
        """The user waits for this reply now: time limits apply, and faults are published."""
        if self._faults is None:
            return
        faults, self._faults = self._faults, None
        for fault in faults:
            self._publish(*fault)
        if self._patience and self._patience.when() is None:
            self._patience.reschedule(_now() + self._patience_s)

    async def run(
        self, tts: TtsStage, buffered_s: Callable[[], float], is_playing: Callable[[], bool]
    ) -> None:
        """Speak all of the text; see ``TextAhead.ready`` for the last two parameters.

        Raises what the engine raises, and ``EngineError`` if the voice does not answer or makes
        nothing usable.
        """
        while True:
            await self._queue.until(tuning.CLAUSE_SOUNDS_AHEAD)
            more = await self._text.ready(buffered_s, is_playing)
            async with self.pause:
                for piece in self._text.take():
                    clause = Clause(piece.text, self._ramp.speech_s(spoken_letters(piece.spoken)))
                    await self._queue.put(clause)
                    if piece.spoken:
                        await self._say(piece, clause, tts)
            if not more:
                break
        if self._left_out_count and not self._said_count:
            raise EngineError("The voice made nothing that could be understood")
        self._queue.end()

    async def _say(self, piece: Piece, clause: Clause, tts: TtsStage) -> None:
        """Say a piece, in several takes if need be; ``clause`` learns how long its sound is."""
        text, kept_s = piece.spoken, 0.0
        config = self._plan.config
        for number in range(tuning.CLAUSE_TAKES):
            began_s = self._queue.made_s
            last = number == tuning.CLAUSE_TAKES - 1
            request = SpeechRequest(text, config.voice, config.speed, piece.language, number)
            watch = self._watch(text, tts.rate)
            try:
                fault = await self._say_once(request, piece.border, watch, tts)
            except EngineCrashed:
                if last:
                    raise
                fault = Fault("late", math.inf, math.inf)  # the next engine says the rest
            made_s = self._queue.made_s - began_s
            if fault is None:
                clause.expected_s = kept_s + made_s
                self._said_count += 1
                self._left_out_count = 0
                return
            since_s = min(fault.since_s, made_s)
            expected_s = watch.expected_s if watch else self._ramp.speech_s(spoken_letters(text))
            keep_s = since_s if _keeps(fault.kind, text, since_s, expected_s) else 0.0
            take_s = made_s - self._queue.drop(began_s + keep_s)
            text = _rest_of(text, min(take_s, since_s), expected_s)
            kept_s += take_s
            clause.expected_s = kept_s
            self._note(fault.kind, number, last and bool(text))
            if not text:
                self._said_count += 1
                return
            if last and fault.kind == "late":
                raise EngineError("The voice does not answer in time")
        clause.left_out = not kept_s
        self._left_out_count += 1
        if self._left_out_count >= tuning.CLAUSE_MOST_LEFT_OUT:
            raise EngineError("The voice makes nothing that can be understood")

    # -- one take

    async def _say_once(
        self, request: SpeechRequest, border: Border, watch: ClauseWatch | None, tts: TtsStage
    ) -> Fault | None:
        """One take, up to its first fault, which is returned."""
        text, rate = request.text, tts.rate
        # Each take has its own resampler, so that its last samples do not wait for the next take.
        joint = Joint(rate, border)
        resampler = Resampler(rate, self._plan.config.output_format.rate)
        stream = tts.synthesize(request, self._work)
        reserve = self._ramp.reserve(spoken_letters(text))
        lengths_s: list[float] = []
        first_s = work_s = 0.0
        fault: Fault | None = None
        async with aclosing(stream) as chunks:
            while fault is None:
                began_at = _now()
                try:
                    pcm = await self._next(anext(chunks, None), text, work_s, not lengths_s)
                except TimeoutError:
                    fault = Fault("late", math.inf, math.inf)
                    break
                except NotSpeech as wrong:
                    fault = Fault(wrong.fault, wrong.since_s, math.inf)
                    break
                # Waiting for the listener does not count.
                work_s += _now() - began_at
                if pcm is None:
                    break
                if watch and (fault := watch.feed(pcm)):
                    break
                if len(sound := joint.feed(pcm)):
                    first_s = first_s if lengths_s else work_s
                    lengths_s.append(len(sound) / rate)
                    for piece in reserve.take(sound, rate):
                        await self._pass_on(resampler.feed(piece))
        for piece in reserve.rest():
            await self._pass_on(resampler.feed(piece))
        if fault or (watch and (fault := watch.finish())):
            return fault
        await self._pass_on(resampler.flush())
        if lengths_s:
            made_s = sum(lengths_s)
            self._ramp.learn(
                VoiceTiming(spoken_letters(text), made_s, work_s, lengths_s[0], first_s)
            )
        return None

    def _watch(self, text: str, rate: int) -> ClauseWatch | None:
        if not self._plan.settings.watched:
            return None
        measured = self._ramp.measured
        pace_s = self._ramp.speech_s(1) / (1.0 if measured else self._plan.config.speed)
        return ClauseWatch(text, rate, pace_s, measured=measured)

    async def _next(
        self, chunk: Awaitable[Pcm | None], text: str, work_s: float, first: bool
    ) -> Pcm | None:
        """The next chunk. Raises ``TimeoutError`` if it takes far longer than usual. While the user
        is not waiting for it there is no limit, because more urgent work goes first."""
        letters = spoken_letters(text)
        usual_s = self._ramp.ready_s(letters) if first else self._ramp.work_s(letters) - work_s
        self._patience_s = max(tuning.CLAUSE_LEAST_PATIENCE_S, tuning.CLAUSE_SLOWER * usual_s)
        try:
            async with asyncio.timeout(None) as self._patience:
                if self._faults is None:
                    self._patience.reschedule(_now() + self._patience_s)
                return await chunk
        finally:
            self._patience = None

    async def _pass_on(self, pcm: Pcm) -> None:
        size = self._plan.config.output_format.rate * self._plan.settings.chunk_ms // 1000
        for start in range(0, len(pcm), size):
            await self._queue.put(pcm[start : start + size])

    def _note(self, kind: FaultKind, take: int, left_out: bool) -> None:
        if self._faults is None:
            self._publish(kind, take, left_out)
        else:
            self._faults.append((kind, take, left_out))


def _now() -> float:
    return asyncio.get_running_loop().time()


_SENTENCE_ENDS = re.compile(r"[.!?…][\"'”’)]*\s*$")


def _keeps(kind: FaultKind, text: str, since_s: float, expected_s: float) -> bool:
    """Whether to keep unsent speech before the fault: only before a silence, and if it ends a
    sentence or the text. Otherwise it is said again together with the rest."""
    if kind not in ("silence", "late"):
        return False
    rest = _rest_of(text, since_s, expected_s)
    return rest != text and (not rest or bool(_SENTENCE_ENDS.search(text[: -len(rest)])))


def _rest_of(text: str, heard_s: float, expected_s: float) -> str:
    """The words of ``text`` that remain after ``heard_s`` of it were heard."""
    share = heard_s / expected_s if expected_s > 0 else 0.0
    if share >= tuning.CLAUSE_WHOLE:
        return ""
    ends = word_ends(text)
    marks = [(abs(spoken - share), end) for end, spoken in ends if text[end - 1] in ".,;:!?…"]
    near = min((mark for mark in marks if mark[1] < len(text)), default=(1.0, 0))
    if near[0] <= tuning.CLAUSE_NEAR < share:
        return text[near[1] :].lstrip()
    return text[max((end for end, spoken in ends if spoken <= share), default=0) :].lstrip()


class Joint:
    """Trims the silence around one piece of speech: none stays before it, and after it as much as
    the text asks for.

    Voices put silence around every text: Piper 35 to 55 ms before it and 80 to 250 ms after it,
    even in the middle of a sentence. Takes chunks of int16 mono at ``rate`` Hz."""

    def __init__(self, rate: int, border: Border) -> None:
        self._kept_before = tuning.JOINT_KEPT_BEFORE_MS * rate // 1000
        self._most_before = tuning.JOINT_MOST_BEFORE_MS * rate // 1000
        most_ms = tuning.JOINT_MOST_BEHIND_MS.get(border)
        self._most_behind = None if most_ms is None else most_ms * rate // 1000
        self._begun = False
        self._before = EMPTY
        self._dropped_samples = 0
        self._silent_samples = 0
        """Samples of silence released since the last sound."""
        self._behind = EMPTY
        """Silence held back, released if another sound follows."""

    def feed(self, pcm: Pcm) -> Pcm:
        """The samples to play now. Silence beyond the limit waits, because it may be the end."""
        pcm = pcm if self._begun else self._from_first_sound(pcm)
        if self._most_behind is None or not len(pcm):
            return pcm
        loud = np.flatnonzero(_is_loud(pcm))
        if len(loud):
            end = int(loud[-1]) + 1
            ready, silence = np.concatenate((self._behind, pcm[:end])), pcm[end:]
            self._silent_samples, self._behind = 0, EMPTY
        else:
            ready, silence = EMPTY, pcm
        pause = silence[: self._most_behind - self._silent_samples]
        self._silent_samples += len(pause)
        self._behind = np.concatenate((self._behind, silence[len(pause) :]))
        return np.concatenate((ready, pause))

    def _from_first_sound(self, pcm: Pcm) -> Pcm:
        pcm = np.concatenate((self._before, pcm))
        loud = np.flatnonzero(_is_loud(pcm))
        start = max(0, (int(loud[0]) if len(loud) else len(pcm)) - self._kept_before)
        self._dropped_samples += start
        self._begun = len(loud) > 0 or self._dropped_samples >= self._most_before
        self._before = EMPTY if self._begun else pcm[start:]
        return pcm[start:] if self._begun else EMPTY


def _is_loud(pcm: Pcm) -> NDArray[np.bool_]:
    return np.abs(pcm.astype(np.int32)) > tuning.JOINT_QUIET
