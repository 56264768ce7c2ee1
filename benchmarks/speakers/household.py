"""Four people whose voices are known, and a television beside them: who is answered?

    python -m benchmarks.speakers.household [--packages FOLDER] [--dialogues FOLDER] [--minutes 8]
                                            [-n 4] [--db -12]... [--accept known] [--seed N]

Each scene is a real session in virtual time in a simulated room: Silero, Smart Turn and the speaker
engine are real, the recogniser hears words in every sound, the language model says one word. Four
of ``benchmarks.speakers.corpus`` are enrolled where they sit, from 20 s without the television.
Then one of them says something of 1.5 to 4 s every 8 to 20 s. Meanwhile four others talk on the
television at ``--db`` relative to the people's level, in turns of 2 to 12 s with pauses up to
0.4 s.

What a person says counts as answered if a turn with words covers half of it. A turn with words that
covers half of no such utterance, and is not itself half of one, is the television's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.echo.scenes import active_dbfs
from benchmarks.harness.acoustics import Signal, gained, room_tone, to_pcm, to_signal
from benchmarks.harness.played_session import played_session
from benchmarks.harness.program import arguments, keep, weights
from benchmarks.harness.rooms import draw_room, through
from benchmarks.harness.voices import embedder, pieces
from benchmarks.speakers.corpus import Speakers, speakers
from benchmarks.turns.people import Packages
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import AppendAudio
from pipeline.engines.contract import Embedding
from pipeline.engines.registry import Kind
from pipeline.engines.turn.smart_turn import SmartTurnOptions
from pipeline.engines.turn.smart_turn import build as build_turn
from pipeline.engines.vad.silero import SileroOptions
from pipeline.engines.vad.silero import build as build_vad
from pipeline.engines.voices import ENROLMENT_S, PIECE_S, EnrolmentError, Person, learned
from pipeline.events import SpeechStarted, SpeechStopped, TranscriptReady
from pipeline.settings import Accept, SessionSettings
from pipeline.work import NEVER, CancelToken
from reachy_voice.testing import Cast, ScriptedLlm, ScriptedStt, run_virtual, stage

PEOPLE, ON_SCREEN = 4, 4
SPEECH_DBFS = -24.0
SAID_S, EVERY_S, SCREEN_S, PAUSE_S = (1.5, 4.0), (8.0, 20.0), (2.0, 12.0), (0.05, 0.4)
CHUNK = LISTEN_RATE // 50
COVERED = 0.5

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HouseholdScene:
    pcm: Pcm
    people: tuple[Person, ...]
    said: tuple[tuple[str, Span], ...]


@dataclass(slots=True)
class Count:
    hours: float = 0.0
    said: int = 0
    answered: int = 0
    named_wrongly: int = 0
    television: int = 0


class HouseholdEngines:
    """The engines that are real."""

    rate = LISTEN_RATE

    def __init__(self) -> None:
        self._embed = embedder(None, ())
        self.vad = build_vad(SileroOptions(), weights("silero-vad"))
        self.turn = build_turn(SmartTurnOptions(), weights("smart-turn-v3.2"))

    def embed(self, pcm: Pcm, cancel: CancelToken) -> Embedding:
        return self._embed(pcm)


def home(
    corpus: Speakers, engines: HouseholdEngines, db: float, minutes: float, seed: int
) -> HouseholdScene:
    rng = np.random.default_rng([seed, 45])
    names = [str(each) for each in rng.permutation(sorted(corpus))]
    room, count = draw_room(rng), round(minutes * 60 * LISTEN_RATE)
    whole, people = room_tone(count, rng), list[Person]()
    said: list[tuple[str, Span]] = []
    begin = round(ENROLMENT_S * LISTEN_RATE)
    rest = {}
    while len(people) < PEOPLE:
        name = names.pop(0)
        place = room.response(rng.uniform(0.4, room.size - 0.4))
        speech = _at(through(to_signal(corpus[name]), place), SPEECH_DBFS)
        enrolled = [engines.embed(each, NEVER) for each in pieces(to_pcm(speech[:begin]), PIECE_S)]
        with suppress(EnrolmentError):  # this person would have to record again
            people.append(Person(name, learned(enrolled)))
            rest[name] = speech[begin:]
    at = round(rng.uniform(*EVERY_S) * LISTEN_RATE)
    while at < count - 8 * LISTEN_RATE:
        name = people[int(rng.integers(PEOPLE))].name
        part = _cut(rest[name], float(rng.uniform(*SAID_S)), rng)
        whole[at : at + len(part)] += part
        said.append((name, (at / LISTEN_RATE, (at + len(part)) / LISTEN_RATE)))
        at += len(part) + round(rng.uniform(*EVERY_S) * LISTEN_RATE)
    screen = _screen([corpus[name] for name in names[:ON_SCREEN]], count, rng)
    heard = through(screen, room.response(rng.uniform(0.4, room.size - 0.4)))
    return HouseholdScene(to_pcm(whole + _at(heard, SPEECH_DBFS + db)), tuple(people), tuple(said))


def _screen(voices: Sequence[Pcm], count: int, rng: np.random.Generator) -> Signal:
    parts: list[Signal] = []
    while sum(map(len, parts)) < count:
        voice = to_signal(voices[int(rng.integers(len(voices)))])
        parts.append(_at(_cut(voice, float(rng.uniform(*SCREEN_S)), rng), SPEECH_DBFS))
        parts.append(np.zeros(round(rng.uniform(*PAUSE_S) * LISTEN_RATE), np.float32))
    return np.concatenate(parts)[:count]


def _cut(signal: Signal, seconds: float, rng: np.random.Generator) -> Signal:
    size = min(round(seconds * LISTEN_RATE), len(signal))
    start = int(rng.integers(len(signal) - size + 1))
    return signal[start : start + size]


def _at(signal: Signal, dbfs: float) -> Signal:
    return gained(signal, dbfs - active_dbfs(signal))


async def listen(
    at_home: HouseholdScene, engines: HouseholdEngines, accept: Accept
) -> list[Published]:
    log: list[Published] = []
    cast = Cast(stt=ScriptedStt(("Tell me more about that, please.",)), llm=ScriptedLlm(("Yes.",)))
    cast.vad, cast.speaker = stage(Kind.VAD, engines.vad), stage(Kind.SPEAKER, engines)
    cast.people = at_home.people
    stages = replace(cast.stages(), turn=stage(Kind.TURN, engines.turn))
    loop = asyncio.get_running_loop()
    async with played_session(stages, SessionSettings(people=accept), log.append) as session:
        began = loop.time()
        for at in range(0, len(at_home.pcm), CHUNK):
            await session.submit(AppendAudio(at_home.pcm[at : at + CHUNK], LISTEN_RATE))
            await asyncio.sleep(began + (at + CHUNK) / LISTEN_RATE - loop.time())
    return log


def score(at_home: HouseholdScene, log: Sequence[Published], count: Count) -> None:
    spans: dict[str, list[float]] = {}
    turns: list[tuple[Span, str | None]] = []
    for _, event in log:
        match event:
            case SpeechStarted():
                spans[event.item_id] = [event.audio_ms / 1000] * 2
            case SpeechStopped() if event.item_id in spans:
                spans[event.item_id][1] = event.audio_ms / 1000
            case TranscriptReady(item_id, text) if text and item_id in spans:
                begin, end = spans[item_id]
                turns.append(((begin, end), event.speaker))
    count.hours += len(at_home.pcm) / LISTEN_RATE / 3600
    for name, span in at_home.said:
        names = [who for turn, who in turns if _shared(turn, span) >= COVERED * _length(span)]
        count.said += 1
        count.answered += bool(names)
        count.named_wrongly += bool(names) and not {name, "", None} & set(names)
    count.television += sum(
        all(
            _shared(turn, span) < COVERED * min(_length(span), _length(turn))
            for _, span in at_home.said
        )
        for turn, _ in turns
    )


def _shared(one: Span, other: Span) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _length(span: Span) -> float:
    return span[1] - span[0]


def main() -> None:
    parser = arguments(__doc__ or "", "benchmarks.speakers.household")
    parser.add_argument("--packages", type=Path, help="folder with unpacked Debian packages")
    parser.add_argument("--dialogues", type=Path, help="folder of telephone dialogues")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=4, help="homes a level")
    parser.add_argument("--db", type=float, action="append", help="default: -18, -12 and -6")
    parser.add_argument("--accept", choices=["everyone", "known"], default="known")
    args = parser.parse_args()
    roots = (args.packages,) if args.packages else (Path("/"),)
    corpus = speakers(Packages(roots), args.dialogues, args.seed)
    engines = HouseholdEngines()
    report = {}
    for db in args.db or (-18.0, -12.0, -6.0):
        count = Count()
        for number in range(args.n):
            scene = home(corpus, engines, db, args.minutes, args.seed + number)
            score(scene, run_virtual(listen(scene, engines, args.accept)), count)
        report[f"{db:+g} dB"] = asdict(count)
        print(f"{db:+g} dB", asdict(count), file=sys.stderr)
    keep(report, args.out)


if __name__ == "__main__":
    main()
