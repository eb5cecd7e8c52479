"""A subscription with history in a simulated node, as the shell would have it."""

from functools import partial
from typing import TYPE_CHECKING

from hubbub.protocol.delivery import DeliveredTopic
from hubbub.protocol.joining import Joining
from hubbub.protocol.requests import write_request

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode


class Latecomer:
    """A subscription that asked for history: the ledger compares what it gets apart."""

    def __init__(self, node: "SimulatedNode", pattern: str, request: int, count: int) -> None:
        self.node = node
        self.index = node.index
        self.name = f"{node.name}/{request}"
        self.pattern = pattern
        self.request = request
        self.has_history = True
        self.patterns = {pattern: 1}
        self.entry = write_request(request, count, pattern)  # As others are told.
        self.joining = Joining(partial(node.ledger.delivered, self), self._refuse_gap)
        # Where each topic was when we asked.
        self.asked_at = {
            place: publication.topic.next_sequence
            for place, publication in node.ledger.publications.items()
        }

    def _refuse_gap(self, topic: DeliveredTopic, first: int, last: int) -> None:
        text = f"{self.name}: no room to wait for {topic.subject} {first}..{last}"
        self.node.world.fail(text)
