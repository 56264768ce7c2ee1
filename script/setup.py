"""Run by ``script/serve`` and ``script/test``: set up what is missing, then serve or test.

Setup starts with the base, which is enough for the program to read the settings. The program
then reports what else they need (``app.doctor.for_setup``: torch, NeMo, CUDA, weights), and setup
installs it. Options: ``--plan`` shows what would be fetched and stops, ``--setup-only`` stops
before the server, ``--torch cpu|cuda`` chooses the build of torch; ``script/test --workstation``
installs torch, NeMo and qwen-tts, and ``script/test --real-servers`` builds a llama-server, as CI
does. ``script/test --quick`` installs Python packages alone and runs what needs no more.

Exit codes: 10 no usable Python, 11 no compiler, 12 package index not reachable, 13 disk full,
14 something could not be built or installed, 15 a download does not match the lock file,
16 this machine cannot run the chosen engines, 17 you answered no, 130 interrupted; otherwise those
of ``reachy-voice`` or of the checks.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from test_steps import checks, debian
from test_steps.llama_server import llama_server

from app.setup import flow, options
from app.setup.computer import usable_cores
from app.setup.needs import Needs
from app.setup.place import Place
from app.setup.stack import STACK, installed_torch, stack_steps
from app.setup.steps import Step, base_steps, llama, weights

TEST_WEIGHTS = ("smart-turn-features-reference",)


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments
    place = Place.of(os.environ)
    return flow.ended(lambda: (_test if command == "test" else flow.serve)(place, rest))


def _test(place: Place, arguments: list[str]) -> int:
    given = options.of_test(arguments)
    if given.help:
        print(given.help_text)
        return 0
    base = base_steps(place, with_tests=True)
    if given.quick:
        return _test_quickly(place, base, given)
    wanted = given.workstation or checks.in_ci() or place.stamps.read(STACK) is not None
    torch = given.torch if given.torch != "auto" else installed_torch(place) or "cpu"
    whole_llama = llama(place, pictures=True)
    steps = stack_steps(place, torch) if wanted else []
    steps += [weights(place, "weights-of-tests", TEST_WEIGHTS), whole_llama]
    if given.real_servers or checks.in_ci() or place.stamps.read("llama-server"):
        steps.append(llama_server(place))
    if given.plan:
        flow.show_plan(place, [*flow.to_do(place, base), *steps], Needs())
        return 0
    missing = debian.provide(os.environ)
    with flow.preparing(place) as running:
        flow.set_up(place, base, ahead=[whole_llama], running=running)
        flow.set_up(place, steps, running=running)
    if given.setup_only:
        return 0
    return checks.run(place, given.others, missing)


def _test_quickly(place: Place, base: list[Step], given: Namespace) -> int:
    if given.plan:
        flow.show_plan(place, flow.to_do(place, base), Needs())
        return 0
    flow.set_up(place, base)
    return 0 if given.setup_only else checks.run_quick(place, given.others, usable_cores())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
