"""``response.create``: what a client overrides for one response."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.commands import ItemReference, ResponseOptions
from pipeline.items import Item
from pipeline.messages import Tool, ToolChoice
from pipeline.realtime.items import item_from_wire
from pipeline.realtime.schema import ItemReferenceFields, ResponseFields
from pipeline.realtime.session_config import (
    EffectiveSession,
    merged_format,
    shown_tool,
    tool_from_shown,
)
from pipeline.realtime.wire import WireError


def response_options(
    given: ResponseFields | None, session: EffectiveSession, new_id: Callable[[str], str]
) -> ResponseOptions:
    """The options in ``response.create``. Raises ``WireError`` for values that do not fit the
    session."""
    if not session.answers:
        raise WireError(
            "invalid_value",
            "Invalid value at 'type': a transcription session makes no responses. "
            "Connect without '?intent=transcription' for a session that does.",
            param="type",
        )
    if given is None:
        return ResponseOptions()
    output = given.audio.output if given.audio else None
    given_format = output.format if output else None
    tools = None
    if given.tools is not None:
        tools = tuple(tool_from_shown(shown_tool(tool)) for tool in given.tools)
    return ResponseOptions(
        instructions=given.instructions,
        modality=given.output_modalities[0] if given.output_modalities else None,
        voice=session.voice(output.voice) if output and output.voice else None,
        output_format=merged_format(session.output_format, given_format) if given_format else None,
        tools=tools,
        tool_choice=_tool_choice(given, session, tools),
        max_output_tokens=given.max_output_tokens,
        in_conversation=given.conversation != "none",
        input=_input(given, session, new_id),
        metadata=given.metadata,
    )


def _tool_choice(
    given: ResponseFields, session: EffectiveSession, tools: tuple[Tool, ...] | None
) -> ToolChoice | None:
    """A named tool must be among the response's own tools or, if it has none, the session's."""
    if tools is None and given.tool_choice is None and given.parallel_tool_calls is None:
        return None
    if tools is not None and given.tool_choice is None:
        named = session.config().tool_choice
        if named.kind == "named" and all(tool.name != named.name for tool in tools):
            # The session's choice is about the session's tools.
            return ToolChoice(parallel=named.parallel)
    return session.tool_choice(
        given.tool_choice,
        given.parallel_tool_calls,
        session.tools if tools is None else tools,
        "response.tool_choice",
    )


def _input(
    given: ResponseFields, session: EffectiveSession, new_id: Callable[[str], str]
) -> tuple[Item | ItemReference, ...] | None:
    if given.input is None:
        return None
    return tuple(
        ItemReference(item.id)
        if isinstance(item, ItemReferenceFields)
        else item_from_wire(item, new_id, session.input_format, f"response.input[{at}]")
        for at, item in enumerate(given.input)
    )
