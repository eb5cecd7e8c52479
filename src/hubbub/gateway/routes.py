"""What gateways tell about themselves on the bus, for who asks: `hubbub routes` shows it.

Each publishes on a subject of its own on all its networks, once a second while somebody subscribes;
nothing is made otherwise. Like any message it crosses other gateways, so one sees all of them.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from hubbub.gateway.statistics import GatewayStatistics, PassedTopic
from hubbub.limits import ROUTES_TOLD_MAX
from hubbub.node import Node

ROUTES_PATTERN: Final = "/hubbub/routes/*"


class Route(msgspec.Struct, frozen=True):
    """A topic that is passed on to a side."""

    origin: str
    origin_id: str
    subject: str
    hops: int
    messages: int
    bytes: int
    receivers: int
    age_s: float


class RouteSide(msgspec.Struct, frozen=True):
    """A side of a gateway; `untold` topics are left out."""

    name: str
    is_open: bool
    nodes: int
    messages: int
    routes: list[Route]
    untold: int


class Routes(msgspec.Struct, frozen=True):
    """All of one gateway."""

    gateway: str
    name: str
    is_standby: bool
    sides: list[RouteSide]


class Teller:
    """Publishes the routes of a gateway by its nodes."""

    def __init__(self, gateway_id: str, nodes: tuple[Node, ...]) -> None:
        self._id = gateway_id
        subject = ROUTES_PATTERN.replace("*", gateway_id)
        self._publishers = [node.publisher(subject, type=Routes, reliable=False) for node in nodes]

    def tell(self, describe: Callable[[], GatewayStatistics]) -> None:
        """Tell those who subscribe; nobody: do nothing."""
        if any(publisher.receivers for publisher in self._publishers):
            told = _make(self._id, describe())
            for publisher in self._publishers:
                publisher.publish(told)


def _make(gateway_id: str, statistics: GatewayStatistics) -> Routes:
    sides = [
        RouteSide(
            port.name, port.is_open, port.nodes, port.messages,
            [_make_route(topic) for topic in port.topics[:ROUTES_TOLD_MAX]],
            max(len(port.topics) - ROUTES_TOLD_MAX, 0),
        )
        for port in statistics.ports
    ]  # fmt: skip
    return Routes(gateway_id, statistics.name, statistics.is_standby, sides)


def _make_route(topic: PassedTopic) -> Route:
    return Route(
        topic.origin.name, topic.origin.id.hex(), topic.subject, topic.hops, topic.messages,
        topic.bytes, topic.receivers, topic.age_s,
    )  # fmt: skip
