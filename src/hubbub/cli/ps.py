"""`hubbub ps`: who is on the bus, as a node sees it that has just come and looked around.

Who is behind gateways is what they tell: nobody hears those nodes here.
"""

from collections.abc import Sequence
from typing import Any

import hubbub
from hubbub.cli.gateways import ARROW, FarNode, Gateways, far_fields, fields_of, side_lines
from hubbub.cli.looking import WAIT_S, Wait, Watch, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.screen import UNKNOWN, Column, Screen, table
from hubbub.cli.session import open_node
from hubbub.cli.terminal import plural, print_json
from hubbub.cli.times import show_uptime
from hubbub.statistics import PeerStatistics

_ID_DIGITS = 6
_COLUMNS = (
    Column("name", is_number=False),
    Column("id", is_number=False),
    Column("host", is_number=False),
    Column("pid"),
    Column("uptime"),
    Column("link", is_number=False),
    Column("address", is_number=False, is_optional=True),
    Column("heard"),
)


@on_the_bus
def ps(
    wait: Wait = WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show the nodes that are on the bus, here and behind gateways.

    Exits with 1 when there are none.
    """
    node = open_node(bus)
    look(node, wait, lambda node: _Look(node, watch, as_json).show, is_watching=watch)


class _Look:
    """Who is there, shown once or again and again; that nobody is, is said once."""

    def __init__(self, node: hubbub.Node, is_watching: bool, as_json: bool) -> None:
        self._node = node
        self._is_watching = is_watching
        self._as_json = as_json
        self._was_anybody = True
        self._gateways = Gateways(node)

    def show(self, screen: Screen) -> bool:
        """Show who is there now; False: nobody."""
        node, peers = self._node, _present(self._node)
        if not peers and self._was_anybody:
            screen.note(f"nobody else is in domain {node.domain} on {_channels(node)}")
        self._was_anybody = bool(peers)
        if self._as_json:
            print_json(self._as_fields(peers))
        elif peers or (self._is_watching and screen.is_terminal):
            self._show_tables(screen, [peer for _, peer in peers])
        return bool(peers)

    def _as_fields(self, peers: list[tuple[str, PeerStatistics]]) -> dict[str, Any]:
        return {
            "nodes": [_fields(channel, peer) for channel, peer in peers],
            "far": [far_fields(one) for one in self._gateways.far_nodes()],
            "gateways": [fields_of(one) for one in self._gateways],
        }

    def _show_tables(self, screen: Screen, peers: Sequence[PeerStatistics]) -> None:
        far = self._gateways.far_nodes()
        rows = [*map(_cells, peers), *map(_far_cells, far)]
        lines = table(_COLUMNS, rows, screen.width)
        if screen.is_terminal:
            lines.append(plural(len(rows), "node"))
        sides = side_lines(self._gateways, screen.width)
        screen.show([*lines, "", *sides] if sides else lines)


def _present(node: hubbub.Node) -> list[tuple[str, PeerStatistics]]:
    """List the nodes that are there, by name, each with its channel."""
    peers = [
        (channel.name, peer)
        for channel in node.statistics().channels
        for peer in channel.peers
        if peer.is_present
    ]
    return sorted(peers, key=lambda one: (one[1].name, one[1].id, one[0]))


def _channels(node: hubbub.Node) -> str:
    return ", ".join(channel.name for channel in node.channels)


def _cells(peer: PeerStatistics) -> tuple[str, ...]:
    return (
        peer.name,
        peer.id[:_ID_DIGITS],
        peer.host,
        str(peer.pid),
        show_uptime(peer.uptime_s),
        peer.link,
        peer.address,
        f"{peer.heard_ms_ago:,.0f} ms ago",
    )


def _far_cells(far: FarNode) -> tuple[str, ...]:
    node = far.node
    head = node.source.name, node.source.id.hex()[:_ID_DIGITS], node.host, str(node.pid)
    return (*head, UNKNOWN, ARROW.join(far.path), UNKNOWN, UNKNOWN)


def _fields(channel: str, peer: PeerStatistics) -> dict[str, Any]:
    return {
        "name": peer.name,
        "id": peer.id,
        "host": peer.host,
        "pid": peer.pid,
        "version": peer.version or None,
        "uptime_s": round(peer.uptime_s, 1),
        "index": peer.index,
        "link": peer.link,
        "address": peer.address,
        "channel": channel,
        "heard_ms_ago": round(peer.heard_ms_ago, 3),
    }
