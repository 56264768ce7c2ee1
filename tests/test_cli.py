"""The command line as a user meets it: messages with a next step, exit codes, a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
from recordings import recording

from app import cli
from app.bench import Measured, Run, percentile, spawned_server, summary
from app.realtime_client import connect
from app.serving import lan_addresses
from app.settings_load import load_settings
from benchmarks.wer import word_errors


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    before, sys.argv = sys.argv, ["reachy-voice", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), printed.out + printed.err


def test_a_file_that_is_no_recording(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "question.wav"
    text.write_text("hello")
    code, printed = run(capsys, "ask", str(text))
    assert code == 7
    assert "is not a recording that can be read" in " ".join(printed.split())
    assert "do:" in printed


def test_no_server_at_the_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tone = tmp_path / "tone.wav"
    soundfile.write(tone, np.zeros(1600, np.int16), 16_000)
    code, printed = run(capsys, "ask", str(tone), "--url", "ws://127.0.0.1:9/v1/realtime")
    assert code == 9
    assert "script/serve" in printed


def test_a_taken_port_is_known_before_any_engine_is_built(
    capsys: pytest.CaptureFixture[str], weights: Callable[[str], Path]
) -> None:
    for name in load_settings(None).settings.weights():
        weights(name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, printed = run(capsys, "serve", "--port", str(taken.getsockname()[1]))
    assert code == 20
    assert "another program listens there already" in " ".join(printed.split())
    assert "ready " not in printed


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve", "--set", "tts.engine=pipre"], 3, "piper"),
        (["serve", "--set", "sever.port=1"], 3, "server"),
        (["serve", "--config", "nowhere.yaml"], 3, "nowhere.yaml"),
        (["serve", "--set", "llm.weights=nothing"], 4, "nothing"),
        (["bench", "nowhere.wav"], 7, "There is no recording"),
        (["bench", "--compare", "nowhere.json"], 7, "not the JSON of a benchmark"),
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


def test_weights_that_are_absent_name_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACHY_VOICE__PATHS__CACHE_DIR", str(tmp_path))
    code, printed = run(capsys, "serve")
    assert code == 4
    assert "reachy-voice models pull" in " ".join(printed.split())


@pytest.mark.real
def test_ask_prints_what_was_heard_and_writes_the_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    asked = recording("goforward")
    question, answer = tmp_path / "question.flac", tmp_path / "answer.wav"
    soundfile.write(question, np.stack((asked.pcm, asked.pcm), axis=1), 16_000)
    sets = [
        f for s in ("llm.threads=1", "conversation.sampling.max_tokens=24") for f in ("--set", s)
    ]
    code, printed = run(capsys, "ask", str(question), "--out", str(answer), "--json", *sets)
    assert code == 0, printed
    data = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    assert word_errors(asked.text, data["heard"]).errors == 0
    moments = [data["timeline_ms"][s] for s in ("transcript", "first_token", "first_clause")]
    assert moments == sorted(moments)
    samples, rate = soundfile.read(answer)
    assert rate == 24_000
    assert len(samples) / rate == pytest.approx(data["answer_seconds"], abs=0.01)
    assert np.abs(samples).max() > 0.05


@pytest.mark.real
async def test_sigterm_in_the_middle_of_a_reply_drains_and_leaves_no_process(
    weights: Callable[[str], Path],
) -> None:
    flags = ["--set", "llm.threads=1", "--set", "server.drain_s=20"]
    flags += ["--set", "conversation.sampling.max_tokens=40"]
    async with spawned_server(flags) as server, connect(server.url) as client:
        children = psutil.Process(server.pid).children(recursive=True)
        assert children, "the voice runs in a process of its own"
        await client.configure({"audio": {"input": {"turn_detection": None}}})
        await client._send(
            {
                "type": "conversation.item.create",
                "item": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Tell me a story."}],
                },
            }
        )
        await client._send({"type": "response.create"})
        await client._expect("response.output_audio.delta")
        os.kill(server.pid, signal.SIGTERM)
        await client._expect("response.done")
        async with asyncio.timeout(20):
            while psutil.pid_exists(server.pid):
                if psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE:
                    break
                await asyncio.to_thread(psutil.wait_procs, children, 1)
    assert not [child for child in children if child.is_running()]


def test_lan_addresses_are_not_loopback() -> None:
    assert not [address for address in lan_addresses() if address.startswith("127.")]


def test_percentiles_are_nearest_rank_and_ignore_what_was_not_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 99)] == [50, 95, 99]
    assert percentile([7.0, float("nan")], 99) == 7.0
    assert np.isnan(percentile([], 50))


def test_a_summary_keeps_first_turns_apart() -> None:
    run_ = Run(starts_s=[2.0, 3.0, 4.0])
    for ms, first in [(900.0, True), (300.0, False), (100.0, False), (200.0, False)]:
        run_.turns.append(Measured("clip", first, {"voice_to_voice": ms}, 0.5, False))
    data = summary(run_)
    assert data["n"] == 3
    assert data["stages_ms"]["voice_to_voice"] == {"n": 3, "p50": 200.0, "p95": 300.0, "p99": 300.0}
    assert data["first_to_warm_ratio"] == 4.5
    assert data["start_to_ready_s"] == {"n": 3, "p50": 3.0}
