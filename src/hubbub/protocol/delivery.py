"""What the core hands to the application: runs of messages in order, not single messages."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, Protocol

from hubbub.message import Passage, Source

MULTICAST: Final = "multicast"
LOCAL: Final = "local"
TCP: Final = "tcp"
DATAGRAM: Final = "datagram"
LOOPBACK: Final = "loopback"
INPROC: Final = "inproc"
SERVICES: Final = "services"


make_passage: Final = lru_cache(1024)(Passage)


class DeliveredTopic(Protocol):
    """What a delivery says of its topic; `sinks` is the node's cache of who gets it.

    A topic with a `request` carries history, for the subscription that made the request alone.
    """

    subject: str
    source: Source
    schema_name: str
    schema_hash: int
    replayed_ns: int
    sinks: tuple[Any, ...]
    generation: int

    @property
    def request(self) -> int:
        """Return the request for history that this topic answers; 0: it is an ordinary one."""
        ...


class Delivery(NamedTuple):
    """Consecutive messages of one topic, in order."""

    topic: DeliveredTopic
    first: int
    payloads: list[bytes]
    published_ns: Sequence[int]
    received_ns: int
    link: Passage | str  # Only the link, or also for whom the frame was.


new_delivery: Final[Callable[[Any], Delivery]] = partial(tuple.__new__, Delivery)


class Handover(NamedTuple):
    """Something for components of this node, each of it to be handed to each, without a lock."""

    takers: list[Callable[[Any], None]]
    values: list[Any]

    def run(self) -> None:
        """Hand all of it over."""
        for value in self.values:
            for taker in self.takers:
                taker(value)
