"""Two people talk to each other beside a robot that one of them has just woken.

    python -m benchmarks.wake.pairs FOLDER [--out FILE]

Telephone dialogues of two (``NAME.flac``, ``NAME.words.json``), both voices mixed, go through whole
sessions in virtual time with the real VAD. Each person wakes the robot once, with their first
words. Nothing that is said is meant for the robot. The recogniser's text is made up: it is neither
a call nor a farewell. With an array, the two sit 60 degrees apart.
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
from pipeline.audio import LISTEN_RATE
from pipeline.commands import AppendAudio, Direction, NoteDirection, WakeUp
from pipeline.engines.vad import silero
from pipeline.events import FellAsleep
from pipeline.settings import Echo, SessionSettings, Wake
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import ScriptedLlm, ScriptedStt, scene
from reachy_voice.testing.virtual_time import run_virtual

PLACES_DEG = {"A": 80.0, "B": 20.0}
STEP = LISTEN_RATE // 50


async def beside_two(vad: silero.SileroVad, file: Path, caller: str, array: bool) -> Counter[str]:
    words = json.loads(file.with_suffix(".words.json").read_text())
    pcm = to_pcm(to_signal(read_sound(file, 0)) + to_signal(read_sound(file, 1)))
    speaks = np.full(len(pcm), " ")
    for word in words:
        begin, end = (round(word[key] * LISTEN_RATE) for key in ("start", "end"))
        speaks[begin:end] = word["speaker"]
    wakes_at = int(np.argmax(speaks == caller)) + LISTEN_RATE // 4
    stt, llm = ScriptedStt(hears=lambda heard: "so that was fine"), ScriptedLlm(("I see.",))
    settings = SessionSettings(wake=Wake(mode="word"), echo=Echo(cancel="never"))
    async with scene(settings=settings, stt=stt, llm=llm, vad=InlineVad(vad)) as played:
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
            found[f"{who}: {event.invented or 'answered'}"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wake.pairs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args, before = parser.parse_args(), load()
    vad = silero.build(silero.SileroOptions(), weights("silero-vad"))
    files = sorted(args.folder.glob("*.flac"))
    data: dict[str, object] = {"dialogues": len(files), "scenes each": 2 * len(files)}
    for name, array in (("without an array", False), ("with an array", True)):
        total = Counter[str]()
        for file in files:
            for caller in PLACES_DEG:
                total += run_virtual(beside_two(vad, file, caller, array))
                print(name, file.stem, caller, dict(total), flush=True)
        data[name] = dict(total)
    finish(data, args.out, before)


if __name__ == "__main__":
    main()
