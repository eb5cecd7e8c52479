"""Between a bus and a network of RODOS: which topics are wanted there, and what is for us.

RODOS nodes announce the topics they subscribe to (TOPIC_LIST, topic 1). We do the same for those
that the bus wants, and keep theirs: a list replaces the one before, so bits are cleared, too, and
who is silent for ten seconds has left. Each message says by that for whom it is: the receiver field
(-2 nobody, -1 many, else the index) and the bitmap; what nobody wants is not sent.

A message is known by sender, thread, time, topic and checksum, not by its time alone, as in RODOS:
there two of one tick are one. Lengths and indices are checked before anything is done with them.

With several links we are a router between them as well: what comes over one goes on over those that
the router chooses, with a hop less, as it is otherwise.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from hubbub.limits import RODOS_LIST_INTERVAL, RODOS_TIMEOUT
from hubbub.protocol.gateway.router import INTELLIGENT, Crossing, Router
from hubbub.wire import rodos
from hubbub.wire.header import MANY, NOBODY
from hubbub.wire.rodos import NetworkMessage, TopicList

_EVERYBODY: Final = 0xFFFF_FFFF
_OURS: Final = -1  # Not the number of a link: what goes out begins here.


class RodosNode(NamedTuple):
    """A node of RODOS, as it last announced itself."""

    number: int
    topics: frozenset[int]
    heard_ns: int


class RodosPort:
    """Our place in a network of RODOS, and the router between its links."""

    def __init__(
        self, number: int, topics: Iterable[int], *, is_flooding: bool = False,
        order: str = "little", links: int = 1, mode: str = INTELLIGENT,
    ) -> None:  # fmt: skip
        self.number = number
        self.index = number % rodos.NODES_MAX
        self.topics = frozenset(topics)  # That we know a subject of.
        self.is_flooding = is_flooding  # Send to all, whatever they announce.
        self.order = order
        self.nodes: dict[int, RodosNode] = {}  # By index.
        self.wanted: frozenset[int] = frozenset()  # Topics that the bus wants.
        self.drops: Counter[str] = Counter()
        self.list_ns = 0  # When to announce ourselves again.
        self._sent_ns = 0  # RODOS takes a message for a copy that is not newer than the last one.
        self.router = Router(range(links), mode=mode)
        self.onward: list[tuple[int, bytes]] = []  # What goes on, and over which link.

    # What goes out.

    def audience(self, topic: int) -> tuple[int, int]:
        """Return receiver field and bitmap of a topic."""
        if self.is_flooding:
            return MANY, _EVERYBODY
        bits = [index for index, node in self.nodes.items() if topic in node.topics]
        receiver = NOBODY if not bits else bits[0] if len(bits) == 1 else MANY
        return receiver, sum(1 << index for index in bits)

    def make(self, topic: int, payload: bytes, sent_ns: int) -> list[bytes]:
        """Make the datagrams of a message of the bus; none if nobody wants it.

        One that is too long becomes several, in order; whether that may be is the caller's choice.
        """
        receiver, bitmap = self.audience(topic)
        if not bitmap:
            self.drops["nobody"] += 1
            return []
        step = rodos.DATA_BYTES_MAX
        return [
            self._encode(receiver, bitmap, rodos.PUB_SUB, sent_ns, topic, payload[at : at + step])
            for at in range(0, len(payload) or 1, step)
        ]

    def links_of(self, now: int, topic: int) -> tuple[int, ...]:
        """Return the links over which a message of ours goes."""
        return self.router.route(now, Crossing(*self.audience(topic), rodos.HOPS), _OURS)

    def announce(self, now: int, sent_ns: int, wanted: Iterable[int]) -> bytes:
        """Make the list of the topics that the bus wants."""
        self.list_ns = now + RODOS_LIST_INTERVAL
        self.wanted = frozenset(wanted)
        listed = TopicList(self.number, self.index, tuple(sorted(self.wanted)))
        data = rodos.encode_list(listed, self.order)
        return self._encode(
            MANY, _EVERYBODY, rodos.TOPIC_LIST, sent_ns, rodos.LIST_TOPIC, data
        )  # fmt: skip

    def _encode(
        self, receiver: int, bitmap: int, kind: int, sent_ns: int, topic: int, data: bytes
    ) -> bytes:
        self._sent_ns = max(sent_ns, self._sent_ns + 1)
        return rodos.encode(
            NetworkMessage(
                receiver, bitmap, rodos.HOPS, kind, self.number, self._sent_ns, 0, topic,
                bytes(data),
            )
        )  # fmt: skip

    # What comes in.

    def take(self, now: int, datagram: bytes, link: int = 0) -> tuple[int, bytes] | None:
        """Take a datagram; return topic and payload of what is for the bus."""
        message = rodos.decode(datagram)
        if isinstance(message, str):
            self.drops[message] += 1
            return None
        reason = self._doubt(message, datagram)
        if not reason:
            self._pass_on(now, message, datagram, link)
            reason = self._refuse(message)
        if reason:
            self.drops[reason] += 1
            return None
        if message.kind == rodos.TOPIC_LIST:
            if not self._take_list(now, message, link):
                self.drops["list"] += 1
            return None
        return message.topic, message.data

    def _doubt(self, message: NetworkMessage, datagram: bytes) -> str:
        """Tell why a message is none that just came from a node of RODOS."""
        if message.sender == self.number:
            return "own"
        check = datagram[10:12]
        key = message.sender, message.thread, message.sent_ns, message.topic, check
        return "" if self.router.is_new(key) else "duplicate"

    def _refuse(self, message: NetworkMessage) -> str:
        if message.kind == rodos.TOPIC_LIST:
            return "" if message.topic == rodos.LIST_TOPIC else "list"
        if message.kind != rodos.PUB_SUB:
            return "kind"
        return "" if message.topic in self.topics else "unmapped"

    def _pass_on(self, now: int, message: NetworkMessage, datagram: bytes, link: int) -> None:
        """Let a message go on over other links."""
        if len(self.router.links) < 2:
            return
        for index in [i for i, node in self.nodes.items() if node.number == message.sender]:
            self.router.learn(now, index, link)
        receiver = NOBODY if message.receiver == self.index else message.receiver
        bitmap = message.bitmap & ~(1 << self.index)
        chosen = self.router.route(now, Crossing(receiver, bitmap, message.hops), link)
        passed = rodos.with_a_hop_less(datagram, message.hops)
        self.onward += [(other, passed) for other in chosen]

    def _take_list(self, now: int, message: NetworkMessage, link: int) -> bool:
        listed = rodos.decode_list(message.data, message.sender)
        if listed is None:
            return False
        for index in [i for i, node in self.nodes.items() if node.number == listed.node]:
            del self.nodes[index]
        self.nodes[listed.node_index] = RodosNode(listed.node, frozenset(listed.topics), now)
        self.router.learn(now, listed.node_index, link)
        if listed.node_index == self.index:
            self._move()
        return True

    def _move(self) -> None:
        """Take another index, for somebody else has ours; the next list tells."""
        free = [index for index in range(rodos.NODES_MAX) if index not in self.nodes]
        if free:
            self.index = free[0]
            self.list_ns = 0

    def expire(self, now: int) -> list[RodosNode]:
        """Forget who was silent for too long; return who that is."""
        silent = [i for i, node in self.nodes.items() if now - node.heard_ns > RODOS_TIMEOUT]
        return [self.nodes.pop(index) for index in silent]

    def is_wanted(self, topic: int) -> bool:
        """Tell whether anybody there wants a topic."""
        return self.audience(topic)[1] != 0
