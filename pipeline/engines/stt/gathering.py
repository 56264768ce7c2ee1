"""Calls that wait for one model at the same time become one pass of it.

The host runs an engine's jobs one step at a time, and equals take turns. So a call says what it
wants and yields once: everybody else who waits for the engine then says the same, and whoever comes
first again runs the pass for all. No call waits for others to join it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.work import Cancelled, CancelToken

Asked = TypeVar("Asked")
Got = TypeVar("Got")

Stop = Callable[[], bool]
"""True once the results of a pass are no longer wanted."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Asked, Got]):
    asked: Asked
    cancel: CancelToken
    got: Got | None = None
    error: Exception | None = None

    @property
    def answered(self) -> bool:
        return self.got is not None or self.error is not None


class Gathering(Generic[Asked, Got]):
    """One kind of call to a model. Used in the host's thread only.

    ``run(asked, stop)`` answers several calls at once, in their order, and raises ``Cancelled`` as
    soon as it sees that ``stop()`` is true. ``fits(asked)``: whether these go into one pass.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Asked], Stop], Sequence[Got]],
        fits: Callable[[Sequence[Asked]], bool],
    ) -> None:
        self._run = run
        self._fits = fits
        self._waiting: list[_Call[Asked, Got]] = []
        self.passes = 0
        """How often the model ran."""

    def ask(self, asked: Asked, cancel: CancelToken) -> Iterator[Got | None]:
        """``None`` while others may join, then the answer. Raises what the pass raises, and
        ``Cancelled``."""
        call: _Call[Asked, Got] = _Call(asked, cancel)
        self._waiting.append(call)
        try:
            yield None
            if not call.answered:
                self._pass(call)
        finally:
            if call in self._waiting:
                self._waiting.remove(call)
        if call.error:
            raise call.error
        yield call.got

    def _pass(self, first: _Call[Asked, Got]) -> None:
        members = self._members(first)
        for member in members:
            self._waiting.remove(member)
        self.passes += 1
        try:
            answers = self._run(
                [member.asked for member in members],
                lambda: all(member.cancel.cancelled for member in members),
            )
        except Exception as error:
            for member in members:
                member.error = error
            return
        for member, answer in zip(members, answers, strict=True):
            member.got = answer

    def _members(self, first: _Call[Asked, Got]) -> list[_Call[Asked, Got]]:
        if first.cancel.cancelled:
            raise Cancelled
        members = [first]
        for call in self._waiting:
            wanted = call is not first and not call.cancel.cancelled
            if wanted and self._fits([member.asked for member in (*members, call)]):
                members.append(call)
        return members
