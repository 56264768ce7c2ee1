"""Does the conversation keep exactly the words that an interrupted listener has heard?

    python -m benchmarks.interruptions.heard_history [-n 450] [--seed N] [--out FILE]

A real session in virtual time says an answer with Piper, and is interrupted at a random moment: by
speech, weighed by its words (``voice``) or at once (``any speech``), by the client's
``response.cancel`` (``cancel``), or, when it was sent in a burst, by the client's
``conversation.item.truncate`` (``truncate``), at several paces of the voice and leads. A reference
client plays audio as soon as it arrives, and flushes its player when told to. Audio that has left
the player by then counts as heard, whatever its output latency.

The voice's network tells which words were played (``benchmarks.harness.aligned_piper``): a word has
been played when its last phoneme has. Errors are words in the history minus words played. An unsent
clause is one of which no sample was sent. Intervals are bootstrapped by answer.
"""

from __future__ import annotations

import asyncio
import difflib
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from benchmarks.harness.acoustics import Signal, to_pcm
from benchmarks.harness.aligned_piper import AlignedPiper
from benchmarks.harness.answers import answers
from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.harness.statistics import Bootstrap
from pipeline.audio import EMPTY, AudioFormat, Pcm
from pipeline.bus import Published
from pipeline.commands import (
    CancelResponse,
    CreateResponse,
    SessionConfig,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines.tts.espeak_ng import without_phoneme_blocks
from pipeline.events import ReplyAudio, ReplyFinished, ReplyItemStarted, ReplyText, SpeechStarted
from pipeline.items import MessageItem
from pipeline.messages import SpeechRequest, has_words
from pipeline.settings import BargeIn, SessionSettings
from pipeline.speaking.tuning import JOINT_QUIET
from pipeline.work import Work
from reachy_voice.testing import Scene, ScriptedLlm, ScriptedStt, run_virtual, scene

How = Literal["voice", "any speech", "cancel", "truncate"]
HOWS: tuple[How, ...] = ("voice", "any speech", "cancel", "truncate")
SPEEDS = (0.8, 1.0, 1.3)
LEADS_MS = (100, 250, 600)
ANSWERS = 90
"""Each is interrupted repeatedly, at different moments."""
SPEECH_S = 1.2
BEGUN_S = 0.4
"""The first audio is sent 0.25 to 0.35 s after the request."""
_START_S, _FACTOR = 0.086, 0.08
"""Time to a clause's first audio (``benchmarks.harness.virtual_engines``), and for each second of
audio: Piper's on one core of the same machine."""
_PIECE_S = 0.4
_LEVEL = 0.5
"""The loudest sample, as a share of full scale."""


# --- the voice ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AlignedClause:
    """One spoken clause."""

    pcm: Pcm
    """int16 mono."""
    words: tuple[tuple[str, int], ...]
    """Each spoken word, and the sample at which its last phoneme ends."""

    @property
    def sound_end(self) -> int:
        """Index after the last sample that is not silent."""
        loud = np.flatnonzero(np.abs(self.pcm.astype(np.int32)) > JOINT_QUIET)
        return int(loud[-1]) + 1 if len(loud) else 0


class AlignedVoice(Protocol):
    """``AlignedPiper``, or a test's voice whose samples are easier to count."""

    rate: int

    def say(self, text: str, pace: float) -> tuple[Signal, list[int]]: ...

    def phones(self, text: str) -> int: ...


@dataclass
class AlignedTts:
    """A voice in virtual time."""

    speaker: AlignedVoice
    cache: dict[tuple[str, float], AlignedClause] = field(default_factory=dict)
    """Earlier clauses, so that each answer is synthesised once."""
    clauses: list[AlignedClause] = field(default_factory=list)
    """Those requested, in order."""
    voices: Sequence[str] = ("joe",)

    @property
    def rate(self) -> int:
        return self.speaker.rate

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        key = request.text, request.speed
        if key not in self.cache:
            self.cache[key] = self._say(*key)
        clause = self.cache[key]
        self.clauses.append(clause)
        await asyncio.sleep(_START_S)
        size = int(_PIECE_S * self.rate)
        for start in range(0, len(clause.pcm), size):
            piece = clause.pcm[start : start + size]
            yield piece
            await asyncio.sleep(_FACTOR * len(piece) / self.rate)

    def _say(self, text: str, speed: float) -> AlignedClause:
        if not has_words(text):
            return AlignedClause(EMPTY, ())
        text = without_phoneme_blocks(text)
        signal, ends = self.speaker.say(text, 1 / speed)
        before, words = "", []
        for word in text.split():
            before = f"{before} {word}".strip()
            if has_words(word):
                count = min(self.speaker.phones(before), len(ends))
                words.append((word, ends[max(count, 1) - 1]))
        return AlignedClause(to_pcm(signal * np.float32(_LEVEL)), tuple(words))


def written_ends(text: str, clause: AlignedClause) -> list[int]:
    """For each word of ``text``, as written, the sample of ``clause`` at which it has been spoken.

    Words spoken as written locate the others: in "on 31/12/2026." the second word ends with
    "twenty-six". Several such words in a row are spread evenly.
    """
    written_words = [_plain(word) for word in text.split()]
    spoken_words = [_plain(word) for word, _ in clause.words]
    ends = [end for _, end in clause.words]
    word_ends: list[int] = []
    matcher = difflib.SequenceMatcher(None, written_words, spoken_words, autojunk=False)
    for _, begin, end, first, last in matcher.get_opcodes():
        for number in range(1, end - begin + 1):
            at = first + round(number * (last - first) / (end - begin))
            word_ends.append(ends[at - 1] if at else 0)
    return word_ends


def _plain(word: str) -> str:
    return re.sub(r"[^\w]+", "", word).lower()


# --- one scene ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interruption:
    """``at`` is the moment as a share of the answer's duration."""

    answer: str
    how: How
    speed: float
    lead_ms: int
    at: float


@dataclass(frozen=True, slots=True)
class HistoryOutcome:
    interruption: Interruption
    played_words: int
    kept_words: int
    unsent_words: int
    """Words in the history from unsent clauses."""
    over: bool
    """Everything had been heard before the interruption."""
    near: str

    @property
    def error(self) -> int:
        return self.kept_words - self.played_words


@dataclass(frozen=True, slots=True)
class ClientClause:
    """One clause as sent to the client; its audio begins ``begins_s`` into all sent audio."""

    text: str
    pcm: Pcm
    begins_s: float


def interruptions(count: int, seed: int) -> list[Interruption]:
    draw = random.Random(seed)
    texts = answers(ANSWERS, seed)
    return [
        Interruption(
            *(texts[number % len(texts)], HOWS[number % len(HOWS)], draw.choice(SPEEDS)),
            *(draw.choice(LEADS_MS), draw.uniform(0.0, 1.0)),
        )
        for number in range(count)
    ]


def play(each: Interruption, tts: AlignedTts, whole_s: float) -> HistoryOutcome | None:
    """Interrupt an answer that lasts ``whole_s`` seconds; ``None`` if nothing was playing."""
    tts.clauses.clear()
    log, told_at, item = run_virtual(_interrupt(each, tts, each.at * whole_s))
    return None if item is None else _outcome(each, log, told_at, item, tts)


async def _interrupt(
    each: Interruption, tts: AlignedTts, after_s: float
) -> tuple[list[Published], float, MessageItem | None]:
    """The published events, when the client was told, and the item that the conversation keeps."""
    policy = BargeIn() if each.how == "voice" else BargeIn(policy="any-speech")
    burst = each.how == "truncate"
    config = SessionConfig(
        instructions="",
        speed=each.speed,
        output_format=AudioFormat(rate=tts.rate),
        turn_detection=None if burst else TurnDetection(create_response=False),
    )
    deltas = tuple(f"{word} " for word in each.answer.split(" "))
    async with scene(
        config=config,
        settings=SessionSettings(lead_ms=each.lead_ms, barge_in=policy),
        llm=ScriptedLlm(deltas=deltas),
        stt=ScriptedStt(("Stop talking now please.",)),
        tts=tts,
    ) as stage:
        await stage.do(CreateResponse())
        await asyncio.sleep(BEGUN_S + after_s)
        told_at = await _break_in(stage, each.how)
        item = stage.session.chat.get(stage.events(ReplyItemStarted)[0].item.id)
        assert isinstance(item, MessageItem)
        is_heard = told_at is not None and item.parts
        return list(stage.log), told_at or 0.0, item if is_heard else None


async def _break_in(stage: Scene, how: How) -> float | None:
    """Interrupt; returns when the client learns of it, ``None`` if the answer was over before."""
    now = stage.loop.time()
    if how == "cancel":
        if stage.events(ReplyFinished):
            return None
        await stage.do(CancelResponse())
        return now
    if how == "truncate":
        _, heard_s = _at_the_client(stage.log, now)
        item_id = stage.events(ReplyItemStarted)[0].item.id
        await stage.do(TruncateItem(item_id, 0, int(heard_s * 1000)))
        return now
    await stage.say(SPEECH_S)
    await stage.hear(1.0)
    return stage.time_of(SpeechStarted)


def _outcome(
    each: Interruption,
    log: Sequence[Published],
    told_at: float,
    item: MessageItem,
    tts: AlignedTts,
) -> HistoryOutcome:
    clauses, heard_s = _at_the_client(log, told_at)
    clause_audio = iter(tts.clauses)
    count, tokens = 0, []
    for clause in clauses:
        words = clause.text.split()
        tokens += words
        if not any(character.isalnum() for character in clause.text):
            count += len(words) if clause.begins_s < heard_s else 0
        elif audio := next(clause_audio, None):  # else not yet synthesised
            until = round((heard_s - clause.begins_s) * tts.rate)
            count += _words_played(clause, audio, until) if until > 0 else 0
    history = item.text.split()
    assert tokens[: len(history)] == history, "the history begins like the answer"
    sent_count = sum(len(clause.text.split()) for clause in clauses if len(clause.pcm))
    near = " ".join([*tokens[max(0, count - 3) : count], "|", *tokens[count:][:3]])
    over = count == len(tokens) and item.status == "completed"
    return HistoryOutcome(each, count, len(history), max(0, len(history) - sent_count), over, near)


def _at_the_client(log: Sequence[Published], told_at: float) -> tuple[list[ClientClause], float]:
    """The clauses with their audio, and the seconds played."""
    clauses: list[ClientClause] = []
    sent_s = plays_until = heard_s = 0.0
    for at, event in log:
        if at > told_at or isinstance(event, ReplyFinished):
            break
        if isinstance(event, ReplyText):
            clauses.append(ClientClause(event.text, EMPTY, sent_s))
        elif isinstance(event, ReplyAudio):
            seconds = len(event.pcm) / event.rate
            begins = max(at, plays_until)
            heard_s += min(seconds, max(0.0, told_at - begins))
            plays_until, sent_s = begins + seconds, sent_s + seconds
            last = clauses[-1]
            clauses[-1] = ClientClause(
                last.text, np.concatenate((last.pcm, event.pcm)), last.begins_s
            )
    return clauses, heard_s


def _words_played(clause: ClientClause, clip: AlignedClause, until: int) -> int:
    """Words of a clause whose first ``until`` samples were heard."""
    gap = _offset(clip.pcm, clause.pcm)
    return sum(min(end, clip.sound_end) - gap <= until for end in written_ends(clause.text, clip))


def _offset(whole: Pcm, part: Pcm) -> int:
    """How many samples of leading silence the pipeline has cut off."""
    head = part[:2000]
    for at in np.flatnonzero(whole[: len(whole) - len(head) + 1] == head[0]):
        if np.array_equal(whole[at : at + len(head)], head):
            return int(at)
    raise AssertionError("what was sent is what the voice has said")


# --- figures -----------------------------------------------------------------------------------


def figures(outcomes: Sequence[HistoryOutcome]) -> dict[str, Any]:
    bootstrap = Bootstrap([each.interruption.answer for each in outcomes])
    groups: dict[str, list[HistoryOutcome]] = {"all": list(outcomes)}
    for each in outcomes:
        of = each.interruption
        for name in (of.how, f"speed {of.speed}", f"lead {of.lead_ms} ms"):
            groups.setdefault(name, []).append(each)
    return {name: _figures(bootstrap, groups[name]) for name in sorted(groups)}


def _figures(bootstrap: Bootstrap, outcomes: Sequence[HistoryOutcome]) -> dict[str, Any]:
    sources = [each.interruption.answer for each in outcomes]
    near = [float(abs(each.error) <= 1) for each in outcomes]
    errors = Counter(each.error for each in outcomes)
    return {
        "within_one_word": asdict(bootstrap.mean(near, sources)),
        "errors": {str(error): errors[error] for error in sorted(errors)},
        "words_of_unsent_clauses": sum(each.unsent_words for each in outcomes),
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.interruptions.heard_history")
    parser.add_argument("-n", dest="count", type=int, default=450)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    before = load()
    tts = AlignedTts(AlignedPiper(weights("piper-joe"), "joe", args.seed))
    results = [
        play(each, tts, len(each.answer) * 0.062 / each.speed)
        for each in interruptions(args.count, args.seed)
    ]
    outcomes = [each for each in results if each and not each.over]
    wrong = [
        {**asdict(each.interruption), "error": each.error, "near": each.near}
        for each in outcomes
        if abs(each.error) > 1
    ]
    data = {"interruptions": len(outcomes), "seed": args.seed, "figures": figures(outcomes)}
    finish({**data, "wrong": wrong}, args.out, before, details="wrong")


if __name__ == "__main__":
    main()
