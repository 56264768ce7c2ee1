"""How OpenAI-compatible LLM servers differ, as data.

A server is recognised by ``owned_by`` in its list of models. Sources: llama.cpp ``tools/server``
(README, ``server-http.cpp``, ``server-chat.cpp``), vLLM's protocol modules and documentation,
Ollama's ``docs/openai`` and API, LM Studio's documentation of its REST API, llama-swap's README.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.engines.by_url.failures import Misconfiguration


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of server."""

    name: str
    owners: tuple[str, ...] = ()
    """Its ``owned_by`` names."""
    sampling: Mapping[str, str] = field(default_factory=dict)
    """Its names for options that OpenAI's API lacks."""
    chat: Mapping[str, Any] = field(default_factory=dict)
    """Extra request fields, mostly to turn thinking off. They are left out if it refuses them."""
    most: str = "max_tokens"
    """Its name for the token limit of a chat answer."""
    any_model: bool = False
    """It ignores the requested model name."""
    ready_path: str | None = None
    """Answers 200 once a model is loaded."""
    running_path: str | None = None
    """Lists the loaded models."""
    running: Callable[[Any], list[str]] = lambda answer: []
    """Extracts their names from that list."""
    loads_when_asked: bool = False
    """A request to ``context_path`` loads a model that is not loaded."""
    context_path: str | None = None
    """Describes ``{model}``; ``context`` to ``sleeps`` read that answer."""
    context: Callable[[Any, str], int] = lambda answer, model: 0
    """The context size."""
    slots: Callable[[Any], int] = lambda answer: 0
    """The number of concurrent requests."""
    shows_tools: Callable[[Any], bool] = lambda answer: True
    """Whether the model sees tools. A server drops them if its chat template has no place for
    them."""
    template: Callable[[Any], str] = lambda answer: ""
    sleeps: Callable[[Any], bool] = lambda answer: False
    """Whether the model is unloaded until the next request."""
    cuts: bool = False
    """It silently truncates a prompt that is too long."""
    calls_by_schema: bool = False
    """A forced call is requested as JSON with the tool's schema."""


def _llama_context(answer: Any, model: str) -> int:
    """``/props``: the size of one slot, which is all that one conversation can use."""
    return _int(_at(answer, "default_generation_settings", "n_ctx"))


def _ollama_context(answer: Any, model: str) -> int:
    """``/api/ps``: lists the loaded models. Ollama silently truncates a longer prompt."""
    models = [entry for entry in _list(_at(answer, "models")) if isinstance(entry, dict)]
    names = (model, f"{model}:latest")
    return next((_int(e.get("context_length")) for e in models if e.get("name") in names), 0)


def _lm_studio_context(answer: Any, model: str) -> int:
    """``/api/v0/models``: the size that the model was loaded with."""
    for entry in _list(_at(answer, "data")):
        if isinstance(entry, dict) and entry.get("id") == model:
            return _int(entry.get("loaded_context_length"))
    return 0


def _lm_studio_running(answer: Any) -> list[str]:
    entries = [e for e in _list(_at(answer, "data")) if _at(e, "state") == "loaded"]
    return _names(entries, "id")


def _llama_swap_running(answer: Any) -> list[str]:
    entries = [e for e in _list(_at(answer, "running")) if _at(e, "state") in (None, "ready")]
    return _names(entries, "model")


_NO_THOUGHTS = {"chat_template_kwargs": {"enable_thinking": False}}

LLAMA_SERVER = Family(
    "llama-server",
    ("llamacpp",),
    {"min_p": "min_p", "repeat_penalty": "repeat_penalty"},
    {**_NO_THOUGHTS, "cache_prompt": True},
    any_model=True,
    ready_path="/health",
    context_path="/props?model={model}&autoload=false",  # for its router; else they are ignored
    context=_llama_context,
    slots=lambda answer: _int(_at(answer, "total_slots")),
    shows_tools=lambda answer: _at(answer, "chat_template_caps", "supports_tools") is not False,
    template=lambda answer: text if isinstance(text := _at(answer, "chat_template"), str) else "",
    sleeps=lambda answer: _at(answer, "is_sleeping") is True,  # --sleep-idle-seconds
    calls_by_schema=True,
)
LLAMA_SWAP = replace(
    LLAMA_SERVER,
    name="llama-swap",
    owners=("llama-swap",),
    any_model=False,
    running_path="/running",
    running=_llama_swap_running,
    loads_when_asked=True,
    context_path="/upstream/{model}/props",
)
"""A proxy that starts a server for each model, mostly llama-server, and ends the previous one."""
VLLM = Family(
    "vLLM",
    ("vllm",),
    {"min_p": "min_p", "repeat_penalty": "repetition_penalty"},
    _NO_THOUGHTS,
    ready_path="/health",
)
SGLANG = Family("SGLang", ("sglang",), VLLM.sampling, _NO_THOUGHTS)
OLLAMA = Family(
    "Ollama",
    ("library",),
    chat={"reasoning_effort": "none"},
    running_path="/api/ps",
    running=lambda answer: _names(_at(answer, "models"), "name"),
    context_path="/api/ps",
    context=_ollama_context,
    cuts=True,
)
LM_STUDIO = Family(
    "LM Studio",
    ("organization_owner",),
    {"min_p": "min_p", "repeat_penalty": "repeat_penalty"},
    {"reasoning_effort": "none"},
    running_path="/api/v0/models",
    running=_lm_studio_running,
    context_path="/api/v0/models",
    context=_lm_studio_context,
)
OPENAI = Family("OpenAI", ("openai", "system"), most="max_completion_tokens")
OTHER = Family("an OpenAI-compatible server", chat={**_NO_THOUGHTS, "reasoning_effort": "none"})
"""TabbyAPI, Jan, Lemonade and others know the first field, KoboldCpp and LocalAI the second; most
ignore the other one. A field that the server refuses is left out."""

FAMILIES = (LLAMA_SERVER, LLAMA_SWAP, VLLM, SGLANG, OLLAMA, LM_STUDIO, OPENAI)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    family: Family = OTHER
    model: str = ""
    """The name for requests."""
    context_tokens: int = 0
    slots: int = 0
    """0 for ``context_tokens`` or ``slots``: unknown."""
    shows_tools: bool = True
    """The model sees tools that are sent as such."""
    template: str = field(default="", repr=False)
    """The model's chat template; empty if the server does not report it."""
    loaded: bool | None = None
    """Whether the model is in memory; ``None`` if the server does not report it."""
    missing: Misconfiguration | None = field(default=None, repr=False)
    """Set if the server does not list the model: the error to raise if it does not serve it
    either."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model in a server's list. llama-server's router accepts only names that it lists."""

    id: str
    owner: str = ""
    context_tokens: int = 0
    loaded: bool | None = None
    """``None`` if the list does not say; that of llama-server's router does."""


def listed(answer: Any) -> list[ListedModel] | None:
    """The models in an answer to ``GET /v1/models``; ``None`` if it is no such list. The context
    size is in ``max_model_len`` (vLLM) or ``meta.n_ctx`` (newer builds of llama-server)."""
    data = answer if isinstance(answer, list) else _at(answer, "data")
    if not isinstance(data, list):
        return None
    return [
        ListedModel(
            entry["id"],
            str(entry.get("owned_by") or ""),
            _int(entry.get("max_model_len")) or _int(_at(entry, "meta", "n_ctx")),
            None if (value := _at(entry, "status", "value")) is None else value == "loaded",
        )
        for entry in data
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def family_of(models: Sequence[ListedModel]) -> Family:
    """The family of the server that lists these models. Ollama's models are owned by
    ``library``."""
    owners = {model.owner for model in models}
    return next((family for family in FAMILIES if owners & {*family.owners}), OTHER)


_FOR_SEARCH = re.compile(r"embed|rerank", re.IGNORECASE)
"""Matches the names of models that Ollama, LM Studio and others list and load beside the ones that
answer."""


def choose(
    models: Sequence[ListedModel], name: str | None, current: str = "", running: Sequence[str] = ()
) -> ListedModel | None:
    """The model called ``name``, which in Ollama means ``name:latest``. Without a name: the
    ``current`` one, else one that is loaded, else the first, so that the server does not swap
    models; those for searching, which cannot answer, come last."""
    if name is not None:
        names = [name, f"{name}:latest"]
    else:
        loaded = [model.id for model in models if model.loaded]
        names = [current, *loaded, *running, *(model.id for model in models)]
        names.sort(key=lambda name: bool(_FOR_SEARCH.search(name)))
    return next((model for name in names for model in models if model.id == name), None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(entries: Any, key: str) -> list[str]:
    return [name for entry in _list(entries) if isinstance(name := _at(entry, key), str)]
