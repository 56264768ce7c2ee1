"""Echo through a sound card: ``talk`` as it runs, in a simulated room, in real time.

    python -m benchmarks.talk_echo --corpus DIR [--minutes 10] [--rooms N] [--seed N] [--out FILE]

PortAudio opens a private PulseAudio (``tests/support/virtual_sound.py``). A room stands between its
two null sinks: what the loudspeaker gives is bent, sent through a simulated room
(``benchmarks.echo_rooms``), and fed to the microphone with noise and with people who interrupt.
Card, session, Silero, Smart Turn, Moonshine and Piper are the real ones; the language model tells
stories.

- ``stopped``, ``held``: answers cut off, or made softer, while nobody but the robot spoke (people
  often pause and go on: their words count until 1 s after their end); ``after``: the end of one
  taken for somebody's turn.
- ``stood_still``: the host stopped this machine for more than 25 ms, or the simulated air stood
  still. Then sound is lost, and the echo jumps, untold, which no room does. ``calm`` is what was
  not within 10 s after that.
- Interruptions at +6, 0 and -6 dB to the echo: from when the onset comes out of the card until the
  answer is made softer (``noticed``) and until it is cut off (``stopped``); and when the same rule
  notices the same words without any echo (``clean``, without a card).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from app.cli.models import open_cache
from app.compose import Assistant
from app.settings.load import load_settings
from app.talk.local import LocalConversation
from app.talk.talking import Talking
from benchmarks.air import Air
from benchmarks.echo_listen import IN_TIME_S, SER_DB, PlainSilero, clean_late_s
from benchmarks.echo_rooms import LOUDSPEAKERS, Loudspeaker, bent, draw_room, in_band
from benchmarks.echo_scenes import FRESH_TEXTS, Clip, active_dbfs, clips_of_people
from benchmarks.machine import Machine
from benchmarks.turns.acoustics import Signal, gained, noise, to_pcm, to_signal
from hardware.sound.card import SoundCard
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import CreateResponse
from pipeline.echo.given import CardEcho
from pipeline.echo.path import EchoWindow
from pipeline.events import ReplyFinished, ReplyHeld, ReplyStarted, SpeechStarted
from pipeline.hearing.card import CardHearing
from tests.support.scripted import ScriptedLlm
from tests.support.virtual_sound import NAME, VirtualSound

BLOCK = LISTEN_RATE // 100
AIR_MS = 150
"""So a machine that stands still for less does not move the echo, which no room does."""
ECHO_DBFS = -22.0
NOISE_UNDER_ECHO_DB = 35.0
SENTENCES = 5
BEGIN_S = (2.0, 6.0)
STOPPED_S = 1.0
"""After the end of what was said."""
BETWEEN_S = 3.0
"""Without an answer, before another one."""
LONG_STOP_S = 0.025
"""Of the machine. Shorter ones the buffers of the card bridge."""
CALM_S = 10.0
"""After something stood still: an echo out of the filter's reach takes seconds to be found."""
HEARD_S = 30.0
FOUND_WITHIN_S = 0.5
"""From the simulated room to the pipeline it is less than that."""
PAUSE_S = 0.3
"""Between two words of the robot; where it is silent for longer, nobody interrupts it."""


class RoomAir:
    """A simulated room, its noise and its people: what ``Air`` does with 10 ms."""

    def __init__(self, response: Signal, loudspeaker: Loudspeaker) -> None:
        self._loudspeaker = loudspeaker
        self._size = 1 << (len(response) + BLOCK).bit_length()
        self._spectrum = np.fft.rfft(response, self._size)
        self._past = np.zeros(self._size - BLOCK, np.float32)
        self._near: list[Signal] = []
        self._lock = threading.Lock()
        self.floor = gained(
            noise("pink", 10 * LISTEN_RATE, np.random.default_rng(1)),
            ECHO_DBFS - NOISE_UNDER_ECHO_DB,
        )
        self._at = 0
        self.sounded_at: list[float] = []
        """Each 10 ms of the robot."""

    def say(self, signal: Signal) -> None:
        """From the next block on."""
        with self._lock:
            self._near.append(signal)

    def __call__(self, pcm: Pcm) -> Pcm:
        return to_pcm(self._mixed(to_signal(pcm)))

    def _mixed(self, played: Signal) -> Signal:
        if np.abs(played).max() > 1e-3:
            self.sounded_at.append(time.monotonic())
        whole = np.concatenate((self._past, bent(played, self._loudspeaker)))
        self._past = whole[BLOCK:]
        echo = np.fft.irfft(np.fft.rfft(whole, self._size) * self._spectrum, self._size)[-BLOCK:]
        floor = self.floor[self._at : self._at + BLOCK]
        self._at = (self._at + BLOCK) % (len(self.floor) - BLOCK)
        with self._lock:
            said = self._near[0][:BLOCK] if self._near else np.zeros(0, np.float32)
            if self._near:
                self._near[0] = self._near[0][BLOCK:]
                if not len(self._near[0]):
                    self._near.pop(0)
        mixed = (echo + floor).astype(np.float32)
        mixed[: len(said)] += said
        return mixed


class TimedEcho(CardEcho):
    """Keeps what the microphone gave, and when."""

    def __init__(self, window_samples: int) -> None:
        super().__init__(window_samples)
        self._came: deque[tuple[float, Pcm]] = deque(maxlen=int(HEARD_S / 0.01))

    def windows(self, pcm: Pcm, now: float) -> Iterator[EchoWindow]:
        self._came.append((time.monotonic(), pcm))
        return super().windows(pcm, now)

    def onset_of(self, said: Signal, onset: int, after: float) -> float:
        """When sample ``onset`` of what was said at ``after`` came."""
        pieces = [piece for piece in self._came if piece[0] >= after]
        heard = np.diff(to_signal(np.concatenate([pcm for _, pcm in pieces])))
        known = np.diff(said[: onset + LISTEN_RATE])
        size = 1 << (len(heard) + len(known)).bit_length()
        likeness = np.fft.irfft(np.fft.rfft(heard, size) * np.fft.rfft(known, size).conj(), size)
        place = int(likeness[: int(FOUND_WITHIN_S * LISTEN_RATE)].argmax()) + onset
        ends = np.cumsum([len(pcm) for _, pcm in pieces])
        return pieces[int(np.searchsorted(ends, place, side="right"))][0]


@dataclass
class Interruption:
    """``onset_s``: in the talk. ``noticed_ms``, ``stopped_ms``: from the onset until the answer is
    softer, and until it is cut off; ``None``: it went on. ``clean_ms``: until the rule notices it
    without any echo."""

    clip: str
    onset_s: float
    ser_db: int
    noticed_ms: float | None
    stopped_ms: float | None
    clean_ms: float | None


@dataclass
class Evening:
    seed: int
    seconds: float = 0.0
    robot_s: float = 0.0
    calm_robot_s: float = 0.0
    delay_ms: int | None = None
    found_s: float | None = None
    stopped_s: list[float] = field(default_factory=list)
    held_s: list[float] = field(default_factory=list)
    after_s: list[float] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    dropped_samples: int = 0
    never_quiet: int = 0
    """How often there was no end of answers for two minutes."""
    stood_still_s: list[float] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)

    def calm(self, at_s: float) -> bool:
        """Not within 10 s after something stood still."""
        still_s = np.array(self.stood_still_s)
        return not ((still_s <= at_s) & (at_s < still_s + CALM_S)).any()

    def calm_part(self) -> Evening:
        """Without what was noticed, or said, in moments that were not calm."""
        return replace(
            self,
            stopped_s=list(filter(self.calm, self.stopped_s)),
            held_s=list(filter(self.calm, self.held_s)),
            after_s=list(filter(self.calm, self.after_s)),
            interruptions=[said for said in self.interruptions if self.calm(said.onset_s)],
        )


class Room:
    """One seed's: responses from loudspeaker and talker, both scaled to the echo's level."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 83])
        room = draw_room(rng)
        self.loudspeaker = LOUDSPEAKERS[int(rng.integers(len(LOUDSPEAKERS)))]
        response = in_band(np.pad(room.response(room.loudspeaker), (0, 64)))
        sample = bent(gained(noise("pink", LISTEN_RATE, rng), -20.0), self.loudspeaker)
        level = active_dbfs(np.convolve(sample, response[:2000])[: len(sample)].astype(np.float32))
        self.echo = (response * 10 ** ((ECHO_DBFS - level) / 20)).astype(np.float32)
        self.near = room.response(room.talker)

    def said(self, clip: Clip, ser_db: int) -> tuple[Signal, int]:
        """What comes to the microphone, and the sample of its onset."""
        said = np.convolve(clip.signal, self.near)[: len(clip.signal) + 4800].astype(np.float32)
        onset = clip.onset + int(np.abs(self.near).argmax())
        return gained(said, ECHO_DBFS + ser_db - active_dbfs(said)), onset


@contextmanager
def linked(through: RoomAir) -> Iterator[Air]:
    with (
        tempfile.TemporaryDirectory() as folder,
        VirtualSound(Path(folder)) as card,
        Air(card, LISTEN_RATE, through, AIR_MS) as air,
    ):
        yield air


async def evening(seed: int, seconds: float, clips: Sequence[Clip]) -> Evening:
    """One talk in one room. Every second answer is interrupted, where there are clips."""
    settings = load_settings("default", ["sound.microphone=" + NAME, "sound.speaker=" + NAME])
    told, room, rng = Evening(seed), Room(seed), np.random.default_rng([seed, 84])
    chosen = settings.settings
    assistant = Assistant(chosen, open_cache(chosen))
    through = RoomAir(room.echo, room.loudspeaker)
    with Machine() as machine, linked(through) as air:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(assistant.run())
            await assistant.ready.wait()
            assistant.stages.llm = Storyteller(rng)
            card = SoundCard(chosen.sound, lambda notice: None)
            opened = group.create_task(card.run())
            path = TimedEcho(assistant.stages.vad.window_samples)
            conversation = LocalConversation(assistant, CardHearing(path))
            vad = PlainSilero.load(open_cache(chosen).path("silero-vad"))
            story = _Story(told, room, through, path, clips, rng, vad)
            talking = Talking(card, conversation, story.note)
            tasks = [group.create_task(conversation.run()), group.create_task(talking.run())]
            await story.run(conversation, seconds)
            told.delay_ms, told.dropped_samples = path.delay_ms, card.state().dropped_samples
            for task in (*tasks, opened):
                task.cancel()
            assistant.close()
            running.cancel()
    stops = [end for begin, end in machine.stops if end - begin > LONG_STOP_S]
    still_s = {round(at - story.began, 1) for at in (*air.dry_at, *air.late_at, *stops)}
    told.stood_still_s = sorted(at_s for at_s in still_s if at_s > -CALM_S)
    told.machine = machine.report
    told.seconds, robot_s = seconds, [at - story.began for at in through.sounded_at]
    told.robot_s = round(len(robot_s) / 100, 1)
    told.calm_robot_s = round(sum(map(told.calm, robot_s)) / 100, 1)
    return told


class Storyteller(ScriptedLlm):
    """Five sentences for each answer, another five each time."""

    def __init__(self, rng: np.random.Generator) -> None:
        texts = [FRESH_TEXTS[int(n)] for n in rng.permutation(len(FRESH_TEXTS))]
        words = [f"{word} " for text in texts[:SENTENCES] for word in text.split()]
        super().__init__(deltas=tuple(words))


@dataclass
class _Story:
    told: Evening
    room: Room
    air: RoomAir
    path: TimedEcho
    clips: Sequence[Clip]
    rng: np.random.Generator
    vad: PlainSilero
    began: float = field(default_factory=time.monotonic)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    said_until: float = -1.0
    """So long what is noticed may be somebody."""
    noticed_at: float | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    stopped_at: float | None = None

    def note(self, at: float, event: Any) -> None:
        moment = time.monotonic()
        now = round(moment - self.began, 2)
        if self.path.found and self.told.found_s is None:
            self.told.found_s = now
        match event:
            case SpeechStarted() if moment > self.said_until:
                (self.told.after_s if self.quiet.is_set() else self.told.stopped_s).append(now)
                self.stopped.set()
            case SpeechStarted():
                if not self.quiet.is_set():
                    self.noticed_at = self.noticed_at or moment
                    self.stopped_at = self.stopped_at or moment
                self.stopped.set()
            case ReplyHeld() if moment > self.said_until:
                self.told.held_s.append(now)
            case ReplyHeld():
                self.noticed_at = self.noticed_at or moment
            case ReplyStarted():
                self.quiet.clear()
            case ReplyFinished():
                self.quiet.set()

    async def run(self, conversation: LocalConversation, seconds: float) -> None:
        answers = 0
        await asyncio.sleep(2.0)
        while time.monotonic() - self.began < seconds:
            self.quiet.clear()
            self.stopped.clear()
            await conversation.submit(CreateResponse())
            answers += 1
            if self.clips and answers % 2 == 0:
                await self._interrupt()
            try:
                async with asyncio.timeout(120):
                    await self._silence()
            except TimeoutError:
                self.told.never_quiet += 1

    async def _silence(self) -> None:
        """Who interrupts is heard out, and gets answers, too."""
        await asyncio.sleep(self.said_until - time.monotonic())
        while True:
            await self.quiet.wait()
            await asyncio.sleep(BETWEEN_S)
            if self.quiet.is_set():
                return

    async def _interrupt(self) -> None:
        clip = self.clips[int(self.rng.integers(len(self.clips)))]
        ser_db = SER_DB[len(self.told.interruptions) % len(SER_DB)]
        said, onset = self.room.said(clip, ser_db)
        await asyncio.sleep(float(self.rng.uniform(*BEGIN_S)))
        sounded = self.air.sounded_at
        silent = not sounded or time.monotonic() - sounded[-1] > PAUSE_S
        if self.quiet.is_set() or self.stopped.is_set() or silent:
            return
        self.noticed_at = self.stopped_at = None
        said_at = time.monotonic()
        self.said_until = said_at + len(said) / LISTEN_RATE + STOPPED_S
        self.air.say(said)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.said_until - said_at):
                await self.stopped.wait()
        # Enough of it must be heard to find it again.
        await asyncio.sleep(max(0.0, said_at + onset / LISTEN_RATE + 1.5 - time.monotonic()))
        came = self.path.onset_of(said, onset, said_at)
        clean_s = await asyncio.to_thread(clean_late_s, self.vad, self.air.floor, said, onset)
        self.told.interruptions.append(
            Interruption(
                clip.name,
                round(came - self.began, 2),
                ser_db,
                self._late_ms(self.noticed_at, came, self.told.held_s),
                self._late_ms(self.stopped_at, came, self.told.stopped_s),
                None if clean_s is None else round(clean_s * 1000),
            )
        )

    def _late_ms(self, at: float | None, came: float, false_s: list[float]) -> int | None:
        """What was noticed before anything came was nobody."""
        if at is not None and at < came:
            false_s.append(round(at - self.began, 2))
            return None
        return None if at is None else round((at - came) * 1000)


def figures(evenings: Sequence[Evening]) -> dict[str, Any]:
    return {
        "rooms": len(evenings),
        "all": _figures(evenings, [each.robot_s for each in evenings]),
        "calm": _figures(
            [each.calm_part() for each in evenings], [each.calm_robot_s for each in evenings]
        ),
        "echo_found": sum(each.delay_ms is not None for each in evenings),
        "delay_ms": [each.delay_ms for each in evenings],
        "dropped_samples": sum(each.dropped_samples for each in evenings),
        "never_quiet": sum(each.never_quiet for each in evenings),
        "machine": [each.machine for each in evenings],
    }


def _figures(evenings: Sequence[Evening], robot_s: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "robot_h": round(sum(robot_s) / 3600, 3),
        "stopped": sum(len(each.stopped_s) for each in evenings),
        "held": sum(len(each.held_s) for each in evenings),
        "held_once_found": sum(
            at >= each.found_s for each in evenings if each.found_s for at in each.held_s
        ),
        "after": sum(len(each.after_s) for each in evenings),
    }
    for ser_db in SER_DB:
        these = [said for each in evenings for said in each.interruptions if said.ser_db == ser_db]
        found[f"{ser_db:+d} dB"] = {
            "n": len(these),
            "noticed": _late([each.noticed_ms for each in these]),
            "stopped": _late([each.stopped_ms for each in these]),
            "clean": _late([each.clean_ms for each in these]),
        }
    return found


def _late(late_ms: Sequence[float | None]) -> dict[str, Any]:
    known = sorted(each for each in late_ms if each is not None)
    return {
        "ever": len(known),
        "within_250_ms": sum(each <= IN_TIME_S * 1000 for each in known),
        "p50_ms": known[len(known) // 2] if known else None,
        "max_ms": known[-1] if known else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, action="append", default=[])
    parser.add_argument("--minutes", type=float, default=3.0, help="in each room")
    parser.add_argument("--rooms", type=int, default=3)
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    clips = clips_of_people(asked.corpus) if asked.corpus else []
    evenings = []
    for seed in range(asked.seed, asked.seed + asked.rooms):
        told = asyncio.run(evening(seed, asked.minutes * 60, clips))
        evenings.append(told)
        print(json.dumps(asdict(told)), flush=True)
    found = figures(evenings)
    print(json.dumps(found, indent=2))
    if asked.out:
        content = {"figures": found, "evenings": [asdict(each) for each in evenings]}
        asked.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
