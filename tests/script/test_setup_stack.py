"""script/setup.py for a GPU: torch and the stack, llama.cpp with CUDA, checks of the machine."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import setup as setup_program

from app.setup import failures, flow, needs, stack, steps
from app.setup.commands import Log
from app.setup.finding import Check
from app.setup.needs import Cuda, MissingWeights, Needs
from app.setup.place import Place
from app.setup.steps import Step
from tests.support.checkout import CUDA, answer_pip, called, do
from tests.support.places import ROOT

pytestmark = pytest.mark.machine

WORKSTATION = stack.STACK
FOR_CPU = f"torch=={stack.locked_versions(ROOT / stack.CUDA_LOCK)['torch'][0]}+cpu"
HASHED = sys.platform == "linux" and (platform.machine(), sys.version_info[:2]) == stack.HASHED
TORCH_FOR_CPU = "--require-hashes -r {place.root}/script/torch-cpu.lock" if HASHED else FOR_CPU
PARAKEET = MissingWeights("parakeet", 2_509_332_480, "hub nvidia/parakeet", "CC-BY-4.0")


class TestTorch:
    def test_for_a_cpu(self, place: Place) -> None:
        do(place, stack.torch_for_cpu(place))
        _, torch, torchaudio = called(place)
        assert torch == "install --no-deps " + TORCH_FOR_CPU.format(place=place)
        assert torchaudio.endswith("/torchaudio_stub")
        assert "--no-index" in torchaudio
        copy = Path(torchaudio.split()[-1])
        assert (copy / "torchaudio" / "compliance" / "kaldi.py").is_file()
        assert copy.is_relative_to(place.scratch), "setuptools builds where the source is"
        assert stack.installed_torch(place) == "cpu"

    def test_pytorchs_index_is_used_if_the_users_lacks_the_file(self, place: Place) -> None:
        nothing = f"echo 'ERROR: No matching distribution found for {FOR_CPU}'; exit 1"
        answer_pip(place, f'case "$*" in *extra-index-url*|*_stub*) ;; *"torch"*) {nothing};; esac')
        do(place, stack.torch_for_cpu(place))
        wanted = TORCH_FOR_CPU.format(place=place)
        assert f"--extra-index-url {stack.CPU_INDEX} {wanted}" in called(place)[2]

    def test_where_no_hash_is_known_the_plan_says_so(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stack.platform, "machine", lambda: "riscv64")
        step = stack.torch_for_cpu(place)
        (fetch,) = step.fetches
        assert "pinned by version, not by hash" in fetch.what
        do(place, step)
        assert called(place)[1] == f"install --no-deps {FOR_CPU}"

    def test_the_hash_belongs_to_the_cuda_version(self) -> None:
        lock = ROOT / "script" / "torch-cpu.lock"
        assert f"torch=={stack.locked_versions(lock)['torch'][0]}" == FOR_CPU
        assert re.search(r"--hash=sha256:[0-9a-f]{64}$", lock.read_text(), re.MULTILINE)

    def test_a_full_disk_is_not_retried(self, place: Place) -> None:
        full = "echo '[Errno 28] No space left on device'; exit 1"
        answer_pip(place, f'case "$*" in *" install "*) {full};; esac')
        with pytest.raises(failures.SetupError) as caught:
            do(place, stack.torch_for_cpu(place))
        assert caught.value.exit_code == failures.NO_SPACE
        assert len(called(place)) == 2, "what is of CUDA alone, and torch"
        assert stack.installed_torch(place) == ""

    def test_for_cuda_every_file_is_pinned(self, place: Place) -> None:
        do(place, stack.torch_for_cpu(place))
        do(place, stack.torch_for_cuda(place))
        *_, remove, install = called(place)
        assert remove == "uninstall -y torch torchaudio", "pip takes that for a CPU as the same"
        assert "--require-hashes" in install
        assert install.endswith(stack.CUDA_LOCK)
        assert stack.installed_torch(place) == "cuda"

    def test_back_to_a_cpu(self, place: Place) -> None:
        cuda = stack.torch_for_cuda(place)
        do(place, cuda)
        do(place, stack.torch_for_cpu(place))
        assert stack.installed_torch(place) == "cpu"
        assert not cuda.is_done(place)
        (removed,) = [call for call in called(place) if "nvidia-cublas" in call]
        assert removed.startswith("uninstall -y cuda-toolkit nvidia-")
        assert "torch" not in removed.split()

    def test_nvidias_libraries_are_removed_after_an_interrupted_change(self, place: Place) -> None:
        do(place, stack.torch_for_cuda(place))
        answer_pip(place, 'case "$*" in *"uninstall -y cuda-toolkit"*) exit 1;; esac')
        with pytest.raises(failures.SetupError):
            do(place, stack.torch_for_cpu(place))
        answer_pip(place, "exit 0")
        (place.root / "calls").unlink()
        do(place, stack.torch_for_cpu(place))
        assert "nvidia-cublas" in called(place)[0]

    def test_room_for_what_pip_downloads(self, place: Place) -> None:
        """pip downloads all wheels into scratch before it unpacks the first, and keeps them."""
        for step in (
            stack.torch_for_cuda(place),
            stack.torch_for_cpu(place),
            stack.packages_of_stack(place),
            steps.packages(place, "requirements.lock"),
        ):
            (fetch,) = step.fetches
            assert step.checkout_mb == 2 * fetch.download_mb + fetch.disk_mb

    def test_the_stand_in_names_itself(self) -> None:
        code = "import torchaudio.compliance.kaldi as k, torchaudio as t\n"
        code += "print(t.__version__, callable(k.fbank))\nt.load"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT / "script" / "torchaudio_stub",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "0+stub.of.reachy.voice True\n"
        assert "the stand-in that reachy-voice installs" in done.stderr

    def test_the_stand_in_has_one_version(self) -> None:
        stub = ROOT / "script" / "torchaudio_stub"
        for file in ("pyproject.toml", "torchaudio/__init__.py"):
            assert '"0+stub.of.reachy.voice"' in (stub / file).read_text()


class TestStack:
    def test_packages_of_an_earlier_release_are_removed_first(self, place: Place) -> None:
        do(place, stack.packages_of_stack(place))
        removed, installed = (call.split() for call in called(place))
        assert removed == ["uninstall", "-y", "faster-qwen3-tts", "qwen-tts-hf"]
        assert installed[0] == "install"

    def test_torch_comes_before_what_uses_it(self, place: Place) -> None:
        names = [step.name for step in stack.stack_steps(place, "cuda")]
        assert names == ["torch-cuda", WORKSTATION]

    def test_only_what_is_missing_is_done(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        todo = [*stack.stack_steps(place, "cpu"), steps.llama(place)]
        place.stamps.write("llama", todo[-1].inputs())
        flow.set_up(place, todo)
        assert all(step.is_done(place) for step in todo)
        assert [call.split()[0] for call in called(place)] == [
            *("uninstall", "install", "install"),  # CUDA's libraries; torch, its torchaudio
            *("uninstall", "install"),  # superseded packages; these; not llama.cpp
        ]

    def test_what_the_settings_need_is_done_in_order(self, place: Place) -> None:
        found = Needs("workstation", "cuda", CUDA, 2500, (PARAKEET,), "/cache/weights")
        names = [step.name for step in flow.steps_of(place, found, ())]
        assert names == ["torch-cuda", WORKSTATION, "weights", "llama"]
        assert [s.name for s in flow.steps_of(place, Needs(), ())] == ["weights", "llama"]

    def test_whisper_is_installed_where_it_is_chosen(self, place: Place) -> None:
        whisper = Needs(extras=("languages",))
        step, *others = flow.steps_of(place, whisper, ())
        assert [step.name for step in others] == ["weights", "llama"]
        assert [fetch.what for fetch in step.fetches] == ["packages of requirements-languages.lock"]
        do(place, step)
        assert called(place)[-1].endswith("/requirements-languages.lock")
        tested = steps.packages(place, "requirements-dev.lock")
        place.stamps.write(tested.name, tested.inputs())
        names = [step.name for step in flow.steps_of(place, whisper, ())]
        assert names == ["weights", "llama"], "an environment for tests has it"

    def test_missing_weights_are_pulled_with_the_same_settings(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[Sequence[str]] = []

        def run(command: Sequence[str], check: bool) -> subprocess.CompletedProcess[str]:
            ran.append(command)
            return subprocess.CompletedProcess(command, 0)

        monkeypatch.setattr(steps.subprocess, "run", run)
        found = Needs(missing=(PARAKEET,), weights_dir="/cache/weights")
        step = steps.weights(place, "weights", (), found, ("--config", "mine.yaml"))
        place.stamps.write("weights", step.inputs())
        assert not step.is_done(place), "they are missing, whatever was noted"
        step.run(Log(place.build / "step.log", os.environ))
        assert ran == [[str(place.program), "models", "pull", "--config", "mine.yaml"]]
        (fetch,) = step.fetches
        assert fetch.what == "parakeet (CC-BY-4.0)"
        assert fetch.download_mb == 2509


class TestOfTheTests:
    """What ``script/test`` installs."""

    @pytest.fixture
    def ready(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
        """The base is there."""
        for step in steps.base_steps(place, with_tests=True):
            place.stamps.write(step.name, step.inputs())
        monkeypatch.delenv("CI", raising=False)
        return place

    @pytest.mark.parametrize(
        ("ci", "arguments", "stamp", "installs"),
        [
            ("true", [], "", FOR_CPU),
            ("", [], "", ""),
            ("", ["--workstation"], "", FOR_CPU),
            ("", ["--workstation", "--torch", "cuda"], "", "torch for CUDA"),
            ("", ["--workstation"], "torch-cuda", "torch for CUDA"),
            ("", [], WORKSTATION, FOR_CPU),
        ],
    )
    def test_ci_never_does_without_the_stack(
        self,
        ready: Place,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        ci: str,
        arguments: list[str],
        stamp: str,
        installs: str,
    ) -> None:
        monkeypatch.setenv("CI", ci)
        if stamp:
            ready.stamps.write(stamp, "of an older lock")
        assert setup_program._test(ready, [*arguments, "--plan"]) == 0
        printed = capsys.readouterr().err
        assert ("NeMo, Qwen3-TTS" in printed) == bool(installs)
        assert installs in printed

    def test_the_plan_of_a_bare_checkout_has_the_base_too(
        self, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert setup_program._test(place, ["--workstation", "--plan"]) == 0
        printed = capsys.readouterr().err
        assert "packages of requirements-dev.lock" in printed
        assert "NeMo, Qwen3-TTS" in printed
        assert not (place.root / "calls").exists()

    def test_an_environment_for_tests_serves_as_it_is(self, ready: Place) -> None:
        assert all(step.is_done(ready) for step in steps.base_steps(ready, with_tests=False))


class TestFitness:
    BAD = (
        Check("GPU", "fail", "driver 535, 580 is needed", "Install a newer driver"),
        Check("CUDA compiler", "fail", "no nvcc", "Install cuda-toolkit"),
        Check("Python for torch", "ok", "3.11"),
    )

    def test_all_problems_are_in_one_report(self) -> None:
        error = needs.unfit(Needs(findings=self.BAD))
        assert error is not None
        assert error.exit_code == failures.NOT_FIT == 16
        report = error.report()
        assert "driver 535" in report
        assert "no nvcc" in report
        assert "Install cuda-toolkit" in report
        assert "3.11" not in report

    def test_it_stops_before_anything_is_fetched(
        self, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = Needs("workstation", "cuda", CUDA, 0, (PARAKEET,), "/", findings=self.BAD)
        todo = flow.steps_of(place, found, ())
        with pytest.raises(failures.SetupError) as caught:
            flow.set_up(place, todo, found)
        assert caught.value.exit_code == failures.NOT_FIT
        assert "torch for CUDA" in capsys.readouterr().err, "the plan was shown"
        assert not (place.root / "calls").exists()

    def test_a_warning_is_shown_and_setup_continues(
        self, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = Needs(findings=(Check("GPU memory", "warn", "little", "Close others"),))
        flow.check_computer(place, [], found)
        assert "GPU memory: little. Close others" in capsys.readouterr().err

    def test_a_full_disk_is_called_so(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def none_is_usable() -> str:
            raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

        monkeypatch.setattr(tempfile, "gettempdir", none_is_usable)
        monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
        step = Step("large", "Large", lambda: "inputs", lambda log: None, checkout_mb=10**9)
        with pytest.raises(failures.SetupError) as caught:
            flow.check_computer(place, [step])
        assert caught.value.exit_code == failures.NO_SPACE

    def test_room_for_what_nemo_unpacks(self, place: Place) -> None:
        with pytest.raises(failures.SetupError) as caught:
            flow.check_computer(place, [], Needs(temporary_mb=10**9))
        assert caught.value.exit_code == failures.NO_SPACE


class TestAsking:
    ANSWER = json.dumps(
        {
            "stack": "workstation",
            "torch": "cuda",
            "cuda": {"nvcc": "/nvcc", "version": "13.0", "capability": "8.9"},
            "temporary_mb": 2500,
            "missing": [],
            "weights_dir": "/cache/weights",
            "llama": "cuda",
            "pictures": True,
            "console": "http://localhost:8765/console/",
            "extras": [],
            "findings": [{"name": "GPU", "state": "ok", "detail": "fine", "fix": ""}],
        }
    )

    def test_the_installed_program_is_asked(self, place: Place) -> None:
        answer_pip(place, f"echo '{self.ANSWER}'")
        found = needs.ask(place, ["--config", "reachy", "--torch", "auto"])
        assert called(place) == ["-I -m app.doctor.for_setup --config reachy --torch auto"]
        assert found.cuda == Cuda("/nvcc", "13.0", "8.9")
        assert needs.unfit(found) is None

    def test_its_exit_code_is_passed_on(self, place: Place) -> None:
        answer_pip(place, "exit 3")
        with pytest.raises(failures.SetupError) as caught:
            needs.ask(place, ["--config", "no-such"])
        assert caught.value.exit_code == 3

    def test_packages_for_another_processor(self, place: Place) -> None:
        answer_pip(place, "kill -ILL $$")
        with pytest.raises(failures.SetupError, match="needs of the settings") as caught:
            needs.ask(place, [])
        assert caught.value.exit_code == failures.NOT_FIT
        assert "signal 4" in caught.value.why
