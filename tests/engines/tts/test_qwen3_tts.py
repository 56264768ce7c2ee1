"""Qwen3-TTS, the real code on a tiny model: pieces equal the whole, stopping, faults."""

from __future__ import annotations

import atexit
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm, from_float
from pipeline.engines.contract import NotSpeech
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, ClauseRequest, most_frames
from pipeline.engines.tts.qwen3_tts import Qwen3Tts, build
from pipeline.errors import ConfigError, EngineError, WeightsError
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER, Cancelled, CancelToken, Priority
from tests.support.recordings import Token
from tests.support.tiny_models.qwen3_tts import CODES, VOICES
from tests.support.tiny_qwen import TEXT, directory, engine, joined, needs_qwen, options

# torch and transformers warn about each other while they are imported, which takes a minute on a
# busy machine.
pytestmark = [
    pytest.mark.engines,
    pytest.mark.qwen,
    needs_qwen,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]


def say(tts: Qwen3Tts, text: str = TEXT, voice: str = "", take: int = 0) -> Pcm:
    return joined(tts.synthesize(SpeechRequest(text, voice, take=take), NEVER))


def beginning(tts: Qwen3Tts, take: int = 0, language: str = "") -> Pcm:
    """The first frames, which do not depend on when the model ends."""
    asked = SpeechRequest(TEXT, language=language, take=take)
    stream: Any = tts.synthesize(asked, NEVER)
    with closing(stream):
        return joined(islice(stream, 8))


def same(one: Pcm, other: Pcm) -> bool:
    """Equal up to rounding, which depends on where a copy's weights lie in memory."""
    return one.shape == other.shape and np.abs(one.astype(int) - other).max() < 100


# --- what it says ------------------------------------------------------------------------------


@cache
def certain() -> Path:
    """The tiny model, set to always take the likeliest code, so that two programs agree."""
    copy = Path(tempfile.mkdtemp(prefix="tiny-qwen-certain-"))
    atexit.register(shutil.rmtree, copy)
    shutil.copytree(directory(), copy, dirs_exist_ok=True)
    path = copy / "generation_config.json"
    chosen = {"do_sample": False, "subtalker_dosample": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | chosen))
    return copy


@pytest.mark.parametrize("text", ["Hello there, how are you?", "One.", "Tell me a longer story."])
def test_its_speech_equals_the_packages(text: str) -> None:
    """Our arithmetic, frame by frame, against the package's for a whole clause."""
    from qwen_tts import Qwen3TTSModel

    package = Qwen3TTSModel.from_pretrained(str(certain()), device_map="cpu")
    most = 100
    (whole,), rate = package.generate_custom_voice(
        text, speaker="ryan", language="english", max_new_tokens=most
    )
    tts = build(options(model_dir=str(certain())), None)
    clause = ClauseRequest(text, "ryan", "english", "", most, 0)
    pieces: list[Pcm | None] = []
    with suppress(NotSpeech):
        pieces.extend(tts.speaker.say(clause, NEVER))
    streamed = joined(pieces)
    assert rate == tts.rate == 24_000
    assert {len(piece) for piece in pieces if piece is not None} == {FRAME_SAMPLES}
    assert len(streamed) >= 2 * FRAME_SAMPLES
    differ = streamed.astype(int) - from_float(whole)[: len(streamed)].astype(int)
    assert np.abs(differ).max() <= 1
    assert np.abs(streamed).max() > 1000


def test_sound_continues_beyond_the_codecs_context() -> None:
    import torch
    from qwen_tts import Qwen3TTSModel

    from pipeline.engines.tts.qwen3_codec import Codec

    def decoder() -> Any:
        package = Qwen3TTSModel.from_pretrained(str(directory()), device_map="cpu")
        return package.model.speech_tokenizer.model.decoder.float()

    codes = torch.randint(0, CODES, (200, 16), generator=torch.manual_seed(1))
    with torch.inference_mode():
        codec = Codec(decoder(), 3, 200, lambda: None)
        codec.forward(codes[7:10], slice(0, 3), torch.tensor([0, 0, 0]))
        codec.reset(torch.tensor([1]))
        frames = enumerate(codes[:, None])
        made = [codec.forward(code, slice(1, 2), torch.tensor([n])) for n, code in frames]
        whole = decoder()(codes.T[None])[0, 0]
    assert torch.allclose(torch.cat(made, 1)[0].clamp(-1, 1), whole, atol=1e-4)
    assert whole.abs().max() > 0.3


def test_codes_are_drawn_by_their_probability() -> None:
    import torch

    from pipeline.engines.tts.qwen3_talker import CodeSampling

    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0]).expand(20_000, -1)
    noise = torch.empty(20_000, 4).exponential_(generator=torch.manual_seed(1))
    for top_p, kept in ((1.0, 4), (0.8, 3)):
        chosen = CodeSampling(True, 4, top_p, 2.0).choose(logits, noise)
        shares = torch.bincount(chosen, minlength=5) / len(chosen)
        wanted = torch.zeros(5)
        wanted[:kept] = (logits[0, :kept] / 2).softmax(0)
        assert torch.allclose(shares, wanted, atol=0.015)


def clause(
    tts: Qwen3Tts, seed: int, voice: str = "ryan", by: CancelToken | None = None
) -> Iterator[Pcm | None]:
    """One of some clauses of different lengths."""
    asked = ClauseRequest(TEXT + " So" * seed, voice, "english", "", 40, seed)
    with suppress(NotSpeech):
        yield from tts.speaker.say(asked, by or NEVER)


@pytest.mark.parametrize("together", [False, True])
def test_clauses_made_at_once_equal_those_made_alone(together: bool) -> None:
    """More clauses than rows: the last ones wait for one to end."""
    tts = engine(clauses=2)
    rows = (2, "ryan"), (4, "serena"), (5, "aiden"), (0, "ryan"), (7, "serena")
    alone = [joined(clause(tts, *row)) for row in rows]
    tts.speaker.talker._together = together
    streams = [clause(tts, *row) for row in rows]
    made: list[list[Pcm | None]] = [[] for _ in rows]
    try:
        for step in zip_longest(*streams):
            for pieces, piece in zip(made, step, strict=True):
                pieces.append(piece)
    finally:
        tts.speaker.talker._together = False
    for pieces, whole in zip(made, alone, strict=True):
        assert len(joined(pieces)) == len(whole) > 0
        assert np.abs(joined(pieces).astype(int) - whole).max() <= 1


@contextmanager
def frames_made(tts: Qwen3Tts, together: bool) -> Iterator[list[int]]:
    """Yields a list with an entry for each network frame from here on; on a GPU, one graph
    replay."""
    talker, made = tts.speaker.talker, []
    frame = talker._frame

    def count(rows: slice) -> None:
        made.append(rows.stop - rows.start)
        frame(rows)

    talker._frame, talker._together = count, together  # type: ignore[method-assign]
    try:
        yield made
    finally:
        talker._frame, talker._together = frame, False  # type: ignore[method-assign]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_an_urgent_clause_displaces_a_speculative_one(together: bool, steps: int) -> None:
    tts = engine(clauses=4)
    patient = [Token(priority=Priority.SPECULATIVE) for _ in range(4)]
    alone = [joined(clause(tts, seed)) for seed in range(6)]
    streams = [clause(tts, seed, by=by) for seed, by in enumerate(patient)]
    made = [[next(stream) for _ in range(steps)] for stream in streams]
    patient[3].priority = Priority.CONFIRMED  # promoted while it is made
    with frames_made(tts, together) as frames:
        urgent = clause(tts, 4)
        first = [next(urgent), next(urgent)]
        assert len(frames) == 1, "it waited for others"
        assert first[1] is not None
        assert next(clause(tts, 5, by=Token(priority=Priority.SPECULATIVE))) is None
        pieces = [[*before, *stream] for before, stream in zip(made, streams, strict=True)]
        pieces.append([*first, *urgent])
    for number, (each, whole) in enumerate(zip(pieces, alone, strict=False)):
        assert len(joined(each)) == len(whole) > 0, number
        assert np.abs(joined(each).astype(int) - whole).max() <= 1


def test_clauses_begun_at_once_sound_after_one_frame() -> None:
    tts = engine(clauses=4)
    streams = [tts.synthesize(SpeechRequest(TEXT), NEVER) for _ in range(4)]
    with frames_made(tts, together=True) as frames:
        steps = [[next(stream) for stream in streams] for _ in range(2)]
    assert all(piece is not None for piece in steps[1])
    assert frames == [4]
    for stream in streams:
        stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("looks", [0, 1, 9, 18, 30, 38])
def test_cancelling_a_waiting_clause_changes_no_other(looks: int) -> None:
    tts = engine(clauses=2)
    alone = [joined(clause(tts, seed)) for seed in (4, 5)]
    streams = [clause(tts, seed) for seed in (4, 5)]
    made = [[next(stream) for _ in range(2)] for stream in streams]
    waiting: Any = clause(tts, 6, by=Token(looks))
    with suppress(Cancelled):
        for _ in range(4):
            next(waiting)
    waiting.close()
    for pieces, stream, whole in zip(made, streams, alone, strict=True):
        assert np.array_equal(joined([*pieces, *stream]), whole)


def test_a_prompt_that_leaves_no_room_for_speech_is_refused() -> None:
    with pytest.raises(EngineError, match="tokens") as caught:
        engine(instruct="Speak as on a stage, and slowly. " * 20)
    assert "tts.instruct" in caught.value.fix


def test_voices_come_from_the_model() -> None:
    tts = engine(seed=4)
    assert list(tts.voices) == sorted(VOICES)
    ryan, serena = say(tts, voice="ryan"), say(tts, voice="serena")
    assert not np.array_equal(ryan, serena)
    assert np.array_equal(say(tts, voice="Serena"), serena)
    assert np.array_equal(say(tts, voice="alloy"), ryan)
    assert np.array_equal(say(engine(seed=4, voice="Serena"), voice="alloy"), serena)


def test_takes_differ_and_seeds_repeat_them() -> None:
    tts, free = engine(seed=4), engine()
    first = beginning(tts)
    assert np.array_equal(beginning(tts), first)
    assert not np.array_equal(beginning(tts, take=1), first)
    assert not np.array_equal(beginning(free), beginning(free))


def test_an_urgent_clause_between_two_frames_changes_nothing() -> None:
    tts = engine(seed=4)
    alone = say(tts, voice="ryan"), say(tts, voice="serena")
    first = tts.synthesize(SpeechRequest(TEXT, "ryan"), NEVER)
    begun = [next(first) for _ in range(3)]
    urgent = tts.synthesize(SpeechRequest(TEXT, "serena"), NEVER)
    between = [next(urgent) for _ in range(2)]
    begun += [next(first)]
    assert np.array_equal(joined(between + list(urgent)), alone[1])
    assert np.array_equal(joined(begun + list(first)), alone[0])


def test_instructions_are_part_of_the_prompt_where_the_model_takes_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, told = engine(seed=4), engine(seed=4, instruct="Whisper.")
    assert not np.array_equal(beginning(told), beginning(plain))
    small = str(directory(size="0b6"))
    with caplog.at_level(logging.WARNING, "reachy_voice.tts"):
        silent = build(options(seed=4, instruct="Whisper.", model_dir=small), None)
    assert "takes no tts.instruct" in caplog.text
    assert same(beginning(silent), beginning(plain))


def test_the_language_of_a_text_overrides_the_default() -> None:
    tts, german = engine(seed=4), engine(seed=4, language="de")
    assert {"de", "en", "zh"} <= set(tts.languages)
    assert same(beginning(tts, language="de"), beginning(german))
    assert same(beginning(german, language="en"), beginning(tts))
    assert np.array_equal(beginning(german, language="pl"), beginning(german)), "it speaks none"


def test_an_unsupported_speed_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    tts = build(options(seed=4), None)
    with caplog.at_level(logging.WARNING, "reachy_voice.tts"):
        fast = [joined(tts.synthesize(SpeechRequest(TEXT, "", 1.5), NEVER)) for _ in range(2)]
    assert np.array_equal(fast[0], say(tts))
    assert caplog.text.count("one pace") == 1


# --- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1, 5, 19, 40])
def test_it_stops_within_a_frame(looks: int) -> None:
    """Each layer checks before its pass: no pass follows the cancellation."""
    tts = engine(seed=4)
    before = say(tts)
    stops = Token(looks)
    with pytest.raises(Cancelled):
        joined(tts.synthesize(SpeechRequest(TEXT), stops))
    assert stops.looks == looks + 1, "it looked again after it was told to stop"
    assert np.array_equal(say(tts), before)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_dropped_clause_makes_room_for_others(steps: int) -> None:
    tts = engine(seed=4, clauses=1)
    alone = say(tts)
    stream: Any = tts.synthesize(SpeechRequest(TEXT), NEVER)
    for _ in range(steps):
        next(stream)
    other: Any = tts.synthesize(SpeechRequest(TEXT), NEVER)
    assert next(other) is None
    stream.close()
    assert np.array_equal(joined(other), alone)


# --- faults ------------------------------------------------------------------------------------


def test_it_speaks_without_graphs_if_none_can_be_made(caplog: pytest.LogCaptureFixture) -> None:
    tts = engine(seed=4)
    whole = say(tts)
    with caplog.at_level(logging.WARNING, "reachy_voice.tts"):
        tts.speaker.talker._try_to_record()  # torch for a CPU has no graphs
    assert "without CUDA graphs" in caplog.text
    assert np.array_equal(say(tts), whole)


@contextmanager
def biased(tts: Qwen3Tts, **biases: float) -> Iterator[None]:
    """The talker's next codes with something added: ``code_5=99`` or ``end=-99``."""

    def add(module: Any, arguments: Any, logits: Any) -> Any:
        for name, bias in biases.items():
            logits[..., CODES if name == "end" else int(name.removeprefix("code_"))] += bias
        return logits

    hook = tts.speaker.talker._head.register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()


def test_a_code_that_repeats_ends_the_clause_at_once() -> None:
    tts = engine(seed=4)
    made: list[Pcm | None] = []
    with biased(tts, code_5=99.0, end=-99.0), pytest.raises(NotSpeech) as caught:
        made.extend(tts.synthesize(SpeechRequest(TEXT), NEVER))
    assert caught.value.fault == "repetition"
    assert len(joined(made)) <= 6 * FRAME_SAMPLES
    assert caught.value.since_s == 0
    assert len(say(tts)) > 0


def test_a_clause_without_an_end_is_cut_at_its_limit() -> None:
    tts = engine(seed=4)
    made: list[Pcm | None] = []
    with biased(tts, end=-99.0), pytest.raises(NotSpeech) as caught:
        made.extend(tts.synthesize(SpeechRequest(TEXT), NEVER))
    assert caught.value.fault == "runaway"
    frames = len(joined(made)) // FRAME_SAMPLES
    assert frames == most_frames(TEXT)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(directory(), broken)
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        build(options(model_dir=str(broken)), None)


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"voice": "nobody"}, ConfigError, "known are: aiden, ryan, serena"),
        ({"language": "sw"}, ConfigError, "known are: auto, chinese, english, german"),
        ({"device": "cuda:9"}, EngineError, "no device for tts.device 'cuda:9'"),
    ],
)
def test_an_option_the_model_lacks_is_an_error_with_a_fix(
    changed: dict[str, str], error: type[EngineError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        build(options(**changed), None)
    assert caught.value.fix
