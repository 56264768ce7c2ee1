"""The page that shows the progress of the first set-up, until the server takes its port."""

from __future__ import annotations

import errno
import json
import threading
import urllib.error
import urllib.request
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from app.server.tls import tls_generated
from app.setup import flow, options, progress
from app.setup.beside import beside
from app.setup.commands import Log
from app.setup.failures import SetupError
from app.setup.needs import Needs
from app.setup.place import Place
from app.setup.progress import SetupProgress, is_port_known, open_in_browser, port_of, progress_page
from app.setup.steps import Step
from tests.support.far_server import free_port
from tests.support.file_server import file_server
from tests.support.places import ROOT

pytestmark = pytest.mark.machine


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(ROOT, tmp_path / "cache", "python", data=tmp_path)


def at(*arguments: str) -> Namespace:
    return options.of_serve(arguments)


def on_a_free_port() -> Namespace:
    return at("--port", str(free_port()))


def url_of(args: Namespace) -> str:
    return f"http://localhost:{port_of(args)}/"


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        body = answer.read().decode()
    return json.loads(body) if url.endswith(".json") else body


class Watcher(threading.Thread):
    """A browser that reads the state until it shows a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, Any] = {}

    def open(self, url: str) -> bool:
        self.url = url
        self.start()
        return True

    def run(self) -> None:
        while not self.state.get("failure"):
            self.state = fetched(f"{self.url}progress.json")


def test_it_shows_each_step_as_it_is(place: Place) -> None:
    seen = []
    args = on_a_free_port()
    url = url_of(args)

    def look(log: Log) -> None:
        seen.append(fetched(f"{url}progress.json"))

    steps = [Step(name, name.title(), lambda: "inputs", look, 30) for name in ("first", "second")]
    with progress_page(place, args):
        assert "being set up" in fetched(url)
        flow.set_up(place, steps)
        look(Log(place.build / "log", {}))
    states = [
        ["done" if row["ended"] else "runs" if row["began"] else "waits" for row in rows]
        for rows in [each["steps"].values() for each in seen]
    ]
    assert states == [["runs", "waits"], ["done", "runs"], ["done", "done"]]
    assert [row["title"] for row in seen[0]["steps"].values()] == ["First", "Second"]
    assert seen[0]["console"] == "/console/"
    assert seen[0]["now"] >= seen[0]["steps"]["first"]["began"]


def test_a_file_that_an_outage_has_left_empty_is_written_anew(place: Place) -> None:
    progress = SetupProgress(place)
    progress.file.parent.mkdir(parents=True)
    progress.file.touch()
    flow.set_up(place, [Step("first", "First", lambda: "inputs", lambda log: None)])
    assert progress.read()["steps"]["first"]["ended"]


def test_what_runs_beside_another_step_has_begun(place: Place) -> None:
    def begun(log: Log) -> None:
        assert SetupProgress(place).read()["steps"]["llama"]["began"]

    def done(log: Log) -> None:
        pass

    step = Step("packages", "Packages", lambda: "inputs", begun)
    llama = Step("llama", "llama.cpp", lambda: "inputs", done, prepare=done)
    with beside(lambda step: Log(place.build / "beside", {}, quiet=True)) as running:
        flow.set_up(place, [step, llama], running=running)
    assert place.stamps.read("llama") == "inputs"


def test_a_step_that_fails_is_not_done(place: Place) -> None:
    def fail(log: Log) -> None:
        log.run(["false"], "it could not be done")

    step = Step("broken", "Broken", lambda: "inputs", fail)
    with pytest.raises(SetupError):
        flow.set_up(place, [step])
    assert not step.is_done(place)
    assert SetupProgress(place).read()["steps"]["broken"]["ended"] is None


def test_the_servers_address_is_known_once_the_settings_are(place: Place) -> None:
    progress = SetupProgress(place)
    progress.set_console("https://localhost:1/console/")
    assert not progress.file.exists(), "no set-up runs"
    flow.set_up(place, [Step("first", "First", lambda: "inputs", lambda log: None)])
    progress.set_console("https://localhost:1/console/")
    assert progress.read()["console"] == "https://localhost:1/console/"


def test_other_addresses_are_not_ready(place: Place) -> None:
    args = on_a_free_port()
    with progress_page(place, args), pytest.raises(urllib.error.HTTPError, match="503"):
        fetched(f"{url_of(args)}ready")


def test_a_port_that_is_taken_is_noticed_before_anything_is_set_up(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    args = on_a_free_port()
    with progress_page(place, args):
        SetupProgress(place).add([Step("first", "First", lambda: "inputs", lambda log: None)])
        with pytest.raises(SetupError, match="cannot be used") as raised:
            progress_page(place, args).__enter__()
        assert raised.value.exit_code == 20
        assert SetupProgress(place).read()["steps"], "those of the first set-up stay"
        monkeypatch.setattr(progress, "USUAL_PORT", port_of(args))
        with progress_page(place, at("--config", "file.yaml"), opens=True) as is_open:
            assert not is_open, "the file may have another port"


def test_a_question_and_a_failure_are_on_the_page(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """The page is served until a browser has seen the failure."""
    browser = Watcher()

    def confirm(fetches: object) -> bool:
        assert fetched(f"{url_of(args)}progress.json")["asks"]
        return False

    monkeypatch.setattr(progress, "open_in_browser", browser.open)
    monkeypatch.setattr(flow.plan, "confirm", confirm)
    step = Step("first", "First", lambda: "inputs", lambda log: None)
    args = on_a_free_port()
    with pytest.raises(SetupError), progress_page(place, args, opens=True):
        flow.set_up(place, [step])
    browser.join()
    assert "you answered no" in browser.state["failure"]
    assert not browser.state["asks"]


def test_a_full_disk_is_on_the_page(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    browser = Watcher()
    args = on_a_free_port()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(progress, "open_in_browser", browser.open)
    monkeypatch.setattr(SetupProgress, "_write", full)
    step = Step("first", "First", lambda: "inputs", lambda log: None)
    with pytest.raises(OSError, match="No space left"), progress_page(place, args, opens=True):
        flow.set_up(place, [step])
    browser.join()
    assert "No space left" in browser.state["failure"]


def test_it_ends_when_set_up_fails(place: Place) -> None:
    def running() -> list[str]:
        return [each.name for each in threading.enumerate()]

    before = running()
    with pytest.raises(SetupError), progress_page(place, on_a_free_port()):
        raise SetupError(1, "it could not be done", "why", "do this")
    assert running() == before


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ([], 8765),
        (["--port", "9000"], 9000),
        (["--port=9000"], 9000),
        (["--set", "server.port=9001"], 9001),
        (["--set", "server.port=9001", "--port", "9000"], 9000),
        (["--port", "many"], 8765),
        (["--port", "87650"], 8765),
    ],
)
def test_it_is_at_the_servers_port(arguments: list[str], port: int) -> None:
    assert port_of(at(*arguments)) == port


@pytest.mark.parametrize(
    ("arguments", "environ", "is_known"),
    [
        ([], {}, True),
        ([], {"REACHY_VOICE__SERVER__PORT": "9000"}, False),
        (["--config", "file.yaml"], {}, False),
        (["--config", "file.yaml", "--port", "9000"], {}, True),
        ([], {"XDG_CONFIG_HOME": "config"}, False),
    ],
)
def test_other_settings_may_have_another_port(
    arguments: list[str], environ: dict[str, str], is_known: bool, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "reachy-voice" / "settings.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    environ = {key: value.replace("config", f"{tmp_path}/config") for key, value in environ.items()}
    assert is_port_known(at(*arguments), environ) == is_known


def test_the_server_gets_its_port(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    asked: list[str] = []

    def ask(place: Place, arguments: list[str]) -> Needs:
        asked.extend(arguments)
        return Needs()

    monkeypatch.setattr(flow, "ask", ask)
    for name in ("base_steps", "steps_of"):
        monkeypatch.setattr(flow, name, lambda *_, **__: [])
    flow.prepare(place, at("--port", "9000"))
    assert "server.port=9000" in asked


def test_no_browser_opens_without_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(progress.webbrowser, "open", lambda url: opened.append(url) is None)
    monkeypatch.setattr(progress.sys, "platform", "linux")
    assert not open_in_browser("http://localhost/", {})
    assert open_in_browser("http://localhost/", {"WAYLAND_DISPLAY": "wayland-0"})
    assert opened == ["http://localhost/"]


@pytest.mark.parametrize("fresh", [True, False])
def test_without_a_command_a_browser_is_opened_once(
    fresh: bool, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """At the page while there is something to set up, otherwise by the server."""
    if not fresh:
        place.stamps.write("llama", "inputs")
    opened: list[str] = []
    became: list[list[str]] = []
    monkeypatch.setattr(progress, "USUAL_PORT", free_port())
    monkeypatch.setattr(flow, "prepare_or_remote", lambda *_: None)
    monkeypatch.setattr(progress, "open_in_browser", lambda url: opened.append(url) is None)
    monkeypatch.setattr(flow.os, "execv", lambda _, command: became.append(command[1:]))
    flow.serve(place, [], opens=True)
    assert len(opened) == fresh
    assert became == [["serve"] if fresh else ["serve", "--open"]]


def test_without_a_command_a_running_set_up_is_shown(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(progress, "USUAL_PORT", free_port())
    monkeypatch.setattr(progress, "is_port_known", lambda args: True)
    monkeypatch.setattr(progress, "open_in_browser", lambda url: opened.append(url) is None)
    with progress_page(place, at()):
        flow.serve(place, [], opens=True)
    assert opened == [f"http://localhost:{progress.USUAL_PORT}/console/"]


@pytest.mark.parametrize(
    ("scheme", "is_ours"), [("http", True), ("https", True), ("http", False), ("https", False)]
)
def test_without_a_command_a_running_server_is_shown(
    scheme: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch, place: Place, tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(progress, "is_port_known", lambda args: True)
    monkeypatch.setattr(progress, "open_in_browser", lambda url: opened.append(url) is None)
    tls = tls_generated(tmp_path / "tls", ["localhost"]).context if scheme == "https" else None
    with file_server(tls) as server:
        models = b'{"data": [{"owned_by": "reachy-voice"}]}'
        server.files["/v1/models"] = models if is_ours else b"<html>reachy-voice"
        monkeypatch.setattr(progress, "USUAL_PORT", int(server.url.rpartition(":")[2]))
        with nullcontext() if is_ours else pytest.raises(SetupError, match="cannot be used"):
            flow.serve(place, [], opens=True)
    assert opened == [f"{scheme}://localhost:{progress.USUAL_PORT}/console/"] * is_ours
