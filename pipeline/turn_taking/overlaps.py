"""Speech that has begun over an answer, until it is known whether it interrupts.

Nothing of it is told, and nothing more of the answer is sent. Its words are read every now and
then, and in each pause. If it interrupts, it is told as if it had been from its beginning; if not,
the answer goes on where it was held back, and nobody saw anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pipeline.audio import LISTEN_RATE
from pipeline.bus import Bus
from pipeline.errors import ReachyVoiceError
from pipeline.events import SpeechIgnored
from pipeline.hearing.listening import Listener
from pipeline.settings import BargeIn
from pipeline.turn_taking.barge_in import Overlap, Verdict, judge
from pipeline.turn_taking.user_turn import UserTurn, Weighing
from pipeline.work import Cancelled

_READ_WITHIN_MS = 800
"""Words that are not read by then are not waited for; then its length decides."""
_LOOKS_IN_A_ROW = 3
"""What is not understood after so many is looked at ever more rarely: each look costs a pass."""


class Answering(Protocol):
    """What is asked of the session."""

    def hold(self) -> bool:
        """Send no more of the answer that is being heard. False if there is none that speech may
        interrupt."""
        ...

    def go_on(self) -> None:
        """Send on."""
        ...

    @property
    def weighs(self) -> bool:
        """Whether an answer is being heard that not all speech interrupts. One that has hardly
        begun it does, unless an echo is being taken off."""
        ...

    @property
    def hears_itself(self) -> bool:
        """Whether an echo of answers is being taken off."""
        ...

    @property
    def spoken(self) -> str:
        """What has been heard of the answer lately."""
        ...


class Overlaps:
    """One session's. ``on_interruption(turn)`` is called once for speech that interrupts."""

    def __init__(
        self,
        session: Answering,
        listener: Listener,
        bus: Bus,
        tasks: asyncio.TaskGroup,
        settings: BargeIn,
        on_interruption: Callable[[UserTurn], None],
    ) -> None:
        self._session = session
        self._listener = listener
        self._bus = bus
        self._tasks = tasks
        self._settings = settings
        self._on_interruption = on_interruption
        self._suspecting = False

    @property
    def suspecting(self) -> bool:
        """Whether an answer is held back for what may become speech."""
        return self._suspecting

    def suspect(self) -> None:
        """Nobody speaks yet. If the newest sound may be speech, the answer is held back already:
        one window of it is not missed by anybody."""
        suspects = self._listener.suspects and self._settings.policy != "any-speech"
        if suspects == self._suspecting:
            return
        self._suspecting = suspects and self._session.hold()
        if not suspects:
            self._session.go_on()

    def begin(self, turn: UserTurn) -> bool:
        """Speech has begun at ``turn.onset``. Whether it has to be weighed."""
        self._suspecting = False
        if self._settings.policy == "any-speech" or not self._session.weighs:
            self._session.go_on()
            return False
        self._session.hold()
        turn.weighing = Weighing(turn.onset + _samples(self._settings.first_look_ms))
        return True

    def follow(self, turn: UserTurn) -> None:
        """More of it has been heard. Read its words, if it is time."""
        weighing = turn.weighing
        if weighing is None or turn.attempt or self._listener.heard_end < weighing.look_at:
            return
        weighing.looks += 1
        every_ms = self._settings.look_every_ms * max(1, weighing.looks // _LOOKS_IN_A_ROW)
        weighing.look_at = self._listener.heard_end + _samples(every_ms)
        if not weighing.looking:
            weighing.looking = True
            weighing.looked_at = self._listener.heard_end
            self._tasks.create_task(self._look(turn, weighing))
        elif self._listener.heard_end - weighing.looked_at >= _samples(_READ_WITHIN_MS):
            self._weigh(turn, None, ended=False)

    def read(self, turn: UserTurn, text: str | None) -> None:
        """All words up to a pause are known; ``None``: they cannot be read."""
        self._weigh(turn, text, ended=True)

    def resumed(self, turn: UserTurn) -> None:
        """It goes on after a pause. The answer may go on already."""
        if turn.weighing:
            self._session.hold()
            soon = self._listener.heard_end + _samples(self._settings.look_every_ms)
            turn.weighing.look_at = min(turn.weighing.look_at, soon)

    def claim(self, turn: UserTurn) -> None:
        """The client says that it is speech."""
        if turn.weighing:
            self._stop(turn)
            self._on_interruption(turn)

    def drop(self, turn: UserTurn) -> bool:
        """It is thrown away. True if nobody has been told of it."""
        if turn.weighing is None:
            return False
        self._stop(turn)
        self._session.go_on()
        return True

    def end(self, turn: UserTurn, text: str | None) -> bool:
        """It is over. True if it was no interruption; then that is noted."""
        if turn.weighing is None:
            return False
        verdict = self._weigh(turn, text, ended=True)
        if verdict == "interrupts" or verdict == "unsure":
            self.claim(turn)
            return False
        self._stop(turn)
        began_ms, ended_ms = _ms(turn.onset), _ms(turn.fed_to)
        self._bus.publish(SpeechIgnored(began_ms, ended_ms, text or "", verdict))
        return True

    async def _look(self, turn: UserTurn, weighing: Weighing) -> None:
        text = None
        try:
            text = (await turn.recognition.transcript(weighing.work)).text
        except (ReachyVoiceError, Cancelled):
            pass  # then its length decides
        finally:
            weighing.looking = False
        if not weighing.work.cancelled and turn.attempt is None:
            self._weigh(turn, text, ended=False)

    def _weigh(self, turn: UserTurn, text: str | None, ended: bool) -> Verdict:
        if turn.weighing is None:
            return "interrupts"
        spoken_to = turn.attempt.speech_end if turn.attempt else self._listener.heard_end
        speech_ms = _ms(spoken_to - turn.onset)
        spoken, hears_itself = self._session.spoken, self._session.hears_itself
        overlap = Overlap(speech_ms, ended, text, spoken, hears_itself)
        verdict = judge(overlap, self._settings)
        if verdict == "interrupts":
            self._stop(turn)
            self._on_interruption(turn)
        elif verdict != "unsure":
            self._session.go_on()
        return verdict

    def _stop(self, turn: UserTurn) -> None:
        if turn.weighing:
            turn.weighing.work.cancel()
            turn.weighing = None


def _samples(ms: int) -> int:
    return ms * LISTEN_RATE // 1000


def _ms(samples: int) -> int:
    return samples * 1000 // LISTEN_RATE
