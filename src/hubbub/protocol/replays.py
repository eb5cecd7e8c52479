"""Sending history to those who ask for it: the kept messages once more, as a topic of their own.

A subscription that wants the history of a topic makes a request, and each publisher serves it once.
What it kept is sent under a new topic number that only the grant to that peer names: order, loss,
windows, large messages and references are those of any topic, nobody else takes it for anything,
and what is new goes on meanwhile. The sequences are the old ones, and the grant says where they
end, so that whoever asked can put the two together (`protocol/joining.py`).

Why not again under the number of the topic itself: a node may receive that already, for another
subscription which did not ask, and its order would be in the way.
"""

from collections.abc import Iterator
from typing import Final

from hubbub.limits import REPLAY_BYTES_AT_ONCE, REPLAY_MESSAGES_AT_ONCE, REPLAYS_PER_PEER_MAX
from hubbub.protocol.delivery import LOOPBACK, Delivery
from hubbub.protocol.framing import Framer
from hubbub.protocol.history import History
from hubbub.protocol.peers import Peer
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic, ReplayedTopic, Way
from hubbub.wire.control import Replayed
from hubbub.wire.wishes import name_by


def replay_own(topic: OutgoingTopic, request: int, count: int, received_ns: int) -> Delivery:
    """Make one delivery of the history of a topic, for a subscription of its own process."""
    messages = topic.history.newest(count) if topic.history is not None else []
    end = topic.next_sequence
    return Delivery(
        ReplayedTopic(0, topic, request, end, [], Way()), end - len(messages),
        [payload for payload, _ in messages], [time for _, time in messages], received_ns, LOOPBACK,
    )  # fmt: skip


def _history_of(topic: OutgoingTopic) -> History | None:
    """Return what is kept of a topic; a branch has the messages of its topic."""
    return (topic.live or topic).history


_FRAME_SHARE: Final = 4  # A quarter of what fills a frame may be history, however busy we are.


class Replay:
    """What one receiver gets of the history of one topic, for one request."""

    __slots__ = (
        "end_frame", "fed", "live", "messages", "request", "sender", "serial", "stated", "topic",
        "version",
    )  # fmt: skip

    def __init__(
        self, number: int, live: OutgoingTopic, peer: Peer, request: int, sender: Sender
    ) -> None:
        history = _history_of(live)
        assert history is not None
        messages = history.newest(peer.requests[request])
        end = live.next_sequence
        self.live = live
        self.request = request
        self.sender = sender  # It stays on this stream, wherever the topic goes meanwhile.
        self.topic = OutgoingTopic(
            number, live.subject, live.source, is_reliable=True, schema_name=live.schema_name,
            schema_hash=live.schema_hash, next_sequence=end - len(messages),
            replayed_ns=live.replayed_ns,
        )  # fmt: skip
        self.topic.is_declared = True  # By the grant, and to nobody else.
        self.topic.enlist(peer.index)
        first = end - len(messages)
        self.stated = Replayed(number, live.number, request, first, end, sender.stream)
        self.messages = iter(messages)
        self.fed = self.stated.first  # The first message that does not wait to be framed yet.
        self.serial = 0  # Of the grant that named it first,
        self.version = 0  # and the interest which that answered.
        self.end_frame: int | None = None  # With all frames before this one it is complete.

    @property
    def waiting(self) -> int:
        """Return how many messages wait to be framed."""
        return self.fed - self.topic.next_sequence

    def is_framed(self) -> bool:
        """Tell whether all of it is in frames."""
        return self.sender.framer.has_framed(self.topic, self.stated.end)


class Replays:
    """All replays of a channel that are under way."""

    def __init__(self, senders: dict[int, Sender], numbers: Iterator[int]) -> None:
        self.senders = senders
        self.numbers = numbers
        self.by_peer: dict[bytes, dict[int, Replay]] = {}
        self._feeding: list[Replay] = []  # Those with messages that do not wait to be sent yet.
        self.served = 0

    def of(self, peer: Peer) -> list[Replay]:
        """Return what is under way to a peer."""
        return list(self.by_peer.get(peer.key, {}).values())

    def reconsider(self, peer: Peer, wanted: set[int], topics: dict[int, OutgoingTopic]) -> None:
        """Begin what a peer has newly asked for, and end what it wants no longer."""
        served = peer.debt.served
        for request in [request for request in served if request not in peer.requests]:
            del served[request]
        for replay in self.of(peer):
            if replay.request not in peer.requests or replay.live.number not in wanted:
                self._end(peer, replay)
        if peer.requests:
            for number in sorted(wanted):
                self.join(peer, topics[number])

    def join(self, peer: Peer, topic: OutgoingTopic) -> None:
        """Serve each request of a peer for this topic, once."""
        history = _history_of(topic)
        for request in peer.asks.match(name_by(topic.subject, topic.wish)):
            served = peer.debt.served.setdefault(request, set())
            if topic.number not in served:
                served.add(topic.number)
                if history is not None and history.messages:
                    self._begin(peer, topic, request)

    def _begin(self, peer: Peer, topic: OutgoingTopic, request: int) -> None:
        under_way = self.by_peer.setdefault(peer.key, {})
        if len(under_way) >= REPLAYS_PER_PEER_MAX:
            return
        sender = self.senders[peer.debt.placed[topic.number][-1]]
        replay = Replay(next(self.numbers), topic, peer, request, sender)
        under_way[replay.topic.number] = replay
        self._feeding.append(replay)
        self.served += 1
        self.feed()

    def renumber(self, peer: Peer, old: int, new: int) -> None:
        """Let a peer have another index."""
        for replay in self.of(peer):
            replay.topic.renumber(old, new)

    def granted(self, peer: Peer) -> None:
        """Note which grant names the replays that are new."""
        for replay in self.of(peer):
            if not replay.serial:
                replay.serial, replay.version = peer.debt.serial, peer.debt.version

    def feed(self) -> None:
        """Let some more wait to be sent, if little does: what is new goes on beside it.

        Where much always does, at least some of the history is among it. So there is always
        something to send while a replay has more.
        """
        for sender in {replay.sender.stream: replay.sender for replay in self._feeding}.values():
            self._feed(sender.framer, [one for one in self._feeding if one.sender is sender])

    def _feed(self, framer: Framer, feeding: list[Replay]) -> None:
        count = REPLAY_MESSAGES_AT_ONCE - framer.pending_count
        room = REPLAY_BYTES_AT_ONCE - framer.large_bytes
        least = max(framer.batch_count // _FRAME_SHARE, 1)
        while feeding:
            replay = feeding[0]
            if (count <= 0 or room <= 0) and replay.waiting >= least:
                return
            message = next(replay.messages, None) if replay.topic.receivers else None
            if message is None:
                self._feeding.remove(feeding.pop(0))
                continue
            framer.add(replay.topic, *message)
            replay.fed += 1
            count -= 1
            room -= len(message[0])

    def streams_of(self, peer: Peer) -> set[int]:
        """Return the streams that carry something for a peer."""
        return {replay.sender.stream for replay in self.by_peer.get(peer.key, {}).values()}

    def settle(self, peer: Peer, stream: int, contiguous: int, serial: int) -> bool:
        """End what a peer has; True: it must be told again what it is owed.

        One that gave up frames has renewed its interest since. It may wait for what was in them.
        """
        must_tell = False
        for replay in [one for one in self.of(peer) if one.sender.stream == stream]:
            if replay.end_frame is None and replay.is_framed():
                replay.end_frame = replay.sender.next_sequence
            is_known = 0 < replay.serial <= serial
            if is_known and replay.end_frame is not None and contiguous >= replay.end_frame:
                self._end(peer, replay)
                must_tell = must_tell or peer.debt.version > replay.version
        return must_tell

    def forget(self, peer: Peer) -> None:
        """End all that is under way to a peer, and what it was served before."""
        for replay in self.of(peer):
            self._end(peer, replay)
        peer.debt.served.clear()

    def _end(self, peer: Peer, replay: Replay) -> None:
        replay.topic.dismiss(peer.index)  # What of it is not in a frame yet will not be.
        under_way = self.by_peer[peer.key]
        del under_way[replay.topic.number]
        if not under_way:
            del self.by_peer[peer.key]
