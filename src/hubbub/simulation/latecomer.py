"""A subscription with history in a simulated node, as the shell would have it."""

from functools import partial
from typing import TYPE_CHECKING

from hubbub.protocol.delivery import DeliveredTopic, Delivery
from hubbub.protocol.joining import Joining
from hubbub.protocol.requests import write_request
from hubbub.simulation.insistent import check_run
from hubbub.wire.wishes import Links, name_by

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode


class Latecomer:
    """A subscription that asked for history: the ledger compares what it gets apart."""

    def __init__(
        self, node: "SimulatedNode", pattern: str, request: int, count: int, links: Links = ()
    ) -> None:
        self.node = node
        self.index = node.index
        self.name = f"{node.name}/{request}" + (f" by {'/'.join(links)}" if links else "")
        self.pattern = pattern
        self.links = links
        self.request = request
        self.has_history = True
        self.patterns = {pattern: 1}
        # As others are told.
        self.entry = write_request(request, count, name_by(pattern, links))
        self.joining = Joining(partial(node.ledger.delivered, self), self._refuse_gap)
        # Where each topic was when we asked.
        self.asked_at = {
            place: publication.topic.next_sequence
            for place, publication in node.ledger.publications.items()
        }

    def take(self, delivery: Delivery) -> None:
        """Take a run; if it insists on links, it must have come by one of them."""
        check_run(self, delivery)
        self.joining.take(delivery)

    def _refuse_gap(self, topic: DeliveredTopic, first: int, last: int) -> None:
        text = f"{self.name}: no room to wait for {topic.subject} {first}..{last}"
        self.node.world.fail(text)
