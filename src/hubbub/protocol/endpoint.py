"""What the machines of one channel share: who we are, what goes out, what is counted."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from hubbub.events import Event, GapAbandoned
from hubbub.limits import US
from hubbub.message import Source
from hubbub.protocol.audience import ANYBODY, Audience
from hubbub.protocol.burst import Address, Burst, Straight
from hubbub.protocol.delivery import INPROC, LOCAL, MULTICAST, TCP, Delivery, Handover
from hubbub.protocol.receiver import resolve_nothing
from hubbub.protocol.settings import Settings
from hubbub.protocol.ways import Ways
from hubbub.wire.header import Prefix, finish, make_key, prefix
from hubbub.wire.wishes import Links


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is; `incarnation` is new at every start."""

    name: str
    id: bytes
    incarnation: int
    host: str
    pid: int
    domain: str
    release: str = ""  # The version of Hubbub.

    @property
    def source(self) -> Source:
        """Return the identity as messages carry it."""
        return Source(self.name, self.id, self.incarnation)


def hash_domain(domain: str) -> int:
    """Return the number under which a domain's frames travel."""
    return int.from_bytes(sha256(domain.encode()).digest()[:4], "big")


class Endpoint:
    """One node on one channel."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        channel: str,
        random: Random,
        packets: Iterator[int],
    ) -> None:
        self.identity = identity
        self.key = make_key(identity.id, identity.incarnation)
        self.source = identity.source
        self.domain = hash_domain(identity.domain)
        self.settings = settings
        self.channel = channel
        self.random = random
        self.packets = packets
        self.now = 0
        self.link = MULTICAST  # By which the frame under way came,
        self.came_from: Address = ()  # and from where.
        self.links: Links = (INPROC, LOCAL, MULTICAST, TCP)  # That this node has.
        self.datagram_port = 0  # Where it takes datagrams, for those whom no group tells; 0: none.
        self.wall_offset_ns = 0  # Wall clock minus monotonic clock, kept by the shell.
        # Makes payloads of the references of a peer; the shell knows how.
        self.resolve: Callable[[bytes, list[bytes]], list[Any] | None] = resolve_nothing
        self.ways = Ways()
        self.pipes = self.ways.best  # Open ones, by the key of the other end.
        self.behind: Collection[bytes] = ()  # Who takes nothing for now: fresh frames pass it by.
        self.nearby: Collection[bytes] = ()  # Nodes of this process, served without any frame.
        self.control: deque[Burst] = deque()
        self.deliveries: list[Delivery] = []
        self.events: list[Event | Handover] = []
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # What peers sent and we did not take, by reason.

    @property
    def is_straight(self) -> bool:
        """Tell whether the frame under way came by UDP to us alone."""
        return isinstance(self.came_from, Straight)

    def is_probed_by(self, key: bytes) -> bool:
        """Tell whether what came straight from a node says nothing of the group.

        Who is connected by TCP may send datagrams where the group does not reach.
        """
        return self.is_straight and bool(self.ways.host_of(key))

    @property
    def received_ns(self) -> int:
        """Return the wall clock."""
        return self.now + self.wall_offset_ns

    def make_prefix(
        self, kind: int, flags: int, stream: int, audience: Audience = ANYBODY
    ) -> Prefix:
        """Pack the part of a header that many frames share."""
        return prefix(
            kind, flags | audience.flags, stream, self.domain, self.key, self.settings.hop_limit,
            audience.receiver, audience.bitmap,
        )  # fmt: skip

    def send(
        self, destination: Address | None, kind: int, stream: int, body: bytes, flags: int = 0
    ) -> None:
        """Queue a control frame; without a destination it is for all."""
        if destination is None:
            destination = self.ways.everybody
        shared = self.make_prefix(kind, flags, stream)
        sent_us = self.now // US & 0xFFFF_FFFF
        frame = finish(shared, 0, next(self.packets), sent_us, body)
        self.control.append(Burst(destination, [frame, body], 0))

    def report_gap(
        self, publisher: Source, subject: str | None, first: int, last: int, reason: str
    ) -> None:
        """Report a hole, once."""
        self.counters["gaps"] += 1
        self.events.append(GapAbandoned(self.channel, publisher, subject, first, last, reason))
