"""Two people talk to each other beside a robot that one of them has just woken.

    python -m benchmarks.wake.pairs FOLDER [--out FILE]

Telephone dialogues of two (``NAME.flac``, ``NAME.words.json``), both voices mixed, go through whole
sessions in virtual time with the real VAD. Each person wakes the robot once, with their first
words. Nothing that is said is meant for the robot. The recogniser's text is made up: it is neither
a call nor a farewell. With an array, the two sit 60 degrees apart. With voices, the real speaker
engine has learned both from the second half of the dialogue, which is then not played.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.harness.acoustics import to_pcm, to_signal
from benchmarks.harness.labels import read_sound
from benchmarks.harness.program import finish, load, weights
from benchmarks.harness.virtual_engines import InlineVad
from benchmarks.harness.voices import Embed, embedder, pieces
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import AppendAudio, Direction, NoteDirection, WakeUp
from pipeline.engines.contract import Embedding
from pipeline.engines.vad import silero
from pipeline.engines.voices import PIECE_S, Person, learned, speech_in
from pipeline.events import FellAsleep
from pipeline.settings import Echo, SessionSettings, Wake
from pipeline.turn_record import TurnRecord
from pipeline.work import Work
from reachy_voice.testing import ScriptedLlm, ScriptedStt, scene
from reachy_voice.testing.virtual_time import run_virtual

PLACES_DEG = {"A": 80.0, "B": 20.0}
STEP = LISTEN_RATE // 50


class InlineSpeaker:
    """The speaker engine without a worker."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    async def embed(self, pcm: Pcm, work: Work) -> Embedding:
        return self._embed(pcm)


def voices_of(file: Path, embed: Embed) -> tuple[Person, ...]:
    """Both people, from the second half."""
    sounds = [read_sound(file, channel) for channel in range(len(PLACES_DEG))]
    speech = [speech_in(to_pcm(to_signal(sound[len(sound) // 2 :]))) for sound in sounds]
    voices = [learned([embed(each) for each in pieces(pcm, PIECE_S)]) for pcm in speech]
    return tuple(map(Person, PLACES_DEG, voices))


async def beside_two(
    vad: silero.SileroVad, file: Path, caller: str, array: bool, embed: Embed | None
) -> Counter[str]:
    words = json.loads(file.with_suffix(".words.json").read_text())
    pcm = to_pcm(to_signal(read_sound(file, 0)) + to_signal(read_sound(file, 1)))
    people = voices_of(file, embed) if embed else ()
    pcm = pcm[: len(pcm) // 2] if people else pcm
    speaker = InlineSpeaker(embed) if embed else None
    speaks = np.full(len(pcm), " ")
    for word in words:
        begin, end = (round(word[key] * LISTEN_RATE) for key in ("start", "end"))
        speaks[begin:end] = word["speaker"]
    wakes_at = int(np.argmax(speaks == caller)) + LISTEN_RATE // 4
    stt, llm = ScriptedStt(hears=lambda heard: "so that was fine"), ScriptedLlm(("I see.",))
    settings = SessionSettings(wake=Wake(mode="word"), echo=Echo(cancel="never"))
    async with scene(
        settings=settings, stt=stt, llm=llm, vad=InlineVad(vad), speaker=speaker, people=people
    ) as played:
        began = played.began = played.loop.time()
        for at in range(0, len(pcm) - STEP, STEP):
            if at <= wakes_at < at + STEP:
                await played.session.submit(WakeUp())
            if array and (who := str(speaks[at])) != " ":
                played.session.offer(NoteDirection(Direction(PLACES_DEG[who], True)))
            await played.session.submit(AppendAudio(pcm[at : at + STEP], LISTEN_RATE))
            await played.sleep_until((at + STEP) / LISTEN_RATE)
            if at > wakes_at + STEP and played.session.asleep:
                break
    slept = played.times_of(FellAsleep)[1:]
    to_s = slept[0] if slept else began + len(pcm) / LISTEN_RATE
    found = Counter({"s awake": round(to_s - began - wakes_at / LISTEN_RATE)})
    for event in played.events(TurnRecord):
        if event.speech_start_sample is not None:
            turn = speaks[event.speech_start_sample : event.speech_end_sample]
            who = "the caller" if np.sum(turn == caller) * 2 >= np.sum(turn != " ") else "the other"
            found[f"{who}: {event.exclusion or 'answered'}"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wake.pairs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args, before = parser.parse_args(), load()
    vad = silero.build(silero.SileroOptions(), weights("silero-vad"))
    files = sorted(args.folder.glob("*.flac"))
    data: dict[str, object] = {"dialogues": len(files), "scenes each": 2 * len(files)}
    embed = embedder(None, ())
    for name, array, voices in (
        ("without an array", False, None),
        ("with an array", True, None),
        ("with voices", False, embed),
    ):
        total = Counter[str]()
        for file in files:
            for caller in PLACES_DEG:
                total += run_virtual(beside_two(vad, file, caller, array, voices))
                print(name, file.stem, caller, dict(total), flush=True)
        data[name] = dict(total)
    finish(data, args.out, before)


if __name__ == "__main__":
    main()
