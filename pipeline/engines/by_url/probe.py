"""Is the server up, does it grant access, does it have the model? A few cheap requests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pipeline.engines.by_url.failures import (
    EngineAddress,
    Misconfiguration,
    complaint_of_bytes,
    refusal,
    too_slow,
    unreachable,
)
from pipeline.engines.by_url.families import ListedModel, ProbeResult, choose, family_of, listed
from pipeline.engines.by_url.options import UrlOptions, joined
from pipeline.engines.by_url.pool import HttpFailure, HttpRequest, Pool
from pipeline.engines.registry import Kind

ANSWER_S = 10.0
"""A server that is busy with a prompt may answer late."""
MOST_BYTES = 1024 * 1024
MOST_NAMES = 8


async def probe(
    place: EngineAddress,
    options: UrlOptions,
    pool: Pool,
    before: ProbeResult | None = None,
    *,
    just_used: bool = False,
) -> ProbeResult:
    """Find the server's family and model. ``before``: the previous result. ``just_used``: the model
    has just answered, so it is loaded.

    Raises ``Unreachable`` if waiting may help, ``Misconfiguration`` if not, and other kinds of
    ``EngineError``."""
    if options.check is None:
        return ProbeResult(model=options.model or "")
    status, content = await _get(place, options, pool, options.check)
    if status == 404 and not options.url.endswith("/v1"):
        await _hint_at_v1(place, options, pool)
    if status != 200:
        raise refusal(place, complaint_of_bytes(status, content))
    models = listed(_json(content))
    if models is None:
        if options.check == "models":
            raise Misconfiguration(
                f"{place.who} does not list its models",
                why=f"{joined(options.url, options.check)} returned something else",
                fix=f"Correct {place.kind}.url (most end in /v1), or set {place.kind}.check to null"
                f" and {place.kind}.model to a name",
            )
        return ProbeResult(model=options.model or "")
    return await _describe(place, options, pool, models, before or ProbeResult(), just_used)


async def _describe(
    place: EngineAddress,
    options: UrlOptions,
    pool: Pool,
    models: list[ListedModel],
    before: ProbeResult,
    just_used: bool,
) -> ProbeResult:
    family = family_of(models)
    if family.ready_path:
        status, content = await _get(place, options, pool, family.ready_path)
        if status not in (200, 404):
            raise refusal(place, complaint_of_bytes(status, content))
    answer, running = None, None
    if family.running_path:
        answer = await _fetch(place, options, pool, family.running_path)
        running = None if answer is None else family.running(answer)
    model = choose(models, options.model, before.model, running or ())
    any_name = family.any_model and all(each.loaded is None for each in models)
    missing = None if model or any_name else _no_such_model(place, options, models)
    name = options.model or (model.id if model else "")
    if not name:
        raise missing or _no_such_model(place, options, models)
    result = ProbeResult(family, name, model.context_tokens if model else 0, missing=missing)
    if running is not None and not (missing and running):  # an alias runs under another name
        result = replace(result, loaded=(model.id if model else name) in running)
    elif model:
        result = replace(result, loaded=model.loaded)
    if place.kind is not Kind.LLM or not family.context_path:
        return result
    if family.loads_when_asked:
        if before.family is family and before.model == name and before.context_tokens:
            return replace(before, loaded=result.loaded)  # asking again would keep it loaded
        if not (result.loaded or (just_used and result.loaded is None)):
            return result
    if family.context_path != family.running_path:
        path = family.context_path.format(model=quote(name))
        answer = await _fetch(place, options, pool, path)
    return replace(
        result,
        context_tokens=family.context(answer, name) or result.context_tokens,
        slots=family.slots(answer),
        shows_tools=family.shows_tools(answer),
        template=family.template(answer),
        loaded=False if family.sleeps(answer) else result.loaded,
    )


async def _fetch(place: EngineAddress, options: UrlOptions, pool: Pool, path: str) -> Any:
    """The JSON at ``path``, or ``None``."""
    status, content = await _get(place, options, pool, path)
    return _json(content) if status == 200 else None


def _no_such_model(
    place: EngineAddress, options: UrlOptions, models: list[ListedModel]
) -> Misconfiguration:
    names = [model.id for model in models[:MOST_NAMES]]
    more = len(models) - len(names)
    has = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    return Misconfiguration(
        f"{place.who} has no model {options.model!r}" if options.model else f"{place.who} is empty",
        why=f"it has {has}" if names else "it lists no model",
        fix=f"Set {place.kind}.model to one of them, or load the model there"
        if names
        else "Load a model there",
    )


async def _hint_at_v1(place: EngineAddress, options: UrlOptions, pool: Pool) -> None:
    """Raise ``Misconfiguration`` if the URL only lacks ``/v1``."""
    status, content = await _get(place, options, pool, joined(options.url, "v1/models"))
    if status == 200 and listed(_json(content)) is not None:
        raise Misconfiguration(
            f"{place.who} has no API at that path",
            why=f"its API is at {options.url}/v1",
            fix=f"Set {place.kind}.url to {options.url}/v1",
        )


async def _get(
    place: EngineAddress, options: UrlOptions, pool: Pool, path: str
) -> tuple[int, bytes]:
    """Status, and the body or the address that it redirects to. ``path``: as for ``joined``, or a
    whole URL."""
    url = path if "://" in path else joined(options.url, path)
    request = HttpRequest("GET", url, options.headers)
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await pool.send(request, options.connect_s)
            try:
                whole = b""
                async for piece in answer.pieces():
                    whole += piece
                    if len(whole) > MOST_BYTES:
                        break
                return answer.status, answer.redirects_to.encode() or whole
            finally:
                answer.close()
    except HttpFailure as broken:
        raise unreachable(place, broken) from broken
    except TimeoutError:
        raise too_slow(place, ANSWER_S, "url") from None


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
