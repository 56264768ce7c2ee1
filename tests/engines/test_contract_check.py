"""What ``reachy-voice engines check`` reports about engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.cli.command_line import run
from pipeline.engines.contract import Finished, Partial, TextDelta, Transcript, Warmed
from pipeline.engines.contract_check import faults
from pipeline.engines.registry import Kind
from pipeline.messages import Usage

pytestmark = pytest.mark.quick

END = Finished("stop", Usage())
PARTS = {
    Kind.VAD: {"rate": 16_000, "window_samples": 512, "score": lambda pcm: 0.0},
    Kind.TURN: {"rate": 16_000, "score": lambda pcm, text: 1.0},
    Kind.STT: {
        "rate": 16_000,
        "languages": (),
        "feed": lambda pcm: Partial(),
        "finish": lambda cancel: Transcript("", 1.0),
    },
    Kind.LLM: {
        "warm": lambda request, cancel: iter([None, Warmed()]),
        "reply": lambda request, cancel: iter([None, END]),
        "close": lambda: None,
    },
    Kind.TTS: {
        "voices": ("joe",),
        "languages": ("en",),
        "synthesize": lambda request, cancel: iter([None, np.ones(9, np.int16)]),
    },
    Kind.SPEAKER: {"rate": 16_000, "embed": lambda pcm, cancel: np.eye(4, dtype=np.float32)[0]},
}
"""Methods of a correct engine of each kind and of what it opens, here the same object."""


def engine(kind: Kind, **wrong: Any) -> Any:
    made = SimpleNamespace(**{**PARTS[kind], **wrong})
    made.open = lambda *_: made
    return made


def endless(request: Any, cancel: Any) -> Iterator[Any]:
    """Ends, but ignores cancellation."""
    yield from [np.ones(9, np.int16)] * 100


def dies(*_: Any) -> Any:
    raise OSError("no such device")


@pytest.mark.parametrize("kind", list(Kind))
def test_an_engine_that_keeps_its_contract(kind: Kind) -> None:
    assert list(faults(kind, engine(kind))) == []


@pytest.mark.parametrize(
    ("kind", "part", "value", "says"),
    [
        (Kind.VAD, "rate", 8_000, r"rate is 8000, but sound comes at 16000 Hz"),
        (Kind.VAD, "score", lambda pcm: 2.0, r"score\(\) returned 2\.0, not a number from 0 to 1"),
        (Kind.VAD, "score", dies, r"OSError: no such device \(.*test_contract_check\.py, line \d+"),
        (Kind.TURN, "score", lambda pcm: 0.5, "TypeError: .*takes 1 positional argument"),
        (Kind.STT, "feed", lambda pcm: None, r"feed\(\) gave None, not a Partial"),
        (Kind.STT, "finish", lambda cancel: "hi", r"finish\(\) gave 'hi', not a Transcript"),
        (Kind.LLM, "warm", lambda *_: iter([]), r"warm\(\) gave None, not a Warmed"),
        (Kind.LLM, "reply", lambda *_: iter(["Hi", END]), "'Hi', not a Delta"),
        (Kind.LLM, "reply", lambda *_: iter([TextDelta("Hi")]), "did not end with a Finished"),
        (Kind.SPEAKER, "embed", lambda pcm, cancel: np.ones(4, np.float32), "length 2.00, not 1"),
        (Kind.SPEAKER, "embed", lambda pcm, cancel: np.eye(4)[0], "float64 of shape"),
        (Kind.SPEAKER, "embed", lambda pcm, cancel: [1.0], "not a ndarray"),
        (Kind.TTS, "voices", (), "no voice"),
        (Kind.TTS, "synthesize", lambda *_: iter([np.ones(9)]), r"float64 of shape \(9,\)"),
        (Kind.TTS, "synthesize", lambda *_: iter([]), "no sound of 'It is a nice day today.'"),
        (Kind.TTS, "synthesize", endless, r"synthesize\(\) goes on after it was cancelled"),
    ],
)
def test_a_broken_contract_is_reported(
    kind: Kind, part: str, value: Callable[..., Any], says: str
) -> None:
    found = list(faults(kind, engine(kind, **{part: value})))
    assert any(re.search(says, fault) for fault in found), found


@pytest.mark.parametrize(
    ("name", "says"),
    [("nobody", "no entry point has that name"), ("openai-chat", "it is reached by URL")],
)
def test_engines_that_cannot_be_checked(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["reachy-voice", "engines", "check", name])
    assert run() == 3
    assert says in capsys.readouterr().err
