"""The jinja dialect of chat templates, as Hugging Face's transformers defines it."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pipeline.errors import EngineError


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """``render(**variables)`` and the names of the variables that the template reads."""

    render: Callable[..., str]
    variables: frozenset[str]


def compile_template(source: str) -> CompiledTemplate:
    """Compile a chat template in a sandbox. Raises ``EngineError`` on a syntax error."""
    import jinja2
    import jinja2.meta

    environment = _environment()
    try:
        variables = jinja2.meta.find_undeclared_variables(environment.parse(source))
        template = environment.from_string(source)
    except jinja2.TemplateError as problem:
        raise EngineError(
            "The model's chat template cannot be used",
            why=str(problem),
            fix="Choose another GGUF of this model with llm.model_file",
        ) from problem
    return CompiledTemplate(template.render, frozenset(variables))


@functools.cache
def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _generation_extension()],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _generation_extension() -> Any:
    """``{% generation %}`` marks, for training, what the assistant wrote: here, just its body."""
    import jinja2.ext
    import jinja2.nodes

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012 (jinja2 reads a plain set)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    return Generation


def _to_json(
    data: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own filter escapes HTML, which models have not seen."""
    return json.dumps(
        data, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _now(format_text: str) -> str:
    return datetime.datetime.now().astimezone().strftime(format_text)
