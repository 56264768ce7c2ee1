"""What the console can show and change of a running server, as JSON."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from app.access.api_errors import ApiError, parsed, read_body
from app.access.file import AccessFile, new_key
from app.access.policy import Network, is_in, parse_address, parse_network, shown_network
from app.console.choices import AS_STARTED, Choices
from app.people.household import Household
from pipeline.audio import LISTEN_RATE, Pcm, pcm_from_bytes, resampled

PAGE_RATE = 24_000
"""Rate of the page's recordings, in Hz."""
HEADER = "x-reachy-voice"
"""Every write needs this header: a page of another origin cannot send it without a preflight."""
MOST_BYTES = 16_384
"""Largest body of a write."""
MOST_VOICE_BYTES = 4 << 20
"""Largest body with a recording of a voice: a minute at 24 kHz, in base64."""

Tell = Callable[[str], None]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TlsPort:
    """The TLS port for browsers on other machines."""

    port: int
    fingerprint: str
    """SHA-256 of its certificate."""
    authority: Path
    """File of the certificate that they can be set to trust."""


@dataclass(frozen=True, slots=True)
class ConsoleServer:
    """One server. Features that are ``None`` are not available."""

    readiness: Callable[[], Mapping[str, str | None]] = dict
    """Why each engine is not ready."""
    notes: Callable[[], Mapping[str, str]] = dict
    """What the owner should know about ready engines."""
    in_use: Callable[[], Mapping[str, str]] = dict
    """Each engine's name and weights."""
    sessions: Callable[[], int] = int
    load: Callable[[], Mapping[str, Any]] = dict
    """Memory and processor time (``app.server.load.LoadHistory``)."""
    voices: Callable[[], Sequence[str]] = tuple
    """Called once all engines are ready."""
    callers: Callable[[], Rows] = tuple
    """The clients seen (``app.server.callers``)."""
    access_file: AccessFile | None = None
    use: Callable[[Sequence[str], Tell], Awaitable[None]] | None = None
    """Replaces engines, as ``reachy-voice models use`` does."""
    pull: Callable[[str, Tell], None] | None = None
    """Fetches weights; blocks."""
    doctor: Callable[[], Rows] | None = None
    """The output of ``reachy-voice doctor``; blocks."""
    models: Callable[[], Rows] | None = None
    """The output of ``reachy-voice models``; blocks."""
    profiles: Callable[[], Rows] = tuple
    """The profiles that fit this machine; blocks."""
    choices: Choices | None = None
    household: Household | None = None
    """The people whose voices are known."""
    array: Callable[[], Mapping[str, Any] | None] = lambda: None
    """The robot's microphones (``app.server.robot_directions.ArraySeen``)."""
    secure: TlsPort | None = None
    calls: bool = False
    """Whether its pages may call by WebRTC."""
    busy: list[str] = field(default_factory=list)
    """Steps of the job in progress, latest last."""
    failed: list[str] = field(default_factory=list)
    """Why the last job failed, if it did."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Engine changes and downloads run one at a time."""

    # --- reading

    async def state(self) -> dict[str, Any]:
        can = [name for name in ("use", "pull", "doctor", "models") if getattr(self, name)]
        engines = dict(self.readiness())
        return {
            "engines": engines,
            "notes": dict(self.notes()),
            "models": dict(self.in_use()),
            "voices": [] if any(engines.values()) else list(self.voices()),
            "sessions": self.sessions(),
            "array": self.array(),
            "busy": list(self.busy) or ["under way"] * self.turn.locked(),
            "failed": list(self.failed),
            "can": can
            + ["access"] * (self.access_file is not None)
            + ["people"] * (self.household is not None)
            + ["call"] * self.calls,
        }

    async def who(self) -> dict[str, Any]:
        """The owner's list of who may connect, and the refused clients."""
        access = await asyncio.to_thread(_available(self.access_file).read)
        networks = access.networks()
        addresses = [
            {"address": shown_network(parse_network(entry.network)), "note": entry.note}
            for entry in access.addresses
        ]
        keys = [key.model_dump(include={"name", "created", "admin"}) for key in access.keys]
        refused = [
            each
            for each in self.callers()
            if each["refused"] and each["status"] == 401 and not _within(each["address"], networks)
        ]
        return {"addresses": addresses, "keys": keys, "refused": refused}

    async def people(self) -> dict[str, Any]:
        known = await asyncio.to_thread(_available(self.household).file.read)
        return {"people": [each.model_dump(include={"name", "added"}) for each in known.people]}

    async def usage(self) -> dict[str, Any]:
        return dict(self.load())

    async def findings(self) -> dict[str, Any]:
        return {"checks": await asyncio.to_thread(_available(self.doctor))}

    async def catalogue(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._catalogue)

    def _catalogue(self) -> dict[str, Any]:
        models, profiles = _available(self.models)(), self.profiles()
        if (choices := self.choices) is None:
            return {"models": models, "profiles": profiles, "choices": []}
        rows = [{**each, **choices.standing(each["name"])} for each in profiles]
        offers, changed = choices.rows(), choices.changed()
        return {"models": models, "profiles": rows, "choices": offers, "changed": changed}

    # --- writing

    async def allow(self, request: Request) -> dict[str, Any]:
        body = await _body(request, AddressBody)
        file = _available(self.access_file)
        try:
            network = parse_network(body.address)
        except ValueError as error:
            raise ApiError(400, "invalid_address", f"{body.address!r} {error}") from None
        if body.allowed:
            await asyncio.to_thread(file.change, lambda access: access.with_address(network, None))
        else:
            await asyncio.to_thread(file.change, lambda access: access.without_address(network))
        return await self.who()

    async def make_key(self, request: Request) -> dict[str, Any]:
        body = await _body(request, KeyBody)
        file, key = _available(self.access_file), new_key(body.name)
        await asyncio.to_thread(
            file.change, lambda access: access.with_key(body.name, key, admin=body.admin)
        )
        return {"key": key}

    async def remove_key(self, request: Request) -> dict[str, Any]:
        body = await _body(request, NameBody)
        file = _available(self.access_file)
        await asyncio.to_thread(file.change, lambda access: access.without_key(body.name))
        return await self.who()

    async def check_person(self, request: Request) -> dict[str, Any]:
        body = await _body(request, NameBody)
        known = await asyncio.to_thread(_available(self.household).file.read)
        known.require_new(body.name)
        return await self.people()

    async def add_person(self, request: Request) -> dict[str, Any]:
        household = _available(self.household)
        body = await _body(request, PersonBody, MOST_VOICE_BYTES)
        async with self._alone():
            for name in await asyncio.to_thread(household.missing_weights):
                await self._pull(name)
            await household.add(body.name, await asyncio.to_thread(body.recording))
        return await self.people()

    async def remove_person(self, request: Request) -> dict[str, Any]:
        body = await _body(request, NameBody)
        await _available(self.household).remove(body.name)
        return await self.people()

    async def exchange(self, request: Request) -> dict[str, Any]:
        body, use = await _body(request, UseBody), _available(self.use)
        async with self._alone():
            await use(body.assignments, self.busy.append)
            return {"steps": list(self.busy)}

    async def choose(self, request: Request) -> dict[str, Any]:
        body = await _body(request, ChoiceBody)
        choices, use = _available(self.choices), _available(self.use)
        async with self._alone():
            plan = await asyncio.to_thread(choices.plan, body.profile, body.kind)
            for name in plan[0]:
                await self._pull(name)
            await use(plan[1], self.busy.append)
            return {"steps": list(self.busy)}

    async def try_voice(self, request: Request) -> dict[str, Any]:
        body, choices = await _body(request, VoiceBody), _available(self.choices)
        async with self._alone():
            wav = await choices.speak(body.profile, body.voice)
        return {"wav": base64.b64encode(wav).decode()}

    async def fetch(self, request: Request) -> dict[str, Any]:
        body = await _body(request, NameBody)
        async with self._alone():
            await self._pull(body.name)
            return await self.catalogue()

    async def _pull(self, name: str) -> None:
        loop, pull = asyncio.get_running_loop(), _available(self.pull)

        def tell(step: str) -> None:
            loop.call_soon_threadsafe(self.busy.__setitem__, slice(None), [step])

        await asyncio.to_thread(pull, name, tell)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        if self.turn.locked():
            raise ApiError(409, "busy", "Another job is running; try again when it is done.")
        async with self.turn:
            self.failed.clear()
            try:
                yield
            except Exception as error:
                self.failed.append(str(error))
                raise
            finally:
                self.busy.clear()


# --- requests ----------------------------------------------------------------------------------

Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AddressBody(_Body):
    address: Text
    allowed: bool = True


class NameBody(_Body):
    name: Text


class PersonBody(NameBody):
    pcm: Annotated[str, Field(repr=False)]
    """int16 mono at ``PAGE_RATE`` Hz, in base64."""

    def recording(self) -> Pcm:
        """The recording at 16 kHz. Raises ``ApiError``."""
        try:
            pcm = pcm_from_bytes(base64.b64decode(self.pcm, validate=True))
        except ValueError:
            raise ApiError(400, "invalid_request", "pcm: not int16 in base64", "pcm") from None
        return resampled(pcm, PAGE_RATE, LISTEN_RATE)


class KeyBody(NameBody):
    admin: bool = False


class UseBody(_Body):
    """Assignments as for ``reachy-voice models use``: ``tts=espeak-ng``, ``llm.threads=2``."""

    assignments: Annotated[list[Text], Field(min_length=1, max_length=20)]


class ChoiceBody(_Body):
    """Chooses one engine of a profile, or all. Without a profile: those of the owner's settings."""

    profile: Annotated[str, Field(max_length=200)] = AS_STARTED
    kind: Literal["vad", "turn", "stt", "llm", "tts"] | None = None


class VoiceBody(_Body):
    profile: Annotated[str, Field(max_length=200)] = AS_STARTED
    voice: Annotated[str, Field(max_length=200)] = ""


_A = TypeVar("_A", bound=_Body)
_T = TypeVar("_T")


async def _body(request: Request, shape: type[_A], most_bytes: int = MOST_BYTES) -> _A:
    """The body of a write. Raises ``ApiError``."""
    if request.headers.get(HEADER) is None:
        raise ApiError(403, "console_forbidden", f"A write needs the header {HEADER}.")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ApiError(415, "json_needed", "The body must be application/json.")
    return parsed(shape, await read_body(request, most_bytes))


def _available(part: _T | None) -> _T:
    if part is None:
        raise ApiError(404, "not_here", "This server cannot do that.")
    return part


def _within(text: str, networks: Sequence[Network]) -> bool:
    address = parse_address(text)
    return address is not None and is_in(address, networks)
