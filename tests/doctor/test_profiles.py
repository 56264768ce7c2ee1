"""The shipped profiles: they load, their headers tell the truth, and each machine gets its own."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.doctor import profile_fit
from app.doctor import stack as doctor_stack
from app.doctor.memory import check_memory
from app.doctor.needs import needs_of
from app.doctor.profile_fit import (
    BEST_FIRST,
    SYSTEM_MB,
    Machine,
    Wanted,
    advice,
    judge,
    table,
    this_machine,
    wanted,
)
from app.models.catalogue import Catalogue
from app.models.engine_memory import Demand, Part, demand
from app.models.gpu import Gpu, Gpus, cuda_order
from app.settings.load import config_dir, load_settings, profile_names
from pipeline.engines.registry import Kind

CATALOGUE = Catalogue.load()
PROFILES = wanted(CATALOGUE)
FITTED = [name for name, _, _ in BEST_FIRST]


def header(name: str) -> list[str]:
    """The comment at the top of a profile."""
    path = config_dir() / "profiles" / f"{name}.yaml"
    return path.read_text().partition("\nextends:")[0].splitlines()


# --- the files ---------------------------------------------------------------------------------


def test_the_issues_profiles_are_there() -> None:
    assert {"reachy", "reachy-8gb", "cpu", "cpu-plus", "remote", "apple"} <= set(profile_names())
    assert set(FITTED) <= set(profile_names())


@pytest.mark.parametrize("name", profile_names())
def test_the_weights_of_a_profile_are_in_the_catalogue(name: str) -> None:
    settings = load_settings(name, environ={}).settings
    for kind in Kind:
        if weights := getattr(settings.engine(kind), "weights", None):
            entry = CATALOGUE[weights]
            assert entry.kind == kind
            assert all(file.size and file.sha256 for file in entry.files)
            chosen = getattr(settings.engine(kind), "model_file", None)
            assert chosen is None or chosen in [file.local_name for file in entry.files]


@pytest.mark.parametrize("profile", PROFILES, ids=FITTED)
def test_the_header_has_the_memory_and_licences_of_the_catalogue(profile: Wanted) -> None:
    name, lines = profile.name, table(profile.needs)
    text = "\n".join(header(name))
    assert "\n".join(lines) in text, "it should have:\n" + "\n".join(lines)


@pytest.mark.parametrize("name", FITTED)
def test_the_header_tells_where_its_latency_is_from(name: str) -> None:
    text = "\n".join(header(name))
    assert re.search(r"Latency: not measured by us.* Published by others:|, measured by us:", text)


def test_the_readme_has_their_memory() -> None:
    readme = (config_dir().parent / "README.md").read_text()
    for profile in PROFILES:
        gpu_mb, main_mb = profile.needs.gpu_mb, profile.needs.memory_mb
        shown = gpu_mb if profile.gpu == "nvidia" else gpu_mb + main_mb
        row = re.search(rf"^\| `{profile.name}`.*$", readme, re.MULTILINE)
        assert row, profile.name
        assert f"| {shown / 1000:.1f} GB" in row[0], row[0]


def test_cpu_is_the_default_under_a_name() -> None:
    assert load_settings("cpu", environ={}).settings == load_settings(environ={}).settings


def test_the_workstation_hears_and_speaks_on_its_gpu_and_keeps_its_thoughts_to_itself() -> None:
    settings = load_settings("reachy", environ={}).settings
    engines = [settings.engine(kind).engine for kind in (Kind.STT, Kind.LLM, Kind.TTS)]
    assert engines == ["parakeet", "llama-cpp", "qwen3-tts"]
    assert settings.llm.model_dump()["context_tokens"] == 65536
    for name in FITTED:
        arguments = load_settings(name, environ={}).settings.llm.model_dump()["template_arguments"]
        assert arguments == {"enable_thinking": False}


# --- what they need ----------------------------------------------------------------------------


def test_a_context_is_counted_as_llama_cpp_keeps_it() -> None:
    # Qwen3 1.7B: 28 layers of 8 heads of 128 numbers. Keys in q8_0 (34 bytes for 32), values in
    # f16, which without flash attention cannot be quantised.
    settings = load_settings("cpu-plus", environ={}).settings
    parts = {part.name: part for part in demand(settings, CATALOGUE).parts}
    numbers = 28 * 8 * 128 * 8192
    expected = numbers * 34 / 32 + numbers * 2
    assert parts["context, 8,192 tokens"].memory_mb == round(expected / 1e6)

    whole = load_settings("cpu-plus", ["llm.kv_type=f16"], environ={}).settings
    f16 = {part.name: part for part in demand(whole, CATALOGUE).parts}
    assert f16["context, 8,192 tokens"].memory_mb == round(numbers * 4 / 1e6)

    on_gpu = load_settings("reachy-8gb", environ={}).settings
    gpu = {part.name: part for part in demand(on_gpu, CATALOGUE).parts}
    assert gpu["context, 16,384 tokens"].memory_mb == round(36 * 8 * 128 * 16384 * 2 * 34 / 32e6)
    assert gpu["context, 16,384 tokens"].on_gpu


@pytest.mark.parametrize(("settings", "most_mb"), [(("llm.word_judge=null",), 300), ((), 500)])
def test_servers_take_no_memory_here_but_the_judge_of_words_does(
    settings: tuple[str, ...], most_mb: int
) -> None:
    chosen = load_settings("remote", settings, {}).settings
    assert most_mb - 100 < demand(chosen, CATALOGUE).memory_mb < most_mb


# --- which fits --------------------------------------------------------------------------------

RTX_4090 = Gpu("NVIDIA GeForce RTX 4090", 25_757, "590", (8, 9))
RTX_4080 = Gpu("NVIDIA GeForce RTX 4080", 17_171, "590", (8, 9))
RTX_4060 = Gpu("NVIDIA GeForce RTX 4060", 8_585, "580", (8, 9))
GTX_1650 = Gpu("NVIDIA GeForce GTX 1650", 4_294, "580", (8, 9))


def _counted(*gpus: Gpu) -> tuple[Gpu, ...]:
    return tuple(gpus[place] for place in cuda_order(gpus, {}))


MACHINES = [
    ("reachy", Machine(64_000, 16, (RTX_4090,))),
    ("reachy", Machine(32_000, 8, (RTX_4080,))),
    ("reachy", Machine(32_000, 8, _counted(GTX_1650, RTX_4080))),
    ("reachy-8gb", Machine(32_000, 8, (RTX_4060,))),
    ("reachy", Machine(128_000, 20, (Gpu("NVIDIA GB10", 0, "580", (8, 9)),), processor="aarch64")),
    ("cpu-plus", Machine(8_000, 6, (Gpu("NVIDIA Orin", 0, "580", (8, 9)),), processor="aarch64")),
    ("cpu-plus", Machine(16_000, 8, (GTX_1650,))),
    ("cpu-plus", Machine(16_000, 8)),
    ("cpu-plus", Machine(16_000, 8, (Gpu(RTX_4090.name, RTX_4090.memory_mb, "550", (8, 9)),))),
    ("cpu-plus", Machine(32_000, 8, (RTX_4090,), system="win32", processor="AMD64")),
    ("apple", Machine(17_180, 10, system="darwin", processor="arm64")),
    ("cpu-plus", Machine(8_590, 8, system="darwin", processor="arm64")),
    ("cpu-plus", Machine(16_000, 8, system="darwin", processor="x86_64")),
    ("cpu", Machine(16_000, 2)),
    ("cpu", Machine(4_000, 8)),
    ("cpu", Machine(4_000, 1)),
    (None, Machine(1_000, 2)),
]


@pytest.mark.parametrize(("name", "machine"), MACHINES)
def test_each_machine_gets_the_best_that_it_can_run(name: str | None, machine: Machine) -> None:
    verdicts = judge(machine, PROFILES)
    assert next((verdict.name for verdict in verdicts if verdict.fits), None) == name
    begins = f"This machine: profile {name}" if name else "This machine: no profile fits"
    assert advice(verdicts).startswith(begins)


def test_the_advice_says_what_the_larger_ones_lack() -> None:
    small = advice(judge(Machine(16_000, 8, (RTX_4060,)), PROFILES))
    assert small == (
        "This machine: profile reachy-8gb. "
        "reachy needs a GPU of NVIDIA with 15.1 GiB, NVIDIA GeForce RTX 4060 has 8.0 GiB"
    )
    none = advice(judge(Machine(16_000, 8), PROFILES))
    assert none == (
        "This machine: profile cpu-plus. reachy needs a GPU of NVIDIA with 15.1 GiB. "
        "reachy-8gb needs a GPU of NVIDIA with 7.7 GiB"
    )
    old = advice(judge(Machine(16_000, 8, (Gpu("RTX", 25_757, "550.54", (8, 9)),)), PROFILES))
    assert "reachy needs a driver from 580 on, RTX has 550.54" in old
    few = advice(judge(Machine(16_000, 2), PROFILES))
    assert "cpu-plus needs 4 cores, 2 are here" in few
    assert "apple" not in few, "it helps nobody without a Mac"


def test_memory_of_two_gpus_is_not_added_up() -> None:
    two = Machine(64_000, 16, (RTX_4060, RTX_4060))
    verdicts = {verdict.name: verdict.fits for verdict in judge(two, PROFILES)}
    assert (verdicts["reachy"], verdicts["reachy-8gb"]) == (False, True)


TESLA_P40 = Gpu("Tesla P40", 25_757, "580", (6, 1))
T400 = Gpu("T400", 4_294, "580", (7, 5))
ORIN = Gpu("NVIDIA Orin", 0, "580", (8, 7))


@pytest.mark.parametrize("profile", PROFILES, ids=FITTED)
@pytest.mark.parametrize(
    ("memory_mb", "gpus"),
    [
        (64_000, (TESLA_P40,)),
        (64_000, _counted(T400, RTX_4090)),
        (64_000, (RTX_4060,)),
        (3_000, (RTX_4080,)),
        (6_000, (RTX_4080,)),
        (18_500, (ORIN,)),
        (128_000, (ORIN,)),
        (8_000, (ORIN,)),
    ],
)
def test_what_is_advised_is_not_refused_by_the_doctor(
    profile: Wanted, memory_mb: int, gpus: tuple[Gpu, ...], tmp_path: Path
) -> None:
    """And what it refuses is not advised: both count the same parts."""
    if profile.gpu == "apple":
        return
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    settings = load_settings(profile.name, environ={}).settings
    found = needs_of(settings, Gpus(gpus), "auto", environ, "linux")
    checks = [check_memory(found.memory_mb, memory_mb, memory_mb - SYSTEM_MB)]
    if found.gpu_engines:
        checks += doctor_stack.check_gpu(found, Gpus(gpus))
    (verdict,) = judge(Machine(memory_mb, 8, gpus), [profile])
    assert verdict.fits == all(check.state == "ok" for check in checks), (verdict, checks)


def test_an_old_gpu_is_told_what_it_lacks() -> None:
    verdicts = {v.name: v.why for v in judge(Machine(64_000, 16, (TESLA_P40,)), PROFILES)}
    assert verdicts["reachy"] == "needs compute capability 7.5 (Turing), Tesla P40 has 6.1"


def test_main_memory_counts_beside_a_gpu() -> None:
    both = Demand((Part("voice", True, 4000), Part("ears", False, 6000)))
    profile = Wanted("both", both, "nvidia", 1)
    (little,) = judge(Machine(7_000, 4, (RTX_4060,)), [profile])
    (enough,) = judge(Machine(8_000, 4, (RTX_4060,)), [profile])
    assert "needs 7.5 GB of memory" in little.why
    assert enough.fits


# --- the command -------------------------------------------------------------------------------


def test_the_command_lists_all_with_a_sentence_and_what_fits() -> None:
    done = CliRunner().invoke(cli, ["config", "profiles"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == profile_names()
    assert all(re.search(r"^\S+  +\S.+\.( \[.+\])?$", line) for line in lines[:-1]), lines
    assert lines[-1] == advice(judge(this_machine(), PROFILES))

    as_json = CliRunner().invoke(cli, ["config", "profiles", "--json"])
    table_ = json.loads(as_json.output)
    assert table_["espeak"]["fit"] == "", "nobody is sent there"
    assert table_["reachy"]["summary"].startswith("The workstation")


# --- this machine ------------------------------------------------------------------------------


def test_a_machine_without_nvidia_smi_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_fit, "find_gpus", Gpus)
    found = this_machine()
    assert found.gpus == ()
    assert found.cores >= 1
    assert found.memory_mb > 100
    assert found.system == sys.platform
