"""Third-party engines: the example package, really installed, and unusable ones."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.settings.load import config_dir, load_settings
from app.settings.schema import schema_text
from pipeline.engines.registry import (
    EngineOptions,
    EngineSpec,
    Kind,
    SttOptions,
    engine_names,
    engine_spec,
)
from pipeline.errors import ConfigError
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER

pytestmark = pytest.mark.engines

ROOT = config_dir().parent
EXAMPLE = ROOT / "examples" / "chirping_voice"
PARROT = ROOT / "examples" / "parrot"


# --- the example package -----------------------------------------------------------------------


def build_options() -> list[str]:
    """Options of pip: no network if setuptools can build wheels; otherwise pip fetches a newer
    one."""
    try:
        version = importlib.metadata.version("setuptools").split(".")
    except importlib.metadata.PackageNotFoundError:
        return []
    able = (int(version[0]), int(version[1])) >= (70, 1)
    return ["--no-index", "--no-build-isolation"] if able else []


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the examples."""
    place = tmp_path_factory.mktemp("example")
    target, sources = place / "site", [place / example.name for example in (EXAMPLE, PARROT)]
    for example, source in zip((EXAMPLE, PARROT), sources, strict=True):
        source.mkdir()
        for path in example.iterdir():
            if path.is_file():
                (source / path.name).write_bytes(path.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *build_options()]
    options = ["--disable-pip-version-check", "--target", str(target), *map(str, sources)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, cwd=place, check=False)
    if done.returncode and "No matching distribution" in done.stderr and not os.environ.get("CI"):
        pytest.skip("pip's index cannot be reached, and setuptools is too old without it")
    assert done.returncode == 0, done.stderr
    return target


def run(site: Path, *arguments: str) -> str:
    path = os.pathsep.join(map(str, (site, ROOT)))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_short_and_imports_nothing_of_ours() -> None:
    (module,) = EXAMPLE.glob("*.py")
    source = module.read_text()
    assert len(source.splitlines()) <= 40
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)]
    assert [alias.name for node in imports for alias in node.names] == ["numpy"]
    assert not [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)]


def test_docs_show_the_example_as_it_is() -> None:
    text = (ROOT / "docs" / "engines.md").read_text()
    for path in (EXAMPLE / "pyproject.toml", *EXAMPLE.glob("*.py"), *PARROT.glob("*.py")):
        assert path.read_text().strip() in text, f"docs/engines.md differs from {path.name}"


def test_a_server_speaks_with_it(installed: Path) -> None:
    """In a thread, and in a process."""
    told = run(installed, str(ROOT / "tests" / "support" / "speak_with_example.py"))
    ways = json.loads(told)
    assert [said["worker"] for said in ways] == ["ThreadWorker", "ProcessWorker"]
    for said in ways:
        assert said["options"]["pitch_hz"] == 500.0
        assert said["options"]["words_per_minute"] == 160
        assert (said["status"], said["words"]) == ("completed", "Is it noon? Yes, it is.")
        assert said["voices"] == ["bird", "mouse"]
        # Six words of 2 to 5 letters at 160 words of 6 letters a minute.
        assert 0.5 < said["seconds"] < 2.5
        assert 4000 < said["peak"] <= 8000
        assert 2 * 300 < said["crossings_per_s"] < 2 * 1700, "a tone of about 500 Hz"


def test_the_command_line_knows_it(installed: Path) -> None:
    check = "from app.cli.__main__ import main; main()"
    explained = run(
        installed, "-c", check, "config", "explain", "--set", "tts={engine: chirping, pitch_hz: 9}"
    )
    assert re.search(r"tts\.pitch_hz: 9\.0 +# --set tts", explained)
    assert re.search(r"tts\.words_per_minute: 160 +# default of chirping", explained)


CHECK_EACH = """
import sys
from app.cli.__main__ import main
for name in sys.argv[1:]:
    sys.argv[1:] = ["engines", "check", name]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


def test_the_examples_keep_their_contracts(installed: Path) -> None:
    assert run(installed, "-c", CHECK_EACH, "chirping", "claps", "parrot").splitlines() == [
        "OK: the tts engine 'chirping' keeps its contract",
        "OK: the stt engine 'claps' keeps its contract",
        "OK: the llm engine 'parrot' keeps its contract",
    ]


# --- what an entry point may name --------------------------------------------------------------

Offer = Callable[..., None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Registers ``thing`` as the engine "theirs", a voice by default."""

    def offer(thing: Any, kind: Kind = Kind.TTS) -> None:
        def load() -> Any:
            if isinstance(thing, Exception):
                raise thing
            return thing

        point = SimpleNamespace(name="theirs", value="theirs.voice", load=load)

        def entry_points(group: str, name: str = "theirs") -> list[Any]:
            return [point] if (group, name) == (f"reachy_voice.{kind}", "theirs") else []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    return offer


class Voice:
    rate = 16_000
    voices = ("it",)
    languages = ()

    def __init__(self, loud: int = 0) -> None:
        self.loud = loud

    def synthesize(self, request: Any, cancel: Any) -> Any:
        yield np.full(2, self.loud, np.int16)


class TheirSettings:
    loud: int
    names: list[str] = ["a"]  # noqa: RUF012, as other people write it


def build(options: Any, weights: Path | None) -> Voice:
    return Voice(options.loud)


def test_third_party_options_are_checked(offer: Offer) -> None:
    offer(SimpleNamespace(build=build, Options=TheirSettings, summary="theirs"))
    assert "theirs" in engine_names(Kind.TTS)
    spec = engine_spec(Kind.TTS, "theirs")
    assert isinstance(spec, EngineSpec)
    assert (spec.run_in, spec.summary) == ("thread", "theirs")
    options = load_settings(None, ["tts={engine: theirs, loud: 3}"], {}).settings.tts
    assert isinstance(options, EngineOptions)
    assert options.model_dump() == {"engine": "theirs", "run_in": None, "loud": 3, "names": ["a"]}
    (sound,) = spec.build(options, None).synthesize(SpeechRequest("Hi."), NEVER)
    assert sound.tolist() == [3, 3]
    for wrong, why in [
        ("", "tts.loud: field required"),
        (", loud: x", "valid integer"),
        (", lud: 3, loud: 3", "did you mean tts.loud?"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(why)):
            load_settings(None, [f"tts={{engine: theirs{wrong}}}"], {})


def test_an_entry_point_may_name_a_specification(offer: Offer) -> None:
    spec = EngineSpec("theirs", Kind.TTS, EngineOptions, build)
    offer(spec)
    assert engine_spec(Kind.TTS, "theirs") is spec
    assert "theirs" not in schema_text(), "the schema is of the built-ins only"


@dataclass
class Listed:
    names: list[str] = field(default_factory=lambda: ["a"])


@dataclass(slots=True)
class Slotted:
    pitch: float = 700.0


class Plain:
    kind: str = "bird"


@dataclass
class Mixed:
    loud: int
    soft: int = field(default=2)


@pytest.mark.parametrize(
    ("theirs", "values"),
    [
        (Listed, {"names": ["a"]}),
        (Slotted, {"pitch": 700.0}),
        (Plain, {"kind": "bird"}),
        (Mixed, {"loud": 1, "soft": 2}),
    ],
)
def test_defaults_are_found_however_a_class_keeps_them(
    offer: Offer, theirs: type, values: dict[str, Any]
) -> None:
    offer(SimpleNamespace(build=build, Options=theirs))
    must = {"loud": 1} if theirs is Mixed else {}
    options = engine_spec(Kind.TTS, "theirs").options(**must)
    assert options.model_dump(exclude={"engine", "run_in"}) == values
    if must:
        with pytest.raises(ConfigError, match=r"tts\.loud: field required"):
            load_settings(None, ["tts={engine: theirs}"], {})


class WithWords:
    words: int = 3


@pytest.mark.parametrize("kind", [Kind.STT, Kind.TTS])
@pytest.mark.parametrize("theirs", [None, TheirSettings, WithWords])
def test_recognisers_get_our_word_options_unless_they_have_their_own(
    offer: Offer, kind: Kind, theirs: type | None
) -> None:
    offer(SimpleNamespace(build=build, Options=theirs), kind)
    options = engine_spec(kind, "theirs").options
    ours = kind is Kind.STT and theirs is not WithWords
    assert issubclass(options, SttOptions) == ours


class Unusable:
    secret: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821, UP037


class NotAField:
    thing: Voice = Voice()


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (ImportError("No module named 'flite'"), "ImportError: No module named 'flite'"),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
        (SimpleNamespace(), "no function build(options, weights)"),
        (SimpleNamespace(build=3), "no function build(options, weights)"),
        (SimpleNamespace(build=build, run_in="cloud"), "its run_in is 'cloud'"),
        (SimpleNamespace(build=build, Options=Unusable), "its Options: name 'NoSuchType'"),
        (SimpleNamespace(build=build, Options=NotAField), "its Options cannot be used"),
    ],
)
def test_an_unusable_plugin_is_a_readable_error(offer: Offer, thing: Any, why: str) -> None:
    offer(thing)
    with pytest.raises(ConfigError) as raised:
        load_settings(None, ["tts={engine: theirs}"], {})
    text = str(raised.value)
    assert "The tts engine 'theirs', entry point 'theirs.voice', cannot be used" in text
    assert why in text
