"""Check whether this machine is ready; each failure says what to do."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.access.file import AccessFile
from app.access.policy import in_url, is_loopback
from app.doctor.choices import choice_warnings, language_warnings
from app.doctor.engine_needs import OWN_LOCKS, EngineNeeds, needs_of
from app.doctor.hardware import check_hardware
from app.doctor.installed import check_installed, setup_command
from app.doctor.machine import check_glibc, check_machine
from app.doctor.processor import check_compiled_for, check_trials
from app.doctor.profile_fit import Machine, advice, judge, lacking, this_machine
from app.models.catalogue import Catalogue
from app.models.download import SPARE_BYTES
from app.models.engine_memory import STACK_EXTRAS
from app.models.gpu import Gpus, find_gpus
from app.models.wake_word import wake_word
from app.models.weights import WeightsCache, open_cache
from app.people.file import PeopleFile, model_digest
from app.server.listening import ServerError, bind
from app.server.local_key import answer_of, key_for
from app.server.tls import tls_from_files
from app.settings.load import load_settings
from app.settings.model import NeedsSettings, ServerSettings, Settings, TlsFiles
from app.settings.tools import ToolSettings
from app.setup.computer import own_instructions, space, usable_cores
from app.setup.finding import Check
from app.talk.devices import chosen_devices
from hardware.settings import Sound
from hardware.sound.errors import SoundError
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.by_url.probe import probe
from pipeline.engines.registry import (
    CORE,
    AnyEngineSpec,
    EngineOptions,
    Kind,
    UrlEngineSpec,
    engine_spec,
    require_modules,
    require_package,
)
from pipeline.errors import ConfigError, MissingExtra, ReachyVoiceError, WeightsError
from pipeline.waking.waking import calls_of

HOME = "Home Assistant"
ANSWER_S = 2.0
"""Time-out for the server that has the port."""
SLOW_FIX = "Put the voice on a GPU (tts.device), or choose a faster one (tts.engine)"


def examine(
    config: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> list[Check]:
    """Run every check, in the order in which problems should be fixed."""
    settings, configuration = check_settings(config, overrides, environ)
    checks = [Check("Python", "ok", platform.python_version()), configuration]
    if settings is None:
        return [*checks, check_cpu(_cpu_flags())]
    specs = [engine_spec(kind, settings.engine(kind).engine) for kind in CORE]
    modules = [module for spec in specs for module in spec.modules]
    setup = setup_command(config, overrides)
    engines = [check_engine(spec, setup) for spec in specs]
    if judge := settings.llm.judge:
        engines.append(check_judge(engine_spec(Kind.LLM, judge.engine), setup))
    if "moonshine_voice" in modules:
        checks += check_glibc(*platform.libc_ver())
    checks += engines
    if settings.server.webrtc:
        checks.append(check_webrtc(setup))
    checks += check_wake(settings)
    checks += check_servers(settings, specs)
    checks += check_tool_servers(settings.tools, setup)
    checks += check_access(settings, environ)
    checks += check_people(settings, environ)
    gpus = find_gpus()
    checks += check_choices(settings, gpus)
    sound = chosen_sound(settings.sound)
    checks.append(check_sound(settings.sound, sound))
    checks += check_hardware(settings, sound if isinstance(sound, tuple) else None)
    checks += [*check_stack_and_room(settings, gpus, environ, setup), check_cpu(_cpu_flags())]
    return [*checks, *check_ports(settings.server)]


# --- software ----------------------------------------------------------------------------------


def check_settings(
    config: str | None, overrides: Sequence[str], environ: Mapping[str, str]
) -> tuple[Settings | None, Check]:
    """Broken settings are one finding; the other checks then use the defaults."""
    try:
        loaded = load_settings(config, overrides, environ)
    except ConfigError as error:
        return _default_settings(), Check("settings", "fail", error.account, error.fix)
    return loaded.settings, Check("settings", "ok", f"{len(loaded.origins)} values")


def _default_settings() -> Settings | None:
    try:
        return load_settings(environ={}).settings
    except ReachyVoiceError:
        return None


def check_engine(spec: AnyEngineSpec, setup: str) -> Check:
    """Are the engine's packages installed? ``setup``: the command that installs them."""
    name = f"{spec.kind} engine"
    try:
        require_modules(spec)
    except MissingExtra as error:
        # pip alone would install torch for the wrong kind of machine.
        ours = spec.extra in {"embedded"} | STACK_EXTRAS | OWN_LOCKS
        fix = f"Run: {setup}" if ours else error.fix
        return Check(name, "fail", f"{spec.name}: {error.why}", fix)
    return Check(name, "ok", spec.name)


def check_access(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    """Only a problem is reported, with which the server does not start."""
    try:
        AccessFile(settings.paths.access(environ)).read()
        if isinstance(settings.server.tls, TlsFiles):
            tls_from_files(settings.server.tls)
    except ConfigError as error:
        yield Check("access", "fail", error.account, error.fix)


def check_people(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    """Can enrolled people be recognised? Without any, only a useless ``accept`` is reported."""
    file = PeopleFile(settings.paths.access(environ))
    try:
        if not (known := file.read()).people:
            if settings.people.accept == "known":
                detail = "people.accept: known does nothing: nobody is enrolled"
                yield Check("people", "warn", detail, "Run: reachy-voice people add NAME")
            return
        require_modules(engine_spec(Kind.SPEAKER, settings.speaker.engine))
        known.voices(model_digest(settings.speaker, open_cache(settings, environ)))
    except ReachyVoiceError as error:
        yield Check("people", "fail", error.account, error.fix)
    else:
        yield Check("people", "ok", ", ".join(each.name for each in known.people))


def check_judge(spec: AnyEngineSpec, setup: str) -> Check:
    """Check the engine of ``llm.word_judge``, which the server can do without."""
    check = replace(check_engine(spec, setup), name="word judge")
    if check.state == "ok":
        return check
    return replace(
        check, state="warn", detail=f"{check.detail}; turns end without judging the words"
    )


def check_webrtc(setup: str) -> Check:
    """Are the packages of ``server.webrtc`` installed?"""
    if importlib.util.find_spec("aiortc") is None:
        return Check("WebRTC", "fail", "cannot import aiortc", f"Run: {setup}")
    return Check("WebRTC", "ok", "clients must reach this machine by UDP, at any port")


def check_wake(settings: Settings) -> Iterator[Check]:
    """Can the robot be called?"""
    if settings.wake.mode != "word":
        return
    try:
        loaded = wake_word(settings)
    except ReachyVoiceError as error:
        yield Check("wake word", "fail", error.account, error.fix)
        return
    yield Check("wake word", "ok", ", ".join(calls_of(settings.wake, loaded)))


def check_choices(settings: Settings, gpus: Gpus) -> Iterator[Check]:
    """Which profile fits this machine, and whether the chosen engines fit together."""
    yield Check("profile", "ok", advice(judge(this_machine(gpus))))
    try:
        catalogue = Catalogue.load(settings.paths.catalogue)
    except ConfigError:
        return  # the check of the weights says so
    for warning in language_warnings(settings, catalogue):
        yield Check("language", "warn", warning)
    for warning in choice_warnings(settings, catalogue):
        yield Check("choice", "warn", warning)


# --- servers of engines by URL -----------------------------------------------------------------


def check_servers(settings: Settings, specs: Sequence[AnyEngineSpec]) -> list[Check]:
    """Does each server answer, accept our key and have the model?"""
    by_url = [spec for spec in specs if isinstance(spec, UrlEngineSpec)]
    return [check_server(spec, settings.engine(spec.kind)) for spec in by_url]


def check_server(spec: UrlEngineSpec, options: EngineOptions) -> Check:
    name = f"{spec.kind} server"
    try:
        return Check(name, "ok", asyncio.run(_look_at(spec, options)))
    except ReachyVoiceError as error:
        return Check(name, "fail", error.account, error.fix)


async def _look_at(spec: UrlEngineSpec, options: EngineOptions) -> str:
    async with Pool() as pool:
        engine: UrlEngine = spec.build(options, pool)
        engine.server = info = await probe(engine.place, engine.options, pool)
        if info.missing:
            await engine.use_model()
    context = f", {info.context_tokens:,} tokens of context" if info.context_tokens else ""
    return f"{info.model or 'its default model'} at {engine.place.url}, {info.family.name}{context}"


def check_tool_servers(tools: ToolSettings, setup: str) -> Iterator[Check]:
    """Does each MCP server answer? The server starts without them."""
    if not tools.used:
        return
    try:
        require_package("mcp", "tools.mcp or tools.client_urls")
    except MissingExtra as error:
        yield Check("MCP", "fail", error.account, f"Run: {setup}")
        return
    from app.mcp.servers import McpServers

    for server in McpServers(tools).owners:
        problem = asyncio.run(server.probe())
        name, where = f"MCP {server.label}", f"tools.mcp.{server.label}"
        if problem:
            yield Check(name, "warn", problem, f"Start it, or correct {where}")
        elif server.absent:
            yield Check(name, "warn", server.absent, f"Correct {where}.allowed")
        else:
            yield Check(name, "ok", f"{len(server.tools)} tools")


# --- sound: only ``talk`` needs it, so nothing here fails ---------------------------------------


def chosen_sound(sound: Sound) -> tuple[str, str] | SoundError:
    """Names of the chosen microphone and loudspeaker, or the error if they are missing."""
    try:
        return asyncio.run(chosen_devices(sound))
    except SoundError as error:
        return error


def check_sound(sound: Sound, devices: tuple[str, str] | SoundError) -> Check:
    """``devices`` is the result of ``chosen_sound``."""
    if isinstance(devices, tuple):
        return Check("sound", "ok", f"{devices[0]} -> {devices[1]}")
    is_chosen = (sound.microphone, sound.speaker) != ("auto", "auto")
    detail = f"{devices.what}: {devices.why}" if devices.why else devices.what
    if is_chosen:
        return Check("sound", "warn", detail, devices.fix)
    return Check("sound", "ok", f"{detail} (only `talk` needs it: {devices.fix})")


# --- GPU, weights, disk, memory -----------------------------------------------------------------


def check_stack_and_room(
    settings: Settings, gpus: Gpus, environ: Mapping[str, str], setup: str
) -> Iterator[Check]:
    """Check the GPU and its packages if an engine uses them, weights, memory and disk."""
    try:
        cache = open_cache(settings, environ)
        needs = needs_of(settings, gpus, "auto", environ)
    except (ConfigError, WeightsError) as error:
        yield Check("weights", "fail", error.account, error.fix)
        return
    yield check_needs(settings.needs, this_machine(gpus, environ), needs)
    yield from check_machine(needs, gpus, setup)
    yield from check_installed(needs, setup)
    yield check_weights(cache, settings.weights(), settings.needed_weights())
    if needs.llama:
        yield from check_compiled_for(setup)
    yield from check_trials(settings, cache)
    room = {cache.directory: needs.missing_bytes}
    room[Path(tempfile.gettempdir())] = needs.temporary_mb * 10**6
    yield from check_room(room)


def check_needs(stated: NeedsSettings, machine: Machine, needs: EngineNeeds) -> Check:
    """Does the machine have what the settings state that they need?"""
    if why := lacking(stated, machine, needs):
        fix = "Choose another profile (reachy-voice config profiles), or correct `needs`"
        return Check("needs", "warn", why, fix)
    gpu = f", {stated.gpu_memory_mb:,} MB on an {stated.gpu} GPU" if stated.gpu else ""
    detail = f"{stated.cores} cores, {stated.memory_mb:,} MB of memory{gpu}"
    return Check("needs", "ok", f"{detail}, {stated.disk_mb:,} MB of weights on disk")


def check_room(bytes_by_folder: Mapping[Path, int]) -> Iterator[Check]:
    """Is there room for the bytes still to be written? One finding for each file system."""
    for directory, need, free in space(bytes_by_folder):
        detail = f"{free / 1e9:.1f} GB free at {directory}"
        if free >= need + SPARE_BYTES:
            yield Check("disk", "ok", detail)
        else:
            fix = "Free some space, or move the weights (paths.cache_dir) or TMPDIR"
            needs = f"{(need + SPARE_BYTES) / 1e9:.1f} GB needed"
            yield Check("disk", "fail", f"{detail}, {needs}", fix)


def check_weights(cache: WeightsCache, names: Sequence[str], required: Sequence[str]) -> Check:
    """Are the weights here? Checks sizes only; ``models verify`` reads every byte. The server does
    not start without those in ``required``."""
    if not (missing := cache.missing(names)):
        return Check("weights", "ok", f"{len(names)} of {len(names)} in {cache.directory}")
    detail = ", ".join(f"{name} ({cache.state(name)})" for name in missing)
    fix = f"Run: reachy-voice models pull {' '.join(missing)}"
    if not cache.missing(required):
        return Check("weights", "warn", f"{detail}; turns end without judging the words", fix)
    return Check("weights", "fail", detail, fix)


# --- processor and port ------------------------------------------------------------------------


def check_cpu(flags: frozenset[str], cores: int | None = None) -> Check:
    """Cores and, on x86, AVX2; empty ``flags`` mean another architecture."""
    cores = cores or usable_cores()
    detail = f"{cores} cores" + (", AVX2" if "avx2" in flags else "")
    if flags and "avx2" not in flags:
        return Check("processor", "warn", f"{detail}, no AVX2", "Expect slow answers")
    if cores < 2:
        return Check("processor", "warn", detail, "Use two cores or more to avoid stalls")
    return Check("processor", "ok", detail)


def _cpu_flags() -> frozenset[str]:
    """Instruction sets of an x86 processor on Linux; empty elsewhere."""
    x86 = platform.machine() in ("x86_64", "AMD64", "i686") and sys.platform == "linux"
    return frozenset(own_instructions().split() if x86 else ())


def check_ports(server: ServerSettings) -> Iterator[Check]:
    """Check the server's port, and the one for Home Assistant, if any."""
    yield (own := check_port(server.host, server.port))
    running = _ask(server.host, server.port, "/ready") if own.state == "ok" else {}
    for kind, note in running.get("notes", {}).items():
        yield Check(kind, "warn", f"{note} (measured by the running server)", SLOW_FIX)
    if (port := server.wyoming_port) is None:
        return
    if is_loopback(server.host):
        detail = "only programs on this machine can connect"
        yield Check(HOME, "warn", detail, "If it is on another: reachy-voice serve --lan --wyoming")
    elif own.state == "ok" and not running:  # otherwise our own server may use that port, too
        yield replace(check_port(server.host, port, "server.wyoming_port"), name=HOME)


def check_port(host: str, port: int, setting: str = "server.port") -> Check:
    """Is the port free, or used by our own server?"""
    where = f"{host}:{port}"
    if port == 0:
        return Check("port", "ok", "any free port")
    try:
        bind(host, port, setting).close()
    except ServerError as error:
        if "reachy-voice" in json.dumps(_ask(host, port, "/v1/models")):
            return Check("port", "ok", f"reachy-voice is already serving on {where}")
        return Check("port", "fail", f"{where}: {error.why}", error.fix)
    return Check("port", "ok", f"{where} is free")


def _ask(host: str, port: int, path: str) -> dict[str, Any]:
    """The JSON object with which a server at this port answers; empty if none does."""
    import httpx

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://{in_url(host)}:{port}{path}"
    try:
        answer = json.loads(asyncio.run(answer_of(url, key_for(url, os.environ), ANSWER_S)))
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
