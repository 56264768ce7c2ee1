"""The command line as users see it: messages with a next step, exit codes, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from app.cli.__main__ import INTERRUPTED, UNFIT
from app.cli.measuring import spawned_server
from app.cli.serve import Admission, banner
from app.server.serving import lan_addresses
from app.settings.load import load_settings
from app.settings.model import ServerSettings
from app.talk.realtime_client import NoServer, connect, realtime_url
from benchmarks.wer import word_errors
from pipeline.errors import WrongProcessor
from tests.support.commands import run
from tests.support.places import ROOT
from tests.support.protocol_client import text_item
from tests.support.recordings import recording

pytestmark = pytest.mark.engines


def test_a_file_that_is_no_recording_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "question.wav"
    text.write_text("hello")
    code, printed = run(capsys, "ask", str(text))
    assert code == 7
    assert "is not a recording that can be read" in " ".join(printed.split())
    assert "do:" in printed


def test_a_suggested_command_is_not_wrapped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise users would copy half a command."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "60")
    code, printed = run(capsys, "pair", "me@host")
    assert code == 2
    assert "as in reachy-voice pair 192.168.1.7 or reachy-mini.local" in printed


_INTERRUPTED_AT = """
import os, runpy, signal, sys

moment = sys.argv.pop(1)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
"""
"""The command line; it sends itself the signal just before it imports a module."""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("typer", -signal.SIGINT),
        ("app.cli.serve", -signal.SIGINT),
        ("pipeline.engines.vad.silero", INTERRUPTED),  # loaded by the command itself
    ],
)
def test_ctrl_c_while_it_begins_ends_it_quietly(module: str, code: int) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_AT, module, "config", "explain"]
    ended = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (code, b"")


def test_a_full_disk_is_called_so() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "app.cli", "config", "explain"]
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    assert ended.returncode == 1
    assert "Make room on the disk" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("numpy_does", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "built for another processor"),
        ("raise RuntimeError('built with X86_V2, which this lacks')", "built with X86_V2"),
        ("raise ImportError('Advice:\\n\\nNo module named _core')", "  why: No module named _core"),
    ],
)
def test_packages_for_another_machine(tmp_path: Path, numpy_does: str, why: str) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(numpy_does)
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "doctor"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == WrongProcessor.exit_code == UNFIT
    assert why in ended.stderr
    assert "Set up again here" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_server_at_the_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tone = tmp_path / "tone.wav"
    soundfile.write(tone, np.full(1600, 9, np.int16), 16_000)
    code, printed = run(capsys, "ask", str(tone), "--url", "ws://127.0.0.1:9/v1/realtime")
    assert code == 9
    assert "reachy-voice serve" in printed


@pytest.mark.parametrize("option", ["--port", "--wyoming"])
def test_a_taken_port_is_known_before_any_engine_is_built(
    capsys: pytest.CaptureFixture[str],
    weights: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
) -> None:
    for name in load_settings(None).settings.weights():
        weights(name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("app.cli.serve.WYOMING_PORT", port)
        options = ["--port", str(port)] if option == "--port" else ["--port", "0", "--wyoming"]
        code, printed = run(capsys, "serve", *options)
    assert code == 20
    assert "another program listens there already" in " ".join(printed.split())
    assert f"server.{'wyoming_' if option == '--wyoming' else ''}port={port + 1}" in printed
    assert "ready " not in printed


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve", "--set", "tts.engine=pipre"], 3, "piper"),
        (["serve", "--set", "sever.port=1"], 3, "server"),
        (["serve", "--config", "nowhere.yaml"], 3, "nowhere.yaml"),
        (["serve", "--set", "llm.weights=nothing"], 4, "nothing"),
        (["bench", "nowhere.wav"], 7, "There is no recording"),
        (["fly"], 2, "No such command"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    got, printed = run(capsys, *arguments)
    assert got == code, printed
    assert words in " ".join(printed.split())
    assert "Traceback" not in printed


def test_missing_weights_name_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACHY_VOICE__PATHS__CACHE_DIR", str(tmp_path))
    code, printed = run(capsys, "serve")
    assert code == 4
    assert "reachy-voice models pull" in " ".join(printed.split())


@pytest.mark.real
def test_ask_prints_what_was_heard_and_writes_the_answer_and_a_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    asked = recording("goforward")
    question, answer, folder = (tmp_path / name for name in ("question.flac", "answer.wav", "r"))
    soundfile.write(question, np.stack((asked.pcm, asked.pcm), axis=1), 16_000)
    sets = [
        f for s in ("llm.threads=1", "conversation.sampling.max_tokens=24") for f in ("--set", s)
    ]
    sets += ["--out", str(answer), "--record", str(folder)]
    code, printed = run(capsys, "ask", str(question), "--json", *sets)
    assert code == 0, printed
    assert f"Everything said is saved in {folder}" in " ".join(printed.split())
    data = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    assert word_errors(asked.text, data["heard"]).errors == 0
    moments = [data["timeline_ms"][s] for s in ("transcript", "first_token", "first_clause")]
    assert moments == sorted(moments)
    samples, rate = soundfile.read(answer)
    assert rate == 24_000
    assert len(samples) / rate == pytest.approx(data["answer_seconds"], abs=0.01)
    assert np.abs(samples).max() > 0.05
    [lines] = folder.glob("*/session.jsonl")
    events = [json.loads(line).get("event", {}) for line in lines.read_text().splitlines()]
    [record] = [event for event in events if event.get("is") == "TurnRecord"]
    assert "forward" in record["text"]


NOTE_MODULES = """
import atexit, pathlib, sys
file = pathlib.Path(__file__).with_name("modules")
atexit.register(lambda: file.write_text(" ".join(sys.modules)))
"""


@pytest.mark.real
async def test_sigterm_during_a_reply_drains_and_leaves_no_process(
    weights: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server also imports nothing that is switched off."""
    (tmp_path / "sitecustomize.py").write_text(NOTE_MODULES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    flags = ["--set", "llm.threads=1", "--set", "server.drain_s=20"]
    flags += ["--set", "conversation.sampling.max_tokens=40"]
    async with spawned_server(flags) as server, connect(server.url) as client:
        children = psutil.Process(server.pid).children(recursive=True)
        assert children, "the voice runs in a process of its own"
        await client.configure({"audio": {"input": {"turn_detection": None}}})
        await client._send(
            {"type": "conversation.item.create", "item": text_item("Tell me a story.")}
        )
        await client._send({"type": "response.create"})
        await client._expect("response.output_audio.delta")
        os.kill(server.pid, signal.SIGTERM)
        await client._expect("response.done")
        async with asyncio.timeout(20):
            with contextlib.suppress(psutil.NoSuchProcess):
                while psutil.Process(server.pid).status() != psutil.STATUS_ZOMBIE:
                    await asyncio.to_thread(psutil.wait_procs, children, 1)
    assert not [child for child in children if child.is_running()]
    imported = {name.partition(".")[0] for name in (tmp_path / "modules").read_text().split()}
    assert "uvicorn" in imported
    assert not imported & {"aiortc", "av", "mcp", "wyoming", "zeroconf"}


def test_lan_addresses_are_not_loopback() -> None:
    assert not [address for address in lan_addresses() if address.startswith("127.")]


@pytest.mark.parametrize("given", [None, "", "0", "false", "yes", "1"])
def test_ci_skips_nothing_regardless_of_the_caller(tmp_path: Path, given: str | None) -> None:
    entry, script = tmp_path / ".ci" / "run", tmp_path / "script" / "test"
    for file in (entry, script):
        file.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", entry)
    script.write_text('#!/bin/sh\necho "CI=$CI"\n')
    script.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {} if given is None else {"CI": given}
    done = subprocess.run([entry], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "CI=true\n"


def test_the_banner_tells_a_robots_owner_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.serve.lan_addresses", lambda: ["192.0.2.7", "192.0.2.8"])
    text = "\n".join(banner(ServerSettings(host="0.0.0.0"), 8765))
    assert "192.0.2.7" in text
    assert "8765" in text
    assert "Settings -> Connection -> Local" in text
    assert "no password" in text
    assert "reachy-voice allow ADDRESS" in text
    command = "x allow ADDRESS --set a=[b]"
    text = "\n".join(banner(ServerSettings(host="0.0.0.0"), 8765, command=command))
    assert "x allow ADDRESS --set a=\\[b]" in text
    assert "Only this machine" in "\n".join(banner(ServerSettings(host="127.0.0.1"), 8765))


def test_the_banner_names_an_open_console() -> None:
    def names_it(host: str, loopback: bool = True, console: bool = True) -> bool:
        server = ServerSettings(host=host, console=console)
        lines = banner(server, 8765, Admission(loopback=loopback))
        return any("http://localhost:8765/console/" in line for line in lines)

    assert names_it("127.0.0.1")
    assert names_it("0.0.0.0")
    assert not names_it("192.0.2.7")
    assert not names_it("127.0.0.1", loopback=False)
    assert not names_it("127.0.0.1", console=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_banner_says_who_may_connect_without_an_ipv4_address(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("app.cli.serve.lan_addresses", list)
    text = "\n".join(banner(ServerSettings(host=host), 8765, Admission(True, ("::/0",))))
    assert "no IPv4 address" in text
    assert "May connect: programs on this machine; ::/0." in text
    assert "Not encrypted" in text


def test_the_banner_of_a_local_server_names_no_other_client() -> None:
    admitted = Admission(False, ("192.168.1.7", "127.0.0.0/8"), 2)
    text = "\n".join(banner(ServerSettings(host="127.0.0.1"), 8765, admitted))
    assert "May connect: 127.0.0.0/8; holders of 2 API keys" in text


def test_several_wrong_settings_are_listed_under_one_headline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = ["--set", "server.port=x", "--set", "server.host=5"]
    code, printed = run(capsys, "config", "check", *sets)
    assert code == 3
    assert "2 settings cannot be used" in printed
    assert "why: --set server.host: " in printed
    assert "server.port: input should be" in printed


@pytest.mark.parametrize(
    "typed",
    [
        "ws://h:1/v1/realtime",
        "ws://h:1",
        "ws://h:1/",
        "http://h:1/v1",
        "http://h:1/v1/",
        "h:1",
    ],
)
def test_addresses_may_be_typed_in_many_ways(typed: str) -> None:
    assert realtime_url(typed) == "ws://h:1/v1/realtime"


def test_a_bare_host_name_gets_the_default_port() -> None:
    assert realtime_url("robot.local") == "ws://robot.local:8765/v1/realtime"
    assert realtime_url("[::1]") == "ws://[::1]:8765/v1/realtime"
    assert realtime_url("wss://robot.local") == "wss://robot.local/v1/realtime"


def test_an_invalid_address_is_refused() -> None:
    for typed in ("", "ftp://h:1", "ws://", "h:port", "h:99999", "[::1"):
        with pytest.raises(NoServer, match="not the address"):
            realtime_url(typed)
