"""script/setup.py before anything is fetched: a profile that is not there, a GPU that is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setup as setup_program
from setup_steps import early, failures, plan
from setup_steps.place import Place
from setup_steps.plan import Fetch

from app.doctor import stack as doctor_stack
from app.doctor.profile_fit import Wanted, wanted
from app.models.catalogue import Catalogue
from app.models.gpu import Gpu, Gpus
from tests.support.places import ROOT

RTX = Gpu("RTX 4090", 25_757, "580.65.06", (8, 9))
OLD = Gpu("RTX 4090", 25_757, "535.183.01", (8, 9))
SMALL = Gpu("RTX 4060", 8_585, "580.65.06", (8, 9))
SHARED = Gpu("GB10", 0, "580.65.06", (12, 1))


def check(
    config: str, *settings: str, torch: str = "auto", gpus: Gpus | None = None, **environ: str
) -> early.Known | None:
    return early.check(ROOT, config, settings, torch, environ, lambda root: gpus or Gpus())


class TestProfiles:
    @pytest.mark.parametrize("profile", wanted(Catalogue.load()), ids=lambda each: each.name)
    def test_their_comments_are_read(self, profile: Wanted) -> None:
        needs = profile.needs
        known = early.profile_of(ROOT, profile.name)
        assert known is not None
        assert (known.memory_mb, known.gpu_mb) == (needs.memory_mb, needs.gpu_mb)
        assert known.nvidia == (profile.gpu == "nvidia")
        assert f"{known.memory_mb:,} MB of memory" in "\n".join(known.lines())

    def test_one_that_does_not_exist(self) -> None:
        with pytest.raises(failures.SetupError) as caught:
            check("reachi")
        assert caught.value.exit_code == failures.SETTINGS == 3
        assert "Did you mean reachy?" in caught.value.fix
        assert "cpu-plus" in caught.value.why

    @pytest.mark.parametrize("written", ["no/such.yaml", "no-such.yml", "./reachy"])
    def test_a_file_that_does_not_exist(self, written: str) -> None:
        with pytest.raises(failures.SetupError, match="no settings to read") as caught:
            check(written)
        assert caught.value.exit_code == failures.SETTINGS

    def test_of_a_file_of_ones_own_nothing_else_is_known(self, tmp_path: Path) -> None:
        mine = tmp_path / "mine.yaml"
        mine.write_text("extends: reachy\n")
        assert check(str(mine)) is None
        assert check("") is check("default") is None


class TestGpus:
    @pytest.mark.parametrize(
        ("gpus", "why"),
        [
            (Gpus(), "no driver of one is here"),
            (Gpus(problem="NVML: version mismatch"), "NVML: version mismatch"),
            (Gpus((OLD,)), "is 535.183.01, and 580"),
            (Gpus((SMALL,)), "and there are 8,585"),
        ],
    )
    def test_a_profile_for_one_that_is_not_here(self, gpus: Gpus, why: str) -> None:
        with pytest.raises(failures.SetupError) as caught:
            check("reachy", gpus=gpus)
        assert caught.value.exit_code == failures.NOT_FIT
        assert why in caught.value.why
        assert "cpu-plus" in caught.value.fix.lower()

    @pytest.mark.parametrize("gpus", [Gpus((RTX,)), Gpus((SHARED,)), Gpus((SMALL, SMALL))])
    def test_where_it_may_be_enough_the_program_decides_later(self, gpus: Gpus) -> None:
        assert check("reachy", gpus=gpus)

    def test_other_settings_may_do_without(self) -> None:
        assert check("reachy", torch="cpu")
        assert check("reachy", "tts={engine: espeak-ng}")
        assert check("reachy", "stt.device=cpu")
        assert check("reachy", REACHY_VOICE__TTS__ENGINE="espeak-ng")
        with pytest.raises(failures.SetupError):
            check("reachy", "server.port=9", REACHY_VOICE__SERVER__PORT="9")

    def test_wheels_that_nobody_makes(self) -> None:
        known = early.profile_of(ROOT, "reachy")
        assert known is not None
        assert early.packages_error(known, (3, 13), ("glibc", "2.34")) is None
        assert early.packages_error(known, (3, 11), ("", "")) is None
        for python, libc in (((3, 14), "2.39"), ((3, 11), "2.31")):
            error = early.packages_error(known, python, ("glibc", libc))
            assert error is not None
            assert error.exit_code == failures.NOT_FIT
        assert doctor_stack.PYTHONS[1] == early.LAST_PYTHON
        assert early.LEAST_GLIBC == doctor_stack.STACK_GLIBC

    @pytest.mark.parametrize("name", ["cpu", "cpu-plus", "apple", "remote"])
    def test_who_needs_none_is_not_asked(self, name: str) -> None:
        assert check(name)


def bare(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real program in a checkout where nothing is set up, on a machine without a driver."""
    root = directory / "checkout"
    for folder in ("script", "config", "app"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for lock in (*ROOT.glob("requirements*.lock"), ROOT / "pyproject.toml"):
        shutil.copy(lock, root)
    programs = directory / "programs"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or "")
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    done = subprocess.run(
        [str(root / "script" / "serve"), *arguments],
        env={"PATH": str(programs), "HOME": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not (root / ".venv").exists()
    assert not (root / "build").exists()
    return done


class TestRealRuns:
    @pytest.mark.parametrize("arguments", [(), ("--plan",)])
    def test_no_gpu(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        if os.path.exists("/usr/lib/wsl/lib/nvidia-smi"):
            pytest.skip("this machine has a GPU, wherever PATH points")
        done = bare(tmp_path, "--profile", "reachy", *arguments)
        assert done.returncode == failures.NOT_FIT, done.stderr
        assert "no driver of one is here" in done.stderr

    @pytest.mark.parametrize("arguments", [(), ("--plan",)])
    def test_no_such_profile(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        done = bare(tmp_path, "--profile", "nonsense", *arguments)
        assert done.returncode == failures.SETTINGS, done.stderr
        assert "no profile called 'nonsense'" in done.stderr

    def test_the_plan_of_a_profile_for_a_gpu_does_not_promise_llama_cpp_for_the_cpu(
        self, tmp_path: Path
    ) -> None:
        done = bare(tmp_path, "--profile", "reachy", "--torch", "cpu", "--plan")
        assert done.returncode == 0, done.stderr
        assert "10 GB of weights" in done.stderr
        assert "15,396 MB of the GPU's" in done.stderr
        assert "llama.cpp" not in done.stderr
        assert "only known when that is here" in done.stdout

    def test_help_sets_nothing_up(self, tmp_path: Path) -> None:
        done = bare(tmp_path, "--help")
        assert done.returncode == 0, done.stderr
        assert "--setup-only" in done.stdout
        assert "the server's" in done.stdout


def test_who_answers_no_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from setup_steps.steps import Step

    place = Place(tmp_path, tmp_path / "cache", sys.executable)
    large = Fetch("much", "an index", 2000, 2000)
    step = Step("much", "Much", lambda: "", lambda bar, log: pytest.fail("done"), fetches=(large,))
    monkeypatch.setattr(plan, "agreed", lambda fetches: False)
    monkeypatch.setattr(
        setup_program, "_serve", lambda place, _: setup_program.set_up(place, [step])
    )
    monkeypatch.setattr(setup_program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(setup_program.Place, "of", lambda root, environ: place)
    assert setup_program.main(["serve"]) == failures.DECLINED == 17
    printed = capsys.readouterr().err
    assert "you answered no" in printed
    assert "Interrupted" not in printed
