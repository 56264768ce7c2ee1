"""The catalogue and the cache, with a wheel made here, a pip index, and a fake hub as sources."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.models.catalogue import Catalogue, Entry, WebSource, WheelSource
from app.models.download import (
    SPARE_BYTES,
    Fetcher,
    Progress,
    Report,
    WrongContent,
    ignore_progress,
)
from app.models.pip_index import fetch_wheel, run_pip
from app.models.pull import pull
from app.models.weights import WeightsCache
from app.settings.load import load_settings
from app.settings.model import Settings
from pipeline.errors import ConfigError, WeightsError
from tests.support.file_server import FileServer, file_server
from tests.support.places import ROOT

pytestmark = pytest.mark.engines

MODEL = bytes(range(256)) * 400
TOKENS = b"tokens"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def described(content: bytes, path: str, **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"path": path, "size": len(content), "sha256": digest, **more}


def entry(**source: Any) -> Entry:
    files = [described(MODEL, "demo/model.bin"), described(TOKENS, "demo/t.bin", name="tokens.bin")]
    basics = {"kind": "stt", "summary": "demo", "licence": "MIT", "files": files}
    return Entry.model_validate({**basics, **source})


WHEEL = entry(wheel={"package": "reachy-voice-demo-weights", "version": "1.0"})
HUB = entry(hub={"repo": "someone/demo", "revision": REVISION})


def cache_of(directory: Path, **entries: Entry) -> WeightsCache:
    return WeightsCache(directory / "cache", Catalogue(entries))


def make_wheel(directory: Path, model: bytes = MODEL) -> Path:
    """A wheel that pip accepts, with the two files of ``WHEEL``."""
    name = "reachy_voice_demo_weights-1.0"
    path = directory / f"{name}-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: reachy-voice-demo-weights\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("demo/model.bin", model)
        wheel.writestr("demo/t.bin", TOKENS)
        wheel.writestr(f"{name}.dist-info/METADATA", metadata)
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", tags)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return path


class Index:
    """Replaces ``fetch_wheel``: copies one wheel and counts calls."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.fetched = 0

    def __call__(self, wheel: WheelSource, directory: Path, report: Report) -> Path:
        self.fetched += 1
        return Path(shutil.copy(self.wheel, directory / self.wheel.name))


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(make_wheel(tmp_path))


@pytest.fixture
def hub() -> Iterator[FileServer]:
    with file_server() as server:
        home = f"/someone/demo/resolve/{REVISION}/demo"
        server.files = {f"{home}/model.bin": MODEL, f"{home}/t.bin": TOKENS}
        yield server


def impatient() -> Fetcher:
    return Fetcher(sleep=lambda _: None)


def no_network(*_: Any) -> Any:
    raise AssertionError("the network was touched")


def files_in(directory: Path) -> set[str]:
    paths = directory.rglob("*")
    return {str(path.relative_to(directory)) for path in paths if path.is_file()} - {"pull.lock"}


HERE = {"weights/demo/model.bin", "weights/demo/tokens.bin"}


# --- catalogue ---------------------------------------------------------------------------------


def test_our_catalogue_has_all_that_the_default_needs() -> None:
    catalogue = Catalogue.load()
    settings: Settings = load_settings(environ={}).settings
    kinds = {catalogue[name].kind for name in settings.weights()}
    assert kinds == {"vad", "turn", "stt", "llm", "tts"}
    assert all(e.licence and e.summary and e.size and e.url for e in catalogue.entries.values())


def test_the_users_catalogue_wins_and_its_files_stay_in_place(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(
        "my-llm: {kind: llm, summary: s, licence: mine, file: models, files: [{path: my.gguf}]}\n"
        "silero-vad: {kind: vad, summary: s, licence: MIT, file: /abs, files: [{path: v.onnx}]}\n"
    )
    catalogue = Catalogue.load(own)
    cache = WeightsCache(tmp_path / "cache", catalogue)
    assert catalogue["silero-vad"].file == Path("/abs")
    assert "smart-turn-v3.2" in catalogue.entries
    with pytest.raises(WeightsError, match=r"your own files in .*models"):
        pull(cache, ["my-llm"], fetch_wheel=no_network)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "my.gguf").write_bytes(b"GGUF")
    assert pull(cache, ["my-llm"], fetch_wheel=no_network) == []
    assert cache.path("my-llm") == tmp_path / "models"
    assert cache.verify(["my-llm"]) == {"my-llm": ""}
    with pytest.raises(WeightsError, match="Delete them yourself"):
        cache.remove(["my-llm"])


GOOD = "kind: llm, summary: s, licence: l"
FILES = f"files: [{{path: a, size: 1, sha256: '{'0' * 64}'}}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a: {{{GOOD}, {FILES}}}", "name exactly one source"),
        (
            f"a: {{{GOOD}, file: x, hub: {{repo: a/b, revision: {REVISION}}}, {FILES}}}",
            "one source",
        ),
        (f"a: {{{GOOD}, hub: {{repo: a/b, revision: main}}, {FILES}}}", "a.hub.revision"),
        (f"a: {{{GOOD}, wheel: {{package: p, version: '1'}}, files: [{{path: a}}]}}", "sha256"),
        (f"a: {{{GOOD}, file: x, files: [{{path: ../a}}]}}", "inside the source"),
        (f"a: {{{GOOD}, file: x, files: [{{path: a, name: /etc/a}}]}}", "inside the source"),
        (f"a: {{{GOOD}, file: x, files: []}}", "a.files"),
        (f"a: {{{GOOD}, file: x, files: [{{path: a/m}}, {{path: b/m}}]}}", "would have one name"),
        (f"\na: {{{GOOD}, file: x, {FILES}, licens: y}}", "mine.yaml:2: a.licens: not a known key"),
        (f"a: {{{GOOD}, file: x, {FILES}, sumary: y}}", "did you mean summary?"),
        ("../a: {}", "not a valid name for weights"),
        ("a: 3", "mine.yaml:1: a"),
        ("a: {b", "is not valid YAML"),
    ],
)
def test_a_mistake_in_the_users_catalogue(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        Catalogue.load(path)
    assert expected in str(raised.value)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(WeightsError, match="Did you mean 'silero-vad'"):
        Catalogue.load()["silero-vda"]


# --- wheels ------------------------------------------------------------------------------------


def test_pull_verify_path_remove(tmp_path: Path, index: Index) -> None:
    cache = cache_of(tmp_path, demo=WHEEL)
    with pytest.raises(
        WeightsError, match=r"demo are not here\. Run: reachy-voice models pull"
    ) as e:
        cache.path("demo")
    assert e.value.exit_code == 4

    assert pull(cache, ["demo", "demo"], fetch_wheel=index) == ["demo"]
    assert files_in(cache.directory) == HERE, "the wheel and the staging are gone"
    assert (cache.path("demo") / "model.bin").read_bytes() == MODEL
    assert cache.verify(["demo"]) == {"demo": ""}
    assert pull(cache, ["demo"], fetch_wheel=no_network) == []

    assert cache.remove(["demo"]) == len(MODEL) + len(TOKENS)
    assert cache.state("demo") == "absent"
    assert cache.verify(["demo"]) == {"demo": "not here"}


def test_entries_of_one_wheel_share_the_download(tmp_path: Path, index: Index) -> None:
    other = WHEEL.model_copy(update={"kind": "test"})
    cache = cache_of(tmp_path, demo=WHEEL, other=other)
    assert pull(cache, ["demo", "other"], fetch_wheel=index) == ["demo", "other"]
    assert index.fetched == 1


def test_damage(tmp_path: Path, index: Index) -> None:
    cache = cache_of(tmp_path, demo=WHEEL)
    pull(cache, ["demo"], fetch_wheel=index)
    model = cache.home("demo") / "model.bin"

    model.write_bytes(b"!" + MODEL[1:])
    assert cache.state("demo") == "present", "the cheap look sees sizes only"
    assert "model.bin: its sha256 is" in cache.verify(["demo"])["demo"]

    model.write_bytes(MODEL[:-1])
    with pytest.raises(WeightsError, match="demo are damaged"):
        cache.check(["demo"])
    (cache.home("demo") / "tokens.bin").unlink()
    assert cache.state("demo") == "damaged"
    assert pull(cache, ["demo"], fetch_wheel=index) == ["demo"]
    assert cache.verify(["demo"]) == {"demo": ""}


@pytest.mark.parametrize(
    ("content", "path", "match"),
    [
        (b"!" + MODEL[1:], "demo/model.bin", r"demo/model\.bin is not what the catalogue promises"),
        (MODEL[:-1], "demo/model.bin", r"demo/model\.bin is not what the catalogue promises"),
        (MODEL, "demo/gone.bin", r"no item named .demo/gone\.bin."),
        (None, "demo/model.bin", "File is not a zip file"),
    ],
    ids=["hash", "size", "without the file", "no wheel"],
)
def test_a_wheel_with_other_content_leaves_nothing(
    tmp_path: Path, content: bytes | None, path: str, match: str
) -> None:
    cache = cache_of(tmp_path, demo=entry(wheel=WHEEL.wheel, files=[described(MODEL, path)]))
    wheel = make_wheel(tmp_path, content or MODEL)
    if content is None:
        wheel.write_text("<html>Please log in")
    with pytest.raises(WrongContent, match=match):
        pull(cache, ["demo"], fetch_wheel=Index(wheel))
    assert files_in(cache.directory) == set()


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    """Make the wheel an installed distribution of this process."""
    with zipfile.ZipFile(wheel) as content:
        content.extractall(directory)
    monkeypatch.syspath_prepend(str(directory))


def test_an_installed_package_is_copied_even_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    install(tmp_path / "site", monkeypatch, index.wheel)
    cache = cache_of(tmp_path, demo=WHEEL)
    assert pull(cache, ["demo"], offline=True, fetch_wheel=no_network) == ["demo"]
    assert files_in(cache.directory) == HERE


def test_an_installed_package_that_was_changed_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    install(tmp_path / "site", monkeypatch, make_wheel(tmp_path, b"!" + MODEL[1:]))
    index.wheel = make_wheel(tmp_path)
    cache = cache_of(tmp_path, demo=WHEEL)
    pull(cache, ["demo"], fetch_wheel=index)
    assert cache.verify(["demo"]) == {"demo": ""}


@pytest.mark.parametrize(
    ("source", "environ"),
    [
        *((source, {}) for source in (WHEEL, HUB)),
        *((source, {"REACHY_VOICE_OFFLINE": "1"}) for source in (WHEEL, HUB)),
        (HUB, {"HF_HUB_OFFLINE": "1"}),
    ],
)
def test_offline_never_touches_the_network(
    tmp_path: Path, source: Entry, environ: dict[str, str]
) -> None:
    cache = cache_of(tmp_path, demo=source)
    with pytest.raises(WeightsError, match=r"downloads are switched off.*models pull demo"):
        pull(
            cache,
            ["demo"],
            offline=not environ,
            environ=environ,
            fetch_wheel=no_network,
            fetcher=no_network,
        )


def test_only_missing_files_need_disk_space(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(tmp_path, demo=WHEEL)
    rest = SPARE_BYTES + len(TOKENS)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=rest))
    with pytest.raises(WeightsError, match=r"no room for the weights demo.*67\.1 MB free"):
        pull(cache, ["demo"], fetch_wheel=no_network)
    (cache.directory / "staging" / "demo").mkdir(parents=True)
    (cache.directory / "staging" / "demo" / "model.bin").write_bytes(MODEL)
    assert pull(cache, ["demo"], fetch_wheel=index) == ["demo"]


def test_a_disk_that_fills_up_while_unpacking(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = cache_of(tmp_path, demo=WHEEL)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(WeightsError, match="The disk is full"):
        pull(cache, ["demo"], fetch_wheel=index)
    assert files_in(cache.directory) == set()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(WeightsError, match=r"cannot be written.*Set paths\.cache_dir"):
        pull(cache_of(tmp_path, demo=WHEEL), ["demo"], fetch_wheel=no_network)


def test_two_processes_pull_once(tmp_path: Path, index: Index) -> None:
    """The other process waits for our lock, then finds the work done."""
    cache = cache_of(tmp_path, demo=WHEEL)
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from tests.models.test_weights import WHEEL, cache_of, no_network\n"
        "from app.models.pull import pull\n"
        "cache = cache_of(Path(sys.argv[1]), demo=WHEEL)\n"
        "assert cache.missing(['demo'])\n"
        "say = lambda now: print(now.label, flush=True)\n"
        "print(pull(cache, ['demo'], say, fetch_wheel=no_network))\n"
    )
    places = [str(ROOT)]
    others: list[subprocess.Popen[str]] = []

    def meanwhile(wheel: WheelSource, directory: Path, report: Report) -> Path:
        command = [sys.executable, "-c", code, str(tmp_path), *places]
        others.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert others[0].stdout
        assert others[0].stdout.readline() == "waiting for another pull\n"
        return index(wheel, directory, report)

    assert pull(cache, ["demo"], fetch_wheel=meanwhile) == ["demo"]
    output, _ = others[0].communicate(timeout=60)
    assert (others[0].returncode, output.strip()) == (0, "[]")


# --- pip's index -------------------------------------------------------------------------------


@pytest.fixture
def pip_index(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FileServer]:
    """A real pip, and a real index with one wheel on loopback."""
    name, content = index.wheel.name, index.wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    with file_server() as server:
        page = f'<!DOCTYPE html><a href="/files/{name}#sha256={digest}">{name}</a>'
        server.files = {
            "/simple/reachy-voice-demo-weights/": page.encode(),
            f"/files/{name}": content,
        }
        for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def test_a_wheel_through_pips_own_index(tmp_path: Path, pip_index: FileServer) -> None:
    cache = cache_of(tmp_path, demo=WHEEL)
    seen: list[Progress] = []
    assert pull(cache, ["demo"], seen.append) == ["demo"]
    assert cache.verify(["demo"]) == {"demo": ""}
    assert seen[-1].done == seen[-1].total
    assert files_in(cache.directory) == HERE


def test_a_wheel_in_a_local_folder(
    tmp_path: Path, pip_index: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    cache = cache_of(tmp_path, demo=WHEEL)
    assert pull(cache, ["demo"]) == ["demo"]
    assert pip_index.requests == []


def test_pip_downloads_if_we_are_refused(tmp_path: Path, pip_index: FileServer) -> None:
    """As with an index that needs a password, which pip's reported address does not include."""
    assert WHEEL.wheel
    calls: list[str] = []

    def run(arguments: Sequence[str]) -> str:
        calls.append(arguments[0])
        answer = run_pip(arguments)
        pip_index.statuses = [401] if arguments[0] == "install" else []
        return answer

    path = fetch_wheel(WHEEL.wheel, tmp_path / "..", run=run)
    assert calls == ["install", "download"]
    assert path.is_file()


def test_an_index_without_the_version(tmp_path: Path, pip_index: FileServer) -> None:
    newer = entry(wheel={"package": "reachy-voice-demo-weights", "version": "2.0"})
    with pytest.raises(WeightsError, match=r"No matching distribution.*does it have this version"):
        pull(cache_of(tmp_path, demo=newer), ["demo"])


def test_no_index(tmp_path: Path, pip_index: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    cache = cache_of(tmp_path, demo=WHEEL)
    with pytest.raises(WeightsError, match="Check the network"):
        pull(cache, ["demo"])
    assert files_in(cache.directory) == set()


def test_the_real_index(tmp_path: Path) -> None:
    """The one test that leaves the machine; without a network it skips, but never in CI."""
    cache = WeightsCache(tmp_path / "cache")
    try:
        assert pull(cache, ["silero-vad"]) == ["silero-vad"]
    except WeightsError as error:
        if os.environ.get("CI") or "Check the network" not in error.fix:
            raise
        pytest.skip(f"pip's index cannot be reached: {error.why}")
    assert cache.verify(["silero-vad"]) == {"silero-vad": ""}


# --- an address --------------------------------------------------------------------------------


def test_files_below_an_address(tmp_path: Path) -> None:
    with file_server() as server:
        server.files = {"/models/demo/model.bin": MODEL, "/models/demo/t.bin": TOKENS}
        web = WebSource.model_construct(base=f"{server.url}/models")  # http, for once
        cache = cache_of(tmp_path, demo=HUB.model_copy(update={"hub": None, "web": web}))
        with pytest.raises(WeightsError, match="downloads are switched off"):
            pull(cache, ["demo"], ignore_progress, offline=True, fetcher=impatient)
        assert server.requests == []
        assert pull(cache, ["demo"], ignore_progress, fetcher=impatient) == ["demo"]
        assert files_in(cache.directory) == HERE
        assert "authorization" not in server.requests[0][1]

        cache.remove(["demo"])
        server.files["/models/demo/t.bin"] = b"nekots"
        with pytest.raises(WrongContent, match="not what the catalogue promises"):
            pull(cache, ["demo"], ignore_progress, fetcher=impatient)
        assert files_in(cache.directory) == set()


@pytest.mark.parametrize("base", ["http://x.org/a", "https://x.org/a/", "https://x.org/a?b=c", "x"])
def test_an_address_is_https_and_a_folder(base: str) -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        entry(web={"base": base})


# --- the hub -----------------------------------------------------------------------------------


@pytest.fixture
def pull_from(hub: FileServer) -> Callable[..., list[str]]:
    def pull_from(cache: WeightsCache, **environ: str) -> list[str]:
        environ = {"HF_ENDPOINT": hub.url, **environ}
        return pull(cache, ["demo"], ignore_progress, environ=environ, fetcher=impatient)

    return pull_from


def test_a_repository_at_its_pinned_revision(
    tmp_path: Path, hub: FileServer, pull_from: Callable[..., list[str]]
) -> None:
    cache = cache_of(tmp_path, demo=HUB)
    assert pull_from(cache, HF_TOKEN="hf_secret\n") == ["demo"]
    assert files_in(cache.directory) == HERE
    assert {headers["authorization"] for _, headers in hub.requests} == {"Bearer hf_secret"}
    assert all(f"/resolve/{REVISION}/" in path for path, _ in hub.requests)


def test_a_pull_resumes_where_it_stopped(
    tmp_path: Path, hub: FileServer, pull_from: Callable[..., list[str]]
) -> None:
    cache = cache_of(tmp_path, demo=HUB)
    (tokens,) = (path for path in hub.files if path.endswith("t.bin"))
    del hub.files[tokens]
    hub.hang_up_after = [1000]
    with pytest.raises(WeightsError, match="HTTP 404"):
        pull_from(cache)
    assert cache.state("demo") == "absent", "nothing is half there"
    assert hub.ranges == ["", "bytes=1000-", ""]

    hub.files[tokens] = TOKENS
    assert pull_from(cache) == ["demo"]
    assert len(hub.requests) == 4, "the model was not fetched again"
    assert "authorization" not in hub.requests[-1][1]


@pytest.mark.parametrize("token", ["hf_secret\u200b", "hf_secret\nhf_other", "“hf_secret”"])
def test_a_token_that_cannot_be_sent_is_an_error_that_does_not_quote_it(
    tmp_path: Path, hub: FileServer, pull_from: Callable[..., list[str]], token: str
) -> None:
    with pytest.raises(WeightsError, match="HF_TOKEN") as raised:
        pull_from(cache_of(tmp_path, demo=HUB), HF_TOKEN=token)
    assert "secret" not in str(raised.value)
    assert not hub.requests


def test_a_gated_repository(
    tmp_path: Path, hub: FileServer, pull_from: Callable[..., list[str]]
) -> None:
    hub.statuses = [401]
    with pytest.raises(
        WeightsError, match=r"Accept the licence at .*/someone/demo and set HF_TOKEN"
    ):
        pull_from(cache_of(tmp_path, demo=HUB))
