"""One side of a gateway: a core there, what its nodes want, and the topics passed on to them.

A topic of an origin elsewhere is published here under its own name and sequence: the declaration
says whose it is (decision 0028), everything else is as with topics of our own. So the gateway
repairs, paces and acknowledges for its side, and receivers need to know nothing of the way.

Invariant: a topic is passed on only while somebody here wants it. What is published meanwhile is
not heard by us, so a topic that was kept would show a hole to who comes later.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from hubbub.limits import (
    HOP_LIMIT,
    PORT_BYTES_MAX,
    PORT_DEPTH_BYTES,
    PORT_KEPT,
    RELAYED_SUBJECT_BYTES_MAX,
)
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.framing import CELLS, Framer
from hubbub.protocol.gateway.remap import Remap
from hubbub.protocol.gateway.waiting import Kept, Run, Waiting
from hubbub.protocol.gateway.wishes import Wishes, mark
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic
from hubbub.subjects import Matcher, overlap
from hubbub.wire.gateways import Beacon, encode_beacon
from hubbub.wire.header import BEACON, make_key

Name = tuple[bytes, str]  # The key of the origin, and what the gateway calls the subject.


class Passed:
    """A topic that is passed on, and the sequence of the next message of it."""

    __slots__ = ("bytes", "ends", "messages", "next", "since_ns", "topic")

    def __init__(self, topic: OutgoingTopic, now: int) -> None:
        self.topic = topic
        self.next = topic.next_sequence
        self.since_ns = now
        # Its origin is gone, and all of it is before these frames of each stream.
        self.ends: dict[int, int] | None = None
        self.messages = 0
        self.bytes = 0


class Port:
    """One core of a gateway.

    Subjects and patterns are what the gateway calls them (`remap`), but for those of its core, of
    what may cross (`only`), and of what goes first (`urgent`).
    """

    def __init__(
        self, name: str, core: Core, only: Iterable[str] = (), urgent: Iterable[str] = (),
        remap: Remap | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.core = core
        self.only = tuple(only)
        self.remap = remap
        self.is_open = True  # Else another gateway passes on to here.
        self.is_standby = False  # Then what it passes on is remembered, in case that it fails.
        self.patterns: frozenset[str] = frozenset()  # What nodes here want.
        self.reserve: frozenset[str] = frozenset()  # What others would pass on if one failed.
        self.asked: frozenset[str] = frozenset()  # What we want here, for nodes elsewhere,
        self.marked: frozenset[str] = frozenset()  # and which of it in reserve.
        self.passed: dict[Name, Passed] = {}
        self._ended: list[Passed] = []  # Nobody wants them any more, but not all has arrived.
        self.drops: Counter[str] = Counter()
        self.messages = 0  # That were passed on to here, in all.
        self.bytes = 0
        # Whether more may be published, given how long the next run has waited already.
        self.has_room: Callable[[Framer, int], bool] = has_room
        self._blocked_ns: int | None = None  # Since when it waits.
        self._wishes = Wishes()
        self._matcher: Matcher[None] = Matcher()
        self._reserve_matcher: Matcher[None] = Matcher()
        self._waiting = Waiting(urgent)
        self._kept = Kept()
        bucket = core.outgoing.bucket
        depth_bytes = PORT_DEPTH_BYTES if bucket is None else int(bucket.burst_bytes)
        self._depth_bytes = depth_bytes if tuple(urgent) else None
        self._given_bytes = 0  # Since nothing waited behind us.

    @property
    def is_waiting(self) -> bool:
        """Tell whether something waits to go out here."""
        return bool(self._waiting)

    @property
    def queued_bytes(self) -> int:
        """Return how much that is."""
        return self._waiting.size_bytes

    @property
    def is_listening(self) -> bool:
        """Tell whether what is published here is taken, to be passed on or remembered."""
        return self.is_open or self.is_standby

    def wants(self, subject: str) -> bool:
        """Tell whether a node here wants a subject."""
        return bool(self._matcher.match(subject))

    def lets(self, pattern: str) -> bool:
        """Tell whether something of a pattern, or a subject, may cross here."""
        return not self.only or any(overlap(pattern, one) for one in self.only)

    def take(self, delivery: Delivery) -> str | None:
        """Return what the gateway calls the subject of a run from here; None: it may not leave."""
        subject = delivery.topic.subject
        if not self.is_listening or not self.lets(subject):
            return None
        called = self._call(subject)
        if called is None:
            self.drops["remap"] += len(delivery.payloads)
        return called

    def _call(self, subject: str) -> str | None:
        return subject if self.remap is None else self.remap.out.subject(subject)

    def put(self, delivery: Delivery, hops: int, subject: str) -> None:
        """Queue a run of messages from another port, if it may and must come here."""
        is_wanted = self.wants(subject)
        if not is_wanted and not self._reserve_matcher.match(subject):
            return
        here = subject if self.remap is None else self.remap.into.subject(subject)
        if here is None:  # Another subject has the name that it would have.
            self.drops["remap"] += len(delivery.payloads)
            return
        if not self.lets(here):
            return
        run = Run(delivery, sum(map(len, delivery.payloads)), subject, here)
        reason = self._refuse(run, hops)
        if reason:
            self.drops[reason] += len(delivery.payloads)
        elif self.is_open and is_wanted:
            self._waiting.put(run)
        elif self.is_listening:
            self._kept.put(run)

    def _refuse(self, run: Run, hops: int) -> str:
        if hops > HOP_LIMIT:
            return "hops"
        if len(run.here.encode()) > RELAYED_SUBJECT_BYTES_MAX:
            return "subject"
        return "overflow" if self.queued_bytes + run.size_bytes > PORT_BYTES_MAX else ""

    # Under the lock of this core.

    def open(self, now: int) -> None:
        """Pass on to here from now on, beginning with what may be missing."""
        self.is_open, self.is_standby = True, False
        self._release(now, _match(["/..."]))

    def _release(self, now: int, chosen: Matcher[None]) -> None:
        """Let what is remembered of these subjects go out."""
        self._kept.forget(now + self.core.endpoint.wall_offset_ns - PORT_KEPT)
        for run in self._kept.take(lambda subject: bool(chosen.match(subject))):
            self._waiting.put(run)

    def close(self, now: int) -> None:
        """Leave it to another gateway; what is pending is still sent, and repaired."""
        self.is_open = False
        self.drops["closed"] += sum(len(run.delivery.payloads) for run in self._waiting)
        self._waiting.clear()
        self.sweep(now, set())

    def look(self, now: int, ignored: Collection[bytes] = (), kept: Collection[bytes] = ()) -> bool:
        """Look again what nodes here want, some gateways apart; True: that has changed.

        For some of these, `kept`, we keep what they want (`Wishes`).
        """
        wishes, peers = self._wishes, self.core.peers.values() if self.is_listening else ()
        # Also those who have not said who they are: they may be another life of one who had.
        wishes.look(now, (peer for peer in peers if peer.ends is None), ignored, kept)
        before = self.patterns, self.reserve
        self.patterns = self._called(wishes.real)
        # Who stands by hands on no wishes in reserve: they could come back to it in a circle.
        reserve = self._called(wishes.reserve) if self.is_open else frozenset()
        self.reserve = reserve - self.patterns
        is_changed = before != (self.patterns, self.reserve)
        if is_changed:
            self._matcher = _match(self.patterns)
            self._reserve_matcher = _match(self.reserve)
            for name in [one for one in self.passed if self.is_open and not self.wants(one[1])]:
                self._end(name)
            self._bury(now)
        if wishes.released and self.is_open:
            self._release(now, _match(self._called(wishes.released)))
        return is_changed

    def _called(self, patterns: Iterable[str]) -> frozenset[str]:
        """Return what the gateway calls patterns of here, as far as they may cross."""
        allowed = filter(self.lets, patterns)
        if self.remap is None:
            return frozenset(allowed)
        return frozenset(chain.from_iterable(map(self.remap.out.patterns, allowed)))

    def called_here(self, patterns: Iterable[str]) -> frozenset[str]:
        """Say by which patterns we have what others want, as far as it may leave."""
        if self.remap is not None:
            patterns = chain.from_iterable(map(self.remap.into.patterns, patterns))
        return frozenset(filter(self.lets, patterns))

    def ask(self, now: int, patterns: frozenset[str], marked: frozenset[str]) -> None:
        """Want just this from now on, for nodes elsewhere; what is marked only in reserve.

        A mark comes before what it is for, and goes after it: else others would pass that on.
        """
        core = self.core
        for pattern in sorted(marked - self.marked):
            core.subscribe(now, mark(pattern))
        for pattern in sorted(patterns - self.asked):
            core.subscribe(now, pattern)
        for pattern in sorted(self.asked - patterns):
            core.unsubscribe(now, pattern)
        for pattern in sorted(self.marked - marked):
            core.unsubscribe(now, mark(pattern))
        self.asked, self.marked = patterns, marked

    def heard(self, now: int) -> set[Name]:
        """Return all topics that nodes here publish, or gateways pass on to here."""
        return {
            (_key_of(topic), called)
            for peer in self.core.peers.values()
            for receiver in peer.incoming.values()
            for topic in receiver.topics.values()
            if (called := self._call(topic.subject)) is not None
        }

    def sweep(self, now: int, heard: set[Name]) -> None:
        """Forget topics that are heard nowhere else any more, once receivers have all of them."""
        outgoing = self.core.outgoing
        for name, passed in list(self.passed.items()):
            if name in heard:
                passed.ends = None
            elif passed.ends is None:
                passed.ends = outgoing.ends_of(passed.topic)
            elif outgoing.is_acknowledged(passed.ends):
                self._end(name)
        self._bury(now)

    def tell(self, now: int, beacon: Beacon) -> None:
        """Tell other gateways here where we are."""
        self.core.endpoint.send(None, BEACON, 0, encode_beacon(beacon))

    def crowd(self, now: int, *, is_crowded: bool) -> None:
        """Take in no more here, because another port is behind; or go on."""
        peers = list(self.core.peers.values())
        self.core.incoming.crowd(now, peers, is_crowded=is_crowded)

    def feed(self, now: int) -> bool:
        """Publish what waits, as far as there is room; True: something was."""
        waiting = self._waiting
        before = len(waiting)
        while waiting and not self._is_deep() and self._pass_on(now, waiting.first()):
            waiting.pop()
        return len(waiting) < before

    def _is_deep(self) -> bool:
        """Tell whether so much waits behind us already that what is urgent would come too late."""
        if self._depth_bytes is None:
            return False
        if not any(one.framer.has_work for one in self.core.outgoing.senders.values()):
            self._given_bytes = 0
        return self._given_bytes >= self._depth_bytes

    def _pass_on(self, now: int, run: Run) -> bool:
        """Publish a run; False: it must wait for room."""
        delivery, size_bytes, subject, here = run
        topic = delivery.topic
        assert isinstance(topic, IncomingTopic)
        name = _key_of(topic), subject
        passed = self.passed.get(name)
        if passed is None:
            if not self.wants(subject):
                return True
            passed = self.passed[name] = self._begin(now, topic, here, delivery.first)
        framer = self.core.outgoing.sender_of(passed.topic).framer
        waited_ns = 0 if self._blocked_ns is None else now - self._blocked_ns
        if not self.has_room(framer, waited_ns):
            self._blocked_ns = self._blocked_ns or now
            return False
        self._blocked_ns = None
        first, payloads, published_ns = delivery.first, delivery.payloads, delivery.published_ns
        if first < passed.next:  # It came by two ways.
            old = passed.next - first
            self.drops["duplicate"] += min(old, len(payloads))
            first, payloads, published_ns = passed.next, payloads[old:], published_ns[old:]
            size_bytes = sum(map(len, payloads))
        elif first > passed.next:
            if not _is_clear(framer, passed.topic):
                return False
            passed.topic.skip(first - passed.next)  # They are missing, and will be missed.
        passed.next = first + len(payloads)
        self._count(passed, len(payloads), size_bytes)
        _publish(framer, passed.topic, payloads, published_ns)
        return True

    def _count(self, passed: Passed, count: int, size_bytes: int) -> None:
        passed.messages += count
        passed.bytes += size_bytes
        self.messages += count
        self.bytes += size_bytes
        self._given_bytes += size_bytes

    def _begin(self, now: int, origin: IncomingTopic, subject: str, first: int) -> Passed:
        core = self.core
        topic = OutgoingTopic(
            core.outgoing.next_number(), subject, origin.source,
            is_reliable=origin.is_reliable, schema_name=origin.schema_name,
            schema_hash=origin.schema_hash, next_sequence=first, replayed_ns=origin.replayed_ns,
            hops=origin.hops + 1,
        )  # fmt: skip
        core.outgoing.enter(now, topic, core.membership.known_peers())
        if topic.subject not in core.state.topics:
            core.state.publish(topic)
            core.announce_topic(now, topic)
        return Passed(topic, now)

    def _end(self, name: Name) -> None:
        """Pass a topic on no more. Who wants it later gets another, and is told of no hole."""
        self._ended.append(self.passed.pop(name))

    def _bury(self, now: int) -> None:
        """Forget topics that have ended, once receivers have all of them."""
        outgoing = self.core.outgoing
        for passed in list(self._ended):
            if passed.ends is None:
                passed.ends = outgoing.ends_of(passed.topic)
            if passed.ends is not None and outgoing.is_acknowledged(passed.ends):
                self._ended.remove(passed)
                self._forget(now, passed.topic)

    def _forget(self, now: int, topic: OutgoingTopic) -> None:
        core, subject = self.core, topic.subject
        core.outgoing.remove(topic, core.membership.known_peers())
        if core.state.topics.get(subject) is topic:
            core.state.publish_no_more(topic)
            others = (one.topic for one in self.passed.values() if one.topic.subject == subject)
            other = next(others, None)
            if other is not None:
                core.state.publish(other)
            core.announce_topic(now, topic)


def _match(patterns: Iterable[str]) -> Matcher[None]:
    matcher: Matcher[None] = Matcher()
    for pattern in patterns:
        matcher.add(pattern, None)
    return matcher


def _key_of(topic: IncomingTopic) -> bytes:
    return make_key(topic.source.id, topic.source.incarnation)


def has_room(framer: Framer, waited_ns: int = 0) -> bool:
    """Tell whether more may be pending on a stream, as for who publishes."""
    return framer.has_room


def _is_clear(framer: Framer, topic: OutgoingTopic) -> bool:
    """Tell whether all messages of a topic that waited have their sequence."""
    return not (framer.count_pending(topic) or topic in framer.behind)


def _publish(
    framer: Framer, topic: OutgoingTopic, payloads: list[bytes], published_ns: Sequence[int]
) -> None:
    """Append a run to what is pending: by columns, for one by one costs four times as much."""
    if any(len(payload) > framer.message_bytes_max for payload in payloads):
        for payload, at_ns in zip(payloads, published_ns, strict=True):
            framer.add(topic, payload, at_ns)
        return
    cells: list[object] = [topic] * (CELLS * len(payloads))
    cells[1::CELLS] = payloads
    cells[2::CELLS] = published_ns
    framer.cells += cells
