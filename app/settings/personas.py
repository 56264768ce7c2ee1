"""Personas: instructions in a spoken style, chosen by name (``conversation.persona``)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from app.settings.yaml_tree import Branch, Leaf, Node, read_tree
from pipeline.errors import ConfigError

_KEYS = ("summary", "instructions")
_FOLDER = "config/personas/"


def persona_names(directory: Path) -> list[str]:
    """Names that ``conversation.persona`` accepts."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def read_persona(directory: Path, name: str) -> Mapping[str, Leaf]:
    """``summary`` and ``instructions``, with their origins. Raises ``ConfigError``."""
    shown = f"{_FOLDER}{name}.yaml"
    children = read_tree(directory / f"{name}.yaml", shown).children
    texts = {key: node for key, node in children.items() if isinstance(node, Leaf)}
    if set(children) != set(_KEYS) or not all(isinstance(t.value, str) for t in texts.values()):
        raise ConfigError(
            f"{shown} is not a persona", why=f"it must have {' and '.join(_KEYS)}, as text"
        )
    return texts


def unused_persona(persona: str | None, origin: str) -> str:
    """A warning if the chosen persona is not used because ``origin`` sets other instructions;
    else empty."""
    if persona is None or origin.startswith(_FOLDER):
        return ""
    return f"conversation.persona {persona!r} is not used: {origin} sets its own instructions"


def with_persona(merged: Branch, defaults: Branch, directory: Path) -> Branch:
    """``merged`` with the instructions of its persona, unless a source other than ``defaults``
    sets instructions. Raises ``ConfigError`` if the persona does not exist."""
    talk = merged.children.get("conversation")
    persona = talk.children.get("persona") if isinstance(talk, Branch) else None
    if not isinstance(talk, Branch) or not isinstance(persona, Leaf) or persona.value is None:
        return merged
    name = str(persona.value)
    known = persona_names(directory)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise ConfigError(
            f"{persona.origin}: conversation.persona: there is no persona {name!r}",
            why=f"known are: {', '.join(known)}",
            fix=f"Did you mean {near[0]!r}?"
            if near
            else "Or write your own: conversation.instructions",
        )
    usual = defaults.children.get("conversation")
    given: Node | None = talk.children.get("instructions")
    if isinstance(usual, Branch) and given is not usual.children.get("instructions"):
        return merged
    instructions = read_persona(directory, name)["instructions"]
    changed = Branch(talk.origin, {**talk.children, "instructions": instructions})
    return Branch(merged.origin, {**merged.children, "conversation": changed})
