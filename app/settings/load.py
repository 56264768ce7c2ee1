"""Load settings from YAML files, the environment and ``--set``.

Each source is a tree of keys that know their origin. The trees are merged, weakest first:
``default.yaml``, the ``extends`` chain, the file, ``REACHY_VOICE__SECTION__KEY``, ``--set``. If no
file is named, the owner's own settings file is read, if there is one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.root import ROOT
from app.settings.check import EXTENDS, check
from app.settings.model import LoadedSettings, Settings
from app.settings.personas import with_persona
from app.settings.yaml_tree import Branch, Leaf, Node, label, leaves, parse_value, plain, read_tree
from app.setup.place import owners_file
from pipeline.engines.registry import Kind
from pipeline.errors import ConfigError

log = logging.getLogger("reachy_voice.settings")

ENVIRONMENT_PREFIX = "REACHY_VOICE__"
DEFAULT = "default"
FILES = ("model_file", "mmproj")
"""Options that name a file of the weights, or any file by its path."""
OF_WEIGHTS = ("model_file", "updates", "adapters", "mmproj", "examples")
"""Options that belong to an engine's ``weights``; other weights need their own."""


def load_settings(
    path_or_profile: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    later: Sequence[str] = (),
) -> LoadedSettings:
    """Read, merge and check.

    ``path_or_profile``: a YAML file (has a suffix or a slash), or a name in ``config/profiles``;
    ``None``: the owner's file, else the default.
    ``overrides``: ``section.key=value``, as given to ``--set``. ``later``: the same, over those.
    Raises ``ConfigError`` (or its subclass ``SettingsError``, which lists every problem).
    """
    own = None if path_or_profile else owners_file(environ)
    files = _chain(own if own and _is_there(own) else resolve(path_or_profile or DEFAULT))
    trees = [read_tree(path, display_name(path)) for path in files]
    trees += [_environment(environ), _overrides(overrides), _overrides(later)]
    merged = Branch(origin="settings")
    for tree in trees:
        merged = _overlay(merged, tree)
    merged = with_persona(_absolute_paths(merged), trees[0], config_dir() / "personas")
    settings = check(merged)
    origins = {key: leaf.origin for key, leaf in leaves(merged) if key != EXTENDS}
    return LoadedSettings(settings, origins, tuple(files), own)


def _is_there(path: Path) -> bool:
    """Whether anything has this name: a link to nowhere, or a folder, is a mistake to be told."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


# --- files -------------------------------------------------------------------------------------


def config_dir() -> Path:
    """The folder with default.yaml. Raises ``ConfigError`` if it is missing."""
    folder = ROOT / "config"
    if not (folder / "default.yaml").is_file():
        raise ConfigError(
            "There is no default.yaml, which every profile extends",
            why=f"looked in {folder}",
            fix="In a checkout: git checkout -- config; otherwise install reachy-voice again",
        )
    return folder


def profile_names() -> list[str]:
    """Names that ``extends`` and ``--config`` accept."""
    return [DEFAULT, *sorted(path.stem for path in (config_dir() / "profiles").glob("*.yaml"))]


def resolve(name: str, directory: Path | None = None) -> Path:
    """The file that a profile name or a path (from ``directory``) means."""
    if "/" in name or os.sep in name or name.endswith((".yaml", ".yml")):
        path = (directory or Path.cwd()) / os.path.expanduser(name)
        if not path.is_file():
            is_profile = path.stem in profile_names()
            fix = f"Did you mean the profile {path.stem}?" if is_profile else "Check the path"
            raise ConfigError(f"{label(path)} does not exist", fix=fix)
        return path.resolve()
    if name == DEFAULT:
        return config_dir() / "default.yaml"
    if name in profile_names():
        return config_dir() / "profiles" / f"{name}.yaml"
    near = get_close_matches(name, profile_names(), n=1)
    raise ConfigError(
        f"There is no profile called {name!r}",
        why=f"known are: {', '.join(profile_names())}",
        fix=f"Did you mean {near[0]!r}?" if near else "A file is given with its .yaml ending",
    )


def display_name(path: Path) -> str:
    """``config/default.yaml`` for our own files, wherever they are installed."""
    home = config_dir().resolve().parent
    return str(path.relative_to(home)) if path.is_relative_to(home / "config") else label(path)


def _chain(path: Path) -> list[Path]:
    """The file and everything it extends, weakest first; default.yaml is always the root."""
    root = resolve(DEFAULT).resolve()
    chain = [Path(os.path.realpath(path))]  # also of a link to itself
    while chain[-1] != root:
        base = _base(chain[-1])
        chain.append(base)
        if base in chain[:-1]:
            circle = " -> ".join(display_name(step) for step in chain)
            raise ConfigError("The profiles extend each other in a circle", why=circle)
    return chain[::-1]


def _base(path: Path) -> Path:
    """The file that this one extends."""
    name = display_name(path)
    node = read_tree(path, name).children.get(EXTENDS, Leaf(DEFAULT, name))
    base = plain(node)
    if not isinstance(base, str):
        raise ConfigError(f"{node.origin}: extends must be a profile name or a path")
    try:
        return resolve(base, path.parent).resolve()
    except ConfigError as error:
        raise ConfigError(f"{node.origin}: {error.what}", why=error.why, fix=error.fix) from None


# --- environment and --set ---------------------------------------------------------------------


def _environment(environ: Mapping[str, str]) -> Branch:
    tree = Branch(origin="environment")
    for name in sorted(environ):
        before, _, rest = name.partition(ENVIRONMENT_PREFIX[:-1])
        section = rest.partition("_")[0]
        if not before and section.lower() in Settings.model_fields:
            log.warning("%s is not read: write %s%s__...", name, ENVIRONMENT_PREFIX, section)
        if name.startswith(ENVIRONMENT_PREFIX):
            keys = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            origin = f"environment {name}"
            _put(tree, keys, parse_value(environ[name], origin), origin)
    return tree


def _overrides(overrides: Sequence[str]) -> Branch:
    tree = Branch(origin="--set")
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise ConfigError(
                f"--set {text} cannot be read",
                why="it is not section.key=value",
                fix="For example: --set llm.threads=2",
            )
        origin = f"--set {key.strip()}"
        _put(tree, key.strip().split("."), parse_value(value, origin), origin)
    return tree


def _put(tree: Branch, keys: Sequence[str], value: object, origin: str) -> None:
    if keys[0] == EXTENDS:
        raise ConfigError(f"{origin}: extends stands in files only", fix="Use --config PROFILE")
    for key in keys[:-1]:
        child = tree.children.get(key)
        if not isinstance(child, Branch):
            child = tree.children[key] = Branch(origin)
        tree = child
    node, below = _node(value, origin), tree.children.get(keys[-1])
    tree.children[keys[-1]] = node if keys[0] in list(Kind) else _merge(below, node)


def _node(value: object, origin: str) -> Node:
    """A value given inline may be a whole section: ``--set 'tts={engine: espeak-ng}'``."""
    if isinstance(value, dict):
        return Branch(origin, {key: _node(item, origin) for key, item in value.items()})
    return Leaf(value, origin, Path.cwd())


# --- merging -----------------------------------------------------------------------------------


def _overlay(base: Branch, over: Branch) -> Branch:
    """``over`` wins. An engine section that names a different engine starts from scratch; another
    section without keys changes nothing."""
    children = dict(base.children)
    for key, node in over.children.items():
        below = children.get(key)
        if key in Settings.model_fields and key not in list(Kind) and plain(node) is None:
            continue
        if key in list(Kind):
            below = None if _names_other(below, node, "engine") else _of_weights(below, node)
        children[key] = _merge(below, node)
    return Branch(over.origin, children)


def _merge(below: Node | None, node: Node) -> Node:
    if not isinstance(below, Branch) or not isinstance(node, Branch):
        return node
    children = dict(below.children)
    for key, child in node.children.items():
        children[key] = _merge(children.get(key), child)
    return Branch(node.origin, children)


def _names_other(below: Node | None, node: Node, key: str) -> bool:
    """Whether ``node`` sets ``key`` to a different value than ``below``."""
    if not isinstance(below, Branch) or not isinstance(node, Branch) or key not in node.children:
        return False
    found: Iterable[Node | None] = (branch.children.get(key) for branch in (below, node))
    was, now = (leaf.value if isinstance(leaf, Leaf) else None for leaf in found)
    return now != was and (now is not None or key == "weights")


def _of_weights(below: Node | None, node: Node) -> Node | None:
    """``below``, without what belongs to its weights if ``node`` sets others."""
    if not isinstance(below, Branch) or not _names_other(below, node, "weights"):
        return below
    kept = {key: leaf for key, leaf in below.children.items() if key not in OF_WEIGHTS}
    return Branch(below.origin, kept)


def _absolute_paths(tree: Branch) -> Branch:
    """Resolve paths in ``paths:``, ``server.tls:``, ``llm.adapters:`` and the options of engines
    from the file that contains them."""
    server = tree.children.get("server")
    tls = server.children.get("tls") if isinstance(server, Branch) else None
    of_paths = tree.children.get("paths"), tls
    for section in (*of_paths, *(tree.children.get(kind) for kind in Kind)):
        if not isinstance(section, Branch):
            continue
        for key, leaf in section.children.items():
            if not (isinstance(leaf, Leaf) and isinstance(leaf.value, str) and leaf.directory):
                continue
            if section in of_paths or (leaf.value and _is_path(section, key, leaf.value)):
                path = str(leaf.directory / os.path.expanduser(leaf.value))
                section.children[key] = Leaf(path, leaf.origin, leaf.directory)
    llm = tree.children.get(Kind.LLM)
    if isinstance(llm, Branch) and isinstance(adapters := llm.children.get("adapters"), Leaf):
        llm.children["adapters"] = _absolute_adapters(adapters)
    return tree


def _is_path(engine: Branch, key: str, value: str) -> bool:
    """Whether an engine's option is a path: not the name of a file of its weights, nor a URL."""
    if key in ("model_dir", "updates"):
        return "://" not in value
    alone = "weights" in engine.children and plain(engine.children["weights"]) is None
    return key in FILES and (alone or "/" in value or value.startswith("~"))


def _absolute_adapters(leaf: Leaf) -> Leaf:
    def absolute(adapter: Any) -> Any:
        if not isinstance(adapter, dict) or not isinstance(adapter.get("path"), str):
            return adapter  # not valid, as the check will say
        return {**adapter, "path": str(directory / os.path.expanduser(adapter["path"]))}

    directory = leaf.directory or Path()
    values = leaf.value if isinstance(leaf.value, list) else None
    return leaf if values is None else replace(leaf, value=[absolute(each) for each in values])
