"""Tells ``script/setup.py``, in JSON, what the settings need before it downloads it::

python -m app.doctor.for_setup [--config PROFILE|FILE] [--set KEY=VALUE]... [--torch CHOICE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from app.doctor.engine_needs import EngineNeeds, needs_of
from app.doctor.installed import llama_has_cuda, setup_command
from app.doctor.machine import check_machine, check_nvcc
from app.models.gpu import Gpus, dotted_text, find_gpus, find_nvcc, nvcc_version
from app.settings.load import load_settings
from app.setup.needs import Cuda
from pipeline.errors import ReachyVoiceError


def answer(arguments: Sequence[str], gpus: Gpus | None = None) -> dict[str, Any]:
    """The needs, and the doctor's findings about this machine."""
    parser = argparse.ArgumentParser(prog="python -m app.doctor.for_setup")
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto")
    args = parser.parse_args(arguments)
    gpus = gpus or find_gpus()
    settings = load_settings(args.config, args.set).settings
    needs = needs_of(settings, gpus, args.torch)
    setup = setup_command(args.config, args.set)
    findings = tuple(check_machine(needs, gpus, setup))
    return asdict(replace(needs, cuda=_cuda(needs, gpus), findings=findings))


def _cuda(needs: EngineNeeds, gpus: Gpus) -> Cuda | None:
    """The compiler of llama.cpp for the GPU. Empty ``nvcc``: none is usable, but the existing build
    will do. ``None``: there is neither, and a finding reports it."""
    if needs.llama != "cuda":
        return None
    capability = dotted_text(gpus.first.capability) if gpus.first else ""
    nvcc = find_nvcc()
    if nvcc and all(check.state == "ok" for check in check_nvcc(gpus.found, nvcc, built=False)):
        return Cuda(nvcc, dotted_text(nvcc_version(nvcc)), capability)
    return Cuda("", "", capability) if llama_has_cuda() else None


def main() -> int:
    try:
        data = answer(sys.argv[1:])
    except ReachyVoiceError as error:
        fix = f"\n  do:  {error.fix}" if error.fix else ""
        sys.stderr.write(f"{error.what}\n  why: {error.why}{fix}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
