"""All settings, with units and bounds: the pydantic models behind ``config/default.yaml``.

The engine sections (``vad`` ... ``tts``) are the chosen engine's own options; everything else is
here. ``app.settings.load`` reads them from YAML, the environment and ``--set``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    model_validator,
)

from app.access.file import NetworkText
from app.access.policy import is_loopback
from app.settings.access import HostText, KeyDigests, OriginText, SharedKey
from app.settings.container import in_container
from app.settings.tools import ToolSettings
from app.setup.place import USUAL_PORT, our_folder
from hardware.settings import Array, Robot, Sound
from pipeline.engines.registry import CORE, EngineOptions, Kind
from pipeline.messages import Sampling
from pipeline.settings import (
    Accept,
    BargeIn,
    Echo,
    Endpointing,
    Filler,
    Section,
    Sector,
    Speculation,
    Wake,
)
from pipeline.spoken.language_codes import asks_to_detect, language_code

Probability = Annotated[float, Field(ge=0, le=1)]
FRONT_DEG = 90.0
Milliseconds = Annotated[int, Field(ge=0, le=60_000)]


class TlsFiles(Section):
    """Your own certificate."""

    certificate: Path
    """PEM file with the certificate and its intermediate certificates."""
    key: Path
    """PEM file with the private key, without a password."""


TLS_FILES = "(files)"
"""What pydantic inserts into the path to a key of ``TlsFiles``."""


def _kind_of_tls(given: object) -> str | None:
    if isinstance(given, dict | TlsFiles):
        return TLS_FILES
    return "generate" if given == "generate" else None


Tls = Annotated[
    Annotated[TlsFiles, Tag(TLS_FILES)] | Annotated[Literal["generate"], Tag("generate")],
    Discriminator(
        _kind_of_tls,
        custom_error_type="tls",
        custom_error_message="must be null, generate, or {certificate: FILE, key: FILE}",
    ),
]


class ServerSettings(Section):
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens the server to the whole network."""
    port: int = Field(default=USUAL_PORT, ge=0, le=65535)
    """TCP port for WebSocket and HTTP; 0 picks a free one."""
    max_sessions: int = Field(default=4, ge=1)
    """Simultaneous conversations; further clients are turned away."""
    max_message_mb: int = Field(default=32, ge=1, le=1024)
    """Largest WebSocket message, in MiB; a client that sends a larger one is disconnected."""
    drain_s: float = Field(default=5, ge=0)
    """Seconds that running replies and requests have to finish after SIGTERM."""
    reconnect_s: float = Field(default=120, ge=0, le=86_400)
    """Seconds for which a disconnected client can resume its conversation; 0 turns this off."""
    finish_s: float = Field(default=0, ge=0)
    """Seconds after SIGTERM for which conversations may go on, before ``drain_s``; /ready fails."""
    conversations_dir: Path | None = None
    """Folder, shared by several servers, where conversations wait for their clients; null: each
    server keeps its own in memory."""
    tls: Tls | None = None
    """Encrypt: `generate` a certificate, or use {certificate: FILE, key: FILE}."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Balancers and proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    announce: bool = True
    """Announce the server by mDNS if it can be reached from the network."""
    console: bool = True
    """Serve pages at /console/ for a browser on this machine: talk, and inspect the turns."""
    browser_port: int | None = Field(default=None, ge=0, le=65535)
    """A second port, always encrypted, for browsers on other machines; null: no such port."""
    wyoming_port: int | None = Field(default=None, ge=0, le=65535)
    """A port for Home Assistant's Wyoming protocol; null: no such port."""
    webrtc: bool = False
    """Serve WebRTC at /v1/realtime/calls; needs the packages of the extra `webrtc`."""
    turns_kept: int = Field(default=200, ge=0, le=10_000)
    """Number of turns, with their text, kept in memory for the console; 0 keeps no turns."""

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        ports = self.port, self.browser_port, self.wyoming_port
        numbers = [port for port in ports if port]
        if len(set(numbers)) < len(numbers):
            raise ValueError("port, browser_port and wyoming_port must differ")
        return self

    def console_url(self, port: int) -> str:
        """The console's URL for a browser on this machine."""
        return f"{'https' if self.tls else 'http'}://localhost:{port}/console/"


class AccessSettings(Section):
    """Who may connect."""

    loopback: bool | None = None
    """Programs on this machine need no key; null: yes, except in a container that listens on the
    network."""
    addresses: tuple[NetworkText, ...] = ()
    """Machines that need no key, in addition to those of `reachy-voice allow`."""
    keys: KeyDigests = ()
    """API keys, in addition to those of `reachy-voice key new`."""
    origins: tuple[OriginText, ...] = ()
    """Origins of web pages that may connect, in addition to the server's own pages."""
    hosts: tuple[HostText, ...] = ()
    """Additional host names of this machine, for callers without a key."""
    shared_key: SharedKey | None = Field(default=None, repr=False)
    """The same for all servers behind one balancer: they accept each other's client secrets and
    conversations; null: a random one at each start."""


class LimitSettings(Section):
    """How much one client may ask for."""

    sessions_per_address: int | None = Field(default=None, ge=1)
    """Simultaneous conversations from one address; null: up to server.max_sessions."""
    lag_ms: float | None = Field(default=None, ge=1)
    """New clients are refused while the server is later than this one time in twenty; null: only
    while it takes three quarters of a core."""
    messages_per_s: float | None = Field(default=500, ge=1)
    """WebSocket messages per second from one client, on average; null: no limit."""
    message_burst: int = Field(default=3000, ge=1)
    """Messages that a client may send at once after a pause."""
    max_items: int = Field(default=2000, ge=2)
    """Items in one conversation."""
    idle_s: float | None = Field(default=None, ge=1)
    """Seconds without a message in either direction, after which a client is disconnected."""
    handshake_s: float = Field(default=10, ge=0.1, le=600)
    """Seconds that the head of a request, or the next piece of its body, may take to arrive."""
    http_body_kb: int = Field(default=256, ge=1, le=16_384)
    """Largest body of an HTTP request, without pictures and recordings, in KiB."""
    upload_mb: int = Field(default=25, ge=1, le=1024)
    """Largest recording to transcribe over HTTP, or request with pictures, in MiB."""
    plain_requests: int = Field(default=4, ge=0)
    """Chat completions, speech, transcriptions and announcements over HTTP at a time; more get a
    429."""


class SamplingSettings(Section):
    temperature: float = Field(default=0.1, ge=0, le=5)
    """0 always takes the likeliest token; higher values vary more."""
    top_p: float = Field(default=0.9, gt=0, le=1)
    """Consider the likeliest tokens up to this total probability."""
    min_p: Probability = 0.05
    """Drop tokens less likely than this fraction of the likeliest one."""
    repeat_penalty: float = Field(default=1.0, ge=1, le=2)
    """Values above 1 make recently used tokens less likely."""
    dry_multiplier: float = Field(default=1.0, ge=0, le=10)
    """Above 0, answers do not repeat phrases of the earlier ones; 0: they may. Only `llama-cpp`."""
    seed: int | None = Field(default=None, ge=0)
    """A number makes answers repeatable; null draws a new one each time."""
    max_tokens: int | None = Field(default=80, ge=1)
    """Longest answer, in tokens; null allows the rest of the context."""

    def build(self) -> Sampling:
        """Convert to the type that engines take."""
        return Sampling(**self.model_dump())


def _language(text: str) -> str:
    if not text.strip() or asks_to_detect(text):
        return ""
    if not (code := language_code(text)) and not re.fullmatch("[a-z]{2,3}", text):
        raise ValueError("must be a language, as in de, de-AT or German, or auto")
    return code or text


class ConversationSettings(Section):
    instructions: str = (
        "You are Reachy, a small friendly robot. You speak aloud, so answer in one or two "
        "short, plain sentences."
    )
    """The system prompt, unless the client sends its own."""
    persona: str | None = None
    """Use the instructions of this file in config/personas; `instructions` overrides them."""
    language: Annotated[str, AfterValidator(_language)] = "en"
    """Language of the conversation: `de`, `de-AT`, `German`; `auto` or empty: what the recogniser
    detects."""
    language_fixed: bool = False
    """Clients cannot change the language."""
    tool_instructions: str = (
        "When you call a function, also say in the same answer, in one short sentence, what you "
        "are doing."
    )
    """Added to the instructions if the client offers tools; empty adds nothing."""
    partial_transcripts: bool = False
    """Send stable words while the user still speaks; transcription sessions always do."""
    filler: Filler = Filler()
    apology: str | None = Field(default=None, max_length=200)
    """Spoken when recogniser, language model or voice fails; `null`: the sentence of the language
    in config/languages; empty says nothing."""
    exchange_notice: str | None = Field(default=None, max_length=200)
    """Spoken before an engine is unloaded to make room for another; `null`: the sentence of the
    language; empty says nothing."""
    clock: bool = False
    """Tell the model the day and the time, in local time, with each turn."""
    sampling: SamplingSettings = SamplingSettings()


class PlaybackSettings(Section):
    lead_ms: Milliseconds = 250
    """How far ahead of real time audio is sent; smaller values interrupt more precisely."""
    chunk_ms: int = Field(default=40, ge=10, le=1000)
    """Length of audio in one message."""
    watch_voice: bool = True
    """Stop clauses that are not speech (endless, silent, repeating, humming); say them again."""


class PeopleSettings(Section):
    """Who speaks."""

    accept: Accept = "everyone"
    """Whom the robot answers: everyone; known: those enrolled, once somebody is; front: speech from
    array.accept_deg, 90 unless that is set."""


class NeedsSettings(Section):
    """What a voice turn with these settings needs; `doctor` and the first start compare it with
    the machine. MB are 10^6 bytes."""

    cores: int = Field(default=2, ge=1)
    """CPU cores for answers in real time."""
    gpu: Literal["nvidia", "apple"] | None = None
    """The kind of GPU."""
    memory_mb: int = Field(default=844, ge=0)
    """Main memory, without the rest of the system."""
    gpu_memory_mb: int = Field(default=0, ge=0)
    """GPU memory; it counts as main memory where the GPU shares that."""
    disk_mb: int = Field(default=217, ge=0)
    """Disk space for the weights."""


class PathSettings(Section):
    cache_dir: Path | None = None
    """Where weights are kept; null is $XDG_CACHE_HOME/reachy-voice or ~/.cache/reachy-voice."""
    catalogue: Path | None = None
    """A YAML file with additional weights, in the format of config/weights.yaml."""
    access_file: Path | None = None
    """File that `reachy-voice allow` and `key` write; null: access.json in
    $XDG_CONFIG_HOME/reachy-voice or ~/.config/reachy-voice."""

    def cache(self, environ: Mapping[str, str]) -> Path:
        """The cache directory, with null resolved."""
        if self.cache_dir is not None:
            return self.cache_dir.expanduser()
        return our_folder(environ, "XDG_CACHE_HOME", "~/.cache")

    def timers(self, environ: Mapping[str, str]) -> Path:
        """The file of timers, in the folder of the access file."""
        return self.access(environ).with_name("timers.json")

    def access(self, environ: Mapping[str, str]) -> Path:
        """The file of allowed addresses and keys, with null resolved."""
        if self.access_file is not None:
            return self.access_file.expanduser()
        return our_folder(environ, "XDG_CONFIG_HOME", "~/.config") / "access.json"


class Settings(Section):
    """All settings. Load them with ``app.settings.load.load_settings``."""

    server: ServerSettings = ServerSettings()
    access: AccessSettings = AccessSettings()
    limits: LimitSettings = LimitSettings()
    conversation: ConversationSettings = ConversationSettings()
    wake: Wake = Wake()
    tools: ToolSettings = ToolSettings()
    endpointing: Endpointing = Endpointing()
    speculation: Speculation = Speculation()
    barge_in: BargeIn = BargeIn()
    echo: Echo = Echo()
    playback: PlaybackSettings = PlaybackSettings()
    sound: Sound = Sound()
    array: Array = Array()
    robot: Robot = Robot()
    people: PeopleSettings = PeopleSettings()
    vad: SerializeAsAny[EngineOptions]
    turn: SerializeAsAny[EngineOptions]
    stt: SerializeAsAny[EngineOptions]
    llm: SerializeAsAny[EngineOptions]
    tts: SerializeAsAny[EngineOptions]
    speaker: SerializeAsAny[EngineOptions]
    needs: NeedsSettings = NeedsSettings()
    paths: PathSettings = PathSettings()

    @property
    def trusts_loopback(self) -> bool:
        """``access.loopback``, or what null means here."""
        if self.access.loopback is not None:
            return self.access.loopback
        return is_loopback(self.server.host) or not in_container()

    @property
    def accepted(self) -> Sector | None:
        """The sector in which people are listened to; ``None``: everywhere."""
        if self.people.accept == "front" and self.array.accept_deg is None:
            return Sector(FRONT_DEG, self.array.accept_width_deg)
        return self.array.accepted

    def engine(self, kind: Kind) -> EngineOptions:
        """The section for one kind of engine."""
        options: EngineOptions = getattr(self, kind)
        return options

    def engines(self) -> Iterator[tuple[Kind, EngineOptions]]:
        """What every conversation needs: one of each kind, and the language model's word judge."""
        for kind in CORE:
            yield kind, self.engine(kind)
        if judge := self.llm.judge:
            yield Kind.LLM, judge

    def weights(self) -> list[str]:
        """Catalogue names of the weights that the engines use, without duplicates."""
        return _weights(options for _, options in self.engines())

    def speaker_weights(self) -> list[str]:
        """Names of the weights that are needed once somebody is enrolled."""
        return _weights([self.speaker])

    def needed_weights(self) -> list[str]:
        """Names of those that the server needs to start: all but the word judge's."""
        return _weights(map(self.engine, CORE))


def _weights(engines: Iterable[EngineOptions]) -> list[str]:
    names = (options.weights_name for options in engines)
    return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each of them was written."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key -> ``config/default.yaml:12``, ``environment NAME``, ``--set``, ..."""
    files: tuple[Path, ...]
    """The YAML files that were read, weakest first."""
    own: Path | None = None
    """The owner's settings file, if it is read whenever it is there."""
