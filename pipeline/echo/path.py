"""One session's echo path: takes sent and heard audio, yields windows without the echo. Pure.

Nothing is removed until the echo is found (``delay``). A client whose microphone hears no echo, for
example behind an XVF3800, costs one search per answer, and its sound is never touched.

A remote client plays audio as soon as it arrives, so sent audio can be placed on its microphone's
sample clock (``sent``). What this machine's loudspeaker plays is known (``card``). The echo is
delayed by the network, the player's buffer and the room. The reference is read with a delay, so
that the echo follows it by 40 ms; each answer is searched again, because players vary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, AudioFrame, AudioHistory, Framer, Pcm
from pipeline.echo import tuning
from pipeline.echo.canceller import REREAD_SAMPLES, EchoCanceller, EchoState
from pipeline.echo.delay import MOST_DELAY_SAMPLES, DelayFinder
from pipeline.echo.kalman import BLOCK
from pipeline.echo.likeness import LOOK_BACK_SAMPLES, Likeness, compare

EARLIER_SAMPLES = 40 * LISTEN_RATE // 1000
"""How long before the echo the canceller gets the reference: a player's delay varies from answer to
answer. The canceller handles 6 to 300 ms."""
_FIRST_SOUND_SAMPLES = 3 * LISTEN_RATE // 10
_LOOK_SAMPLES = LISTEN_RATE
"""An answer's echo is searched for once 0.3 s of its sound was sent, and then every second.
Earlier, ``likeness`` recognises an echo by its first sound."""
_FAILING_SAMPLES = LISTEN_RATE
"""A canceller that has not worked for this much echo has lost it, or a speaker is louder."""
_ANSWER_GAP_SAMPLES = LISTEN_RATE
"""Silence that separates two answers."""
_MOVED_SAMPLES = 2 * LISTEN_RATE // 1000
_FOUND_ELSEWHERE_SAMPLES = 10 * LISTEN_RATE // 1000
"""Least change of the delay that is followed: for an echo heard just now, and for one that a search
found in the last seconds of sound."""
_COMPARED_SAMPLES = LISTEN_RATE
"""Microphone sound kept for ``likeness``, which needs less."""
KEPT_SAMPLES = 6 * LISTEN_RATE
"""Played sound kept, at least."""


@dataclass(frozen=True, slots=True)
class EchoMemory:
    """What is remembered about a place for the next session there."""

    state: EchoState
    delay_samples: int
    later_samples: int
    """How long after its reference the state expects the echo."""


@dataclass(frozen=True, slots=True)
class EchoWindow:
    frame: AudioFrame
    """int16, 16 kHz, without the echo."""
    post_filtered: Pcm | None = None
    """The same with most of the residual echo removed, for a second VAD; ``None``: there can be no
    echo."""
    llr: float = tuning.CANCELLER_NO_DOUBT
    """How much louder its newest block is than echo and noise explain, 0 to 15."""


class Playback(NamedTuple):
    """What a loudspeaker of this machine played during the microphone's next samples."""

    pcm: Pcm | None = None
    """Int16, 16 kHz; ``None``: unknown, as it is of a remote client."""
    moved: int | None = None
    """There was a gap before it (``EchoPath.reference_moved``)."""


NOTHING_KNOWN = Playback()

OnsetKind = Literal["echo", "speech", "unknown"]


class Reference(ABC):
    """The played sound, on the microphone's sample clock."""

    plays_on: bool
    """Whether the stream continues through silence, as a sound card's does."""

    def __init__(self, kept_samples: int) -> None:
        """``kept_samples`` of the past can be read."""
        self._past = AudioHistory(kept_samples)
        self.last_sound = -kept_samples
        """End of the newest past sound."""

    @abstractmethod
    def arrives(self, end: int, now: float) -> None:
        """The microphone's samples before ``end`` are here; ``now``: the loop's clock, seconds."""

    @abstractmethod
    def pass_to(self, end: int) -> None:
        """Everything before ``end`` is past."""

    def read(self, start: int, end: int) -> Pcm:
        """Past samples ``start`` to ``end``: int16, 16 kHz; silence where they are not kept."""
        pcm = self._past.read(start, end)
        silence = np.zeros(end - start - len(pcm), np.int16)
        return np.concatenate((silence, pcm)) if len(silence) else pcm


R = TypeVar("R", bound=Reference)


class EchoPath(Generic[R]):
    """One reference and one microphone."""

    reference_type: type[R]

    def __init__(
        self,
        window_samples: int,
        room: EchoMemory | None = None,
        keep: Callable[[EchoMemory | None], None] = lambda room: None,
    ) -> None:
        """``room``: what is known about the place; ``keep`` is called at the end with what was
        learned, or ``None`` if the echo is gone."""
        self._window_samples = window_samples
        self._framer = Framer(window_samples)
        self._reference = self.reference_type(KEPT_SAMPLES)
        self._finder = DelayFinder()
        self._search: Generator[None, None, int | None] | None = None
        self._end = 0
        self._microphone = AudioHistory(_COMPARED_SAMPLES)
        self._residual = AudioHistory(_COMPARED_SAMPLES)
        """The microphone's sound without the echo removed so far."""
        self._looks = self._looked = self._sound_samples = self._unfound = 0
        self._memory = room
        self._keep = keep
        self._canceller: EchoCanceller | None = None
        self._delay = 0
        """The echo's delay, in samples."""
        self._read_later = 0
        """The delay with which the reference is read, in samples."""
        self._slipped_samples = 0
        self._has_worked = False
        """Whether the canceller has ever worked; if not, the sound found may not be an echo."""
        self._failing_samples = 0
        """Samples of echo since the canceller last worked; without pauses and reported gaps."""
        self._rest = EMPTY
        """Samples held, less than a block."""
        self._post_filtered = EMPTY
        self._sounding = False
        if room:
            self._begin(room.delay_samples)

    @property
    def found(self) -> bool:
        """Whether an echo is being removed."""
        return self._canceller is not None

    def classify_onset(self, at: int) -> OnsetKind:
        """What the sound that began at sample ``at`` is; ``unknown``: too short to tell. If it is
        an echo, removal begins. Once an echo is being removed, the residual is compared: it
        resembles the answer if the player has lost or gained time."""
        is_echo = self._is_echo(at)
        return "unknown" if is_echo is None else "echo" if is_echo else "speech"

    def _is_echo(self, onset: int) -> bool | None:
        if self._canceller is None and self._unfound >= tuning.PATH_NEVER_FOUND:
            return False
        if not self._reference.read(onset - MOST_DELAY_SAMPLES, onset).any():
            return False
        begin = onset - LOOK_BACK_SAMPLES
        heard = self._microphone.read(begin, self._end)
        likeness = self._likeness(heard, self._end)
        if self._canceller is None:
            if likeness.is_echo:
                self._found_at(likeness.delay_samples)
                self._learn_from(heard)
            return likeness.is_echo
        rest = self._likeness(self._residual.read(begin, self._residual.end), self._residual.end)
        has_moved = abs(self._later(self._canceller, likeness.delay_samples)) > _MOVED_SAMPLES
        if not has_moved and rest.value < tuning.PATH_NOT_REMOVED * likeness.value:
            return False
        if has_moved and rest.is_echo:
            # A search of the last seconds would find the echo where it was.
            self._finder, self._search = DelayFinder(), None
            self._found_at(likeness.delay_samples, surely=True)
        return rest.is_echo

    def _likeness(self, sound: Pcm, end: int) -> Likeness:
        """How much ``sound``, heard up to sample ``end``, resembles the answer."""
        return compare(self._reference.read(end - len(sound) - MOST_DELAY_SAMPLES, end), sound)

    def _learn_from(self, heard: Pcm) -> None:
        """Train on the newest sound, which is echo and nothing else."""
        begin = self._end - len(heard) - self._read_later
        for at in range(len(heard) % BLOCK, len(heard), BLOCK):
            reference = self._reference.read(begin + at, begin + at + BLOCK)
            if self._canceller:
                self._canceller.process(heard[at : at + BLOCK], reference)

    @property
    def delay_ms(self) -> int | None:
        """How long after being sent a sound comes back; ``None`` if it does not."""
        return self._delay * 1000 // LISTEN_RATE if self._canceller else None

    def close(self) -> None:
        """Nothing more will be heard: remember the room, or forget it."""
        if self._canceller and self._has_worked:
            self._keep(self._room(self._canceller))
        elif self._memory and not self._canceller:
            self._keep(None)

    def _room(self, canceller: EchoCanceller) -> EchoMemory:
        delay = self._delay + canceller.slipped_samples - self._slipped_samples
        return EchoMemory(canceller.state(), delay, delay - self._read_later)

    # -- what is heard

    def process(self, pcm: Pcm, playback: Playback, now: float) -> Iterator[EchoWindow]:
        """Take any number of the microphone's samples at 16 kHz; yield each window they complete.
        ``playback``: what ``CardEcho`` needs to know; ``now``: seconds of the loop's clock."""
        self._reference.arrives(self._end + len(pcm), now)
        for start in range(0, len(pcm), self._window_samples):
            piece = pcm[start : start + self._window_samples]
            self._listen(piece)
            if self._canceller:
                yield from self._clean(self._canceller, piece)
            else:
                rest, self._rest = self._rest, EMPTY
                whole = np.concatenate((rest, piece))
                self._residual.append(whole)
                for frame in self._framer.feed(whole):
                    yield EchoWindow(frame)

    def _listen(self, piece: Pcm) -> None:
        begin = self._end
        self._end += len(piece)
        self._microphone.append(piece)
        self._reference.pass_to(self._end)
        played = self._reference.read(begin, self._end)
        if begin - self._reference.last_sound < KEPT_SAMPLES:
            self._finder.feed(played, piece)
            self._look(played, piece)

    def _clean(self, canceller: EchoCanceller, piece: Pcm) -> Iterator[EchoWindow]:
        """The canceller takes whole blocks, so up to 10 ms wait."""
        first = self._end - len(piece) - len(self._rest)
        whole = np.concatenate((self._rest, piece))
        for start in range(0, len(whole) - BLOCK + 1, BLOCK):
            at = first + start - self._read_later
            reference = self._reference.read(at, at + BLOCK)
            clean = canceller.process(whole[start : start + BLOCK], reference)
            self._sounding |= not clean.idle
            if canceller.works:
                self._has_worked, self._failing_samples = True, 0
            elif not clean.idle:
                self._failing_samples += BLOCK
            self._residual.append(clean.residual)
            self._post_filtered = np.concatenate((self._post_filtered, clean.post_filtered))
            for frame in self._framer.feed(clean.residual):
                yield self._window(frame, clean.llr)
        self._rest = whole[len(whole) // BLOCK * BLOCK :]

    def _window(self, frame: AudioFrame, llr: float) -> EchoWindow:
        count = len(frame.pcm)
        more, self._post_filtered = self._post_filtered[:count], self._post_filtered[count:]
        sounding, self._sounding = self._sounding, False
        return EchoWindow(frame, more, llr) if sounding else EchoWindow(frame)

    def reference_moved(self, more_samples: int) -> None:
        """Report a known gap. From now on the echo follows the reference ``more_samples`` later; 0:
        the reference has been corrected."""
        self._delay += more_samples
        if more_samples:
            self._finder, self._search = DelayFinder(), None
        if self._canceller:
            self._canceller.realign(more_samples)

    # -- where the echo is

    def _look(self, played: Pcm, piece: Pcm) -> None:
        if self._sound_samples and self._end - self._reference.last_sound > _ANSWER_GAP_SAMPLES:
            self._looks = self._sound_samples = 0
            # The next answer may come later or earlier than this one.
            self._finder, self._search = DelayFinder(), None
        if self._search is None:
            # A muted microphone hears no echo.
            self._sound_samples += len(played) if played.any() and piece.any() else 0
            has_rested = self._end - self._looked >= _LOOK_SAMPLES
            is_due = has_rested and self._sound_samples >= _FIRST_SOUND_SAMPLES
            if not is_due or self._looked_enough or not piece.any():
                return
            self._looked, self._looks = self._end, self._looks + 1
            self._search = self._finder.search()
        try:
            next(self._search)
        except StopIteration as stop:
            self._search = None
            if stop.value is None:
                self._not_found()
            else:
                self._found_at(stop.value)

    @property
    def _fails(self) -> bool:
        return self._failing_samples > _FAILING_SAMPLES

    @property
    def _looked_enough(self) -> bool:
        if self._canceller is None:
            return self._looks >= tuning.PATH_LOOKS_IN_VAIN
        return self._looks >= tuning.PATH_LOOKS and not self._fails

    def _not_found(self) -> None:
        # A short answer may have been cut off by its own echo. Later in an answer, a speaker may
        # hide the echo for long.
        self._unfound += self._sound_samples >= _LOOK_SAMPLES and self._looks <= tuning.PATH_LOOKS
        if self._unfound >= tuning.PATH_UNFOUND and self._canceller:
            self._leave(self._canceller)

    def _found_at(self, delay: int, surely: bool = False) -> None:
        """``surely``: what is heard now is this echo."""
        self._unfound = 0
        if self._canceller:
            self._follow(self._canceller, delay, surely)
        else:
            self._begin(delay)
        self._memory = None

    def _begin(self, delay: int) -> None:
        self._canceller, self._has_worked = EchoCanceller(self._reference.plays_on), False
        later = EARLIER_SAMPLES
        if self._memory:
            self._canceller.restore(self._memory.state)
            later = self._memory.later_samples
        self._delay, self._read_later, self._slipped_samples = delay, max(0, delay - later), 0
        self._post_filtered = self._framer.remainder

    def _later(self, canceller: EchoCanceller, delay: int) -> int:
        """How much later an echo with this delay comes than the canceller expects."""
        expected = canceller.echo_at_samples
        return 0 if expected is None else round(delay - expected) - self._read_later

    def _follow(self, canceller: EchoCanceller, delay: int, surely: bool) -> None:
        """Read the reference elsewhere if this answer's delay differs by more than the canceller
        has followed by itself; its filter shows where it expects the echo."""
        later = self._later(canceller, delay)
        self._delay, self._slipped_samples = delay, canceller.slipped_samples
        if not surely:
            sure = not canceller.works and (self._fails or self._looks <= tuning.PATH_LOOKS)
            if abs(later) <= _FOUND_ELSEWHERE_SAMPLES or not sure:
                return
        self._looks = min(self._looks, tuning.PATH_LOOKS // 2)
        if self._memory:
            # The network differs from last time: what was learned since is wrong.
            self._begin(delay)
            return
        self._read_later = max(0, self._read_later + later)
        end = self._residual.end - self._read_later
        canceller.reread(self._reference.read(end - REREAD_SAMPLES, end))

    def _leave(self, canceller: EchoCanceller) -> None:
        self._memory = self._room(canceller)
        self._canceller = None
        self._post_filtered = EMPTY
