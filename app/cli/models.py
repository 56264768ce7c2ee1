"""``reachy-voice models``: list, pull, verify, use, delta, apply, rm."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from app.cli.options import ConfigOption, JsonOption, OfflineOption, SetOption
from app.models.delta import Delta, apply, read_delta
from app.models.delta_making import make_delta
from app.models.download import Progress, Report, megabytes, sha256_of
from app.models.pull import pull as pull_weights
from app.models.updates import add_to_index, model_files
from app.models.weights import WeightsCache, open_cache
from app.server.control import ask, socket_path
from app.settings.load import load_settings
from app.settings.model import Settings
from pipeline.errors import WeightsError

app = typer.Typer(no_args_is_help=True, help="Fetch, check and delete the models' weights.")

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAMES]...", help="As in `models list`; default: those in use."),
]


@app.command("list")
def list_(
    config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Show the catalogue: size, licence, memory, and whether the weights are here."""
    settings = load_settings(config, overrides or ()).settings
    rows = catalogue_rows(open_cache(settings), settings)
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print_table(rows)


def catalogue_rows(cache: WeightsCache, settings: Settings) -> list[dict[str, Any]]:
    """One plain dict for each entry of the catalogue."""
    used = settings.weights()
    return [
        {
            "name": name,
            "kind": entry.kind,
            "state": cache.state(name),
            "used": name in used,
            "size_bytes": entry.size,
            "memory_mb": entry.memory_mb,
            "licence": entry.licence,
            "notice": entry.notice,
            "url": entry.url,
            "source": entry.source,
            "summary": entry.summary,
            "path": str(cache.home(name)),
        }
        for name, entry in cache.catalogue.entries.items()
    ]


def _print_table(rows: list[dict[str, Any]]) -> None:
    """Print plain text of any width: a narrow window must not truncate names."""
    table = [("", "NAME", "KIND", "STATE", "SIZE", "MEMORY", "LICENCE")]
    for row in rows:
        mark = "*" if row["used"] else ""
        size, memory = megabytes(row["size_bytes"]), f"{row['memory_mb']} MB"
        table.append((mark, row["name"], row["kind"], row["state"], size, memory, row["licence"]))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = [
            cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        typer.echo("  ".join(padded).rstrip())
    typer.echo("* used by these settings; --json has sources, notices and summaries too")


_NUMBERS = (4, 5)
"""Right-aligned columns."""


@app.command()
def pull(
    names: NamesArgument = None,
    offline: OfflineOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Fetch weights that are not here yet."""
    settings = load_settings(config, overrides or ()).settings
    cache = open_cache(settings)
    targets = names or settings.weights()
    new = pull_with_bars(cache, targets, offline=offline)
    here = f"{len(targets)} of {len(targets)} here, in {cache.directory / 'weights'}"
    typer.echo(f"Pulled {', '.join(new)}; {here}" if new else f"Nothing to do: {here}")


def pull_with_bars(cache: WeightsCache, names: list[str], *, offline: bool) -> list[str]:
    """``app.models.pull.pull`` with progress bars on standard error."""
    with progress_bars() as report:
        return pull_weights(cache, names, report, offline=offline)


@contextmanager
def progress_bars() -> Iterator[Report]:
    """Bars with bytes, speed and remaining time."""
    from rich import progress as bars
    from rich.table import Column

    def column() -> Column:
        return Column(no_wrap=True)

    with bars.Progress(
        bars.TextColumn("{task.description}", table_column=column()),
        bars.BarColumn(bar_width=12),
        bars.DownloadColumn(table_column=column()),
        bars.TransferSpeedColumn(table_column=column()),
        bars.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=Console(stderr=True),
    ) as display:
        tasks: dict[str, bars.TaskID] = {}

        def report(now: Progress) -> None:
            if now.label not in tasks:
                tasks[now.label] = display.add_task(now.label)
            display.update(tasks[now.label], completed=now.done, total=now.total)

        yield report


@app.command()
def verify(
    names: NamesArgument = None, config: ConfigOption = None, overrides: SetOption = None
) -> None:
    """Hash the weights that are here (or NAMES) and compare them with the catalogue."""
    settings = load_settings(config, overrides or ()).settings
    cache = open_cache(settings)
    here = [name for name in cache.catalogue.entries if cache.state(name) != "absent"]
    targets = names or here or settings.weights()
    wrong = {name: what for name, what in cache.verify(targets).items() if what}
    for name in targets:
        typer.echo(f"{name}: {wrong.get(name, 'OK')}")
    if wrong:
        raise WeightsError(
            f"{len(wrong)} of {len(targets)} weights are damaged or missing",
            why="; ".join(f"{name}: {what}" for name, what in wrong.items()),
            fix="Run: reachy-voice models rm {0} && reachy-voice models pull {0}".format(
                " ".join(wrong)
            ),
        )


@app.command()
def use(
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="ENGINE...",
            help="llm.threads=2, llm={engine: ...}, as for --set; or, shorter, tts=espeak-ng.",
        ),
    ],
    unload_first: Annotated[
        bool | None,
        typer.Option(
            "--unload-first/--beside", help="Default: beside the old engine if memory allows."
        ),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Replace engines of the server that runs on this machine; no client is disconnected."""
    settings = load_settings(config, overrides or ()).settings
    path = socket_path(settings.server.port, os.environ)
    ask(path, {"assignments": assignments, "unload_first": unload_first}, typer.echo)
    typer.echo("Done, until the server stops. To make it permanent, write it into your settings.")


_FILE: Any = {"exists": True, "dir_okay": False}


@app.command()
def delta(
    old: Annotated[
        Path, typer.Argument(help="The model that others have (safetensors, GGUF).", **_FILE)
    ],
    new: Annotated[Path, typer.Argument(help="The model that they shall have.", **_FILE)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the update.", dir_okay=False)
    ],
    licence: Annotated[str, typer.Option(help="Of the new model, e.g. Apache-2.0.")] = "",
    index: Annotated[
        Path | None,
        typer.Option(help="Add it to this list, for robots that follow a URL.", dir_okay=False),
    ] = None,
) -> None:
    """Write an update that contains only the weights that changed."""
    with progress_bars() as report:
        update = make_delta(old, new, out, licence, report)
    changes, items = update.changed
    size, whole = out.stat().st_size, new.stat().st_size
    typer.echo(f"{changes:,} of {items:,} weights changed ({100 * changes / max(1, items):.2f} %)")
    typer.echo(f"{megabytes(size)} instead of {megabytes(whole)} ({100 * size / whole:.2f} %)")
    if index is not None:
        add_to_index(index, update)


@app.command("apply")
def apply_(
    update: Annotated[Path, typer.Argument(metavar="DELTA", help="Made by `models delta`.")],
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The file to update; default: the one in use that it was made from.", **_FILE
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the new model there instead.", dir_okay=False),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Turn a model file into the new one, in one step; a failure leaves the old one as it was."""
    content = read_delta(update)
    if model is None:
        settings = load_settings(config, overrides or ()).settings
        cache = open_cache(settings)
        model = base_in_use(settings, cache, content)
        if out is None and model.is_relative_to(cache.directory):
            raise WeightsError(
                f"{model.name} belongs to the catalogue",
                why="there it would count as damaged",
                fix="Write the new model elsewhere with --out, and name it in llm.model_file",
            )
    with progress_bars() as report:
        apply(content, model, out, report)
    typer.echo(f"{out or model} is the new model, sha256 {content.info.result_sha256}")


def base_in_use(settings: Settings, cache: WeightsCache, update: Delta) -> Path:
    """The file of the engines that an update was made from. Raises ``WeightsError``."""
    files = [file.path for _, each in settings.engines() for file in model_files(each, cache)]
    for file in files:
        same_size = file.stat().st_size == update.info.base_bytes
        if same_size and sha256_of(file) == update.info.base_sha256:
            return file
    raise WeightsError(
        f"None of the models in use is the one that {update.path.name} was made from",
        why=f"that has {update.info.base_bytes:,} bytes, sha256 {update.info.base_sha256}",
        fix="Name the file after the delta",
    )


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(help="As in `models list`.")],
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Delete weights from the cache."""
    cache = open_cache(load_settings(config, overrides or ()).settings)
    typer.echo(f"{megabytes(cache.remove(names))} freed")
