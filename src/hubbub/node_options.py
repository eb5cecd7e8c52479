"""What a node was opened with, once it is checked: its channels and services look it up here."""

from dataclasses import dataclass
from typing import Any

from hubbub.links.dialling import HostAndPort
from hubbub.links.faults import Faults
from hubbub.links.listening import ListenAt
from hubbub.links.tcp_options import TcpOptions
from hubbub.service_options import ServiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """How a node is on its channels, as `hubbub.open` describes it."""

    interface: str | None
    loopback: bool
    links: tuple[str, ...]
    best_effort_links: tuple[str, ...]
    """What best effort keeps to that has no links of its own; none: any will do."""
    peers: tuple[HostAndPort, ...]
    listen: ListenAt
    tcp: TcpOptions
    registration: str
    faults: Faults | None
    link_options: dict[str, Any]
    delivery_threads_max: int
    switch_interval_ms: float | None
    spin_us: float
    services: ServiceOptions
    is_finding: bool
    """Connect by TCP also to nodes that nobody named, but others tell of."""
