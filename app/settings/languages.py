"""Words by language (``config/languages/*.yaml``): what they tell about a turn."""

from __future__ import annotations

from pathlib import Path

from app.settings.yaml_tree import Leaf, read_tree
from pipeline.errors import ConfigError
from pipeline.settings import WORD_LISTS, Lexicon


def read_lexicons(directory: Path) -> tuple[Lexicon, ...]:
    """Of all languages that have a file. Raises ``ConfigError``."""
    return tuple(_read(path) for path in sorted(directory.glob("*.yaml")))


def _read(path: Path) -> Lexicon:
    shown = f"config/languages/{path.name}"
    children = read_tree(path, shown).children
    texts = {key: node.value for key, node in children.items() if isinstance(node, Leaf)}
    for key in children:
        if key in WORD_LISTS and isinstance(texts.get(key), str):
            continue
        raise ConfigError(
            f"{shown} cannot be used",
            why=f"{key} is not one of {', '.join(WORD_LISTS)} with words as text",
            fix="See config/languages/en.yaml",
        )
    return Lexicon(path.stem, **{key: tuple(str(text).split()) for key, text in texts.items()})
