"""`hubbub routes`: the gateways of the bus, and whose topics they pass on to where."""

from typing import Any, Final

import msgspec
import typer

import hubbub
from hubbub.cli.looking import Wait, Watch, describe_place, look_again
from hubbub.cli.options import Domain, Interface, Json, Log, Peers
from hubbub.cli.screen import UNKNOWN, Column, Screen, duration, table, write_until_the_end
from hubbub.cli.session import open_node
from hubbub.cli.terminal import print_json, size
from hubbub.gateway.routes import ROUTES_PATTERN, Routes, RouteSide
from hubbub.limits import SECOND

_WAIT_S: Final = 1.5  # Gateways tell once a second.
_COLUMNS: Final = (
    Column("gateway", is_number=False),
    Column("to", is_number=False),
    Column("is", is_number=False),
    Column("nodes", is_optional=True),
    Column("from", is_number=False),
    Column("subject", is_number=False),
    Column("hops"),
    Column("messages"),
    Column("size", is_optional=True),
    Column("age"),
)


def routes(
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    domain: Domain = None,
    interface: Interface = None,
    peers: Peers = None,
    log: Log = None,
) -> None:
    """Show the gateways, near and far: their sides, and the topics that they pass on to each.

    Exits with 1 when there are none.
    """
    with open_node(domain, interface, log, peers) as node:
        heard: dict[str, Routes] = {}
        node.subscribe(ROUTES_PATTERN, lambda message: _take(heard, message), type=Routes)
        code = write_until_the_end(
            lambda: look_again(wait, watch, lambda screen: _show(node, heard, screen, as_json))
        )
    raise typer.Exit(code)


def _take(heard: dict[str, Routes], message: Any) -> None:
    heard[message.payload.gateway] = message.payload


def _show(node: hubbub.Node, heard: dict[str, Routes], screen: Screen, as_json: bool) -> bool:
    found = sorted(heard.values(), key=lambda one: (one.name, one.gateway))
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
    elif found:
        rows = [row for one in found for side in one.sides for row in _rows(one, side)]
        screen.show(table(_COLUMNS, rows, screen.width))
    else:
        screen.note(f"no gateway {describe_place(node)}")
    return bool(found)


def _rows(gateway: Routes, side: RouteSide) -> list[tuple[str, ...]]:
    state = "standby" if gateway.is_standby else "open" if side.is_open else "closed"
    head = gateway.name, side.name, state, str(side.nodes)
    if not side.routes:
        return [(*head, *(UNKNOWN for _ in range(len(_COLUMNS) - len(head))))]
    return [
        (
            *head, one.origin, one.subject, str(one.hops), f"{one.messages:,}", size(one.bytes),
            duration(one.age_s * SECOND),
        )
        for one in side.routes
    ]  # fmt: skip
