"""Whole turns with the real server, whose three engines are reached by URL."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import InvalidStatus

from app.compose import Assistant
from app.doctor.checks import examine
from app.models.weights import WeightsCache
from app.server.serving import local_server, run_server
from app.settings.load import load_settings
from app.talk.realtime_client import RealtimeClient, connect
from pipeline.engines.by_url import engine as engine_module
from pipeline.engines.contract import EndOfTurn
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Message
from pipeline.work import Work
from tests.clients.test_openai_client import at_24k
from tests.support.beside import beside
from tests.support.far_answers import data, has_open_calls
from tests.support.far_server import TONE, FarServer, Mood, free_port, problem, serving, stream
from tests.support.listening import listening
from tests.support.protocol_client import text_item
from tests.support.recordings import recording
from tests.support.scripted_server import Talk
from tests.support.url_engines import told

pytestmark = [pytest.mark.engines, pytest.mark.real]
CHAT, SPEECH, HEARD = "/v1/chat/completions", "/v1/audio/speech", "/v1/audio/transcriptions"
LOCAL = (
    *("turn.engine=silence", "llm.word_judge=null"),
    *("playback.watch_voice=false", "conversation.apology=''"),
)
"""The remote voice is a tone, which our watch would not take for speech."""


def settings_for(*far: FarServer, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    urls = zip(("stt", "llm", "tts"), far, strict=True)
    sets = (f"{kind}.url={server.url}" for kind, server in urls)
    return (*LOCAL, "tools.clock=never", *sets, *more)  # a test asks the model for the time


async def assistant_for(overrides: tuple[str, ...], cache: WeightsCache) -> Assistant:
    loaded = await asyncio.to_thread(load_settings, "remote", overrides)
    return await asyncio.to_thread(Assistant, loaded.settings, cache)


@asynccontextmanager
async def served(overrides: tuple[str, ...], cache: WeightsCache) -> AsyncIterator[str]:
    """Our server with the shipped profile."""
    assistant = await assistant_for(overrides, cache)
    async with local_server(assistant) as url:
        assert "http://127.0.0.1" in assistant.describe(Kind.LLM)
        yield url


@pytest.fixture(scope="module", autouse=True)
def vad(weights: Callable[[str], Path]) -> None:
    weights("silero-vad")


@asynccontextmanager
async def client_of(
    ears: FarServer, brain: FarServer, voice: FarServer, cache: WeightsCache
) -> AsyncIterator[RealtimeClient]:
    """A client of a server with these three engines behind URLs."""
    async with (
        serving(ears),
        serving(brain),
        serving(voice),
        served(settings_for(ears, brain, voice), cache) as url,
        connect(url) as client,
    ):
        await client.configure()
        yield client


async def test_a_turn_by_voice_over_three_urls(cache: WeightsCache) -> None:
    ears = FarServer("speech", models=("whisper",), transcript="Go forward ten meters.")
    brain, voice = FarServer(per_token_s=0.002), FarServer("speech", models=("kokoro",))
    question = recording("goforward")
    pcm = at_24k(question.pcm)
    async with client_of(ears, brain, voice, cache) as client:
        turn = await client.speak(pcm, len(pcm))
    assert turn.heard == "Go forward ten meters."
    assert turn.answered == "Hello there, my friend. How are you?"
    sound = turn.pcm
    assert np.abs(sound).max() > 2900
    said = [seen.json["input"] for seen in voice.asked(SPEECH)]
    assert "Hello there," in " ".join(said)
    assert len(sound) >= len(TONE)
    assert turn.usage["input_tokens"] == 20
    assert turn.usage["input_token_details"]["cached_tokens"] == 12
    streamed = next(seen.json for seen in brain.asked(CHAT) if seen.json["stream"])
    assert streamed["messages"][-1] == {"role": "user", "content": "Go forward ten meters."}


async def test_a_local_model_judges_the_words_for_one_by_url(
    cache: WeightsCache, weights: Callable[[str], Path]
) -> None:
    far = FarServer()
    judge = "smollm2-135m-instruct"
    await asyncio.to_thread(weights, judge)
    opinions = {}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(far))
        overrides = settings_for(far, far, far, more=(f"llm.word_judge={judge}",))
        assistant = await assistant_for(overrides, cache)
        await stack.enter_async_context(local_server(assistant))
        scale, far.first_s = assistant.stages.word_scales["en"], 60.0
        for said in ("can you find out", "can you find out where my keys are"):
            conversation = assistant.stages.llm.open()
            asked = (Message("system", "You are a pirate."), Message("user", said))
            replies = conversation.reply(LlmRequest(asked), Work())
            async with aclosing(replies) as deltas:
                opinion = await anext(deltas)
            conversation.close()
            assert isinstance(opinion, EndOfTurn)
            opinions[said] = scale.log_odds(opinion.probability)
    cut, whole = opinions.values()
    assert cut is not None
    assert whole is not None
    assert cut < 0 < whole


async def test_a_server_starts_without_the_word_judges_weights(
    cache: WeightsCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge = "smollm2-135m-instruct"
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "silero-vad").symlink_to(cache.home("silero-vad"))
    far, without = FarServer(), WeightsCache(tmp_path, cache.catalogue)
    async with serving(far):
        overrides = settings_for(far, far, far, more=(f"llm.word_judge={judge}",))
        async with served(overrides, without) as url, talking(url) as talk:
            await talk.ask(text_item("Hello!"))
    (told,) = [each for each in caplog.messages if "llm.word_judge" in each]
    assert f"Run: reachy-voice models pull {judge}" in told


async def test_a_call_without_a_result_is_not_in_later_prompts(cache: WeightsCache) -> None:
    far = FarServer(words=["I dance."], calls=[("dance", '{"steps": 3}')])
    async with (
        serving(far),
        served(settings_for(far, far, far), cache) as url,
        talking(url, tools=[TOOL]) as talk,
    ):
        for said in ("Dance!", "And now?"):
            assert (await talk.ask(text_item(said)))["status"] == "completed"
    prompts = [seen.json["messages"] for seen in far.asked(CHAT)]
    assert not any(map(has_open_calls, prompts)), "also when it is read ahead"


@pytest.mark.parametrize(
    "silent", [["<think>Hm.", "</think>"], ['{"name": ', '"fly", "arguments": {}}'], ["😀"], []]
)
async def test_an_answer_that_cannot_be_heard_is_asked_for_again(
    cache: WeightsCache, silent: list[str]
) -> None:
    far = FarServer(words=["I dance."])
    first = [data({"choices": [{"delta": {"content": word}}]}) for word in silent]
    first.append(data({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
    ahead = "llm.read_ahead=false"
    async with (
        serving(far),
        served(settings_for(far, far, far, more=(ahead,)), cache) as url,
        talking(url, tools=[TOOL]) as talk,
    ):
        far.moods[CHAT] = [stream(*first)]
        await talk.send("conversation.item.create", item=text_item("Dance!"))
        await talk.send("response.create")
        done = await talk.until("response.done")
    assert done["response"]["status"] == "completed"
    (item,) = done["response"]["output"]
    assert item["content"][0]["transcript"] == "I dance."
    assert "response.output_audio.delta" in talk.recorder.types
    asked = [seen.json["messages"][-1]["content"] for seen in far.asked(CHAT)]
    assert asked[-2:] == ["Dance!", "Dance!\n(Answer aloud, in one plain sentence.)"]


async def test_a_lost_server_fails_the_answer_and_shows_in_ready(cache: WeightsCache) -> None:
    far, brain, port = FarServer(), FarServer(), free_port()
    brain.port = port
    async with serving(far), AsyncExitStack() as stack:
        log = stack.enter_context(told())
        async with serving(brain, port):
            url = await stack.enter_async_context(served(settings_for(far, brain, far), cache))
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        talk = await stack.enter_async_context(talking(url))
        assert (await talk.ask(text_item("Hello?")))["status"] == "failed"
        address = url.replace("ws://", "http://").replace("/v1/realtime", "/ready")
        answer = await client.get(address)
        assert answer.status_code == 503
        assert "cannot be reached" in answer.json()["reasons"]["llm"]
        async with serving(brain, port):
            await log.until("is back")
            assert (await client.get(address)).status_code == 200
            assert (await talk.ask())["status"] == "completed"


@asynccontextmanager
async def serving_without_servers(
    overrides: tuple[str, ...], cache: WeightsCache
) -> AsyncIterator[tuple[str, Assistant]]:
    """Our server as ``serve`` runs it: its engines by URL may start later."""
    assistant = await assistant_for(overrides, cache)
    async with listening(assistant, without_servers=True) as port:
        yield f"ws://127.0.0.1:{port}/v1/realtime", assistant


async def test_without_a_language_model_and_a_voice_it_transcribes(cache: WeightsCache) -> None:
    ears, away = FarServer("speech", models=("whisper",)), FarServer(port=free_port())
    more = tuple(f"{kind}.start_s=0" for kind in ("stt", "llm", "tts"))
    async with serving(ears), AsyncExitStack() as stack:
        overrides = settings_for(ears, away, away, more=more)
        serve = serving_without_servers(overrides, cache)
        url, assistant = await stack.enter_async_context(serve)
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        ready = url.replace("ws://", "http://").replace("/v1/realtime", "/ready")
        answer = await client.get(ready)
        assert answer.status_code == 503
        reasons = answer.json()["reasons"]
        assert set(reasons) == {"llm", "tts"}
        assert "cannot be reached" in reasons["llm"]
        assert "Start it, or correct llm.url" in reasons["llm"]
        with pytest.raises(InvalidStatus) as refused:
            await connect_socket(url, proxy=None)
        assert json.loads(refused.value.response.body or b"")["reasons"] == reasons
        async with connect_socket(f"{url}?intent=transcription", proxy=None) as socket:
            talk = Talk(socket)
            sound = at_24k(recording("goforward").pcm).tobytes() + bytes(2 * 24_000 * 2)
            audio = base64.b64encode(sound).decode()
            await talk.send("input_audio_buffer.append", audio=audio)
            heard = await talk.until("conversation.item.input_audio_transcription.completed")
        assert heard["transcript"] == ears.transcript
        await stack.enter_async_context(serving(away, away.port))
        async with asyncio.timeout(20):
            while any(assistant.readiness().values()):
                await away.until_asked("/v1/models")
        async with talking(url, output_modalities=["text"]) as talk:
            assert (await talk.ask(text_item("Hello?")))["status"] == "completed"
        assert (await client.get(ready)).status_code == 200


async def test_ready_reports_that_a_model_is_loading(
    cache: WeightsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, and after the server unloaded it. Meanwhile the question waits."""
    monkeypatch.setattr(engine_module, "AGAIN_S", (0.01,))
    far, brain, port = FarServer(), FarServer(loading=True), free_port()
    async with serving(far), serving(brain), AsyncExitStack() as stack:
        log = stack.enter_context(told())
        assistant = await assistant_for(settings_for(far, brain, far), cache)
        ignore: Callable[[object], None] = lambda _: None  # noqa: E731
        serve = run_server(assistant, on_engine_ready=ignore, on_ready=ignore, port=port)
        await stack.enter_async_context(beside(serve))
        url, ready = f"ws://127.0.0.1:{port}/v1/realtime", f"http://127.0.0.1:{port}/ready"
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))

        async def loading() -> bool:
            answer = await client.get(ready)
            return answer.status_code == 503 and "oading" in answer.json()["reasons"]["llm"]

        await log.until("Loading model")
        assert await loading()
        brain.loading = False
        await assistant.ready.wait()
        assert (await client.get(ready)).status_code == 200
        async with talking(url, output_modalities=["text"]) as talk:
            brain.loading = True
            answering = asyncio.create_task(talk.ask(text_item("Hello?")))
            await log.until("Loading model")
            assert await loading()
            brain.loading = False
            assert (await answering)["status"] == "completed"
        assert (await client.get(ready)).status_code == 200


async def test_a_wrong_setting_fails_the_start(cache: WeightsCache) -> None:
    far = FarServer("vllm", models=("qwen3",))
    async with serving(far):
        overrides = settings_for(far, far, far, more=("llm.model=llama",))
        with pytest.raises(EngineError, match="has no model 'llama'"):
            async with serving_without_servers(overrides, cache):
                pass


def test_the_doctor_checks_the_servers(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "REACHY_VOICE__SERVER__PORT": "0"}
    nobody = FarServer(port=free_port())
    checks = examine("remote", settings_for(nobody, nobody, nobody), environ)
    found = {check.name: check for check in checks}
    for kind in ("stt", "llm", "tts"):
        check = found[f"{kind} server"]
        assert check.state == "fail"
        assert "cannot be reached" in check.detail
        assert f"correct {kind}.url" in check.fix
    assert found["weights"].detail.startswith("silero-vad")


async def test_the_doctor_reports_its_findings() -> None:
    far = FarServer()
    async with serving(far):
        overrides = settings_for(far, far, far)
        checks = await asyncio.to_thread(examine, "remote", overrides, {})
    found = {check.name: check for check in checks}
    assert found["llm server"].state == "ok"
    assert (
        found["llm server"].detail == f"qwen3 at {far.url}, llama-server, 8,192 tokens of context"
    )


@pytest.mark.parametrize(("model", "state"), [("qwen", "ok"), ("qwne", "fail")])
async def test_the_doctor_asks_for_a_model_that_is_not_listed(model: str, state: str) -> None:
    far = FarServer("llama-swap", aliases=("qwen",))
    async with serving(far):
        overrides = settings_for(far, far, far, more=(f"llm.model={model}",))
        checks = await asyncio.to_thread(examine, "remote", overrides, {})
    found = {check.name: check for check in checks}["llm server"]
    assert found.state == state
    assert ("has no model" in found.detail) == (state == "fail")


# --- a client ------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "name": "dance",
    "description": "Dance",
    "parameters": {"type": "object", "properties": {"steps": {"type": "integer"}}},
}


@asynccontextmanager
async def talking(url: str, **session: Any) -> AsyncIterator[Talk]:
    async with connect_socket(url, proxy=None) as socket:
        talk = Talk(socket)
        await talk.until("session.created")
        await talk.send("session.update", session={"type": "realtime", **session})
        await talk.until("session.updated")
        yield talk


def dying() -> dict[str, Mood]:
    """Faults of a dying process behind one URL."""
    half = TONE[:9_600].tobytes()
    return {
        "in the middle": Mood(kind="audio/pcm", body=[half, 0.05], torn=True),
        "before its answer": problem(500, {"detail": "The replica has died."}),
    }


@pytest.mark.parametrize("how", dying())
async def test_another_process_takes_over_from_a_dying_one(cache: WeightsCache, how: str) -> None:
    ears, brain, voice = FarServer("speech"), FarServer(), FarServer("speech")
    pcm = at_24k(recording("goforward").pcm)
    async with client_of(ears, brain, voice, cache) as client:
        voice.moods[SPEECH], ears.moods[HEARD] = [dying()[how]], [dying()[how]]
        turn = await client.speak(pcm, len(pcm))
    assert turn.heard == "What time is it?"
    assert turn.answered == "Hello there, my friend. How are you?"
    assert not voice.moods[SPEECH]
    assert not ears.moods[HEARD]
    assert len(turn.pcm) >= len(TONE)
