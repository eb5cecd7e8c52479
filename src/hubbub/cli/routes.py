"""`hubbub routes`: the gateways of the bus, and whose topics they pass on to where."""

from typing import Final

import typer

import hubbub
from hubbub.cli.gateways import ROUTE_COLUMNS, Gateways, fields_of, route_rows
from hubbub.cli.looking import Wait, Watch, describe_place, look_again
from hubbub.cli.options import Domain, Interface, Json, Log, Peers
from hubbub.cli.screen import Screen, table
from hubbub.cli.session import open_node
from hubbub.cli.terminal import print_json

_WAIT_S: Final = 1.5  # Gateways tell once a second.


def routes(
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    domain: Domain = None,
    interface: Interface = None,
    peers: Peers = None,
    log: Log = None,
) -> None:
    """Show the gateways, their sides, and the topics they pass on.

    Exits with 1 when there are none.
    """
    with open_node(domain, interface, log, peers) as node:
        gateways = Gateways(node)
        code = look_again(wait, watch, lambda screen: _show(node, gateways, screen, as_json))
    raise typer.Exit(code)


def _show(node: hubbub.Node, gateways: Gateways, screen: Screen, as_json: bool) -> bool:
    found = list(gateways)
    if as_json:
        print_json([fields_of(one) for one in found])
    elif found:
        screen.show(table(ROUTE_COLUMNS, route_rows(gateways), screen.width))
    else:
        screen.note(f"no gateway {describe_place(node)}")
    return bool(found)
