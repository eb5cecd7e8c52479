"""What commands show of gateways: what they told, who is behind them, and by which way."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import hubbub
from hubbub.cli.screen import UNKNOWN, Column, duration, table
from hubbub.cli.terminal import size
from hubbub.gateway.routes import ROUTES_PATTERN
from hubbub.gateway.statistics import GatewayStatistics, PassedTopic, PortStatistics, PresentNode
from hubbub.limits import SECOND

ARROW: Final = " > "
ROUTE_COLUMNS: Final = (
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
_SIDE_COLUMNS: Final = (
    *ROUTE_COLUMNS[:4],
    *(Column(title) for title in ("messages", "size", "waiting", "dropped")),
)


class FarNode(NamedTuple):
    """A node behind gateways, and which ones, the nearest first."""

    node: PresentNode
    path: tuple[str, ...]


class Gateways:
    """The gateways, near and far, as they tell of themselves."""

    def __init__(self, node: hubbub.Node) -> None:
        self._own = node.identity.source
        self._heard: dict[str, GatewayStatistics] = {}
        node.subscribe(ROUTES_PATTERN, self._take, type=GatewayStatistics)

    def _take(self, message: Any) -> None:
        self._heard[message.payload.id] = message.payload

    def __iter__(self) -> Iterator[GatewayStatistics]:
        return iter(sorted(self._heard.values(), key=lambda one: (one.name, one.id)))

    def far_nodes(self) -> list[FarNode]:
        """Return who is behind gateways, each with the shortest way to it."""
        gateways = [one for one in self if not one.is_standby]
        ours = {port.source for one in self for port in one.ports}
        found: dict[hubbub.Source, FarNode] = {}
        reached = set[str]()
        ways: list[tuple[hubbub.Source, tuple[str, ...]]] = [(self._own, ())]
        while ways:
            near, path = ways.pop(0)
            for gateway in gateways:
                if gateway.id in reached or _port_beside(gateway, near) is None:
                    continue
                reached.add(gateway.id)
                way = (*path, gateway.name)
                for port in _ports_beyond(gateway, near):
                    ways.append((port.source, way))
                    for node in port.nodes:
                        if node.source not in ours and node.source != self._own:
                            found.setdefault(node.source, FarNode(node, way))
        return list(found.values())


def _port_beside(gateway: GatewayStatistics, near: hubbub.Source) -> PortStatistics | None:
    """Return the port of a gateway that is on the same network as a node."""
    return next(
        (port for port in gateway.ports if any(near == one.source for one in port.nodes)), None
    )


def _ports_beyond(gateway: GatewayStatistics, near: hubbub.Source) -> list[PortStatistics]:
    beside = _port_beside(gateway, near)
    return [port for port in gateway.ports if port is not beside]


def state_of(gateway: GatewayStatistics, port: PortStatistics) -> str:
    """Say in a word what a side does."""
    return "standby" if gateway.is_standby else "open" if port.is_open else "closed"


def side_lines(gateways: Gateways, width: int | None) -> list[str]:
    """Lay out what each side of each gateway did."""
    rows = [
        (
            one.name, port.name, state_of(one, port), str(len(port.nodes)), f"{port.messages:,}",
            size(port.bytes), size(port.queued_bytes), f"{sum(port.drops.values()):,}",
        )
        for one in gateways
        for port in one.ports
    ]  # fmt: skip
    return table(_SIDE_COLUMNS, rows, width) if rows else []


def route_rows(gateways: Gateways, subject: str | None = None) -> list[tuple[str, ...]]:
    """List the topics that gateways pass on, all or those of one subject."""
    return [
        row for one in gateways for port in one.ports for row in _route_rows(one, port, subject)
    ]


def _route_rows(
    gateway: GatewayStatistics, port: PortStatistics, subject: str | None
) -> Iterator[tuple[str, ...]]:
    head = gateway.name, port.name, state_of(gateway, port), str(len(port.nodes))
    if subject is None and not port.topics:
        yield (*head, *(UNKNOWN for _ in range(len(ROUTE_COLUMNS) - len(head))))
    for topic in port.topics:
        if subject in (None, topic.subject):
            yield (*head, *_topic_cells(topic))


def _topic_cells(topic: PassedTopic) -> tuple[str, ...]:
    return (
        topic.origin.name, topic.subject, str(topic.hops), f"{topic.messages:,}",
        size(topic.bytes), duration(topic.age_s * SECOND),
    )  # fmt: skip


def fields_of(gateway: GatewayStatistics) -> dict[str, Any]:
    """Write what a gateway told for JSON."""
    return {
        "name": gateway.name, "id": gateway.id, "is_standby": gateway.is_standby,
        "sides": [
            {
                "name": port.name, "is_open": port.is_open, "messages": port.messages,
                "bytes": port.bytes, "queued_bytes": port.queued_bytes, "drops": port.drops,
                "nodes": [node_fields(one) for one in port.nodes],
                "topics": [topic_fields(one) for one in port.topics], "untold": port.untold,
            }
            for port in gateway.ports
        ],
    }  # fmt: skip


def node_fields(node: PresentNode) -> dict[str, Any]:
    """Write a node for JSON."""
    return {
        "name": node.source.name, "id": node.source.id.hex(), "host": node.host, "pid": node.pid,
    }  # fmt: skip


def far_fields(far: FarNode) -> dict[str, Any]:
    """Write a node behind gateways for JSON."""
    return {**node_fields(far.node), "path": list(far.path)}


def topic_fields(topic: PassedTopic) -> dict[str, Any]:
    """Write a topic that is passed on for JSON."""
    return {
        "origin": topic.origin.name, "origin_id": topic.origin.id.hex(), "subject": topic.subject,
        "hops": topic.hops, "messages": topic.messages, "bytes": topic.bytes,
        "receivers": topic.receivers, "age_s": round(topic.age_s, 3),
    }  # fmt: skip
