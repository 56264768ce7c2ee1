"""Cut people's backchannels ("mm-hm", "yeah") out of recordings, for benchmarks.interruptions.

    python -m benchmarks.turns.backchannels --out FOLDER [--packages FOLDER]

Takes the lines of the games' actors that are nothing but a backchannel according to Moonshine;
sounds that Moonshine cannot transcribe are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import soundfile

from benchmarks.harness.acoustics import Signal, to_pcm
from benchmarks.harness.program import weights
from benchmarks.harness.scene import Part
from benchmarks.turns.listen import ClipRecogniser
from benchmarks.turns.people import Game, Packages, queen, sky, trim
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE

# fmt: off
BACKCHANNELS = frozenset({
    "ah", "aha", "all right", "fine", "good", "great", "hm", "hmm", "i see", "indeed", "mhm", "mm",
    "mm hm", "mm hmm", "mmm", "of course", "oh", "oh okay", "oh yeah", "oh yes", "okay", "really",
    "right", "sure", "thats right", "uh huh", "very well", "wow", "yeah", "yeah right", "yep",
    "yes", "yes indeed",
})
# fmt: on
SHORTEST_S, LONGEST_S = 0.2, 1.3
_MOST_BYTES = 24_000
"""Lines with more packed data are longer than ``LONGEST_S``."""

NamedSound = tuple[Part, str, Signal]


def spoken_lines(part: Part, game: Game) -> Iterator[NamedSound]:
    """The short lines of one segment."""
    for line in game.lines():
        if len(line.places) == 1 and line.places[0][1] <= _MOST_BYTES:
            yield part, f"{game.name}-{line.speaker}-{line.name.lower()}", game.sounds(line)[0]


def backchannel(signal: Signal, listener: ClipRecogniser) -> Signal | None:
    """The sound without surrounding silence; ``None`` if it is not a backchannel."""
    try:
        sound = trim(signal)
    except ValueError:
        return None
    if not SHORTEST_S <= len(sound) / LISTEN_RATE <= LONGEST_S:
        return None
    return sound if " ".join(words(listener.hear(sound))) in BACKCHANNELS else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.turns.backchannels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="gets tuning/ and frozen/")
    parser.add_argument("--packages", type=Path, action="append", default=[], help="as for build")
    args = parser.parse_args(arguments)
    packages = Packages((Path("/"), *args.packages))
    listener = ClipRecogniser(weights("moonshine-tiny-en"))
    try:
        lines = [*spoken_lines("tuning", queen(packages)), *spoken_lines("frozen", sky(packages))]
    except FileNotFoundError as error:
        sys.exit(str(error))
    counts = {"tuning": 0, "frozen": 0}
    for part, name, signal in lines:
        if (sound := backchannel(signal, listener)) is not None:
            (args.out / part).mkdir(parents=True, exist_ok=True)
            soundfile.write(args.out / part / f"{name}.flac", to_pcm(sound), LISTEN_RATE)
            counts[part] += 1
    print(f"{args.out}: {counts['tuning']} sounds for tuning, {counts['frozen']} frozen")


if __name__ == "__main__":
    main()
