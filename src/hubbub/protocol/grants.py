"""What receivers are owed: granted, not assumed (decision 0002).

A receiver that sees message 11 before 10 cannot know whether 10 is late, lost, or from before it
was counted in. So a publisher answers each interest with a GRANT that says from which frame and
from which message on it owes what, and repeats it until a STATUS answers. Topics that begin later
are declared in their first frame, which every granted receiver gets; only a new stream needs a new
grant.
"""

from collections.abc import Callable, Iterable

from hubbub.limits import GRANT_INTERVAL, GRANT_INTERVAL_CEILING, STRAIGHT_CALM, US
from hubbub.protocol.burst import Address, Pipes
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.replays import Replays
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import Grant, GrantedStream, Replayed, Topic
from hubbub.wire.header import RELIABLE

_GRANT_OVERHEAD_BYTES = 128
_REPLAYED_BYTES = 40


def _nothing() -> None:
    """Let nobody know."""


class Grants:
    """Keeps the debts of one channel and tells the receivers of them."""

    def __init__(
        self,
        senders: dict[int, Sender],
        topics: dict[int, OutgoingTopic],
        body_bytes_max: int,
        send: Callable[[Peer, bytes], None],
        endpoint: Endpoint,
        replays: Replays,
    ) -> None:
        self.senders = senders
        self.topics = topics
        self.body_bytes_max = body_bytes_max
        self.send = send
        self.endpoint = endpoint
        self.replays = replays
        # These never start anew, also not for a peer that was forgotten and remembers us.
        self.serial = 0
        self.debts = 0
        self.from_frames: dict[bytes, dict[int, int]] = {}  # Peer -> stream -> first owed frame.
        self._peers: dict[bytes, Peer] = {}  # The same peers.
        self._crowded: set[int] = set()  # Streams with several receivers.
        self.on_interest: Callable[[], None] = _nothing  # What anybody wants has changed.
        self._calm_ns: dict[int, int] = {}  # When those with one again may go straight to it.

    def reconsider(self, now: int, peer: Peer) -> None:
        """Compare what a peer wants with what we publish, and grant the difference."""
        self.on_interest()
        debt = peer.debt
        wanted = {number for number, topic in self.topics.items() if self._is_for(topic, peer)}
        for number in [number for number in debt.owed if number not in wanted]:
            self._end(peer, number)
        for number in wanted - debt.owed.keys():
            self._begin(now, peer, self.topics[number])
        self.replays.reconsider(peer, wanted, self.topics)
        self._leave_streams(peer)
        if debt.owed or peer.key in self.from_frames or debt.version:
            self._schedule(now, peer)

    def add_topic(self, now: int, topic: OutgoingTopic, peers: Iterable[Peer]) -> None:
        """Begin to owe a new topic to those who want it."""
        for peer in peers:
            if self._is_for(topic, peer):
                is_new_stream = self._begin(now, peer, topic)
                self.replays.join(peer, topic)
                # The frame that declares a best-effort topic may be lost for good.
                if is_new_stream or not topic.is_reliable:
                    self._schedule(now, peer)

    def _is_for(self, topic: OutgoingTopic, peer: Peer) -> bool:
        return not peer.is_nearby and bool(peer.interest.match(topic.subject))

    def end_topic(self, topic: OutgoingTopic, peers: Iterable[Peer]) -> None:
        """Stop owing a topic that is no longer published."""
        for peer in peers:
            if topic.number in peer.debt.owed:
                self._end(peer, topic.number)
                self._leave_streams(peer)

    def forget(self, peer: Peer) -> None:
        """End the whole debt to a peer."""
        self.on_interest()
        for number in list(peer.debt.owed):
            self._end(peer, number)
        self.replays.forget(peer)
        self._leave_streams(peer)
        peer.debt.due_ns = None

    def renew(self, now: int, peer: Peer) -> None:
        """Begin anew with a peer that has forgotten what it was owed."""
        self.forget(peer)
        peer.debt.number = 0
        peer.debt.has_begun = False
        self.reconsider(now, peer)

    def acknowledge(self, peer: Peer, nonce: int) -> None:
        """Take in that a peer knows its grant."""
        debt = peer.debt
        debt.has_begun = True
        if nonce >= debt.serial:
            debt.due_ns = None

    def repeat(self, now: int, peer: Peer) -> None:
        """Tell a peer anew what it is owed."""
        self._schedule(now, peer)

    def resend(self, now: int, peer: Peer) -> None:
        """Send the grant to a peer, and plan the next time."""
        debt = peer.debt
        for body in self._bodies(peer):
            self.send(peer, body)
        debt.due_ns = now + debt.interval_ns
        debt.interval_ns = min(2 * debt.interval_ns, GRANT_INTERVAL_CEILING)

    def _schedule(self, now: int, peer: Peer) -> None:
        debt = peer.debt
        if not debt.number:
            self.debts += 1
            debt.number = self.debts
        self.serial += 1
        debt.serial = self.serial
        debt.version = peer.interest_version
        debt.interval_ns = GRANT_INTERVAL
        debt.due_ns = now
        self.replays.granted(peer)

    def _begin(self, now: int, peer: Peer, topic: OutgoingTopic) -> bool:
        stream = topic.stream
        sender = self.senders[stream]
        peer.debt.owed[topic.number] = topic.next_sequence
        topic.enlist(peer.index)
        streams = self.from_frames.setdefault(peer.key, {})
        if stream in streams:
            return False
        streams[stream] = sender.next_sequence
        self._peers[peer.key] = peer
        self.reroute(stream)
        if sender.flow is not None:
            sender.flow.add(peer.key, now, sender.next_sequence, sender.position, peer.window_bytes)
        return True

    def _end(self, peer: Peer, number: int) -> None:
        del peer.debt.owed[number]
        topic = self.topics.get(number)
        if topic is not None:
            topic.dismiss(peer.index)
            assert topic.receivers >= 0

    def renumber(self, peer: Peer, index: int) -> None:
        """Take in which index a peer has now: it is a receiver under that from now on."""
        old, peer.index = peer.index, index
        for number in peer.debt.owed:
            self.topics[number].renumber(old, index)
        self.replays.renumber(peer, old, index)

    def _leave_streams(self, peer: Peer) -> None:
        """Take a peer out of the streams that no longer carry anything for it."""
        streams = self.from_frames.get(peer.key, {})
        needed = {self.topics[number].stream for number in peer.debt.owed if number in self.topics}
        for stream in [stream for stream in streams if stream not in needed]:
            del streams[stream]
            self.reroute(stream)
            sender = self.senders[stream]
            if sender.flow is not None:
                sender.flow.remove(peer.key, sender.next_sequence)
                sender.acknowledged()
        if not streams:
            self.from_frames.pop(peer.key, None)
            self._peers.pop(peer.key, None)

    def reroute(self, stream: int) -> None:
        """Choose the way of new frames: pipes, straight to the only receiver, or the group."""
        keys = [key for key, streams in self.from_frames.items() if stream in streams]
        straight = self._find_straight(stream, keys)
        route = self.endpoint.ways.route(keys, self.endpoint.behind)
        self.senders[stream].framer.take_route(route, straight)

    def _find_straight(self, stream: int, keys: list[bytes]) -> Address | None:
        """Return the address of the only receiver; None: there are more, or were just now."""
        now = self.endpoint.now
        if len(keys) > 1:
            self._crowded.add(stream)
        elif stream in self._crowded:
            self._crowded.discard(stream)
            self._calm_ns[stream] = now + STRAIGHT_CALM
        if len(keys) != 1 or now < self._calm_ns.get(stream, 0):
            return None
        address = self._peers[keys[0]].address
        return None if isinstance(address, Pipes) else address

    def follow(self, peer: Peer) -> None:
        """Send what goes straight to a peer to its new address."""
        for stream in self.from_frames.get(peer.key, ()):
            self.reroute(stream)

    def advance(self, now: int) -> None:
        """Go straight to receivers that have been the only one for long enough."""
        for stream in [stream for stream, at_ns in self._calm_ns.items() if now >= at_ns]:
            del self._calm_ns[stream]
            self.reroute(stream)

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        return min(self._calm_ns.values(), default=None)

    def _bodies(self, peer: Peer) -> list[bytes]:
        parts = self._split(peer)
        streams = [
            GrantedStream(
                stream,
                self.from_frames.get(peer.key, {}).get(stream, 0),
                len(sender.flow.receivers) if sender.flow is not None else 1,
                stream in self.from_frames.get(peer.key, {}),
            )
            for stream, sender in self.senders.items()
        ]
        flow = self.senders[RELIABLE].flow
        assert flow is not None
        return [
            control.encode(
                Grant(
                    peer.key,
                    peer.debt.number,
                    peer.debt.has_begun,
                    peer.debt.version,
                    part,
                    len(parts),
                    flow.grtt_ns // US,
                    streams,
                    topics,
                    peer.debt.serial,
                    replays,
                )
            )
            for part, (topics, replays) in enumerate(parts)
        ]

    def _split(self, peer: Peer) -> list[tuple[list[Topic], list[Replayed]]]:
        """Split the owed topics, and what is replayed of them, into lists that fit a frame each."""
        full = self.body_bytes_max - _GRANT_OVERHEAD_BYTES
        parts, room = self._split_topics(peer, full)
        for replay in self.replays.of(peer):
            if room < _REPLAYED_BYTES:
                parts.append(([], []))
                room = full
            room -= _REPLAYED_BYTES
            parts[-1][1].append(replay.stated)
        return parts

    def _split_topics(
        self, peer: Peer, full: int
    ) -> tuple[list[tuple[list[Topic], list[Replayed]]], int]:
        parts: list[tuple[list[Topic], list[Replayed]]] = [([], [])]
        room = full
        for number, first in peer.debt.owed.items():
            topic = self.topics[number]
            size = topic.declared_bytes
            if size > room and parts[-1][0]:
                parts.append(([], []))
                room = full
            room -= size
            parts[-1][0].append(topic.declare(first))
        return parts, room
