"""What nodes must know of each other: who declares what, and who is matched with whom.

The truth is what the applications asked for; the views are what the machines hold, and the matches
what they told by events.
"""

from typing import TYPE_CHECKING

from hubbub.events import (
    Event,
    PeerLeft,
    PublisherMatched,
    PublisherUnmatched,
    SubscriberMatched,
    SubscriberUnmatched,
)
from hubbub.message import Source
from hubbub.simulation.world import World
from hubbub.subjects import Matcher

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode

Told = tuple[str, Source, str]  # Which side the other is on, the other, the subject.


class Awareness:
    """Compares what nodes know of each other with what is so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: dict[SimulatedNode, set[Told]] = {}

    def reported(self, node: "SimulatedNode", event: Event) -> None:
        """Take in an event: matches begin once, end once, and do not outlive their peer."""
        told = self.told.setdefault(node, set())
        match event:
            case PublisherMatched(publisher=other, subject=subject):
                self._begin(node, told, ("publisher", other, subject))
            case SubscriberMatched(subscriber=other, subject=subject):
                self._begin(node, told, ("subscriber", other, subject))
            case PublisherUnmatched(publisher=other, subject=subject):
                self._end(node, told, ("publisher", other, subject))
            case SubscriberUnmatched(subscriber=other, subject=subject):
                self._end(node, told, ("subscriber", other, subject))
            case PeerLeft(peer=other):
                left = sorted(str(one) for one in told if one[1] == other)
                self.world.check(not left, f"{node.name}: {other} left, but not {left}")

    def _begin(self, node: "SimulatedNode", told: set[Told], match: Told) -> None:
        self.world.check(match not in told, f"{node.name}: matched twice: {match}")
        told.add(match)

    def _end(self, node: "SimulatedNode", told: set[Told], match: Told) -> None:
        self.world.check(match in told, f"{node.name}: unmatched without a match: {match}")
        told.discard(match)

    def differing(self, nodes: list["SimulatedNode"]) -> str:
        """Say who has a wrong view of whom; empty when all views are right."""
        return self._differing_views(nodes) or self._differing_matches(nodes)

    def _differing_views(self, nodes: list["SimulatedNode"]) -> str:
        truths = {
            node: (node.wanted | {one.entry for one in node.latecomers}, set(node.published))
            for node in nodes
        }
        for node in nodes:
            for other, truth in truths.items():
                peer = node.core.peers.get(other.key)
                if other is node or peer is None:
                    continue
                view = set(peer.declared.patterns), set(peer.declared.publications)
                if view != truth:
                    return (
                        f"{node.name} takes {other.name} for wanting {sorted(view[0])} and"
                        f" publishing {sorted(view[1])}, not {sorted(truth[0])} and"
                        f" {sorted(truth[1])}"
                    )
        return ""

    def _differing_matches(self, nodes: list["SimulatedNode"]) -> str:
        truth = self._true_matches(nodes)
        for node in nodes:
            wrong = truth[node] ^ self.told.get(node, set())
            if wrong:
                return f"{node.name} was told wrongly of {sorted(map(str, wrong))[:3]}"
        return ""

    @staticmethod
    def _true_matches(nodes: list["SimulatedNode"]) -> dict["SimulatedNode", set[Told]]:
        matcher: Matcher[SimulatedNode] = Matcher()
        for node in nodes:
            for pattern in node.wanted:
                matcher.add(pattern, node)
        truth: dict[SimulatedNode, set[Told]] = {node: set() for node in nodes}
        for node in nodes:
            for subject in node.published:
                for other in matcher.match(subject):
                    if other is not node:
                        truth[other].add(("publisher", node.source, subject))
                        truth[node].add(("subscriber", other.source, subject))
        return truth
