"""``reachy-voice allow`` and ``key``: who may connect to a server that others can reach."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from app.access import Network, parse_network, shown_network
from app.access_file import AccessFile, AccessList, new_key
from app.commands.options import ConfigOption, SetOption
from app.settings_load import load_settings
from pipeline.errors import ReachyVoiceError

WIDE = {4: 16, 6: 48}
"""Prefix lengths; a shorter one is more than anybody's home network."""

app = typer.Typer(no_args_is_help=True, help="Make, list and remove API keys.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="For you, to tell keys apart.")]
AddressesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ADDRESS|NETWORK]...", help="192.168.1.7, 192.168.1.0/24, fd00::/8"),
]


class WrongAccess(ReachyVoiceError):
    """A mistake in what was typed."""

    exit_code = 2


def allow(
    addresses: AddressesArgument = None,
    show: Annotated[bool, typer.Option("--list", help="Show who is allowed.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the permission back.")] = False,
    note: Annotated[str, typer.Option("--note", help="Whose address it is.")] = "",
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Let machines connect without a key: the robot, for one. A running server knows at once."""
    settings = load_settings(config, overrides or ()).settings
    file = AccessFile(settings.paths.access(os.environ))
    networks = [_network(text) for text in addresses or ()]
    if not networks and not show:
        raise WrongAccess("Whom?", fix="reachy-voice allow 192.168.1.7, or: allow --list")
    if remove:
        _remove(file, networks)
    elif networks:
        file.change(lambda known: _with_all(known, networks, note))
        for network in networks:
            _welcome(network)
    if show:
        _show(file, settings.access.addresses)


def _network(text: str) -> Network:
    try:
        return parse_network(text)
    except ValueError as error:
        fix = "For a name, ask for its address first: getent hosts NAME"
        raise WrongAccess(f"{text!r} {error}", fix=fix) from None


def _with_all(known: AccessList, networks: list[Network], note: str) -> AccessList:
    for network in networks:
        known = known.with_address(network, note)
    return known


def _remove(file: AccessFile, networks: list[Network]) -> None:
    def edit(known: AccessList) -> AccessList:
        there = {entry.network for entry in known.addresses}
        for network in networks:
            if str(network) not in there:
                fix = "reachy-voice allow --list shows who is; the settings have a list, too"
                raise WrongAccess(f"{shown_network(network)} is not among the allowed", fix=fix)
            known = known.without_address(network)
        return known

    file.change(edit)
    for network in networks:
        typer.echo(f"{shown_network(network)} may no longer connect (an open connection goes on).")


def _welcome(network: Network) -> None:
    typer.echo(f"{shown_network(network)} may connect without a key.")
    if network.prefixlen < WIDE[network.version]:
        typer.echo(f"  Careful: these are {network.num_addresses:,} addresses.")


def _show(file: AccessFile, in_settings: tuple[str, ...]) -> None:
    entries = file.read().addresses
    for entry in entries:
        note = f"  {entry.note}" if entry.note else ""
        typer.echo(f"{shown_network(parse_network(entry.network)):<20} since {entry.added}{note}")
    for text in in_settings:
        typer.echo(f"{shown_network(parse_network(text)):<20} from the settings (access.addresses)")
    if not entries and not in_settings:
        typer.echo("Nobody. Programs on this machine need no permission.")


# --- keys --------------------------------------------------------------------------------------


@app.command()
def new(name: NameArgument, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Make an API key and show it, once. A running server knows it at once."""
    key = new_key()

    def edit(known: AccessList) -> AccessList:
        if name in {key.name for key in known.keys}:
            fix = f"Choose another name, or remove it first: reachy-voice key rm {name}"
            raise WrongAccess(f"There is a key called {name!r} already", fix=fix)
        return known.with_key(name, key)

    _file(config, overrides).change(edit)
    typer.echo(key)
    typer.echo("Keep it: it is not shown again. Clients send it as their OpenAI API key.", err=True)


@app.command("list")
def list_(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Show the names of the keys; the keys themselves are not kept."""
    keys = _file(config, overrides).read().keys
    for key in keys:
        typer.echo(f"{key.name:<20} since {key.created}")
    if not keys:
        typer.echo("There is none. To make one: reachy-voice key new NAME")


@app.command()
def rm(name: NameArgument, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Remove a key. Whoever uses it cannot connect again; an open connection goes on."""

    def edit(known: AccessList) -> AccessList:
        after = known.without_key(name)
        if after == known:
            fix = "reachy-voice key list shows which there are"
            raise WrongAccess(f"There is no key called {name!r}", fix=fix)
        return after

    _file(config, overrides).change(edit)
    typer.echo(f"The key {name!r} is of no use any more.")


def _file(config: str | None, overrides: list[str] | None) -> AccessFile:
    return AccessFile(load_settings(config, overrides or ()).settings.paths.access(os.environ))
