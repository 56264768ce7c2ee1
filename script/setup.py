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
from app.setup.place import Place
from app.setup.stack import STACK, installed_torch, stack_steps
from app.setup.steps import Step, base_steps, llama, weights

TEST_WEIGHTS = ("smart-turn-features-reference",)


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments
    place = Place.of(os.environ)
    return flow.exit_code_of(lambda: (_test if command == "test" else flow.serve)(place, rest))


def _test(place: Place, arguments: list[str]) -> int:
    args = options.of_test(arguments)
    if args.help:
        print(args.help_text)
        return 0
    base = base_steps(place, with_tests=True)
    if args.quick:
        return _test_quickly(place, base, args)
    with_stack = args.workstation or checks.in_ci() or place.stamps.read(STACK) is not None
    torch = args.torch if args.torch != "auto" else installed_torch(place) or "cpu"
    whole_llama = llama(place, pictures=True)
    steps = stack_steps(place, torch) if with_stack else []
    steps += [weights(place, "weights-of-tests", TEST_WEIGHTS), whole_llama]
    if args.real_servers or checks.in_ci() or place.stamps.read("llama-server"):
        steps.append(llama_server(place))
    if args.plan:
        flow.show_plan(place, [*flow.to_do(place, base), *steps])
        return 0
    missing = debian.provide(os.environ)
    with flow.preparing(place) as running:
        flow.set_up(place, base, ahead=[whole_llama], running=running)
        flow.set_up(place, steps, running=running)
    if args.setup_only:
        return 0
    return checks.run(place, args.others, missing)


def _test_quickly(place: Place, base: list[Step], args: Namespace) -> int:
    if args.plan:
        flow.show_plan(place, flow.to_do(place, base))
        return 0
    flow.set_up(place, base)
    return 0 if args.setup_only else checks.run_quick(place, args.others, usable_cores())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
