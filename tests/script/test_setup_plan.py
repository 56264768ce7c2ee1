"""script/setup.py: its options, the plan that it shows first, and consistent lock files."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping

import pytest

from app.setup import options, plan, stack
from tests.support.places import ROOT

pytestmark = pytest.mark.quick

BASE, TESTED = "requirements.lock", "requirements-dev.lock"
WHISPER = "requirements-languages.lock"
WORKSTATION = stack.STACK


def pins(name: str) -> Mapping[str, list[str]]:
    return stack.locked_versions(ROOT / name)


class TestLocks:
    def test_parts_pin_the_same_versions(self) -> None:
        together = ("script/bootstrap.lock", BASE, TESTED, WHISPER, WORKSTATION, stack.CUDA_LOCK)
        versions: dict[str, list[str]] = {}
        for name in together:
            for package, pinned in pins(name).items():
                assert versions.setdefault(package, pinned) == pinned, f"{package} in {name}"

    @pytest.mark.parametrize("name", [WORKSTATION, TESTED])
    def test_it_holds_the_base(self, name: str) -> None:
        assert set(pins(BASE)) <= set(pins(name))

    def test_only_whisper_brings_ctranslate2(self) -> None:
        assert "ctranslate2" in pins(WHISPER)
        assert set(pins(WHISPER)) <= set(pins(TESTED)), "the tests run it"
        assert not set(pins(WHISPER)) & set(pins(BASE))

    def test_the_stack_holds_its_main_packages(self) -> None:
        assert pins(WORKSTATION)["transformers"] == ["4.57.3"]
        assert pins(stack.CUDA_LOCK)["cuda-toolkit"][0].startswith(f"{stack.CUDA}.")
        assert {"nemo-toolkit", "qwen-tts"} <= set(pins(WORKSTATION))
        assert not {"torch", "torchaudio", "triton"} & set(pins(WORKSTATION))
        assert {"torch", "torchaudio", "nvidia-cublas"} <= set(pins(stack.CUDA_LOCK))


class TestOptions:
    def test_of_the_server(self) -> None:
        given = options.of_serve(["--profile", "reachy", "--lan", "--set", "a.b=1", "--port", "9"])
        assert given.settings == ["--config", "reachy", "--set", "a.b=1"]
        assert given.others == ["--lan", "--port", "9"]
        assert not given.setup_only

    @pytest.mark.parametrize("written", [["--config", "x"], ["-c", "x"], ["--profile=x"]])
    def test_a_profile_is_a_config(self, written: list[str]) -> None:
        assert options.of_serve(written).settings == ["--config", "x"]

    def test_of_setup_itself(self) -> None:
        given = options.of_serve(["--setup-only", "--dry-run", "--torch", "cpu", "--help"])
        assert given.setup_only
        assert given.plan
        assert given.torch == "cpu"
        assert given.help
        assert given.others == []

    def test_a_mistake_names_the_command_that_was_typed(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            options.of_serve(["--torch", "gpu"])
        assert capsys.readouterr().err.startswith("usage: script/serve ")

    def test_of_the_tests(self) -> None:
        given = options.of_test(["--workstation", "-k", "a or b", "-c", "x.ini", "tests"])
        assert given.workstation
        assert given.others == ["-k", "a or b", "-c", "x.ini", "tests"]


class TestPlan:
    FETCHES = (
        plan.Fetch("torch for CUDA 13.0", "an index", 2724, 4700),
        plan.Fetch("llama.cpp", "an index", 76, 800, compile_s=300),
        plan.Fetch("parakeet (CC-BY-4.0)", "hub nvidia/parakeet", 2500, 2500),
    )

    def test_the_plan_lists_source_size_time_and_destination(self) -> None:
        lines = plan.lines(self.FETCHES, ["/checkout/.venv", "/cache"])
        text = "\n".join(lines)
        assert "50 Mbit/s" in lines[0]
        assert re.search(r"torch for CUDA 13.0 +2.7 GB +4.7 GB +7:16 +an index", text)
        assert re.search(r"llama.cpp +76 MB +800 MB +0:12 \+ about 5:00 to compile +an index", text)
        assert re.search(r"total +5.3 GB +8.0 GB +19:08", text)
        assert "into /checkout/.venv and /cache" in text

    def test_nothing_to_fetch_is_no_plan(self) -> None:
        assert plan.lines([], ["/checkout"]) == []

    def test_no_question_without_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        assert plan.confirm(self.FETCHES)

    @pytest.mark.parametrize(
        ("said", "agreed"),
        [("\n", True), ("y\n", True), ("n\n", False), ("q\n", False), ("", False)],
    )
    def test_a_question_before_a_large_fetch(
        self, monkeypatch: pytest.MonkeyPatch, said: str, agreed: bool
    ) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stdin", Terminal(said))
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert plan.confirm(self.FETCHES) == agreed
        assert plan.confirm([self.FETCHES[1]])

    def test_a_stack_counts_without_the_base(self) -> None:
        whole, _ = plan.locked_size(ROOT, WORKSTATION)
        base, _ = plan.locked_size(ROOT, BASE)
        assert plan.locked_size(ROOT, WORKSTATION, BASE)[0] == whole - base > 0
