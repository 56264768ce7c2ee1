"""A profile that does not exist is said before anything is fetched."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from setup_steps.failures import SETTINGS, SetupError


def require_config(root: Path, config: str) -> None:
    """A name or a path as ``app.settings.load.resolve`` takes it. Raises ``SetupError``."""
    if "/" in config or config.endswith((".yaml", ".yml")):
        if not Path(config).expanduser().is_file():
            what, why = "there are no settings to read", f"{config} does not exist"
            raise SetupError(SETTINGS, what, why, "Check the path")
        return
    names = ["default", *sorted(path.stem for path in root.glob("config/profiles/*.yaml"))]
    if config and config not in names:
        near = get_close_matches(config, names, n=1)
        fix = f"Did you mean {near[0]}?" if near else "A file is given with its .yaml ending"
        why = f"known are: {', '.join(names)}"
        raise SetupError(SETTINGS, f"there is no profile called {config!r}", why, fix)
