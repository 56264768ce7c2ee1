"""Pictures for llama.cpp, on random models of real architectures: positions, cells, bad pictures.

The models recognise nothing, but different pictures give different answers and equal ones equal
answers.
"""

from __future__ import annotations

import base64
import ctypes
import importlib
import logging
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engines.contract import LlmSession
from pipeline.engines.llm import llama_api
from pipeline.engines.llm.llama_context import DecodeOutcome, LlamaContext
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.engines.llm.pictures import FORGOTTEN_IMAGE, UNREADABLE_IMAGE
from pipeline.engines.llm.prompts import known_texts
from pipeline.engines.llm.vision import Media, VisionProjector
from pipeline.errors import EngineError, PromptTooLong, WeightsError
from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Image, Message, Sampling
from pipeline.work import Cancelled
from tests.support import tiny_gguf
from tests.support.llama_talk import (
    MODEL,
    SHORT_TOOLS,
    SYSTEM,
    answer,
    begin,
    forget,
    replies,
    warm,
)
from tests.support.places import DATA
from tests.support.recordings import Token

pytestmark = [pytest.mark.engines, pytest.mark.real]


def png(width: int, height: int, seed: int = 0) -> bytes:
    """A picture of stripes."""
    draw = np.random.default_rng(seed)
    row = bytes([0]) + draw.integers(0, 255, (1, 3), np.uint8).repeat(width, 0).tobytes()
    other = bytes([0]) + draw.integers(0, 255, (1, 3), np.uint8).repeat(width, 0).tobytes()
    rows = b"".join(other if (y * 4 // height) % 2 else row for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(rows, 1)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


JPEG = url((DATA / "pictures" / "ball.jpg").read_bytes(), "jpeg")
ONE, OTHER = url(png(48, 32, 1)), url(png(48, 32, 2))


def shows(*urls: str | None, text: str = "What is that?") -> Message:
    images = []
    content = ""
    for one in urls:
        images.append(Image(len(content), len(UNSEEN_IMAGE), one))
        content += f"{UNSEEN_IMAGE} "
    return Message("user", f"{content}{text}", images=tuple(images))


GREEDY = Sampling(temperature=0, repeat_penalty=1.3, max_tokens=12)
FAMILIES = {
    # Picture cells that see later ones; with 2D positions; in tiles with text between.
    "gemma3": ("gemma3", {"window_tokens": 32}),
    "qwen2vl": ("qwen2vl_merger", {"extra": {"rope.dimension_sections": [4, 6, 6, 0]}}),
    "llama": ("idefics3", {}),
}


MARKS = ("<fake_token_around_image>", "<global-img>")
"""Tokens that mtmd puts around tiles."""


@pytest.fixture(scope="module", autouse=True)
def built_with_mtmd() -> None:
    try:
        llama_api.multimodal()
    except EngineError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def made(
    weights: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., LlamaCpp]:
    """Builds an engine of a family: ``family="gemma3"`` and options."""
    vocabulary = tiny_gguf.tokenizer(next(weights(MODEL).glob("*.gguf")))
    for token, mark in enumerate(MARKS, len(vocabulary["tokenizer.ggml.tokens"]) - len(MARKS)):
        vocabulary["tokenizer.ggml.tokens"][token] = mark
        vocabulary["tokenizer.ggml.token_type"][token] = 3  # control
    folder = tmp_path_factory.mktemp("vision")

    def make(family: str, **options: Any) -> LlamaCpp:
        kind, how = FAMILIES[family]
        model, projector = folder / f"{family}.gguf", folder / f"mmproj-{family}.gguf"
        if not projector.exists():
            tiny_gguf.language_model(model, vocabulary, family, seed=1, **how)
            tiny_gguf.projector(projector, kind)
        given = {"mmproj": str(projector), "context_tokens": 2048, "sequences": 3, **options}
        return build(LlamaCppOptions(weights=None, model_file=str(model), threads=1, **given), None)

    return make


@pytest.fixture(scope="module", params=FAMILIES)
def one_engine(request: pytest.FixtureRequest, made: Callable[..., LlamaCpp]) -> LlamaCpp:
    return made(request.param)


@pytest.fixture
def engine(one_engine: LlamaCpp) -> LlamaCpp:
    """The engine with empty cells."""
    forget(one_engine)
    return one_engine


def ask(session: LlmSession, *messages: Message) -> str:
    return answer(session, [SYSTEM, *messages], sampling=GREEDY)[0]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Media]:
    """The pictures that the projector has encoded."""
    seen: list[Media] = []
    look = VisionProjector.look

    def counted(self: VisionProjector, media: Media) -> Any:
        seen.append(media)
        return look(self, media)

    monkeypatch.setattr(VisionProjector, "look", counted)
    return seen


# --- seeing ------------------------------------------------------------------------------------


def test_different_pictures_give_different_answers(engine: LlamaCpp) -> None:
    texts = [ask(engine.open(), shows(one)) for one in (ONE, OTHER, JPEG, ONE)]
    assert len(set(texts[:3])) == 3
    assert texts[3] == texts[0]
    assert ask(engine.open(), Message("user", f"{UNSEEN_IMAGE} What is that?")) not in texts


def test_a_picture_is_encoded_once_in_a_conversation(engine: LlamaCpp, looks: list[Media]) -> None:
    session = engine.open()
    parts = 5 if engine._parts.model.path.stem == "llama" else 1
    talk = [shows(ONE), Message("assistant", "A flag."), Message("user", "Of which country?")]
    ask(session, talk[0])
    assert 1 <= len(looks) <= parts
    first = len(looks)
    text, end = answer(session, [SYSTEM, *talk], sampling=GREEDY)
    assert len(looks) == first
    assert end.usage.evaluated < 50, "its cells are still there"
    forget(engine)
    assert ask(session, *talk) == text, "and when they are gone, it need not be seen again"
    assert len(looks) == first
    forget(engine)
    assert ask(engine.open(), *talk) == text
    assert len(looks) == 2 * first, "another conversation looks for itself"


def test_two_pictures(engine: LlamaCpp) -> None:
    session = engine.open()
    both = ask(session, shows(ONE, OTHER))
    assert both != ask(engine.open(), shows(OTHER, ONE))
    later = [shows(ONE), Message("assistant", "A flag."), shows(OTHER, text="And that?")]
    text, end = answer(session, [SYSTEM, *later], sampling=GREEDY)
    assert text == ask(engine.open(), *later)
    assert end.usage.cached > 30
    swapped = [shows(OTHER), *later[1:]]
    assert ask(session, *swapped) == ask(engine.open(), *swapped) != text


def test_cells_equal_those_of_the_library(engine: LlamaCpp) -> None:
    """The cells match those that ``mtmd_helper_eval_chunks`` makes of the whole prompt."""
    messages, parts = [SYSTEM, shows(ONE)], engine._parts
    prompts, context, projector = parts.prompts, parts.context, parts.prompts._vision
    assert projector
    tokens = prompts.whole(messages, [])
    assert list(replies(engine.open(), messages, sampling=Sampling(temperature=0, max_tokens=1)))
    logits = context.logits().copy()

    api = llama_api.multimodal()
    rendered = prompts._template.render([prompts._visible(m, known_texts()) for m in messages], [])
    text = "".join("<__media__>" if piece.image else piece.text for piece in rendered).encode()
    given = api.mtmd_input_text()
    given.text, given.text_len = text, len(text)
    given.add_special, given.parse_special = False, True
    data = base64.b64decode(ONE.partition(",")[2])
    buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    bitmap = api.mtmd_helper_bitmap_init_from_buf(projector.handle, buffer, len(data), False)
    chunks = api.mtmd_input_chunks_init()
    bitmaps = (ctypes.c_void_p * 1)(bitmap)
    assert api.mtmd_tokenize(projector.handle, chunks, ctypes.byref(given), bitmaps, 1) == 0
    scratch, end, start = parts.scratch, ctypes.c_int32(), int(parts.model.starts_with_bos)
    assert int(api.mtmd_helper_get_n_pos(chunks)) + start == len(tokens)
    if start:
        context.decode([parts.model.bos], 0, scratch, logits=False, by=Token())
    places = (start, scratch, 512, True, ctypes.byref(end))
    assert api.mtmd_helper_eval_chunks(projector.handle, context._handle, chunks, *places) == 0
    assert end.value == len(tokens)
    theirs = context.logits()
    assert np.abs(theirs - logits).max() < 0.1 * logits.std()
    context.remove(scratch, 0)
    api.mtmd_input_chunks_free(chunks)
    api.mtmd_bitmap_free(bitmap)


def test_reading_ahead_and_tools(engine: LlamaCpp) -> None:
    session = engine.open()
    history = [SYSTEM, shows(ONE, text="Look at that.")]
    ahead = warm(session, history, SHORT_TOOLS, said="What colour")
    again = [SYSTEM, shows(ONE, text="Look at that. What colour is it?")]
    usage = answer(session, again, tools=SHORT_TOOLS, sampling=GREEDY)[1].usage
    assert usage.cached >= ahead.prompt - 2


# --- sharing the engine ------------------------------------------------------------------------


def test_cancelling_while_the_projector_works(
    engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Media, "looked_at", lambda *_: False)
        token = Token()
        steps = replies(engine.open(), [SYSTEM, shows(ONE)], sampling=GREEDY, cancel=token)
        for _ in range(8):
            assert next(steps) is None, "others may work in the meantime"
        token.cancel_after = token.looks
        with pytest.raises(Cancelled):
            list(steps)
    assert ask(engine.open(), shows(ONE))


def test_preemption_inside_a_picture(engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ask(engine.open(), shows(ONE))
    forget(engine)
    outcomes: list[DecodeOutcome] = []
    decode = LlamaContext.decode_media

    def interrupted(self: LlamaContext, *args: Any, **how: Any) -> DecodeOutcome:
        if not outcomes:
            how["by"] = Token(preempt_after=0)
        outcomes.append(decode(self, *args, **how))
        return outcomes[-1]

    monkeypatch.setattr(LlamaContext, "decode_media", interrupted)
    assert ask(engine.open(), shows(ONE)) == expected
    assert outcomes[0] in (DecodeOutcome.ABORTED, DecodeOutcome.DONE)
    assert outcomes[-1] is DecodeOutcome.DONE


def test_two_sessions_show_pictures_at_once(engine: LlamaCpp) -> None:
    alone = [ask(engine.open(), shows(one)) for one in (ONE, OTHER)]
    sessions = [engine.open(), engine.open()]
    streams = [
        replies(session, [SYSTEM, shows(one)], sampling=GREEDY)
        for session, one in zip(sessions, (ONE, OTHER), strict=True)
    ]
    begin(streams[0])
    begin(streams[1])
    for stream in streams:
        list(stream)
    assert [ask(s, shows(one)) for s, one in zip(sessions, (ONE, OTHER), strict=True)] == alone


def test_a_projector_that_fails(
    engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn is still answered, and so are the next ones."""
    session = engine.open()
    words = Message("user", f"{UNREADABLE_IMAGE} {UNREADABLE_IMAGE} What is that?")
    expected = ask(engine.open(), words)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        patch.setattr(llama_api.multimodal(), "mtmd_encode_chunk", lambda *_: 1)
        assert ask(session, shows(ONE, OTHER)) == expected
    assert caplog.text.count("could not look at a picture") == 2
    assert ask(session, shows(ONE, OTHER)) == expected, "it does not change its mind"
    assert ask(engine.open(), shows(ONE, OTHER)) != expected


# --- pictures that cannot be seen --------------------------------------------------------------

BROKEN = {
    "cut off": url(png(48, 32)[:60]),
    "no picture": url(b"GIF89a" + bytes(40), "jpeg"),
    "no data": "https://example.org/cat.jpg",
    "no base64": "data:image/png;base64,%%%",
    "too many pixels": url(png(8, 8)[:16] + struct.pack(">II", 60_000, 60_000) + png(8, 8)[24:]),
    "only a head": url(b"\xff\xd8\xff\xe0"),
}


@pytest.mark.parametrize("bad", BROKEN.values(), ids=BROKEN)
def test_a_broken_picture_is_reported(
    engine: LlamaCpp, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "reachy_voice.llm"):
        text = ask(engine.open(), shows(bad))
    words = Message("user", f"{UNREADABLE_IMAGE} What is that?")
    assert text == ask(engine.open(), words)
    (line,) = [m for m in caplog.messages if "picture" in m]
    assert line.startswith("Leaving out a picture that cannot be read: ")


def test_a_picture_that_is_not_kept_any_more(engine: LlamaCpp) -> None:
    words = Message("user", f"{FORGOTTEN_IMAGE} What is that?")
    assert ask(engine.open(), shows(None)) == ask(engine.open(), words)


def test_a_huge_picture_is_scaled(made: Callable[..., LlamaCpp]) -> None:
    engine = made("qwen2vl", image_tokens=64)
    usage = answer(engine.open(), [SYSTEM, shows(url(png(3000, 2000)))], sampling=GREEDY)[1].usage
    small = answer(engine.open(), [SYSTEM, shows(url(png(16, 16)))], sampling=GREEDY)[1].usage
    assert 0 <= usage.prompt - small.prompt < 64
    (picture,) = engine._parts.prompts.pictures([shows(url(png(3000, 2000)))], known_texts())
    (part,) = picture.media.values()
    assert 32 <= part.cells <= 64
    assert part.positions < part.cells, "cells in two dimensions"


def test_more_pictures_than_fit(made: Callable[..., LlamaCpp]) -> None:
    engine = made("qwen2vl", context_tokens=512, image_tokens=256)
    many = shows(*(url(png(128, 128, seed)) for seed in range(3)))
    with pytest.raises(PromptTooLong):
        ask(engine.open(), many)
    assert ask(engine.open(), shows(ONE))


def test_without_a_projector_a_sentence_replaces_a_picture(made: Callable[..., LlamaCpp]) -> None:
    engine = made("gemma3", mmproj=None)
    words = Message("user", f"{UNSEEN_IMAGE} What is that?")
    assert ask(engine.open(), shows(ONE)) == ask(engine.open(), words)


# --- what does not fit together ----------------------------------------------------------------


def test_a_projector_of_another_model(
    made: Callable[..., LlamaCpp], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    narrow = tiny_gguf.projector(tmp_path / "mmproj.gguf", "gemma3", width=48)
    with pytest.raises(WeightsError, match=r"cannot see with mmproj\.gguf.*this model"):
        made("gemma3", mmproj=str(narrow))
    with pytest.raises(WeightsError, match=r"The file of llm\.mmproj is missing"):
        made("gemma3", mmproj=str(tmp_path / "other.gguf"))
    (tmp_path / "text.gguf").write_text("<html>")
    with pytest.raises(WeightsError, match="not a GGUF"):
        made("gemma3", mmproj=str(tmp_path / "text.gguf"))
    assert capfd.readouterr() == ("", "")


def test_a_library_that_was_built_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise FileNotFoundError("Shared library with base name 'mtmd' not found")

    llama_api.multimodal.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", missing)
        with pytest.raises(EngineError, match=r"without its library mtmd.*reachy-voice setup"):
            llama_api.multimodal()
    llama_api.multimodal()
