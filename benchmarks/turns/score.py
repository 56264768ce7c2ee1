"""Score turns by playing their audio to a real session in virtual time.

    python -m benchmarks.turns.score DIRECTORY [--set endpointing.confidence=0.95] [--out FILE]
    python -m benchmarks.turns.score DIRECTORY --sweep endpointing.confidence=0.7,0.8,0.9

``DIRECTORY`` is a corpus (``benchmarks.turns.build``), or has labelled recordings of people, or
folders of them, each scored separately (``benchmarks.harness.labels``).

The models hear each sound once; their results are kept in the cache directory. So the first run
takes about as long as the corpus lasts, and later runs take seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.harness.ears import ears_of, open_memo
from benchmarks.harness.labels import INDEX as LABELS
from benchmarks.harness.labels import sources, turns
from benchmarks.harness.pauses import Site, sites
from benchmarks.harness.played_scene import play, session_settings
from benchmarks.harness.program import arguments, keep
from benchmarks.harness.program import load as machine_load
from benchmarks.harness.scene import INDEX as SCENES
from benchmarks.harness.scene import RecordedTurn, load
from benchmarks.harness.statistics import Bootstrap
from benchmarks.harness.virtual_engines import BY_URL, EMBEDDED, H100, NO_DELAYS, Delays
from benchmarks.turns.baselines import ASK_AT_MS, Curve, compare, curves
from benchmarks.turns.metrics import SceneScore, score_scene
from benchmarks.turns.report import Figures, baseline_lines, figures, parts, table
from pipeline.errors import ReachyVoiceError

_GROWING_MS = tuple(range(320, 961, 128))
"""Later silences at which a repeatedly run detector is asked again."""
_DELAYS = {"embedded": EMBEDDED, "by-url": BY_URL, "h100": H100, "none": NO_DELAYS}


@dataclass(frozen=True, slots=True)
class Task:
    """A corpus and the settings to score it with; ``overrides``: as given to ``--set``."""

    directory: Path
    config: str | None
    overrides: tuple[str, ...]
    delays: Delays

    @property
    def settings(self) -> Settings:
        return load_settings(self.config, self.overrides).settings

    def scenes(self) -> Iterator[RecordedTurn]:
        """Raises ``FileNotFoundError`` if there are none."""
        reader = turns if (self.directory / LABELS).is_file() else load
        return reader(self.directory)


def score_corpus(task: Task) -> list[SceneScore]:
    """Play and score every scene, in the corpus's order."""
    settings = task.settings
    with open_memo(settings) as memo:
        ears = ears_of(settings, memo)
        how = (session_settings(settings), task.delays, settings.conversation.instructions)
        return [score_scene(play(scene, ears, *how)) for scene in progress(task.scenes())]


def progress(scenes: Iterable[RecordedTurn]) -> Iterator[RecordedTurn]:
    """``scenes``, with a line on stderr every 100 scenes if they are slow."""
    began = time.monotonic()
    for count, scene in enumerate(scenes, start=1):
        yield scene
        if count % 100 == 0 and time.monotonic() - began > 10:
            print(f"{count} scenes, {time.monotonic() - began:.0f} s", file=sys.stderr)


def sweep(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """``--sweep a=1,2 --sweep b=3,4``: one set of overrides for each combination."""
    combinations: list[tuple[str, ...]] = [()]
    for text in texts:
        key, _, values = text.partition("=")
        combinations = [(*c, f"{key}={value}") for c in combinations for value in values.split(",")]
    return combinations


def result_of(task: Task, scores: Sequence[SceneScore]) -> Figures:
    """A complete result: the corpus, the settings, and the figures."""
    settings = task.settings
    return {
        "corpus": task.directory.name,
        "overrides": list(task.overrides),
        "engine_seconds": asdict(task.delays),
        "load": machine_load(),
        "endpointing": settings.endpointing.model_dump(mode="json"),
        "speculation": settings.speculation.model_dump(mode="json"),
        "figures": figures(scores),
    }


class SmartTurnAlone:
    """The baselines on one corpus, which is heard once for all our settings."""

    def __init__(self, task: Task, scores: Sequence[SceneScore]) -> None:
        """``scores`` may come from any settings."""
        pauses = all_sites(task, (ASK_AT_MS, *_GROWING_MS))
        self._parts: dict[str, tuple[Bootstrap, list[Curve]]] = {}
        for name, part in parts(scores).items():
            bootstrap = Bootstrap([score.group for score in part])
            scenes = {score.scene for score in part}
            here = [site for site in pauses if site.scene in scenes]
            self._parts[name] = bootstrap, curves(here, part, bootstrap)

    def beside(self, scores: Sequence[SceneScore]) -> Figures:
        """Its cut-offs at our mean latency."""
        ours = parts(scores)
        return {
            name: compare(ours[name], theirs, bootstrap)
            for name, (bootstrap, theirs) in self._parts.items()
        }


def all_sites(task: Task, silences_ms: Sequence[int]) -> list[Site]:
    """Every pause of the corpus, with its features."""
    settings = task.settings
    with open_memo(settings) as memo:
        ears = ears_of(settings, memo)
        return [
            site
            for scene in progress(task.scenes())
            for site in sites(scene, ears, settings, silences_ms)
        ]


# --- the program -------------------------------------------------------------------------------


def main() -> None:
    parser = arguments(__doc__, "benchmarks.turns.score", settings=True)
    parser.add_argument("directory", type=Path, help="a corpus, or labelled recordings")
    parser.add_argument("--sweep", action="append", default=[], metavar="KEY=VALUE,VALUE")
    parser.add_argument("--delays", choices=_DELAYS, default="embedded", help="of the engines")
    parser.add_argument("--baselines", action="store_true", help="Smart Turn alone")
    args = parser.parse_args()
    try:
        keep([result for task in _tasks(args) for result in _results(task, args)], args.out)
    except (FileNotFoundError, ReachyVoiceError) as error:
        sys.exit(str(error))


def _results(task: Task, args: argparse.Namespace) -> Iterator[Figures]:
    """One result for each set of overrides."""
    others = None
    for overrides in sweep(args.sweep):
        task = replace(task, overrides=(*args.sets, *overrides))
        scores = score_corpus(task)
        result = result_of(task, scores)
        print(task.directory.name, *(task.overrides or ["defaults"]))
        print("\n".join(table(result["figures"])))
        if args.baselines:
            others = others or SmartTurnAlone(task, scores)
            result["baselines"] = others.beside(scores)
            print("\n".join(baseline_lines(result["baselines"])))
        yield result


def _tasks(args: argparse.Namespace) -> list[Task]:
    """Raises ``FileNotFoundError`` if the directory has nothing to score."""
    directory: Path = args.directory
    directories = [directory] if (directory / SCENES).is_file() else sources(directory)
    return [Task(each, args.config, tuple(args.sets), _DELAYS[args.delays]) for each in directories]


if __name__ == "__main__":
    main()
