"""`hubbub routes`: the gateways of the bus, and whose topics they pass on to where."""

from functools import partial
from typing import Final

import hubbub
from hubbub.cli.gateways import ROUTE_COLUMNS, Gateways, fields_of, route_rows
from hubbub.cli.looking import Wait, Watch, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.screen import Screen, table
from hubbub.cli.session import open_node
from hubbub.cli.terminal import print_json

_WAIT_S: Final = 1.5  # Gateways tell once a second.


@on_the_bus
def routes(
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show the gateways, their sides, and the topics they pass on.

    Exits with 1 when there are none.
    """
    node = open_node(bus)
    look(node, wait, lambda node: partial(_show, node, Gateways(node), as_json), is_watching=watch)


def _show(node: hubbub.Node, gateways: Gateways, as_json: bool, screen: Screen) -> bool:
    found = list(gateways)
    if as_json:
        print_json([fields_of(one) for one in found])
    elif found:
        screen.show(table(ROUTE_COLUMNS, route_rows(gateways), screen.width))
    else:
        screen.note(f"no gateway {describe_place(node)}")
    return bool(found)
