"""How well a robot that sleeps hears its call, what else wakes it, and what sleep costs.

    python -m benchmarks.wake calls [--engine phrase|micro-wakeword] [--seed N] [--out FILE]
    python -m benchmarks.wake others FOLDER ... [--hours 10] [--engine ...] [--seed N] [--out FILE]
    python -m benchmarks.wake cost [--engine ...] [--out FILE]

``calls``: synthetic voices call it and ask something, near, far, in noise at 10 dB, and over an
announcement of the robot, which the microphone hears. The last go through a whole session, in
virtual time, with the real VAD and recogniser; the others only to the wake engine.
``others``: speech and music from recordings in the folders (WAV, OGG, FLAC) and speech of the same
voices, drawn again and again at various levels and distances, sometimes over each other. None of it
is a call. ``cost``: processor time of a sleeping session, without its audio transport, in silence
and while people talk.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.settings.languages import read_sentences
from app.settings.load import config_dir
from benchmarks.harness.acoustics import (
    NoiseKind,
    Signal,
    gained,
    noise,
    room_tone,
    to_pcm,
    to_signal,
)
from benchmarks.harness.labels import read_sound
from benchmarks.harness.program import finish, load
from benchmarks.harness.rooms import draw_room, through
from benchmarks.wake.asleep import LEAD_S, SleepEars, SleepScene, ears, live, model_times
from benchmarks.wake.speakers import NEAR_DBFS, VOICES, Speakers, at_level
from pipeline.audio import LISTEN_RATE
from pipeline.bus import Bus
from pipeline.events import TranscriptReady, Woke
from reachy_voice.testing.virtual_time import run_virtual

ENGINES = ("phrase", "micro-wakeword")
CALLS = {"phrase": "Hey Reachy", "micro-wakeword": "Okay nah boo"}
"""The calls, spelled so that the voices say them right."""
QUESTIONS = (", what time is it?", ", tell me a joke about robots.", ".", ", turn to the left.")
PLACES = ("near", "far", "noise at 10 dB", "over its own speech")
FAR_DBFS, ECHO_DBFS = -38.0, -32.0
"""Active levels of a distant call, and of the robot's own voice in its microphone."""
ANNOUNCEMENT = (
    "It is time to get up now. The sun is shining outside, and breakfast is on the table. "
    "Please do not forget your umbrella, because it may rain in the afternoon."
)


# --- calls ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallHeard:
    voice: str
    place: str
    text: str
    woke: bool
    transcript: str = ""


def call_scene(place: str, call: Signal, rng: np.random.Generator) -> tuple[Signal, Signal | None]:
    """What the microphone hears, and the response from loudspeaker to microphone."""
    lead_s = 5.0 if place == "over its own speech" else LEAD_S
    sound = np.zeros(len(call) + round((lead_s + 2.0) * LISTEN_RATE), np.float32)
    start = round(lead_s * LISTEN_RATE)
    room, echo = draw_room(rng), None
    if place == "far":
        call = at_level(through(call, room.response(room.talker)), FAR_DBFS)
    if place == "over its own speech":
        echo = room.response(room.loudspeaker)
    sound[start : start + len(call)] = call
    sound += room_tone(len(sound), rng)
    if place == "noise at 10 dB":
        kind: NoiseKind = "babble" if rng.integers(2) else "pink"
        sound += gained(noise(kind, len(sound), rng), NEAR_DBFS - 10)
    return sound, echo


def measure_calls(engine: str, places: Sequence[str], seed: int) -> dict[str, object]:
    speakers, hearing, rng = Speakers(), ears(engine), np.random.default_rng(seed)
    own = to_pcm(at_level(speakers.say("piper-joe", ANNOUNCEMENT), NEAR_DBFS))
    yes = to_pcm(speakers.say("piper-joe", "Yes."))
    heard = []
    for voice, place, rest in itertools.product(VOICES, places, QUESTIONS):
        text = CALLS[engine] + rest
        sound, echo = call_scene(place, speakers.say(voice, text), rng)
        if echo is not None:
            echo *= 10 ** ((ECHO_DBFS - NEAR_DBFS) / 20) / np.abs(echo).max()
        if echo is None:
            heard.append(CallHeard(voice, place, text, hearing.called(sound)))
            continue
        microphone, bus = SleepScene(sound, echo), Bus()
        clip, words = (own, ANNOUNCEMENT) if echo is not None else (yes, "Yes.")
        session = hearing.session(bus, clip, words)
        run_virtual(live(session, bus, microphone, announce=echo is not None))
        events = [event for _, event in microphone.events]
        said = [event.text for event in events if isinstance(event, TranscriptReady)]
        woke = any(isinstance(event, Woke) for event in events)
        heard.append(CallHeard(voice, place, text, woke, " / ".join(said)))
        print(heard[-1], flush=True)
    return {"engine": engine, **table(heard), "missed calls": missed(heard)}


def table(heard: Sequence[CallHeard]) -> dict[str, object]:
    def share(some: Sequence[CallHeard]) -> str:
        return f"{sum(not each.woke for each in some)} of {len(some)}"

    by_voice = {voice: [each for each in heard if each.voice == voice] for voice in VOICES}
    by_place = {place: [each for each in heard if each.place == place] for place in PLACES}
    asked = [each for each in heard if each.transcript and "," in each.text]
    return {
        "voices": len(VOICES),
        "missed": share(heard),
        "by place": {place: share(some) for place, some in by_place.items() if some},
        "by voice": {voice: share(some) for voice, some in by_voice.items()},
        "of questions, the last word was heard": (
            f"{sum(_last(each.text) in each.transcript.lower() for each in asked)} of {len(asked)}"
        ),
    }


def _last(text: str) -> str:
    return text.rstrip(".?").split()[-1].lower()


def missed(heard: Sequence[CallHeard]) -> list[str]:
    return [f"{each.voice}, {each.place}: {each.text}" for each in heard if not each.woke]


# --- what else wakes it ---------------------------------------------------------------------------


def recordings(folders: Sequence[Path]) -> list[Path]:
    kinds = {".wav", ".ogg", ".flac", ".opus"}
    found = (path for folder in folders for path in sorted(folder.rglob("*")))
    return [path for path in found if path.suffix in kinds]


def others(
    paths: Sequence[Path],
    speakers: Speakers,
    texts: Sequence[str],
    hours: float,
    kinds: dict[str, float],
    rng: np.random.Generator,
) -> Iterator[Signal]:
    """Yields pieces of ten minutes; ``kinds`` counts the seconds of each kind of sound."""
    said: dict[tuple[str, str], Signal] = {}

    def clip() -> Signal:
        if rng.random() < 0.25:
            key = VOICES[int(rng.integers(len(VOICES)))], texts[int(rng.integers(len(texts)))]
            said[key] = signal = said[key] if key in said else speakers.say(*key)
            kinds["synthetic s"] += len(signal) / LISTEN_RATE
            return signal
        path = paths[int(rng.integers(len(paths)))]
        signal = to_signal(read_sound(path)[: 90 * LISTEN_RATE])
        kinds["music s" if "moh" in path.parts else "recordings s"] += len(signal) / LISTEN_RATE
        return signal if len(signal) and np.abs(signal).max() > 0.001 else said_or_silence(said)

    for _ in range(round(hours * 6)):
        sound = room_tone(600 * LISTEN_RATE, rng)
        for layer_dbfs in (-28.0, -40.0):  # this room, and a television in the next
            at = 0
            while at < len(sound):
                signal = at_level(clip(), layer_dbfs + float(rng.uniform(-6, 6)))
                if rng.random() < 0.1:
                    room = draw_room(rng)
                    signal = through(signal, room.response(room.talker))
                place = sound[at : at + len(signal)]
                place += signal[: len(place)]
                at += len(signal) + round(rng.exponential(1.0) * LISTEN_RATE)
        yield sound


def said_or_silence(said: dict[tuple[str, str], Signal]) -> Signal:
    return next(iter(said.values()), np.zeros(LISTEN_RATE, np.float32))


def measure_others(
    engine: str, folders: Sequence[Path], hours: float, seed: int
) -> dict[str, object]:
    hearing, kinds = ears(engine), defaultdict[str, float](float)
    rng = np.random.default_rng(seed)
    paths, texts, wakes = recordings(folders), _texts(), list[str]()
    heard_h = 0.0
    for number, sound in enumerate(others(paths, Speakers(), texts, hours, kinds, rng)):
        for at_s in wake_times(hearing, sound):
            wakes.append(
                f"{number // 6} h {number % 6 * 10 + at_s // 60:.0f} min {at_s % 60:.0f} s"
            )
        heard_h += len(sound) / LISTEN_RATE / 3600
        print(f"{heard_h:.2f} h: {len(wakes)} wakes", flush=True)
    return {
        "engine": engine,
        "hours": round(heard_h, 2),
        "false wakes": len(wakes),
        "an hour": round(len(wakes) / heard_h, 2),
        "at": wakes,
        "recordings": len(paths),
        **{kind: round(seconds) for kind, seconds in kinds.items()},
        "passes of the recogniser": hearing.stt.passes,
    }


def wake_times(hearing: SleepEars, sound: Signal) -> list[float]:
    """The times, in s, at which the robot wakes."""
    if hearing.wake_word:
        return model_times(hearing.wake_word, sound)
    microphone, bus = SleepScene(sound), Bus()
    run_virtual(live(hearing.session(bus, to_pcm(sound[:8000]), "Yes."), bus, microphone, False))
    return [at for at, event in microphone.events if isinstance(event, Woke)]


def _texts() -> list[str]:
    return [f"{begins} {rest}" for begins, rest in read_sentences(config_dir() / "languages")["en"]]


# --- cost -----------------------------------------------------------------------------------------


def measure_cost(engine: str) -> dict[str, object]:
    """Processor time, as shares of a core."""
    hearing, rng, speakers = ears(engine), np.random.default_rng(47), Speakers()
    silence = room_tone(60 * LISTEN_RATE, rng)
    texts = _texts()
    spoken = [speakers.say(VOICES[n % len(VOICES)], texts[n]) for n in range(20)]
    gap = np.zeros(LISTEN_RATE, np.float32)
    talk = np.concatenate([part for signal in spoken for part in (signal, gap)])
    talk = talk + room_tone(len(talk), rng)
    result: dict[str, object] = {"engine": engine}
    hearing.called(silence)  # loads what it needs
    for name, sound in (("silence", silence), ("speech", talk)):
        hearing.stt.busy_s, hearing.stt.passes = 0.0, 0
        microphone, bus = SleepScene(sound), Bus()
        session = hearing.session(bus, to_pcm(silence[:8000]), "Yes.")
        began = time.process_time()
        run_virtual(live(session, bus, microphone, announce=False))
        seconds = len(sound) / LISTEN_RATE
        result[name] = {
            "seconds": round(seconds),
            "share of a core": round((time.process_time() - began) / seconds, 4),
            "of it, the recogniser": round(hearing.stt.busy_s / seconds, 4),
            "passes": hearing.stt.passes,
            "wakes": sum(isinstance(event, Woke) for _, event in microphone.events),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("calls", "others", "cost"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--engine", choices=ENGINES, default="phrase")
    parser.add_argument("--places", nargs="*", choices=PLACES, default=PLACES)
    parser.add_argument("--seed", type=int, default=45, help="of rooms and sounds")
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    before = load()
    if args.what == "calls":
        data = measure_calls(args.engine, args.places, args.seed)
    elif args.what == "others":
        data = measure_others(args.engine, args.folders, args.hours, args.seed)
    else:
        data = measure_cost(args.engine)
    finish(data, args.out, before)


if __name__ == "__main__":
    main()
