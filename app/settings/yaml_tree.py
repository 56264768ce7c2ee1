"""YAML that remembers the line of each key, so that an error can point at it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar or a list, as plain data, and where it was written."""

    value: Any
    origin: str
    directory: Path | None = None
    """Directory of the file; relative paths written in it start there."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A mapping, and where its key was written."""

    origin: str
    children: dict[str, Node] = field(default_factory=dict)


Node = Leaf | Branch

_NO_TAGS = "Write the value itself, in quotes if it begins with !, or set it in the environment"


def label(path: Path) -> str:
    """A path as a person would type it: relative if it is below the current directory."""
    try:
        return str(Path(os.path.realpath(path)).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def read_tree(path: Path, name: str = "") -> Branch:
    """Parse a YAML file whose top level is a mapping.

    ``name`` is what errors and origins call the file. Raises ``ConfigError`` with file and line.
    """
    name = name or label(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{name} does not exist", fix="Check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        fix = "Save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise ConfigError(f"{name} cannot be read", why=str(error), fix=fix) from error
    data = _load(text, name)
    if data is None:
        return Branch(origin=name)
    if not hasattr(data, "items"):
        raise ConfigError(
            f"{name} is not a YAML mapping",
            why="its top level has no keys",
            fix="Write it as `section: {key: value}`",
        )
    return _branch(data, name, 0, path.resolve().parent)


def parse_value(text: str, name: str) -> Any:
    """Parse one YAML value from an environment variable or ``--set``; empty text is ``None``.

    Lists and mappings are written in brackets. Any other text is taken literally
    (``Reachy: a robot #1``), unless it is in quotes.
    """
    if text.lstrip().startswith(("[", "{")):
        return _plain(_load(text, name), name)
    try:
        value = _plain(_load(text, name), name)
    except ConfigError:
        return text
    if isinstance(value, dict | list) or (value is None and "#" in text):
        return text
    quoted = text.lstrip().startswith(("'", '"'))
    return text.strip() if isinstance(value, str) and not quoted else value


def plain(node: Node) -> Any:
    """The node as dicts, lists and scalars."""
    if isinstance(node, Leaf):
        return node.value
    return {key: plain(child) for key, child in node.children.items()}


def leaves(node: Node, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every leaf with its dotted key."""
    if isinstance(node, Leaf):
        yield prefix, node
        return
    for key, child in node.children.items():
        yield from leaves(child, f"{prefix}.{key}" if prefix else key)


def origin_of(node: Node, keys: tuple[str | int, ...]) -> str:
    """Where the key was written, or else the nearest mapping around it."""
    for key in keys:
        if not isinstance(node, Branch) or key not in node.children:
            break
        node = node.children[str(key)]
    return node.origin


@lru_cache(maxsize=32)
def _load(text: str, name: str) -> Any:
    """Cached: ruamel takes 0.1 s and more for a large file. Callers change nothing in it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise _not_yaml(where, str(error.problem or error)) from error
    except (YAMLError, RecursionError, ValueError) as error:  # no such date, a number too long
        raise _not_yaml(name, str(error)) from error


def _not_yaml(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"{where} is not valid YAML",
        why=" ".join(why.partition(" with value ")[0].split()),  # the value may be a key
        fix="Check the indentation (spaces, no tabs), quotes and brackets on and above this line",
    )


def _branch(data: Any, name: str, line: int, directory: Path | None) -> Branch:
    origin = f"{name}:{line}" if line else name
    children: dict[str, Node] = {}
    for key, value in data.items():
        at = _line(data, key) or line
        if isinstance(value, Mapping):
            children[str(key)] = _branch(value, name, at, directory)
        else:
            where = f"{name}:{at}" if at else name
            children[str(key)] = Leaf(_plain(value, where), where, directory)
    return Branch(origin, children)


def _line(data: Any, key: Any) -> int:
    """Line of a key, from 1; 0 for a key from a ``<<`` merge."""
    try:
        return int(data.lc.key(key)[0]) + 1
    except (KeyError, AttributeError, TypeError):
        return 0


def _plain(value: Any, where: str) -> Any:
    """Convert ruamel's round-trip types (which keep formatting) to plain Python types."""
    from ruamel.yaml.comments import TaggedScalar
    from ruamel.yaml.scalarbool import ScalarBoolean

    if isinstance(value, TaggedScalar):
        raise ConfigError(f"{where}: {value.tag.value} is not known here", fix=_NO_TAGS)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, where) for item in value]
    if isinstance(value, bool | ScalarBoolean):
        return bool(value)
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)
