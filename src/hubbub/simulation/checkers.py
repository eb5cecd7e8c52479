"""What the machines promise, kept as a simple model beside them.

The ledger knows what was published and what arrived. Per publisher incarnation, subject and
subscriber: what arrives is what was published, byte for byte, once and in order; every hole is
named by exactly one GapAbandoned, and every GapAbandoned names a hole. The bounds are looked at
while the machines run, so that memory cannot grow between two looks unseen.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from hubbub.events import Event, GapAbandoned, PeerJoined, PeerLeft
from hubbub.limits import HELD_BYTES_MAX, MISSING_FRAMES_MAX, RUN_TABLES_MAX, WINDOW_BYTES
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.awareness import Awareness
from hubbub.simulation.trace import Trace
from hubbub.simulation.world import World
from hubbub.subjects import Matcher

if TYPE_CHECKING:
    from hubbub.simulation.insistent import Insistent
    from hubbub.simulation.latecomer import Latecomer
    from hubbub.simulation.node import SimulatedNode

    Subscriber: TypeAlias = SimulatedNode | Latecomer | Insistent

_FRAME_BYTES_SLACK: Final = 65_536
_LOOK_EVERY: Final = 16  # Polls between two looks at all bounds.
_IDLE_WAKES_MAX: Final = 20

Place = tuple[bytes, int, str]  # Publisher id, incarnation, subject.


@lru_cache(maxsize=4096)
def _matcher_of(patterns: tuple[str, ...]) -> Matcher[None]:
    matcher: Matcher[None] = Matcher()
    for pattern in patterns:
        matcher.add(pattern, None)
    return matcher


def place_of(source: Source, subject: str) -> Place:
    """Return under what a publication is found."""
    return source.id, source.incarnation, subject


class Publication:
    """All messages of one subject by one publisher incarnation."""

    def __init__(self, node: "SimulatedNode", topic: OutgoingTopic) -> None:
        self.node = node
        self.topic = topic
        self.first = topic.next_sequence
        self.payloads: list[bytes] = []
        self.times_ns: list[int] = []
        self.last_kept = 0  # The sequence behind the last message that was not skipped.

    @property
    def next(self) -> int:
        """Return the sequence of the next message."""
        return self.first + len(self.payloads)


class Reception:
    """What one subscriber got of one publication since it subscribed."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.next = 0
        self.count = 0
        self.holes: list[tuple[int, int]] = []
        self.gaps: list[tuple[int, int]] = []
        self.first_ns = 0
        self.last_ns = 0

    def take(self, first: int, count: int, now: int) -> bool:
        """Take a run; False if it is old or out of order."""
        if self.first is None:
            self.first = self.next = first
            self.first_ns = now
        if first < self.next:
            return False
        if first > self.next:
            self.holes.append((self.next, first - 1))
        self.next = first + count
        self.count += count
        self.last_ns = now
        return True

    def take_gap(self, first: int, last: int) -> None:
        """Take the report of a hole."""
        self.gaps.append((first, last))

    def unexplained(self) -> list[tuple[int, int]]:
        """Return the holes without a report and the reports without a hole."""
        return sorted(set(self.holes) ^ set(self._gaps_inside()))

    def _gaps_inside(self) -> Iterator[tuple[int, int]]:
        # A report before the first message, or behind the last, is about no hole between messages.
        # Two that meet are one hole: when the first was reported, the second was not there yet.
        start = self.first if self.first is not None else 0
        joined: list[tuple[int, int]] = []
        for first, last in sorted(self.gaps):
            if joined and joined[-1][1] + 1 == first:
                joined[-1] = joined[-1][0], last
            else:
                joined.append((first, last))
        yield from (gap for gap in joined if gap[0] >= start and gap[1] < self.next)

    @property
    def end(self) -> int:
        """Return the sequence behind the last message that came or was reported as lost."""
        return max([self.next, *(last + 1 for _, last in self.gaps)])

    @property
    def start(self) -> int | None:
        """Return the sequence of the first message that came or was reported as lost."""
        starts = [first for first, _ in self.gaps]
        if self.first is not None:
            starts.append(self.first)
        return min(starts, default=None)


class Ledger:
    """Knows everything that was published, delivered and reported."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: list[SimulatedNode] = []
        self.publications: dict[Place, Publication] = {}
        self.receptions: dict[tuple[Subscriber, Place], Reception] = {}
        self.ended: list[tuple[Subscriber, Place, Reception]] = []
        # The first message published after a node began to want a subject.
        self.begins: dict[tuple[SimulatedNode, Place], int] = {}
        self.present: dict[SimulatedNode, set[Source]] = {}
        self.awareness = Awareness(world)
        self.events: list[tuple[int, SimulatedNode, Event]] = []
        self.are_gaps_allowed = False
        self.is_due = False  # Whether everybody should have had the time to get what it is owed.
        self.trace: Trace | None = None

    # What nodes tell.

    def add_node(self, node: "SimulatedNode") -> None:
        """Begin to watch a node."""
        self.nodes.append(node)
        self.present[node] = set()

    def removed(self, node: "SimulatedNode") -> None:
        """Stop expecting anything of a node."""
        self.nodes.remove(node)

    def subscribed(self, node: "SimulatedNode", pattern: str) -> None:
        """Note that a node wants something that it did not want before."""
        self.world.note(node.index, "subscribe", pattern)
        for place, publication in self.publications.items():
            if not self.is_subscribed(node, place[2]):
                self.begins[node, place] = publication.next

    def unsubscribed(self, node: "SimulatedNode") -> None:
        """End the receptions that no pattern of the node covers any more."""
        self.world.note(node.index, "unsubscribe")
        self._end_receptions(node, node.patterns)

    def _end_receptions(self, node: "SimulatedNode", patterns: Iterable[str]) -> None:
        wanted = _matcher_of(tuple(patterns))
        for key in [key for key in self.receptions if key[0] is node]:
            if not wanted.match(key[1][2]):
                self.ended.append((*key, self.receptions.pop(key)))
                if self.trace is not None:
                    self.trace.ended(*key)

    def declared(self, node: "SimulatedNode", topic: OutgoingTopic) -> None:
        """Note that a subject is published from now on."""
        place = place_of(node.source, topic.subject)
        if place not in self.publications:
            self.publications[place] = Publication(node, topic)

    def published(
        self, node: "SimulatedNode", topic: OutgoingTopic, payload: bytes, *, is_skipped: bool
    ) -> None:
        """Note a message, in the order of the calls."""
        publication = self.publications[place_of(node.source, topic.subject)]
        publication.payloads.append(payload)
        publication.times_ns.append(self.world.now)
        if not is_skipped:
            publication.last_kept = publication.next
        self.world.counts["published"] += 1

    def delivered(self, node: "Subscriber", delivery: Delivery) -> None:
        """Compare a run of messages with what was published."""
        topic, world = delivery.topic, self.world
        place = place_of(topic.source, topic.subject)
        world.note(node.index, place, delivery.first, len(delivery.payloads))
        if self.trace is not None:
            self.trace.delivered(node, place, delivery)
        publication = self.publications.get(place)
        where = f"{node.name} got {topic.subject} of {topic.source.name} {delivery.first}"
        if publication is None:
            world.fail(f"{where}, which nobody publishes")
            return
        world.check(self.is_subscribed(node, topic.subject), f"{where} without wanting it")
        at = delivery.first - publication.first
        sent = publication.payloads[at : at + len(delivery.payloads)] if at >= 0 else []
        world.check(sent == delivery.payloads, f"{where}: not what was published")
        reception = self.receptions.setdefault((node, place), Reception())
        is_next = reception.take(delivery.first, len(delivery.payloads), world.now)
        world.check(is_next, f"{where} again or late; {reception.next} was next")
        world.counts["delivered"] += len(delivery.payloads)

    def reported(self, node: "SimulatedNode", event: Event) -> None:
        """Take in an event."""
        self.world.note(node.index, str(event))
        self.events.append((self.world.now, node, event))
        if self.trace is not None:
            self.trace.reported(node, event)
        self.awareness.reported(node, event)
        if isinstance(event, GapAbandoned):
            self._take_gap(node, event)
        elif isinstance(event, PeerJoined):
            is_new = event.peer not in self.present[node]
            self.world.check(is_new, f"{node.name}: {event.peer} joined twice")
            self.present[node].add(event.peer)
        elif isinstance(event, PeerLeft):
            is_known = event.peer in self.present[node]
            self.world.check(is_known, f"{node.name}: {event.peer} left without having joined")
            self.present[node].discard(event.peer)

    def _take_gap(self, node: "SimulatedNode", gap: GapAbandoned) -> None:
        self.world.counts["gaps"] += 1
        self.world.check(self.are_gaps_allowed, f"{node.name}: {gap}")
        if gap.subject is None:
            self.world.counts["blind_gaps"] += 1
            return
        place = place_of(gap.publisher, gap.subject)
        reception = self.receptions.setdefault((node, place), Reception())
        reception.take_gap(gap.first, gap.last)

    # What scenarios ask.

    @staticmethod
    def is_subscribed(node: "Subscriber", subject: str) -> bool:
        """Tell whether a node wants a subject, as a matcher made for the question finds."""
        return bool(_matcher_of(tuple(node.patterns)).match(subject))

    def debts(self) -> Iterator[tuple[Publication, "SimulatedNode", int | None]]:
        """Name who should get what among those alive, and from where on its publisher owes it."""
        for publication in self.publications.values():
            publisher = publication.node
            if not publisher.is_alive:
                continue
            for node in self.nodes:
                if node is publisher or not self.is_subscribed(node, publication.topic.subject):
                    continue
                peer = publisher.core.peers.get(node.core.endpoint.key)
                owed = peer.debt.owed if peer is not None else {}
                yield publication, node, owed.get(publication.topic.number)

    def reception(self, publication: Publication, node: "Subscriber") -> Reception:
        """Return what a node got of a publication."""
        place = place_of(publication.node.source, publication.topic.subject)
        return self.receptions.get((node, place)) or Reception()

    def lacking(self) -> str:
        """Say what a subscriber still lacks; empty when everybody has everything it is owed."""
        for publication, node, owed in self.debts():
            who = f"{node.name} of {publication.topic.subject} by {publication.node.name}"
            if owed is None:
                return f"{who} is owed nothing"
            place = place_of(publication.node.source, publication.topic.subject)
            first = max(owed, self.begins.get((node, place), 0))
            if not publication.topic.is_reliable or first >= publication.next:
                continue
            reception = self.reception(publication, node)
            if reception.start is None:
                return f"{who} has nothing; {first}..{publication.next - 1} is owed"
            if reception.end < publication.next:
                return f"{who} has up to {reception.end - 1} of {publication.next - 1}"
        return ""

    @property
    def is_complete(self) -> bool:
        """Tell whether everybody has everything it is owed."""
        return not self.lacking()

    def check_receptions(self) -> None:
        """Check what holds at the end of every run: starts as granted, holes as reported."""
        for publication, node, owed in self.debts():
            reception = self.reception(publication, node)
            if owed is None or reception.start is None or not publication.topic.is_reliable:
                continue
            who = f"{node.name} of {publication.topic.subject} by {publication.node.name}"
            place = place_of(publication.node.source, publication.topic.subject)
            latest = max(owed, self.begins.get((node, place), 0))
            self.world.check(
                reception.start <= latest,
                f"{who} began with {reception.start}, but {latest} was granted",
            )
        self._check_holes()

    def _check_holes(self) -> None:
        ended = [(place, node, reception) for node, place, reception in self.ended]
        current = [(place, node, reception) for (node, place), reception in self.receptions.items()]
        for place, node, reception in ended + current:
            if not self.publications[place].topic.is_reliable:
                continue
            if node.has_history:
                self._check_late_holes(place, node, reception)
                continue
            holes = reception.unexplained()
            is_blind = self.world.counts["blind_gaps"] > 0 and not set(reception.gaps) - set(
                reception.holes
            )
            self.world.check(
                not holes or is_blind, f"{node.name} of {place[2]}: {holes} not reported just once"
            )
            spans = sorted(reception.gaps)
            is_once = all(a[1] < b[0] for a, b in itertools.pairwise(spans))
            self.world.check(is_once, f"{node.name} of {place[2]}: gaps overlap: {spans}")

    def _check_late_holes(self, place: Place, latecomer: "Subscriber", late: Reception) -> None:
        """Check that each hole is reported, where gaps may be of what was or of what is new."""
        gaps = [
            event
            for _, node, event in self.events
            if isinstance(event, GapAbandoned) and node.index == latecomer.index
            and (event.subject is None or place_of(event.publisher, event.subject) == place)
        ]  # fmt: skip
        lost = {n for gap in gaps if gap.subject for n in range(gap.first, gap.last + 1)}
        holes = {n for first, last in late.holes for n in range(first, last + 1)}
        is_blind = any(gap.subject is None for gap in gaps)
        self.world.check(
            holes <= lost or is_blind,
            f"{latecomer.name} of {place[2]}: {sorted(holes - lost)} not reported",
        )

    def unaware(self) -> str:
        """Say who does not know who is there or who wants what; empty when all know."""
        for node in self.nodes:
            others = {other.source for other in self.nodes if other is not node}
            if self.present[node] != others:
                known = sorted(map(str, self.present[node]))
                return f"{node.name} knows {known}, there are {sorted(map(str, others))}"
        for publication in self.publications.values():
            subject, publisher = publication.topic.subject, publication.node
            wanting = [
                node
                for node in self.nodes
                if node is not publisher
                and any(self.is_subscribed(one, subject) for one in node.subscribers)
            ]
            # One that timed out is owed, and counted, until the repair window is over.
            counted = publication.topic.receivers - sum(
                peer.lost_ns is not None and publication.topic.number in peer.debt.owed
                for peer in publisher.core.peers.values()
            )
            if publisher.is_alive and counted != len(wanting):
                return f"{publisher.name} counts {counted} receivers of {subject}, not {wanting}"
        return self.awareness.differing(self.nodes)


class Bounds:
    """Looks now and then whether a node keeps within its limits."""

    def __init__(self, world: World, node: "SimulatedNode") -> None:
        self.world = world
        self.node = node
        self._polls = 0

    def look(self) -> None:
        """Look, every few polls."""
        self._polls += 1
        if self._polls % _LOOK_EVERY == 0:
            self.look_at_sender()
            self.look_at_receivers()

    def look_at_sender(self) -> None:
        """Check what a publisher keeps."""
        for sender in self.node.core.outgoing.reliables:
            self._look_at(sender)

    def _look_at(self, sender: Sender) -> None:
        settings, cache, framer = self.node.core.settings, sender.cache, sender.framer
        assert cache is not None
        self._within("cache", cache.size_bytes, settings.cache_bytes + _FRAME_BYTES_SLACK)
        self._within("cache by count", cache.size_bytes, sum(
            len(body) if isinstance(body, bytes) else len(body[0]) + len(body[1])
            for body in cache.bodies.values()
        ))  # fmt: skip
        self._within("run tables", len(cache.run_tables), RUN_TABLES_MAX)
        window_bytes = max(sender.repair_budget(), WINDOW_BYTES)
        self._within("repairs", sender.repair_bytes, window_bytes + _FRAME_BYTES_SLACK)
        self._within("pending", framer.pending_count, max(framer.backlog_cells // 3, 65_536))

    def look_at_receivers(self) -> None:
        """Check what a subscriber keeps."""
        core = self.node.core
        budget = core.incoming.budget
        self._within("reassembly", budget.claimed_bytes, budget.max_bytes)
        for peer in core.peers.values():
            for receiver in peer.incoming.values():
                missing = receiver.requester.missing
                self._within("missing", len(missing), MISSING_FRAMES_MAX)
                self._within("held", receiver.held_bytes, HELD_BYTES_MAX + _FRAME_BYTES_SLACK)
                if not missing:
                    is_armed = receiver.requester.timer_ns is not None
                    self._within("timers of nothing", int(is_armed), 0)

    def _within(self, what: str, value: int, bound: int) -> None:
        self.world.check(value <= bound, f"{self.node.name}: {what} {value} above {bound}")


class StormWatch:
    """Finds a node that wakes for nothing, over and over."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._idle_wakes = 0

    def look(self, *, is_due: bool, is_progress: bool) -> None:
        """Count polls that did nothing and left a deadline behind that has passed."""
        self._idle_wakes = self._idle_wakes + 1 if is_due and not is_progress else 0
        self.world.check(
            self._idle_wakes < _IDLE_WAKES_MAX, f"{self.name} wakes for nothing over and over"
        )
