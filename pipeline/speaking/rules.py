"""Plain requests, which a rule recognises and answers with a call, as a model would. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.engines.contract import ToolCall
from pipeline.messages import Message
from pipeline.speaking.delivery import ReplyPlan


def by_rule(plan: ReplyPlan, messages: Sequence[Message], language: str) -> ToolCall | None:
    """The call that is the whole answer to ``messages``; ``None``: the model answers."""
    rule, config = plan.settings.rule, plan.config
    if rule is None or config.tool_choice.kind != "auto":
        return None
    # Clients add what a model should know behind the words.
    last = next((each for each in reversed(messages) if each.role != "system"), None)
    if last is None or last.role != "user":
        return None
    known = [tool.name for tool in config.tools if tool.origin is None or tool.origin.offered]
    call = rule(last.words, language, known)
    # A tool that had to be renamed is not meant: the client has one of that name.
    origins = (tool.origin for tool in config.tools if call and tool.name == call[0])
    return ToolCall(*call) if call and any(o and o.name == call[0] for o in origins) else None
