"""Every benchmark starts, and those that need no weights, packages or time are run once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.answers.__main__ import AnswerResult
from benchmarks.answers.__main__ import figures as figures_of_answers
from benchmarks.answers.judge import Question, read
from benchmarks.echo.scenes import EchoSceneMaker, InterruptionClip, active_dbfs, onset
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import speech
from benchmarks.gpu.language_model import REPLY, language_model
from benchmarks.gpu.report import verdict as verdict_of
from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.ears import Ears, Memo
from benchmarks.harness.played_scene import play
from benchmarks.harness.scene import save
from benchmarks.harness.virtual_engines import H100
from benchmarks.interruptions import languages
from benchmarks.interruptions.__main__ import play as spoken_over
from benchmarks.interruptions.heard_history import HOWS, AlignedTts, How, Interruption
from benchmarks.interruptions.heard_history import play as interrupted
from benchmarks.interruptions.scenes import over_an_answer
from benchmarks.picture import Caption, Dialogue, draw
from benchmarks.turns import score
from benchmarks.turns.metrics import score_scene
from benchmarks.turns.report import value_at
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import EndOfTurn, TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCppOptions, build
from pipeline.errors import ReachyVoiceError
from pipeline.messages import LlmRequest, Message, Sampling
from pipeline.settings import Endpointing, SessionSettings
from pipeline.work import NEVER
from tests.benchmarks.level_ears import LevelEars, labelled_turn, scene
from tests.support.echo_sound import pcm, speechlike
from tests.support.pico import spoken_by_pico
from tests.support.tiny_parakeet import needs_nemo
from tests.support.tiny_qwen import needs_qwen

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    assert ended.value.code == 0


# --- turns -------------------------------------------------------------------------------------


@pytest.fixture
def run_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    def run(folder: Path, *more: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(score, "ears_of", lambda settings, memo: LevelEars())
        out = tmp_path / "out.json"
        cache = f"--set=paths.cache_dir={tmp_path}"
        argv = ["score", str(folder), cache, "--delays=none", f"--out={out}", *more]
        monkeypatch.setattr("sys.argv", argv)
        score.main()
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found

    return run


def test_turns_of_a_corpus(
    tmp_path: Path,
    run_score: Callable[..., list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = tmp_path / "corpus"
    save([scene(640, 512, 640, name="a"), scene(640, name="b")], corpus)
    strict = ("endpointing.policy=strict", "endpointing.clear_wait_ms=320", "stt.size=tiny")
    sets = [f"--set={each}" for each in strict]
    sweep = "--sweep=endpointing.unsure_wait_ms=800,1600"
    one, other = run_score(corpus, "--baselines", sweep, *sets)
    assert one["overrides"][-1] != other["overrides"][-1]
    assert value_at(one["figures"], "all.end.missed") == 0
    assert value_at(one["baselines"], "all.cut_rate") is not None
    assert "CUT OFF" in capsys.readouterr().out


@pytest.mark.parametrize(("wait_ms", "cut"), [(320, 1), (640, 0)])
def test_turns_of_people(
    tmp_path: Path, run_score: Callable[..., list[dict[str, Any]]], wait_ms: int, cut: float
) -> None:
    labelled_turn(tmp_path / "set")
    waits = (f"endpointing.{wait}_wait_ms={wait_ms}" for wait in ("clear", "likely", "unsure"))
    sets = (f"--set={each}" for each in ("endpointing.policy=strict", *waits))
    (result,) = run_score(tmp_path, *sets)
    assert result["corpus"] == "set"
    assert value_at(result["figures"], "all.end.missed") == 0
    assert value_at(result["figures"], "all.cut_offs.by_kind.natural") == cut


@pytest.mark.parametrize("profile", ["reachy", "reachy-8gb"])
def test_fast_engines_leave_time_for_a_short_pause(profile: str) -> None:
    wait_ms = load_settings(profile, environ={}).settings.endpointing.clear_wait_ms
    fixed = dict.fromkeys(("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms"), wait_ms)
    endpointing = Endpointing.model_validate({"policy": "strict", **fixed})
    settings = SessionSettings(endpointing=endpointing)
    paused = score_scene(play(scene(640, 160, 640), cast(Any, LevelEars()), settings, H100))
    assert [pause.cut for pause in paused.pauses] == [False]
    whole = score_scene(play(scene(1024), cast(Any, LevelEars()), settings, H100))
    assert whole.audio_ms is not None
    assert whole.audio_ms <= 200


# --- speech over an answer, echo ---------------------------------------------------------------


class EvenPiper:
    """Each letter, and each space behind a word, is a phoneme, and as long as any other."""

    rate = 16_000

    def say(self, text: str, pace: float) -> tuple[Any, list[int]]:
        ends = list(range(1000, (len(text) + 2) * 1000, 1000))
        noise = np.random.default_rng(len(text)).uniform(0.1, 0.5, ends[-1])
        return noise.astype(np.float32), ends

    def phones(self, text: str) -> int:
        return len(text) + 1


@pytest.mark.parametrize("how", HOWS)
def test_heard_history(how: How) -> None:
    answer = "Nobody remembers how many people were there when the lighthouse was built by hand."
    voice = AlignedTts(EvenPiper())
    outcome = interrupted(Interruption(answer, how, 1.0, 250, 0.5), voice, whole_s=6.0)
    assert outcome
    assert 0 < outcome.played_words < len(answer.split())
    assert abs(outcome.error) <= 1
    assert outcome.unsent_words == 0


@pytest.mark.real
@pytest.mark.parametrize(("said", "stops"), [("Oui, d'accord.", False), ("Attends !", True)])
def test_words_over_an_answer_in_french(
    cache: WeightsCache, weights: Callable[[str], Path], said: str, stops: bool
) -> None:
    settings = load_settings("default").settings
    for name in ("silero-vad", "smart-turn-v3.2"):
        weights(name)
    try:
        ears = languages.WhisperEars(Ears(settings, cache, Memo(None)))
    except ReachyVoiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"whisper-base cannot be had: {error}")
    silence = np.zeros(LISTEN_RATE, np.int16)  # loads the models, which nothing may do on the loop
    ears.speech_scores(silence)
    ears.turn_over(silence)
    rng, heard = np.random.default_rng(0), to_signal(spoken_by_pico(said, "fr"))
    scene = over_an_answer("command" if stops else "backchannel", "pico", said, heard, rng)
    outcome = spoken_over(scene, ears, settings, "fr", languages.WHISPER_S)
    assert (outcome.stopped, outcome.lost) == (stops, stops)


def test_echo_scenes() -> None:
    class Voice:
        def say(self, voice: str, text: str) -> Pcm:
            return pcm(speechlike(1.5, len(voice) * 1000 + len(text)))

    made = EchoSceneMaker(Voice()).make(7, 6)
    said = speechlike(1, 8)
    clip = InterruptionClip("x", "", "source", said, onset(said))
    for ser_db in (6, -6):
        level = active_dbfs(made.interruption(clip, ser_db)) - active_dbfs(made.echo)
        assert level == pytest.approx(ser_db, abs=0.1)


# --- language models ---------------------------------------------------------------------------


@pytest.mark.parametrize("questions", [read("frozen"), read("tuning")], ids=["frozen", "tuning"])
def test_answers(questions: list[Question]) -> None:
    found = figures_of_answers([AnswerResult(question, question.good) for question in questions])
    assert found["worth"]["value"] == 1
    assert found["crossed"] < 0.03


@pytest.mark.nemo
@pytest.mark.qwen
@pytest.mark.real
@needs_nemo
@needs_qwen
@pytest.mark.timeout(1200)
def test_gpu_stages(tmp_path: Path) -> None:
    """All of them, on tiny models. What fails in a stage is a note of its report."""
    out, once = tmp_path / "figures.jsonl", ["--robots=1", "--turns=1", "--repeats=1"]
    program = [sys.executable, "-m", "benchmarks.gpu", "--small", f"--models={tmp_path}"]
    subprocess.run([*program, *once, f"--out={out}"], cwd=ROOT, check=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    notes = [row for row in rows if "note" in row]
    assert not [row for row in notes if "failed" in row["figure"] or row["note"][:6] == "failed"]
    assert {
        ("stt", "final pass, 1 s of speech"),
        ("stt", "partials of 4 streams"),
        ("voice", "4 clauses at once: first sound"),
        ("llm", "4 sessions: first token, warm prefix"),
        ("server", "1 robot: first audio"),
    } <= {(row["stage"], row["figure"]) for row in rows if "note" not in row}


def test_gpu_language_model(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    model = tmp_path / "small.gguf"
    language_model(model, small=True)
    options = LlamaCppOptions(
        weights=None, model_file=str(model), context_tokens=512, threads=1, saved_prefix_mb=0
    )
    question, sampling = [Message("user", "Who are you?")], Sampling(max_tokens=40)
    request = LlmRequest(question, sampling=sampling)
    steps = list(build(options, None).open().reply(request, NEVER))
    assert "".join(step.text for step in steps if isinstance(step, TextDelta)) == REPLY
    [end] = [step for step in steps if isinstance(step, EndOfTurn)]
    assert end.probability > 0.9


@pytest.mark.parametrize(
    ("figure", "values", "verdict"),
    [
        ("1 robot: first audio", (270.0, 480.0, 900.0), "P50 ≤ 280, P95 ≤ 480: met"),
        ("1 robot: first audio", (270.0, 481.0, 900.0), "P50 ≤ 280, P95 ≤ 480: not met"),
        ("1 robot: first audio", (270.0, None, 900.0), "P50 ≤ 280, P95 ≤ 480: too few values"),
        ("1 robot: holes", (1.0, None, 1.0), "max ≤ 0: not met"),
        ("2 words: load", (1.0, None, 1.0), ""),
    ],
)
def test_gpu_aims(figure: str, values: tuple[float | None, ...], verdict: str) -> None:
    row = {"figure": figure, **dict(zip(("p50", "p95", "max"), values, strict=True))}
    assert verdict_of(row) == verdict


def test_gpu_without_speech(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(speech, "recordings_of_people", tuple)
    monkeypatch.setattr(speech.shutil, "which", lambda name: None)
    monkeypatch.setattr("sys.argv", ["benchmarks.gpu", "--models", str(tmp_path)])
    with pytest.raises(SystemExit):
        gpu.parse_arguments()
    assert "install espeak-ng" in capsys.readouterr().err


# --- a picture -----------------------------------------------------------------------------------


def test_a_conversation_is_drawn_as_it_was_heard() -> None:
    heard = Dialogue(
        microphone=np.full(480 * 400, 100, np.int16),
        words=(Caption("Why?", 0.5, 1.0), Caption("Yeah.", 3.0, 3.2), Caption("<Stop>", 5.0, 5.4)),
        answer=[(2.0, np.full(24_000 * 4, 8000, np.int16))],
        transcript="Because.",
        silent_s=5.5,
    )
    texts = [node.text for node in ElementTree.fromstring(draw(heard)).iter() if node.text]
    assert {"“Because.”", "<Stop>", "answers after 1000 ms", "silent after 500 ms"} <= set(texts)
