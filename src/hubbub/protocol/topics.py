"""HOT. Topics, of ours and of our peers: where messages get their sequence and their order.

A topic is (sender incarnation, subject). Delivery is ordered by topic sequence alone: a run is
handed out when its first sequence is the expected one, whatever other frames of its stream are
still missing. A run that comes early waits. It stops waiting when what it waits for can no longer
come: because every frame before its own is settled. No timer decides order.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hubbub.limits import LOST_RUNS_MAX, ORIGIN_NAME_BYTES_MAX
from hubbub.message import Source
from hubbub.protocol.audience import NO_AUDIENCE, Roll
from hubbub.protocol.delivery import MULTICAST, DeliveredTopic, Delivery, make_passage
from hubbub.protocol.history import History
from hubbub.wire.control import Topic
from hubbub.wire.header import BEST_EFFORT, MANY, RELIABLE, make_key
from hubbub.wire.wishes import Links, encode_links, framed, stream_by

_DECLARED_BYTES = 48  # Of a declaration, beside its texts,
_ORIGIN_BYTES = 32  # and of its origin.

Waiting = tuple[int, list[bytes], Sequence[int]]
Sides = tuple[bool, ...]  # By which streams of its class somebody gets a topic: is it the other?
MAIN: Final[Sides] = (False,)


class OutgoingTopic:
    """A topic that this node publishes; publishers are handles to it.

    With `hops` it is one that a gateway passes on for its source, which is somebody else.
    """

    __slots__ = (
        "__weakref__", "_roll", "_takers", "addressed", "audience", "branches", "copy", "forks",
        "generation", "history", "hops", "is_declared", "is_reliable", "links", "listeners", "live",
        "nearby", "next_sequence", "number", "publishers", "receivers", "replayed_ns",
        "schema_hash", "schema_name", "sinks", "source", "stream", "subject", "takers", "ways",
        "wish",
    )  # fmt: skip
    request = 0

    def __init__(
        self,
        number: int,
        subject: str,
        source: Source,
        *,
        is_reliable: bool,
        schema_name: str = "",
        schema_hash: int = 0,
        next_sequence: int = 1,
        history: int = 0,
        replayed_ns: int = 0,
        hops: int = 0,
        links: Links = (),
    ) -> None:
        self.number = number
        self.subject = subject
        self.source = source
        self.hops = hops  # Gateways that its messages have crossed, this one included.
        self.is_reliable = is_reliable
        self.links = links  # That it keeps to, in order of preference; none: any will do,
        cls = RELIABLE if is_reliable else BEST_EFFORT
        self.ways = framed(links, cls)  # and those of them that its frames take.
        # Which stream it is published on; the one beside that may carry it, too.
        self.stream = stream_by(cls, self.ways) if self.ways else cls
        # The same messages for subscriptions that insist on links, as topics of their own
        # (protocol/branches.py), and the framers of their streams.
        self.branches: dict[Links, OutgoingTopic] = {}
        self.forks: tuple[tuple[Any, OutgoingTopic], ...] = ()
        self.wish: Links = ()  # Of the subscriptions that it is for, if it is a branch
        self.live: OutgoingTopic | None = None  # of this topic.
        self.schema_name = schema_name
        self.schema_hash = schema_hash
        self.replayed_ns = replayed_ns  # When its recording began to be played; 0: it is none.
        self.next_sequence = next_sequence
        self.publishers = 0  # Handles that are open; without one it is not declared.
        self.history = History(history) if history else None
        self.receivers = 0  # Peers that are owed this topic,
        self.audience = NO_AUDIENCE  # and as headers say it.
        self._roll = Roll()
        # Those of them who get it by the stream that this topic is framed for, and the same for the
        # stream beside that, while somebody gets it there: a copy of the topic, framed as it is.
        self.takers = 0
        self.addressed = NO_AUDIENCE
        self._takers = Roll()
        self.copy: OutgoingTopic | None = None
        self.is_declared = False  # Whether a frame has named it since the last newcomer.
        self.sinks: tuple[Any, ...] = ()  # Subscriptions of this process, kept by the node,
        self.nearby = 0  # of so many other nodes,
        self.listeners = 0  # and of so many with our own.
        self.generation = -1

    def enlist(self, index: int, sides: Sides = MAIN) -> None:
        """Count in a receiver that has this index, and gets it on these sides."""
        self.count_in(index)
        for side in sides:
            self.serve(index, side)

    def dismiss(self, index: int, sides: Sides = MAIN) -> None:
        """Count out a receiver that has this index."""
        self.count_out(index)
        for side in sides:
            self.serve_no_more(index, side)

    def count_in(self, index: int) -> None:
        """Count in a receiver, however it gets it."""
        self._roll.add(index)
        self._call_the_roll()

    def count_out(self, index: int) -> None:
        """Count out a receiver, however it got it."""
        self._roll.remove(index)
        self._call_the_roll()

    def renumber(self, old: int, new: int, sides: Sides = MAIN) -> None:
        """Let a receiver have another index."""
        self.count_out(old)
        self.count_in(new)
        self.readdress(old, new, sides)

    def readdress(self, old: int, new: int, sides: Sides = MAIN) -> None:
        """Send to a receiver under another index."""
        for side in sides:
            self.serve(new, side)
            self.serve_no_more(old, side)

    def serve(self, index: int, is_beside: bool) -> None:
        """Let a receiver get it on this side, too."""
        if is_beside:
            if self.copy is None:
                self.copy = self._make_copy()
            self.copy.enlist(index)
        else:
            self._takers.add(index)
            self._call_takers()

    def serve_no_more(self, index: int, is_beside: bool) -> None:
        """Let a receiver no longer get it on this side."""
        if not is_beside:
            self._takers.remove(index)
            self._call_takers()
            return
        assert self.copy is not None
        self.copy.dismiss(index)
        if not self.copy.takers:
            self.copy = None  # What waits of it is for nobody any more.

    def skip(self, count: int = 1) -> None:
        """Count messages that are not sent."""
        self.next_sequence += count
        if self.copy is not None:
            # What waits of the copy still has the sequences before this one.
            old, self.copy = self.copy, self._make_copy()
            self.copy._roll, self.copy._takers = old._roll, old._takers
            self.copy._call_the_roll()
            self.copy._call_takers()
        for branch in self.branches.values():
            branch.skip(count)

    def _make_copy(self) -> "OutgoingTopic":
        copy = OutgoingTopic(
            self.number, self.subject, self.source, is_reliable=self.is_reliable,
            schema_name=self.schema_name, schema_hash=self.schema_hash,
            next_sequence=self.next_sequence, replayed_ns=self.replayed_ns, hops=self.hops,
        )  # fmt: skip
        copy.is_declared = self.is_declared
        return copy

    def _call_the_roll(self) -> None:
        self.receivers = self._roll.count
        self.audience = self._roll.audience()

    def _call_takers(self) -> None:
        self.takers = self._takers.count
        self.addressed = self._takers.audience()

    @property
    def declared_bytes(self) -> int:
        """Return how much a declaration takes, at most."""
        texts = len(self.subject.encode()) + len(self.schema_name.encode())
        origin = _ORIGIN_BYTES + ORIGIN_NAME_BYTES_MAX if self.hops else 0
        return _DECLARED_BYTES + texts + origin

    def declare(self, stream: int, first: int) -> Topic:
        """Say what it is, and from which sequence on a stream brings it."""
        plain = (
            self.number, stream, self.subject, first, self.schema_name, self.schema_hash,
            self.replayed_ns,
        )  # fmt: skip
        links = encode_links(self.wish)
        if not self.hops:
            return Topic(*plain, links=links)
        name = self.source.name.encode()[:ORIGIN_NAME_BYTES_MAX].decode(errors="ignore")
        key = make_key(self.source.id, self.source.incarnation)
        return Topic(*plain, key, name, self.hops, links)


class Way:
    """How a stream comes just now: one for its receiver and all of its topics."""

    __slots__ = ("link",)

    def __init__(self) -> None:
        self.link = make_passage(MULTICAST, MANY, 0)


class Hole(NamedTuple):
    """Messages of a topic that were owed and will not come."""

    topic: "IncomingTopic"
    first: int
    last: int
    reason: str


class IncomingTopic:
    """A topic of a peer, and the order of its messages.

    A hole stays open while it may still grow, so that it is reported once, however many frames it
    took: `hole_first` is where it began, and it ends before `expected`.
    """

    __slots__ = (
        "__weakref__", "duplicates", "expected", "generation", "gone", "hole_first", "hole_reason",
        "holes", "hops", "is_reliable", "is_wanted", "late", "lost", "name", "number", "passed",
        "replayed_ns", "schema_hash", "schema_name", "sinks", "source", "stream", "subject",
        "waiting", "way", "wish",
    )  # fmt: skip
    request = 0

    def __init__(
        self,
        number: int,
        subject: str,
        source: Source,
        holes: list[Hole],
        way: Way,
        *,
        is_reliable: bool,
        is_wanted: bool,
        stream: int = RELIABLE,
    ) -> None:
        self.stream = stream  # Which decides what of it is lost; only its frames are waited for.
        self.number = number
        self.subject = subject
        # For which subscriptions it is: those that insist on these links. None: its publisher knows
        # nothing of that, and it is for all. `name` has both.
        self.wish: Links | None = ()
        self.name = subject
        self.source = source
        self.holes = holes  # Where finished holes are put: the receiver's list.
        self.is_reliable = is_reliable
        self.is_wanted = is_wanted
        self.way = way  # The receiver's, too.
        self.schema_name = ""
        self.schema_hash = 0
        self.replayed_ns = 0
        self.hops = 0  # Gateways that its messages have crossed.
        self.expected: int | None = None  # None: nobody has said yet where it starts for us.
        self.passed = 0  # What came before this while nobody wanted it will not come again.
        self.waiting: dict[int, Waiting] = {}  # first sequence -> (frame, payloads, times)
        self.gone: dict[
            int, tuple[int, str]
        ] = {}  # first sequence -> (count, why it will not come)
        self.hole_first = 0
        self.hole_reason = ""
        self.sinks: tuple[Any, ...] = ()
        self.generation = -1
        self.duplicates = 0
        self.late = 0
        self.lost = 0

    def start(self, first: int) -> None:
        """Begin at this sequence; one that had begun before and is behind has a hole."""
        if self.expected is None:
            self.expected = max(first, self.passed)
        elif first > self.expected:
            self._abandon_before(first, "expired")

    def is_next(self, first: int) -> bool:
        """Tell whether a run is the next one, and nothing waits or is lost around it."""
        return first == self.expected and not (self.waiting or self.gone or self.hole_first)

    def follow(
        self, stream: int, way: Way, until: int, received_ns: int, out: list[Delivery]
    ) -> None:
        """Wait for the frames of another stream from now on.

        What the old one alone had was in its frames before `until`, which are all settled; what
        came by later ones, and waits here, comes by the new one, too.
        """
        self.settle(until, "not_available", received_ns, out)
        self.waiting.clear()
        self.gone.clear()
        self.stream, self.way = stream, way

    def stop(self) -> None:
        """Forget the order: nobody here wants this topic any more."""
        self.close_hole()
        self.pass_by(self.expected or 0)
        for first, (_, payloads, _) in self.waiting.items():
            self.pass_by(first + len(payloads))
        self.expected = None
        self.waiting.clear()
        self.gone.clear()

    def pass_by(self, end: int) -> None:
        """Note that messages before `end` came and nobody wanted them."""
        if end > self.passed:
            self.passed = end

    def accept(
        self,
        frame: int,
        first: int,
        payloads: list[bytes],
        published_ns: Sequence[int],
        received_ns: int,
        out: list[Delivery],
    ) -> None:
        """Take a run of messages; hand out all that is in order now."""
        expected = self.expected
        assert expected is not None
        if first > expected:
            if self.is_reliable:
                self.waiting[first] = (frame, payloads, published_ns)
                return
            self.lost += first - expected
        elif first < expected:
            old = min(expected - first, len(payloads))
            if self.is_reliable:
                self.duplicates += old
            else:
                self.late += old
            if old == len(payloads):
                return
            first, payloads, published_ns = expected, payloads[old:], published_ns[old:]
        if self.hole_first:
            self.close_hole()
        self.expected = first + len(payloads)
        out.append(Delivery(self, first, payloads, published_ns, received_ns, self.way.link))
        if self.waiting or self.gone:
            self._drain(received_ns, out)

    def lose(
        self, first: int, count: int, reason: str, received_ns: int, out: list[Delivery]
    ) -> None:
        """Note that messages were declared lost; go on behind them if they were the next ones."""
        expected = self.expected
        if expected is None or first + count <= expected:
            return
        if len(self.gone) >= LOST_RUNS_MAX:
            # What is forgotten here is still found lost once every frame before it is settled.
            self.gone = {at: gone for at, gone in self.gone.items() if at > expected}
            while len(self.gone) >= LOST_RUNS_MAX:
                self.gone.popitem()
        self.gone[max(first, expected)] = (first + count - max(first, expected), reason)
        self._drain(received_ns, out)

    def settle(self, base: int, reason: str, received_ns: int, out: list[Delivery]) -> None:
        """Give up what cannot come any more, given that all frames before `base` are settled."""
        for first in sorted(self.waiting):
            run = self.waiting.get(first)
            if run is None:
                continue  # Handed out with an earlier one.
            if run[0] >= base:
                break
            del self.waiting[first]
            assert self.expected is not None
            if first > self.expected:
                self._abandon_before(first, reason)
            self.accept(run[0], first, run[1], run[2], received_ns, out)

    def close_hole(self) -> None:
        """Report the open hole: the next message is there, or none will come."""
        if self.hole_first:
            assert self.expected is not None
            self.lost += self.expected - self.hole_first
            self.holes.append(Hole(self, self.hole_first, self.expected - 1, self.hole_reason))
            self.hole_first = 0

    def _abandon_before(self, first: int, reason: str) -> None:
        assert self.expected is not None and first > self.expected
        if not self.hole_first:
            self.hole_first, self.hole_reason = self.expected, reason
        self.expected = first

    def _drain(self, received_ns: int, out: list[Delivery]) -> None:
        while self.waiting or self.gone:
            expected = self.expected
            assert expected is not None
            if (run := self.waiting.pop(expected, None)) is not None:
                self.close_hole()
                self.expected = expected + len(run[1])
                out.append(Delivery(self, expected, run[1], run[2], received_ns, self.way.link))
            elif (gone := self.gone.pop(expected, None)) is not None:
                self._abandon_before(expected + gone[0], gone[1])
            else:
                return


class ReplayedTopic(IncomingTopic):
    """The history of a topic, up to `end`, for those who made one request; `live` goes on there."""

    __slots__ = ("end", "live", "request")

    def __init__(
        self, number: int, live: DeliveredTopic, request: int, end: int, holes: list[Hole],
        way: Way, stream: int = RELIABLE,
    ) -> None:  # fmt: skip
        super().__init__(
            number, live.subject, live.source, holes, way, is_reliable=True, is_wanted=True,
            stream=stream,
        )  # fmt: skip
        self.schema_name, self.schema_hash = live.schema_name, live.schema_hash
        self.replayed_ns = live.replayed_ns
        if isinstance(live, IncomingTopic):
            self.wish, self.name = live.wish, live.name
        self.live = live
        self.request = request
        self.end = end

    def finish(self, reason: str) -> None:
        """Report what has not come, for nothing more will."""
        if self.expected is not None and self.expected < self.end:
            self._abandon_before(self.end, reason)
        self.close_hole()
