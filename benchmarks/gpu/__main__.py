"""What a GPU makes of the workstation's profile: each engine alone, then the whole server.

    python -m benchmarks.gpu [--only stt,voice,llm,server] [--voice 0b6|1b7] [--robots 1,4]
                             [--speech DIR] [--models DIR] [--cache DIR] [--out FILE]
    python -m benchmarks.gpu --small

Weights in the cache are used; the others are made from seeds in full size
(``benchmarks.gpu.models``): they have the speed and memory of the published ones, but hear and say
nonsense. Nothing is fetched. ``--small``: tiny models on a CPU, to try this anywhere.

Each stage runs in its own process, so a failure costs only that stage. ``--speech``: a folder with
``speech.json`` (a list of ``file`` and ``text``) or of labelled turns
(``benchmarks.harness.labels``). ``--words``: the server has the tests' tiny recogniser, which knows
ten sentences, instead of one made from seeds. ``--out``: a line of JSON for each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu import engines, models
from benchmarks.gpu.report import Report, card, show
from benchmarks.gpu.server import server
from benchmarks.gpu.speech import recordings
from benchmarks.harness.program import arguments

STAGES: dict[str, Callable[[argparse.Namespace, Report], None]] = {
    "stt": engines.stt,
    "voice": engines.voice,
    "llm": engines.llm,
    "server": server,
}
ROOM = 24 * 2**30
"""Bytes for the full-size models, half of which are written a second time."""
MEMORY = Path("/dev/shm")
LEAST_S = 5.0


def parse_arguments() -> argparse.Namespace:
    parser = arguments(__doc__, "benchmarks.gpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STAGES))
    parser.add_argument("--voice", choices=sorted(models.VOICES), default="0b6")
    parser.add_argument("--robots", type=lambda text: [*map(int, text.split(","))], default=[1, 4])
    parser.add_argument("--turns", type=int, help="for one robot, and for several together")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--models", type=Path, default=_room())
    parser.add_argument("--cache", type=Path, help="where weights are")
    parser.add_argument("--limit-s", type=float, default=1800.0, help="for all of it")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.only) - set(STAGES):
        parser.error(f"no such stage: {', '.join(unknown)}")
    args.turns = args.turns or (2 if args.small else 20)
    args.repeats = args.repeats or (2 if args.small else 20)
    if {"stt", "server"} & set(args.only):
        try:
            recordings(args.speech, tiny=False)
        except FileNotFoundError as error:
            parser.error(str(error))
    args.models.mkdir(parents=True, exist_ok=True)
    return args


def _room() -> Path:
    """A folder in memory if there is room, else on disk."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    return (MEMORY if roomy else Path(tempfile.gettempdir())) / "reachy-voice-gpu"


class StageProcesses:
    """Runs stages as processes of this program, within a time limit."""

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self._args, self._out = args, out
        self._until = time.monotonic() + args.limit_s

    def start(self, *names: str) -> None:
        """Run the stages side by side; returns when all of them have ended."""
        running = {name: self._process(name) for name in names}
        for name, process in running.items():
            report = Report(self._out, name)
            try:
                code = process.wait(max(LEAST_S, self._until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            if code:
                report.note("failed", f"exit code {code}")

    def _process(self, name: str) -> subprocess.Popen[bytes]:
        own = ["--stage", name, "--out", str(self._out), "--models", str(self._args.models)]
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "benchmarks.gpu",
            *sys.argv[1:],
            *own,
        ]
        # In its own process group, so that its children can be killed with it.
        return subprocess.Popen(command, start_new_session=True)


def main() -> None:
    args = parse_arguments()
    if args.stage:
        _stage(args)
        return
    out = args.out or args.models / "figures.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("", encoding="utf-8")
    machine = Report(out, "machine")
    machine.note("card and driver", "none used" if args.small else card())
    machine.note("torch", _torch())
    stages = StageProcesses(args, out)
    kinds = {"llm", "stt", "voice"} if "server" in args.only else set(args.only)
    missing = [kind for kind, path in models.models_to_make(args).items() if not path.exists()]
    stages.start(*(f"make {kind}" for kind in missing if kind in kinds))
    for name in args.only:
        stages.start(name)
    show([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()])


def _stage(args: argparse.Namespace) -> None:
    report = Report(args.out, args.stage)
    began = time.monotonic()
    if args.stage in STAGES:
        STAGES[args.stage](args, report)
    else:
        models.make(args.stage.removeprefix("make "), args)
        report.figure("made", "s", time.monotonic() - began)


def _torch() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    main()
