"""What is known of services, as frozen snapshots: the tools print these and nothing else."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubbub.links.datagram import DatagramStatistics
from hubbub.links.listening import address_text
from hubbub.protocol.rendezvous.manager import describe

if TYPE_CHECKING:
    from hubbub.runtime.service_driver import ServiceDriver


@dataclass(frozen=True, slots=True)
class SubscribedService:
    """A service that this node has subscribed to."""

    name: str
    key: str
    manager: str
    epoch: int
    is_confirmed: bool
    received: int


@dataclass(frozen=True, slots=True)
class ManagedService:
    """A service that this node manages, is to manage if others die, or has handed over."""

    name: str
    key: str
    role: str
    epoch: int
    messages: int
    subscribers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownMember:
    """Another node that shares services."""

    id: str
    address: str
    state: str
    is_settled: bool


@dataclass(frozen=True, slots=True)
class FoundService:
    """A service of the bus, as its manager tells of it."""

    name: str
    key: str
    manager: str
    address: str
    epoch: int
    messages: int
    subscribers: int
    role: str
    """What this node is to it: guest, managing, copy, subscribed, or several of them."""


@dataclass(frozen=True, slots=True)
class ServiceNode:
    """A node of a service; its name and address are empty where they are not known."""

    id: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class ListedService:
    """A service of the bus, and who is in it; of more than 1,024 subscribers, so many."""

    service: FoundService
    manager: ServiceNode
    subscribers: tuple[ServiceNode, ...]


@dataclass(frozen=True, slots=True)
class RingMember:
    """A node that shares services, and the part of them that falls to it."""

    id: str
    address: str
    state: str
    is_settled: bool
    share: float


@dataclass(frozen=True, slots=True)
class ServicesStatistics:
    """The three lists of a node, and what was counted."""

    subscribed: tuple[SubscribedService, ...]
    managed: tuple[ManagedService, ...]
    members: tuple[KnownMember, ...]
    counters: dict[str, int]
    drops: dict[str, int]
    link: DatagramStatistics


def describe_services(driver: "ServiceDriver") -> ServicesStatistics:
    """Take the snapshot of a node's services; under their lock."""
    machine = driver.machine
    return ServicesStatistics(
        subscribed=tuple(
            SubscribedService(
                one.name, one.key.hex(), one.manager.hex(), one.epoch, one.is_confirmed,
                one.delivered,
            )
            for one in machine.client.subscribed.values()
        ),
        managed=tuple(
            ManagedService(
                one.name, one.key.hex(), one.role.value, one.epoch, describe(one).messages,
                tuple(sorted(line.node.hex() for line in one.listing)),
            )
            for one in machine.manager.services.values()
        ),
        members=tuple(
            KnownMember(
                one.node.hex(), address_text(one.place), one.state.name.lower(), one.is_settled
            )
            for one in machine.view.members.values()
        ),
        counters=dict(machine.seat.counters),
        drops=dict(machine.seat.drops),
        link=driver.link.statistics(),
    )  # fmt: skip
