"""The grammar of calls: names and arguments that tools accept, and nothing else."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

from pipeline.engines.llm.tool_calls.gbnf import GEMMA, JSON, Rules, literal
from pipeline.engines.llm.tool_calls.schema_merge import UnusableSchema
from pipeline.engines.llm.tool_calls.schema_rules import SchemaRules
from pipeline.engines.llm.tool_calls.syntax import Syntax
from pipeline.messages import Tool

log = logging.getLogger("reachy_voice.llm")

_REMEMBERED = 16
"""Sets of tools; a session has one, and answers that override it have others."""
_MOST_REFUSED = 256


def call_grammar(
    syntax: Syntax,
    tools: Sequence[Tool],
    *,
    loose: Collection[str] = (),
    named: bool = False,
    whole: bool = False,
) -> str:
    """GBNF for one call of one of ``tools``, from the first letter of its name to the end;
    ``named``: from its arguments on, where the name is known; ``whole``: from its beginning.

    A schema that cannot be used becomes "any JSON object", a part of one "any value", with a line
    in the log; so do those of the tools called ``loose``. Of tools with one name, the last counts.
    """
    rules = Rules(GEMMA if syntax.values == "gemma" else JSON)
    end = literal(syntax.end + syntax.close)
    calls = {}
    for tool in {tool.name: tool for tool in tools}.values():
        free = tool.name in loose
        arguments = rules.any_object() if free else _arguments(rules, tool)
        begin = "" if named else syntax.spelled_name(tool.name) + syntax.middle
        calls[begin] = f"{arguments} {end}"
    start = literal(syntax.begin) if whole else ""
    return rules.grammar(f"{start} {rules.choice(calls)}".strip())


def _arguments(rules: Rules, tool: Tool) -> str:
    schema = SchemaRules(rules, tool.parameters)
    try:
        found = rules.add(schema.arguments())
    except (UnusableSchema, ArithmeticError, RecursionError, TypeError, ValueError) as problem:
        why = str(problem) if isinstance(problem, UnusableSchema) else "it is malformed"
        log.warning("The schema of the tool %s cannot be used: %s", tool.name, why)
        return rules.any_object()
    if schema.unusable:
        why = ", ".join(sorted(schema.unusable))
        log.warning("A part of the schema of the tool %s cannot be used: %s", tool.name, why)
    if schema.left_out:
        why = ", ".join(sorted(schema.left_out))
        log.warning("Calls of the tool %s leave out what it allows: %s", tool.name, why)
    if schema.checked:
        found_late = ", ".join(sorted(schema.checked))
        log.info("Calls of the tool %s are left out if they break: %s", tool.name, found_late)
    if schema.not_enforced:
        ignored = ", ".join(sorted(schema.not_enforced))
        log.warning("Calls of the tool %s may not respect: %s", tool.name, ignored)
    return found


class CallGrammars:
    """Grammars of one model's calls, remembered for the sets of tools that were used last."""

    def __init__(self, syntax: Syntax, *, named: bool = False) -> None:
        self.syntax = syntax
        self.bare = self if named else CallGrammars(syntax.bare, named=True)
        """Of calls without marks, from where their name is known."""
        self._named = named
        self._grammars: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._refused: list[Tool] = []
        """Tools whose strict grammar llama.cpp cannot read."""

    def of(self, tools: Sequence[Tool]) -> str:
        """GBNF for one call of one of ``tools``."""
        key = tuple(map(repr, tools))
        if key not in self._grammars:
            self._grammars[key] = self._written(tools, self._loose(tools))
            if len(self._grammars) > _REMEMBERED:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(key)
        return self._grammars[key]

    def without(self, tools: Sequence[Tool], refused: Callable[[str], bool]) -> str:
        """The same, with any arguments for those tools whose own grammar is ``refused``."""
        self._refused += [tool for tool in tools if refused(self._written([tool]))]
        del self._refused[:-_MOST_REFUSED]
        self._grammars.pop(tuple(map(repr, tools)), None)
        return self.of(tools)

    def loose(self, tools: Sequence[Tool]) -> str:
        """The same with any arguments for all of them."""
        return self._written(tools, {tool.name for tool in tools})

    def _written(self, tools: Sequence[Tool], loose: Collection[str] = ()) -> str:
        return call_grammar(self.syntax, tools, loose=loose, named=self._named)

    def _loose(self, tools: Sequence[Tool]) -> Collection[str]:
        return {tool.name for tool in tools if tool in self._refused}
