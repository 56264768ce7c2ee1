"""The plain routes, called by OpenAI's own client, over scripted engines."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import AsyncMock

import httpx
import numpy as np
import openai
import pytest
import soundfile
from openai import AsyncOpenAI
from starlette.applications import Starlette

from app.access.policy import Rules
from app.api.answering import ERROR_ANSWERS
from app.api.routes import plain_routes
from app.api.segments import PADDING_S
from app.api.turnstile import Passage, Turnstile
from app.server.gate import Access
from app.settings.model import LimitSettings
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineCrashed, EngineError, PromptTooLong
from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Message
from pipeline.work import Cancelled, Priority, Work
from reachy_voice.testing.engines import LevelVad, Noise, ScriptedConversation
from tests.support.scripted_server import Serve, Served
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

USER: Any = [{"role": "user", "content": "What is the time?"}]
TIME = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TOOLS: Any = [{"type": "function", "function": {"name": "time", "parameters": TIME}}]
CALL = ToolCall("time", '{"zone": "here"}')


@dataclass
class Client:
    assistant: StagedAssistant = field(default_factory=StagedAssistant)
    limits: LimitSettings = field(default_factory=LimitSettings)
    resting: asyncio.Event = field(default_factory=asyncio.Event)
    """Of the only conversation."""

    def __post_init__(self) -> None:
        self.resting.set()
        turnstile = Turnstile(self.limits.plain_requests, lambda: [self.resting])
        routes = plain_routes(self.assistant, self.limits, turnstile)
        self.app = Starlette(routes=routes, exception_handlers=ERROR_ANSWERS)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport)
        self.openai = AsyncOpenAI(
            base_url="http://here/v1", api_key="unused", http_client=self.http, max_retries=0
        )

    @property
    def chat(self) -> Any:
        """Untyped, for arguments that a type checker would refuse."""
        return self.openai.chat.completions


@asynccontextmanager
async def idle(client: Client) -> AsyncIterator[Client]:
    """Checks afterwards that nothing runs or is open."""
    async with client.http:
        yield client
    assert client.assistant.cast.idle
    assert not client.assistant.llm.opened


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with idle(Client()) as client:
        yield client


def wav(*parts: float, level: int = 3000) -> tuple[str, bytes]:
    """Alternating speech and silence, in seconds."""
    rng = np.random.default_rng(1)
    sound = [
        rng.integers(-level, level, int(s * LISTEN_RATE)) * (1 - number % 2)
        for number, s in enumerate(parts)
    ]
    file = io.BytesIO()
    soundfile.write(file, np.concatenate(sound).astype(np.int16), LISTEN_RATE, format="WAV")
    return "speech.wav", file.getvalue()


def recording(samples: Any, rate: int = LISTEN_RATE, kind: str = "WAV") -> tuple[str, bytes]:
    file = io.BytesIO()
    subtype = "FLOAT" if kind == "WAV" else "PCM_16"
    soundfile.write(file, np.asarray(samples), rate, format=kind, subtype=subtype)
    return "speech", file.getvalue()


LONG = recording(np.zeros(3_700_000, np.int16), 1_000, "FLAC")
"""More than an hour in a few KB."""


# --- chat completions --------------------------------------------------------------------------


async def test_a_completion(client: Client) -> None:
    client.assistant.llm.deltas = ("It ", "is ", "noon.")
    found = await client.chat.create(model="any", messages=USER)
    (choice,) = found.choices
    assert (choice.message.content, choice.finish_reason) == ("It is noon.", "stop")
    assert (found.model, found.object) == ("reachy-voice", "chat.completion")
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (10, 3)
    assert client.assistant.llm.prompts == [[Message("user", "What is the time?")]]


async def test_a_streamed_completion(client: Client) -> None:
    client.assistant.llm.deltas = ("It ", "is ", "noon.")
    stream = await client.chat.create(
        model="any", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.content for c in chunks[1:-1]] == ["It ", "is ", "noon."]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage.total_tokens == 13


async def test_all_kinds_of_messages_reach_the_model(client: Client) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "See: "}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
    ]
    await client.chat.create(model="any", messages=messages)
    system, user, assistant, tool, *refusals = client.assistant.llm.prompts[0]
    assert system == Message("system", "Be brief.")
    (image,) = user.images
    assert user.content[image.start :][: image.chars] == UNSEEN_IMAGE
    assert image.url == "data:image/png;base64,AA=="
    assert assistant.tool_calls == (call,)
    assert tool == Message("tool", "noon", tool_call_id="c1")
    assert refusals == [Message("assistant", "I cannot.")] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call(client: Client, stream: bool) -> None:
    client.assistant.llm.deltas = (CALL,)
    found = await client.chat.create(model="any", messages=USER, tools=TOOLS, stream=stream)
    if stream:
        choices = [chunk.choices[0] async for chunk in found]
        calls = [call for choice in choices for call in choice.delta.tool_calls or ()]
    else:
        choices, calls = found.choices, found.choices[0].message.tool_calls
    (call,) = calls
    assert (call.function.name, call.function.arguments) == (CALL.name, CALL.arguments)
    assert choices[-1].finish_reason == "tool_calls"
    ((tools, choice),) = client.assistant.llm.offered
    assert (tools[0].name, tools[0].parameters, choice.kind) == ("time", TIME, "auto")


async def test_null_fields_are_ignored(client: Client) -> None:
    fields = ("tools", "tool_choice", "response_format", "stream", "stop", "parallel_tool_calls")
    said = {"role": "assistant", "content": "Hm.", "tool_calls": None, "tool_call_id": None}
    body = {"messages": [*USER, said, *USER], **dict.fromkeys(fields)}
    found = await client.http.post("http://here/v1/chat/completions", json=body)
    assert found.status_code == 200, found.text


async def test_an_answer_in_json_is_the_arguments_of_a_forced_call(client: Client) -> None:
    schema = {"name": "clock", "schema": TIME}
    client.assistant.llm.deltas = ("Sure: ", ToolCall("answer", '{"zone": "here"}'))
    found = await client.chat.create(
        model="any",
        messages=USER,
        response_format={"type": "json_schema", "json_schema": schema},
    )
    (choice,) = found.choices
    assert json.loads(choice.message.content) == {"zone": "here"}
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    ((tools, forced),) = client.assistant.llm.offered
    assert (tools[0].parameters, forced.kind, forced.name) == (TIME, "named", tools[0].name)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [("noon", "It is "), (["is n"], "It "), (["x"], "It is noon."), (["n.", "oo"], "It is n")],
)
async def test_an_answer_ends_before_a_stop(
    client: Client, stop: str | list[str], text: str, stream: bool
) -> None:
    client.assistant.llm.deltas = ("It ", "is ", "no", "on", ".", *["more"] * ("x" not in stop))
    found = await client.chat.create(model="any", messages=USER, stop=stop, stream=stream)
    if stream:
        pieces = [chunk.choices[0].delta.content or "" async for chunk in found]
        assert "".join(pieces) == text
    else:
        assert found.choices[0].message.content == text


@pytest.mark.parametrize("as_json", [False, True])
async def test_usage_and_reason_of_an_answer_that_a_stop_ends(
    client: Client, as_json: bool
) -> None:
    """A stop sequence cuts JSON too, as at OpenAI."""
    wanted: Any = {"response_format": {"type": "json_object"}} if as_json else {}
    at_noon = ToolCall("answer", '{"time": "noon"}') if as_json else "It is noon."
    client.assistant.llm.deltas = ("Hm: ", at_noon)
    found = await client.chat.create(model="any", messages=USER, stop="noon", **wanted)
    (choice,) = found.choices
    assert choice.message.content == ('{"time": "' if as_json else "Hm: It is ")
    assert (choice.finish_reason, found.usage.completion_tokens) == ("stop", 2)


async def test_sampling_in_the_request_wins(client: Client) -> None:
    found = await client.chat.create(model="any", messages=USER, max_tokens=2, top_p=0)
    assert found.choices[0].finish_reason == "length"
    assert found.choices[0].message.content == "Hello there, "


@pytest.mark.parametrize(
    ("text", "picture", "refused"),
    [
        ("", 300_000, ""),
        ("x" * 300_000, 0, "limits.http_body_kb"),
        ("data:" + "x" * 300_000, 0, "limits.http_body_kb"),
        ('Say "data:' + "x" * 300_000, 300_000, "limits.http_body_kb"),
        ("", 1_100_000, "limits.upload_mb"),
    ],
)
async def test_a_picture_may_be_larger_than_other_requests(
    text: str, picture: int, refused: str
) -> None:
    url = {"url": f"data:image/jpeg;base64,{'A' * picture}"}
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": url}]
    async with idle(Client(limits=LimitSettings(upload_mb=1))) as client:
        asked = client.chat.create(model="any", messages=[{"role": "user", "content": parts}])
        if not refused:
            await asked
            assert client.assistant.llm.prompts[0][0].images[0].url == url["url"]
            return
        with pytest.raises(openai.APIStatusError, match=refused) as error:
            await asked
    assert error.value.status_code == 413


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": []}, "messages"),
        ({"n": 2}, "n"),
        ({"stop": ["x"] * 5}, "stop"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages.0.content.t"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "old"}]}, "functions"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url":
          {"url": "http://192.168.1.1/"}}]}]}, "messages"),
    ],
)  # fmt: skip
async def test_unsupported_requests_are_refused(
    client: Client, wrong: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.create(**{"model": "any", "messages": USER, **wrong})
    assert (refused.value.param or "").startswith(param)
    assert not client.assistant.llm.prompts


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ({"type": "strin"}, "properties.zone.type"),
        ({"$ref": "#/$defs/zone"}, "/$defs/zone"),
        ({"type": "string", "pattern": "^(?!x)y"}, "^(?!x)y"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "'zone'"),
    ],
)
async def test_an_impossible_schema_is_refused(client: Client, zone: Any, says: str) -> None:
    schema = {"name": "clock", "schema": {**TIME, "properties": {"zone": zone}}}
    wanted = {"type": "json_schema", "json_schema": schema}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.create(model="any", messages=USER, response_format=wanted)
    assert refused.value.param == "response_format.json_schema.schema"
    assert says in refused.value.message
    assert not client.assistant.llm.prompts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [(PromptTooLong(9, 8), 400), (EngineCrashed("It is away"), 503), (EngineError("Broken"), 500)],
)
async def test_a_failure_of_the_model(
    client: Client, error: Exception, status: int, stream: bool
) -> None:
    client.assistant.llm.errors = [error]
    with pytest.raises(openai.APIError) as failed:
        async for _ in await client.chat.create(model="any", messages=USER, stream=True):
            pass
    client.assistant.llm.errors = [error]
    if not stream:
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.create(model="any", messages=USER)
        assert failed.value.status_code == status
    assert str(error) in str(failed.value)


# --- speech ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wav", "mp3", "flac", "opus", "pcm"])
async def test_speech_in_every_format(client: Client, kind: Any) -> None:
    found = await client.openai.audio.speech.create(
        model="any", voice="joe", input="One two three.", response_format=kind, speed=2.0
    )
    sound = found.content
    if kind == "pcm":
        seconds = len(sound) / 2 / 24_000
    elif kind == "wav":
        with wave.open(io.BytesIO(sound)) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        seconds = (len(sound) - 44) / 2 / 24_000
    else:
        samples, rate = soundfile.read(io.BytesIO(sound))
        seconds = len(samples) / rate
    assert seconds == pytest.approx(3 * 0.05 / 2, abs=0.06)
    (request,) = client.assistant.tts.requests
    assert (request.voice, request.speed, request.language) == ("joe", 2.0, "en")


@pytest.mark.parametrize(("asked", "spoken"), [("de-DE", "de"), ("German", "de"), ("x", "en")])
async def test_a_text_in_a_language_as_clients_write_it(
    client: Client, asked: str, spoken: str
) -> None:
    await client.openai.audio.speech.create(
        model="any", voice="joe", input="Hm.", extra_body={"language": asked}
    )
    (request,) = client.assistant.tts.requests
    assert request.language == spoken


async def test_a_long_text_is_spoken_in_pieces(client: Client) -> None:
    sentences = [f"The {number}th sentence costs $5." for number in range(4, 40)]
    await client.openai.audio.speech.create(model="any", voice="joe", input=" ".join(sentences))
    said = client.assistant.tts.said
    assert len(said) > 5
    assert " ".join(said).count("five dollars") == len(sentences)


@pytest.mark.parametrize("kind", ["mp3", "flac", "opus"])
async def test_a_text_without_words_is_silence(client: Client, kind: Any) -> None:
    found = await client.openai.audio.speech.create(
        model="any", voice="joe", input="...", response_format=kind
    )
    samples, _ = soundfile.read(io.BytesIO(found.content))
    assert len(samples)
    assert np.abs(samples).max() < 1e-6


@pytest.mark.parametrize("kind", ["pcm", "wav", "mp3", "flac", "opus"])
async def test_speech_as_events_is_the_same(client: Client, kind: Any) -> None:
    """Several events, each short enough for clients."""
    asked: Any = {"model": "any", "voice": "joe", "input": "One two three."}
    client.assistant.tts.seconds_per_word = 3.0
    create = client.openai.audio.speech.with_streaming_response.create
    client.assistant.tts.noise = Noise(1)
    async with create(**asked, response_format=kind, stream_format="sse") as answer:
        lines = [line async for line in answer.iter_lines() if line]
    client.assistant.tts.noise = Noise(1)
    whole = await client.openai.audio.speech.create(**asked, response_format=kind)
    *deltas, done = [json.loads(line.removeprefix("data: ")) for line in lines]
    sound = b"".join(base64.b64decode(each["audio"]) for each in deltas)
    assert len(sound) == len(whole.content)
    assert (kind == "opus") or sound == whole.content  # its streams have a random number
    assert len(deltas) > 1
    assert max(map(len, lines)) < 2**16
    assert done["type"] == "speech.audio.done"


@pytest.mark.parametrize("wrong", [{"input": ""}, {"input": "x" * 4097}, {"speed": 9}])
async def test_speech_that_cannot_be_made(client: Client, wrong: dict[str, Any]) -> None:
    asked: Any = {"model": "any", "voice": "joe", "input": "One.", **wrong}
    with pytest.raises(openai.BadRequestError):
        await client.openai.audio.speech.create(**asked)


@pytest.mark.parametrize("kind", ["wav", "pcm", "mp3"])
async def test_a_voice_that_fails_at_once_is_an_error(client: Client, kind: Any) -> None:
    client.assistant.tts.error = EngineError("Broken")
    with pytest.raises(openai.InternalServerError, match="Broken") as failed:
        await client.openai.audio.speech.create(
            model="any", voice="joe", input="One.", response_format=kind
        )
    assert failed.value.status_code == 500


# --- transcriptions ----------------------------------------------------------------------------


async def test_a_recording_is_transcribed_in_segments(client: Client) -> None:
    client.assistant.stt.texts = ("One.", "Two.")
    asked: Any = {"model": "any", "file": wav(1.0, 1.0, 1.0), "response_format": "verbose_json"}
    found = await client.openai.audio.transcriptions.create(**asked)
    first, _ = client.assistant.stt.finished
    lead = round(PADDING_S * LISTEN_RATE)
    assert not first[:lead].any()
    assert first[lead] != 0
    assert (found.text, found.duration, found.language) == ("One. Two.", 3.0, "en")
    times = [(part.start, part.end, part.text) for part in found.segments]
    assert times == [
        (pytest.approx(0.0, abs=0.05), pytest.approx(1.2, abs=0.05), "One."),
        (pytest.approx(1.8, abs=0.05), pytest.approx(3.0, abs=0.05), "Two."),
    ]


@pytest.mark.parametrize(
    ("asked", "opened"),
    [("", "en"), ("auto", ""), ("zh-CN", "zh"), ("deu", "de"), ("English", "en"), (" ", "en")],
)
async def test_a_language_as_clients_write_it(client: Client, asked: str, opened: str) -> None:
    client.assistant.stt.languages = ("en", "de", "zh")
    await client.openai.audio.transcriptions.create(model="any", file=wav(1), language=asked)
    assert client.assistant.stt.opened_in == [opened]


async def test_text_alone_or_as_events(client: Client) -> None:
    create: Any = client.openai.audio.transcriptions.create
    client.assistant.stt.texts = ("One.", "Two.")
    text = await create(model="any", file=wav(1, 1, 1), response_format="text")
    assert text == "One. Two.\n"
    client.assistant.stt.finished.clear()
    stream = await create(model="any", file=wav(1, 1, 1), stream=True)
    *deltas, done = [event async for event in stream]
    assert [each.delta for each in deltas] == ["One.", " Two."]
    assert (done.type, done.text) == ("transcript.text.done", "One. Two.")


async def test_silence_has_no_words(client: Client) -> None:
    found = await client.openai.audio.transcriptions.create(model="any", file=wav(2, level=10))
    assert found.text == ""
    assert not client.assistant.stt.finished


async def test_the_server_runs_while_a_recording_is_scored(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default VAD runs on the event loop itself."""
    rounds, seen = 0, []

    async def score(vad: LevelVad, pcm: Pcm) -> float:
        seen.append(rounds)
        return 0.0

    monkeypatch.setattr(LevelVad, "score", score)
    asked = asyncio.create_task(
        client.openai.audio.transcriptions.create(model="any", file=wav(2, level=10))
    )
    while not asked.done():
        rounds += 1
        await asyncio.sleep(0)
    assert len(set(seen)) == len(seen) > 50


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        ({"file": ("a.wav", b"nonsense")}, 400, "not a recording"),
        ({"file": LONG}, 400, "longer than 60 minutes"),
        ({"file": recording([0.1] * 9, 2**31 - 1)}, 400, "its rate is 2147483647 Hz"),
        ({"file": recording([0.1] * 9, 1)}, 400, "its rate is 1 Hz"),
        ({"file": recording([0.1, np.nan, 0.1])}, 400, "no numbers"),
        ({"file": recording([0.1, np.inf, 0.1])}, 400, "no numbers"),
        ({"language": "de"}, 400, "It knows: en"),
        ({"language": "klingon"}, 400, "does not know 'klingon'"),
        ({"response_format": "srt"}, 400, "response_format"),
        ({"file": ("a.wav", bytes(1_100_000))}, 413, "limits.upload_mb"),
    ],
)
async def test_recordings_that_are_refused(asked: dict[str, Any], status: int, why: str) -> None:
    async with idle(Client(limits=LimitSettings(upload_mb=1))) as client:
        client.assistant.stt.languages = ("en",)
        create: Any = client.openai.audio.transcriptions.create
        with pytest.raises(openai.APIStatusError, match=why) as refused:
            await create(**{"model": "any", "file": wav(1), **asked})
    assert refused.value.status_code == status


async def test_a_form_without_a_file_is_refused(client: Client) -> None:
    url = "http://here/v1/audio/transcriptions"
    for sent in ({"data": {"model": "any"}}, {"json": {}}):
        found = await client.http.post(url, **sent)  # type: ignore[arg-type]
        assert found.status_code == 400
        assert "file" in found.json()["error"]["message"]


# --- beside conversations ----------------------------------------------------------------------


async def ask_all(client: Client) -> Sequence[asyncio.Task[Any]]:
    audio = client.openai.audio
    every = (
        client.chat.create(model="any", messages=USER),
        audio.speech.create(model="any", voice="joe", input="One.", response_format="wav"),
        audio.transcriptions.create(model="any", file=wav(1)),
    )
    return [asyncio.create_task(each) for each in every]


async def test_a_conversation_goes_first(client: Client) -> None:
    client.resting.clear()
    asked = await ask_all(client)
    done, _ = await asyncio.wait(asked, timeout=0.3)
    cast = client.assistant.cast
    assert not done
    assert [*cast.llm.prompts, *cast.tts.said, *cast.stt.finished] == []
    client.resting.set()
    await asyncio.gather(*asked)


async def test_a_recording_is_decoded_piece_by_piece(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    quiet, open_vad = Passage.quiet, LevelVad.open

    async def count(passage: Passage) -> None:
        waits.append(0)
        await quiet(passage)

    async def note(vad: LevelVad, work: Work) -> LevelVad:
        assert len(waits) == 1 + 3 + 1  # before the first piece, after each, and after the last
        return await open_vad(vad, work)

    monkeypatch.setattr(Passage, "quiet", count)
    monkeypatch.setattr(LevelVad, "open", note)
    await client.openai.audio.transcriptions.create(model="any", file=wav(10))


async def test_it_yields_to_conversations_at_every_engine(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Priority] = []

    async def open_vad(vad: LevelVad, work: Work) -> LevelVad:
        seen.append(work.priority)
        return vad

    monkeypatch.setattr(LevelVad, "open", open_vad)
    monkeypatch.setattr(Work, "job_began", lambda work: seen.append(work.priority))
    await asyncio.gather(*await ask_all(client))
    assert len(seen) > 4
    assert set(seen) == {Priority.BACKGROUND}


async def test_requests_over_the_limit_are_asked_to_retry() -> None:
    async with idle(Client(limits=LimitSettings(plain_requests=3))) as client:
        client.resting.clear()
        asked = await ask_all(client)
        await asyncio.wait(asked, timeout=0.1)
        with pytest.raises(openai.RateLimitError, match=r"limits\.plain_requests") as refused:
            await client.chat.create(model="any", messages=USER)
        assert refused.value.response.headers["retry-after"]
        client.resting.set()
        await asyncio.gather(*asked)
        await client.chat.create(model="any", messages=USER)


async def test_engines_that_are_not_ready(client: Client) -> None:
    client.assistant.reasons["llm"] = "loading"
    with pytest.raises(openai.InternalServerError, match="llm: loading") as refused:
        await client.chat.create(model="any", messages=USER)
    assert refused.value.status_code == 503
    await client.openai.audio.speech.create(model="any", voice="joe", input="One.")


def dialed(served: Served) -> AsyncOpenAI:
    url = f"http://127.0.0.1:{served.port}/v1"
    return AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [("mp3", "in time"), ("wav", "in time"), ("mp3", "late"), ("wav", "late"), ("wav", "at once"),
     ("mp3", "never")],
)  # fmt: skip
async def test_speech_when_the_server_ends(
    serving: Serve,
    kind: Any,
    ends: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.server.server.HANG_UP_S", 0.1)
    assistant = StagedAssistant()
    begun, synthesize = asyncio.Event(), assistant.tts.synthesize

    async def slowly(*given: Any) -> AsyncGenerator[Pcm, None]:
        async with aclosing(synthesize(*given)) as made:
            async for pcm in made:
                begun.set()
                if ends == "never":
                    await asyncio.Event().wait()
                yield pcm

    assistant.tts.synthesize = slowly  # type: ignore[method-assign]
    assistant.tts.per_word_s = 0.1 if ends == "in time" else 3600
    served = await serving(assistant, drain_s=60 if ends in ("in time", "at once") else 0.1)
    async with dialed(served) as client:
        asked = asyncio.create_task(
            client.audio.speech.create(
                model="any", voice="joe", input="One two.", response_format=kind
            )
        )
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        if ends == "at once":
            await assistant.draining.wait()
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait({asked})
        await served.task
    error = asked.exception()
    assert (error is None) == (ends == "in time"), error
    if (ends, kind) == ("late", "mp3"):
        assert isinstance(error, openai.InternalServerError)
        assert error.status_code == 503
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_work(
    serving: Serve, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, close = asyncio.Event(), ScriptedConversation.close
    monkeypatch.setattr(ScriptedConversation, "close", lambda it: (close(it), ended.set()))
    assistant = StagedAssistant()
    assistant.llm.per_token_s = 0.02
    assistant.llm.deltas = ("word ",) * 10_000
    served = await serving(assistant)
    async with dialed(served) as client:
        create: Any = client.chat.completions.create
        asked = asyncio.create_task(create(model="any", messages=USER, stream=stream))
        await asyncio.wait({asked}, timeout=0.5)
        assert assistant.llm.running
        asked.cancel()
        if stream:
            await (await asked).close()
    async with asyncio.timeout(10):
        await ended.wait()
    assert assistant.cast.idle


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_it_waits_frees_its_place(stream: bool) -> None:
    """Also before the first piece of a stream."""
    client = Client(limits=LimitSettings(plain_requests=1))
    client.resting.clear()
    left = asyncio.Event()
    body = {"messages": USER, "stream": stream}
    sent = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Any:
        if sent:
            return sent.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    async with idle(client), asyncio.timeout(5):
        asked = asyncio.create_task(client.app(scope, receive, AsyncMock()))
        done, _ = await asyncio.wait({asked}, timeout=0.1)
        assert not done
        left.set()
        await asked
        client.resting.set()
        await client.chat.create(model="any", messages=USER)


async def test_replacing_an_engine_does_not_shorten_an_answer(client: Client) -> None:
    """A closed worker ends its jobs with ``Cancelled``."""
    client.assistant.llm.errors = [Cancelled()]
    with pytest.raises(openai.InternalServerError, match="replaced") as failed:
        await client.chat.create(model="any", messages=USER)
    assert failed.value.status_code == 503


async def test_the_models(serving: Serve) -> None:
    async with dialed(await serving(StagedAssistant())) as client:
        (listed,) = (await client.models.list()).data
        assert await client.models.retrieve("reachy-voice") == listed
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-4o")


async def test_access_is_checked(serving: Serve) -> None:
    served = await serving(StagedAssistant(), access=Access(Rules(loopback=False)))
    async with dialed(served) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="any", messages=USER)
