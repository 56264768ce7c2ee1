"""``reachy-voice allow`` and ``key``: who may connect to a server that others can reach."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from app.access.file import AccessFile, AccessList, WrongAccess, new_key
from app.access.policy import Network, parse_address, parse_network, shown_network
from app.cli.options import ConfigOption, SetOption
from app.settings.load import load_settings
from app.settings.model import Settings

WIDE = {4: 16, 6: 48}
"""Prefix lengths; a shorter prefix is larger than a home network."""

app = typer.Typer(no_args_is_help=True, help="Make, list and remove API keys.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="For you, to tell keys apart.")]
AddressesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ADDRESS|NETWORK]...", help="192.168.1.7, 192.168.1.0/24, fd00::/8"),
]


def allow(
    addresses: AddressesArgument = None,
    show: Annotated[bool, typer.Option("--list", help="Show who is allowed.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Revoke the permission.")] = False,
    note: Annotated[str | None, typer.Option("--note", help="Whose address it is.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Let machines connect without a key: the robot, for one. A running server notices at once."""
    settings = load_settings(config, overrides or ()).settings
    file = AccessFile(settings.paths.access(os.environ))
    texts = list(addresses or ())
    networks = [_network(text) for text in texts]
    if not networks and (remove or not show):
        raise WrongAccess("Whom?", fix="reachy-voice allow 192.168.1.7, or: allow --list")
    if note and not note.isprintable():
        raise WrongAccess(f"The note {note!r} cannot be shown", fix="Use one line of plain text")
    if remove:
        _remove(file, networks, settings)
    elif networks:
        file.change(lambda access: _with_all(access, networks, note))
        for text, network in zip(texts, networks, strict=True):
            _welcome(text, network)
    if show:
        _show(file, settings.access.addresses)


def _network(text: str) -> Network:
    try:
        return parse_network(text)
    except ValueError as error:
        fix = "For a name, ask for its address first: getent hosts NAME"
        raise WrongAccess(f"{text!r} {error}", fix=fix) from None


def _with_all(access: AccessList, networks: list[Network], note: str | None) -> AccessList:
    for network in networks:
        access = access.with_address(network, note)
    return access


def _remove(file: AccessFile, networks: list[Network], settings: Settings) -> None:
    def edit(access: AccessList) -> AccessList:
        there = {entry.network for entry in access.addresses}
        for network in networks:
            if str(network) not in there:
                fix = "reachy-voice allow --list shows the list; the settings have one, too"
                why = "; ".join(_ways_left(network, access, settings))
                what = f"{shown_network(network)} is not on the list"
                raise WrongAccess(what, why=why, fix=fix)
            access = access.without_address(network)
        return access

    access_list = file.change(edit)
    for network in networks:
        name = shown_network(network)
        if ways := _ways_left(network, access_list, settings):
            typer.echo(f"{name} was removed, but may still connect without a key:")
            for way in ways:
                typer.echo(f"  {way}")
        else:
            typer.echo(f"{name} may no longer connect (an open connection stays).")


def _ways_left(network: Network, access: AccessList, settings: Settings) -> list[str]:
    """Rules that still admit addresses of ``network``."""
    networks = [(other, "") for other in access.networks()]
    networks += [(parse_network(text), " (access.addresses)") for text in settings.access.addresses]
    ways = []
    for other, where in networks:
        if other.version == network.version and other.overlaps(network):
            part = "" if _within(network, other) else ", which is a part of it"
            ways.append(f"{shown_network(other)} is allowed{where}{part}")
    if settings.trusts_loopback and network.is_loopback:
        ways.append("programs on this machine need no key (access.loopback)")
    return ways


def _within(inner: Network, outer: Network) -> bool:
    return inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def _welcome(text: str, network: Network) -> None:
    """``typed`` is what ``network`` was written as."""
    typer.echo(f"{shown_network(network)} may connect without a key.")
    if network.num_addresses > 1:
        careful = "Careful: these" if network.prefixlen < WIDE[network.version] else "These"
        first, last = network.network_address, network.broadcast_address
        typer.echo(f"  {careful} are {network.num_addresses:,} addresses, {first} to {last}.")
        single = parse_address(text.strip().partition("/")[0])
        if single is not None and single != first:
            instead = f"reachy-voice allow {single}, and allow --remove {network}"
            typer.echo(f"  If you meant {single} alone: {instead}")


def _show(file: AccessFile, in_settings: tuple[str, ...]) -> None:
    entries = file.read().addresses
    for entry in entries:
        note = f"  {_plain(entry.note)}" if entry.note else ""
        typer.echo(f"{shown_network(parse_network(entry.network)):<20} since {entry.added}{note}")
    for text in in_settings:
        typer.echo(f"{shown_network(parse_network(text)):<20} from the settings (access.addresses)")
    if not entries and not in_settings:
        typer.echo("None. Programs on this machine need no permission.")


def _plain(text: str) -> str:
    """On one line, whatever the file contains."""
    return text if text.isprintable() else ascii(text)


# --- keys --------------------------------------------------------------------------------------


@app.command()
def new(
    name: NameArgument,
    admin: Annotated[bool, typer.Option("--admin", help="The key also opens the console.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Make an API key and show it once. A running server accepts it at once."""
    key = new_key(name)
    _file(config, overrides).change(lambda access: access.with_key(name, key, admin=admin))
    typer.echo(key)
    typer.echo("Keep it: it is not shown again. Clients send it as their OpenAI API key.", err=True)


@app.command("list")
def list_(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Show the names of the keys; the keys themselves are not stored."""
    keys = _file(config, overrides).read().keys
    for key in keys:
        admin = ", also for the console" if key.admin else ""
        typer.echo(f"{_plain(key.name):<20} since {key.created}{admin}")
    if not keys:
        typer.echo("There is no key. To make one: reachy-voice key new NAME")


@app.command()
def rm(name: NameArgument, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Remove a key. Its users cannot connect again; an open connection stays."""
    _file(config, overrides).change(lambda access: access.without_key(name))
    typer.echo(f"The key {name!r} is no longer valid.")


def _file(config: str | None, overrides: list[str] | None) -> AccessFile:
    return AccessFile(load_settings(config, overrides or ()).settings.paths.access(os.environ))
