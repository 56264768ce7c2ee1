"""``reachy-voice replay`` and ``--record`` as a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
from rich.console import Console

from app.cli.replay import print_turns
from app.settings.load import load_settings
from pipeline.commands import SessionConfig
from pipeline.engines.registry import Kind
from pipeline.recording.reading import RecordedRun, read_recording
from pipeline.recording.replay import Replayed
from pipeline.turn_record import Judgement, Pause, TurnRecord
from tests.support.commands import run_flat
from tests.support.recorded import question, record
from tests.support.recordings import recording
from tests.support.scripted import Scene
from tests.support.small_engines import install


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A settings file whose engines are small: they hear and say their names."""
    install(monkeypatch)
    path = tmp_path / "my.yaml"
    engines = "\n".join(f"{kind}: {{engine: small}}" for kind in Kind)
    path.write_text(f"playback: {{watch_voice: false}}\n{engines}")
    return str(path)


def test_each_turn_is_printed_beside_the_recorded_one_and_can_be_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, profile: str
) -> None:
    async def short(played: Scene) -> None:
        await played.say(0.5)
        await played.hear(1.5)

    folder, again = record(tmp_path / "r", short), tmp_path / "again"
    options = ["--set", "stt.name=ahoy", "--record", str(again)]
    code, printed = run_flat(capsys, "replay", str(folder), "-c", profile, *options)
    assert code == 0, printed
    assert "lasts 2.0 s, recorded by test" in printed
    assert " recorded shutdown " in printed
    assert " now answered " in printed
    assert " hello " in printed
    assert " ahoy " in printed
    [run] = read_recording(again)
    assert [turn.text for _, turn in run.records] == ["ahoy"]


def shown(recorded: list[TurnRecord], now: list[TurnRecord]) -> list[str]:
    run = RecordedRun("s", "test", SessionConfig(""), ())
    run.records = [(10.0 * n, turn) for n, turn in enumerate(recorded)]
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        print_turns(console, run, Replayed([(10.0 * n, turn) for n, turn in enumerate(now)]))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_turn_that_did_not_come_again_or_is_new_stands_alone() -> None:
    def turn(text: str, ms: float) -> TurnRecord:
        pause = Pause(0, None, (Judgement(100.0, 0.9, 160, ("sound",)),))
        return TurnRecord("voice", "answered", text=text, endpoint_ms=ms, pauses=(pause,))

    assert shown([turn("one", 100.4), turn("two", 200)], [turn("uno", 300)])[1:] == [
        "0.00 recorded answered 100 - - 0.90 sound one",
        "0.00 now answered 300 - - 0.90 sound uno",
        "10.00 recorded answered 200 - - 0.90 sound two",
        "now no such turn",
    ]
    assert shown([], [turn("uno", 300)])[1] == "recorded no such turn"
    assert shown([], []) == ["There were no turns."]


def test_recorded_text_cannot_control_the_terminal() -> None:
    text = TurnRecord("text", "answered", text="a\x1b]0;b\x07c \ud800 [red]d")
    assert shown([text], [])[1].endswith("a?]0;b?c ? [red]d")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 7, "No such folder"),
        (["FOLDER", "--set", "endpointing"], 3, "it is not section.key=value"),
        (["FOLDER", "--record", "FOLDER"], 7, "it is the recording itself"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    folder = str(record(tmp_path / "r", question))
    given = [folder if a == "FOLDER" else a for a in arguments]
    got, printed = run_flat(capsys, "replay", *given)
    assert got == code, printed
    assert words in printed
    assert "do:" in printed


# --- recording ---------------------------------------------------------------------------------


def test_a_bad_recording_folder_fails_before_engines_load(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    for name in load_settings(None).settings.weights():
        weights(name)
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Reachy")
    code, printed = run_flat(capsys, "serve", "--record", str(letter))
    assert code == 7
    assert "Cannot record into" in printed
    assert "Warming" not in printed


def test_a_remote_server_is_not_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tone = tmp_path / "tone.wav"
    soundfile.write(tone, [0.0] * 1600, 16_000)
    url = "ws://127.0.0.1:9/v1/realtime"
    code, printed = run_flat(
        capsys, "ask", str(tone), "--url", url, "--record", str(tmp_path / "r")
    )
    assert code == 2
    assert "cannot be used with --url" in printed
    assert not (tmp_path / "r").exists()


@pytest.mark.real
def test_a_question_to_the_real_engines_is_recorded_and_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    asked = recording("goforward")
    folder, wav = tmp_path / "r", tmp_path / "question.wav"
    soundfile.write(wav, asked.pcm, 16_000)
    sets = ["--set", "llm.threads=1", "--set", "conversation.sampling.max_tokens=12"]
    code, printed = run_flat(capsys, "ask", str(wav), "--record", str(folder), *sets)
    assert code == 0, printed
    assert f"Everything said is saved in {folder}" in printed
    code, printed = run_flat(capsys, "replay", str(folder), *sets)
    assert code == 0, printed
    assert printed.count("forward") >= 2
