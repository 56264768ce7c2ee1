"""A robot that hears itself: complete sessions whose clients are in simulated rooms.

    python -m benchmarks.echo.sessions [--seconds 120] [--scenes 10] [--seed N] [--jobs N]
                                       [--corpus DIR] [--set K=V] [--out FILE]

Each scene is one session in virtual time with answers of some 18 s. Its client plays them 30 to
300 ms later through a loudspeaker that bends them, in a simulated room
(``benchmarks.harness.rooms``), and sends its microphone in 20 ms pieces that arrive up to 15 ms
late. Silero, Moonshine and Smart Turn are real; calls take their measured times
(``benchmarks.harness.virtual_engines``). The reference is the audio sent; the client does not
report when it plays it.

- Alone: how often per hour an answer is cut off (``stopped``), held back briefly (``held``) or
  answered as if a person had spoken (``answered``). ``later`` leaves the first 10 s out.
- With ``--corpus``: each answer is interrupted, at +6, 0 or -6 dB to the echo; the first answer,
  in an unknown room, counts separately. ``stopped``: from the onset until the answer is cancelled.
  ``--no-echo``: the loudspeaker is not heard.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.echo.scenes import (
    FRESH_TEXTS,
    ROBOT_VOICES,
    EchoSceneMaker,
    InterruptionClip,
    RobotVoices,
    active_dbfs,
    clips_of_people,
    say_all,
)
from benchmarks.harness.acoustics import Signal, gained, noise, to_pcm, to_signal
from benchmarks.harness.ears import ears_of, open_memo
from benchmarks.harness.played_scene import session_settings
from benchmarks.harness.played_session import played_session
from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.harness.room_client import PIECE, RoomClient
from benchmarks.harness.rooms import LOUDSPEAKERS, distort, draw_room, in_band
from benchmarks.harness.virtual_engines import (
    EMBEDDED,
    Computer,
    HeardStt,
    HeardTurn,
    InlineVad,
    VirtualLlm,
)
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse
from pipeline.engines.contract import Delta
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import SileroOptions, build
from pipeline.events import ReplyAudio, ReplyFinished, SpeechIgnored, SpeechStarted, TranscriptReady
from pipeline.messages import LlmRequest, SpeechRequest
from pipeline.work import Work
from reachy_voice.testing import run_virtual

SER_DB = (6, 0, -6)
DOWN_S = (0.03, 0.3)
UP_S = 0.02
JITTER_S = 0.015
ECHO_DBFS = (-26.0, -18.0)
NOISE_UNDER_ECHO_DB = 35.0
BETWEEN_S = 1.5
SENTENCES = 6
INTERRUPT_S = (1.0, 6.0)
COLD_S = 10.0
NOTICED_S = 2.5


@dataclass
class SpokenTts:
    """Speaks sentences of ``FRESH_TEXTS``, or the clauses that they are split into."""

    robot_voices: RobotVoices
    voice: str
    computer: Computer
    rate: int = LISTEN_RATE
    voices: Sequence[str] = ("robot",)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        await self.computer.work("tts", self.computer.delays.tts_clause_s, work)
        whole = " ".join(FRESH_TEXTS)
        # Numbers and signs are put into words; then match by the beginning.
        text = request.text.strip()
        start = next(text[:n] for n in range(len(text), 0, -1) if text[:n] in whole)
        begin = whole.index(start)
        end = min(begin + len(text), len(whole))
        place = 0
        for sentence in FRESH_TEXTS:
            first, last = max(begin, place), min(end, place + len(sentence))
            if first < last:
                yield self._part(sentence, first - place, last - place)
            place += len(sentence) + 1

    def _part(self, sentence: str, first: int, last: int) -> Pcm:
        """The part of the sentence's audio that corresponds to these letters."""
        speech = to_signal(self.robot_voices.say(self.voice, sentence))
        loud = speech * np.float32(0.7 / (np.abs(speech).max() + 1e-9))
        begin, end = (len(loud) * letter // len(sentence) for letter in (first, last))
        return np.concatenate((to_pcm(loud[begin:end]), np.zeros(3000, np.int16)))


@dataclass
class TellingLlm(VirtualLlm):
    """Six new sentences for each answer."""

    answers: int = 0

    def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        first = self.answers * SENTENCES % (len(FRESH_TEXTS) - SENTENCES)
        self.answers += 1
        text = " ".join(FRESH_TEXTS[first : first + SENTENCES])
        self.answer = tuple(f"{word} " for word in text.split())
        return super().reply(request, work)


@dataclass
class InterruptionResult:
    clip: str
    ser_db: int
    first: bool
    """Of the session's first answer."""
    stopped_ms: float | None
    """From the onset until the answer ends; ``None``: it goes on."""
    before: bool
    """The answer ended before the person spoke."""


@dataclass
class SessionTimes:
    """``*_s``: times of events that no person caused."""

    seed: int
    seconds: float
    robot_s: float
    delay_ms: int | None
    true_delay_ms: int
    stopped_s: list[float]
    held_s: list[float]
    answered_s: list[float]
    interrupted: list[InterruptionResult]


# --- one scene ---------------------------------------------------------------------------------


def play(
    seed: int,
    seconds: float,
    voices: Path,
    corpora: tuple[Path, ...],
    config: str | None,
    sets: Sequence[str],
    echo: bool,
) -> SessionTimes:
    settings = load_settings(config or "default", sets).settings
    rng = np.random.default_rng([seed, 79])
    room, loudspeaker = draw_room(rng), LOUDSPEAKERS[int(rng.integers(len(LOUDSPEAKERS)))]
    voice = ROBOT_VOICES[int(rng.integers(len(ROBOT_VOICES)))]
    robot = RobotVoices.load(voices)
    speech = EchoSceneMaker(robot).speech(voice, 1000 + seed, 10, rng)
    response = in_band(np.pad(room.response(room.loudspeaker), (0, 64)))
    echo_dbfs = float(rng.uniform(*ECHO_DBFS))
    client = RoomClient(
        response,
        loudspeaker,
        gained(noise("pink", 10 * LISTEN_RATE, rng), echo_dbfs - NOISE_UNDER_ECHO_DB),
        float(rng.uniform(*DOWN_S)),
    )
    sample = distort(speech[: 10 * LISTEN_RATE], loudspeaker)
    level = active_dbfs(np.convolve(sample, response[:2000])[: len(sample)].astype(np.float32))
    client.gain = float(10 ** ((echo_dbfs - level) / 20)) if echo else 0.0
    near = room.response(room.talker)
    talk = _Talk(seed, clips_of_people(corpora), near, echo_dbfs, np.random.default_rng([seed, 80]))
    with open_memo(settings) as memo:
        ears = ears_of(settings, memo)
        computer = Computer(EMBEDDED)
        stages = Stages(
            InlineVad(_vad()),
            HeardTurn(ears, computer),
            HeardStt(ears, computer),
            TellingLlm(ears, computer),
            SpokenTts(robot, voice, computer),
        )
        log, delay_ms = run_virtual(_run(stages, settings, client, talk, seconds, rng))
        return _scene(seed, seconds, log, delay_ms, client, talk)


@dataclass
class _Talk:
    """The person who interrupts, and a log of the interruptions."""

    seed: int
    clips: list[InterruptionClip]
    near: Signal
    echo_dbfs: float
    rng: np.random.Generator
    log: list[tuple[InterruptionClip, int, int, int]] = field(default_factory=list)
    """Clip, signal-to-echo ratio in dB, sample of its onset, sample of its end."""

    def begin(self, client: RoomClient, now: int) -> None:
        """A person will speak in 1 to 6 s."""
        clip = self.clips[int(self.rng.integers(len(self.clips)))]
        ser_db = SER_DB[(self.seed + len(self.log)) % 3]
        at = now + int(self.rng.uniform(*INTERRUPT_S) * LISTEN_RATE)
        speech = np.convolve(clip.signal, self.near)[: len(clip.signal) + 4800].astype(np.float32)
        speech = gained(speech, self.echo_dbfs + ser_db - active_dbfs(speech))
        client.say(speech, at)
        arrival = int(np.abs(self.near).argmax())
        self.log.append((clip, ser_db, at + clip.onset + arrival, at + len(speech)))


async def _run(
    stages: Stages,
    settings: Settings,
    client: RoomClient,
    talk: _Talk,
    seconds: float,
    rng: np.random.Generator,
) -> tuple[list[Published], int | None]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    log: list[Published] = []
    active: set[str] = set()
    quiet_from = 0.0

    def note(published: Published) -> None:
        nonlocal quiet_from
        log.append(published)
        at, event = published
        match event:
            case ReplyAudio():
                client.play(event.pcm, at)
                active.add(event.reply_id)
            case SpeechStarted():
                client.flush(at)
            case ReplyFinished():
                active.discard(event.reply_id)
                if event.status == "cancelled":
                    client.flush(at)
                quiet_from = len(client.output) / LISTEN_RATE

    answers = 0
    async with played_session(stages, session_settings(settings), note) as session:
        for start in range(0, int(seconds * LISTEN_RATE), PIECE):
            now = start / LISTEN_RATE
            last = talk.log[-1][3] / LISTEN_RATE if talk.log else 0.0
            if not active and now > max(quiet_from, last) + BETWEEN_S:
                answers += 1
                quiet_from = now + BETWEEN_S
                await session.submit(CreateResponse())
                if talk.clips:
                    talk.begin(client, start)
            captured_s = (start + PIECE) / LISTEN_RATE
            late_s = UP_S + float(rng.uniform(0, JITTER_S))
            await asyncio.sleep(began + captured_s - loop.time())
            piece = client.hear(start)
            await asyncio.sleep(max(0.0, began + captured_s + late_s - loop.time()))
            await session.submit(AppendAudio(piece, LISTEN_RATE))
        return log, session.echo_delay_ms


def _scene(
    seed: int,
    seconds: float,
    log: list[Published],
    delay_ms: int | None,
    client: RoomClient,
    talk: _Talk,
) -> SessionTimes:
    spans = [(onset, end) for _, _, onset, end in talk.log]
    stops = [
        at
        for at, event in log
        if isinstance(event, ReplyFinished) and event.reason == "turn_detected"
    ]
    ignores = [at for at, event in log if isinstance(event, SpeechIgnored)]
    answers = [at for at, event in log if isinstance(event, TranscriptReady)]
    results = [_interruption(each, number == 0, stops) for number, each in enumerate(talk.log)]

    def unprompted(times: Sequence[float]) -> list[float]:
        return [
            round(at, 2)
            for at in times
            if not any(o / LISTEN_RATE - 0.1 < at < e / LISTEN_RATE + 4 for o, e in spans)
        ]

    direct = int(np.abs(client.response).argmax()) / LISTEN_RATE
    robot = sum(len(e.pcm) / e.rate for _, e in log if isinstance(e, ReplyAudio))
    return SessionTimes(
        *(seed, seconds, round(robot, 1), delay_ms),
        round((client.down_s + UP_S + direct) * 1000),
        *(unprompted(stops), unprompted(ignores), unprompted(answers)),
        results,
    )


def _interruption(
    entry: tuple[InterruptionClip, int, int, int], first_answer: bool, stops: Sequence[float]
) -> InterruptionResult:
    clip, ser_db, onset, _ = entry
    onset_s = onset / LISTEN_RATE
    at = next((s for s in stops if onset_s < s < onset_s + NOTICED_S), None)
    before = any(onset_s - INTERRUPT_S[1] < s <= onset_s for s in stops)
    stopped_ms = None if at is None else round((at - onset_s) * 1000)
    return InterruptionResult(clip.name, ser_db, first_answer, stopped_ms, before)


@cache
def _vad() -> Any:
    return build(SileroOptions(), weights("silero-vad"))


# --- figures -----------------------------------------------------------------------------------


def figures(scenes: Sequence[SessionTimes]) -> dict[str, Any]:
    hours = sum(scene.robot_s for scene in scenes) / 3600
    report: dict[str, Any] = {
        "scenes": len(scenes),
        "robot_hours": round(hours, 3),
        "found": sum(scene.delay_ms is not None for scene in scenes),
        "delay_error_ms": [
            scene.delay_ms - scene.true_delay_ms for scene in scenes if scene.delay_ms is not None
        ],
    }
    for name in ("stopped_s", "held_s", "answered_s"):
        times = [getattr(scene, name) for scene in scenes]
        later = sum(sum(at >= COLD_S for at in each) for each in times)
        report[name.removesuffix("_s")] = {
            "an_hour": round(sum(map(len, times)) / hours, 2),
            "later": round(later / hours, 2),
            "n": sum(map(len, times)),
        }
    interruptions = [each for scene in scenes for each in scene.interrupted if not each.before]
    of_kind = {"the first answer interrupted": [each for each in interruptions if each.first]}
    for ser_db in SER_DB:
        of_kind[f"interrupted at {ser_db} dB"] = [e for e in interruptions if e.ser_db == ser_db]
    for kind, of in of_kind.items():
        if of:
            late = [each.stopped_ms for each in of if each.stopped_ms is not None]
            report[kind] = {
                "n": len(of),
                "stopped": round(len(late) / len(of), 3),
                "stopped_ms": [round(float(np.percentile(late, p))) for p in (50, 95) if late],
            }
    return report


def main() -> None:
    parser = arguments(__doc__, "benchmarks.echo.sessions", settings=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--scenes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="below 100: for tuning")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--corpus", type=Path, action="append", default=[])
    parser.add_argument("--no-echo", action="store_false", dest="echo")
    args = parser.parse_args()
    before = load()
    voices = Path(tempfile.gettempdir()) / "reachy-voice-echo-voices.npz"
    say_all(weights("piper-joe"), voices)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
        how = (args.seconds, voices, tuple(args.corpus), args.config, args.sets, args.echo)
        seeds = range(args.seed, args.seed + args.scenes)
        scenes = [each.result() for each in [pool.submit(play, seed, *how) for seed in seeds]]
    report = {"set": args.sets, "echo": args.echo, "first_seed": args.seed, **figures(scenes)}
    report["scenes_played"] = [asdict(scene) for scene in scenes]
    finish(report, args.out, before, details="scenes_played")


if __name__ == "__main__":
    main()
