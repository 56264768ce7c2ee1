"""Run by ``script/serve`` and ``script/test``: set up what is missing, then serve or test.

Setup starts with the base, which is enough for the program to read the settings. The program
then reports what else they need (``app.doctor.for_setup``: torch, NeMo, CUDA, weights), and setup
installs it. Options: ``--plan`` shows what would be fetched and stops, ``--setup-only`` stops
before the server, ``--torch cpu|cuda`` chooses the build of torch; ``script/test --workstation``
installs torch, NeMo and qwen-tts, and ``script/test --real-servers`` builds a llama-server, as CI
does.

Exit codes: 10 no usable Python, 11 no compiler, 12 package index not reachable, 13 disk full,
14 something could not be built or installed, 15 a download does not match the lock file,
16 this machine cannot run the chosen engines, 17 you answered no, 130 interrupted; otherwise those
of ``reachy-voice`` or of the checks.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from setup_steps import computer, options, plan
from setup_steps.commands import Log, clock
from setup_steps.failures import (
    INTERRUPTED,
    SetupError,
    classify,
    compiler_missing,
    declined,
)
from setup_steps.needs import Needs, ask, unfit
from setup_steps.place import Place, locked
from setup_steps.proposal import answered, may_ask, proposal
from setup_steps.stack import STACKS, installed_stack, installed_torch, stack_steps
from setup_steps.steps import (
    TEST_WEIGHTS,
    Step,
    base_steps,
    clear_scratch,
    llama,
    llama_server,
    weights,
)


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments
    place = Place.of(Path(__file__).resolve().parent.parent, os.environ)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return _test(place, rest) if command == "test" else _serve(place, rest)
    except KeyboardInterrupt:
        print("\nInterrupted. The next start resumes here.", file=sys.stderr)
        return INTERRUPTED
    except SetupError as error:
        print(f"\n{error.report()}", file=sys.stderr)
        return error.exit_code


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _serve(place: Place, arguments: list[str]) -> int:
    given = options.of_serve(arguments)
    if given.help:
        return _help(place, given.help_text)
    base = base_steps(place, with_tests=False)
    if not all(step.is_done(place) for step in base):
        options.require_config(place.root, given.config)
        if given.plan:
            return _plan_of_base(place, base)
    set_up(place, base, ahead=[llama(place)])
    agreed = not given.plan and may_ask(given.settings) and _propose(place, given.torch)
    needs = ask(place, [*given.settings, "--torch", given.torch])
    steps = steps_of(place, needs, given.settings)
    if given.plan:
        return _plan(place, steps, needs)
    set_up(place, steps, needs, agreed=agreed)
    if not given.setup_only:
        program = str(place.program)
        os.execv(program, [program, "serve", *given.settings, *given.others])
    return 0


def _propose(place: Place, torch: str) -> bool:
    """Propose a better profile than the default, if one fits. True: the owner took it, and agreed
    to its downloads."""
    offer = proposal(place)
    if offer is None:
        return False
    settings = ["--config", offer.profile]
    needs = ask(place, [*settings, "--torch", torch])
    steps = steps_of(place, needs, settings)
    todo = [fetch for step in steps if not step.is_done(place) for fetch in step.fetches]
    return unfit(needs) is None and answered(offer, todo)


def _help(place: Place, text: str) -> int:
    """Show the help without setting anything up."""
    print(text, flush=True)
    if place.program.exists():
        os.execv(str(place.program), [str(place.program), "serve", "--help"])
    print("All other options are the server's; they are listed here once it is set up.")
    return 0


def _plan_of_base(place: Place, base: Sequence[Step]) -> int:
    """The plan if the program that reads the settings is not installed yet."""
    _show(place, [*_to_do(place, base), llama(place)])
    print(
        "What else the settings need is known only after that. Start without --plan to see it; at\n"
        "a terminal you are asked before more than 1 GB is fetched."
    )
    return 0


def steps_of(place: Place, needs: Needs, settings: Sequence[str]) -> list[Step]:
    """The steps after the base."""
    heavy = stack_steps(place, needs.lock, needs.torch) if needs.stack else []
    return [*heavy, llama(place, needs.cuda), weights(place, "weights", (), needs, settings)]


def _plan(place: Place, steps: Sequence[Step], needs: Needs) -> int:
    """Only show what would be done, and whether this machine can run it."""
    todo = [step for step in steps if not step.is_done(place)]
    if not any(step.fetches for step in todo):
        print("Nothing needs to be fetched.", file=sys.stderr)
    _show(place, todo, needs)
    for finding in needs.findings:
        print("{state:<4}  {name}: {detail}".format_map(finding), file=sys.stderr)
    if (error := unfit(needs)) is not None:
        raise error
    return 0


def _test(place: Place, arguments: list[str]) -> int:
    from setup_steps import checks, debian

    given = options.of_test(arguments)
    if given.help:
        print(given.help_text)
        return 0
    base = base_steps(place, with_tests=True)
    wanted = given.workstation or checks.in_ci() or installed_stack(place) == STACKS[0]
    torch = given.torch if given.torch != "auto" else installed_torch(place) or "cpu"
    steps = stack_steps(place, STACKS[0], torch) if wanted else []
    steps += [llama(place), weights(place, "weights-of-tests", TEST_WEIGHTS)]
    if given.real_servers or checks.in_ci() or place.stamps.read("llama-server"):
        steps.append(llama_server(place))
    if given.plan:
        return _plan(place, [*_to_do(place, base), *steps], Needs())
    missing = debian.provide(os.environ)
    set_up(place, base, ahead=[llama(place)])
    set_up(place, steps)
    if given.setup_only:
        return 0
    return checks.run(place, given.others, missing)


def set_up(
    place: Place,
    steps: Sequence[Step],
    needs: Needs | None = None,
    ahead: Sequence[Step] = (),
    *,
    agreed: bool = False,
) -> None:
    """Run the steps that are not done. ``ahead``: later steps, for which the machine is checked
    now. ``agreed``: the user already agreed to the downloads. Raises ``SetupError``."""
    if all(step.is_done(place) for step in steps):
        return
    try:
        with locked(place.build / "setup.lock", "another setup of this checkout") as lock:
            _do(place, steps, lock, needs or Needs(), ahead, agreed)
    except OSError as error:
        raise _os_error(error) from error


def _do(
    place: Place,
    steps: Sequence[Step],
    lock: int,
    needs: Needs,
    ahead: Sequence[Step],
    agreed: bool,
) -> None:
    started = time.monotonic()
    todo = _to_do(place, steps)
    later = [step for step in ahead if todo and not step.is_done(place)]
    _show(place, todo, needs)
    check_computer(place, [*todo, *later], needs)
    if not (agreed or plan.agreed([fetch for step in todo for fetch in step.fetches])):
        raise declined()
    clear_scratch(place)
    for number, step in enumerate(todo, 1):
        _do_step(place, step, f"[{number}/{len(todo)}] {step.title}", lock)
    clear_scratch(place)
    if todo:
        print(f"Set up in {clock(time.monotonic() - started)}", file=sys.stderr, flush=True)


def _show(place: Place, steps: Sequence[Step], needs: Needs | None = None) -> None:
    """Print what these steps fetch, if anything."""
    where = [f"{place.venv}"]
    if any(step.cache_mb for step in steps):
        where.append(f"{cache_of(place, needs or Needs())}")
    for line in plan.lines([fetch for step in steps for fetch in step.fetches], where):
        print(line, file=sys.stderr, flush=True)


def _to_do(place: Place, steps: Sequence[Step]) -> list[Step]:
    """Steps to run: all of them if the environment is new, because it is empty."""
    if steps[0].name == "environment" and not steps[0].is_done(place):
        return list(steps)
    return [step for step in steps if not step.is_done(place)]


def check_computer(place: Place, todo: Sequence[Step], needs: Needs | None = None) -> None:
    """Find anything that would stop a later step. Raises ``SetupError``."""
    needs = needs or Needs()
    names = {step.name: step for step in todo}
    errors = [unfit(needs)]
    for finding in needs.findings:
        if finding["state"] == "warn":
            print("{name}: {detail}. {fix}".format_map(finding), file=sys.stderr)
    if "environment" in names:
        errors.append(computer.venv_error(_has_module, sys.version_info[:2]))
    compiles = any(fetch.compile_s for step in todo for fetch in step.fetches)
    if compiles and computer.find_compiler(os.environ) is None:
        errors.append(compiler_missing())
    room = {
        place.root: sum(step.checkout_mb for step in todo),
        cache_of(place, needs): sum(step.cache_mb for step in todo),
        Path(tempfile.gettempdir()): needs.temporary_mb,
    }
    found = [error for error in (*errors, *computer.space_errors(room)) if error]
    for error in found[:-1]:
        print(error.report(), file=sys.stderr)
    if found:
        found[-1].exit_code = found[0].exit_code
        raise found[-1]


def cache_of(place: Place, needs: Needs) -> Path:
    """The cache of weights; the settings may move it away from that of the wheels."""
    return Path(needs.weights_dir or place.cache)


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _do_step(place: Place, step: Step, title: str, lock: int) -> None:
    print(f"{title} (about {clock(step.typical_s)})", file=sys.stderr, flush=True)
    log = Log(place.build / f"setup-{step.name}.log", step_environment(place), lock)
    step.run(log)
    log.done()
    place.stamps.write(step.name, step.inputs())


def step_environment(place: Place) -> dict[str, str]:
    """Override the user's pip settings that would break setup; keep their index."""
    pip = {"PIP_NO_INPUT": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**os.environ, **pip, "TMPDIR": str(place.scratch)}


def _os_error(error: OSError) -> SetupError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return classify("a file could not be written", os.strerror(errno.ENOSPC))
    return SetupError(1, "a file cannot be used", str(error), "Check who owns it, then run again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
