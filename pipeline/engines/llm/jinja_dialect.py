"""The jinja dialect of chat templates, as Hugging Face's transformers defines it."""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from pipeline.errors import EngineError

_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(?=\s*[-+]?%\})")
"""Tags that mark the assistant's text for training; a prompt needs only the text between them."""


def compile_template(source: str) -> Callable[..., str]:
    """Compile a chat template in a sandbox. Returns ``render(**variables)``.

    Raises ``EngineError`` on a syntax error.
    """
    import jinja2

    source = _GENERATION.sub(lambda tag: tag[1] + ("endif" if tag[2] else "if true"), source)
    try:
        template: Callable[..., str] = _environment().from_string(source).render
    except jinja2.TemplateError as problem:
        raise EngineError(
            "The model's chat template cannot be used",
            why=str(problem),
            fix="Choose another GGUF of this model with llm.model_file",
        ) from problem
    return template


@functools.cache
def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(data: Any, ensure_ascii: bool = False, **how: Any) -> str:
    """jinja2's own filter escapes HTML, which models have not seen."""
    return json.dumps(data, ensure_ascii=ensure_ascii, **how)


def _raise(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _now(format_text: str) -> str:
    return datetime.datetime.now().astimezone().strftime(format_text)
