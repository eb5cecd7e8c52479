"""What the parts of a gateway share: what leaves, who has a turn when, what is counted."""

from collections import deque
from collections.abc import Callable
from typing import Any

from hubbub.limits import US
from hubbub.message import Source
from hubbub.protocol.burst import Burst
from hubbub.protocol.delivery import Handover
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.timetrigger.agenda import Agenda, Timed
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.protocol.timetrigger.passing import Discarded, GatewayTally
from hubbub.protocol.timetrigger.reports import Reports
from hubbub.protocol.timetrigger.watch import Watch
from hubbub.wire.header import finish
from hubbub.wire.wishes import Links


class Office:
    """The means of one gateway."""

    def __init__(self, endpoint: Endpoint, peers: dict[bytes, Peer], body_bytes_max: int) -> None:
        self.endpoint = endpoint
        self.peers = peers
        self.node = endpoint.identity.id
        self.body_bytes_max = body_bytes_max
        self.is_stateless = False
        self.components: dict[int, Any] = {}  # By port.
        self.names: dict[int, str] = {}  # Subjects of types, as others call them.
        self.link_to: Callable[[Peer, Links], str] = lambda peer, links: ""  # As for messages.
        self.trace: Callable[[Discarded], None] | None = None  # Of samples that are not taken.
        self.watch: Watch | None = None
        self.tally = GatewayTally()
        self.reports = Reports(endpoint, self.source_of, self.plan)
        self.agenda = Agenda()
        self.out: deque[Burst] = deque()
        self.due_ns = NEVER

    def plan(self, item: Timed) -> None:
        """Give an item a turn when it is due."""
        self.agenda.plan(item)
        if item.due_ns < self.due_ns:
            self.due_ns = item.due_ns

    def send_all(self, kind: int, body: bytes) -> None:
        """Send a frame to everybody."""
        self.tally.sent += 1
        self.endpoint.send(None, kind, 0, body)

    def send(self, now: int, destination: Any, kind: int, body: bytes) -> None:
        """Send a frame to some."""
        self.tally.sent += 1
        endpoint = self.endpoint
        shared = endpoint.make_prefix(kind, 0, 0)
        frame = finish(shared, 0, next(endpoint.packets), now // US & 0xFFFF_FFFF, body)
        self.out.append(Burst(destination, [frame, body], 0))

    def hand(self, taker: Callable[[Any], None], value: Any) -> None:
        """Hand something to a component, where no lock is held."""
        self.endpoint.events.append(Handover([taker], [value]))

    def source_of(self, node: bytes) -> Source:
        """Say who a node is, as far as we know it."""
        if node == self.node:
            return self.endpoint.source
        for key, peer in self.peers.items():
            if key.startswith(node):
                return peer.source
        return Source("", node, 0)
