"""Gateways: nodes on several networks that pass on what is wanted beyond.

What they decide is in `protocol/gateway`; here are their nodes, their options and their counters.
They need the node and its channels; only the one to RODOS opens a socket of its own.
"""

from hubbub.gateway.gateway import Gateway
from hubbub.gateway.reading import read_side
from hubbub.gateway.rodos import RodosGateway, RodosLink, RodosStatistics, open_links
from hubbub.gateway.side import Side, open_side
from hubbub.gateway.statistics import (
    GatewayStatistics,
    PassedTopic,
    PortStatistics,
    PresentNode,
)

__all__ = [
    "Gateway",
    "GatewayStatistics",
    "PassedTopic",
    "PortStatistics",
    "PresentNode",
    "RodosGateway",
    "RodosLink",
    "RodosStatistics",
    "Side",
    "open_links",
    "open_side",
    "read_side",
]
