"""The server's access control: every request and WebSocket passes ``AccessGate`` first."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from app.access.api_errors import ApiError
from app.access.client_secrets import ClientSecrets
from app.access.file import AccessFile
from app.access.limits import TokenBucket
from app.access.policy import (
    CONSOLE,
    CONSOLE_API,
    HOST,
    OPEN_PATHS,
    ORIGIN,
    WAY,
    Caller,
    Refusal,
    Rules,
    Way,
    caller_of,
    expired_secret,
    parse_network,
)
from app.server.discovery import own_host
from app.settings.access import key_bytes
from app.settings.model import Settings

CALLER = "reachy_voice.caller"
"""Key of the ASGI scope: the ``Caller`` that was let in."""

SECRET = "reachy_voice.secret"
"""Key of the ASGI scope: the ``ClientSecret`` that was used, or ``None``."""

CALLS = "/v1/realtime/calls"

PROGRAM = "reachy-voice"

ADDRESS = "address"
"""A kind of refusal, by the caller's address; the others are ``ORIGIN`` and ``HOST``."""

LINES_AT_ONCE = {ADDRESS: 100, ORIGIN: 10, HOST: 10}
LINE_EVERY_S = 10.0
"""Minimum time between lines about one kind of refusal after the first few: strangers can neither
flood the console nor silence it for good."""

MAX_REMEMBERED = 1000
"""Addresses, origins and hosts that are not reported again; the oldest is forgotten."""

Tell = Callable[[str], None]


class RefusalNotices:
    """Prints one line at the console for each address, origin or host that is refused.

    ``command`` returns the command line to type for ``allow 192.168.1.7``. ``now`` is in seconds.
    """

    def __init__(
        self,
        tell: Tell,
        command: Callable[[str], str] = "reachy-voice {}".format,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._command = command
        self._now = now
        self._reported: dict[tuple[str, str], None] = {}
        self._lines = {
            kind: TokenBucket(1 / LINE_EVERY_S, at_once, now())
            for kind, at_once in LINES_AT_ONCE.items()
        }
        self._slow: set[str] = set()

    def refused(self, refusal: Refusal, caller: Caller) -> None:
        kind = refusal.code if refusal.status == 403 else ADDRESS
        proxied = kind == ADDRESS and caller.forwarded  # other clients come through the same proxy
        about = ("proxy" if proxied else kind, refusal.subject[:200])
        if about in self._reported:
            self._reported[about] = self._reported.pop(about)  # the newest is forgotten last
            return
        lines, now = self._lines[kind], self._now()
        if lines.left(now) == LINES_AT_ONCE[kind]:
            self._slow.discard(kind)
        if lines.left(now) < 1:
            return
        lines.take(now)
        self._reported[about] = None
        if len(self._reported) > MAX_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._tell(_notice(refusal, caller, self._command))
        if lines.left(now) < 1 and kind not in self._slow:
            self._slow.add(kind)
            self._tell(f"Many are refused; from now on, one line per {LINE_EVERY_S:g} s is shown.")

    def admitted(self, caller: Caller) -> None:
        """Report the client again if it is refused later."""
        self._reported.pop((ADDRESS, caller.place), None)


def _notice(refusal: Refusal, caller: Caller, command: Callable[[str], str]) -> str:
    subject = ascii(refusal.subject[:200])[1:-1]
    if refusal.code == ORIGIN:
        return f"Refused a web page from {subject}. If it is yours, add it to access.origins."
    if refusal.code == HOST:
        return f"Refused a request to {subject}. If that is this machine, add it to access.hosts."
    if caller.address is None or caller.from_here or caller.forwarded:
        what = "a request that came through a proxy" if caller.forwarded else "a program here"
        return f"Refused {what}: it has no valid key. To make one: {command('key new NAME')}"
    return f"Refused {subject}. If it is your robot: {command(f'allow {subject}')}"


class Access:
    """Who may use one server. ``tell`` gets lines for the console; ``command`` as for
    ``RefusalNotices``."""

    def __init__(
        self,
        rules: Rules | None = None,
        file: AccessFile | None = None,
        tell: Tell = lambda line: None,
        secrets: ClientSecrets | None = None,
        command: Callable[[str], str] = "reachy-voice {}".format,
    ) -> None:
        self.rules = Rules() if rules is None else rules
        self.secrets = ClientSecrets() if secrets is None else secrets
        self.notices = RefusalNotices(tell, command)
        self.file = file

    async def decide(self, caller: Caller, *, has_secret: bool) -> Way | Refusal:
        """Reads the file only for callers that send a key or would otherwise be refused."""
        verdict = self.rules.decide(caller, has_secret=has_secret)
        refused = isinstance(verdict, Refusal) and verdict.code != ORIGIN
        if self.file is not None and (refused or caller.keys):
            allowed = await asyncio.to_thread(self.file.current)
            keys, admins = allowed.digests(), allowed.digests(admin=True)
            rules = self.rules.extended(allowed.networks(), keys, admins)
            verdict = rules.decide(caller, has_secret=has_secret)
        return verdict

    async def admits(self, caller: Caller) -> bool:
        """Whether to admit a client of a port that takes no keys; reports a refusal."""
        verdict = await self.decide(caller, has_secret=False)
        if isinstance(verdict, Refusal):
            self.notices.refused(verdict, caller)
        return not isinstance(verdict, Refusal)


def access_for(settings: Settings, environ: Mapping[str, str], tell: Tell) -> Access:
    """Who may use a server with these settings. Raises ``ConfigError``."""
    given = settings.access
    file = AccessFile(settings.paths.access(environ))
    file.read()  # report a bad file now, not when the robot is refused
    rules = Rules(
        loopback=settings.trusts_loopback,
        addresses=tuple(map(parse_network, given.addresses)),
        keys=key_bytes(given.keys),
        origins=frozenset(given.origins),
        hosts=frozenset(("localhost", *host_names(), own_host(), *given.hosts)),
        proxies=tuple(map(parse_network, settings.server.trusted_proxies)),
    )
    shared = given.shared_key
    secrets = ClientSecrets(shared.get_secret_value() if shared else None)
    return Access(rules, file, tell, secrets, command=partial(typed_command, settings))


def typed_command(settings: Settings, words: str) -> str:
    """The whole command line for ``words``, as in ``allow 192.168.1.7``."""
    own = settings.paths.access_file
    where = "" if own is None else f" --set paths.access_file={shlex.quote(str(own.expanduser()))}"
    return f"{_program()} {words}{where}"


def _program() -> str:
    """How to call the running program from here: by name if it is on the PATH."""
    running = Path(sys.argv[0])
    if running.name != PROGRAM or not running.is_file():
        return PROGRAM
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).samefile(running):
        return PROGRAM
    path = os.path.relpath(running)
    if path.startswith(".."):
        path = str(running.absolute())
    elif "/" not in path:
        path = f"./{path}"
    return shlex.quote(path)


def host_names() -> list[str]:
    """This machine's host names, including the mDNS one. Asks no name server."""
    name = socket.gethostname().lower()
    return [name, name.partition(".")[0] + ".local"] if name else []


class AccessGate:
    """ASGI middleware: lets a request through, or answers it with 401 or 403.

    ``on_refused`` gets client and status for each WebSocket or call that is refused.
    """

    def __init__(
        self, app: ASGIApp, access: Access, on_refused: Callable[[Caller, int], None]
    ) -> None:
        self._app = app
        self._access = access
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "http" and _is_open(scope["path"])
        if is_open or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        caller = caller_of(scope, self._access.rules.proxies)
        upgrade = scope["type"] == "websocket"
        talks = upgrade or is_call(scope["path"])
        secret = self._access.secrets.find(caller.keys) if talks else None
        verdict = await self._access.decide(caller, has_secret=secret is not None)
        if isinstance(verdict, Refusal):
            if talks and verdict.status == 401 and self._access.secrets.expired(caller.keys):
                verdict = expired_secret(verdict)
            self._access.notices.refused(verdict, caller)
            if talks:
                self._on_refused(caller, verdict.status)
            await _refuse(verdict, scope, receive, send)
            return
        self._access.notices.admitted(caller)
        scope = {**scope, CALLER: caller, SECRET: secret, WAY: verdict}
        await self._app(scope, receive, send)


def is_call(path: str) -> bool:
    """Whether a session is opened or ended here over WebRTC."""
    return path == CALLS or path.startswith(f"{CALLS}/")


def _is_open(path: str) -> bool:
    if path.startswith(CONSOLE_API):
        return False
    return path in OPEN_PATHS or path == CONSOLE or path.startswith(f"{CONSOLE}/")


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
    error = ApiError(refusal.status, refusal.code, refusal.message, headers=headers)
    response = error.response()
    if scope["type"] == "websocket":
        websocket = WebSocket(scope, receive, send)
        await websocket.receive()  # the connect
        await websocket.send_denial_response(response)
    else:
        await response(scope, receive, send)
