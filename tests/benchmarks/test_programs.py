"""Every benchmark starts; those without need for weights, packages or time run once."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.answers.__main__ import AnswerResult
from benchmarks.answers.__main__ import figures as figures_of_answers
from benchmarks.answers.judge import Question, read
from benchmarks.gpu.language_model import REPLY, language_model
from benchmarks.harness.scene import save
from benchmarks.interruptions.heard_history import HOWS, AlignedTts, How, Interruption
from benchmarks.interruptions.heard_history import play as interrupted
from benchmarks.picture import Caption, Dialogue, draw
from benchmarks.turns import score
from pipeline.engines.contract import EndOfTurn
from pipeline.engines.llm.llama_cpp import LlamaCppOptions, build
from pipeline.messages import LlmRequest, Message, Sampling
from pipeline.work import NEVER
from tests.benchmarks.level_ears import LevelEars, scene
from tests.support.deltas import text_of
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


def test_turns_of_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score, "ears_of", lambda settings, memo: LevelEars())
    corpus, out = tmp_path / "corpus", tmp_path / "out.json"
    save([scene(640, 512, 640, name="a"), scene(640, name="b")], corpus)
    strict = ("endpointing.policy=strict", "endpointing.clear_wait_ms=320", "stt.size=tiny")
    sets = [f"--set={each}" for each in (f"paths.cache_dir={tmp_path}", *strict)]
    sweep = "--sweep=endpointing.unsure_wait_ms=800,1600"
    more = ("--delays=none", f"--out={out}", "--baselines", sweep)
    monkeypatch.setattr("sys.argv", ["score", str(corpus), *sets, *more])
    score.main()
    one, other = json.loads(out.read_text())
    assert one["overrides"][-1] != other["overrides"][-1]
    assert one["figures"]["all"]["end"]["missed"]["value"] == 0
    assert one["baselines"]["all"]["cut_rate"]["value"] is not None
    assert "CUT OFF" in capsys.readouterr().out


# --- speech over an answer, echo ---------------------------------------------------------------


class EvenPiper:
    """Each letter and each space after a word is a phoneme; all are equally long."""

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
    """All stages, on tiny models. A failure in a stage is a note in its report."""
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
    assert text_of(steps) == REPLY
    [end] = [step for step in steps if isinstance(step, EndOfTurn)]
    assert end.probability > 0.9


# --- a picture -----------------------------------------------------------------------------------


def test_a_conversation_is_drawn_with_its_times() -> None:
    heard = Dialogue(
        microphone=np.full(480 * 400, 100, np.int16),
        words=(Caption("Why?", 0.5, 1.0), Caption("Yeah.", 3.0, 3.2), Caption("<Stop>", 5.0, 5.4)),
        answer=[(2.0, np.full(24_000 * 4, 8000, np.int16))],
        transcript="Because.",
        silent_s=5.5,
    )
    texts = [node.text for node in ElementTree.fromstring(draw(heard)).iter() if node.text]
    assert {"“Because.”", "<Stop>", "answers after 1000 ms", "silent after 500 ms"} <= set(texts)
