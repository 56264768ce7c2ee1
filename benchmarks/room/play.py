"""Plays one scene in a room to a real session in virtual time, and scores the outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.echo.scenes import RobotVoices, active_dbfs
from benchmarks.harness.acoustics import Signal, gained, room_tone, to_pcm
from benchmarks.harness.ears import Ears, ears_of, open_memo
from benchmarks.harness.played_scene import CHUNK_SAMPLES, session_settings
from benchmarks.harness.played_session import played_session
from benchmarks.harness.rooms import draw_room, through
from benchmarks.harness.virtual_engines import EMBEDDED, Computer, VirtualLlm, virtual_stages
from benchmarks.room.sounds import Home, Request, Sound, level_dbfs
from benchmarks.turns.people import Packages
from benchmarks.wer import word_errors, words
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CreateResponse
from pipeline.engines.stages import Stages
from pipeline.events import (
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TranscriptReady,
)
from pipeline.settings import SessionSettings
from reachy_voice.testing import run_virtual

Part = Literal["silence", "answers", "others", "words", "one word", "one minute", "cost"]

SPEECH_DBFS = (-30.0, -22.0)
ALONE_S, LEAD_S, TAIL_S, OTHERS_TAIL_S = 60.0, 2.0, 4.0, 32.0
_BETWEEN_S = 1.5
_PIECE = 8 * LISTEN_RATE
_LONGER = LISTEN_RATE * 64 // 1000
_SHORT, _LONG = ("Yes. ",), ("Then ", "I ", "went ", "on. ") * 20


@dataclass(frozen=True, slots=True)
class Case:
    """``db``: the sound's level minus the person's. ``number`` chooses the room and the person."""

    part: Part
    sound: Sound | None
    db: int
    number: int

    @property
    def group(self) -> str:
        return f"{self.part}, {self.sound} {self.db:+d} dB" if self.sound else self.part

    @property
    def alone(self) -> bool:
        """Whether nobody speaks to the robot."""
        return self.part in ("silence", "answers")


@dataclass(frozen=True, slots=True, eq=False)
class RoomScene:
    """``request`` is spoken from sample ``begin`` to ``end``; ``beside`` is the sound alone."""

    pcm: Pcm
    beside: Signal
    request: Request | None = None
    begin: int = 0
    end: int = 0


@dataclass(slots=True)
class Outcome:
    group: str
    source: str
    hours: float
    turns: int = 0
    texts: list[str] = field(default_factory=list)
    """``turns`` and ``texts``: turns other than the person's. The other fields are about the
    person's turn."""
    stopped: int = 0
    lost: int = 0
    heard: str = ""
    own_turns: int = 0
    open: bool = False
    over_ms: float | None = None
    audio_ms: float | None = None
    """``over_ms`` and ``audio_ms`` count from the last word; ``None``: not before the scene
    ended."""
    wanted: int = 0
    kept: int = 0
    control: int = 0
    """Words kept if the same range of audio is 64 ms longer."""
    errors: int = 0
    spoken: int = 0
    of_others: int = 0


def scene(case: Case, home: Home, seed: int) -> RoomScene:
    """All sounds of one ``case.number`` share the room, the person and the person's level."""
    rng = np.random.default_rng([seed, case.number, 41])
    room, speech_dbfs = draw_room(rng), float(rng.uniform(*SPEECH_DBFS))
    request, begin, count = None, 0, round(ALONE_S * LISTEN_RATE)
    if not case.alone:
        by_part = {"one word": home.one_word, "one minute": home.one_minute}
        request = by_part.get(case.part, home.request)(case.number)
        begin = round(LEAD_S * LISTEN_RATE)
        tail_s = OTHERS_TAIL_S if case.part == "others" else TAIL_S
        count = begin + len(request.signal) + round(tail_s * LISTEN_RATE)
    whole = room_tone(count, rng)
    beside = np.zeros(count, np.float32)
    if case.sound:
        beside = home.at_mic(case.sound, room, count, rng)
        beside = gained(beside, speech_dbfs + case.db - level_dbfs(case.sound, beside))
    if request is None:
        return RoomScene(to_pcm(whole + beside), beside)
    speech = through(request.signal, room.response(room.talker))
    whole[begin : begin + len(speech)] += gained(speech, speech_dbfs - active_dbfs(speech))
    return RoomScene(
        to_pcm(whole + beside), beside, request, begin + request.begin, begin + request.end
    )


def play_all(
    batch: Sequence[Case],
    voices: Path,
    people: Path | None,
    packages: Packages,
    seed: int,
    config: str,
    sets: tuple[str, ...],
) -> list[Outcome]:
    """Play a batch of scenes; runs in a separate process."""
    home = _home(voices, people, packages)
    settings, ears = _ears(config, sets)
    outcomes = [play(case, scene(case, home, seed), ears, settings) for case in batch]
    ears.memo.save()
    return outcomes


@cache
def _home(voices: Path, people: Path | None, packages: Packages) -> Home:
    return Home(RobotVoices.load(voices), people, packages)


@cache
def _ears(config: str, sets: tuple[str, ...]) -> tuple[Settings, Ears]:
    settings = load_settings(config, sets).settings
    return settings, ears_of(settings, open_memo(settings))


def play(case: Case, room_scene: RoomScene, ears: Ears, settings: Settings) -> Outcome:
    llm = VirtualLlm(ears, Computer(EMBEDDED))
    llm.answer = {"silence": _SHORT, "answers": _LONG}.get(case.part, llm.answer)
    stages = virtual_stages(room_scene.pcm, llm)
    asking = case.part == "answers"
    log = run_virtual(_listen(room_scene.pcm, stages, session_settings(settings), asking))
    return _outcome(case, room_scene, log, ears)


async def _listen(
    pcm: Pcm, stages: Stages, settings: SessionSettings, asking: bool
) -> list[Published]:
    """With ``asking``, the client requests an answer whenever none is playing."""
    log: list[Published] = []
    active: set[str] = set()
    played_to = 0.0

    def note(published: Published) -> None:
        nonlocal played_to
        log.append(published)
        at, event = published
        match event:
            case ReplyAudio():
                active.add(event.reply_id)
                played_to = max(played_to, at) + len(event.pcm) / event.rate
            case ReplyFinished():
                active.discard(event.reply_id)
                played_to = at if event.status == "cancelled" else played_to

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with played_session(stages, settings, note) as session:
        for at in range(0, len(pcm), CHUNK_SAMPLES):
            chunk = pcm[at : at + CHUNK_SAMPLES]
            captured_s = (at + len(chunk)) / LISTEN_RATE
            if asking and not active and captured_s > played_to + _BETWEEN_S:
                played_to = captured_s
                await session.submit(CreateResponse())
            await asyncio.sleep(began + captured_s - loop.time())
            await session.submit(AppendAudio(chunk, LISTEN_RATE))
    return log


# --- what became of it -------------------------------------------------------------------------


@dataclass(slots=True)
class RoomTurn:
    """A turn that was over at ``over_s``; its audio ends at ``end_s``."""

    start_s: float
    over_s: float | None = None
    end_s: float | None = None
    text: str = ""


def turns_of(log: Sequence[Published]) -> list[RoomTurn]:
    turns: dict[str, RoomTurn] = {}
    for at, event in log:
        match event:
            case SpeechStarted():
                turns[event.item_id] = RoomTurn(event.audio_ms / 1000)
            case SpeechStopped() if event.item_id in turns:
                turns[event.item_id].over_s = at
                turns[event.item_id].end_s = event.audio_ms / 1000
            case TranscriptReady() if event.item_id in turns:
                turns[event.item_id].text = event.text
    return list(turns.values())


def _outcome(case: Case, room_scene: RoomScene, log: Sequence[Published], ears: Ears) -> Outcome:
    outcome = Outcome(case.group, f"room {case.number}", len(room_scene.pcm) / LISTEN_RATE / 3600)
    begin_s, end_s = room_scene.begin / LISTEN_RATE, room_scene.end / LISTEN_RATE
    own: list[RoomTurn] = []
    for turn in turns_of(log):
        if turn.start_s < end_s and (turn.end_s is None or turn.end_s > begin_s):
            own.append(turn)
            continue
        outcome.turns += 1
        outcome.texts += [turn.text] if turn.text else []
    endings = [event for _, event in log if isinstance(event, ReplyFinished)]
    rests = sum(isinstance(event, ReplyStarted) and bool(event.continues) for _, event in log)
    outcome.stopped = sum(event.reason == "turn_detected" for event in endings)
    outcome.lost = max(0, outcome.stopped - rests)
    if room_scene.request:
        outcome.source = room_scene.request.name
        outcome.open = any(turn.over_s is None for turn in own)
        _score_words(outcome, room_scene.request, own, room_scene, ears)
        if own and not outcome.open:
            over_s = max(turn.over_s or 0.0 for turn in own)
            outcome.over_ms = round((over_s - end_s) * 1000, 1)
            audio = (at for at, each in log if isinstance(each, ReplyAudio) and at >= over_s)
            audio_s = next(audio, None)
            outcome.audio_ms = None if audio_s is None else round((audio_s - end_s) * 1000, 1)
    return outcome


def _score_words(
    outcome: Outcome, request: Request, own: Sequence[RoomTurn], room_scene: RoomScene, ears: Ears
) -> None:
    """Score the words of the person's turns."""
    dry = ears.transcribe(to_pcm(request.signal))
    dry_words, target_words = Counter(words(dry)), Counter(request.slots or words(dry))
    outcome.heard = " ".join(turn.text for turn in own if turn.text)
    outcome.own_turns = sum(bool(turn.text) for turn in own)
    text_words = Counter(words(outcome.heard))
    outcome.wanted, outcome.kept = target_words.total(), (text_words & target_words).total()
    outcome.control = outcome.kept
    errors = word_errors(dry, outcome.heard)
    outcome.errors, outcome.spoken = errors.errors, errors.words
    quiet = not room_scene.beside.any()
    if quiet and len(own) == 1 and own[0].end_s:
        start, end = (round(at * LISTEN_RATE) for at in (own[0].start_s, own[0].end_s))
        longer = Counter(words(ears.transcribe(room_scene.pcm[start : end + _LONGER])))
        outcome.control = (longer & target_words).total()
    if (more := text_words - dry_words) and not quiet:
        last_s = max(turn.end_s or len(room_scene.pcm) / LISTEN_RATE for turn in own)
        pieces = range(0, round(last_s * LISTEN_RATE), _PIECE)
        texts = [ears.transcribe(to_pcm(room_scene.beside[at : at + _PIECE])) for at in pieces]
        theirs = set(words(" ".join(texts)))
        outcome.of_others = sum(count for word, count in more.items() if word in theirs)
