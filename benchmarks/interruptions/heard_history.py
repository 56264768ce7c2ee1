"""Does the conversation keep what an interrupted listener has heard, to the word?

    python -m benchmarks.interruptions.heard_history [-n 450] [--seed N] [--out FILE]

A real session in virtual time says an answer with Piper, and is interrupted at a random moment: by
somebody who speaks, weighed by its words (``voice``) or at once (``any speech``), by the client's
``response.cancel`` (``cancel``), or, when it was sent in a burst, by the client's
``conversation.item.truncate`` (``truncate``), at several paces of the voice and leads. A reference
client plays what it gets as soon as it has it, and flushes its player when it is told. What has
left the player by then is heard, whatever the latency of its output.

Which words were played is known from the voice's network
(``benchmarks.interruptions.heard_voice``): a word has been played when its last phoneme has. Errors
are words in the history, less words played. A word of an unsent clause is one of which no sample
was sent. Intervals are bootstrapped by answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.harness.statistics import Bootstrap
from benchmarks.interruptions.heard_voice import AlignedPiper, AlignedTts, Said, written_ends
from benchmarks.voices.clauses import answers
from pipeline.audio import AudioFormat, Pcm
from pipeline.bus import Published
from pipeline.commands import (
    CancelResponse,
    CreateResponse,
    SessionConfig,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines.tts.piper import find_models
from pipeline.events import ReplyAudio, ReplyFinished, ReplyItemStarted, ReplyText, SpeechStarted
from pipeline.items import MessageItem
from pipeline.settings import BargeIn, SessionSettings
from tests.support.scripted import Scene, ScriptedLlm, ScriptedStt, scene
from tests.support.virtual_time import run_virtual

How = Literal["voice", "any speech", "cancel", "truncate"]
HOWS: tuple[How, ...] = ("voice", "any speech", "cancel", "truncate")
SPEEDS = (0.8, 1.0, 1.3)
LEADS_MS = (100, 250, 600)
ANSWERS = 90
"""Each is interrupted again and again, at other moments."""
LATEST = 1.0
"""An answer is interrupted up to this share of the time that it takes to say."""
SPEECH_S = 1.2
BEGUN_S = 0.4
"""The first audio is sent 0.25 to 0.35 s after the request."""
BAR = 0.95
"""Issue 5, "Numbers": share of interruptions with one word too many or too few, or none."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """``at``: when, as a share of the time that the answer takes."""

    answer: str
    how: How
    speed: float
    lead_ms: int
    at: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """``played``, ``kept``: words. ``unsent``: words that are kept of clauses of which nothing was
    sent. ``over``: everything had been heard when it was interrupted."""

    interruption: Interruption
    played: int
    kept: int
    unsent: int
    heard_s: float
    over: bool
    near: str

    @property
    def error(self) -> int:
        return self.kept - self.played


@dataclass(frozen=True, slots=True)
class Played:
    """One clause at the client. ``begins_s``: of its audio, in seconds of what was sent."""

    text: str
    pcm: Pcm
    begins_s: float


def interruptions(count: int, seed: int) -> list[Interruption]:
    draw = random.Random(seed)
    spoken = answers(ANSWERS, seed)
    return [
        Interruption(
            *(spoken[number % len(spoken)], HOWS[number % len(HOWS)], draw.choice(SPEEDS)),
            *(draw.choice(LEADS_MS), draw.uniform(0.0, LATEST)),
        )
        for number in range(count)
    ]


# --- one scene ---------------------------------------------------------------------------------


def play(each: Interruption, tts: AlignedTts, whole_s: float) -> Outcome | None:
    """``whole_s``: how long the answer is. ``None`` if nothing was being heard."""
    tts.said.clear()
    log, told_at, item = run_virtual(_interrupt(each, tts, each.at * whole_s))
    return None if item is None else _outcome(each, log, told_at, item, tts.said)


async def _interrupt(
    each: Interruption, tts: AlignedTts, after_s: float
) -> tuple[list[Published], float, MessageItem | None]:
    """What was published, when the client was told, and what the conversation keeps."""
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
    ) as played:
        await played.do(CreateResponse())
        await asyncio.sleep(BEGUN_S + after_s)
        told_at = await _break_in(played, each.how)
        started = played.events(ReplyItemStarted)[0].item.id
        item = played.session.chat.get(started)
        assert isinstance(item, MessageItem)
        heard = told_at is not None and item.parts
        return list(played.log), told_at or 0.0, item if heard else None


async def _break_in(played: Scene, how: How) -> float | None:
    """When the client hears of it; ``None``: the answer was over before."""
    if how == "cancel":
        if played.events(ReplyFinished):
            return None
        now = played.loop.time()
        await played.do(CancelResponse())
        return now
    if how == "truncate":
        now = played.loop.time()
        _, heard_s = _at_the_client(played.log, now)
        item_id = played.events(ReplyItemStarted)[0].item.id
        await played.do(TruncateItem(item_id, 0, int(heard_s * 1000)))
        return now
    await played.say(SPEECH_S)
    await played.hear(1.0)
    return played.time_of(SpeechStarted)


def _outcome(
    each: Interruption,
    log: Sequence[Published],
    told_at: float,
    item: MessageItem,
    said: Sequence[Said],
) -> Outcome:
    clauses, heard_s = _at_the_client(log, told_at)
    spoken = iter(said)
    played, full, written = 0, 0, []
    for clause in clauses:
        words = clause.text.split()
        written += words
        full += len(words)
        if not any(character.isalnum() for character in clause.text):
            played += len(words) if clause.begins_s < heard_s else 0
            continue
        voiced = next(spoken, None)
        if voiced is None:  # it is not made yet
            continue
        until = round((heard_s - clause.begins_s) * voiced.rate)
        played += _played(clause, voiced, until) if until > 0 else 0
    kept = item.text.split()
    assert written[: len(kept)] == kept, "the history is a beginning of what was said"
    sent = sum(len(clause.text.split()) for clause in clauses if len(clause.pcm))
    near = " ".join(written[max(0, played - 3) : played]) + " | " + " ".join(written[played:][:3])
    over = played == full and item.status == "completed"
    return Outcome(each, played, len(kept), max(0, len(kept) - sent), heard_s, over, near)


def _at_the_client(log: Sequence[Published], told_at: float) -> tuple[list[Played], float]:
    """The clauses with their audio, and how many seconds of it were played."""
    clauses: list[Played] = []
    sent_s = plays_until = heard_s = 0.0
    for at, event in log:
        if at > told_at or isinstance(event, ReplyFinished):
            break
        if isinstance(event, ReplyText):
            clauses.append(Played(event.text, np.zeros(0, np.int16), sent_s))
        elif isinstance(event, ReplyAudio):
            seconds = len(event.pcm) / event.rate
            begins = max(at, plays_until)
            heard_s += min(seconds, max(0.0, told_at - begins))
            plays_until, sent_s = begins + seconds, sent_s + seconds
            last = clauses[-1]
            clauses[-1] = Played(last.text, np.concatenate((last.pcm, event.pcm)), last.begins_s)
    return clauses, heard_s


def _played(clause: Played, said: Said, until: int) -> int:
    """Words of a clause of which ``until`` samples were heard."""
    cut = _offset(said.pcm, clause.pcm)
    end = said.sound_end
    ends = [min(each, end) - cut for each in written_ends(clause.text, said)]
    return sum(each <= until for each in sorted(ends))


def _offset(whole: Pcm, sent: Pcm) -> int:
    """How many samples of silence the pipeline has taken away in front."""
    head = sent[:2000]
    for at in np.flatnonzero(whole[: len(whole) - len(head) + 1] == head[0]):
        if np.array_equal(whole[at : at + len(head)], head):
            return int(at)
    raise AssertionError("what was sent is what the voice has said")


# --- figures -----------------------------------------------------------------------------------


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    bootstrap = Bootstrap([each.interruption.answer for each in outcomes])
    groups: dict[str, list[Outcome]] = {"all": list(outcomes)}
    for each in outcomes:
        of = each.interruption
        for name in (of.how, f"speed {of.speed}", f"lead {of.lead_ms} ms"):
            groups.setdefault(name, []).append(each)
    return {name: _figures(bootstrap, groups[name]) for name in sorted(groups)}


def _figures(bootstrap: Bootstrap, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    sources = [each.interruption.answer for each in outcomes]
    near = [float(abs(each.error) <= 1) for each in outcomes]
    errors = Counter(each.error for each in outcomes)
    return {
        "within_one_word": asdict(bootstrap.mean(near, sources)),
        "exact": round(sum(each.error == 0 for each in outcomes) / len(outcomes), 4),
        "mean_error": round(sum(each.error for each in outcomes) / len(outcomes), 3),
        "errors": {str(error): errors[error] for error in sorted(errors)},
        "words_of_unsent_clauses": sum(each.unsent for each in outcomes),
    }


def measured(count: int, seed: int) -> tuple[list[Outcome], AlignedTts]:
    cache = WeightsCache(load_settings(None).settings.paths.cache(os.environ))
    models = find_models(cache.path("piper-joe"))
    tts = AlignedTts(AlignedPiper(models["joe"]))
    outcomes = []
    for each in interruptions(count, seed):
        whole_s = len(each.answer) * 0.062 / each.speed
        outcomes.append(play(each, tts, whole_s))
    return [each for each in outcomes if each and not each.over], tts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", dest="count", type=int, default=450)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    outcomes, tts = measured(given.count, given.seed)
    clauses = list(tts.known.values())
    data = {
        "interruptions": len(outcomes),
        "seed": given.seed,
        "figures": figures(outcomes),
        "clauses": len(clauses),
        "clauses_with_a_group_for_each_word": sum(each.matched for each in clauses),
        "wrong": [
            {**asdict(each.interruption), "error": each.error, "near": each.near}
            for each in outcomes
            if abs(each.error) > 1
        ],
    }
    text = json.dumps(data, indent=1, ensure_ascii=False)
    print(text)
    if given.out:
        given.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
