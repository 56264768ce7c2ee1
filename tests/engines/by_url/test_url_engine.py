"""The life of an engine by URL: it reports problems of its server at the start, waits for a late
one, notices when it goes, and finds it again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pipeline.engines.by_url import engine as engine_module
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.families import listed
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest
from pipeline.work import Work
from tests.support.far_server import FarServer, Mood, free_port, problem, serving
from tests.support.url_engines import HELLO, alive, answer, built, chat_with, running, told

pytestmark = pytest.mark.machine

CHAT = "openai-chat"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits are short; the order of events is unchanged."""
    monkeypatch.setattr(engine_module, "AGAIN_S", (0.01,))
    monkeypatch.setattr(engine_module, "USED_S", 0.02)
    monkeypatch.setattr(engine_module, "UNUSED_S", 0.03)


async def looks(far: FarServer, count: int) -> None:
    """Wait until the engine has probed the server ``count`` more times."""
    before = len(far.asked("/v1/models"))
    while len(far.asked("/v1/models")) < before + count:
        await far.until_asked("/v1/models")


async def problem_of(engine: UrlEngine, far: FarServer, why: str, path: str = "/v1/models") -> None:
    """Wait until requests for ``path`` have told the engine ``why`` it is not ready."""
    async with asyncio.timeout(10):
        while why not in (engine.problem or ""):
            await far.until_asked(path)


async def started(far: FarServer, kind: Kind = Kind.LLM, name: str = CHAT, **options: Any) -> str:
    """The problem reported at the start; empty if there is none."""
    url = options.pop("url", far.url)
    try:
        async with running(kind, name, url, **options):
            return ""
    except EngineError as error:
        return str(error)


# --- the start ---------------------------------------------------------------------------------


async def test_startup_reports_problems() -> None:
    far = FarServer("vllm", models=("qwen3", "gemma"), key="right")
    async with serving(far):
        assert await started(far, api_key="right") == ""
        assert await started(far, api_key="right", model="gemma") == ""
        wrong_key = await started(far, api_key="wrong")
        assert "refuses access: HTTP 401, Invalid API Key" in wrong_key
        assert "wrong" not in wrong_key
        no_model = await started(far, api_key="right", model="llama")
        assert "has no model 'llama': it has qwen3, gemma. Set llm.model" in no_model
        no_v1 = await started(far, api_key="right", url=far.root)
        assert f"Set llm.url to {far.url}" in no_v1
        elsewhere = await started(far, api_key="right", url=f"{far.root}/api/v1")
        assert "Correct llm.url" in elsewhere
        echo = {"error": {"message": "Incorrect API key provided: sk-4711-abc"}}
        far.moods["/v1/models"] = [problem(401, echo)]
        assert "4711" not in await started(far, api_key="sk-4711-abc")
    nobody = await started(far, url=f"http://127.0.0.1:{free_port()}/v1")
    assert "cannot be reached" in nobody
    assert "Start it, or correct llm.url" in nobody


@pytest.mark.parametrize(
    ("body", "why"), [(b"<html>", "something else"), (b'{"data": []}', "it lists no model")]
)
async def test_an_invalid_model_list(body: bytes, why: str) -> None:
    far = FarServer(moods={"/v1/models": [Mood(body=[body])]})
    async with serving(far):
        assert why in await started(far)


async def test_speech_servers_that_list_no_models_can_be_used() -> None:
    far = FarServer("speech", moods={"/v1/models": [Mood(404)] * 9})
    async with serving(far):
        assert "does not know the path" in await started(far, Kind.TTS, "openai-speech")
        assert await started(far, Kind.TTS, "openai-speech", check=None) == ""
        assert len(far.asked("/v1/models")) == 1
        far.moods["/health"] = [Mood(body=[b"ok"])]
        assert await started(far, Kind.TTS, "openai-speech", check="/health") == ""


@pytest.mark.parametrize(
    ("server", "model", "asked"),
    [
        ("llama-server", "whatever", "whatever"),
        ("llama-server", None, "qwen3"),
        ("ollama", "qwen3", "qwen3"),
        ("vllm", None, "qwen3"),
    ],
)
async def test_requests_name_the_right_model(server: Any, model: str | None, asked: str) -> None:
    listed = "qwen3:latest" if server == "ollama" else "qwen3"
    far = FarServer(server, models=(listed, "other"))
    async with chat_with(far, model=model) as engine:
        await answer(engine)
    assert far.asked("/v1/chat/completions")[-1].json["model"] == asked


SEVERAL = pytest.mark.parametrize("server", ["llama-swap", "llama-router", "ollama", "lm-studio"])


@SEVERAL
async def test_of_several_models_it_keeps_to_one_that_runs(impatient: None, server: Any) -> None:
    far = FarServer(server, models=("gemma", "org/qwen3", "whisper"), loaded=("org/qwen3",))
    async with chat_with(far) as engine:
        await answer(engine)
        far.loaded = ("gemma",)  # by somebody else
        await looks(far, 3)
        await answer(engine)
    asked = {seen.json["model"] for seen in far.asked("/v1/chat/completions")}
    assert asked == {"org/qwen3"}


@SEVERAL
async def test_a_model_that_was_exchanged_costs_one_answer(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "USED_S", 600.0)
    looked = asyncio.Event()
    far = FarServer(server, models=("gemma",))
    async with chat_with(far) as engine:
        monkeypatch.setattr(engine.endpoint, "limit", lambda slots: looked.set())
        far.models = ("qwen3",)
        with pytest.raises(EngineError, match="does not exist"):
            await answer(engine)
        await looked.wait()
        await answer(engine)


@SEVERAL
@pytest.mark.parametrize("loaded", [("nomic-embed-text", "qwen3"), ()])
async def test_a_model_for_searching_is_not_asked_for_an_answer(
    impatient: None, server: Any, loaded: tuple[str, ...]
) -> None:
    models = ("nomic-embed-text", "bge-Reranker-v2", "qwen3")
    far = FarServer(server, models=models, loaded=loaded)
    async with chat_with(far) as engine:
        assert engine.server.model == "qwen3"


def test_a_list_of_models_may_be_bare() -> None:
    """As Together's."""
    assert listed([{"id": "qwen3"}]) == listed({"data": [{"id": "qwen3"}]}) != []


@SEVERAL
async def test_a_name_that_a_server_of_several_models_lacks_is_reported(server: Any) -> None:
    far = FarServer(server, models=("gemma", "qwen3"), loaded=("qwen3",))
    async with serving(far):
        assert "has no model 'llama'" in await started(far, model="llama")
        far.moods["/v1/chat/completions"] = [problem(400, {"error": "could not find 'llama'"})]
        said = await started(far, model="llama")
        assert "it has gemma, qwen3; asked for it, it says: HTTP 400, could not find" in said


@pytest.mark.parametrize("server", ["llama-swap", "llama-router", "ollama", "vllm", "openai"])
async def test_a_name_that_is_served_but_not_listed_can_be_used(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    far = FarServer(server, models=("qwen3-8b", "gemma"), aliases=("qwen",), loaded=("qwen3-8b",))
    async with chat_with(far, model="qwen") as engine:
        assert "does not list the model 'qwen', but serves it" in caplog.text
        assert len(far.asked("/v1/chat/completions")) == 1
        assert await answer(engine)
        if server == "llama-swap":
            assert engine.server.context_tokens == 7168
            assert engine.server.loaded is None, "its own name stands there"
    assert far.asked("/v1/chat/completions")[-1].json["model"] == "qwen"


@pytest.mark.parametrize("server", [*SEVERAL.args[1], "vllm"])
@pytest.mark.parametrize("status", [400, 404])
async def test_a_model_that_disappears_is_missed_until_it_is_back(
    impatient: None, server: Any, status: int
) -> None:
    far = FarServer(server, models=("qwen3", "gemma"))
    async with chat_with(far, model="qwen3") as engine:
        await answer(engine)
        if status != 404:
            refused = problem(status, {"error": "invalid model"})
            far.moods["/v1/chat/completions"] = [refused] * 999
        far.models = ("gemma",)
        with pytest.raises(EngineError):
            await answer(engine)
        await problem_of(engine, far, "has no model 'qwen3'")
        before = len(far.asked("/v1/chat/completions"))
        await looks(far, 3)
        assert len(far.asked("/v1/chat/completions")) <= before + 4
        far.models, far.moods = ("qwen3",), {}
        await engine.ready.wait()
        await answer(engine)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("check", ["models", None])
async def test_a_refusal_that_no_probe_sees_is_noticed(
    impatient: None, status: int, check: str | None
) -> None:
    """As of a key that has been revoked, where anybody may list the models."""
    far = FarServer("vllm")
    async with chat_with(far, model="qwen3", check=check) as engine:
        far.moods["/v1/chat/completions"] = [problem(status, {"error": "no"})] * 999
        with pytest.raises(EngineError, match=f"HTTP {status}, no"):
            await answer(engine)
        await problem_of(engine, far, f"HTTP {status}", "/v1/chat/completions")
        far.moods.clear()
        await engine.ready.wait()
        await answer(engine)


async def test_a_refusal_of_one_request_leaves_it_ready(impatient: None) -> None:
    """As of a picture that the model cannot see."""
    far = FarServer("vllm")
    async with chat_with(far) as engine:
        far.moods["/v1/chat/completions"] = [problem(403, {"error": "no image input"})]
        with pytest.raises(EngineError):
            await answer(engine)
        await far.until_asked("/v1/models")
        await answer(engine)
        await engine.ready.wait()


@SEVERAL
async def test_a_model_that_is_no_longer_listed_but_served_stays_ready(
    impatient: None, server: Any
) -> None:
    far = FarServer(server, models=("qwen3", "gemma"))
    async with chat_with(far, model="qwen3") as engine:
        far.models, far.aliases = ("gemma",), ("qwen3",)
        await looks(far, 5)
        assert engine.problem is None
        assert len(far.asked("/v1/chat/completions")) == 1
        await answer(engine)
        far.aliases = ()
        with pytest.raises(EngineError):
            await answer(engine)
        await problem_of(engine, far, "has no model 'qwen3'")


async def test_a_probe_does_not_load_a_swapped_out_alias(impatient: None) -> None:
    far = FarServer("llama-swap", models=("qwen3-8b",), aliases=("qwen",), loaded=("qwen3-8b",))
    far.moods["/upstream/qwen/props"] = [problem(404, {})] * 9
    async with chat_with(far, model="qwen"):
        await looks(far, 3)
    assert len(far.asked("/upstream/qwen/props")) == 1


async def test_llama_swap_is_asked_for_the_context_of_a_loaded_model_once(impatient: None) -> None:
    far = FarServer("llama-swap", models=("gemma", "qwen3"))
    props = "/upstream/qwen3/props"
    async with chat_with(far, model="qwen3") as engine:
        await answer(engine)
        assert not far.asked(props), "asking would load it"
        far.loaded = ("qwen3",)
        async with asyncio.timeout(10):
            while not engine.server.context_tokens:
                await far.until_asked("/v1/models")
        await looks(far, 3)
    assert engine.server.context_tokens == 7168
    assert len(far.asked(props)) == 1, "asking again would keep it loaded"


async def test_a_server_below_a_path_of_a_proxy(impatient: None) -> None:
    far = FarServer(prefix="/box/llm", key="abc")
    async with chat_with(far, api_key="abc") as engine:
        assert await answer(engine)
        assert engine.server.context_tokens == 8192
    assert not far.asked("/nowhere")


async def test_it_waits_for_a_late_server(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    far, port = FarServer(loading=True), free_port()
    async with Pool() as pool, AsyncExitStack() as stack:
        log = stack.enter_context(told())
        engine = built(pool, Kind.LLM, CHAT, f"http://127.0.0.1:{port}/v1", start_s=60)
        life = asyncio.create_task(engine.run(lambda: None))
        await log.until("cannot be reached")
        await stack.enter_async_context(serving(far, port))
        await log.until("is not ready: HTTP 503, Loading model")
        assert "Loading model" in (engine.problem or "")
        far.loading = False
        await engine.ready.wait()
        assert await answer(engine)
        engine.close()
        await life
    waited = [record for record in caplog.records if "waiting for" in record.getMessage()]
    assert len(waited) == 2, "each trouble is logged once"


async def test_a_server_that_does_not_come_is_an_error(impatient: None) -> None:
    async with Pool() as pool:
        url = f"http://127.0.0.1:{free_port()}/v1"
        engine = built(pool, Kind.LLM, CHAT, url, start_s=0.05)
        with pytest.raises(EngineError, match="cannot be reached"):
            await engine.run(lambda: None)
        assert engine.problem == "is closed"


# --- later -------------------------------------------------------------------------------------


async def test_a_request_to_a_lost_server_reports_it(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="reachy_voice")
    far, port = FarServer(), free_port()
    async with Pool() as pool:
        engine = built(pool, Kind.LLM, CHAT, f"http://127.0.0.1:{port}/v1")
        async with serving(far, port):
            life = asyncio.create_task(engine.run(lambda: None))
            await engine.ready.wait()
            assert await answer(engine)
        with pytest.raises(EngineError, match=r"cannot be reached|without an answer"):
            await answer(engine)
        assert "127.0.0.1" in (engine.problem or "")
        with pytest.raises(EngineError, match="is not ready"):
            await answer(engine)
        with pytest.raises(EngineError, match="is not ready"):
            await engine.open().warm(LlmRequest(HELLO), Work())
        async with serving(far, port):
            await engine.ready.wait()
            assert await answer(engine)
            engine.close()
            await life
    assert "is gone" in caplog.text
    assert "is back" in caplog.text


async def test_a_lost_server_is_noticed_without_a_request(impatient: None) -> None:
    far, port = FarServer(), free_port()
    with told() as log:
        async with Pool() as pool:
            engine = built(pool, Kind.LLM, CHAT, f"http://127.0.0.1:{port}/v1")
            async with serving(far, port):
                life = asyncio.create_task(engine.run(lambda: None))
                await engine.ready.wait()
            await log.until("is gone")
            assert "127.0.0.1" in (engine.problem or "")
            engine.close()
            await life
        assert not engine.ready.is_set()


async def test_a_server_that_answers_is_not_probed(impatient: None) -> None:
    far = FarServer(per_token_s=0.01, words=["word "] * 20)
    async with chat_with(far) as engine:
        before = len(far.asked("/v1/models"))
        await answer(engine)  # lasts ten times as long as the interval between probes
        assert len(far.asked("/v1/models")) <= before + 1


async def test_connections_are_kept_warm_while_they_are_used(impatient: None) -> None:
    far = FarServer()
    async with chat_with(far) as engine:
        await answer(engine)
        await looks(far, 3)
        await answer(engine)
    assert len({seen.port for seen in far.seen}) <= 2, "one for a look, one for an answer"


async def test_speech_opens_the_connections_of_all_engines() -> None:
    voice = FarServer("speech")
    async with serving(voice), Pool() as pool:
        ears = built(pool, Kind.STT, "openai-transcriptions", voice.url)
        mouth = built(pool, Kind.TTS, "openai-speech", voice.url)
        async with alive(ears), alive(mouth):
            ears._looked_at = mouth._looked_at = 0.0  # long ago
            both = asyncio.create_task(looks(voice, 2))
            await asyncio.sleep(0)
            await ears.open("en", False, Work())
            async with asyncio.timeout(10):
                await both


async def test_it_ends_at_once_before_and_during_a_probe() -> None:
    far = FarServer(moods={"/v1/models": [Mood(body=[None])]})
    async with serving(far), Pool() as pool:
        for _ in range(2):  # during its first probe, and before it
            engine = built(pool, Kind.LLM, CHAT, far.url)
            life = asyncio.create_task(engine.run(lambda: None))
            if not far.seen:
                await far.until_asked("/v1/models")
            engine.close()
            async with asyncio.timeout(10):
                await life
            assert engine.problem == "is closed"


async def test_a_pool_that_is_closed_opens_no_connection() -> None:
    far = FarServer()
    async with serving(far):
        async with Pool() as pool:
            engine = built(pool, Kind.LLM, CHAT, far.url)
        with pytest.raises(EngineError, match="the client is closed"):
            await engine.run(lambda: None)
    assert not far.seen


# --- warming up --------------------------------------------------------------------------------

WARMED = [
    (Kind.LLM, CHAT, "/v1/chat/completions"),
    (Kind.STT, "openai-transcriptions", "/v1/audio/transcriptions"),
    (Kind.TTS, "openai-speech", "/v1/audio/speech"),
]


@pytest.mark.parametrize(("kind", "name", "path"), WARMED)
async def test_a_model_is_loaded_before_it_is_needed(kind: Kind, name: str, path: str) -> None:
    far = FarServer("ollama")
    async with serving(far):
        async with running(kind, name, far.url, warm_up=True) as engine:
            assert len(far.asked(path)) == 1
            assert engine.endpoint.patience_s == 20.0
        far.seen.clear()
        far.kind = "openai"
        async with running(kind, name, far.url, warm_up=True):
            assert not far.asked(path), "there it costs"


async def test_it_is_not_ready_while_its_model_is_loaded() -> None:
    far = FarServer("ollama", moods={"/v1/chat/completions": [Mood(body=[None])]})
    async with serving(far), Pool() as pool:
        engine = built(pool, Kind.LLM, CHAT, far.url, warm_up=True)
        life = asyncio.create_task(engine.run(lambda: None))
        await far.until_asked("/v1/chat/completions")
        assert engine.problem == "its server is loading the model"
        engine.close()
        await life


async def test_an_engine_that_fails_to_warm_up_is_used_anyway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = FarServer(moods={"/v1/chat/completions": [Mood(500)]})
    async with chat_with(far, warm_up=True) as engine:
        assert "was not warmed up" in caplog.text
        assert await answer(engine)
