"""What gateways tell about themselves on the bus, for who asks: `routes`, `ps`, `info` show it.

Each publishes on a subject of its own on all its networks, at once when somebody subscribes and
then once a second; nothing is made otherwise. Like any message it crosses other gateways, so one
sees all of them.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from hubbub.gateway.statistics import GatewayStatistics, PortStatistics
from hubbub.limits import ROUTES_NAMES_MAX, ROUTES_TELL, ROUTES_TOLD_MAX
from hubbub.node import Node

ROUTES_PATTERN: Final = "/hubbub/routes/*"


class Teller:
    """Publishes what a gateway does, by its nodes."""

    def __init__(self, gateway_id: str, nodes: tuple[Node, ...]) -> None:
        subject = ROUTES_PATTERN.replace("*", gateway_id)
        self._publishers = [
            node.publisher(subject, type=GatewayStatistics, reliable=False) for node in nodes
        ]
        self._receivers = 0
        self._tell_ns = 0

    def tell(self, now: int, describe: Callable[[], GatewayStatistics]) -> None:
        """Tell those who subscribe, if it is time to, or there are more of them than before."""
        receivers = sum(publisher.receivers for publisher in self._publishers)
        is_due = now >= self._tell_ns or receivers > self._receivers
        self._receivers = receivers
        if not receivers or not is_due:
            return
        self._tell_ns = now + ROUTES_TELL
        described = describe()
        told = replace(described, ports=tuple(map(_shorten, described.ports)))
        for publisher in self._publishers:
            publisher.publish(told)


def _shorten(port: PortStatistics) -> PortStatistics:
    """Leave out what would make it too long."""
    nodes, topics = port.nodes[:ROUTES_TOLD_MAX], port.topics[:ROUTES_TOLD_MAX]
    untold = len(port.nodes) - len(nodes) + len(port.topics) - len(topics)
    left, named = ROUTES_NAMES_MAX, []
    for node in nodes:
        publishes = node.publishes[:left]
        wants = node.wants[: left - len(publishes)]
        left -= len(publishes) + len(wants)
        untold += len(node.publishes) - len(publishes) + len(node.wants) - len(wants)
        named.append(replace(node, publishes=publishes, wants=wants))
    return replace(port, wanted=(), asked=(), nodes=tuple(named), topics=topics, untold=untold)
