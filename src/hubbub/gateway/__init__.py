"""Gateways: nodes on several networks that pass on what is wanted beyond.

What they decide is in `protocol/gateway`; here are their nodes, their options and their counters.
They need the node and its channels, and open no socket themselves.
"""

from hubbub.gateway.gateway import Gateway
from hubbub.gateway.side import Side, open_side, read_side
from hubbub.gateway.statistics import GatewayStatistics, PassedTopic, PortStatistics

__all__ = [
    "Gateway",
    "GatewayStatistics",
    "PassedTopic",
    "PortStatistics",
    "Side",
    "open_side",
    "read_side",
]
