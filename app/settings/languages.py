"""What each language brings (``config/languages/*.yaml``): words that help to judge turns, and the
server's own sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from app.settings.yaml_tree import Leaf, read_tree
from pipeline.engines.word_scale import CutSentence
from pipeline.errors import ConfigError
from pipeline.settings import WORD_LISTS, Lexicon, Notices


def read_lexicons(directory: Path) -> tuple[Lexicon, ...]:
    """Lexicons of all languages that have a file. Raises ``ConfigError``."""
    return tuple(_read(path) for path in sorted(directory.glob("*.yaml")))


def read_sentences(directory: Path) -> Mapping[str, Sequence[CutSentence]]:
    """Sentences of all languages whose file has any. Raises ``ConfigError``."""
    found = {path.stem: _texts(path).get(SENTENCES, "") for path in directory.glob("*.yaml")}
    return {
        language: [_cut(line, language) for line in text.splitlines()]
        for language, text in sorted(found.items())
        if text
    }


def read_notices(directory: Path) -> tuple[Notices, ...]:
    """The server's own sentences in all languages that have a file. Raises ``ConfigError``."""
    return tuple(_notices(path) for path in sorted(directory.glob("*.yaml")))


def read_clock(directory: Path) -> Mapping[str, Mapping[str, str]]:
    """The tables for timers (``app.clock``) of all languages that have them. Raises
    ``ConfigError``."""
    texts = {path.stem: _texts(path) for path in sorted(directory.glob("*.yaml"))}
    return {
        language: {key: text[key] for key in CLOCK}
        for language, text in texts.items()
        if all(key in text for key in CLOCK)
    }


def _read(path: Path) -> Lexicon:
    lists = {key: _listed(key, text) for key, text in _texts(path).items() if key in WORD_LISTS}
    return Lexicon(path.stem, **lists)


def _listed(key: str, text: str) -> tuple[str, ...]:
    """Words are separated by white space, phrases by commas; a line may break after a |."""
    parts = text.replace("| ", "|").split(",") if key in PHRASES else text.split()
    return tuple(part.strip() for part in parts)


def _notices(path: Path) -> Notices:
    apology, exchange, fillers = (_texts(path).get(key, "") for key in NOTICES)
    return Notices(path.stem, apology, exchange, tuple(fillers.splitlines()))


def _texts(path: Path) -> dict[str, str]:
    children = read_tree(path, f"config/languages/{path.name}").children
    texts = {key: node.value for key, node in children.items() if isinstance(node, Leaf)}
    known = (*WORD_LISTS, *NOTICES, *CLOCK, SENTENCES)
    for key in children:
        if key not in known or not isinstance(texts.get(key), str):
            raise _unusable(path.stem, f"{key} is not one of {', '.join(known)} with text")
    return {key: str(text) for key, text in texts.items()}


def _cut(line: str, language: str) -> CutSentence:
    beginning, mark, rest = (part.strip() for part in line.partition("|"))
    if not (beginning and mark and rest):
        raise _unusable(language, f"the sentence {line!r} has no | to mark where it is cut")
    return beginning, rest


def _unusable(language: str, why: str) -> ConfigError:
    shown = f"config/languages/{language}.yaml"
    return ConfigError(f"{shown} cannot be used", why=why, fix="See config/languages/en.yaml")


OVERLAPS = ("encouragements", "prefaces", "continuations", "additions", "names", "refusals")
FAREWELLS = ("farewells", "before_farewells", "after_farewells")
PHRASES = (*OVERLAPS, "credits", "courtesies", *FAREWELLS)
SENTENCES = "sentences"
"""One sentence per line; a | marks a place where it may be cut and more must follow."""
CLOCK = tuple(f"clock_{n}" for n in ("sentences", "phrases", "numbers", "lengths", "times", "days"))
NOTICES = ("apology", "exchange_notice", "filler_sentences")
"""The last has one sentence per line."""
