"""A server's life: listen, build the engines, announce, serve, drain, close the engines."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.announcing.announcer import AnnouncementRequest
from app.compose import Assistant
from app.console.running import ConsoleServer, TlsPort
from app.server.control import answer_requests, socket_path
from app.server.conversation_folder import ConversationFolder
from app.server.discovery import PATH, source_address, stay_announced
from app.server.gate import Access, host_names
from app.server.health import notes
from app.server.listening import BoundPort, bind
from app.server.live_settings import LiveSettings
from app.server.local_key import local_key
from app.server.robot_directions import ArraySeen, robot_directions
from app.server.server import build_app, serve
from app.server.systemd_notice import notify_systemd
from app.server.tls import ServerTls, tls_from_files, tls_generated
from app.server.updates import UpdateFollower
from app.settings.model import ServerSettings, Settings, TlsFiles
from pipeline.engines.registry import CORE, Kind, require_package
from pipeline.errors import ConfigError, ReachyVoiceError, one_error

log = logging.getLogger("reachy_voice.server")

WYOMING = "_wyoming._tcp"
"""The service that Home Assistant looks for by mDNS."""


class StartInterrupt(ReachyVoiceError):
    """A signal ended the server before it was ready."""

    exit_code = 130


async def run_server(
    assistant: Assistant,
    *,
    on_engine_ready: Callable[[Kind], None],
    on_ready: Callable[[int], None],
    port: int | None = None,
    access: Access | None = None,
    tls: ServerTls | None = None,
    live: LiveSettings | None = None,
    updates: UpdateFollower | None = None,
    console: ConsoleServer | None = None,
    browser_tls: ServerTls | None = None,
    without_servers: bool = False,
) -> None:
    """Serve until a signal. ``on_ready`` gets the port once clients can be answered. ``live``: lets
    engines be replaced meanwhile. ``updates``: gives them new weights. ``console``: data that only
    the surrounding program has. ``browser_tls``: adds a second port, for browsers.
    ``without_servers``: engines behind URLs may become ready later.

    The port is bound before any engine is built, so that a taken port fails at once. Without
    ``access`` only this machine may connect. Raises ``ReachyVoiceError``.
    """
    settings, limits = assistant.settings.server, assistant.settings.limits
    access = access or Access()
    assistant.announcer.file = access.file
    if settings.webrtc:
        require_package("aiortc", "server.webrtc", "server.webrtc=true")
    ports = _bind(settings, settings.port if port is None else port, browser_tls)
    array = _array(assistant.settings)
    console_server = _console_server(console, assistant, access, live, ports.secure, array)
    app = build_app(
        assistant,
        max_sessions=settings.max_sessions,
        reconnect_s=settings.reconnect_s,
        folder=_folder(assistant.settings),
        access=access,
        limits=limits,
        console=console_server,
        turns_kept=settings.turns_kept if console_server else 0,
        webrtc=settings.webrtc,
    )
    real_port = ports.main.getsockname()[1]
    with one_error():
        async with local_key(access, real_port, os.environ), asyncio.TaskGroup() as group:
            group.create_task(assistant.run(on_engine_ready, without_servers=without_servers))
            side = [_tell_ready(assistant, live, real_port, on_ready)]
            side += _side_tasks(assistant, array, ports, access, tls)
            if updates is not None:
                side.append(updates.follow())
            side += [each.keep_fresh() for each in {tls, browser_tls} if each is not None]
            tasks = [group.create_task(each) for each in side]
            await serve(
                app,
                ports.main,
                drain_s=settings.drain_s,
                finish_s=settings.finish_s,
                max_message_bytes=settings.max_message_mb * 1024 * 1024,
                handshake_s=limits.handshake_s,
                tls=tls.context if tls is not None else None,
                beside=ports.browsers,
            )
            for task in tasks:
                task.cancel()
            assistant.close()


def _console_server(
    console: ConsoleServer | None,
    assistant: Assistant,
    access: Access,
    live: LiveSettings | None,
    secure: TlsPort | None,
    array: ArraySeen | None,
) -> ConsoleServer | None:
    """What the browser console shows of this server; ``None``: the console is off."""
    if not assistant.settings.server.console:
        return None
    return replace(
        console or ConsoleServer(),
        access_file=access.file,
        household=assistant.household,
        use=live.use if live else None,
        notes=lambda: notes(assistant.stages),
        in_use=lambda: {kind: assistant.describe(kind) for kind in CORE},
        secure=secure,
        array=lambda: asdict(array) if array else None,
    )


@dataclass(frozen=True, slots=True)
class _Ports:
    """The bound ports of a server: its own, the one for browsers, and Home Assistant's."""

    main: socket.socket
    browsers: tuple[BoundPort, ...]
    secure: TlsPort | None
    home: socket.socket | None


def _bind(settings: ServerSettings, port: int, browser_tls: ServerTls | None) -> _Ports:
    """Raises ``ServerError``."""
    browsers: tuple[BoundPort, ...] = ()
    secure = home = None
    with ExitStack() as ports:  # closed if a later one is taken
        main = ports.enter_context(bind(settings.host, port))
        if browser_tls is not None and settings.browser_port is not None:
            second = bind(settings.host, settings.browser_port, "server.browser_port")
            browsers = (BoundPort(ports.enter_context(second), browser_tls.context),)
            number = second.getsockname()[1]
            secure = TlsPort(number, browser_tls.fingerprint, browser_tls.certificate)
        if settings.wyoming_port is not None:
            home = bind(settings.host, settings.wyoming_port, "server.wyoming_port")
        ports.pop_all()
    return _Ports(main, browsers, secure, home)


def _folder(settings: Settings) -> ConversationFolder | None:
    """The folder that servers share. Raises ``ConfigError``."""
    folder = settings.server.conversations_dir
    if folder is None:
        return None
    if (key := settings.access.shared_key) is None:
        raise ConfigError(
            "server.conversations_dir needs access.shared_key",
            why="the conversations are encrypted with it",
            fix="Set REACHY_VOICE__ACCESS__SHARED_KEY to the same random text for all servers",
        )
    keep_s = settings.server.reconnect_s
    return ConversationFolder(folder.expanduser(), key.get_secret_value(), keep_s)


def _array(settings: Settings) -> ArraySeen | None:
    """The state of the served robot's array, if its directions are wanted."""
    url = settings.robot.url
    return ArraySeen(url) if url is not None and settings.array.control != "never" else None


def _side_tasks(
    assistant: Assistant,
    array: ArraySeen | None,
    ports: _Ports,
    access: Access,
    tls: ServerTls | None,
) -> Iterator[Coroutine[Any, Any, None]]:
    """Tasks that run while the server serves."""
    settings = assistant.settings
    yield notify_systemd(assistant.ready, os.environ)
    if array is not None:
        yield robot_directions(assistant, array)
    elif settings.accepted:
        log.warning(
            "array.accept_deg and people.accept: front do nothing: without robot.url and "
            "array.control: auto the direction of speech is not known, and everyone is answered"
        )
    if settings.server.announce:
        address, port = ports.main.getsockname()[:2]
        yield _announce(assistant, address, port, encrypted=tls is not None)
    if ports.home:
        yield _serve_home(assistant, ports.home, access)


async def _serve_home(assistant: Assistant, listener: socket.socket, access: Access) -> None:
    """Serve Home Assistant once the engines are ready."""
    await assistant.ready.wait()
    await asyncio.to_thread(importlib.import_module, "app.home.wyoming_port")  # reads files
    from app.home import wyoming_port

    address, port = listener.getsockname()[:2]
    log.info("Home Assistant (Wyoming) can connect to port %d", port)
    async with asyncio.TaskGroup() as group:
        group.create_task(wyoming_port.serve_wyoming(listener, assistant, access.admits))
        if assistant.settings.server.announce:
            found = _announce(assistant, address, port, encrypted=False, service=WYOMING)
            group.create_task(found)


async def _announce(
    assistant: Assistant, address: str, port: int, *, encrypted: bool, service: str = ""
) -> None:
    await assistant.ready.wait()
    try:
        await stay_announced(port, address, encrypted, service)
    except Exception as error:  # networks fail in many ways; the server goes on
        log.warning("this server is not announced by mDNS: %s", error)


async def _tell_ready(
    assistant: Assistant, live: LiveSettings | None, port: int, on_ready: Callable[[int], None]
) -> None:
    """Call ``on_ready`` once clients are answered and commands taken; go on following ``live``."""
    await assistant.ready.wait()
    async with asyncio.TaskGroup() as group:
        if live is not None:
            group.create_task(_follow_files(live))
            commands = asyncio.Event()
            group.create_task(_answer_commands(assistant, live, port, commands))
            await commands.wait()
        on_ready(port)


async def _follow_files(live: LiveSettings) -> None:
    try:
        await live.watch()
    except (OSError, RuntimeError) as error:  # includes watchfiles' own errors
        log.warning("changes to the settings files are not noticed: %s", error)


async def _answer_commands(
    assistant: Assistant, live: LiveSettings, port: int, begun: asyncio.Event
) -> None:
    """``begun`` is set once commands can be given, or if they never can."""

    async def carry(asked: Mapping[str, Any], tell: Callable[[str], None]) -> Mapping[str, Any]:
        if "say" in asked:
            return await assistant.announcer.announce(AnnouncementRequest(**asked["say"]))
        if "people" in asked:
            await assistant.household.refresh()
            return {}
        assignments = [str(text) for text in asked["assignments"]]
        await live.use(assignments, tell, asked.get("unload_first"))
        return {}

    try:
        path = await asyncio.to_thread(socket_path, port, os.environ)
        await answer_requests(path, carry, begun.set)
    except (OSError, ReachyVoiceError) as error:
        log.warning("`reachy-voice models use` and `say` cannot reach this server: %s", error)
        begun.set()


@asynccontextmanager
async def local_server(assistant: Assistant) -> AsyncIterator[str]:
    """A private server on a free loopback port, while the context is open. Raises what building the
    engines raises, and ``StartInterrupt``."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    running = asyncio.create_task(
        run_server(assistant, on_engine_ready=lambda _: None, on_ready=ready.set_result, port=0)
    )
    try:
        either: set[asyncio.Future[Any]] = {running, ready}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise StartInterrupt("Stopped before the engines were ready")
        yield f"ws://127.0.0.1:{ready.result()}{PATH}"
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not running.cancelled() and (error := running.exception()):
        raise error


def tls_for(settings: Settings, environ: Mapping[str, str]) -> ServerTls | None:
    """The TLS that ``server.tls`` asks for. Raises ``ConfigError``."""
    tls = settings.server.tls
    if tls is None:
        return None
    if isinstance(tls, TlsFiles):
        return tls_from_files(tls)
    return _own_tls(settings, environ)


def browser_tls_for(
    settings: Settings, environ: Mapping[str, str], tls: ServerTls | None
) -> ServerTls | None:
    """TLS for ``server.browser_port``: ``tls``, or else with our own certificate. Raises
    ``ConfigError``."""
    if settings.server.browser_port is None:
        return None
    return tls or _own_tls(settings, environ)


def _own_tls(settings: Settings, environ: Mapping[str, str]) -> ServerTls:
    names = ["localhost", "127.0.0.1", "::1", *host_names(), *lan_addresses()]
    names += [settings.server.host, *settings.access.hosts]
    reachable = [name for name in names if name not in ("", "0.0.0.0", "::")]
    return tls_generated(settings.paths.cache(environ) / "tls", reachable)


def lan_addresses() -> list[str]:
    """Addresses at which other machines may reach this one, likeliest first."""
    route = source_address("192.0.2.1")  # a documentation address: only the way out matters
    found = [route] if route else []
    try:
        infos = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        found += [str(info[4][0]) for info in infos]
    except OSError:
        pass
    return list(dict.fromkeys(ip for ip in found if not ip.startswith("127.")))
