"""Cut people's backchannels ("mm-hm", "yeah") out of recordings, for benchmarks.interruptions.

    python -m benchmarks.turns.backchannels --out FOLDER [--packages FOLDER]

Lines of the games' actors that are such a sound and nothing else, as Moonshine reads them: sounds
that it cannot read are missing.
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
from benchmarks.turns.people import Game, Packages, queen, sky, trimmed
from benchmarks.wer import words
from pipeline.audio import LISTEN_RATE

# fmt: off
SAID = frozenset({
    "ah", "aha", "all right", "fine", "good", "great", "hm", "hmm", "i see", "indeed", "mhm", "mm",
    "mm hm", "mm hmm", "mmm", "of course", "oh", "oh okay", "oh yeah", "oh yes", "okay", "really",
    "right", "sure", "thats right", "uh huh", "very well", "wow", "yeah", "yeah right", "yep",
    "yes", "yes indeed",
})
# fmt: on
SHORTEST_S, LONGEST_S = 0.2, 1.3
_MOST_BYTES = 24_000
"""Lines with more packed data are longer than that."""

Named = tuple[Part, str, Signal]


def spoken_lines(part: Part, game: Game) -> Iterator[Named]:
    """The short lines of one segment."""
    for line in game.lines():
        if len(line.places) == 1 and line.places[0][1] <= _MOST_BYTES:
            yield part, f"{game.name}-{line.speaker}-{line.name.lower()}", game.sounds(line)[0]


def backchannel(signal: Signal, listener: ClipRecogniser) -> Signal | None:
    """The sound without silence around it; ``None`` if it is no backchannel."""
    try:
        cut = trimmed(signal)
    except ValueError:
        return None
    if not SHORTEST_S <= len(cut) / LISTEN_RATE <= LONGEST_S:
        return None
    return cut if " ".join(words(listener.hear(cut))) in SAID else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.turns.backchannels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="gets tuning/ and frozen/")
    parser.add_argument("--packages", type=Path, action="append", default=[], help="as for build")
    given = parser.parse_args(arguments)
    packages = Packages((Path("/"), *given.packages))
    listener = ClipRecogniser(weights("moonshine-tiny-en"))
    try:
        found = [*spoken_lines("tuning", queen(packages)), *spoken_lines("frozen", sky(packages))]
    except FileNotFoundError as error:
        sys.exit(str(error))
    written = {"tuning": 0, "frozen": 0}
    for part, name, signal in found:
        if (cut := backchannel(signal, listener)) is not None:
            (given.out / part).mkdir(parents=True, exist_ok=True)
            soundfile.write(given.out / part / f"{name}.flac", to_pcm(cut), LISTEN_RATE)
            written[part] += 1
    print(f"{given.out}: {written['tuning']} sounds for tuning, {written['frozen']} frozen")


if __name__ == "__main__":
    main()
