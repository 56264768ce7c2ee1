"""Answers without the language model: plain requests, which a rule recognises, become the calls
that a model would make. The results of tools that no model reads of are said as they are. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.conversation.prompt import without_times
from pipeline.engines.contract import Delta, TextDelta, ToolCall
from pipeline.messages import Message
from pipeline.speaking.delivery import ReplyPlan


def ruled(plan: ReplyPlan, messages: Sequence[Message], language: str) -> Delta | None:
    """The whole answer to ``messages``; ``None``: the model answers."""
    rule, config = plan.settings.rule, plan.config
    last = messages[-1] if messages else None
    # A tool that had to be renamed is not meant: the client has one of that name.
    origins = {t.name: t.origin for t in config.tools if t.origin and t.name == t.origin.name}
    if last is None or not origins:
        return None
    if last.role == "user" and rule and config.tool_choice.kind != "none":
        call = rule(without_times(last.content), language)
        return ToolCall(*call) if call and call[0] in origins else None
    if last.role == "tool":
        calls = (call for message in messages for call in message.tool_calls)
        names = [c["function"]["name"] for c in calls if c["id"] == last.tool_call_id]
        origin = origins.get(names[-1]) if names else None
        return TextDelta(last.content) if origin and not origin.offered else None
    return None
