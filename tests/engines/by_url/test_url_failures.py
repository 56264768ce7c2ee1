"""Error messages of servers, each in its own words, and what we make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.engines.by_url.failures import (
    EngineAddress,
    Misconfiguration,
    ServerFailure,
    ServerLoading,
    ServerOverload,
    complaint,
    complaint_of_bytes,
    refusal,
    without,
)
from pipeline.engines.by_url.options import base_url, joined
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, PromptTooLong, ReachyVoiceError, Rejection, Unreachable
from pipeline.work import Work
from tests.engines.by_url.test_url_requests import ALL, PATHS, finished
from tests.support.far_server import FarServer, Mood, problem, serving
from tests.support.url_engines import running

pytestmark = pytest.mark.machine

LLM, TTS = (EngineAddress(kind, "http://10.0.0.5:8080/v1") for kind in (Kind.LLM, Kind.TTS))


def error(status: int, body: Any, *private: str) -> EngineError:
    return refusal(LLM, complaint_of_bytes(status, json.dumps(body).encode()), private)


def says(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the "
    "messages. Please reduce the length."
)


@pytest.mark.parametrize(
    ("body", "tokens", "limit"),
    [
        (  # llama-server
            says(
                "request (9412 tokens) exceeds the available context size (8192 tokens), try "
                "increasing it",
                type="exceed_context_size_error",
                n_prompt_tokens=9412,
                n_ctx=8192,
            ),
            *(9412, 8192),
        ),
        (says(VLLM, type="BadRequestError", param=None, code=400), 5000, 4096),
        ({"object": "error", "message": VLLM, "type": "BadRequestError"}, 5000, 4096),  # older
        (  # OpenAI
            says("Your input exceeds the context window.", code="context_length_exceeded"),
            *(0, 0),
        ),
        (  # LM Studio
            {"error": "Reached context length of 4096 tokens; context overflow policy is stop."},
            *(0, 0),
        ),
        *(
            (says(message), 0, 0)
            for message in (
                "The number of tokens to keep from the initial prompt is greater than the context "
                "length (n_keep: 5010>= n_ctx: 4096)",  # LM Studio
                "Trying to keep the first 4210 tokens when context the overflows. However, the "
                "model is loaded with context length of only 4096 tokens",  # LM Studio, older
                "The input (9412 tokens) is longer than the model's context length",  # SGLang
                "Prompt length 9000 is greater than max_seq_len 8192",  # TabbyAPI
                "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",  # TGI
                "`inputs` must have less than 4095 tokens. Given: 5000",  # TGI
                "prompt is too long: 210000 tokens > 200000 maximum",  # Anthropic
                "The input token count (9000) exceeds the maximum number of tokens",  # Google
                "Please reduce the length of the messages or completion.",  # Groq
            )
        ),
    ],
)
def test_a_prompt_that_is_too_long(body: Any, tokens: int, limit: int) -> None:
    found = error(400, body)
    assert isinstance(found, PromptTooLong)
    if tokens:
        assert (found.prompt_tokens, found.limit_tokens) == (tokens, limit)
    else:
        assert "10.0.0.5" in found.why


def test_an_answer_that_fills_the_context_is_not_a_prompt_too_long() -> None:
    found = refusal(LLM, complaint(0, {"error": "Context size has been exceeded."}), ())
    assert not isinstance(found, PromptTooLong)
    assert "in the middle of its answer, Context size has been exceeded" in str(found)


@pytest.mark.parametrize(
    ("status", "body", "kind", "what", "fix"),
    [
        (
            *(401, says("Invalid API Key", code=401), Misconfiguration),
            "refuses access: HTTP 401, Invalid API Key",
            "REACHY_VOICE__LLM__API_KEY",
        ),
        (
            *(404, says("The model `qwen` does not exist.", code=404), Misconfiguration),
            "does not know the path or the model: HTTP 404, The model `qwen` does not exist",
            "llm.model",
        ),
        (307, {}, Misconfiguration, "redirects to another address: HTTP 307", "llm.url"),
        (429, {"error": "rate limit"}, ServerOverload, "is overloaded", "llm.max_requests"),
        (529, {"error": "busy"}, ServerOverload, "is overloaded: HTTP 529", "llm.max_requests"),
        (500, {"detail": "CUDA out of memory"}, ServerFailure, "failed: HTTP 500, CUDA out", "log"),
        (
            *(503, says("Loading model", type="unavailable_error", code=503), ServerLoading),
            *("is not ready: HTTP 503, Loading model", "loaded"),
        ),
        (
            *(400, says('"auto" tool choice requires --enable-auto-tool-choice'), Rejection),
            'refuses the request: HTTP 400, "auto" tool choice requires --enable-auto-tool-choice',
            "llm.extra",
        ),
        (
            422,
            {"detail": [{"loc": ["body"], "msg": "field required", "input": {"secret": "words"}}]},
            *(Rejection, "HTTP 422, field required", "llm.extra"),
        ),
        (402, {"error": "no credit"}, ServerOverload, "for now: HTTP 402, no credit", "account"),
        (200, {"error": {"code": 429, "message": "Slow"}}, ServerOverload, "HTTP 429", "max_req"),
        (200, {"error": {"code": "502", "message": "Bad"}}, ServerFailure, "HTTP 502, Bad", "log"),
        (200, {"error": {"http_status_code": 422, "message": ""}}, Rejection, "HTTP 422", "extra"),
        (200, {"error": "Bad", "error_type": "generation"}, ServerFailure, "HTTP 200, Bad", "log"),
        (200, {"error": {"code": 7, "message": "Bad"}}, ServerFailure, "failed: HTTP 200", "log"),
        (400, {"error": {"message": None}}, Rejection, "refuses the request: HTTP 400", "extra"),
        *(
            (status, body, kind, "has no model loaded: HTTP", "Load llm.model there")
            for status, body, kind in (
                (400, {"error": "Model is unloaded."}, ServerFailure),  # LM Studio
                (404, says("No models loaded. Please load a model."), Misconfiguration),
                (200, says("Model has unloaded or crashed."), ServerFailure),
                (400, {"detail": "No models are currently loaded."}, ServerFailure),  # TabbyAPI
                (400, says("model is not loaded", code=400), ServerFailure),  # llama-server
                (400, says('Failed to load model "qwen".'), ServerFailure),  # LM Studio
            )
        ),
        (401, says("Model is not loaded"), Misconfiguration, "refuses access: HTTP 401", "API_KEY"),
        (405, {"detail": "Method Not Allowed"}, Misconfiguration, "HTTP 405, Method", "llm.url"),
        *(
            (400, body, Rejection, "HTTP 400, bad field", "extra")
            for body in (
                {"error": {"error": {"message": "bad field"}}},
                {"errors": [{"message": "bad field"}]},
                {"error": ["bad field"]},
                {"detail": {"error": {"message": "bad field"}}},
                {"error": True, "message": "bad field"},
                says({"text": "bad field"}),
            )
        ),
        (
            502,
            says("No", metadata={"raw": '{"error": "no GPU"}'}),
            ServerFailure,
            "502, No: no GPU",
            "log",
        ),
        (400, ["?"], Rejection, "refuses the request: HTTP 400", "extra"),
        (400, None, Rejection, "refuses the request: HTTP 400", "extra"),
    ],
)
def test_each_error_says_what_failed_and_what_to_do(
    status: int, body: Any, kind: type[ReachyVoiceError], what: str, fix: str
) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert what in str(found)
    assert "http://10.0.0.5:8080/v1" in found.what
    assert fix in found.fix
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("place", "status", "message", "kind"),
    [
        (LLM, 413, "Request Entity Too Large", PromptTooLong),
        (LLM, 429, "Rate limit reached: tokens per minute exceeded", ServerOverload),
        (LLM, 413, "Request too large on tokens per minute: limit 6000", PromptTooLong),
        (LLM, 413, "Image exceeds 5 MB", Rejection),
        (LLM, 200, "Tokens per minute limit exceeded", ServerFailure),
        (LLM, 400, "Input tokens exceed your quota", Rejection),
        (LLM, 400, "Invalid input: image exceeds the limit of 20 MB", Rejection),
        (LLM, 400, "The input exceeds the maximum picture size", Rejection),
        (LLM, 400, "Input too large: 20971520 bytes", Rejection),
        (LLM, 400, "Prompt too long: 5000 tokens (2 images) > 4096", PromptTooLong),
        (LLM, 422, "Input should be less than or equal to 2", Rejection),
        (TTS, 400, "The input text is too long", Rejection),
        (LLM, 503, "Model is not ready", ServerLoading),
        (LLM, 503, "engine is initializing", ServerLoading),
        (LLM, 503, "The model is not loaded yet", ServerLoading),
        (LLM, 503, "waiting to load the model", ServerLoading),
        (LLM, 503, "The server is overloaded", Unreachable),
        (LLM, 503, "High load, try later", Unreachable),
        (LLM, 503, "heavily loaded", Unreachable),
        (LLM, 200, "Reached the context length", PromptTooLong),
    ],
)
def test_similar_messages_are_told_apart(
    place: EngineAddress, status: int, message: str, kind: type[ReachyVoiceError]
) -> None:
    assert type(refusal(place, complaint(status, {"error": message}), ())) is kind


def test_an_error_that_is_a_web_page_is_not_shown() -> None:
    page = b"<html><title>502 Bad Gateway</title></html>"
    assert complaint_of_bytes(502, page).message == ""
    assert "HTTP 502" in str(refusal(LLM, complaint_of_bytes(502, page), ()))


def test_messages_contain_no_words_of_the_conversation() -> None:
    said = "My sister Wilhelmina lives in Timbuktu."
    body = {"error": {"message": f"1 validation error: input_value='{said}' is too long"}}
    shown = str(error(400, body, said))
    for word in ("sister", "Wilhelmina", "wilhelmina", "lives", "Timbuktu"):
        assert word not in shown
    assert "1 validation error" in shown


def test_server_messages_keep_their_own_words() -> None:
    message = "This model's maximum context length is 4096 tokens"
    assert without(message, ["the model is this"]) == message.replace("model's", "model's")
    assert without("a\nb", []) == "a"


def test_errors_of_any_shape_are_read() -> None:
    for body in ({"error": [1]}, {"error": {"message": {"a": 1}}}, {"detail": []}, 7, "no"):
        assert complaint(400, body).status == 400
    assert complaint_of_bytes(400, b"\xff{").status == 400
    gemini = [{"error": {"code": 400, "message": "Unknown name", "status": "INVALID_ARGUMENT"}}]
    assert complaint(400, gemini).message == "Unknown name"


KEY = "sk-proj-abc123"
QUOTED = {"error": {"message": f"Incorrect API key provided: {KEY}"}}


@ALL
@pytest.mark.parametrize("answer", [problem(200, QUOTED), problem(401, QUOTED)])
async def test_no_error_quotes_the_key(kind: Kind, name: str, answer: Mood) -> None:
    far = FarServer(moods={PATHS[name]: [answer] * 3})
    async with serving(far), running(kind, name, far.url, api_key=KEY) as engine:
        with pytest.raises(EngineError, match="Incorrect API key provided: …-…-…") as wrong:
            await finished(engine, Work())
    assert "abc" not in repr(engine.place)
    assert "abc" not in str(wrong.value)


def test_a_word_is_masked_before_a_long_message_is_cut() -> None:
    for spaces in range(225, 240):
        assert without(f".{' ' * spaces}Timbuktu", ["Timbuktu"]).strip(". …") == ""


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("http://host:8080/v1", "http://host:8080/v1"),
        ("http://host:8080/v1/", "http://host:8080/v1"),
        ("https://api.example.com", "https://api.example.com"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1"),
    ],
)
def test_valid_addresses_are_accepted(given: str, taken: str) -> None:
    assert base_url(given) == taken


@pytest.mark.parametrize(
    "given",
    [
        "host:8080",
        "ftp://host/v1",
        "http://",
        "http://host:port/v1",
        "http://me:pw@host/v1",
        "http://host/v1?key=1",
        "http://host/v1#x",
        "",
    ],
)
def test_invalid_addresses_are_refused(given: str) -> None:
    with pytest.raises(ValueError, match="must"):
        base_url(given)


def test_paths_are_below_the_url_or_beside_its_v1() -> None:
    assert joined("http://host:1/v1", "models") == "http://host:1/v1/models"
    assert joined("http://host:1/v1", "/health") == "http://host:1/health"
    assert joined("http://host:1/box/v1", "/health") == "http://host:1/box/health"
    assert joined("http://host:1/box", "/health") == "http://host:1/box/health"
