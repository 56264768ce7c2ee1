"""Output of nvidia-smi and nvcc, and how CUDA numbers the GPUs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.models.gpu import Gpu, Gpus, find_gpus, find_nvcc, nvcc_version, parse_gpus, run_command

pytestmark = pytest.mark.quick

# Output of nvidia-smi for app.models.gpu.QUERY on several machines.
RTX_4090 = "NVIDIA GeForce RTX 4090, 24564, 580.65.06, 8.9, 1000\n"
TWO = "NVIDIA H200, 143771, 580.95.05, 9.0, 1000\nNVIDIA H200, 143771, 580.95.05, 9.0, 1000\n"
OLD_DRIVER = "NVIDIA GeForce RTX 3060, 12288, 535.183.01, 8.6, 1000\n"
OLD_GPU = "Tesla V100-SXM2-16GB, 16384, 580.65.06, 7.0, 1000\n"
SHARED_MEMORY = "NVIDIA GB10, [N/A], 580.95.05, 12.1, 1000\n"
WARNED = "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n" + RTX_4090
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running.\n\n"
)
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
)
NO_FIELD = 'Field "compute_cap" is not a valid field to query.\n'
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""


def machine(output: str, status: int = 0) -> Gpus:
    return find_gpus(lambda command: (status, output), lambda name: f"/usr/bin/{name}")


@pytest.mark.parametrize(
    ("output", "gpus"),
    [
        (RTX_4090, [Gpu("NVIDIA GeForce RTX 4090", 25_757, "580.65.06", (8, 9))]),
        (WARNED, [Gpu("NVIDIA GeForce RTX 4090", 25_757, "580.65.06", (8, 9))]),
        (SHARED_MEMORY, [Gpu("NVIDIA GB10", 0, "580.95.05", (12, 1))]),
        (
            "A GPU, made up, 8192, 580.65, 8.6, 1000",
            [Gpu("A GPU, made up", 8_589, "580.65", (8, 6))],
        ),
        ("", []),
        (NO_DRIVER, []),
        (NO_FIELD, []),
    ],
)
def test_nvidia_smi_output_is_parsed(output: str, gpus: list[Gpu]) -> None:
    assert list(parse_gpus(output)) == gpus


def test_engines_use_the_first_of_two_gpus() -> None:
    gpus = machine(TWO)
    assert len(gpus.found) == 2
    assert gpus.first == gpus.found[0]


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ["4090", "T400"]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["T400", "4090"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["T400", "4090"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["T400"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["4090"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, ["4090", "T400"]),
    ],
)
def test_gpus_are_numbered_as_in_cuda(environ: dict[str, str], names: list[str]) -> None:
    output = "T400, 4096, 580.65, 7.5, 1000\n4090, 24564, 580.65, 8.9, 1000\n"
    gpus = find_gpus(lambda command: (0, output), lambda name: name, environ)
    assert [gpu.name for gpu in gpus.found] == names
    assert gpus.problem == ""


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (9, NO_DRIVER, "couldn't communicate"),
        (18, MISMATCH, "version mismatch"),
        (2, NO_FIELD, "not a valid field"),
        (0, "No devices were found\n", "No devices"),
        (6, "", "ended with 6"),
    ],
)
def test_a_driver_that_does_not_work(status: int, output: str, problem: str) -> None:
    gpus = machine(output, status)
    assert gpus.found == ()
    assert problem in gpus.problem


def test_a_missing_driver_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.models.gpu.SMI_PLACES", ())
    assert find_gpus(run_command, lambda name: None) == Gpus()


def test_a_program_that_hangs_or_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 30)

    assert run_command(["/no/such/program"])[0] == 127
    assert run_command([sys.executable, "-c", "print('yes')"]) == (0, "yes\n")
    monkeypatch.setattr(subprocess, "run", hangs)
    assert run_command(["nvidia-smi"]) == (124, "nvidia-smi did not answer within 30 s")


def test_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvcc_version("nvcc", lambda command: (0, NVCC)) == (13, 0, 88)
    assert nvcc_version("nvcc", lambda command: (127, "no such file")) == ()
    here = {"nvcc": "/usr/bin/nvcc", "/cuda/nvcc": "/cuda/nvcc"}
    assert find_nvcc({}, here.get) == "/usr/bin/nvcc"
    assert find_nvcc({"CUDACXX": "/cuda/nvcc"}, here.get) == "/cuda/nvcc"
    monkeypatch.setattr("app.models.gpu.NVCC_PLACES", ())
    assert find_nvcc({}, dict[str, str]().get) is None
