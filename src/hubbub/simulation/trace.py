"""What happened in a run, kept for others to judge: what each subscriber got, heard and was owed.

A subscriber counts as a recorder of its own from the moment it wants a subject until it wants it no
more: what it gets afterwards is another recording. The trace keeps what came, before the ledger
compares it: who judges a trace must be able to see what the ledger sees.
"""

from typing import TYPE_CHECKING, NamedTuple

from hubbub.events import Event
from hubbub.protocol.delivery import Delivery
from hubbub.simulation.insistent import Insistent
from hubbub.simulation.latecomer import Latecomer

if TYPE_CHECKING:
    from hubbub.simulation.checkers import Ledger, Place, Subscriber
    from hubbub.simulation.node import SimulatedNode


class Got(NamedTuple):
    """A run of messages that a recorder got."""

    recorder: str
    time_ns: int
    delivery: Delivery


class Heard(NamedTuple):
    """An event that was reported to a recorder."""

    recorder: str
    time_ns: int
    event: Event


class Owed(NamedTuple):
    """Messages that a recorder must have got in the end, or heard that they are lost."""

    recorder: str
    source_id: str
    incarnation: int
    subject: str
    first: int
    last: int


class Trace:
    """What happened in one run."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.got: list[Got] = []
        self.heard: list[Heard] = []
        self.owed: list[Owed] = []
        self._names: dict[Subscriber, str] = {}
        self._used: dict[str, int] = {}
        self._times: dict[tuple[Subscriber, Place], int] = {}  # So often it has ended.
        self._recorders: dict[Subscriber, set[str]] = {}
        self._events: dict[SimulatedNode, list[tuple[int, Event]]] = {}

    def delivered(self, node: "Subscriber", place: "Place", delivery: Delivery) -> None:
        """Keep a run of messages."""
        world = (node.node if isinstance(node, Latecomer | Insistent) else node).world
        self.got.append(Got(self._recorder(node, place), world.now, delivery))

    def reported(self, node: "SimulatedNode", event: Event) -> None:
        """Keep an event."""
        self._events.setdefault(node, []).append((node.world.now, event))

    def ended(self, node: "Subscriber", place: "Place") -> None:
        """Begin another recording of a subject that is not wanted any more."""
        self._times[node, place] = self._times.get((node, place), 0) + 1

    def finish(self, ledger: "Ledger") -> None:
        """Keep who was owed what, and who heard what."""
        for publication, node, owed in ledger.debts() if ledger.is_due else ():
            source, topic = publication.node.source, publication.topic
            place = (source.id, source.incarnation, topic.subject)
            if owed is None or not topic.is_reliable:
                continue
            first = max(owed, ledger.begins.get((node, place), 0))
            if first < publication.next:
                recorder, last = self._recorder(node, place), publication.next - 1
                self.owed.append(Owed(recorder, place[0].hex(), *place[1:], first, last))
        for node, events in self._events.items():
            for recorder in sorted(self._recorders_of(node)):
                self.heard += [Heard(recorder, time_ns, event) for time_ns, event in events]

    def _recorders_of(self, node: "SimulatedNode") -> set[str]:
        """Name all recordings of a node: what it hears may be about any of them."""
        found = self._recorders.get(node, {self._name(node)})
        return found.union(*(self._recorders.get(one, ()) for one in node.latecomers))

    def _recorder(self, node: "Subscriber", place: "Place") -> str:
        times = self._times.get((node, place), 0)
        recorder = f"{self._name(node)}+{times}" if times else self._name(node)
        self._recorders.setdefault(node, set()).add(recorder)
        return recorder

    def _name(self, node: "Subscriber") -> str:
        """Name a subscriber; one that comes back under its name is another one."""
        if node not in self._names:
            used = self._used[node.name] = self._used.get(node.name, 0) + 1
            again = f".{used}" if used > 1 else ""
            self._names[node] = f"{self.run}-{node.name}{again}"
        return self._names[node]
