"""From a bare machine to a server that can start: first the base, which is enough for the program
to read the settings; then what those need (``app.doctor.for_setup``)."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType

from app.setup import computer, options, plan
from app.setup.beside import Beside, beside
from app.setup.commands import Log, clock, tell
from app.setup.failures import (
    INTERRUPTED,
    NO_COMPILER,
    SetupError,
    classify,
    compiler_missing,
    declined,
)
from app.setup.needs import BASE_NEEDS, Needs, ask, unfit
from app.setup.place import Place, locked
from app.setup.progress import SetupProgress, is_running, progress_page
from app.setup.proposal import ask_owner, may_ask, proposal
from app.setup.stack import stack_steps
from app.setup.steps import (
    BEFORE_PIP,
    Step,
    base_steps,
    clear_scratch,
    extras,
    keeps_packages,
    llama,
    weights,
)


def exit_code_of(work: Callable[[], int]) -> int:
    """Run ``work``, report its errors, and return the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return work()
    except KeyboardInterrupt:
        tell("\nInterrupted. The next start resumes here.")
        return INTERRUPTED
    except (SetupError, OSError) as error:
        failure = _os_error(error) if isinstance(error, OSError) else error
        tell(f"\n{failure.report()}")
        return failure.exit_code


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def serve(place: Place, arguments: list[str], *, opens: bool = False) -> int:
    """``script/serve``: set up, then become the server. ``opens``: show it in a browser."""
    args = options.of_serve(arguments)
    if args.help:
        return _help(place, args.help_text)
    if args.plan or args.setup_only:
        prepare(place, args)
    elif not (opens and is_running(args)):
        _become_server(place, args, opens)
    return 0


def _become_server(place: Place, args: Namespace, opens: bool) -> None:
    """The first set-up shows its progress on a page, which then becomes the console."""
    fresh = place.stamps.read("llama") is None and (opens or sys.stderr.isatty())
    with progress_page(place, args, opens=opens) if fresh else nullcontext(False) as is_open:
        prepare_or_remote(place, args)
    program, more = str(place.program), ["--open"] if opens and not is_open else []
    os.execv(program, [program, "serve", *args.settings, *args.others, *more])


def prepare(place: Place, args: Namespace) -> None:
    """Set up for the settings, or with ``--plan`` only show it. Raises ``SetupError``."""
    base = base_steps(place, with_tests=False)
    if not all(step.is_done(place) for step in base):
        options.require_config(place.root, args.config)
        if args.plan:
            return _plan_of_base(place, base)
    with preparing(place) as running:
        set_up(place, base, ahead=_known_steps(place, args.settings), running=running)
        agreed = not args.plan and may_ask(args.settings) and _propose(place, args.torch)
        needs = ask(place, [*args.settings, *args.port_settings, "--torch", args.torch])
        SetupProgress(place).set_console(needs.console)
        steps = steps_of(place, needs, args.settings)
        if args.plan:
            return show_plan(place, steps, needs)
        return set_up(place, steps, needs, agreed=agreed, running=running)


def prepare_or_remote(place: Place, args: Namespace) -> None:
    """Like ``prepare``; without a compiler, set up what needs none. Raises ``SetupError``."""
    try:
        prepare(place, args)
    except SetupError as error:
        settings = ["--config", "remote"]
        if error.exit_code != NO_COMPILER or args.settings not in ([], settings):
            raise
        tell(f"{error.report()}\nWhat needs no compiler is set up now.")
        set_up(place, base_steps(place, with_tests=False))
        needs = replace(ask(place, settings), llama="")
        set_up(place, steps_of(place, needs, settings), needs)
        error.fix += (
            ", then run this again. Meanwhile servers of your own will do, by URL "
            "(docs/servers.md): reachy-voice serve --config remote"
        )
        raise


def preparing(place: Place) -> AbstractContextManager[Beside]:
    return beside(lambda step: _log(place, f"{step.name}-beside", quiet=True))


def _known_steps(place: Place, settings: Sequence[str]) -> list[Step]:
    """The steps that are needed whatever the settings say."""
    return [] if settings or shutil.which("nvidia-smi") else [llama(place)]


def _propose(place: Place, torch: str) -> bool:
    """Propose a better profile than the default, if one fits. Returns whether the owner took it,
    and agreed to its downloads."""
    offer = proposal(place)
    if offer is None:
        return False
    settings = ["--config", offer.profile]
    needs = ask(place, [*settings, "--torch", torch])
    steps = steps_of(place, needs, settings)
    todo = [fetch for step in steps if not step.is_done(place) for fetch in step.fetches]
    with SetupProgress(place).asking():
        return unfit(needs) is None and ask_owner(offer, todo)


def _help(place: Place, text: str) -> int:
    """Show the help without setting anything up."""
    print(text, flush=True)
    if place.program.exists():
        os.execv(str(place.program), [str(place.program), "serve", "--help"])
    print("All other options are the server's; they are listed here once it is set up.")
    return 0


def _plan_of_base(place: Place, base: Sequence[Step]) -> None:
    """The plan if the program that reads the settings is not installed yet."""
    _show(place, [*to_do(place, base), llama(place)])
    print(
        "What else the settings need is known only after that. Start without --plan to see it; at\n"
        "a terminal you are asked before more than 1 GB is fetched."
    )


def steps_of(place: Place, needs: Needs, settings: Sequence[str]) -> list[Step]:
    """The steps after the base."""
    heavy = stack_steps(place, needs.torch) if needs.stack else []
    heavy += extras(place, needs.extras)
    model = [llama(place, needs.cuda, pictures=needs.pictures)] if needs.llama else []
    return [*heavy, weights(place, "weights", (), needs, settings), *model]


def show_plan(place: Place, steps: Sequence[Step], needs: Needs = BASE_NEEDS) -> None:
    """Show what would be done, and whether this machine can run it."""
    todo = [step for step in steps if not step.is_done(place)]
    if not any(step.fetches for step in todo):
        tell("Nothing needs to be fetched.")
    _show(place, todo, needs)
    for finding in needs.findings:
        tell(f"{finding.state:<4}  {finding.name}: {finding.detail}")
    if (error := unfit(needs)) is not None:
        raise error


def set_up(
    place: Place,
    steps: Sequence[Step],
    needs: Needs = BASE_NEEDS,
    ahead: Sequence[Step] = (),
    *,
    agreed: bool = False,
    running: Beside | None = None,
) -> None:
    """Run the steps that are not done. ``ahead``: later steps, for which the machine is checked
    now; their slow parts run in parallel, in ``running``. ``agreed``: the user already agreed to
    the downloads. Raises ``SetupError`` and ``OSError``."""
    if all(step.is_done(place) for step in steps):
        return
    with locked(place.build / "setup.lock", "another setup") as lock:
        _do(place, steps, lock, needs, ahead, agreed, running)


def _do(
    place: Place,
    steps: Sequence[Step],
    lock: int,
    needs: Needs,
    ahead: Sequence[Step],
    agreed: bool,
    running: Beside | None,
) -> None:
    began = time.monotonic()
    todo = to_do(place, steps)
    later = [step for step in ahead if todo and not step.is_done(place)]
    _show(place, todo, needs)
    check_computer(place, [*todo, *later], needs)
    progress = SetupProgress(place)
    with progress.asking():
        agreed = agreed or plan.confirm([fetch for step in todo for fetch in step.fetches])
    if not agreed:
        raise declined()
    clear_scratch(place)
    progress.add([*todo, *later])
    for number, step in enumerate(todo, 1):
        if running is not None and step.name not in BEFORE_PIP:
            for each in (*todo, *later):
                if running.start(each):
                    progress.begin(each)
        with progress.step(step):
            _do_step(place, step, f"[{number}/{len(todo)}] {step.title}", lock, running)
    clear_scratch(place)
    if todo:
        tell(f"Set up in {clock(time.monotonic() - began)}")


def _show(place: Place, steps: Sequence[Step], needs: Needs = BASE_NEEDS) -> None:
    """Print what these steps fetch, if anything."""
    where = [f"{place.venv}"]
    if any(step.cache_mb for step in steps):
        where.append(f"{cache_of(place, needs)}")
    for line in plan.lines([fetch for step in steps for fetch in step.fetches], where):
        tell(line)


def to_do(place: Place, steps: Sequence[Step]) -> list[Step]:
    """Steps to run: all of them if the environment will be empty."""
    is_kept = steps[0].name != "environment" or steps[0].is_done(place) or keeps_packages(place)
    if not is_kept:
        return list(steps)
    return [step for step in steps if not step.is_done(place)]


def check_computer(place: Place, todo: Sequence[Step], needs: Needs = BASE_NEEDS) -> None:
    """Look for anything that would stop a later step. Raises ``SetupError``."""
    names = {step.name: step for step in todo}
    errors = [unfit(needs)]
    for finding in needs.findings:
        if finding.state == "warn":
            tell(f"{finding.name}: {finding.detail}. {finding.fix}")
    if "environment" in names:
        errors.append(computer.venv_error(importlib.util.find_spec, sys.version_info[:2]))
    compiles = any(fetch.compile_s for step in todo for fetch in step.fetches)
    if compiles and computer.find_compiler(os.environ) is None:
        errors.append(compiler_missing())
    room = {
        place.home: sum(step.checkout_mb for step in todo),
        cache_of(place, needs): sum(step.cache_mb for step in todo),
        # Not by tempfile, which finds no directory on a full disk.
        Path(os.environ.get("TMPDIR") or "/tmp"): needs.temporary_mb,
    }
    faults = [error for error in (*errors, *computer.space_errors(room)) if error]
    for error in faults[:-1]:
        tell(error.report())
    if faults:
        faults[-1].exit_code = faults[0].exit_code
        raise faults[-1]


def cache_of(place: Place, needs: Needs) -> Path:
    """The cache of weights; the settings may move it away from the wheels' cache."""
    return Path(needs.weights_dir or place.cache)


def _do_step(place: Place, step: Step, title: str, lock: int, running: Beside | None) -> None:
    tell(f"{title} (about {clock(step.typical_s)})")
    log = _log(place, step.name, lock)
    if running is not None and step.prepare is not None:
        running.finish(step, log)
    step.run(log)
    log.done()
    place.stamps.write(step.name, step.inputs())


def _log(place: Place, name: str, lock: int | None = None, *, quiet: bool = False) -> Log:
    return Log(place.build / f"setup-{name}.log", step_environment(place), lock, quiet=quiet)


def step_environment(place: Place) -> dict[str, str]:
    """Override the user's pip settings that would break setup; keep their index."""
    pip = {"PIP_NO_INPUT": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # NVIDIA's containers constrain versions. An empty variable leaves pip's files in force.
    pip |= {"PIP_CONSTRAINT": os.devnull, "PIP_NO_BINARY": ":none:", "PIP_ONLY_BINARY": ":none:"}
    pip |= {"PIP_ROOT": ""}  # what builds a package obeys it
    return {**os.environ, **pip, "TMPDIR": str(place.scratch)}


def _os_error(error: OSError) -> SetupError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return classify("a file could not be written", os.strerror(errno.ENOSPC))
    return SetupError(1, "a file cannot be used", str(error), "Check who owns it, then run again")
