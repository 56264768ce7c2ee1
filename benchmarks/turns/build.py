"""Build the conversation corpus (README.md).

python -m benchmarks.turns.build --out DIRECTORY [--part tuning|frozen|both] [--seed N]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from benchmarks.harness.scene import Part, RecordedTurn, save
from benchmarks.turns.clips import Clip
from benchmarks.turns.compose import compose
from benchmarks.turns.listen import ClipRecogniser
from benchmarks.turns.people import Packages, actors, allison, queen, readers, sky, with_borders
from benchmarks.turns.plan import Pauses, conditions, interleave, pausing_first, with_speed
from benchmarks.turns.splice import utterance
from benchmarks.turns.voices import Flite, PiperSpeaker, Voice
from benchmarks.turns.wording import read

VOICES: dict[Part, tuple[str, ...]] = {
    "tuning": ("piper-joe", "flite-slt", "flite-rms"),
    "frozen": ("flite-awb", "flite-kal16"),
}
"""The parts share no voice. The first voice and one other say each text."""

ALLISON_CLIPS = 70
ACTOR_CLIPS: dict[Part, int] = {"tuning": 110, "frozen": 150}
_PLAIN_PROMPTS_SHARE = 0.5
_SYNTHETIC_CUTS = 0.85
_REAL_CUTS = 0.55
_PACE = (0.9, 1.12)
_SPEED = (0.96, 1.04)


@dataclass(frozen=True)
class Sources:
    """Folders of the models and the Debian packages."""

    weights: Path
    packages: Packages


def build(part: Part, seed: int, sources: Sources) -> list[RecordedTurn]:
    """All scenes of ``part``. Raises ``FileNotFoundError``, naming a missing package."""
    listener = ClipRecogniser(sources.weights / "moonshine-tiny-en")
    real = people(part, seed, sources, listener)
    synthetic = speakers(part, seed, sources, listener)
    pauses = Pauses(_rng(seed, f"{part} pauses"))
    real_turns = [utterance(clip, pauses.cuts(clip, _REAL_CUTS)) for clip in real]
    synthetic_turns = [utterance(clip, pauses.cuts(clip, _SYNTHETIC_CUTS)) for clip in synthetic]
    scenes = []
    all_turns = interleave(real_turns, synthetic_turns)
    draws = conditions(len(all_turns), _rng(seed, f"{part} conditions"))
    for number, (turn, draw) in enumerate(zip(all_turns, draws, strict=True)):
        name = f"{part}-{number:03d}-{turn.clip.name}"
        scenes.append(_as_labelled(compose(turn, draw, part, name, seed)))
    return scenes


def people(part: Part, seed: int, sources: Sources, listener: ClipRecogniser) -> list[Clip]:
    """Recordings of people, with borders at which a pause may be inserted."""
    rng = _rng(seed, f"{part} people")
    game = queen(sources.packages) if part == "tuning" else sky(sources.packages)
    clips = actors(game, ACTOR_CLIPS[part], listener, rng)
    if part == "tuning":
        prompts = allison(sources.packages)
        order = rng.permutation(len(prompts))
        clips += pausing_first(
            (prompts[int(i)] for i in order), ALLISON_CLIPS, _PLAIN_PROMPTS_SHARE
        )
    else:
        clips += readers()
    return [with_borders(clip, listener) for clip in clips]


def speakers(part: Part, seed: int, sources: Sources, listener: ClipRecogniser) -> Iterator[Clip]:
    """Each text, said by two synthetic voices; borders that the recogniser fails are dropped."""
    rng = _rng(seed, f"{part} voices")
    voices = [_voice(name, sources, seed) for name in VOICES[part]]
    first, others = voices[0], voices[1:]
    for number, turn in enumerate(read(part)):
        for voice in (first, others[number % len(others)]):
            clip = voice.say(turn, float(rng.uniform(*_PACE)))
            clip = with_speed(clip, float(rng.uniform(*_SPEED)))
            yield replace(clip, borders=listener.surviving(clip))


def _voice(name: str, sources: Sources, seed: int) -> Voice:
    engine, _, voice = name.partition("-")
    return PiperSpeaker(sources.weights / name, voice, seed) if engine == "piper" else Flite(voice)


def _as_labelled(scene: RecordedTurn) -> RecordedTurn:
    """Relabel a ``two-sentences`` turn without a pause between sentences as a ``statement``."""
    if scene.kind == "two-sentences" and not any(p.kind == "sentence" for p in scene.pauses):
        return replace(scene, kind="statement")
    return scene


def _rng(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(purpose.encode())])


# --- the command -------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the conversation corpus.")
    parser.add_argument("--out", type=Path, required=True, help="gets tuning/ and frozen/")
    parser.add_argument("--part", choices=["tuning", "frozen", "both"], default="both")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--weights", type=Path, default=Path("~/.cache/reachy-voice/weights"))
    parser.add_argument(
        "--packages",
        type=Path,
        action="append",
        default=[],
        help="folder with Debian packages unpacked by dpkg-deb -x; / is searched as well",
    )
    args = parser.parse_args(arguments)
    packages = Packages((Path("/"), *args.packages))
    sources = Sources(args.weights.expanduser(), packages)
    parts: tuple[Part, ...] = ("tuning", "frozen")
    try:
        for part in parts:
            if args.part in (part, "both"):
                _write(part, args.out, args.seed, sources)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _write(part: Part, out: Path, seed: int, sources: Sources) -> None:
    began = time.monotonic()
    scenes = build(part, seed, sources)
    unfinished, target, old = out / f".{part}.new", out / part, out / f".{part}.old"
    for leftover in (unfinished, old):
        shutil.rmtree(leftover, ignore_errors=True)
    save(scenes, unfinished)
    if target.exists():
        target.rename(old)
    unfinished.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    print(f"{target}: {summary(scenes)}; built in {time.monotonic() - began:.0f} s")


def summary(scenes: Sequence[RecordedTurn]) -> str:
    """The numbers of scenes, pauses and seconds, in words."""
    kinds = Counter(pause.kind for scene in scenes for pause in scene.pauses)
    pauses = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    real = sum(scene.real for scene in scenes)
    minutes = sum(scene.seconds for scene in scenes) / 60
    return f"{len(scenes)} scenes ({real} real), {minutes:.0f} min, pauses: {pauses}"


if __name__ == "__main__":
    sys.exit(main())
