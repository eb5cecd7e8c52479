"""Who took a message: publishers that want to know wait until STATUS says so, or for a given time.

A receipt is open until every receiver of its message has all frames up to it. While one is, frames
ask for STATUS at once instead of waiting for the interval. A receiver that does not answer in time
is waited for no more until it is heard of again, by HELLO or HEARTBEAT, so one that is stopped or
dead costs the time once.
"""

from hubbub.events import SlowConsumer
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.framing import Payload
from hubbub.protocol.peers import Peer
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire.header import BESIDE

UNACKNOWLEDGED = "unacknowledged"


class Receipt:
    """The answers to one message."""

    __slots__ = ("awaited", "is_done", "sequence", "taken", "targets", "topic")

    def __init__(self, topic: OutgoingTopic, sequence: int) -> None:
        self.topic = topic
        self.sequence = sequence
        # By stream: who has all frames before this one has the message. None: it is not framed yet.
        self.targets: dict[int, int | None] = {}
        self.awaited: dict[bytes, tuple[int, ...]] = {}  # By which streams each gets it.
        self.taken = 0
        self.is_done = False


class Receipts:
    """All receipts of a channel that are open."""

    def __init__(
        self, endpoint: Endpoint, senders: dict[int, Sender], peers: dict[bytes, Peer]
    ) -> None:
        self.endpoint = endpoint
        self.senders = senders
        self.peers = peers
        self.open: list[Receipt] = []
        self.skipped: set[bytes] = set()

    def publish(self, topic: OutgoingTopic, payload: Payload, published_ns: int) -> Receipt:
        """Publish a message, to be sent at once, and open the receipt for it."""
        framer = self.senders[topic.stream].framer
        framer.add(topic, payload, published_ns)
        framer.hold_until_ns = 0
        receipt = Receipt(topic, topic.next_sequence + framer.count_pending(topic) - 1)
        self.open.append(receipt)
        self._await()
        return receipt

    def _await(self) -> None:
        """Let frames ask for answers while somebody waits for them."""
        for sender in self.senders.values():
            if sender.flow is not None:
                sender.is_awaited = bool(self.open)

    def look(self) -> None:
        """See who has what by now."""
        for receipt in self.open:
            if not receipt.is_done:
                self._look_at(receipt)
        self.open = [receipt for receipt in self.open if not receipt.is_done]
        self._await()

    def _look_at(self, receipt: Receipt) -> None:
        topic = receipt.topic
        if not receipt.targets:
            home = self.senders[topic.stream]
            if topic.next_sequence <= receipt.sequence or topic in home.framer.behind:
                return  # Not in a frame yet, or not all of it.
            others = [BESIDE[topic.stream]] if topic.stream in BESIDE else []
            others += [branch.stream for branch in topic.branches.values()]
            receipt.targets = dict.fromkeys(others) | {topic.stream: home.next_sequence}
            receipt.awaited = {
                key: self._streams_to(peer, topic)
                for key, peer in self.peers.items()
                if self._owes(peer, topic)
            }
        self._look_at_copies(receipt)
        for key, streams in list(receipt.awaited.items()):
            answers = [self._has_taken(key, stream, receipt) for stream in streams]
            if any(answers) or all(answer is None for answer in answers):
                receipt.taken += any(answers)
                del receipt.awaited[key]
        receipt.is_done = not receipt.awaited

    def _look_at_copies(self, receipt: Receipt) -> None:
        """See which other streams have framed the message by now."""
        topic = receipt.topic
        copies = {BESIDE[topic.stream]: topic.copy} if topic.stream in BESIDE else {}
        copies |= {branch.stream: branch.copy for branch in topic.branches.values()}
        for stream, copy in copies.items():
            sender = self.senders[stream]
            is_framed = copy is None or sender.framer.has_framed(copy, receipt.sequence + 1)
            if receipt.targets.get(stream, 0) is None and is_framed:
                receipt.targets[stream] = sender.next_sequence

    @staticmethod
    def _streams_to(peer: Peer, topic: OutgoingTopic) -> tuple[int, ...]:
        """Return all streams by which a peer gets a topic."""
        numbers = [topic.number, *(branch.number for branch in topic.branches.values())]
        placed = peer.debt.placed
        return tuple(stream for number in numbers for stream in placed.get(number, ()))

    def _has_taken(self, key: bytes, stream: int, receipt: Receipt) -> bool | None:
        """Tell whether somebody has said that it has it by a stream; None: it never will."""
        flow = self.senders[stream].flow
        state = None if flow is None else flow.receivers.get(key)
        if state is None or state.is_lost:
            return None
        target = receipt.targets[stream]
        return target is not None and state.contiguous >= target

    def _owes(self, peer: Peer, topic: OutgoingTopic) -> bool:
        is_owed = peer.is_present and not peer.is_nearby and peer.gets(topic)
        return is_owed and peer.key not in self.skipped

    def close(self, receipt: Receipt) -> int:
        """Wait no longer; return how many took the message. Who did not is skipped from now on."""
        self.look()
        self.skipped &= self.peers.keys()
        for key in sorted(receipt.awaited):
            peer = self.peers.get(key)
            if peer is not None and key not in self.skipped:
                self.skipped.add(key)
                self.endpoint.counters[UNACKNOWLEDGED] += 1
                self.endpoint.events.append(
                    SlowConsumer(self.endpoint.channel, UNACKNOWLEDGED, 0, peer=peer.source)
                )
        receipt.is_done = True
        self.look()
        return receipt.taken

    def welcome(self, peer: Peer) -> None:
        """Wait for a receiver again that has announced itself."""
        self.skipped.discard(peer.key)
