"""``response.create``: what a client overrides for one response."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.chat import Item
from pipeline.commands import ResponseOptions
from pipeline.realtime.items import item_from_wire
from pipeline.realtime.schema import ResponseFields
from pipeline.realtime.session_config import EffectiveSession, given_rate, tools
from pipeline.realtime.wire import WireError


def response_options(
    given: ResponseFields, session: EffectiveSession, new_id: Callable[[str], str]
) -> ResponseOptions:
    """Raises ``WireError`` for what only the whole session can rule out."""
    _require_session_rate(given, session)
    limit = given.max_output_tokens
    return ResponseOptions(
        instructions=given.instructions,
        modality=given.output_modalities[0] if given.output_modalities else None,
        voice=_voice(given, session),
        tools=None if given.tools is None else tools(given.tools),
        max_output_tokens=None if limit == "inf" else limit,
        in_conversation=given.conversation != "none",
        input=_input(given, session, new_id),
        metadata=given.metadata,
    )


def _voice(given: ResponseFields, session: EffectiveSession) -> str | None:
    output = given.audio.output if given.audio else None
    return session.voice(output.voice) if output and output.voice else None


def _input(
    given: ResponseFields, session: EffectiveSession, new_id: Callable[[str], str]
) -> tuple[Item, ...] | None:
    if given.input is None:
        return None
    return tuple(
        item_from_wire(item, new_id, session.input_rate, f"response.input[{at}]")
        for at, item in enumerate(given.input)
    )


def _require_session_rate(given: ResponseFields, session: EffectiveSession) -> None:
    output = given.audio.output if given.audio else None
    asked = given_rate(output.format if output else None, session.output_rate)
    if asked != session.output_rate:
        raise WireError(
            "invalid_value",
            f"Invalid value at 'response.audio.output.format.rate': the session speaks at "
            f"{session.output_rate} Hz; set the rate with 'session.update'.",
            param="response.audio.output.format.rate",
        )
