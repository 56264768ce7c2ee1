"""What a client's URL, headers and secret ask of its session."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.websockets import WebSocket

from app.server.gate import SECRET
from pipeline.realtime.protocol import EXTRAS, RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults

_BETA_PROTOCOL = "openai-beta.realtime-v1"
NO_BETA = (
    "The beta of the Realtime API is not supported: its events and fields have other names. Use a "
    "client of the GA API, without the header 'OpenAI-Beta' and the subprotocol "
    f"'{_BETA_PROTOCOL}'."
)


def given_by(websocket: WebSocket) -> Mapping[str, Any]:
    """The session fields of the client's secret, if it has one."""
    return secret.session if (secret := websocket.scope[SECRET]) else {}


def asks_for_beta(websocket: WebSocket) -> bool:
    offered = websocket.scope.get("subprotocols", ())
    return "realtime=v1" in websocket.headers.get("openai-beta", "") or _BETA_PROTOCOL in offered


def transcribes(query: Mapping[str, str], given: Mapping[str, Any]) -> bool:
    """Whether a session only transcribes; arguments as for ``protocol_for``."""
    return (given.get("type") or query.get("intent")) == "transcription"


def defaults_for(
    defaults: SessionDefaults, query: Mapping[str, str], given: Mapping[str, Any]
) -> SessionDefaults:
    """``given``: the session fields of a client secret. They decide the kind of session, and the
    model unless the URL names one."""
    model = query.get("model") or given.get("model")
    return replace(
        defaults,
        model=model if model and isinstance(model, str) else defaults.model,
        transcription=transcribes(query, given),
    )


def protocol_for(
    defaults: SessionDefaults,
    query: Mapping[str, str],
    given: Mapping[str, Any],
    *,
    on_error: Callable[[str], None] = lambda code: None,
    sends_audio: bool = True,
) -> RealtimeConnection:
    """The connection that the client's URL asks for. ``query`` may hold ``model``,
    ``intent=transcription``, and our own ``EXTRAS``, as ``timings=true``.
    ``given``: as for ``defaults_for``."""
    return RealtimeConnection(
        defaults_for(defaults, query, given),
        id_source(),
        time.time,
        extras={name for name in EXTRAS if query.get(name) == "true"},
        on_error=on_error,
        sends_audio=sends_audio,
    )


def id_source() -> Callable[[str], str]:
    """Cheap ids that are unique among all connections."""
    base = secrets.token_hex(8)
    numbers = itertools.count()
    return lambda prefix: f"{prefix}_{base}{next(numbers):x}"
