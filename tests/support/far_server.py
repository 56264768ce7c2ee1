"""A third-party server on loopback: each kind in its own dialect, with faults on demand.

``FarServer`` speaks the OpenAI API as llama-server, vLLM, Ollama, LM Studio and speech servers do
(``pipeline/engines/by_url/families.py`` has the sources). ``moods`` scripts the next answers of a
path, one by one; after them it answers normally.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.parser
import email.policy
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import uvicorn

from tests.support import far_answers

Kind = Literal[
    "llama-server",
    "llama-router",
    "llama-swap",
    "vllm",
    "ollama",
    "lm-studio",
    "openai",
    "koboldcpp",
    "speech",
]
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]

TONE = (3000 * np.sin(np.arange(24_000) / 10)).astype("<i2")
"""The speech of every text: one second at 24 kHz."""


@dataclass
class Seen:
    """One request."""

    path: str
    headers: Mapping[str, str]
    content: bytes
    port: int
    """The client's port, which tells connections apart."""

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def form(self) -> dict[str, bytes]:
        """Fields of ``multipart/form-data``, parsed by the standard library."""
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        parser = email.parser.BytesParser(policy=email.policy.HTTP)
        parts = parser.parsebytes(head + self.content).iter_parts()
        found: dict[str, bytes] = {}
        for part in parts:
            name = part.get_param("name", header="content-disposition")
            content: Any = part.get_payload(decode=True)
            found[str(name)] = content
        return found


@dataclass
class Mood:
    """One answer."""

    status: int = 200
    kind: str = "application/json"
    body: Sequence[bytes | float | None] = ()
    """Pieces, and the seconds between them; sending time counts towards those, since a model works
    on meanwhile. ``None`` waits for ever."""
    torn: bool = False
    """The connection closes in mid-answer."""
    headers: Sequence[tuple[str, str]] = ()


def problem(status: int, body: Any) -> Mood:
    return Mood(status, body=[json.dumps(body).encode()])


def stream(*pieces: bytes | float | None, torn: bool = False) -> Mood:
    return Mood(200, "text/event-stream", pieces, torn)


@dataclass
class FarServer:
    kind: Kind = "llama-server"
    words: Sequence[str] = ("Hello ", "there, ", "my ", "friend. ", "How ", "are ", "you?")
    thoughts: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    """Name and arguments (JSON) of each."""
    transcript: str = "What time is it?"
    models: Sequence[str] = ("qwen3",)
    aliases: Sequence[str] = ()
    """Models that it knows but does not list."""
    shows_tools: bool = True
    """Whether llama-server's chat template supports tools."""
    loaded: Sequence[str] = ()
    """Which of ``models`` are loaded, where this kind says so."""
    prefix: str = ""
    """Path prefix under which a proxy serves it."""
    template: str = ""
    """A chat template, which may refuse requests; llama-server publishes it."""
    key: str = ""
    """Requests without it get a 401."""
    first_s: float = 0.0
    per_token_s: float = 0.0
    loading: bool = False
    forgets: bool = False
    """Whether it records nothing, for long measurements."""
    moods: dict[str, list[Mood]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    arrived: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Paths of requests as they arrive."""
    hung_up: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Paths whose client left in mid-answer."""
    began: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Paths whose answer has begun."""
    port: int = 0

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}{self.prefix}/v1"

    async def until_asked(self, path: str) -> None:
        """Wait for the next request for ``path``."""
        while await self.arrived.get() != path:
            pass

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    # -- ASGI

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        content, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            content, more = content + message.get("body", b""), message.get("more_body", False)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        path = scope["path"]
        path = path.removeprefix(self.prefix) if path.startswith(self.prefix) else "/nowhere"
        seen = Seen(path, headers, content, scope["client"][1])
        if not self.forgets:
            self.seen.append(seen)
            self.arrived.put_nowait(seen.path)
        moods = self.moods.get(seen.path)
        await self._send(seen.path, moods.pop(0) if moods else self._answer(seen), receive, send)

    async def _send(self, path: str, mood: Mood, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._pieces(path, mood, send))
        hanging_up = asyncio.create_task(_until_gone(receive))
        await asyncio.wait({sending, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done() and not self.forgets:
            self.hung_up.put_nowait(path)
        for task in (sending, hanging_up):
            task.cancel()
        await asyncio.wait({sending, hanging_up})
        if not sending.cancelled() and (error := sending.exception()):
            raise error

    async def _pieces(self, path: str, mood: Mood, send: Send) -> None:
        headers = [(b"content-type", mood.kind.encode())]
        headers += [(key.encode(), value.encode()) for key, value in mood.headers]
        begun, now = False, asyncio.get_running_loop().time
        due = now()
        for piece in mood.body or [b""]:
            if piece is None:
                await asyncio.Event().wait()
            elif isinstance(piece, int | float):
                due += piece
                await asyncio.sleep(due - now())
            else:
                if not begun:
                    start = {"type": "http.response.start", "status": mood.status}
                    await send({**start, "headers": headers})
                    begun = True
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if not self.forgets:
                    self.began.put_nowait(path)
        if mood.torn:
            raise Torn
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    # -- answers

    def _answer(self, seen: Seen) -> Mood:
        if self.key and seen.headers.get("authorization") != f"Bearer {self.key}":
            return problem(401, {"error": {"message": "Invalid API Key", "code": 401}})
        if self.loading:
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            return problem(503, {"error": error})
        match seen.path:
            case "/v1/models":
                return _json({"object": "list", "data": self._models()})
            case "/health" if self.kind in ("llama-server", "llama-router", "llama-swap", "vllm"):
                return _json({"status": "ok"})
            case "/props" if self.kind in ("llama-server", "llama-router"):
                props = {"total_slots": 4, "default_generation_settings": {"n_ctx": 8192}}
                caps = {"supports_tools": self.shows_tools}
                told = {"chat_template": self.template} if self.template else {}
                return _json({**props, **told, "chat_template_caps": caps})
            case "/running" if self.kind == "llama-swap":
                running = [{"model": name, "state": "ready"} for name in self.loaded]
                return _json({"running": running})
            case path if self.kind == "llama-swap" and path.startswith("/upstream/"):
                self.loaded = [path.removeprefix("/upstream/").removesuffix("/props")]
                return _json({"total_slots": 2, "default_generation_settings": {"n_ctx": 7168}})
            case "/api/ps" if self.kind == "ollama":
                loaded = self.loaded or self.models[:1]
                entries = [{"name": name, "context_length": 4096} for name in loaded]
                return _json({"models": entries})
            case "/api/v0/models" if self.kind == "lm-studio":
                loaded = self.loaded or self.models[:1]
                shared = {"state": "loaded", "loaded_context_length": 6000}
                return _json({"data": [{"id": name, **shared} for name in loaded]})
            case "/v1/chat/completions":
                if not self._knows(seen.json.get("model")):
                    error = {"message": "The model does not exist", "code": 404}
                    return problem(404, {"error": error})
                if far_answers.has_open_calls(seen.json["messages"]):
                    error = {"message": "'tool_calls' must be followed by tool messages"}
                    return problem(400, {"error": error})
                if why := far_answers.refusal(self.template, seen.json):
                    status = 500 if self.kind == "llama-server" else 400
                    return problem(status, {"error": {"message": why, "code": status}})
                return self._spoken(far_answers.chat(self, seen.json))
            case "/v1/audio/transcriptions":
                return Mood(body=[self.first_s, json.dumps({"text": self.transcript}).encode()])
            case "/v1/audio/speech":
                return self._speech()
        return problem(404, {"error": {"message": "File Not Found", "type": "not_found_error"}})

    def _knows(self, model: str | None) -> bool:
        listed = [*self.models, *(id.removesuffix(":latest") for id in self.models)]
        any_model = self.kind in ("llama-server", "koboldcpp")
        return any_model or model in (None, *listed, *self.aliases)

    def _models(self) -> list[Any]:
        return [far_answers.model(self, id) for id in self.models]

    def _waits(self, pieces: Iterator[bytes]) -> Iterator[bytes | float]:
        """The first piece, which mostly names only the role, is sent with the second."""
        for number, piece in enumerate(pieces):
            wait_s = (self.first_s, 0.0)[number] if number < 2 else self.per_token_s
            if wait_s:
                yield wait_s
            yield piece

    def _spoken(self, answered: far_answers.Answered) -> Mood:
        if isinstance(answered, dict):
            return _json(answered)
        return stream(*self._waits(iter(answered)))

    def _speech(self) -> Mood:
        raw = TONE.tobytes()
        # Odd sizes: a sample's two bytes may be split.
        pieces = (raw[at : at + 4801] for at in range(0, len(raw), 4801))
        return Mood(200, "audio/pcm", list(self._waits(pieces)))


class Torn(Exception):
    """Makes uvicorn drop the connection."""


def _json(body: Any) -> Mood:
    return Mood(body=[json.dumps(body).encode()])


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the test."""
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        """Run until told to end; uvicorn's own loop polls every 0.1 s."""
        await self.ending.wait()

    async def end(self, running: asyncio.Task[None]) -> None:
        self.should_exit = True
        self.ending.set()
        await running


@contextlib.asynccontextmanager
async def listening(
    app: Any, address: str = "127.0.0.1", port: int = 0, *, nodelay: bool = True, **config: Any
) -> AsyncIterator[int]:
    """Serve any ASGI ``app`` on this port or a free one; cut off when the context ends."""
    # Without a named protocol, asyncio does not disable Nagle's algorithm.
    listener = socket.socket(_family(address), proto=socket.IPPROTO_TCP if nodelay else 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    options = uvicorn.Config(
        app, lifespan="off", log_config=None, timeout_graceful_shutdown=0, **config
    )
    server = _Uvicorn(options)
    running = asyncio.create_task(server.serve([listener]))
    await asyncio.sleep(0)
    try:
        yield listener.getsockname()[1]
    finally:
        await server.end(running)
        listener.close()


@contextlib.asynccontextmanager
async def serving(
    far: FarServer, port: int = 0, *, nodelay: bool = True, certificate: Path | None = None
) -> AsyncIterator[FarServer]:
    """Serve while the context lasts. ``certificate``: a file with certificate and key, for TLS."""
    how: dict[str, Any] = {"ws": "none", "ssl_certfile": certificate}
    async with listening(far, port=port, nodelay=nodelay, **how) as far.port:
        yield far


def free_port(address: str = "127.0.0.1") -> int:
    """A port without a listener, below those that the system gives to connections."""
    for _ in range(50):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket(_family(address)) as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise OSError(f"no port is free at {address}")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
